"""`python -m bench.lane`: measures the Scrapy lane: several processes together, new work, and a slow frontier.

Pages per CPU-second against stock Scrapy and scrapy-redis are rows of `python -m bench` (scheduler, addon).
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from bench.table import number
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Terms
from gossamer.model.request import Batch
from gossamer.policy.urls import host, registered_domain
from gossamer_fakeweb import graph
from gossamer_fakeweb.log import is_page
from tests.servers.scraping import Scraper, together
from tests.servers.valkey import Server, standalone, wait_until

ADDON = {"ADDONS": '{"gossamer.scrapy.Addon": 0}', "LOG_LEVEL": "ERROR"}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.lane", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller, and rough")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder, standalone(tcp=True, options={"appendfsync": "always"}) as server:
        figures = [
            *_together(Path(folder), server, pages=20 if quick else 100),
            *asyncio.run(_new_work(Path(folder), server, count=30 if quick else 200)),
            *_slow_frontier(Path(folder), server, pages=60 if quick else 300),
        ]
    for figure in figures:
        print(f"{figure.name:<56} {number(figure.value):>8} {figure.unit:<13} promised: {figure.wanted}")
    return 0


def _crawl(
    folder: Path, address: str, web: FakeWeb, name: str, *, processes: int = 1
) -> tuple[float, list[dict[str, Any]]]:
    """Crawl a web. Return the pages a second between the first request and the last, and the stats of each process."""
    settings = {**ADDON, "GOSSAMER_FRONTIER": address, "GOSSAMER_CRAWL_ID": name}
    settings["EXTENSIONS"] = '{"tests.integration.scrapy_lane.spiders.StatsFile": 0, "bench.stall.Stall": 1}'
    seeds = {"seeds": ",".join(web.seeds())}
    web.reset()
    before = len(web.log())
    scrapers = [
        Scraper(
            folder, "links", frontier=None, name=f"{name}-{place}", settings=settings, arguments=seeds, measured=True
        )
        for place in range(processes)
    ]
    done = together(scrapers, 600.0)
    started = sorted(record.started for record in web.log()[before:] if is_page(record))
    assert len(started) == len(graph(web.site)), f"{name}: {len(started)} of {len(graph(web.site))} pages"
    return len(started) / (started[-1] - started[0]), [part.stats for part in done]


def _together(folder: Path, server: Server, *, pages: int) -> Iterator[Figure]:
    with FakeWeb.start(WebSpec(hosts=40, pages=pages, page_bytes=4000, out_degree=10, latency_ms=300)) as web:
        say(f"lane: {len(graph(web.site)):,} pages of hosts that take 300 ms, 16 requests in flight a process")
        one, _ = _crawl(folder, server.address, web, "alone")
        three, _ = _crawl(folder, server.address, web, "three", processes=3)
        say(f"  1 process: {one:.0f} pages/s, 3 processes: {three:.0f}")
    yield Figure("3 processes against 1, hosts with 300 ms latency", three / one, "x", "2.8")


async def _new_work(folder: Path, server: Server, *, count: int) -> list[Figure]:
    """Measure the time from the call that adds a URL until an idle spider's request is at the site."""
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        url = web.seeds()[0]
        settings = {**ADDON, "GOSSAMER_FRONTIER": server.address, "GOSSAMER_CRAWL_ID": "idle"}
        settings["GOSSAMER_STAY_OPEN"] = "True"
        with Scraper(
            folder, "links", frontier=None, name="idle", settings=settings, arguments={"seeds": url}, measured=True
        ) as scraper:
            wait_until(lambda: len(web.log()) == 1, "the first page")
            frontier = await ValkeyFrontier.connect(server.address)
            waits = []
            for turn in range(count):
                await asyncio.sleep(0.05 + 0.01 * (turn % 10))
                run = await frontier.latest_run(CrawlId("scrapybot", "idle"))
                assert run is not None
                new = f"{url}?{turn}"
                await frontier.spiders.refresh(["links"])
                mark = frontier.spiders.fingerprint("links", new)
                batch = Batch("links", registered_domain(host(new)), 0, 0, [new], [mark])
                added = time.monotonic()
                await frontier.add(run, Terms(), [batch], seeds=True)
                await asyncio.to_thread(wait_until, lambda n=turn: len(web.log()) == n + 2, "the new page")  # type: ignore[misc]
                waits.append(web.log()[-1].started - added)
            await frontier.close()
            scraper.interrupt()
            scraper.finish()
    say(f"lane: new work, {count} times: median {quantile(waits, 0.5) * 1000:.0f} ms")
    return [Figure("new work reaches an idle spider, p99", quantile(waits, 0.99) * 1000, "ms", "250")]


def _slow_frontier(folder: Path, server: Server, *, pages: int) -> Iterator[Figure]:
    with FakeWeb.start(WebSpec(hosts=10, pages=pages // 2, page_bytes=12_000, out_degree=20, latency_ms=20)) as web:
        say(f"lane: {len(graph(web.site)):,} pages, with and without 5 ms between process and frontier")
        speeds: dict[bool, list[float]] = {False: [], True: []}
        stalls = []
        with _delayed(server.port, 5.0) as port:
            for turn in range(3):
                for slow in (False, True):
                    address = f"redis://127.0.0.1:{port}" if slow else server.address
                    speed, stats = _crawl(folder, address, web, f"{'slow' if slow else 'near'}{turn}")
                    speeds[slow].append(speed)
                    stall = stats[0]["stall_ms"]
                    say(f"  {'5 ms away' if slow else 'near'}: {speed:.0f} pages/s, stall {stall:.0f} ms")
                    if slow:
                        stalls.append(stall)
    share = quantile(speeds[True], 0.5) / quantile(speeds[False], 0.5)
    yield Figure("speed with 5 ms to the frontier, against none", share, "of the speed", "0.9")
    yield Figure("longest stall of the event loop with it", quantile(stalls, 0.5), "ms", "50")


@contextmanager
def _delayed(port: int, milliseconds: float) -> Iterator[int]:
    """Run a TCP proxy to a port of this machine, and yield the proxy's port. It delays each byte by half of the
    milliseconds on each way."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        asyncio.run(_delay(port, milliseconds / 2000, write))
        os._exit(0)
    try:
        yield int(os.read(read, 20))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


async def _delay(port: int, seconds: float, tell: int) -> None:
    loop = asyncio.get_running_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            loop.call_later(seconds, writer.write, data)
        loop.call_later(seconds, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    os.write(tell, str(server.sockets[0].getsockname()[1]).encode())
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
