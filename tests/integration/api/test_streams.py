"""A crawl's events as they happen, and its records by cursor."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from gossamer.model.request import Outcome, Settlement
from gossamer.web.streams import MAX_STREAMS, EventStreams

from .conftest import Service, Start

CRAWL = {"appid": "shop", "crawlid": "prices", "url": "https://example.com/"}
EVENTS = "/v1/crawls/shop/prices/events"


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    """(name, data) of each event."""
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, msgspec.json.decode(line.removeprefix("data: "))


async def test_events_end_with_the_crawl(service: Service) -> None:
    await service.feed(CRAWL)
    seat = await service.frontier.open_leaseholder(pool="shared", spiders=["link"])
    seen = []
    async with service.http.stream("GET", EVENTS) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for name, data in events(answer):
            seen.append((name, data["state"], data["total"]["fetched"]))
            if len(seen) == 1:
                [lease] = await seat.lease(limit=1)
                await seat.settle([Settlement(lease, Outcome.FETCHED)])
    await seat.close()
    assert seen[0] == ("progress", "running", 0)
    assert seen[-1] == ("end", "finished", 1)
    assert streams(service).open == 0


async def test_a_crawl_that_is_over_has_its_end_at_once(service: Service) -> None:
    await service.feed(CRAWL)
    await service.http.delete("/v1/crawls/shop/prices")
    async with service.http.stream("GET", EVENTS) as answer:
        assert [(name, data["state"]) async for name, data in events(answer)] == [("end", "stopped")]


async def test_a_stream_ends_when_its_client_leaves(service: Service) -> None:
    await service.feed(CRAWL)
    async with service.http.stream("GET", EVENTS) as answer:
        async for _ in events(answer):
            assert streams(service).open == 1
            break
    async with asyncio.timeout(60):
        while streams(service).open:
            await service.http.get("/healthz")


async def test_streams_are_bounded(service: Service) -> None:
    await service.feed(CRAWL)
    streams(service).open = MAX_STREAMS
    answer = await service.http.get(EVENTS)
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"]
    streams(service).open = 0


async def test_a_server_that_stops_lets_its_listeners_go(start: Start) -> None:
    async with start() as service:
        await service.feed(CRAWL)
        request = service.http.build_request("GET", EVENTS)
        answer = await service.http.send(request, stream=True)
        told = events(answer)
        assert (await anext(told))[0] == "progress"
        streams(service).closing.set()
        assert [event async for event in told] == []
        await answer.aclose()


def streams(service: Service) -> EventStreams:
    found: EventStreams = service.app.state.streams
    return found


# --- records ----------------------------------------------------------------------------------------------------------


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "type": "page", "appid": "shop", "crawlid": "prices", "success": True, "url": f"https://example.com/{number}",
        "body": "ü" * 10, **fields,
    }  # fmt: skip


async def publish(service: Service, *records: dict[str, Any] | bytes) -> None:
    topic = service.context.topics.crawled_by("shop")
    values = [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in records]
    await service.context.bus.publish(topic, values)


async def read(service: Service, what: str, *, limit: int) -> list[str]:
    """All there are, page by page."""
    found: list[str] = []
    cursor = ""
    while True:
        answer = await service.http.get(f"/v1/crawls/shop/prices/{what}", params={"cursor": cursor, "limit": limit})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= limit
        found += [item["url"].rpartition("/")[2] for item in page["items"]]
        cursor = page["cursor"]
        if not page["more"]:
            return found


async def test_pages_failures_and_items_come_by_cursor(service: Service) -> None:
    await service.feed(CRAWL)
    records: list[dict[str, Any] | bytes] = []
    for n in range(0, 60, 6):
        records += [
            record(n),
            record(n + 1, success=False, reason="dns"),
            record(n + 2, type="item", item={"n": n}),
            record(n + 3, crawlid="other"),
            record(n + 4, appid="else"),
            b"not json",
        ]
    await publish(service, *records)
    for limit in (1, 3, 1000):
        assert await read(service, "pages", limit=limit) == [str(n) for n in range(0, 60, 6)]
    assert await read(service, "failures", limit=4) == [str(n + 1) for n in range(0, 60, 6)]
    assert await read(service, "items", limit=4) == [str(n + 2) for n in range(0, 60, 6)]


async def test_a_cursor_goes_on_with_what_came_meanwhile(service: Service) -> None:
    await service.feed(CRAWL)
    path = "/v1/crawls/shop/prices/pages"
    empty = (await service.http.get(path)).json()
    assert (empty["items"], empty["more"]) == ([], False)
    await publish(service, record(1))
    first = (await service.http.get(path, params={"cursor": empty["cursor"]})).json()
    assert [item["url"] for item in first["items"]] == ["https://example.com/1"]
    assert (await service.http.get(path, params={"cursor": first["cursor"]})).json()["items"] == []
    await publish(service, record(2), record(3))
    second = (await service.http.get(path, params={"cursor": first["cursor"]})).json()
    assert [item["url"] for item in second["items"]] == ["https://example.com/2", "https://example.com/3"]
    assert second["items"][0]["body"] == "ü" * 10


async def test_times_have_their_zone_though_the_bus_has_none(service: Service) -> None:
    await service.feed(CRAWL)
    given = ("2015-04-27T21:26:24.095468", "2015-04-27T21:26:24.095468+00:00", "2015-04-27T23:26:24+02:00", "soon", 5)
    await publish(service, *(record(n, timestamp=stamp) for n, stamp in enumerate(given)))
    answer = (await service.http.get("/v1/crawls/shop/prices/pages")).json()
    zoned = "2015-04-27T21:26:24.095468+00:00"
    assert [item["timestamp"] for item in answer["items"]] == [zoned, zoned, *given[2:]]
    assert [item["body"] for item in answer["items"]] == ["ü" * 10] * 5


async def test_without_a_topic_of_its_own_the_firehose_is_read(start: Start) -> None:
    async with start(per_app=False) as service:
        await service.feed(CRAWL)
        await service.context.bus.publish(
            service.context.topics.crawled,
            [msgspec.json.encode(record(n, appid=app)) for n, app in ((1, "a"), (2, "shop"))],
        )
        assert await read(service, "pages", limit=10) == ["2"]
