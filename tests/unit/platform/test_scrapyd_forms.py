"""Forms are decoded as by the standard library, and in parts."""

import random
from urllib.parse import unquote_to_bytes

import pytest

from gossamer_platform.scrapyd import forms

_PIECES = [
    b"%",
    b"%4",
    b"%41",
    b"=",
    b"%3D",
    b" ",
    b"\n",
    b"\r\n",
    b"+",
    b"a",
    b"_",
    b"%0d%0A",
    b"%20",
    b"\t",
    b"==",
    b"%e4",
]


@pytest.mark.parametrize("part_bytes", [7, 1 << 18])
def test_every_text_is_decoded_as_by_the_standard_library(monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    monkeypatch.setattr(forms, "_PART_BYTES", part_bytes)
    chance = random.Random(1)
    for _ in range(5000):
        text = b"".join(chance.choices(_PIECES, k=chance.randrange(20)))
        assert forms.parse_query(b"a=" + text) == {b"a": [unquote_to_bytes(text.replace(b"+", b" "))]}, text


def test_a_form_has_a_bounded_number_of_parameters() -> None:
    most = forms._MAX_PARAMETERS
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    for body, kind in (
        (b"&".join([b"a=1"] * most), forms._FORM),
        (part * most + b"--b--", "multipart/form-data; boundary=b"),
    ):
        assert len(forms.parse_body(kind, body)[b"a"]) == most
    for body, kind in (
        (b"&" * most, forms._FORM),
        (b";" * most, forms._FORM),
        (part * (most + 1) + b"--b--", "multipart/form-data; boundary=b"),
    ):
        with pytest.raises(ValueError, match="more than 10000 parameters"):
            forms.parse_body(kind, body)
