"""Measures service times: CPU time of the frontier's calls in the server and in the worker, of pages, and memory.

Calls of several sizes are made one after the other; least squares divide their CPU time into a part for the call and a
part for each request in it. Times of the server's main thread and of this process are CPU times, so that other load on
the machine matters little.
"""

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from bench.cluster.costs import CallCosts, Costs, PageCosts, SideCosts
from bench.cluster.real import Observed, Setup, observe
from bench.errors import BenchFailed
from bench.frontier.load import SPIDER, Load, calls
from bench.frontier.memory import measure_memory
from bench.frontier.stage import Stage, stage
from bench.progress import say
from bench.store import disk_folder
from gossamer.fakeweb import WebSpec
from gossamer.frontier.base import Leaseholder
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from gossamer.model.request import Lease, Outcome, Settlement
from tests.servers.valkey import cluster

_DOMAINS = 20_000
_URLS = 30
"""URLs of each domain. Enough for all leases of the rounds."""
_ROUNDS = 5
_LEASES = {1: 192, 4: 96, 16: 48, 64: 16}
"""Calls of each size in a round."""
_ADDITIONS = {(1, 1): 192, (1, 30): 64, (16, 1): 64, (16, 16): 16, (128, 1): 16}
"""Calls in a round with so many domains and URLs of each."""
_HEARTBEATS = 320
_TOGETHER = 16
_REST_SECONDS = 0.02
_SERVERS = 8
_FEW_DOMAINS = 10_000
_DOMAIN_URLS = 100


Call = Callable[[], Awaitable[object]]
Typical = Callable[[Sequence[float]], float]


class _Clock:
    """The frontier's time, which goes on only when told: then every domain is ready."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


class _Sizes:
    """CPU microseconds of calls of several sizes, in the server and here."""

    def __init__(self) -> None:
        self._taken: dict[tuple[float, ...], list[tuple[float, float]]] = {}

    async def take(self, it: Stage, carried: Sequence[float], calls: Sequence[Call], together: int) -> None:
        """Make these calls, so many at a time, and record the mean of one. `carried`: what each of them carries."""
        # The question for the server's time is measured with the calls; there are many of them.
        server, client = await it.main_thread_seconds(), time.process_time()
        for first in range(0, len(calls), together):
            await asyncio.gather(*(call() for call in calls[first : first + together]))
        client = time.process_time() - client
        server = await it.main_thread_seconds() - server
        taken = self._taken.setdefault((1.0, *carried), [])
        taken.append((1e6 * server / len(calls), 1e6 * client / len(calls)))

    def fit(self, side: int, typical: Typical) -> list[float]:
        """Return the microseconds of a call and of each thing that it carries. `side`: 0 for the server, 1 for this
        process. `typical`: selects among the rounds."""
        found = [typical([costs[side] for costs in taken]) for taken in self._taken.values()]
        return _least_squares(list(self._taken), found)


def _least_squares(carried: Sequence[tuple[float, ...]], microseconds: Sequence[float]) -> list[float]:
    """Return microseconds for each column, none of them negative, with the smallest relative errors: small and large
    calls count alike."""
    matrix, values = np.array(carried) / np.array(microseconds)[:, None], np.ones(len(microseconds))
    columns = list(range(matrix.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, columns], values, rcond=None)
        if (found >= 0).all():
            break
        columns.remove(columns[int(found.argmin())])
    result = [0.0] * matrix.shape[1]
    for column, value in zip(columns, found, strict=True):
        result[column] = round(float(value), 2)
    return result


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass
class _Bench:
    """A frontier of one shard, workers on it, and the calls to it that were measured."""

    it: Stage
    clock: _Clock
    run: Run
    holders: list[Leaseholder]
    domains: int
    together: int
    """Calls at a time."""
    pause_seconds: float
    lease: _Sizes = field(default_factory=_Sizes)
    settle: _Sizes = field(default_factory=_Sizes)
    add: _Sizes = field(default_factory=_Sizes)
    heartbeat: _Sizes = field(default_factory=_Sizes)
    maintain: _Sizes = field(default_factory=_Sizes)

    async def _take(self, sizes: _Sizes, carried: Sequence[float], calls: Sequence[Call]) -> None:
        await asyncio.sleep(self.pause_seconds)
        await sizes.take(self.it, carried, calls, self.together)

    async def leases(self, size: int, count: int) -> None:
        """Lease and settle."""
        at_once = min(count, self.domains // size)  # a domain gives one request, until that is settled
        for _ in range(count // at_once):
            self.clock.seconds += 2.0
            found: list[tuple[Leaseholder, list[Lease]]] = []
            holders = [self.holders[place % self.together] for place in range(at_once)]
            calls = [partial(_lease_into, found, holder, size) for holder in holders]
            await self._take(self.lease, (size,), calls)
            if any(len(leases) != size for _, leases in found):
                raise BenchFailed(f"{size} requests should have been leased in each call")
            settlements = [
                partial(holder.settle, [Settlement(one, Outcome.FETCHED) for one in leases]) for holder, leases in found
            ]
            await self._take(self.settle, (size,), settlements)

    async def additions(self, domains: int, urls: int, count: int, first: int) -> None:
        """Add so many URLs of so many domains in each call: known ones (`first` is 0), or new ones from this number."""
        load = Load(self.it.frontier.secret)
        calls = []
        for place in range(count):
            start = first + place * urls if first else 0
            batches = [
                load.batch((place * 131 + domain * 17) % self.domains, range(start, start + urls))
                for domain in range(domains)
            ]
            calls.append(partial(self.it.frontier.add, self.run, _TERMS, batches))
        total = domains * urls
        await self._take(self.add, (domains, 0 if first else total, total if first else 0), calls)

    async def upkeep(self) -> None:
        """Send heartbeats, and maintain the shard."""
        heartbeats = [partial(self.holders[place % self.together].heartbeat, 0) for place in range(_HEARTBEATS)]
        await self._take(self.heartbeat, (), heartbeats)
        maintain = partial(self.it.frontier.maintain, may_declare_dead=lambda: False)
        await self._take(self.maintain, (), [maintain] * (_HEARTBEATS // 5))

    def costs(self, side: int, typical: Typical) -> CallCosts:
        """Return the costs in the server (0) or here (1)."""
        samples = (self.lease, self.settle, self.add, self.heartbeat, self.maintain)
        return CallCosts(*(cost for sizes in samples for cost in sizes.fit(side, typical)))


_TERMS = Terms(domain_max_pending=1_000_000)


async def _lease_into(found: list[tuple[Leaseholder, list[Lease]]], holder: Leaseholder, limit: int) -> None:
    found.append((holder, await holder.lease(limit=limit)))


class Calls(NamedTuple):
    """Costs of calls. The latter two are microseconds, as `Costs` describes them."""

    shard: SideCosts
    worker: SideCosts
    fsync: float
    round_trip: float


async def measure_calls(domains: int, *, typical: Typical = min, pause_seconds: float = 0.0) -> Calls:
    """Return the costs of calls between a worker and a shard with so many domains.

    `typical`: selects among the rounds. Other work on the machine only makes calls slower, so the fastest round is
    nearest to a machine without it. `pause_seconds`: between groups of calls, so that they slow down little else."""
    say(f"calls to a shard with {domains:,} domains")
    clock = _Clock()
    async with stage(clock=clock) as it, AsyncExitStack() as stack:
        load = Load(it.frontier.secret)
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", "costs")))
        for call in calls(load.batch(domain, range(_URLS)) for domain in range(domains)):
            await it.frontier.add(run, _TERMS, call)
        holders = []
        for _ in range(_TOGETHER):
            holder = await it.frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
            stack.push_async_callback(holder.close)
            # The first call of a worker does more.
            await holder.settle([Settlement(one, Outcome.FETCHED) for one in await holder.lease(limit=1)])
            holders.append(holder)
        await it.at_rest()
        benches = [_Bench(it, clock, run, holders, domains, together, pause_seconds) for together in (1, _TOGETHER)]
        heartbeat, flush = await _latencies(holders[0])
        next_url = _URLS
        for _ in range(_ROUNDS):
            for bench in benches:
                for size, count in _LEASES.items():
                    if size * _TOGETHER <= domains:
                        await bench.leases(size, count)
                for (some, urls), count in _ADDITIONS.items():
                    await bench.additions(some, urls, count, 0)
                    await bench.additions(some, urls, count, next_url)
                    next_url += count * urls
                await bench.upkeep()
    alone, busy = benches
    shard = SideCosts(alone.costs(0, typical), busy.costs(0, typical))
    worker = SideCosts(
        alone.costs(1, typical), _with_connections(busy.costs(1, typical), await _heartbeat_to_each_of_many())
    )
    waits = heartbeat - shard.alone.heartbeat - worker.alone.heartbeat - flush
    return Calls(shard, worker, flush, round(max(0.0, waits), 1))


async def _latencies(holder: Leaseholder) -> tuple[float, float]:
    """Return the median microseconds, as a clock shows them, of a heartbeat after a pause, and of a flush of a few
    hundred bytes to the disk."""
    heartbeats, flushes = [], []
    with disk_folder() as folder:
        file = os.open(folder / "flushed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for _ in range(_HEARTBEATS):
                await asyncio.sleep(_REST_SECONDS)
                began = time.perf_counter()
                await holder.heartbeat(0)
                heartbeats.append(time.perf_counter() - began)
                os.write(file, b"x" * 300)
                began = time.perf_counter()
                os.fdatasync(file)
                flushes.append(time.perf_counter() - began)
        finally:
            os.close(file)
    return 1e6 * statistics.median(heartbeats), round(1e6 * statistics.median(flushes), 1)


async def _heartbeat_to_each_of_many() -> float:
    """Return the CPU microseconds here of a heartbeat, when one is sent to each of several servers at a time."""
    with cluster(primaries=_SERVERS, one_shard_each=True) as servers:
        frontier = await ValkeyFrontier.connect(servers.address, shards=_SERVERS)
        try:
            holder = await frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
            await holder.lease(limit=_SERVERS)
            took = []
            for _ in range(_ROUNDS):
                before = time.process_time()
                for _ in range(_HEARTBEATS // _SERVERS):
                    await holder.heartbeat()
                took.append((time.process_time() - before) / _HEARTBEATS)
            await holder.close()
        finally:
            await frontier.close()
    return 1e6 * statistics.median(took)


def _with_connections(busy: CallCosts, heartbeat: float) -> CallCosts:
    """Return a worker's costs of calls to different servers, from those of calls to one server, many in a message."""
    more = max(0.0, heartbeat - busy.heartbeat)
    names = ("lease_call", "settle_call", "add_call", "heartbeat")
    return msgspec.structs.replace(busy, **{name: round(getattr(busy, name) + more, 2) for name in names})


# --- memory -----------------------------------------------------------------------------------------------------------


async def _measure_memory(seen: float) -> tuple[float, float]:
    """Return the bytes of a queued URL, besides those of a seen one, and of a domain. Domains have about as many URLs
    as on the web: short queues are not compressed, long ones are."""
    say(f"memory of {_FEW_DOMAINS:,} domains")
    async with stage() as it:
        load = Load(it.frontier.secret)
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", "domains")))
        await it.frontier.add(run, _TERMS, [load.batch(_FEW_DOMAINS, [0])])
        empty = await it.memory_bytes()
        sizes = []
        for numbers in (range(1), range(1, _DOMAIN_URLS)):
            for call in calls(load.batch(domain, numbers) for domain in range(_FEW_DOMAINS)):
                await it.frontier.add(run, _TERMS, call)
            sizes.append((await it.memory_bytes() - empty) / _FEW_DOMAINS)
    url = (sizes[1] - sizes[0]) / (_DOMAIN_URLS - 1)
    return url - seen, sizes[0] - url


# --- pages ------------------------------------------------------------------------------------------------------------


WEB = Setup(
    workers=1, shards=1, concurrency=64, rate=Rate(hits=100_000, window_seconds=1.0, moderated=False),
    warm_up_seconds=5.0, seconds=15.0,
    webs=(WebSpec(hosts=500, pages=200, page_bytes=85_000, out_degree=37, cross_host_share=0.15),),
)  # fmt: skip
"""A worker that is busy all the time, with pages as large as Common Crawl's."""


def page_costs(setup: Setup, seen: Observed, costs: CallCosts) -> PageCosts:
    """Return the CPU cost of a page in the workers of a real crawl. `costs`: of the workers' calls."""
    took = call_microseconds(seen, costs)
    rest = seen.page_worker_us - took
    say(f"a page: {rest:.0f} us, and {took:.0f} us for its calls; {seen.pages_per_second:.0f} a second")
    web = setup.webs[0]
    return PageCosts(web.page_bytes, web.out_degree, round(rest, 1))


def call_microseconds(seen: Observed, costs: CallCosts) -> float:
    """Return the CPU microseconds that a page's calls took, by these costs."""
    calls_a_page = seen.calls_a_page
    return (
        costs.lease_call * calls_a_page.get("lease", 0.0)
        + costs.lease_each
        + costs.settle_call * calls_a_page.get("settle", 0.0)
        + costs.settle_each
        + costs.add_call * calls_a_page.get("add", 0.0)
        + costs.add_domain * seen.domains_a_page
        + costs.add_known * seen.urls_a_page * (1 - seen.new_share)
        + costs.add_new * seen.urls_a_page * seen.new_share
        + costs.heartbeat * calls_a_page.get("heartbeat", 0.0)
        + costs.maintain * calls_a_page.get("pending_work", 0.0)
    )


def measure() -> Costs:
    """Measure everything, which takes some minutes."""
    found = asyncio.run(measure_calls(_DOMAINS))
    seen, _ = (figure.value for figure in asyncio.run(measure_memory(urls=1_000_000)))
    queued, domain = asyncio.run(_measure_memory(seen))
    pages = {"web": page_costs(WEB, observe(WEB), found.worker.busy)}
    return Costs(
        **found._asdict(), machine=describe_machine(), date=time.strftime("%Y-%m-%d"), pages=pages,
        seen_bytes=round(seen, 1), queued_bytes=round(queued, 1), domain_bytes=round(domain, 1),
    )  # fmt: skip


def describe_machine() -> str:
    """Return the machine in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"
