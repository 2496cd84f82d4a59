"""What `parse` may be and may give, and what happens while it blocks."""

import asyncio
import dataclasses
import re
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from gossamer import Follow, Page, Spider
from gossamer.errors import BadInput
from gossamer.worker import parsing
from gossamer.worker.parsing import BlockWatch, Found, as_item, places_of_error, record_text, run_parse
from tests.unit.extract.test_page import page

LINK, ITEM = Follow("https://shop.test/x"), {"a": 1}


class Generator(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        yield ITEM
        yield None
        yield LINK


class AsyncGenerator(Spider):
    async def parse(self, page: Page) -> AsyncIterator[Any]:
        yield ITEM
        await asyncio.sleep(0)
        yield None
        yield LINK


class Lists(Spider):
    def parse(self, page: Page) -> Any:
        return [ITEM, None, LINK]


class Tuples(Spider):
    def parse(self, page: Page) -> Any:
        return (ITEM, LINK)


class Coroutine(Spider):
    async def parse(self, page: Page) -> Any:
        await asyncio.sleep(0)
        return [ITEM, LINK]


class CoroutineOfGenerator(Spider):
    async def parse(self, page: Page) -> Any:
        return (one for one in (ITEM, LINK))


class Nothing(Spider):
    def parse(self, page: Page) -> None:
        pass


class OneItem(Spider):
    def parse(self, page: Page) -> Any:
        return ITEM


class OneLink(Spider):
    async def parse(self, page: Page) -> Any:
        return LINK


async def found_by(spider: Spider) -> list[Found]:
    found: list[Found] = []

    async def take(one: Found) -> None:
        found.append(one)

    await run_parse(spider, page(), take, BlockWatch(pytest.fail))
    return found


@pytest.mark.parametrize(
    "spider", [Generator, AsyncGenerator, Lists, Tuples, Coroutine, CoroutineOfGenerator], ids=lambda one: one.__name__
)
async def test_parse_may_be_any_kind_of_function(spider: type[Spider]) -> None:
    assert await found_by(spider()) == [ITEM, LINK]


async def test_parse_may_return_one_result_or_none() -> None:
    assert await found_by(Nothing()) == []
    assert await found_by(OneItem()) == [ITEM]
    assert await found_by(OneLink()) == [LINK]


@dataclasses.dataclass
class Data:
    name: str
    at: date
    parts: list["Data"] = dataclasses.field(default_factory=list)


class Structured(msgspec.Struct):
    name: str
    price: Decimal


@attrs.define
class Attributed:
    name: str


class Model(pydantic.BaseModel):
    name: str
    inner: dict[str, int] = {}


@pytest.mark.parametrize(
    ("found", "item"),
    [
        (ITEM, ITEM),
        (
            Data("a", date(2030, 1, 2), [Data("b", date(2030, 1, 3))]),
            {
                "name": "a",
                "at": date(2030, 1, 2),
                "parts": [{"name": "b", "at": date(2030, 1, 3), "parts": []}],
            },
        ),
        (Structured("a", Decimal("1.50")), {"name": "a", "price": Decimal("1.50")}),
        (Attributed("a"), {"name": "a"}),
        (Model(name="a", inner={"b": 1}), {"name": "a", "inner": {"b": 1}}),
    ],
)
def test_an_item_may_be_any_object_with_fields(found: object, item: dict[str, Any]) -> None:
    assert as_item(found) == item


def test_an_item_is_a_copy() -> None:
    found = {"a": 1}
    assert as_item(found) is not found


@pytest.mark.parametrize("unusable", ["text", 7, Data, [ITEM], LINK.url.encode()])
def test_other_objects_are_no_items(unusable: object) -> None:
    assert as_item(unusable) is None


class Texts(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        yield ITEM
        yield "/x"


class AsyncTexts(Spider):
    async def parse(self, page: Page) -> AsyncIterator[Any]:
        yield "/x"


class Links(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        yield from page.links


class Nested(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        yield [ITEM]


class Number(Spider):
    def parse(self, page: Page) -> Any:
        return 7


@pytest.mark.parametrize(
    ("spider", "message"),
    [
        (Texts, "parse yielded a str, '/x'. To follow a link, write: yield page.follow(url)"),
        (AsyncTexts, "parse yielded a str, '/x'. To follow a link, write: yield page.follow(url)"),
        (Links, "parse yielded a PageLink. To follow a link, write: yield page.follow(link)"),
        (Nested, "parse yielded a list. To yield each of its elements, write: yield from ..."),
        (Number, "parse returned an int. An item is a dict or an object with fields, and a link is page.follow(url)."),
    ],
)
async def test_what_is_no_result_says_so_and_what_to_write(spider: type[Spider], message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)) as raised:
        await found_by(spider())
    assert "test_parsing.py" in record_text(raised.value, __file__)
    if spider is not Number:
        assert places_of_error(raised.value, __file__)[-1].function == "parse"


async def test_a_refused_link_is_an_error_at_the_line_that_yields_it() -> None:
    async def refuse(one: Found) -> None:
        raise BadInput("the link is too large")

    for spider in (Generator(), AsyncGenerator(), OneLink()):
        with pytest.raises(BadInput, match="too large") as raised:
            await run_parse(spider, page(), refuse, BlockWatch(pytest.fail))
        places = places_of_error(raised.value, __file__)
        if not isinstance(spider, OneLink):
            assert (places[-1].function, places[-1].source) == ("parse", "yield ITEM")


class Catching(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        try:
            yield "/x"
        except BadInput:
            return


async def test_a_spider_may_catch_that_a_result_was_refused() -> None:
    assert await found_by(Catching()) == []


class Endless(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        while True:
            yield ITEM


async def test_an_endless_generator_ends_and_lets_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_MAX_RESULTS", 10_000)
    monkeypatch.setattr(parsing, "_TURN_SECONDS", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    with pytest.raises(BadInput, match="more than 10,000 results") as raised:
        await found_by(Endless())
    other.cancel()
    assert places_of_error(raised.value, __file__)[-1].source == "yield ITEM"
    assert turns > 9_000


class Blocking(Spider):
    """Blocks until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def parse(self, page: Page) -> Any:
        self.go_on.wait(30)
        return ITEM


class BlockingAsync(Blocking):
    async def parse(self, page: Page) -> Any:
        await asyncio.sleep(0)
        self.go_on.wait(30)
        return ITEM


@pytest.mark.parametrize("kind", [Blocking, BlockingAsync])
async def test_a_spider_that_blocks_is_told_about_while_it_does(
    kind: type[Blocking], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a thread, because nothing else can run. It names the user's line."""
    monkeypatch.setattr(parsing, "_LONG_SECONDS", 0.05)
    spider, told = kind(), []

    def tell(sentence: str) -> None:
        told.append(sentence)
        if "self.go_on.wait(30)" in sentence:  # not about an earlier step, which took long under load
            spider.go_on.set()

    async def take(one: Found) -> None:
        pass

    await run_parse(spider, page(), take, BlockWatch(tell))
    assert "await asyncio.to_thread(function)" in told[0]
    [blocked] = [sentence for sentence in told if "self.go_on.wait(30)" in sentence]
    assert "The spider blocking has been busy with https://shop.test/lamps/ for" in blocked
    assert "test_parsing.py, line" in blocked
    assert "in parse:\n    self.go_on.wait(30)\n" in blocked


class Waiting(Spider):
    async def parse(self, page: Page) -> Any:
        await asyncio.sleep(0.2)
        return ITEM


async def test_a_spider_that_awaits_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_LONG_SECONDS", 0.1)
    monkeypatch.setattr(parsing, "_POLL_SECONDS", 0.01)
    assert await found_by(Waiting()) == [ITEM]


class Cancelled(Spider):
    def __init__(self) -> None:
        self.ended = False

    async def parse(self, page: Page) -> AsyncIterator[Any]:
        try:
            await asyncio.sleep(60)
            yield ITEM
        finally:
            self.ended = True


async def test_a_cancelled_parse_cleans_up() -> None:
    spider = Cancelled()
    task = asyncio.create_task(found_by(spider))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert spider.ended
