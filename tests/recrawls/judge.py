"""Compares the changes that a service has told with what happened to the pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.fresh.main_text import body_hash
from gossamer.fresh.page import Change, ChangeKind, IndexedPage
from tests.recrawls.site import ChangingSite


@dataclass
class Verdict:
    """Result of a run."""

    changes: int = 0
    visits: int = 0
    most_visits: int = 0
    """Largest number of visits in the time of the budget."""
    faults: list[str] = field(default_factory=list)
    """Broken promises. Empty: none."""


def expected_hash(site: ChangingSite, path: str) -> str:
    """The hash that the last change of a page must have; empty: it is gone."""
    version = site.versions[path]
    return "" if version is None else f"{body_hash(site.body(path, version).encode()) & (1 << 64) - 1:016x}"


def is_told(site: ChangingSite, changes: Iterable[Change]) -> bool:
    """Whether the last change of each page is what the page is now."""
    last = {change.url.removeprefix(site.url): change.new_hash for change in changes}
    return all(last.get(path) == expected_hash(site, path) for path in site.versions)


def judge(
    site: ChangingSite, changes: Sequence[Change], pages: Mapping[str, IndexedPage], written: Mapping[str, int]
) -> Verdict:
    """`pages`: those of the index by path. `written`: how often each page was changed, deleted or restored."""
    verdict = Verdict(changes=len(changes), visits=len(site.visits))
    if len({change.id for change in changes}) < len(changes):
        verdict.faults.append("two changes have one id")
    hashes: dict[str, str] = {}
    counts: dict[str, int] = {}
    for change in changes:
        path = change.url.removeprefix(site.url)
        if path == "/":
            continue
        counts[path] = counts.get(path, 0) + 1
        is_first = path not in hashes
        if is_first != (change.change is ChangeKind.NEW):
            verdict.faults.append(f"{path}: {change.change} as change {counts[path]}")
        if not is_first and hashes[path] == change.new_hash:
            verdict.faults.append(f"{path}: {change.change} was told twice")
        hashes[path] = change.new_hash
    for path in site.versions:
        if hashes.get(path) != expected_hash(site, path):
            verdict.faults.append(f"{path}: its last change was not told")
        if counts.get(path, 0) > 1 + written.get(path, 0):
            verdict.faults.append(f"{path}: {counts[path]} changes, but it changed {written.get(path, 0)} times")
        if path not in pages:
            verdict.faults.append(f"{path}: it is not in the index")
    return verdict


def most_in_window(times: Sequence[float], seconds: float) -> int:
    """Return the largest number of these times within so many seconds."""
    ordered, first, most = sorted(times), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
