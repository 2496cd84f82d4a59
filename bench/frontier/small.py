"""Many crawls of one URL each: what one costs, and what is left of them."""

import asyncio

from bench.errors import BenchFailed
from bench.frontier.load import Load, lease_and_settle
from bench.frontier.stage import Stage, stage
from bench.progress import say
from bench.results import Figure
from gossamer.model.crawl import Crawl, CrawlId, Terms

_AT_ONCE = 64
_RETENTION_SECONDS = 0.3
_QUIET_SECONDS = 6.0
"""After so long without a change nothing will change any more. Must exceed the life of what a domain's hits leave: two
seconds, rounded up to a power of two in milliseconds (LINGER of windows.lua)."""
_GONE_SECONDS = 120.0


async def measure_small_crawls(*, crawls: int) -> list[Figure]:
    """Each with a domain of its own."""
    say(f"frontier: {crawls:,} crawls of one URL")
    async with stage(retention_seconds=_RETENTION_SECONDS) as it:
        # What is there however many crawls follow: scripts, the policy, one short-lived answer for each call at a time.
        await asyncio.gather(*(_submit(it, number, number + 1) for number in range(_AT_ONCE)))
        await lease_and_settle(it.frontier, _AT_ONCE)
        await _wait_until_keys(it, None)
        empty, empty_keys = await it.memory_bytes(), await it.keys()
        before = it.cpu_seconds()
        for first in range(_AT_ONCE, _AT_ONCE + crawls, _AT_ONCE):
            last = min(_AT_ONCE + crawls, first + _AT_ONCE)
            await asyncio.gather(*(_submit(it, number, number + 1) for number in range(first, last)))
        seconds = it.cpu_seconds() - before
        each = (await it.memory_bytes() - empty) / crawls
        await lease_and_settle(it.frontier, crawls)
        left = max(0, await _wait_until_keys(it, empty_keys) - empty_keys)
    return [
        Figure("a crawl of one URL, on a domain of its own", each, "bytes", "1,200"),
        Figure("left of it after its retention", left, "keys", "0"),
        Figure("crawls of one URL opened and submitted", crawls / seconds, "crawls/CPU-s"),
    ]


async def _submit(it: Stage, number: int, beyond: int) -> None:
    load = Load(it.frontier.secret)
    for crawl in range(number, beyond):
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", f"small-{crawl}")))
        await it.frontier.add(run, Terms(maxdepth=0), [load.batch(crawl, [0])], seeds=True)


async def _wait_until_keys(it: Stage, wanted: int | None) -> int:
    """Do the housekeeping until no more than this many keys are left (None: until nothing changes for a while)."""
    loop = asyncio.get_running_loop()
    last = loop.time() + _GONE_SECONDS
    quiet_since, keys = loop.time(), await it.keys()
    while True:
        await it.frontier.maintain()
        now_keys = await it.keys()
        if now_keys != keys:
            quiet_since, keys = loop.time(), now_keys
        if wanted is not None and keys <= wanted:
            return keys
        if loop.time() - quiet_since > _QUIET_SECONDS:
            return keys
        if loop.time() > last:
            raise BenchFailed("the retention of the small crawls does not end")
        await asyncio.sleep(0.05)
