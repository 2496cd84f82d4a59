"""The plots of docs/explanation/scale.md."""

from pathlib import Path

import numpy as np

from bench.cluster.charts import Axis, Line, chart
from bench.cluster.costs import Costs
from bench.cluster.domains import course, domain_sizes
from bench.cluster.figures import DOMAINS, EXPONENT, LARGEST, URLS, frontier_bytes
from bench.cluster.model import Outcome
from bench.places import ROOT

IMAGES = ROOT / "docs" / "images"
_POINTS = 300


def draw(figures: dict[str, list[Outcome]], costs: Costs, *, folder: Path = IMAGES) -> list[Path]:
    """Write all plots; returns their paths."""
    first = next(iter(figures.values()))
    pictures = {
        "scale-throughput": _throughput(figures),
        "scale-latency": _latency(first),
        "scale-memory": _memory(costs),
        "scale-course": _course(max(outcome.pages_per_second for outcome in first)),
    }
    paths = []
    for name, picture in pictures.items():
        path = folder / f"{name}.svg"
        path.write_text(picture)
        paths.append(path)
    return paths


def _throughput(figures: dict[str, list[Outcome]]) -> str:
    most = max(outcome.pages_per_second for some in figures.values() for outcome in some)
    lines = [
        Line(name, [(outcome.scenario.workers, outcome.pages_per_second) for outcome in some])
        for name, some in figures.items()
    ]
    return chart(
        "Throughput by number of workers (simulated)",
        Axis("workers, one core each", 0, 1000),
        Axis("pages per second", 0, 1.08 * most),
        lines,
    )


def _latency(outcomes: list[Outcome]) -> str:
    lines = [
        Line(f"lease call, {name}", [(100 * one.shard_cpu, one.lease_ms[key]) for one in outcomes], key == "p99")
        for name, key in (("median", "p50"), ("99th percentile", "p99"))
    ]
    most = max(one.lease_ms["p99"] for one in outcomes)
    return chart(
        "Lease latency by load of the shards (simulated, 64 shards)",
        Axis("mean CPU load of the shards, percent", 0, 100),
        Axis("milliseconds", 0.5, 10.0 ** np.ceil(np.log10(most)), is_logarithmic=True),
        lines,
    )


def _memory(costs: Costs) -> str:
    queued = np.linspace(0, URLS, 21)

    def line(seen: float) -> list[tuple[float, float]]:
        return [
            (some / 1e6, frontier_bytes(costs, seen=max(seen, some), queued=some, domains=min(DOMAINS, some)) / 1e9)
            for some in queued
        ]

    most = frontier_bytes(costs, seen=URLS, queued=URLS, domains=DOMAINS) / 1e9
    return chart(
        "Memory of the whole frontier by queued URLs (measured bytes, extrapolated)",
        Axis("queued URLs, millions", 0, URLS / 1e6),
        Axis("gigabytes, all shards together", 0, 1.08 * most),
        [Line("no other URL was seen", line(0)), Line("a billion URLs were seen", line(URLS))],
    )


def _course(pages_per_second: float) -> str:
    lines = []
    for name, rate, largest in (
        ("1 request/s", 1.0, np.inf),
        ("10 requests/s", 10.0, np.inf),
        (f"1 request/s, at most {LARGEST:,} pages of a domain", 1.0, LARGEST),
    ):
        sizes = domain_sizes(domains=DOMAINS, urls=URLS, exponent=EXPONENT, largest=largest)
        seconds, fetched, _ = course(sizes, pages_per_second=pages_per_second, gap_seconds=1 / rate)
        days = np.geomspace(0.01, seconds[-1] / 86400, _POINTS)
        share = np.interp(days, seconds / 86400, 100 * fetched / URLS)
        lines.append(Line(name, list(zip(days.tolist(), share.tolist(), strict=True))))
    return chart(
        f"Share of a billion URLs by time, at {pages_per_second:,.0f} pages per second",
        Axis("days, logarithmic", 0.01, 100, is_logarithmic=True),
        Axis("percent of the URLs", 0, 100),
        lines,
    )
