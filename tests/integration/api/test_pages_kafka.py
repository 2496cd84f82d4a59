"""A crawl's pages by cursor, where the bus is Kafka."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.servers.kafka import Broker, broker

from .conftest import Start


@pytest.fixture
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
        found, cursor = await rest_of("")
        assert sorted(found) == sorted(f"https://a.example/{n}" for n in range(30))
        await put(range(30, 35))
        found, _ = await rest_of(cursor)
        assert sorted(found) == [f"https://a.example/{n}" for n in range(30, 35)]
    await bus.close()
