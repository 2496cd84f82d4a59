"""The simulations of docs/explanation/scale.md, and what follows from them: memory, the course of a crawl, its cost."""

from typing import NamedTuple

import msgspec
import numpy as np

from bench.cluster.costs import Costs
from bench.cluster.domains import course, domain_sizes
from bench.cluster.model import Outcome, Scenario, simulate
from bench.places import ROOT
from bench.progress import say

FIGURES = ROOT / "bench" / "cluster" / "figures.json"
URLS = 1_000_000_000
DOMAINS = 10_000_000
EXPONENT = 0.8
LARGEST = 100_000
"""Most pages of a domain in the crawl with that limit."""
_WORKERS = (50, 100, 200, 300, 400, 600, 800, 1000)
SERIES = {
    "64 shards": Scenario(),
    "64 shards, 256 requests a worker": Scenario(concurrency=256),
    "256 shards": Scenario(shards=256),
    "64 shards, commits wait 200 ms": Scenario(batch_linger_seconds=0.2),
}
"""Clusters whose throughput is simulated with growing numbers of workers."""


class Prices(msgspec.Struct, frozen=True):
    """Prices in dollars."""

    core_hour: float = 0.04
    gigabyte_hour: float = 0.005
    """Of memory."""
    worker_gigabytes: float = 0.3
    """Memory of a worker process."""


class Cost(NamedTuple):
    """Cost of a crawl."""

    core_hours: float
    gigabyte_hours: float
    dollars: float


def sweep(costs: Costs) -> dict[str, list[Outcome]]:
    """Simulate all clusters of SERIES, which takes some minutes."""
    found: dict[str, list[Outcome]] = {}
    for name, scenario in SERIES.items():
        for workers in _WORKERS:
            outcome = simulate(msgspec.structs.replace(scenario, workers=workers), costs)
            say(f"{name}, {workers} workers: {outcome.pages_per_second:,.0f} pages a second")
            found.setdefault(name, []).append(outcome)
    return found


def frontier_bytes(costs: Costs, *, seen: float, queued: float, domains: float) -> float:
    """Return the memory of a frontier in bytes."""
    return costs.seen_bytes * seen + costs.queued_bytes * queued + costs.domain_bytes * domains


def days_until(
    shares: list[float], *, pages_per_second: float, largest: float = np.inf, rate: float = 1.0
) -> list[float]:
    """Return the days after which a crawl of a billion URLs has fetched these shares of its pages. `largest`: most
    pages of a domain. `rate`: requests per second to each domain."""
    sizes = domain_sizes(domains=DOMAINS, urls=URLS, exponent=EXPONENT, largest=largest)
    seconds, fetched, _ = course(sizes, pages_per_second=pages_per_second, gap_seconds=1 / rate)
    return [float(day) for day in np.interp(shares, fetched / fetched[-1], seconds / 86400)]


def cost(outcome: Outcome, costs: Costs, prices: Prices, *, pages: float = URLS) -> Cost:
    """Return the cost of so many pages at the speed of a simulation, with all cores and the memory of a full frontier
    rented for that time."""
    hours = pages / outcome.pages_per_second / 3600
    scenario = outcome.scenario
    memory = frontier_bytes(costs, seen=URLS, queued=URLS, domains=DOMAINS) / 1e9
    core_hours = hours * (scenario.workers + scenario.shards)
    gigabyte_hours = hours * (memory + scenario.workers * prices.worker_gigabytes)
    return Cost(core_hours, gigabyte_hours, core_hours * prices.core_hour + gigabyte_hours * prices.gigabyte_hour)
