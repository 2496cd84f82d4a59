"""Lines come out whatever is in a record."""

import dataclasses
import datetime
import enum
import gzip
import json
import math

import msgspec
import pytest

from gossamer.compiled import native
from gossamer.errors import BadInput
from gossamer.model.json_codec import encode_lines, encode_value
from gossamer.model.record import ItemRecord, Output
from gossamer.sinks.jsonl import decode_line, json_units, read_records


def item(value):
    return ItemRecord(
        appid="a",
        crawlid="c",
        spiderid="s",
        request_id="r",
        attempt=1,
        url="u",
        attrs=None,
        timestamp="2026-01-02T03:04:05Z",
        item={"value": value},
    )


def test_a_record_comes_back_as_it_was(page):
    records = [page("r1", attrs={"step": 3}).record, item([1, "two"])]
    lines = encode_lines(records)
    assert [decode_line(line) for line in lines.splitlines()] == records


def test_a_line_holds_no_break_of_its_own(page):
    lines = encode_lines([page(body="a\r\nb\x00c\u2028d").record])
    assert lines.count(b"\n") == 1
    assert lines.endswith(b"\n")
    assert b"\0" not in lines
    assert json.loads(lines)["body"] == "a\r\nb\x00c\u2028d"


def test_an_integer_that_python_cannot_write_is_a_hexadecimal_text():
    assert json.loads(encode_value({"n": 10**5000, "m": [-(10**5000)], "small": 2**70})) == {
        "n": hex(10**5000),
        "m": [hex(-(10**5000))],
        "small": 2**70,
    }


def test_half_surrogate_pairs_are_replaced_and_whole_ones_joined(page):
    lines = encode_lines([page("r1").record, page("r2", body="a\ud83d\ude00b\ude00").record])
    first, second = map(json.loads, lines.decode("utf-8").splitlines())
    assert first["request_id"] == "r1"
    assert second["body"] == "a\U0001f600b\ufffd"


class Odd:
    def __str__(self):
        return "odd\ud800"


class Mute:
    def __str__(self):
        raise RuntimeError("no text")


class Torn(enum.Enum):
    HALF = "half\ud800"


@dataclasses.dataclass
class Price:
    amount: object


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (math.inf, None),
        (2**80, 2**80),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (b"bytes", "Ynl0ZXM="),
        (Odd(), "odd\ufffd"),
        (Mute(), "<Mute>"),
        ({Mute(): 1}, {"<Mute>": 1}),
        (Torn.HALF, "half\ufffd"),
        (Price("\ud800"), {"amount": "\ufffd"}),
        (Price([Price("\udfff")]), {"amount": [{"amount": "\ufffd"}]}),
        ({(1, 2): "key"}, {"(1, 2)": "key"}),
        ({"k\udfff": {"\ud800"}}, {"k\ufffd": ["\ufffd"]}),
    ],
)
def test_what_a_spider_yields_never_raises(value, expected):
    assert json.loads(encode_lines([item(value)]))["item"]["value"] == expected


def test_endless_nesting_is_cut():
    value = []
    value.append(value)
    assert b"..." in encode_value(value)
    assert msgspec.json.decode(encode_lines([item(value)]))["type"] == "item"


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "items.jsonl.gz"
    whole = bytearray(gzip.compress(encode_lines([item("a" * 1000)])))
    whole[10] = 0xFF  # no type of block that deflate has: zlib.error
    path.write_bytes(whole)
    with pytest.raises(BadInput, match=r"items\.jsonl\.gz: .*invalid block type"):
        list(read_records(path))


@pytest.mark.skipif(native is None, reason="gossamer_native is not installed: `make setup` builds it where cargo is")
@pytest.mark.parametrize("step", [1, 7, 8, 9, 16, 17, 31, 33, 65])
def test_a_body_apart_gives_the_same_line_as_one_in_the_record(page, step):
    """Every character that JSON escapes, at every place of the bytes that are looked at together (up to 64)."""
    special = "".join(map(chr, range(0x20))) + '"\\/\x7f\u2028é😀'
    texts = [
        "",
        '","body":"',
        *(f"{'x' * (at % step)}{one}{'y' * at}" for at, one in enumerate(special)),
        special * step,
    ]
    whole = [page(f"r{number}", body=text, attrs={"body": ""}) for number, text in enumerate(texts)]
    apart = [page(f"r{number}", body="", attrs={"body": ""}) for number in range(len(texts))]
    for output, text in zip(apart, texts, strict=True):
        output.body, output.body_apart = text.encode(), True
    beside = Output(record=item(1))
    assert json_units([*apart, beside]) == [encode_lines([*(output.record for output in whole), beside.record])]


@pytest.mark.skipif(native is None, reason="gossamer_native is not installed: `make setup` builds it where cargo is")
@pytest.mark.parametrize("name", ["body", 'x","body":""', "body\ud800"])
def test_a_body_apart_goes_into_its_field_whatever_the_headers_are_called(page, name):
    headers = {"server": [], name: ["", ',"body":""'], "x,": []}
    whole = page("r1", body="text", response_headers=headers, request_headers=headers)
    apart = page("r1", body="", response_headers=headers, request_headers=headers)
    apart.body, apart.body_apart = b"text", True
    assert json_units([apart]) == [encode_lines([whole.record])]
