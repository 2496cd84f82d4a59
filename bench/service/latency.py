"""Measures the time from the submission of a request to its page, while the service has nothing else to do."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import msgspec

from bench.errors import BenchFailed
from bench.progress import say
from bench.results import Figure
from bench.service.buses import Place
from bench.statistics import quantile
from bench.store import disk_folder
from gossamer.bus.base import Bus, Reader, Topics
from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.service import Up, talking, up

_WARM_UP = 5
"""Requests before those that count: the site's robots.txt is known then, and every connection open."""
_PAUSE_SECONDS = 0.1
"""Between two requests, so that the cluster is idle again."""
_PAGE_SECONDS = 20.0
_WANTED = {"Streams": "100", "Kafka": "250"}
_POLICY = "default: {hits: 10000, window: 1, moderated: false, concurrency: 100}\n"

Say = Callable[[dict[str, str]], Awaitable[object]]


async def measure_latency(place: Place, *, rounds: int) -> list[Figure]:
    """Measure `gossamer up` on this bus, asked by REST and on the bus itself. The log of the site has the times of its
    answers."""
    figures: list[Figure] = []
    with disk_folder() as folder, FakeWeb.start(WebSpec(hosts=1, pages=2 * (rounds + _WARM_UP) + 1)) as web:
        flags = [f"--resolve={override}" for override in web.resolve_overrides()]
        with up(folder, f"--bus={place.bus}", "--allow-network=127.0.0.0/8", *flags, policies=_POLICY) as service:
            async with _talking(service, place) as (ways, pages):
                for at, (way, tell) in enumerate(ways.items()):
                    urls = [web.url(0, 1 + 2 * number + at) for number in range(rounds + _WARM_UP)]
                    said = {url: await _round(url, tell, pages) for url in urls}
                    answered = {record.url: record.ended for record in web.log()}
                    spent = [1000 * ((answered[url] or 0.0) - said[url]) for url in urls[_WARM_UP:]]
                    figures += _figures(place, way, spent)
    return figures


@contextlib.asynccontextmanager
async def _talking(service: Up, place: Place) -> AsyncIterator[tuple[dict[str, Say], Reader]]:
    """Yield the ways to submit, and the reader of pages."""
    async with talking(service, kafka=place.servers) as talk, httpx.AsyncClient(base_url=service.api) as http:

        async def rest(request: dict[str, str]) -> None:
            (await http.post("/v1/crawls", json=request)).raise_for_status()

        pages = await talk.bus.read([talk.topics.crawled], from_beginning=False)
        try:
            yield {"REST": rest, f"on {place.name}": _on(talk.bus, talk.topics)}, pages
        finally:
            await pages.close()


def _on(bus: Bus, topics: Topics) -> Say:
    async def publish(request: dict[str, str]) -> None:
        await bus.publish(topics.incoming, [msgspec.json.encode(request)])

    return publish


async def _round(url: str, tell: Say, pages: Reader) -> float:
    """Submit a request, and wait until its page is on the bus. Return the monotonic time of the submission."""
    await asyncio.sleep(_PAUSE_SECONDS)
    began = time.monotonic()
    await tell({"appid": "bench", "crawlid": url.rpartition("/")[2], "url": url})
    while time.monotonic() < began + _PAGE_SECONDS:
        for message in await pages.take(at_most=100, wait_seconds=1.0):
            found: dict[str, Any] = msgspec.json.decode(message.value)
            if found["url"] == url:
                return began
    raise BenchFailed(f"no page of {url} within {_PAGE_SECONDS:g} s")


def _figures(place: Place, way: str, spent: list[float]) -> list[Figure]:
    name = f"submit to first byte, {place.name}, asked by {way}" if way == "REST" else f"submit to first byte, {way}"
    half, most = quantile(spent, 0.5), quantile(spent, 0.99)
    say(f"service: {name}: median {half:.1f} ms, p99 {most:.1f} ms")
    return [Figure(f"{name}: median", half, "ms"), Figure(f"{name}: p99", most, "ms", _WANTED[place.name])]
