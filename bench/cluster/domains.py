"""Sizes of the web's domains, and the course of a crawl that is limited by its rate and by politeness.

Sizes follow a power law of the rank: the domain of rank r has a share of 1 / r**exponent of the URLs, at least one URL.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def domain_sizes(*, domains: int, urls: int, exponent: float, largest: float = np.inf) -> Floats:
    """Return the number of URLs of each domain, the largest first. Their sum is `urls`, unless `largest`, the most URLs
    of a domain that are crawled, cuts some of them."""
    weights = np.arange(1, domains + 1, dtype=np.float64) ** -exponent
    # At least one URL each: the others share what is left.
    sizes = 1.0 + weights * ((urls - domains) / weights.sum())
    return np.minimum(sizes, largest)


def shard_shares(sizes: Floats, *, shards: int, seed: int) -> list[float]:
    """Return the share of the URLs that each shard has, when each domain goes to a shard at random."""
    found = np.random.default_rng(seed).integers(0, shards, len(sizes))
    totals = np.bincount(found, weights=sizes, minlength=shards)
    return [float(total) for total in totals / totals.sum()]


class Course(NamedTuple):
    """Course of a crawl. All arrays have one value for each point in time; the first is the start."""

    seconds: Floats
    fetched: Floats
    """URLs fetched by then."""
    active: Floats
    """Domains that have URLs left."""


def course(sizes: Floats, *, pages_per_second: float, gap_seconds: float) -> Course:
    """Return the course of a crawl of these domains, whose sizes are given in falling order.

    All domains that have URLs left take turns. Each is fetched from at most once in a gap, and all together at most
    `pages_per_second`: first the cluster is the limit, then the politeness towards the few domains that are left.
    """
    rising = sizes[::-1]
    active = np.arange(len(rising), 0, -1, dtype=np.float64)
    steps = np.diff(rising, prepend=0.0)  # URLs that each active domain gives until the next domain is finished
    seconds = np.cumsum(steps * np.maximum(gap_seconds, active / pages_per_second))
    fetched = np.cumsum(steps * active)
    return Course(np.append(0.0, seconds), np.append(0.0, fetched), np.append(len(rising), active - 1))
