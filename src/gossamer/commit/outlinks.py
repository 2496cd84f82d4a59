"""Brings the outlinks of a batch of pages into the frontier, in as few calls as their terms allow."""

import hashlib
from collections.abc import Collection, Iterable
from functools import partial

import msgspec

from gossamer.commit.finished import Finished
from gossamer.commit.patience import Patience
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch, Lease

_NONE: Collection[int] = frozenset()


class Outlinks:
    """Of these pages, those of one spider, domain, priority and depth together."""

    def __init__(self, pages: Iterable[Finished]) -> None:
        self._groups = [(run, terms, group, _merged(group)) for (run, terms), group in _by_terms(pages)]

    async def add(self, frontier: Frontier, patience: Patience) -> None:
        """Return when all of them are queued, known or rejected; each page's `confirmed` has been called then.
        May be repeated."""
        for run, terms, group, batches in self._groups:
            rejected = _NONE
            if batches:
                added = await patience.frontier(partial(frontier.add, run, terms, batches))
                if added.rejected:
                    rejected = {batches[batch].fingerprints[position] for batch, position in added.rejected}
            for page in group:
                if page.confirmed:
                    page.confirmed(rejected)


def _by_terms(pages: Iterable[Finished]) -> list[tuple[tuple[Run, Terms], list[Finished]]]:
    """Pages that may share a call. Told apart by identity: leases of one submission share the objects, and where they
    do not, a call more is all it costs."""
    groups: dict[tuple[int, int], tuple[tuple[Run, Terms], list[Finished]]] = {}
    for page in pages:
        if page.batches or page.confirmed:
            lease = page.settlement.lease
            key = (id(lease.run), id(lease.terms))
            group = groups.get(key)
            if group is None:
                group = groups[key] = ((lease.run, lease.terms), [])
            group[1].append(page)
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
