"""Settings of incremental runs, validators that are kept, and feeds whose items a killed process would lose."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scrapy import Field, Item
from scrapy.extensions.feedexport import FileFeedStorage, S3FeedStorage, StdoutFeedStorage
from scrapy.settings import Settings

from gossamer.errors import BadInput
from gossamer.scrapy.buffered_feeds import is_late
from gossamer.scrapy.feeds import WholeFileStorage
from gossamer.scrapy.fresh_visits import (
    FreshOptions,
    PageVisit,
    _failed,
    items_hash,
    kept_validators,
    read_fresh_options,
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"GOSSAMER_FRESH": "False"}, None),
        ({"GOSSAMER_FRESH": True}, FreshOptions("", "bytes", handles_all=False)),
        (
            {"GOSSAMER_FRESH": "all", "GOSSAMER_FRESH_INDEX": Path("one"), "GOSSAMER_FRESH_LEVEL": "text"},
            FreshOptions("one", "text", handles_all=True),
        ),
    ],
)
def test_settings_are_read(given: dict[str, Any], expected: FreshOptions | None) -> None:
    assert read_fresh_options(Settings(given)) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"GOSSAMER_FRESH": "yesterday"}, "GOSSAMER_FRESH: 'yesterday' is none of"),
        ({"GOSSAMER_FRESH": True, "GOSSAMER_FRESH_LEVEL": "links"}, "GOSSAMER_FRESH_LEVEL: 'links' is none of"),
        ({"GOSSAMER_FRESH": True, "HTTPCACHE_ENABLED": True}, "HTTPCACHE_ENABLED"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_fresh_options(Settings(given))


@dataclass
class Book:
    title: str
    tags: frozenset[str] = frozenset()


class Shelf(Item):
    book = Field()


def test_items_are_equal_by_what_is_in_them() -> None:
    one = [{"title": "a", "price": 5}, Book("b", frozenset("xyz")), Shelf(book=Book("c")), object]
    same = [{"price": 5, "title": "a"}, Book("b", frozenset("zyx")), Shelf(book=Book("c")), object]
    assert items_hash(one) == items_hash(same)
    hashes = {items_hash(some) for some in ([], one, one[::-1], [{"title": "a", "price": 6}], [{1: 2, "a": 3}], [{}])}
    assert len(hashes) == 6


def test_items_that_wait_go_on_if_the_callback_fails() -> None:
    visit = PageVisit(1, 2, None, None, held=[{"title": "a"}])
    assert _failed(visit) == [{"title": "a"}]
    assert (visit.has_items, visit.is_complete) == (True, False)
    assert _failed(visit) == _failed(None) == ()


@pytest.mark.parametrize(
    ("uri", "options", "late"),
    [
        ("/tmp/one.jsonl", {"format": "jsonlines"}, False),
        ("file:///tmp/one.csv", {"format": "csv"}, False),
        ("stdout:", {"format": "jsonlines"}, False),
        ("one.json", {"format": "json"}, True),
        ("one.jsonl.gz", {"format": "jsonlines", "postprocessing": ["scrapy.GzipPlugin"]}, True),
        ("s3://bucket/one.jsonl", {"format": "jsonlines"}, True),
        ("whole://one.jsonl", {"format": "jsonlines"}, True),
        ("unknown://one.jsonl", {"format": "jsonlines"}, True),
    ],
)
def test_a_feed_is_late_if_it_is_whole_only_at_the_end(uri: str, options: dict[str, Any], late: bool) -> None:
    storages = {"file": FileFeedStorage, "stdout": StdoutFeedStorage, "s3": S3FeedStorage, "whole": WholeFileStorage}
    assert is_late(uri, options, storages) is late


_NOON = "Fri, 27 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({"ETag": 'W/"1"', "Last-Modified": _NOON, "Vary": "Cookie"}, ('W/"1"', _NOON)),
        ({"Last-Modified": _NOON, "Date": "Fri, 27 Nov 2026 12:00:02 GMT"}, ("", _NOON)),
        ({"Last-Modified": _NOON, "Date": "Fri, 27 Nov 2026 12:00:01 GMT"}, ("", "")),
        ({"Last-Modified": _NOON, "Vary": "accept-encoding"}, ("", _NOON)),
        ({"Last-Modified": _NOON, "Vary": "Accept-Encoding, Cookie"}, ("", "")),
        ({"Last-Modified": "yesterday"}, ("", "yesterday")),
        ({"etag": '"1"', "cache-control": "private, No-Store"}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_validators_are_kept_if_they_may_be_and_tell_changes_apart(
    headers: dict[str, str], kept: tuple[str, str]
) -> None:
    assert kept_validators({name: [value] for name, value in headers.items()}) == kept
