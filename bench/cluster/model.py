"""Scenarios and their simulation."""

import math
import random
from collections import Counter
from collections.abc import Callable
from functools import cache

import msgspec

from bench.cluster.costs import Costs, CostsByRest
from bench.cluster.domains import domain_sizes, shard_shares
from bench.cluster.engine import Simulation
from bench.cluster.shard import Kind, Shard, ShardLimits
from bench.cluster.worker import Counts, Worker, WorkerLimits, calls_a_page, popularity
from gossamer.policy.liveness import HEARTBEATS_BEFORE_DEATH

_DEAD_AFTER_SECONDS = 10.0
INTERVALS = {
    Kind.HEARTBEAT: _DEAD_AFTER_SECONDS / HEARTBEATS_BEFORE_DEATH,
    Kind.MAINTAIN: _DEAD_AFTER_SECONDS,
    Kind.CLOCK: 2.0,
    Kind.REPLICAS: 3.0,
}
"""Seconds between two calls of a worker to each shard. The last two are those of `gossamer.policy.server_clock` and
`gossamer.valkey.client`, for a worker that calls the shard all the time."""
_WARM_UP_INTERVAL_SECONDS = 0.5
"""Seconds between two readings of a shard's load in the warm-up."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster and web of a simulation. The defaults are those of docs/explanation/scale.md."""

    workers: int = 1000
    """Worker processes, each with a core."""
    shards: int = 64
    """Shards, each on a server of its own with a core."""
    concurrency: int = 64
    """Requests that a worker has in progress at once."""
    domains: int = 10_000_000
    """Domains that have URLs left, divided evenly among the shards."""
    gap_seconds: float = 1.0
    """Time between two requests to a domain."""
    latency_seconds: float = 0.6
    """Mean time of a request and its response."""
    latency_spread: float = 1.0
    """Standard deviation of that time's logarithm, which is normally distributed. 0: always the mean."""
    latencies: tuple[float, ...] = ()
    """Times of requests, instead of such a distribution."""
    latency_shares: tuple[float, ...] = ()
    """Share of each of these times."""
    profile: str = "web"
    """Kind of page, from the measured costs."""
    links: float = 37.0
    """Links of a page that the worker sends to the frontier."""
    own_share: float = 0.85
    """Share of the links that stay on the domain."""
    new_share: float = 1 / 37
    """Share of the links that are new to the frontier."""
    page_spread: float = 0.5
    """Standard deviation of a page's CPU time, as a share of it."""
    round_trip_seconds: float = 0.0005
    """Network between workers and shards."""
    fsync_seconds: float | None = 0.0001
    """Flush of a shard's log. None: as measured."""
    output_seconds: float = 0.002
    """Time until the records of a batch are on the disk."""
    batch_pages: int = 64
    batch_linger_seconds: float = 0.01
    has_outbox: bool = True
    """Links and settlements wait for others where their shard is busy."""
    size_exponent: float = 0.8
    """Exponent of the power law of the domains' sizes, by which links to other domains choose them."""
    warm_up_seconds: float = 1.5
    seconds: float = 0.5
    """Simulated time after the warm-up, which the results are of."""
    seed: int = 1


class Outcome(msgspec.Struct, kw_only=True):
    """Result of a simulation: steady state after the warm-up."""

    scenario: Scenario
    pages_per_second: float
    worker_cpu: float
    """Mean load of the workers' cores, 0 to 1. More than 1: work that waits is included."""
    shard_cpu: float
    """Mean load of the shards' cores."""
    busiest_shard_cpu: float
    page_worker_us: float
    """CPU microseconds of a page in the workers, calls included."""
    page_shard_us: float
    """CPU microseconds of a page in the shards."""
    lease_ms: dict[str, float]
    """Duration of a lease call: mean, p50, p99."""
    calls_a_page: dict[str, float]
    batch_pages: float
    """Mean size of a batch."""
    in_progress: float
    """Mean number of requests in progress."""
    slot_seconds: float
    """Mean time for which a request has its slot."""


def simulate(scenario: Scenario, costs: Costs) -> Outcome:
    """Run a simulation. The same scenario and costs give the same outcome."""
    simulation, counts = Simulation(), Counts()
    shards, workers = _cluster(simulation, scenario, costs, counts)
    chance = random.Random(scenario.seed)
    for worker in workers:
        simulation.at(chance.random() * 0.1, worker.start)
        _keep_alive(simulation, worker, len(shards), chance, scenario.warm_up_seconds)
    simulation.run(scenario.warm_up_seconds)
    counts.change_in_progress(0, simulation.now)
    counts.reset(simulation.now)
    worker_before = sum(worker.core.used_seconds for worker in workers)
    shards_before = [shard.used_seconds for shard in shards]
    calls: Counter[Kind] = Counter()
    for shard in shards:
        calls.subtract(shard.calls)
    simulation.run(scenario.warm_up_seconds + scenario.seconds)
    counts.change_in_progress(0, simulation.now)
    for shard in shards:
        calls.update(shard.calls)
    worker_seconds = sum(worker.core.used_seconds for worker in workers) - worker_before
    idle_seconds = 1e-6 * costs.server_second * scenario.seconds
    shard_seconds = [
        idle_seconds + shard.used_seconds - before for shard, before in zip(shards, shards_before, strict=True)
    ]
    pages = max(1, counts.pages)
    return Outcome(
        scenario=scenario,
        pages_per_second=counts.pages / scenario.seconds,
        worker_cpu=worker_seconds / scenario.seconds / len(workers),
        shard_cpu=sum(shard_seconds) / scenario.seconds / len(shards),
        busiest_shard_cpu=max(shard_seconds) / scenario.seconds,
        page_worker_us=1e6 * worker_seconds / pages,
        page_shard_us=1e6 * sum(shard_seconds) / pages,
        lease_ms=summary(counts.lease_seconds),
        calls_a_page=calls_a_page(calls, counts.pages),
        batch_pages=counts.pages / max(1, counts.batches),
        in_progress=counts.in_progress_seconds / scenario.seconds,
        slot_seconds=counts.page_seconds / max(1, counts.finished),
    )


def summary(seconds: list[float]) -> dict[str, float]:
    """Return mean, median and 99th percentile of durations, in milliseconds. Empty: there are none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return {"mean": 1000 * sum(ordered) / len(ordered), "p50": 1000 * middle, "p99": 1000 * late}


def _cluster(
    simulation: Simulation, scenario: Scenario, costs: Costs, counts: Counts
) -> tuple[list[Shard], list[Worker]]:
    """Return the shards and workers of a scenario."""
    fsync = 1e-6 * costs.fsync if scenario.fsync_seconds is None else scenario.fsync_seconds
    one_way = scenario.round_trip_seconds / 2
    limits = ShardLimits(scenario.gap_seconds, one_way, fsync, scenario.new_share)
    share, rest = divmod(scenario.domains, scenario.shards)
    shard_costs, worker_costs = CostsByRest(costs.shard), CostsByRest(costs.worker)
    shards = [Shard(simulation, shard_costs, limits, share + (number < rest)) for number in range(scenario.shards)]
    page = costs.pages[scenario.profile]
    worker_limits = WorkerLimits(
        concurrency=scenario.concurrency,
        page_seconds=1e-6 * page.microseconds,
        rested_page_seconds=1e-6 * page.rested,
        page_spread=scenario.page_spread,
        page_bytes=page.page_bytes,
        links=scenario.links,
        own_share=scenario.own_share,
        latency=_latency(scenario),
        output_seconds=scenario.output_seconds,
        batch_pages=scenario.batch_pages,
        batch_linger_seconds=scenario.batch_linger_seconds,
        has_outbox=scenario.has_outbox,
        one_way_seconds=one_way,
    )
    weights = _weights(scenario.domains, scenario.size_exponent, scenario.shards, scenario.seed)
    workers = [
        Worker(
            simulation, shards, worker_limits, worker_costs, counts, weights=weights, seed=scenario.seed * 100_003 + one
        )
        for one in range(scenario.workers)
    ]
    return shards, workers


@cache
def _weights(domains: int, exponent: float, shards: int, seed: int) -> list[float]:
    """Return the cumulative shares of the shards in the links: large domains get more of them."""
    sizes = domain_sizes(domains=domains, urls=100 * domains, exponent=exponent)
    return popularity(shard_shares(sizes, shards=shards, seed=seed))


def _latency(scenario: Scenario) -> Callable[[random.Random], float]:
    """Return the function that draws the time of a request."""
    if scenario.latencies:
        weights = popularity(scenario.latency_shares)
        return lambda chance: chance.choices(scenario.latencies, cum_weights=weights)[0]
    spread = scenario.latency_spread
    if not spread:
        return lambda _: scenario.latency_seconds
    centre = math.log(scenario.latency_seconds) - spread**2 / 2
    return lambda chance: chance.lognormvariate(centre, spread)


def _keep_alive(
    simulation: Simulation, worker: Worker, shards: int, chance: random.Random, warm_up_seconds: float
) -> None:
    """Let a worker make the periodic calls to all shards. In the warm-up, it learns their load more often."""

    def interval(kind: Kind) -> float:
        is_warming_up = kind is Kind.REPLICAS and simulation.now < warm_up_seconds
        return min(INTERVALS[kind], _WARM_UP_INTERVAL_SECONDS) if is_warming_up else INTERVALS[kind]

    def repeat(shard: int, kind: Kind) -> None:
        worker.tell(shard, kind)
        simulation.after(interval(kind) * chance.uniform(0.9, 1.1), repeat, shard, kind)

    for shard in range(shards):
        for kind in INTERVALS:
            simulation.at(chance.random() * interval(kind), repeat, shard, kind)
