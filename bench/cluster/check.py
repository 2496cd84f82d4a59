"""Comparison of the model with a real cluster on this machine: 8 workers, and 8 shards on a server each.

Hosts that take half a second keep the workers waiting, so that a machine with few cores can run all processes.
"""

from typing import NamedTuple

import msgspec

from bench.cluster.costs import Costs
from bench.cluster.measure import CHECK_RATE, CHECK_WEB
from bench.cluster.model import Outcome, Scenario, simulate, summary
from bench.cluster.real import Observed, Setup, observe
from bench.places import ROOT

CHECK = ROOT / "bench" / "cluster" / "check.json"
ALLOWED = 0.2
"""Largest deviation of the model."""
_SETUP = Setup(
    workers=8, shards=8, concurrency=12, web=CHECK_WEB, rate=CHECK_RATE, warm_up_seconds=15.0, seconds=40.0
)  # fmt: skip


class Comparison(NamedTuple):
    """One figure of the model and of the real cluster."""

    name: str
    modelled: float
    measured: float

    @property
    def deviation(self) -> float:
        """Share by which the model is too high, or, if negative, too low."""
        return self.modelled / self.measured - 1


class Checked(msgspec.Struct):
    """Result of a comparison, as it is stored."""

    machine: str
    load: float
    """Processes that wanted a core, on average over the last minute of the crawl."""
    modelled: dict[str, float]
    measured: dict[str, float]


def scenario_of(seen: Observed) -> Scenario:
    """Return the scenario of the real cluster. The links that workers sent are taken from it, as a property of the
    web; times and loads are not."""
    outside = max(0.0, seen.domains_a_page - 1) / max(1e-9, seen.urls_a_page)
    return Scenario(
        workers=_SETUP.workers,
        shards=_SETUP.shards,
        concurrency=_SETUP.concurrency,
        domains=_SETUP.web.hosts,
        gap_seconds=_SETUP.rate.window_seconds / _SETUP.rate.hits,
        latency_seconds=_SETUP.web.latency_ms / 1000,
        latency_spread=0.0,
        profile="check",
        links=seen.urls_a_page,
        own_share=1 - outside,
        new_share=seen.new_share,
        round_trip_seconds=0.0,
        fsync_seconds=None,
        warm_up_seconds=_SETUP.warm_up_seconds,
        seconds=_SETUP.seconds,
    )


def compare(seen: Observed, outcome: Outcome) -> list[Comparison]:
    """Return the figures that are compared."""
    return [
        Comparison("pages per second", outcome.pages_per_second, seen.pages_per_second),
        Comparison("CPU of the workers for a page, us", outcome.page_worker_us, seen.page_worker_us),
        Comparison("CPU of the shards for a page, us", outcome.page_shard_us, seen.page_shard_us),
        Comparison(
            "lease call, median ms",
            outcome.lease_ms["p50"],
            summary([milliseconds / 1000 for milliseconds in seen.lease_ms])["p50"],
        ),
        *(
            Comparison(f"calls of {name} for a page", outcome.calls_a_page[name], seen.calls_a_page[name])
            for name in ("lease", "add", "settle")
        ),
    ]


def check(costs: Costs) -> list[Comparison]:
    """Run the real cluster for a minute, and its model."""
    seen = observe(_SETUP)
    return compare(seen, simulate(scenario_of(seen), costs))
