"""JSON of messages: everything can be written, and only JSON is read."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.model.json_codec import InvalidJson, UnexpectedJson, decode, encode_value


@dataclass
class _Point:
    x: Any


class _Struct(msgspec.Struct):
    file: Path
    values: list[int] = []


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("\ud800", "\ufffd"),
        ({"\ud83d\ude00": "\ud83d\ude00"}, {"\U0001f600": "\U0001f600"}),
        ([float("nan"), float("inf"), 2**80], [None, None, 2**80]),
        ({1: {2}, 3: b"x"}, {"1": [2], "3": "eA=="}),
        (_Point("\ud800"), {"x": "\ufffd"}),
        (_Struct(Path("/a")), {"file": "/a", "values": []}),
    ],
)
def test_any_value_can_be_written(value: object, written: object) -> None:
    text = encode_value(value)
    assert json.loads(text) == decode(text) == written
    assert b"\n" not in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"\xef\xbb\xbf1", "is not JSON"),
        (b'"\\ud800"', "is not JSON"),
        (b'"\xed\xa0\x80"', "is not UTF-8"),
        (b"[" * 100_000, "is nested too many levels deep"),
    ],
)
def test_what_is_no_json_is_refused(text: bytes, reason: str) -> None:
    for kind in (None, list[int]):
        with pytest.raises((InvalidJson, UnexpectedJson)) as refused:
            decode(text) if kind is None else decode(text, kind)
        assert kind is not None or str(refused.value).startswith(reason)


def test_a_value_of_another_type_is_refused_with_its_place() -> None:
    with pytest.raises(UnexpectedJson, match="Expected `int`, got `str`") as refused:
        decode(b'{"file": "/a", "values": [1, "2"]}', _Struct)
    assert refused.value.place == ".values[1]"
    assert decode(b'{"file": "/a"}', _Struct) == _Struct(Path("/a"))
