"""Values of items in a form that stores and feeds keep."""

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Any

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st

from gossamer.scrapy.pipelines import TidyPipeline


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Place:
    when: datetime.date


class Offer(scrapy.Item):
    seen = scrapy.Field()
    title = scrapy.Field()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.time(3, 4), "03:04:00"),
        (datetime.timedelta(minutes=1.5), 90.0),
        (decimal.Decimal("1.50"), 1.5),
        (decimal.Decimal("3"), 3),
        (decimal.Decimal("NaN"), None),
        (float("inf"), None),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, {"a": datetime.date(2026, 1, 2)}), [1, {"a": "2026-01-02"}]),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\xfe", "//4="),
        (Colour.RED, "red"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a"), "/a"),
        (Place(datetime.date(2026, 1, 2)), {"when": "2026-01-02"}),
        ({1: True, None: None}, {"1": True, "None": None}),
    ],
)
def test_a_value_becomes_storable(value: Any, expected: Any) -> None:
    assert TidyPipeline().process_item({"value": value}) == {"value": expected}


def test_a_storable_value_stays_the_same_object() -> None:
    item = {"list": [1, "a", None], "map": {"a": [True]}, "text": "x"}
    before = {name: id(value) for name, value in item.items()}
    assert TidyPipeline().process_item(item) is item
    assert {name: id(value) for name, value in item.items()} == before


def test_an_item_of_scrapy_stays_one() -> None:
    offer = Offer(seen=datetime.date(2026, 1, 2), title="x")
    assert TidyPipeline().process_item(offer) is offer
    assert dict(offer) == {"seen": "2026-01-02", "title": "x"}


def test_an_item_that_contains_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    msgspec.json.encode(TidyPipeline().process_item({"loop": loop}))


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(), st.text(), st.binary(), st.datetimes(),
    st.decimals(), st.timedeltas(),
)  # fmt: skip
_NAMES = st.one_of(st.text(), st.integers(), st.datetimes(), st.binary())
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.frozensets(st.one_of(st.text(), st.integers(-9, 9))),
        st.dictionaries(_NAMES, inner),
    ),
    max_leaves=20,
)


@given(_VALUES)
def test_everything_can_be_written_as_json_and_a_second_time_changes_nothing(value: Any) -> None:
    item = TidyPipeline().process_item({"value": value})
    text = msgspec.json.encode(item)
    assert msgspec.json.encode(TidyPipeline().process_item(item)) == text
