"""Whether a soak held: nothing lost, nothing failed, and memory that does not grow with the pages."""

from collections.abc import Sequence
from statistics import linear_regression

from tests.scale.sampling import Sample
from tests.soak.run import Soaked

NOISE_BYTES = 4 * 2**20
"""The most that memory may rise over the pages after the warm-up, by the line of least squares: the allocators' noise.
Memory comes in steps of a MiB, and a run on a busy machine has two of them. Over the 333,000 pages of a full run this
is 12.6 bytes a page, less than the smallest Python object (16 bytes)."""
SEEN_BYTES_A_PAGE = 12.0
"""What Valkey may keep of each page beyond that: the seen-set takes about ten bytes a URL."""
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
    """Return whose memory grows with the pages; empty: neither's, or the run was too short to tell."""
    if soaked.pages < TELLING_PAGES:
        return []
    pages = [sample.figures["pages"] for sample in after_warm_up(soaked.samples)]
    judged = pages[-1] - pages[0]
    found = []
    for name, kept in (("worker_memory", 0.0), ("valkey_memory", SEEN_BYTES_A_PAGE)):
        rise, limit = slope(soaked.samples, name) * judged, NOISE_BYTES + kept * judged
        if rise > limit:
            found.append(
                f"the {name.partition('_')[0]}'s memory grew by {rise / 2**20:.1f} MiB over the last "
                f"{judged:,.0f} pages, more than {limit / 2**20:.1f} MiB"
            )
    return found
