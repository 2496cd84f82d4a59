"""Entries of logs and conditions on rows, as Scrapy Cloud's clients see them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gossamer.errors import BadInput
from gossamer_platform.cloud import records
from gossamer_platform.cloud.calls import JobKey
from gossamer_platform.cloud.log_entries import LogEntry, log_entries, response_of
from gossamer_platform.cloud.row_filter import parse_row_filters
from gossamer_platform.v1.items import ItemLine


def _entries(text: str, **options: bool) -> list[tuple[int, int, str]]:
    lines = [ItemLine(number, line.encode(), 0) for number, line in enumerate(text.splitlines())]
    return [(found.number, found.level, found.message) for found in log_entries(lines, starts_at=5.0, **options)]


_LOG = """Traceback of a start
  File x
2026-01-02 03:04:05 [scrapy.core.scraper] ERROR: Error downloading
Traceback (most recent call last):
  ValueError: x
2026-01-02 03:04:06 [\x1b[31mspider\x1b[0m] WARNING: colours
"""


def test_a_message_has_all_its_lines_and_other_lines_are_info() -> None:
    assert _entries(_LOG) == [
        (0, 20, "Traceback of a start"),
        (1, 20, "  File x"),
        (2, 40, "[scrapy.core.scraper] Error downloading\nTraceback (most recent call last):\n  ValueError: x"),
        (5, 30, "[spider] colours"),
    ]


def test_an_entry_that_may_grow_is_held_back() -> None:
    assert [number for number, _, _ in _entries(_LOG, hold_last=True)] == [0, 1, 2]


def test_a_message_without_end_is_cut_into_entries() -> None:
    text = "2026-01-02 03:04:05 [a] INFO: begin\n" + "x\n" * 3000
    found = _entries(text)
    assert found[0][2].count("\n") < 1000
    assert len(found) == 2002
    assert max(len(message) for _, _, message in found) < 64 * 1024


def test_a_date_that_does_not_exist_has_the_time_before() -> None:
    [entry] = log_entries([ItemLine(0, b"2026-02-31 03:04:05 [a] INFO: x", 0)], starts_at=5.0)
    assert entry.time == 5000


def test_requests_are_those_of_the_engine() -> None:
    message = "[scrapy.core.engine] Crawled (404) <GET https://a.example/b?c> (referer: None)"
    found = response_of(LogEntry(3, 7000, 10, message))
    assert found is not None
    assert (found["status"], found["method"], found["url"], found["time"]) == (
        404,
        "GET",
        "https://a.example/b?c",
        7000,
    )
    assert response_of(LogEntry(3, 7000, 10, "[spider] Crawled (404) <GET x>")) is None


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ('["a", "=", [1, 2]]', True),
        ('["a", "!=", [1]]', False),
        ('["a", ">", ["x"]]', False),
        ('["b.c", "icontains", ["XY"]]', True),
        ('["b.c", "matches", ["^x.z$"]]', True),
        ('["d", "exists", []]', False),
        ('["d", "notexists"]', True),
        ('["d", "isempty", []]', True),
        ('["d", "=", [null]]', False),
        ('["a", "isnotempty", []]', True),
    ],
)
def test_conditions(condition: str, is_met: bool) -> None:
    [found] = parse_row_filters([condition])
    assert found.accepts({"a": 1, "b": {"c": "xyz"}}) is is_met


@pytest.mark.parametrize(
    "condition", ["", "{}", '["a"]', '["a", "nearly", [1]]', '["a", "=", []]', '["a", "matches", ["("]]']
)
def test_a_condition_that_cannot_be_read_is_refused(condition: str) -> None:
    with pytest.raises(BadInput):
        parse_row_filters([condition])


class _Rows:
    """Rows without a file."""

    def __init__(self, *rows: Any) -> None:
        self._found = rows

    def rows(self, start: int) -> Iterator[tuple[int, Any]]:
        yield from enumerate(self._found)

    def close(self) -> None:
        pass


def _answer(*rows: Any, since: int = 0, with_key: bool = False) -> list[Any]:
    wanted = records.RecordSelection(0, None, since, [], with_key=with_key)
    content = records._content(_Rows(*rows), wanted, JobKey(1, 2, 3), records._line)  # type: ignore[arg-type]
    return [msgspec.json.decode(line) for line in b"".join(content).splitlines()]


def test_only_times_that_are_numbers_are_compared() -> None:
    rows = [{"time": "noon"}, {"time": None}, {"time": 5}, {"time": 2000}, {}]
    assert _answer(*rows, since=1000) == [{"time": "noon"}, {"time": None}, {"time": 2000}, {}]


def test_the_key_of_a_row_replaces_a_field_of_the_same_name() -> None:
    assert _answer({"_key": "mine", "a": 1}, with_key=True) == [{"_key": "1/2/3/0", "a": 1}]
    assert _answer({"_key": "mine"}) == [{"_key": "mine"}]


def test_a_filter_that_is_nested_too_deep_is_bad_input() -> None:
    with pytest.raises(BadInput):
        parse_row_filters(["[" * 50_000])
