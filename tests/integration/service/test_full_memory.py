"""A frontier's server without memory, with the bus in it: what was accepted is finished, the rest is told."""

import asyncio
from pathlib import Path

import httpx

from gossamer.bus.streams import StreamsBus
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.valkey.client import read_info
from tests.servers.service import talking, up

POLICIES = "default: {hits: 40, window: 1, moderated: true}\n"
REQUESTS = 100


async def test_pages_are_finished_while_they_are_consumed(tmp_path: Path) -> None:
    """New requests are refused in the meantime; a crawl can be stopped; and then all goes on."""
    with (
        FakeWeb.start(WebSpec(hosts=1, pages=REQUESTS, page_bytes=3000)) as web,
        up(tmp_path, "--resolve", "site0.test:127.0.0.1", policies=POLICIES) as service,
    ):
        seed = web.seeds()[0]
        wanted = [{"appid": "app", "crawlid": "c", "url": f"{seed}p/{n}"} for n in range(1, REQUESTS)]
        async with talking(service) as talk:
            assert isinstance(talk.bus, StreamsBus)
            shards, pages = talk.bus.shards, talk.topics.crawled_by("app")
            consumer = await talk.bus.consume([pages], group="readers")
            await talk.bus.publish(pages, [b"{}" * 500] * 2000)  # of earlier crawls, and consumed
            await consumer.acknowledge(await consumer.take(at_most=2000, wait_seconds=10))
            await talk.say(*wanted, {**wanted[0], "crawlid": "other", "spiderid": "absent", "wait_for_spider": True})
            found: set[bytes] = set()

            async def consume(until: int) -> None:
                async with asyncio.timeout(60):
                    while len(found) < until:
                        messages = await consumer.take(at_most=100, wait_seconds=0.5)
                        found.update(message.value for message in messages)
                        await consumer.acknowledge(messages)

            await consume(10)
            # Full, but for what the readers have consumed.
            [told] = await shards.everywhere("INFO", "memory")
            most = int(read_info(told)["used_memory"]) - 500_000
            await shards.everywhere("CONFIG", "SET", "maxmemory", str(most))
            await consume(REQUESTS - 1)
            assert "app_output" not in service.said()  # the outage is none of its application
            await shards.everywhere("CONFIG", "SET", "maxmemory", "1")
            refused = await _post(f"{service.api}/v1/crawls", {**wanted[0], "crawlid": "new"})
            assert (refused.status_code, refused.json()["title"]) == (503, "Frontier full")
            assert "takes no new requests and links until some is free" in refused.json()["detail"]
            stopped = await asyncio.to_thread(httpx.delete, f"{service.api}/v1/crawls/app/other", timeout=30)
            assert stopped.json()["purged"] == 1
            await shards.everywhere("CONFIG", "SET", "maxmemory", "0")
            await talk.event("finished", "c", appid="app")
            await consumer.close()


async def _post(url: str, body: object) -> httpx.Response:
    return await asyncio.to_thread(lambda: httpx.post(url, json=body, timeout=30))
