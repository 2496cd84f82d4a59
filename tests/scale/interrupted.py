"""A crawl by several workers that something interrupts: what was lost, what was fetched twice, how soon all goes on.

The workers are held to a pace by politeness, well below what a machine can do, so that full speed is known.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.journal import Record
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import DomainPolicy
from gossamer.telemetry import logs as names
from gossamer.valkey.connection import retrying
from gossamer_fakeweb import graph, repeated
from gossamer_fakeweb.log import is_page
from tests.scale.lanes import FastLane, Lane
from tests.scale.stores import Stores, one_server
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.valkey import Server, wait_until

FULL = 0.9
"""This share of the rate before counts as full speed."""
_END_SECONDS = 600.0
_BIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Size:
    """Of a run. Full speed is `hosts x hits_a_second`."""

    hosts: int = 100
    pages: int = 160
    hits_a_second: int = 2
    workers: int = 2
    concurrency: int = 8
    """Of each host."""
    trouble_seconds: float = 60.0
    before_seconds: float = 10.0
    """At full speed, before the trouble."""
    after_seconds: float = 20.0
    """How long after it the speed is looked at."""
    dead_after_seconds: float = 10.0
    latency_ms: float = 200.0
    """Of the web: so that the trouble meets requests under way."""
    cross_host_share: float = 0.0
    """Share of a page's links that lead to other hosts."""

    @property
    def rate(self) -> float:
        """Pages a second at full speed."""
        return float(self.hosts * self.hits_a_second)


@dataclass(slots=True)
class Interrupted:
    """What came of it."""

    pages: int
    lost: int
    """Pages without a record."""
    twice: int
    """Pages fetched more than once."""
    copies: int
    """Records beyond the first of their page."""
    failed: int
    """Records of failures."""
    during: int
    """Pages fetched while the trouble lasted, but for its first second."""
    before: float
    """Pages a second."""
    after: float
    """Pages a second from ten seconds after the trouble on."""
    again_seconds: float | None
    """From the end of the trouble to the first second at full speed; None: never."""
    spared: int
    """Hosts that the trouble does not concern."""
    spared_rate: float
    """Pages a second of those while it lasted."""
    taken_for_dead: int
    """Workers that a shard declared dead. None had died."""
    said: list[str]
    """The last words of each worker's log, for a person."""


Trouble = Callable[[Server, Path], AbstractContextManager[None]]
"""Given the server and the folder that the output is in: begins, and ends with the block."""


async def interrupted(
    trouble: Trouble,
    size: Size,
    *,
    lane: Lane | None = None,
    outputs: Path | None = None,
    stores: Stores = one_server,
) -> Interrupted:
    """Run it to the end of the crawl. `lane`: other than the fast one. `outputs`: where the pages go, other than a
    folder of the run's own."""
    lane = lane or FastLane()
    spec = WebSpec(
        hosts=size.hosts,
        pages=size.pages,
        page_bytes=2000,
        latency_ms=size.latency_ms,
        cross_host_share=size.cross_host_share,
    )
    with (
        tempfile.TemporaryDirectory(prefix="interrupted-") as name,
        FakeWeb.start(spec) as web,
        stores() as store,
        Fleet(Path(name), resolve=["*.test:127.0.0.1"]) as fleet,
    ):
        place = outputs or Path(name)
        frontier = await ValkeyFrontier.connect(
            store.address, shards=store.shards, dead_after_seconds=size.dead_after_seconds
        )
        policy = DomainPolicy(hits=size.hits_a_second, window_seconds=1.0, concurrency=size.concurrency)
        await frontier.set_domain_policy(None, policy)
        await lane.begin(frontier, web)
        files = [place / f"{number}.jsonl" for number in range(size.workers)]
        for file in files:
            lane.start(fleet, store.address, web, file, size.dead_after_seconds)
        half = size.rate * size.before_seconds / 2
        await asyncio.to_thread(wait_until, lambda: web.stats().requests > half, "the crawl to be under way")
        await asyncio.sleep(size.before_seconds)
        began = time.monotonic()
        with trouble(store.server, place):
            await asyncio.sleep(size.trouble_seconds)
        ended = time.monotonic()
        await frontier.close()
        async with asyncio.timeout(_END_SECONDS):
            frontier = await retrying(lambda: ValkeyFrontier.connect(store.address))
            await crawls.until_over(frontier, lane.crawl)
            await frontier.close()
        await asyncio.to_thread(fleet.drain)
        log = [record for record in web.log() if is_page(record)]
        written, failed = lane.records([file for file in files if file.exists()])
        whole = graph(web.site)
        hosts = {record.host for record in log}
        spared = {host for host in hosts if store.spared(host)}
        return Interrupted(
            pages=len(whole),
            lost=len(whole - written.keys()),
            twice=len(repeated(log)),
            copies=written.total() - len(written),
            failed=failed,
            during=_count(log, began + 1, ended),
            before=_count(log, began - size.before_seconds, began) / size.before_seconds,
            after=_count(log, ended + 10, ended + size.after_seconds) / max(1.0, size.after_seconds - 10),
            again_seconds=_again(log, ended, size),
            spared=len(spared),
            spared_rate=_count([r for r in log if r.host in spared], began, ended) / (ended - began),
            taken_for_dead=sum(member.log.count(names.WORKER_STALE) for member in fleet.members),
            said=[member.log[-500:] for member in fleet.members],
        )


def _count(log: Sequence[Record], first: float, last: float) -> int:
    return sum(first <= record.started < last for record in log)


def _again(log: Sequence[Record], ended: float, size: Size) -> float | None:
    """The first second, in steps of a tenth, that is at full speed."""
    wanted = FULL * size.rate * _BIN_SECONDS
    for tenth in range(int(size.after_seconds * 10)):
        at = ended + tenth / 10
        if _count(log, at, at + _BIN_SECONDS) >= wanted:
            return tenth / 10
    return None
