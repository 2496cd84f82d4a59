"""Measures service times: CPU time of the frontier's calls in the server and in the worker, of pages, and memory.

Calls of several sizes are made; least squares divide their CPU time into a part for the call and a part for each
request in it. They are made three times: each after a rest, one directly after the other, and 16 at a time. Times of
the server's main thread and of this process are CPU times, so that other load on the machine matters little.
"""

import asyncio
import os
import platform
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from bench.cluster.costs import COOLING_SECONDS, CallCosts, Costs, PageCosts, SideCosts
from bench.cluster.model import simulate
from bench.cluster.real import OPTIONS, Observed, Setup, observe, scenario_of, temporary_files_in
from bench.errors import BenchFailed
from bench.frontier.load import SPIDER, Load, article_url, calls
from bench.frontier.memory import measure_memory
from bench.frontier.stage import Clock, Stage, stage
from bench.progress import say
from bench.store import disk_folder
from gossamer.fakeweb import WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.commands import SCRIPTS
from gossamer.frontier.valkey.keys import ShardKeys
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server, cluster

_DOMAINS = 20_000
_URLS = 30
"""URLs of each domain. Enough for all leases of the rounds."""
_ROUNDS = 5
_LEASES = {1: 192, 4: 96, 16: 48, 64: 16}
"""Calls of each size in a round."""
_ADDITIONS = {(1, 1): 192, (1, 30): 64, (16, 1): 64, (16, 16): 16, (128, 1): 16}
"""Calls in a round with so many domains and URLs of each."""
_HEARTBEATS = 320
_FEWEST = 4
"""Calls of a size in a round, at least."""
_TOGETHER = 16
_REST_SECONDS = 2 * COOLING_SECONDS
_RESTED_SHARE = 1 / 8
"""Share of the calls of a round that are made after a rest, which takes time."""
_SERVERS = 8
_IDLE_SECONDS = 10.0
_FEW_DOMAINS = 10_000
_DOMAIN_URLS = 100

Call = Callable[[], Awaitable[object]]
Typical = Callable[[Sequence[float]], float]


class _Sizes:
    """CPU microseconds of calls of several sizes, in the server and here."""

    def __init__(self) -> None:
        self._taken: dict[tuple[float, ...], list[tuple[float, float]]] = {}

    async def take(
        self, it: Stage, carried: Sequence[float], calls: Sequence[Call], together: int, rest: "_Rest"
    ) -> None:
        """Make these calls, so many at a time, and record the mean of one. `carried`: what each of them carries."""
        # The question for the server's time is measured with the calls; there are many of them.
        server, client, began = await it.main_thread_seconds(), 0.0, time.perf_counter()
        for first in range(0, len(calls), together):
            await asyncio.sleep(rest.seconds)
            before = time.process_time()
            await asyncio.gather(*(call() for call in calls[first : first + together]))
            client += time.process_time() - before
        idle = rest.server_second * (time.perf_counter() - began) if rest.seconds else 0.0
        server = 1e6 * (await it.main_thread_seconds() - server) - idle
        taken = self._taken.setdefault((1.0, *carried), [])
        taken.append((server / len(calls), 1e6 * client / len(calls)))

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


class _Rest(NamedTuple):
    """Rest of both processes before calls."""

    seconds: float
    server_second: float
    """CPU microseconds that the server uses in a second without calls. They are no part of the calls after a rest."""


@dataclass
class _Bench:
    """A frontier of one shard, workers with a connection each, and the calls of theirs that were measured."""

    it: Stage
    clock: Clock
    run: Run
    workers: Sequence[tuple[ValkeyFrontier, ValkeyLeaseholder]]
    """As many as make calls at a time."""
    domains: int
    rest: _Rest
    """Before each call."""
    pause_seconds: float
    share: float = 1.0
    """Share of the calls that are made."""
    lease: _Sizes = field(default_factory=_Sizes)
    settle: _Sizes = field(default_factory=_Sizes)
    add: _Sizes = field(default_factory=_Sizes)
    heartbeat: _Sizes = field(default_factory=_Sizes)
    maintain: _Sizes = field(default_factory=_Sizes)
    clocks: _Sizes = field(default_factory=_Sizes)
    replicas: _Sizes = field(default_factory=_Sizes)

    async def round(self, next_url: int) -> int:
        """Make calls of all kinds and sizes. `next_url`: number of a URL that was not added yet. Returns the next."""
        for size, count in _LEASES.items():
            if size * _TOGETHER <= self.domains:
                await self.leases(size, self._some(count))
        for (some, urls), count in _ADDITIONS.items():
            await self.additions(some, urls, self._some(count), 0)
            await self.additions(some, urls, self._some(count), next_url)
            next_url += count * urls
        await self.upkeep()
        return next_url

    def _some(self, count: int) -> int:
        return max(_FEWEST, round(count * self.share))

    def _frontier(self, place: int) -> ValkeyFrontier:
        return self.workers[place % len(self.workers)][0]

    async def _take(self, sizes: _Sizes, carried: Sequence[float], calls: Sequence[Call]) -> None:
        await asyncio.sleep(self.pause_seconds)
        await sizes.take(self.it, carried, calls, len(self.workers), self.rest)

    async def leases(self, size: int, count: int) -> None:
        """Lease and settle."""
        at_once = min(count, self.domains // size)  # a domain gives one request, until that is settled
        for _ in range(count // at_once):
            self.clock.seconds += 2.0
            found: list[tuple[ValkeyLeaseholder, list[Lease]]] = []
            holders = [self.workers[place % len(self.workers)][1] for place in range(at_once)]
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
            calls.append(partial(self._frontier(place).add, self.run, _TERMS, batches))
        total = domains * urls
        await self._take(self.add, (domains, 0 if first else total, total if first else 0), calls)

    async def upkeep(self) -> None:
        """Make the calls that a worker makes to each shard at intervals."""
        places = range(self._some(_HEARTBEATS))
        holders = [self.workers[place % len(self.workers)][1] for place in places]
        await self._take(self.heartbeat, (), [partial(holder.heartbeat, 0) for holder in holders])
        maintained = [self._frontier(place) for place in range(self._some(_HEARTBEATS // 5))]
        alive = {"may_declare_dead": lambda: False}
        await self._take(self.maintain, (), [partial(frontier.maintain, **alive) for frontier in maintained])
        connections = [self._frontier(place).connection for place in places]
        await self._take(self.clocks, (), [partial(_compare_clocks, shards) for shards in connections])
        base = _KEYS.base
        await self._take(
            self.replicas, (), [partial(shards.command, base, "INFO", "replication") for shards in connections]
        )

    def costs(self, side: int, typical: Typical) -> CallCosts:
        """Return the costs in the server (0) or here (1)."""
        samples = (self.lease, self.settle, self.add, self.heartbeat, self.maintain, self.clocks, self.replicas)
        return CallCosts(*(cost for sizes in samples for cost in sizes.fit(side, typical)))


_TERMS = Terms(domain_max_pending=1_000_000)
_KEYS = ShardKeys("gossamer", 0)


async def _lease_into(
    found: list[tuple[ValkeyLeaseholder, list[Lease]]], holder: ValkeyLeaseholder, limit: int
) -> None:
    found.append((holder, await holder.lease(limit=limit)))


async def _compare_clocks(shards: Shards) -> None:
    """Ask the shard for its time as a worker does, one that agrees with it."""
    arguments = ("", _KEYS.prefix, "bench", f"{time.time() * 1000:.3f}", "", 0)
    await shards.call(0, SCRIPTS["clock"], [_KEYS.base], arguments)


class Calls(NamedTuple):
    """Costs of calls. The last three are microseconds, as `Costs` describes them."""

    shard: SideCosts
    worker: SideCosts
    server_second: float
    fsync: float
    round_trip: float


async def measure_calls(
    domains: int, server_second: float, *, rounds: int = _ROUNDS, typical: Typical = min, pause_seconds: float = 0.0
) -> Calls:
    """Return the costs of calls between workers and a shard with so many domains.

    `server_second`: what `measure_idle_server` returned. `typical`: selects among the rounds. Other work on the machine
    only makes calls slower, so the fastest round is nearest to a machine without it. `pause_seconds`: between groups of
    calls, so that they slow down little else."""
    say(f"calls to a shard with {domains:,} domains")
    clock = Clock()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(_remote_stage(clock))
        load = Load(it.frontier.secret)
        run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", "costs")))
        for call in calls(load.batch(domain, range(_URLS)) for domain in range(domains)):
            await it.frontier.add(run, _TERMS, call)
        workers = []
        for _ in range(_TOGETHER):
            frontier = await ValkeyFrontier.connect(it.address, clock=clock)
            stack.push_async_callback(frontier.close)
            holder = await frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
            stack.push_async_callback(holder.close)
            # The first calls of a worker do more.
            await holder.settle([Settlement(one, Outcome.FETCHED) for one in await holder.lease(limit=1)])
            await frontier.add(run, _TERMS, [load.batch(0, [0])])
            workers.append((frontier, holder))
        await it.at_rest()
        at_once, after_rest = _Rest(0.0, 0.0), _Rest(_REST_SECONDS, server_second)
        rested = _Bench(it, clock, run, workers[:1], domains, after_rest, pause_seconds, _RESTED_SHARE)
        alone = _Bench(it, clock, run, workers[:1], domains, at_once, pause_seconds)
        busy = _Bench(it, clock, run, workers, domains, at_once, pause_seconds)
        heartbeat, flush = await _latencies(workers[0][1])
        next_url = _URLS
        for _ in range(rounds):
            for bench in (rested, alone, busy):
                next_url = await bench.round(next_url)
    shard, worker = (SideCosts(*(bench.costs(side, typical) for bench in (rested, alone, busy))) for side in (0, 1))
    waits = heartbeat - shard.rested.heartbeat - worker.rested.heartbeat - flush
    return Calls(shard, worker, server_second, flush, round(max(0.0, waits), 1))


@asynccontextmanager
async def _remote_stage(clock: Clock) -> AsyncIterator[Stage]:
    """Start a server that is reached by TCP, and is the only one of its cluster: as those of a large cluster are."""
    with disk_folder() as folder, temporary_files_in(folder), cluster(primaries=1, options=OPTIONS) as servers:
        shards = await Shards.connect(servers.address)
        frontier = await ValkeyFrontier.connect(servers.address, clock=clock)
        try:
            yield Stage(servers.address, servers.nodes[0].pid, frontier, shards)
        finally:
            await frontier.close()
            await shards.close()


def measure_idle_server() -> float:
    """Return the CPU microseconds that a server of a cluster uses in a second in which no calls arrive."""
    say(f"{_SERVERS} servers without calls")

    def used(node: Server) -> float:
        facts = node.info("cpu")
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])

    with disk_folder() as folder, temporary_files_in(folder), cluster(primaries=_SERVERS, options=OPTIONS) as servers:
        servers.wait_met()
        before, began = [used(node) for node in servers.nodes], time.perf_counter()
        time.sleep(_IDLE_SECONDS)
        taken = sum(used(node) for node in servers.nodes) - sum(before)
        return round(1e6 * taken / (time.perf_counter() - began) / _SERVERS, 1)


async def _latencies(holder: ValkeyLeaseholder) -> tuple[float, float]:
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


# --- memory -----------------------------------------------------------------------------------------------------------


async def _measure_memory(seen: float) -> tuple[float, float]:
    """Return the bytes of a queued URL, besides those of a seen one, and of a domain. Domains have about as many URLs
    as on the web: short queues are not compressed, long ones are. URLs are as hard to compress as those of the web."""
    say(f"memory of {_FEW_DOMAINS:,} domains")
    async with stage() as it:
        load = Load(it.frontier.secret, article_url)
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


_WEB = WebSpec(hosts=500, pages=200, page_bytes=85_000, out_degree=37, cross_host_share=0.15)
BUSY = Setup(
    workers=1, shards=1, concurrency=64, rate=Rate(hits=100_000, window_seconds=1.0, moderated=False),
    warm_up_seconds=5.0, seconds=15.0, webs=(_WEB,),
)  # fmt: skip
"""A worker that is busy all the time, with pages as large as Common Crawl's."""
RESTED = replace(BUSY, concurrency=6, seconds=30.0, webs=(replace(_WEB, latency_ms=500.0),))
"""A worker that rests between two pages, mostly."""


def busy_page_microseconds(seen: Observed, costs: CallCosts) -> float:
    """Return the CPU microseconds of a page without calls in the worker of a real crawl that is always busy. `costs`:
    of the worker's calls."""
    calls_a_page = seen.calls_a_page
    took = (
        costs.lease_call * calls_a_page.get("lease", 0.0)
        + costs.lease_each
        + costs.settle_call * calls_a_page.get("settle", 0.0)
        + costs.settle_each
        + costs.add_call * calls_a_page.get("add", 0.0)
        + costs.add_domain * seen.domains_a_page
        + costs.add_known * seen.urls_a_page * (1 - seen.new_share)
        + costs.add_new * seen.urls_a_page * seen.new_share
    )
    return _rest_of_page(seen, took)


def rested_page_microseconds(setup: Setup, seen: Observed, costs: Costs) -> float:
    """Return the same for a worker that rests. A call of it costs what it does in the model, where some calls follow a
    rest and others do not; it may have made fewer calls than in the model, with more in each."""
    scenario = msgspec.structs.replace(scenario_of(setup, seen, costs), profile="none")
    without_pages = {"none": PageCosts(setup.webs[0].page_bytes, 0, 0.0, 0.0)}
    outcome = simulate(scenario, msgspec.structs.replace(costs, pages=without_pages))
    real, modelled = (
        sum(calls_a_page[name] for name in ("lease", "add", "settle"))
        for calls_a_page in (seen.calls_a_page, outcome.calls_a_page)
    )
    return _rest_of_page(seen, outcome.page_worker_us * real / modelled)


def _rest_of_page(seen: Observed, took: float) -> float:
    rest = seen.page_worker_us - took
    say(f"a page: {rest:.0f} us, and {took:.0f} us for its calls; {seen.pages_per_second:.0f} a second")
    return round(rest, 1)


def measure() -> Costs:
    """Measure everything, which takes some minutes."""
    found = asyncio.run(measure_calls(_DOMAINS, measure_idle_server()))
    seen, _ = (figure.value for figure in asyncio.run(measure_memory(urls=1_000_000)))
    queued, domain = asyncio.run(_measure_memory(seen))
    costs = Costs(
        **found._asdict(), machine=describe_machine(), date=time.strftime("%Y-%m-%d"), pages={},
        seen_bytes=round(seen, 1), queued_bytes=round(queued, 1), domain_bytes=round(domain, 1),
    )  # fmt: skip
    busy = busy_page_microseconds(observe(BUSY), found.worker.busy)
    rested = rested_page_microseconds(RESTED, observe(RESTED), costs)
    costs.pages["web"] = PageCosts(_WEB.page_bytes, _WEB.out_degree, busy, rested)
    return costs


def describe_machine() -> str:
    """Return the machine in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {python}"
