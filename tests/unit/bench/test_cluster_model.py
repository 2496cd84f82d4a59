"""The model of a cluster: compared with results of queueing theory, and with what must hold for any queue."""

import random

import msgspec
import numpy as np
import pytest

from bench.cluster import model
from bench.cluster.costs import COOLING_SECONDS, CallCosts, Costs, CostsByRest, PageCosts, SideCosts
from bench.cluster.domains import course, domain_sizes
from bench.cluster.engine import Core, Simulation
from bench.cluster.model import Scenario, simulate
from bench.cluster.shard import Kind
from gossamer.policy import server_clock
from gossamer.valkey import client

SHARD = CallCosts(60, 25, 40, 15, 80, 10, 4, 10, 20, 100, 30, 10)
WORKER = CallCosts(150, 15, 120, 8, 150, 5, 1, 1, 80, 400, 80, 60)
TWICE = CallCosts(*(2 * cost for cost in msgspec.structs.astuple(SHARD)))
COSTS = Costs(
    machine="",
    date="",
    shard=SideCosts(SHARD, SHARD, SHARD),
    server_second=0.0,
    fsync=200.0,
    round_trip=0.0,
    worker=SideCosts(WORKER, WORKER, WORKER),
    pages={"web": PageCosts(10_000, 20, 900.0, 900.0)},
    seen_bytes=11.0,
    queued_bytes=95.0,
    domain_bytes=1000.0,
)
SMALL = Scenario(workers=4, shards=4, domains=10_000, concurrency=16, links=10.0, warm_up_seconds=2.0, seconds=8.0)


def mean_wait(load: float, service: "random.Random | None") -> float:
    """Return the mean wait for a core, in mean service times. `service` None: all work takes the same time."""
    simulation, chance, waits = Simulation(), random.Random(1), []
    core = Core(simulation)

    def arrive() -> None:
        took = service.expovariate(1.0) if service else 1.0
        arrived = simulation.now
        core.work(took, lambda: waits.append(simulation.now - arrived - took))
        simulation.after(chance.expovariate(load), arrive)

    arrive()
    simulation.run(400_000.0)
    return sum(waits) / len(waits)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_core_makes_random_work_wait_as_long_as_the_formula_of_m_m_1_says(load: float) -> None:
    assert mean_wait(load, random.Random(2)) == pytest.approx(load / (1 - load), rel=0.05)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_core_makes_equal_work_wait_as_long_as_the_formula_of_m_d_1_says(load: float) -> None:
    assert mean_wait(load, None) == pytest.approx(load / (1 - load) / 2, rel=0.05)


def test_requests_in_progress_are_the_rate_times_their_duration() -> None:
    """Little's law; a worker with waiting hosts uses all its slots."""
    outcome = simulate(SMALL, COSTS)
    assert outcome.in_progress == pytest.approx(outcome.pages_per_second * outcome.slot_seconds, rel=0.03)
    assert outcome.in_progress == pytest.approx(4 * 16, rel=0.03)


def test_equal_scenarios_have_equal_outcomes() -> None:
    assert simulate(SMALL, COSTS) == simulate(SMALL, COSTS)


def test_no_domain_is_fetched_more_often_than_politeness_allows() -> None:
    few = Scenario(
        workers=4, shards=4, domains=20, concurrency=16, latency_seconds=0.05, latency_spread=0.0, seconds=1.0
    )
    rate = simulate(few, COSTS).pages_per_second
    assert 0.9 * 20 < rate <= 20 * (1 + 1 / few.seconds)


def test_a_cluster_goes_no_faster_than_its_shards() -> None:
    """One shard needs more CPU for a page than one of many workers has for it."""
    outcome = simulate(Scenario(workers=60, shards=1, domains=100_000, warm_up_seconds=1.0, seconds=2.0), COSTS)
    assert 0.95 < outcome.busiest_shard_cpu < 1.02
    assert outcome.pages_per_second < 0.65 * 60 * 64 / 0.6  # what the slots would allow


def test_a_call_costs_more_the_longer_its_process_has_rested_up_to_a_limit() -> None:
    costs = CostsByRest(SideCosts(rested=TWICE, alone=SHARD, busy=SHARD))
    rests = (0.0, COOLING_SECONDS / 2, COOLING_SECONDS, 100 * COOLING_SECONDS)
    assert [costs.after(rest).settle_call for rest in rests] == [40, 60, 80, 80]


def test_the_shards_of_a_slow_crawl_need_more_cpu_for_a_page_because_they_rest_between_calls() -> None:
    shard = SideCosts(rested=TWICE, alone=SHARD, busy=SHARD)
    rested = msgspec.structs.replace(COSTS, shard=shard)
    slow, fast = (msgspec.structs.replace(SMALL, workers=workers, concurrency=1) for workers in (1, 200))
    more = [
        simulate(scenario, rested).page_shard_us / simulate(scenario, COSTS).page_shard_us for scenario in (slow, fast)
    ]
    assert more[0] > 1.8
    assert more[1] < 1.3


def test_a_worker_that_rests_between_pages_needs_the_cpu_of_rested_pages() -> None:
    slow = msgspec.structs.replace(SMALL, workers=1, concurrency=1, links=0.0, page_spread=0.0)
    rested = msgspec.structs.replace(COSTS, pages={"web": PageCosts(10_000, 20, 900.0, 1900.0)})
    more = simulate(slow, rested).page_worker_us - simulate(slow, COSTS).page_worker_us
    assert more == pytest.approx(1000.0, rel=0.1)


def test_a_server_uses_its_own_cpu_besides_that_of_calls() -> None:
    own = msgspec.structs.replace(COSTS, server_second=5000.0)
    assert simulate(SMALL, own).shard_cpu - simulate(SMALL, COSTS).shard_cpu == pytest.approx(0.005)


def test_each_worker_makes_its_periodic_calls_to_each_shard() -> None:
    long = msgspec.structs.replace(SMALL, links=0.0, seconds=60.0)
    outcome = simulate(long, COSTS)
    pages = outcome.pages_per_second * long.seconds
    for kind, seconds in model.INTERVALS.items():
        expected = long.workers * long.shards * long.seconds / seconds
        assert pages * outcome.calls_a_page[kind.name.lower()] == pytest.approx(expected, rel=0.05), kind


def test_the_intervals_of_the_periodic_calls_are_those_of_the_real_worker() -> None:
    assert model.INTERVALS[Kind.CLOCK] == server_clock._COMPARE_SECONDS
    assert model.INTERVALS[Kind.REPLICAS] == client._REPLICAS_KNOWN_SECONDS


def test_the_sizes_of_domains_add_up_to_the_urls() -> None:
    sizes = domain_sizes(domains=1000, urls=100_000, exponent=0.8)
    assert sizes.sum() == pytest.approx(100_000)
    assert sizes[-1] >= 1
    assert (np.diff(sizes) <= 0).all()


def test_a_crawl_takes_as_long_as_its_largest_domain_or_its_throughput_requires() -> None:
    sizes = np.array([1000.0, 10.0, 10.0, 10.0])
    fast = course(sizes, pages_per_second=100.0, gap_seconds=1.0)
    assert (fast.seconds[0], fast.fetched[0], fast.active[0]) == (0.0, 0.0, 4.0)
    assert fast.seconds[-1] == pytest.approx(1000.0)  # one request a second to the largest
    assert fast.fetched[-1] == pytest.approx(1030.0)
    slow = course(sizes, pages_per_second=0.5, gap_seconds=1.0)
    assert slow.seconds[-1] == pytest.approx(1030.0 / 0.5)
