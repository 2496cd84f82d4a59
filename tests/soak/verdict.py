"""Whether a soak held: nothing lost, nothing failed, and memory that does not grow with the pages."""

from collections.abc import Sequence
from statistics import linear_regression, median

from tests.scale.sampling import Sample
from tests.soak.run import Soaked

WORKER_BYTES_A_PAGE = 32.0
"""The steepest slope of the worker's memory after the warm-up. A worker that kept as much as one small object of each
page (a URL, a fingerprint in a set) would be above it."""
VALKEY_BYTES_A_PAGE = 64.0
"""The same of Valkey's: the seen-set takes about ten bytes a URL for as long as the crawl is remembered."""
TELLING_PAGES = 100_000
"""In a shorter run the caches are still filling."""
WARM_UP = 1 / 3
"""The share of the pages whose samples do not count."""


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """Those of the last two thirds of the pages."""
    first = samples[-1].figures["pages"] * WARM_UP if samples else 0
    return [sample for sample in samples if sample.figures["pages"] >= first]


def slope(samples: Sequence[Sample], name: str) -> float:
    """By how much a figure grows with each page after the warm-up: the slope of the line of least squares. 0 where
    nothing was fetched meanwhile."""
    late = after_warm_up(samples)
    pages = [sample.figures["pages"] for sample in late]
    return linear_regression(pages, [sample.figures[name] for sample in late]).slope if len(set(pages)) > 1 else 0.0


def faults(soaked: Soaked) -> list[str]:
    """What is wrong with the crawl itself; empty: nothing."""
    summary = soaked.summary
    found = []
    if soaked.exit_code:
        found.append(f"exit code {soaked.exit_code}")
    if soaked.complaints:
        found.append(f"it complained: {soaked.complaints[:500]}")
    if not soaked.records == soaked.urls == soaked.pages:
        found.append(f"{soaked.records:,} records of {soaked.urls:,} pages; the web has {soaked.pages:,}")
    if soaked.failures:
        found.append(f"{len(soaked.failures):,} pages failed, first {soaked.failures[0]}")
    counted = ("failed", "dropped", "retries")
    return found + [f"{name}: {summary[name]}" for name in counted if summary.get(name)]


def growth(soaked: Soaked) -> list[str]:
    """Whose memory grows with the pages; empty: nobody's, or the run was too short to tell."""
    if soaked.pages < TELLING_PAGES:
        return []
    limits = {"worker_memory": WORKER_BYTES_A_PAGE, "valkey_memory": VALKEY_BYTES_A_PAGE}
    slopes = {name: slope(soaked.samples, name) for name in limits}
    return [
        f"the {name.partition('_')[0]}'s memory grows by {slopes[name]:.1f} bytes a page, more than {limit:g}"
        for name, limit in limits.items()
        if slopes[name] > limit
    ]
