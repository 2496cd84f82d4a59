"""Compares the items of a store with those that a crawl must have written."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Result of a run."""

    expected: int
    lost: int
    twice: int
    """Items that are in the store more than once."""
    unknown: int
    """Rows of no item."""
    faults: list[str]
    """Broken promises. Empty: none."""


def judge_items(expected: Collection[str], stored: Sequence[str], refused: int) -> Verdict:
    """Return the verdict. `expected` and `stored`: the URLs of items; `refused`: rows in the files of refused rows."""
    counts = Counter(stored)
    lost = set(expected) - counts.keys()
    unknown = counts.keys() - set(expected)
    twice = [url for url, count in counts.items() if count > 1]
    faults = []
    if lost:
        faults.append(f"{len(lost):,} items are lost, for example {min(lost)}")
    if twice:
        faults.append(f"{len(twice):,} items are there more than once, for example {min(twice)}")
    if unknown:
        faults.append(f"{len(unknown):,} rows are of no item, for example {min(unknown)}")
    if refused:
        faults.append(f"{refused:,} rows were refused")
    return Verdict(len(expected), len(lost), len(twice), len(unknown), faults)
