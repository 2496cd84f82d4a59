"""The simulations of docs/explanation/scale.md, and what follows from them: memory, the course of a crawl, its cost."""

from collections.abc import Sequence
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
_WORKERS = (100, 250, 500, 750, 1000)
SERIES = {
    "64 shards": (Scenario(), _WORKERS),
    "64 shards, links do not wait": (Scenario(has_outbox=False), (500, 1000)),
    "80 shards": (Scenario(shards=80), (1000,)),
    "256 requests a worker": (Scenario(concurrency=256), (100, 200, 300)),
    "256 shards": (Scenario(shards=256), (250, 500, 1000)),
}
"""Clusters whose throughput is simulated, and their numbers of workers."""


class Prices(msgspec.Struct, frozen=True):
    """Prices in dollars."""

    core_hour: float = 0.04
    gigabyte_hour: float = 0.005
    """Price of a gigabyte of memory for an hour."""
    worker_gigabytes: float = 0.3
    """Memory of a worker process."""


class Cost(NamedTuple):
    """Cost of a crawl."""

    core_hours: float
    gigabyte_hours: float
    dollars: float


def sweep(costs: Costs, names: Sequence[str] = ()) -> None:
    """Simulate the clusters of SERIES of these names (empty: all), which takes minutes, and store each series when it
    is done, beside those that are stored."""
    for name in names or SERIES:
        scenario, numbers = SERIES[name]
        outcomes = []
        for workers in numbers:
            outcomes.append(simulate(msgspec.structs.replace(scenario, workers=workers), costs))
            say(f"{name}, {workers} workers: {outcomes[-1].pages_per_second:,.0f} pages a second")
        stored = {**load(), name: outcomes}
        in_order = {one: stored[one] for one in SERIES if one in stored}
        FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(in_order)) + b"\n")


def load() -> dict[str, list[Outcome]]:
    """Return the simulations that are stored."""
    return msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, list[Outcome]]) if FIGURES.exists() else {}


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
