"""Comparison of the model with a real cluster on this machine: 8 workers, and 8 shards on a server each.

Hosts that take 0.3 to 1 s keep the workers waiting, so that a machine with few cores can run all processes.
"""

import asyncio
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import NamedTuple

import msgspec

from bench.cluster.costs import Costs, PageCosts
from bench.cluster.measure import (
    Calls,
    describe_machine,
    measure_calls,
    measure_idle_server,
    rested_page_microseconds,
)
from bench.cluster.model import Outcome, simulate
from bench.cluster.real import Observed, Setup, observe, scenario_of
from bench.places import ROOT
from gossamer.fakeweb import WebSpec
from gossamer.model.crawl import Rate

CHECK = ROOT / "bench" / "cluster" / "check.json"
ALLOWED = 0.2
"""Largest deviation of the model."""
_LATENCIES = (0.3, 0.5, 0.7, 1.0)
_SETUP = Setup(
    workers=8,
    shards=8,
    concurrency=6,
    webs=tuple(
        WebSpec(
            hosts=400,
            pages=400,
            page_bytes=12_000,
            out_degree=20,
            latency_ms=1000 * seconds,
            cross_host_share=0.15,
            seed=seed,
        )
        for seed, seconds in enumerate(_LATENCIES)
    ),
    rate=Rate(hits=1, window_seconds=1.0),
    warm_up_seconds=15.0,
    seconds=80.0,
)
_ONE_WORKER = replace(_SETUP, workers=1, shards=1)
_DOMAINS = 256
"""Domains of the shard by which calls are measured. Not fewer, because calls lease 16 at once."""

_PAUSE_SECONDS = 0.1
_ROUNDS = 3
"""Rounds in which calls are measured: as many as fit into the time of the crawl."""


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

    date: str
    load: float
    """Processes that wanted a core, on average over the last minute of the crawl."""
    modelled: dict[str, float]
    measured: dict[str, float]
    costs: Costs
    """Costs that the model used."""


def load() -> Checked:
    """Return the last comparison."""
    return msgspec.json.decode(CHECK.read_bytes(), type=Checked)


def compare(seen: Observed, outcome: Outcome) -> list[Comparison]:
    """Return the figures that are compared."""
    return [
        Comparison("pages per second", outcome.pages_per_second, seen.pages_per_second),
        Comparison("CPU of the workers for a page, us", outcome.page_worker_us, seen.page_worker_us),
        Comparison("CPU of the shards for a page, us", outcome.page_shard_us, seen.page_shard_us),
        Comparison(
            "lease call, median ms",
            outcome.lease_ms["p50"],
            _median(seen.lease_ms),
        ),
        *(
            Comparison(f"calls of {name} for a page", outcome.calls_a_page[name], seen.calls_a_page[name])
            for name in ("lease", "add", "settle")
        ),
    ]


def check() -> tuple[list[Comparison], Costs]:
    """Run the real cluster for a minute, and its model.

    The costs are measured at the same time, with another worker and shard, as the speed of a machine depends on what
    else it does. Only the memory is left out.
    """
    server_second = measure_idle_server()
    with ProcessPoolExecutor(3, get_context("spawn")) as processes:
        cluster, single = processes.submit(observe, _SETUP), processes.submit(observe, _ONE_WORKER)
        found = processes.submit(_measure_meanwhile, server_second).result()
        seen, seen_alone = cluster.result(), single.result()
    costs = Costs(
        **found._asdict(), machine=describe_machine(), date=time.strftime("%Y-%m-%d"), pages={},
        seen_bytes=0.0, queued_bytes=0.0, domain_bytes=0.0,
    )  # fmt: skip
    page, web = rested_page_microseconds(_ONE_WORKER, seen_alone, costs), _SETUP.webs[0]
    costs.pages["check"] = PageCosts(web.page_bytes, web.out_degree, page, page)
    costs.round_trip = _waits(seen_alone, costs)
    return compare(seen, simulate(scenario_of(_SETUP, seen, costs), costs)), costs


def _waits(seen: Observed, costs: Costs) -> float:
    """Return by how many microseconds a lease call of one worker to one shard takes longer than the model says: waits
    for a core and for the disk, which other programs use, too."""
    costs.round_trip = 0.0
    modelled = simulate(scenario_of(_ONE_WORKER, seen, costs), costs).lease_ms["p50"]
    return max(0.0, round(1000 * (_median(seen.lease_ms) - modelled), 1))


def _median(milliseconds: list[float]) -> float:
    return sorted(milliseconds)[len(milliseconds) // 2]


def _measure_meanwhile(server_second: float) -> Calls:
    """Return the costs of calls, measured while the cluster runs."""
    time.sleep(_SETUP.warm_up_seconds)
    return asyncio.run(
        measure_calls(_DOMAINS, server_second, rounds=_ROUNDS, typical=statistics.median, pause_seconds=_PAUSE_SECONDS)
    )
