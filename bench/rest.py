"""How long REST takes to tell where a large crawl stands, and how many requests it takes.

python -m bench.rest [--queued 1000000] [--domains 10000]    prints milliseconds and requests per second
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import msgspec

from gossamer.api.app import create_app
from gossamer.api.parts import Parts
from gossamer.api.server import serve_api
from gossamer.bus.streams import StreamsBus
from gossamer.bus.topics import Topics
from gossamer.control.counters import Counters
from gossamer.control.desk import Desk
from gossamer.control.handlers import built_in
from gossamer.control.submit import Door
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.messages.read import Reader
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, spider_seed
from gossamer.telemetry.metrics import Metrics
from gossamer.valkey.shards import Shards
from tests.servers.valkey import standalone

_ASKED = 300
_SUBMITTED = 20_000
_BATCH = 1000


async def _fill(frontier: ValkeyFrontier, queued: int, domains: int) -> None:
    run = await frontier.open_crawl(Crawl(id=CrawlId("bench", "large")))
    seed = spider_seed(frontier.secret, "link")
    each = queued // domains
    batches = []
    for number in range(domains):
        name = f"d{number}.example"
        urls = [f"https://{name}/some/path/of/a/usual/length/page-{page}.html" for page in range(each)]
        batches.append(Batch("link", name, 1 - 10 * (number % 4), 1, urls, [fingerprint(u, seed=seed) for u in urls]))
        if len(batches) == 100:
            await frontier.add(run, Terms(), batches)
            batches = []
    await frontier.add(run, Terms(), batches)


async def _timed(name: str, call: Callable[[], Awaitable[httpx.Response]]) -> None:
    spent = []
    for _ in range(_ASKED):
        started = time.perf_counter()
        answer = await call()
        spent.append(1000 * (time.perf_counter() - started))
        answer.raise_for_status()
    spent.sort()
    print(f"{name:32} median {spent[_ASKED // 2]:6.2f} ms   p99 {spent[_ASKED * 99 // 100]:6.2f} ms", flush=True)


async def _submitted(http: httpx.AsyncClient) -> None:
    rows = [
        msgspec.json.encode({"appid": "bench", "crawlid": f"c{n % 100}", "url": f"https://d{n % 1000}.example/{n}"})
        for n in range(_SUBMITTED)
    ]
    started, cpu = time.perf_counter(), time.process_time()
    for first in range(0, _SUBMITTED, _BATCH):
        lines = b"\n".join(rows[first : first + _BATCH])
        answer = await http.post("/v1/crawls", content=lines, headers={"Content-Type": "application/x-ndjson"})
        assert answer.json()["added"] == _BATCH
    wall, spent = time.perf_counter() - started, time.process_time() - cpu
    print(f"submit, {_BATCH} a batch: {_SUBMITTED / wall:,.0f}/s, {_SUBMITTED / spent:,.0f} per CPU-second", flush=True)


async def _main(address: str, queued: int, domains: int) -> None:
    shards = await Shards.connect(address)
    frontier = await ValkeyFrontier.over(shards)
    started = time.perf_counter()
    await _fill(frontier, queued, domains)
    print(f"{queued:,} queued over {domains:,} domains in {time.perf_counter() - started:.1f} s", flush=True)
    counters = Counters(shards, prefix="gossamer")
    handlers = built_in(frontier, counters, now=time.time)

    async def answered(_: object) -> None:
        return

    parts = Parts(
        shards=shards,
        frontier=frontier,
        bus=StreamsBus(shards),
        topics=Topics(),
        counters=counters,
        desk=Desk(frontier, Reader(), Door(secret=frontier.secret, now=time.time), handlers, now=time.time),
        metrics=Metrics(),
        answered=answered,
        max_requests=1e6,
    )
    stopping, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_api(create_app(parts), host="127.0.0.1", port=0, stopping=stopping, ready=ready.set_result)
    )
    async with httpx.AsyncClient(base_url=await ready, timeout=60) as http:
        path = "/v1/crawls/bench/large"
        await _timed("healthz (the floor)", lambda: http.get("/healthz"))
        await _timed("crawl, totals", lambda: http.get(path))
        await _timed("crawl, totals and 100 domains", lambda: http.get(path, params={"domains": ""}))
        await _timed("queues", lambda: http.get("/v1/queues"))
        await _submitted(http)
    stopping.set()
    await serving
    await shards.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--queued", type=int, default=1_000_000)
    arguments.add_argument("--domains", type=int, default=10_000)
    given = arguments.parse_args()
    with standalone() as server:
        asyncio.run(_main(server.address, given.queued, given.domains))


if __name__ == "__main__":
    main()
