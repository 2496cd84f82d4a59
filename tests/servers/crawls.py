"""A crawl on a frontier, from outside: opened, asked about, its ends and what it leaves in the server."""

import asyncio
import time
from collections.abc import Sequence

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlEvent, CrawlId, CrawlState, Run, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed
from gossamer.valkey.connection import retrying

CRAWL = CrawlId("tests", "fleet")
ENDLESS = frozenset({"meta", "n", "policy", "egresses", "clock"})
"""Keys of a shard that may stay for ever, by what follows its prefix: `keys.py` says so of each."""
_ROUNDS = 3
_MAINTAINED_SECONDS = 20.0
"""Several periods of maintenance."""
_AWAY_SECONDS = 30.0
"""So long a store may be away that fails over."""
_LONG = 60 * 86400.0


async def open_crawl(
    frontier: ValkeyFrontier,
    seeds: Sequence[str],
    terms: Terms,
    *,
    crawl: Crawl | None = None,
    spider: str = "link",
    render: bool = False,
) -> Run:
    """Open it in the pool `shared` and add the seeds. `render`: they are to be rendered."""
    run = await frontier.open_crawl(crawl or Crawl(id=CRAWL))
    mark = spider_seed(frontier.secret, spider)
    batches: dict[str, Batch] = {}
    for url in seeds:
        domain = registered_domain(host(url))
        batch = batches.setdefault(domain, Batch(spider, domain, 1, 0, render=render))
        batch.urls.append(url)
        batch.fingerprints.append(fingerprint(url, seed=mark))
    await frontier.add(run, terms, list(batches.values()), seeds=True)
    return run


async def ends(frontier: ValkeyFrontier, crawl: CrawlId = CRAWL) -> list[CrawlEvent]:
    """Every end of this crawl that nobody has told yet."""
    return [
        event
        for event in await retrying(lambda: frontier.pending_events(limit=1000), timeout_seconds=_AWAY_SECONDS)
        if event.crawl == crawl
    ]


async def info(frontier: ValkeyFrontier, crawl: CrawlId = CRAWL) -> CrawlInfo:
    """Its counters; it must be known."""
    found = await retrying(lambda: frontier.crawl_info(crawl), timeout_seconds=_AWAY_SECONDS)
    assert found is not None, f"the frontier knows no crawl {crawl}"
    return found


async def until_over(frontier: ValkeyFrontier, crawl: CrawlId = CRAWL, *, every_seconds: float = 0.1) -> CrawlInfo:
    """Its counters when it no longer runs. Bound it in time from outside."""
    while True:
        found = await info(frontier, crawl)
        if found.state is not CrawlState.RUNNING:
            return found
        await asyncio.sleep(every_seconds)


async def die_with_leases(
    address: str, count: int, *, pool: str = "shared", spider: str = "link", prefix: str = "gossamer"
) -> None:
    """Lease so many requests, as a worker that then makes no further call, until they are reclaimed as those of a dead
    one. There must be at least so many that are due."""
    frontier = await ValkeyFrontier.connect(address, prefix=prefix, dead_after_seconds=0.2)
    holder = await frontier.open_leaseholder(pool=pool, spiders=[spider])
    leased = reclaimed = 0
    while leased < count:
        leased += len(await holder.lease(limit=count - leased))
    while reclaimed < count:
        reclaimed += await frontier.maintain()
    await frontier.close()


async def left_behind(address: str, *, prefix: str = "gossamer") -> list[str]:
    """Keys of the frontier without an end: asked as if every retention were over. Destroys what is finished.

    Maintenance is periodic: what one round could not do, because a server was away or slow for a moment, the next does.
    Its first rounds are of the present, as in a cluster that goes on: a server that took over may have forgotten that
    the run had ended there, and learns it from the home shard, which keeps the run for its retention. Where the home
    shard has forgotten it, the run ends one more retention later.
    """
    frontier = await ValkeyFrontier.connect(address, prefix=prefix)
    try:
        for _ in range(_ROUNDS):
            await retrying(frontier.maintain, timeout_seconds=_AWAY_SECONDS)
    finally:
        await frontier.close()
    ahead = _LONG
    frontier = await ValkeyFrontier.connect(address, prefix=prefix, clock=lambda: time.time() + ahead)
    deadline = time.monotonic() + _MAINTAINED_SECONDS
    try:
        while True:
            await retrying(frontier.maintain, timeout_seconds=_AWAY_SECONDS)
            stays = await _endless(frontier, prefix)
            if not stays or time.monotonic() > deadline:
                return stays
            ahead += _LONG
    finally:
        await frontier.close()


async def _endless(frontier: ValkeyFrontier, prefix: str) -> list[str]:
    commands = frontier._commands
    stays: list[str] = []
    for shard, keys in enumerate(commands.keys):
        cursor = b"0"
        while True:
            cursor, page = await commands.plain(shard, "SCAN", cursor, "MATCH", f"{prefix}:*", "COUNT", 1000)
            for key in page:
                if key.startswith(keys.base.encode()) and await commands.plain(shard, "PTTL", key) == -1:
                    name = key.decode().removeprefix(keys.base)
                    if name not in ENDLESS:
                        stays.append(key.decode())
            if cursor == b"0":
                break
    return sorted(set(stays))
