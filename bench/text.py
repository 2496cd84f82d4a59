"""`python -m bench.text`: what text and Markdown cost, and whether they slow other crawls down.

Two questions, each a comparison within one run, so that other load on the machine matters less:

1. How many pages a second does a crawl with `--markdown` write, against what its processes alone extract from the same
   pages in memory? On a machine with other load compare the pages per CPU-second of these processes.
2. How long does a request of another crawl take while the same worker crawls with Markdown, against a worker that does
   the same crawl without it?
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import psutil

from gossamer.extract.content_pool import ContentPool
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.content import ContentOptions
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Rate, Terms
from gossamer.model.record import PageRecord
from gossamer.net.resolve import parse_override
from gossamer.settings import Settings, load
from gossamer.sinks.jsonl import read_records
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.frontier import connect
from gossamer.wiring.worker import content_limits, open_worker
from tests.servers.crawls import open_crawl, until_over

MARKDOWN = ContentOptions(markdown=True)
OTHER_HOSTS = 4
OTHER_RATE = Rate(hits=10, window_seconds=1)
"""The other crawl: so many hosts, each at this rate, for as long as the measured crawl takes."""
FAST = Rate(hits=100_000, window_seconds=1)
POLICY = DomainPolicy(hits=100_000, window_seconds=1, moderated=True, concurrency=64)
WARM_UP_PAGES = 50
"""Pages of the measured crawl that are not counted: processes start meanwhile."""


class Measured(NamedTuple):
    """One crawl, or the processes alone."""

    pages_per_second: float
    pages_per_cpu_second: float
    """Pages per CPU second of the processes that extract; 0: there are none."""
    latencies: Sequence[float] = ()
    """Milliseconds of each request of the other crawl."""


class ProcessTimes:
    """CPU seconds of the processes that extract content."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    async def watch(self) -> None:
        """Measure until cancelled: what a process used before it ended is known from a moment before."""
        while True:
            for child in psutil.Process().children():
                try:
                    if "gossamer.extract.content_process" in child.cmdline():
                        times = child.cpu_times()
                        self._seconds[child.pid] = times.user + times.system
                except psutil.NoSuchProcess:
                    continue
            await asyncio.sleep(0.2)

    def total(self) -> float:
        return sum(self._seconds.values())


def settings_for(folder: Path, web: FakeWeb) -> Settings:
    return load(
        {
            "crawl.output": (str(folder / "pages.jsonl"),),
            "data_dir": folder / "data",
            "fetch.resolve": dict(map(parse_override, web.resolve_overrides())),
        }
    )


async def alone(settings: Settings, bodies: Sequence[bytes], pages: int) -> Measured:
    """The processes on pages from memory, as many at once as a worker has slots."""
    pool, times = ContentPool(content_limits(settings)), ProcessTimes()
    watching = asyncio.create_task(times.watch())
    slots = asyncio.Semaphore(settings.worker.concurrency)

    async def one(number: int) -> None:
        async with slots:
            await pool.extract(bodies[number % len(bodies)], encoding="utf-8", url="http://a.test/", options=MARKDOWN)

    try:
        await asyncio.gather(*map(one, range(WARM_UP_PAGES)))
        await asyncio.sleep(0.3)
        started, used = time.monotonic(), times.total()
        await asyncio.gather(*map(one, range(pages)))
        seconds = time.monotonic() - started
        await asyncio.sleep(0.3)
        return Measured(pages / seconds, pages / (times.total() - used))
    finally:
        watching.cancel()
        await pool.close()


async def crawled(web: FakeWeb, pages: int, *, markdown: bool) -> Measured:
    """Crawl the first host as fast as it goes, and beside it the others at a fixed rate, with one worker."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings, times = settings_for(folder, web), ProcessTimes()
        async with EmbeddedValkey(folder / "valkey", name="bench", appendfsync="no") as server:
            frontier = await connect(settings, server.address)
            watching = asyncio.create_task(times.watch())
            try:
                first = await open_crawls(frontier, web.seeds(), markdown=markdown)
                async with open_worker(settings, frontier, pool="shared") as worker:
                    running = asyncio.create_task(worker.run())
                    await until_over(frontier, first)
                    await asyncio.sleep(0.3)
                    worker.stop()
                    await running
            finally:
                watching.cancel()
                await frontier.close()
        rate, latencies = figures(folder / "pages.jsonl")
        return Measured(rate, pages / times.total() if markdown else 0.0, latencies)


async def open_crawls(frontier: ValkeyFrontier, seeds: Sequence[str], *, markdown: bool) -> CrawlId:
    """Open both crawls. Returns the id of the measured one."""
    await frontier.set_domain_policy(None, POLICY)
    first, other = CrawlId("bench", "first"), CrawlId("bench", "other")
    terms = Terms(ignore_robots=True, allowed_hosts=("site0.test",), content=MARKDOWN if markdown else None)
    await open_crawl(frontier, seeds[:1], terms, crawl=Crawl(id=first, rate=FAST, concurrency=32))
    hosts = tuple(f"site{number}.test" for number in range(1, 1 + OTHER_HOSTS))
    terms = Terms(ignore_robots=True, allowed_hosts=hosts)
    await open_crawl(frontier, seeds[1:], terms, crawl=Crawl(id=other, rate=OTHER_RATE, concurrency=4))
    return first


def figures(path: Path) -> tuple[float, list[float]]:
    """The pages a second of the first host, and the milliseconds of the others' responses."""
    times: list[float] = []
    latencies: list[float] = []
    for record in read_records(path):
        assert isinstance(record, PageRecord)
        if "//site0.test" in record.url:
            times.append(datetime.fromisoformat(record.timestamp).timestamp())
            assert record.content is None or not record.content.error
        else:
            latencies.append(1000 * record.timings["total"])
    times.sort()
    return (len(times) - WARM_UP_PAGES) / (times[-1] - times[WARM_UP_PAGES - 1]), latencies


def page_bodies(web: FakeWeb, count: int) -> list[bytes]:
    """Some pages of the first host."""
    bodies = []
    for number in range(1, 1 + count):
        request = Request(f"http://127.0.0.1:{web.port}/p/{number}", headers={"Host": "site0.test"})
        with urlopen(request) as answer:
            bodies.append(answer.read())
    return bodies


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def measure(pages: int) -> None:
    spec = WebSpec(hosts=1 + OTHER_HOSTS, pages=pages, page_bytes=12_000, out_degree=20)
    with FakeWeb.start(spec) as web, tempfile.TemporaryDirectory() as name:
        settings, bodies = settings_for(Path(name), web), page_bodies(web, 40)
        before = await alone(settings, bodies, pages)
        plain = await crawled(web, pages, markdown=False)
        text = await crawled(web, pages, markdown=True)
        after = await alone(settings, bodies, pages)
    rate = statistics.mean((before.pages_per_second, after.pages_per_second))
    cpu_rate = statistics.mean((before.pages_per_cpu_second, after.pages_per_cpu_second))
    print(f"{'':26} {'pages/s':>12} {'pages per CPU-second of the processes':>40}")
    print(f"{'processes alone':26} {rate:12.1f} {cpu_rate:40.1f}")
    for label, one in (("crawl with Markdown", text), ("the same without", plain)):
        share = f"({100 * one.pages_per_cpu_second / cpu_rate:.0f} %)" if one.pages_per_cpu_second else ""
        print(
            f"{label:26} {one.pages_per_second:12.1f} {one.pages_per_cpu_second:33.1f} {share}"
            + (f"   {100 * one.pages_per_second / rate:.0f} % of the pages/s" if share else "")
        )
    for label, one in (("beside the crawl without", plain), ("beside that with Markdown", text)):
        values = one.latencies
        print(
            f"{label:26} {len(values):6} requests of another crawl: median {quantile(values, 0.5):.1f} ms, "
            f"90 % {quantile(values, 0.9):.1f} ms, 99 % {quantile(values, 0.99):.1f} ms"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.text", description=__doc__)
    parser.add_argument("--pages", type=int, default=3000, help="pages of the crawl with Markdown")
    asyncio.run(measure(parser.parse_args().pages))
    sys.exit(0)
