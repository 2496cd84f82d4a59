"""`python -m bench.frontier.long_queues`: memory, disk and restart of a frontier with millions of queued URLs.

All URLs wait in long queues of a few domains, which the server keeps compressed except for their ends. Measured are the
bytes of a URL in memory and on the disk, the CPU time to add it and to lease and settle it, and what a restart takes
until the server answers again.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.frontier.load import Load, article_url, calls, lease_and_settle
from bench.frontier.stage import Stage, staged
from bench.progress import say
from bench.results import Figure
from bench.store import disk_folder, embedded
from gossamer.model.crawl import Crawl, CrawlId, Rate, Terms

_TERMS = Terms(domain_max_pending=1_000_000_000)
_CRAWL = Crawl(
    id=CrawlId("bench", "queues"), rate=Rate(hits=100_000, window_seconds=1.0, moderated=False), concurrency=100_000
)
_BATCH = 64
"""URLs of a domain that arrive together."""
_LEASED = 100_000
"""URLs that are leased after the restart."""
_REPORTS = 20


async def measure_long_queues(*, urls: int, domains: int) -> list[Figure]:
    """Return the figures of one crawl with `urls` URLs on `domains` domains."""
    with disk_folder() as folder:
        server = embedded(folder, durable=True)
        try:
            await server.start()
            async with staged(server) as it:
                add_seconds, queued_bytes = await _fill(it, urls, domains)
                await it.rewrite()
                file_bytes = _size(folder)
            await server.stop()
            began = time.monotonic()
            await server.start()
            restart_seconds = time.monotonic() - began
            async with staged(server) as it:
                restart_cpu = it.cpu_seconds()
                back_bytes = await it.memory_bytes()
                lease_seconds = await _lease(it, min(_LEASED, urls))
        finally:
            await server.stop()
    where = f"{urls:,} of about 81 bytes on {domains:,} domains"
    return [
        Figure(f"a queued and seen URL, memory; {where}", queued_bytes / urls, "bytes"),
        Figure("the same after a restart", back_bytes / urls, "bytes"),
        Figure("on the disk", file_bytes / urls, "bytes"),
        Figure("add", 1e6 * add_seconds / urls, "CPU-us"),
        Figure("lease and settle", 1e6 * lease_seconds / min(_LEASED, urls), "CPU-us"),
        Figure("restart until it answers", restart_seconds, "s"),
        Figure("restart, for a million URLs", 1e6 * restart_cpu / urls, "CPU-s"),
    ]


async def _fill(it: Stage, urls: int, domains: int) -> tuple[float, float]:
    """Queue the URLs. Return the server's CPU seconds, and the bytes that its memory has grown by."""
    load = Load(it.frontier.secret, article_url)
    run = await it.frontier.open_crawl(_CRAWL)
    empty, before = await it.memory_bytes(), it.cpu_seconds()
    each = urls // domains
    batches = (
        load.batch(domain, range(first, min(each, first + _BATCH)))
        for first in range(0, each, _BATCH)
        for domain in range(domains)
    )
    added = reported = 0
    for call in calls(batches):
        added += (await it.frontier.add(run, _TERMS, call)).added
        if added * _REPORTS // urls > reported:
            reported = added * _REPORTS // urls
            say(f"frontier: {added:,} of {urls:,} URLs queued")
    await it.at_rest()
    return it.cpu_seconds() - before, await it.memory_bytes() - empty


async def _lease(it: Stage, urls: int) -> float:
    """Lease and settle some of the URLs. Return the server's CPU seconds."""
    say(f"frontier: leasing {urls:,} URLs")
    before = it.cpu_seconds()
    await lease_and_settle(it.frontier, urls)
    return it.cpu_seconds() - before


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(words: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontier.long_queues", description=__doc__)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--domains", type=int, default=100)
    arguments = parser.parse_args(words)
    for figure in asyncio.run(measure_long_queues(urls=arguments.urls, domains=arguments.domains)):
        print(f"{figure.name:<80} {figure.value:12,.2f} {figure.unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
