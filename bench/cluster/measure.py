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
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from gossamer.model.request import Lease, Outcome, Settlement

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
_FLUSHES = 300
_FEW_DOMAINS = 50_000


Call = Callable[[], Awaitable[object]]


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

    def fit(self, side: int) -> list[float]:
        """Return the microseconds of a call and of each thing that it carries, from the medians of the rounds. `side`:
        0 for the server, 1 for this process."""
        medians = [statistics.median(costs[side] for costs in taken) for taken in self._taken.values()]
        return _least_squares(list(self._taken), medians)


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
    together: int
    """Calls at a time."""
    lease: _Sizes = field(default_factory=_Sizes)
    settle: _Sizes = field(default_factory=_Sizes)
    add: _Sizes = field(default_factory=_Sizes)
    heartbeat: _Sizes = field(default_factory=_Sizes)
    maintain: _Sizes = field(default_factory=_Sizes)

    async def leases(self, size: int, count: int) -> None:
        """Lease and settle."""
        self.clock.seconds += 2.0
        found: list[tuple[Leaseholder, list[Lease]]] = []

        async def lease(holder: Leaseholder) -> None:
            found.append((holder, await holder.lease(limit=size)))

        calls = [partial(lease, self.holders[place % self.together]) for place in range(count)]
        await self.lease.take(self.it, (size,), calls, self.together)
        if any(len(leases) != size for _, leases in found):
            raise BenchFailed(f"{size} requests should have been leased in each call")
        settlements = [
            partial(holder.settle, [Settlement(one, Outcome.FETCHED) for one in leases]) for holder, leases in found
        ]
        await self.settle.take(self.it, (size,), settlements, self.together)

    async def additions(self, domains: int, urls: int, count: int, first: int) -> None:
        """Add so many URLs of so many domains in each call: known ones (`first` is 0), or new ones from this number."""
        load = Load(self.it.frontier.secret)
        calls = []
        for place in range(count):
            start = first + place * urls if first else 0
            batches = [
                load.batch((place * 131 + domain * 17) % _DOMAINS, range(start, start + urls))
                for domain in range(domains)
            ]
            calls.append(partial(self.it.frontier.add, self.run, _TERMS, batches))
        total = domains * urls
        await self.add.take(self.it, (domains, 0 if first else total, total if first else 0), calls, self.together)

    async def upkeep(self) -> None:
        """Send heartbeats, and maintain the shard."""
        heartbeats = [partial(self.holders[place % self.together].heartbeat, 0) for place in range(_HEARTBEATS)]
        await self.heartbeat.take(self.it, (), heartbeats, self.together)
        maintain = partial(self.it.frontier.maintain, may_declare_dead=lambda: False)
        await self.maintain.take(self.it, (), [maintain] * (_HEARTBEATS // 5), self.together)

    def costs(self, side: int) -> CallCosts:
        """Return the costs in the server (0) or here (1)."""
        samples = (self.lease, self.settle, self.add, self.heartbeat, self.maintain)
        return CallCosts(*(cost for sizes in samples for cost in sizes.fit(side)))


_TERMS = Terms(domain_max_pending=1_000_000)


async def measure_calls() -> tuple[SideCosts, SideCosts]:
    """Return the CPU costs of calls in the shard and in the worker."""
    say("calls to one shard")
    clock = _Clock()
    async with stage(clock=clock) as it, AsyncExitStack() as stack:
        load = Load(it.frontier.secret)
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", "costs")))
        for call in calls(load.batch(domain, range(_URLS)) for domain in range(_DOMAINS)):
            await it.frontier.add(run, _TERMS, call)
        holders = []
        for _ in range(_TOGETHER):
            holder = await it.frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
            stack.push_async_callback(holder.close)
            await holder.lease(limit=1)  # the first call of a worker does more
            holders.append(holder)
        await it.at_rest()
        benches = [_Bench(it, clock, run, holders, together) for together in (1, _TOGETHER)]
        next_url = _URLS
        for _ in range(_ROUNDS):
            for bench in benches:
                for size, count in _LEASES.items():
                    await bench.leases(size, count)
                for (domains, urls), count in _ADDITIONS.items():
                    await bench.additions(domains, urls, count, 0)
                    await bench.additions(domains, urls, count, next_url)
                    next_url += count * urls
                await bench.upkeep()
    alone, busy = benches
    shard, worker = (SideCosts(alone.costs(side), busy.costs(side)) for side in (0, 1))
    return shard, worker


def measure_flush() -> float:
    """Return the median microseconds that a flush of a few hundred bytes to the disk takes."""
    say("flushes to the disk")
    with disk_folder() as folder:
        file = os.open(folder / "flushed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            took = []
            for _ in range(_FLUSHES):
                os.write(file, b"x" * 300)
                began = time.perf_counter()
                os.fdatasync(file)
                took.append(time.perf_counter() - began)
        finally:
            os.close(file)
    return round(1e6 * statistics.median(took), 1)


# --- memory -----------------------------------------------------------------------------------------------------------


async def _domain_bytes(seen: float, queued: float) -> float:
    """Return the memory of a domain, from domains with one URL each."""
    say("memory of domains")
    async with stage() as it:
        load = Load(it.frontier.secret)
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", "domains")))
        await it.frontier.add(run, _TERMS, [load.batch(_FEW_DOMAINS, [0])])
        before = await it.memory_bytes()
        for call in calls(load.batch(domain, [0]) for domain in range(_FEW_DOMAINS)):
            await it.frontier.add(run, _TERMS, call)
        return (await it.memory_bytes() - before) / _FEW_DOMAINS - seen - queued


# --- pages ------------------------------------------------------------------------------------------------------------


def measure_pages(worker: SideCosts) -> dict[str, PageCosts]:
    """Return the costs of pages by profile. `web`: a worker that is busy all the time, with pages of the size that
    Common Crawl has on average. `check`: small pages, and a worker that mostly waits."""
    fast = Rate(hits=100_000, window_seconds=1.0, moderated=False)
    setups = {
        "web": Setup(
            workers=1, shards=1, concurrency=64, rate=fast, warm_up_seconds=5.0, seconds=15.0,
            web=WebSpec(hosts=500, pages=200, page_bytes=138_000, out_degree=37, cross_host_share=0.15),
        ),
        "check": Setup(
            workers=1, shards=1, concurrency=16, rate=CHECK_RATE, warm_up_seconds=8.0, seconds=20.0, web=CHECK_WEB
        ),
    }  # fmt: skip
    found = {}
    for name, setup in setups.items():
        seen = observe(setup)
        calls = call_microseconds(seen, worker.busy if name == "web" else worker.alone)
        rest = seen.page_worker_us - calls
        say(f"a page of {name}: {rest:.0f} us, and {calls:.0f} us for its calls; {seen.pages_per_second:.0f} a second")
        found[name] = PageCosts(setup.web.page_bytes, setup.web.out_degree, round(rest, 1))
    return found


CHECK_WEB = WebSpec(hosts=400, pages=400, page_bytes=12_000, out_degree=20, latency_ms=500, cross_host_share=0.15)
CHECK_RATE = Rate(hits=1, window_seconds=1.0)


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
    shard, worker = asyncio.run(measure_calls())
    flush = measure_flush()
    seen, queued = (figure.value for figure in asyncio.run(measure_memory(urls=1_000_000)))
    domain = asyncio.run(_domain_bytes(seen, queued))
    pages = measure_pages(worker)
    return Costs(
        machine=_machine(), date=time.strftime("%Y-%m-%d"), shard=shard, fsync=flush, worker=worker,
        pages=pages, seen_bytes=round(seen, 1), queued_bytes=round(queued, 1), domain_bytes=round(domain, 1),
    )  # fmt: skip


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"
