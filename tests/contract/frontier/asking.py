"""Short words for the requests that tests submit."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, Run
from gossamer.model.request import MAX_DEATHS, Batch, Lease


def fingerprint(spider: str, url: str) -> int:
    """As the workers make them: signed 64-bit, the spider included."""
    digest = hashlib.blake2b(f"{spider}\0{url}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def a_crawl(name: str = "one", **options: Any) -> Crawl:
    return Crawl(id=CrawlId("app", name), **options)


def a_batch(
    domain: str,
    paths: Iterable[object],
    *,
    spider: str = "link",
    priority: int = 0,
    depth: int = 0,
    payloads: Sequence[bytes | None] | None = None,
    unfiltered: bool = False,
    render: bool = False,
) -> Batch:
    """`https://<domain>/<path>` for each path."""
    urls = [f"https://{domain}/{path}" for path in paths]
    prints = [fingerprint(spider, url) for url in urls]
    return Batch(spider, domain, priority, depth, urls, prints, payloads, unfiltered, render=render)


async def declare_dead(frontier: ValkeyFrontier, shard: int, name: str) -> None:
    """Take back what this worker holds on a shard, as if it had been silent for too long."""
    await frontier._commands.call(shard, "reclaim", 10_000, 3_600_000, 200, name, 0, MAX_DEATHS)


def of_living(seat: ValkeyLeaseholder, leases: Iterable[Lease]) -> list[Lease]:
    """Those whose session was not declared dead, as far as the worker was told by now. Reports of others count for
    nothing."""
    return [lease for lease in leases if seat.session_name(lease.shard) == lease.worker]


async def fetched_count(frontier: ValkeyFrontier, run: Run) -> int:
    """Number of pages of the crawl's run that count as fetched."""
    info = await frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.run == run.number
    return info.total().fetched
