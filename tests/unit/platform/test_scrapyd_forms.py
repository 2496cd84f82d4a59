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
