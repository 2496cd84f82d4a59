"""The API and the dashboard where the bus is Kafka: pages by cursor, rejected requests, and the history."""

import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.history.store import HistoryStore
from gossamer.model.crawl import CrawlId
from gossamer.model.json_codec import encode_value
from gossamer.model.messages.history import CrawlEnded
from tests.servers.kafka import Broker, broker

from .conftest import Start
from .test_dashboard import submit, text
from .test_past import fail, remembering, until, until_listed


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


async def test_pages_come_once_each_by_cursor_over_all_partitions(start: Start, one_broker: Broker) -> None:
    from gossamer.bus.kafka import KafkaBus

    bus = KafkaBus(one_broker.servers, partitions=3)
    async with start(bus=bus) as service:
        request = {"url": "https://a.example/", "appid": "shop", "crawlid": "c"}
        assert (await service.http.post("/v1/crawls", json=request)).is_success
        topic = service.context.topics.crawled_by("shop")

        async def put(numbers: range) -> None:
            pages = [
                {"appid": "shop", "crawlid": crawlid, "type": "page", "success": True, "url": f"https://a.example/{n}"}
                for n in numbers
                for crawlid in ("c", "other")
            ]
            keys = [page["url"].encode() for page in pages]  # type: ignore[attr-defined]
            await bus.publish(topic, [msgspec.json.encode(page) for page in pages], keys=keys)

        async def rest_of(cursor: str) -> tuple[list[str], str]:
            found: list[str] = []
            more = True
            while more:
                answer = await service.http.get("/v1/crawls/shop/c/pages", params={"cursor": cursor, "limit": 7})
                assert answer.status_code == 200, answer.text
                page = answer.json()
                assert len(page["items"]) <= 7
                found += [item["url"] for item in page["items"]]
                cursor, more = page["cursor"], page["more"]
            return found, cursor

        await put(range(30))
        shown, address = [], "/ui/crawl/pages?appid=shop&crawlid=c"
        while address:
            page = (await service.http.get(address)).text
            shown += re.findall(r'class="url">([^<]*)<', page)
            address = next(map(unescape, re.findall(r'href="([^"]+)" rel="next"', page)), "")
        assert sorted(shown) == sorted(f"https://a.example/{n}" for n in range(30))
        found, cursor = await rest_of("")
        assert sorted(found) == sorted(f"https://a.example/{n}" for n in range(30))
        await put(range(30, 35))
        found, _ = await rest_of(cursor)
        assert sorted(found) == [f"https://a.example/{n}" for n in range(30, 35)]
    await bus.close()


async def test_rejected_requests_are_shown_and_sent_again_and_ends_are_remembered(
    start: Start, one_broker: Broker, tmp_path: Path
) -> None:
    from gossamer.bus.base import Topics
    from gossamer.bus.kafka import KafkaBus

    bus, topics, history = (
        KafkaBus(one_broker.servers, partitions=2),
        Topics("bus"),
        HistoryStore(f"sqlite:///{tmp_path}/history.db"),
    )
    async with start(bus=bus, topics=topics, history=history) as service, remembering(service, history):
        letter = {"topic": topics.incoming, "message": "{", "field": "maxdepth", "reason": "must be at least 0"}
        end = CrawlEnded(event_id="e" * 32, kind="stopped", appid="shop", crawlid="one", run=1, at=time.time())
        unstorable = msgspec.structs.replace(end, run=2**70)
        await bus.publish(topics.dead_letter, [msgspec.json.encode(letter)])
        await submit(service, "one")
        await until_listed(service, "one")
        await bus.publish(topics.history, [encode_value(message) for message in (end, unstorable, end)])
        await fail(service, "one", 1)

        async def ends() -> list[Any]:
            return list(await history.ends(CrawlId("shop", "one")))

        async def letters() -> list[Any]:
            return list((await service.http.get("/v1/dead-letters")).json()["items"])

        await until(ends)
        await until(lambda: history.failures(CrawlId("shop", "one"), since=0))
        assert [(each.kind, each.run) for each in await ends()] == [("stopped", 1)]

        async def has_both() -> bool:
            return len(await letters()) == 2

        await until(has_both)
        assert {each["topic"] for each in await letters()} == {topics.incoming, topics.history}
        page = unescape(await text(service, "/bus"))
        assert [
            shown for shown in ("maxdepth: must be at least 0", topics.history, "too large") if shown not in page
        ] == []
        form = {"topic": topics.incoming, "message": '{"mended": 1}', "message_encoding": "text"}
        sent = await service.http.post("/ui/bus/replay", data=form)
        assert (sent.status_code, sent.headers["location"]) == (303, "/ui/bus?sent=yes")
        reader = await bus.read([topics.incoming], from_beginning=True)
        assert [message.value for message in await reader.take(at_most=9, wait_seconds=20)] == [b'{"mended": 1}']
        await reader.close()
        shown = {topic["name"]: topic["messages"] for topic in (await service.http.get("/v1/topics")).json()["items"]}
        assert (shown[topics.incoming], shown[topics.dead_letter]) == (1, 2)
    await history.close()
    await bus.close()
