"""Brings the outlinks of a batch of pages into the frontier, in as few calls as their terms allow."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec

from gossamer.commit.finished import Finished
from gossamer.commit.patience import Patience
from gossamer.frontier.base import Added, Frontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch, Lease

_NONE: Collection[int] = frozenset()


@dataclass(slots=True)
class _Group:
    """Pages of one spider under one set of terms: their outlinks travel in one call."""

    run: Run
    terms: Terms
    pages: list[Finished]
    batches: list[Batch]
    era: int | None = None
    """The era in which the frontier confirmed them; None: not yet."""


class Outlinks:
    """Of these pages, those of one spider, domain, priority and depth together."""

    def __init__(self, pages: Iterable[Finished]) -> None:
        self._groups = [_Group(run, terms, group, _merged(group)) for run, terms, group in _together(pages)]

    async def add(self, frontier: Frontier, patience: Patience) -> None:
        """Return when all of them are queued, known or rejected; each page's `confirmed` has been called then.

        May be repeated: outlinks that the frontier has confirmed in its current era are not sent again. What became of
        them is entered in the settlements of their pages, once."""
        for group in self._groups:
            era = frontier.era
            if group.era == era:
                continue
            rejected = _NONE
            if group.batches:
                added = await patience.frontier(partial(frontier.add, group.run, group.terms, group.batches))
                if added.rejected:
                    rejected = {group.batches[batch].fingerprints[position] for batch, position in added.rejected}
                if group.era is None:
                    _count(group.pages[0], added)
            group.era = era
            for page in group.pages:
                if page.confirmed:
                    page.confirmed(rejected)


def _count(page: Finished, added: Added) -> None:
    """Enter what was not added in this page's settlement."""
    drops = Counter(page.settlement.drops)
    drops.update(added.dropped)
    drops["duplicate"] += added.duplicates
    page.settlement.drops = +drops or None


def _together(pages: Iterable[Finished]) -> list[tuple[Run, Terms, list[Finished]]]:
    """Pages that may share a call. Run and terms are told apart by identity: leases of one submission share the
    objects, and where they do not, a call more is all it costs."""
    groups: dict[tuple[int, int, str], tuple[Run, Terms, list[Finished]]] = {}
    for page in pages:
        if page.batches or page.confirmed:
            lease = page.settlement.lease
            group = groups.setdefault((id(lease.run), id(lease.terms), lease.spider), (lease.run, lease.terms, []))
            group[2].append(page)
    return list(groups.values())


def _merged(pages: Iterable[Finished]) -> list[Batch]:
    """The pages' batches, those of one spider, domain, priority and depth as one.

    A URL that several of the pages link to travels once; its repeats are counted as the later pages' duplicates.
    """
    merged: dict[tuple[str, str, int, int], dict[int, str]] = {}
    apart: list[Batch] = []
    for page in pages:
        for number, batch in enumerate(page.batches):
            if batch.unfiltered and not batch.call:
                batch.call = _call(page.settlement.lease, number, batch)
            if batch.payloads is not None or batch.unfiltered:
                apart.append(batch)
                continue
            known = merged.setdefault((batch.spider, batch.domain, batch.priority, batch.depth), {})
            expected = len(known) + len(batch.urls)
            known.update(zip(batch.fingerprints, batch.urls, strict=True))
            if len(known) < expected:
                drops = page.settlement.drops = page.settlement.drops or {}
                drops["duplicate"] = drops.get("duplicate", 0) + expected - len(known)
    whole = [Batch(*key, urls=list(known.values()), fingerprints=list(known)) for key, known in merged.items()]
    return whole + apart


def _call(lease: Lease, number: int, batch: Batch) -> str:
    """A name for the addition of a page's `number`th batch: a page that is read again after a crash adds it once."""
    content = (lease.request_id, number, batch.spider, batch.depth, batch.priority, batch.urls, batch.payloads)
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).hexdigest()
