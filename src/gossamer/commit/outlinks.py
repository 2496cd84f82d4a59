"""Brings the outlinks of a batch of pages into the frontier, in as few calls as their terms and shards allow."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gossamer.commit.finished import Finished
from gossamer.commit.patience import Patience
from gossamer.frontier.base import Added, Frontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch, Lease


@dataclass(slots=True, eq=False)
class _Part:
    """Links of pages of one spider under one set of terms that live on one shard: they travel in one call."""

    run: Run
    terms: Terms
    shard: int
    batches: list[Batch]
    page: Finished
    """The first of the pages."""
    era: int | None = None
    """The era in which the frontier confirmed them; None: not yet."""
    rejected: Collection[int] = frozenset()
    """Fingerprints of those that are not in the frontier's seen-set."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Outlinks:
    """The outlinks of these pages: on each shard, those of one spider, domain, priority and depth together."""

    def __init__(
        self,
        pages: Iterable[Finished],
        frontier: Frontier,
        patience: Patience,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """`failed` is called whenever a shard did not answer."""
        self._failed = failed
        self._frontier = frontier
        self._patience = patience
        self._parts: list[_Part] = []
        self._parts_of: dict[int, list[_Part]] = {}
        """By the page's id()."""
        for run, terms, group in _together(pages):
            by_shard: dict[int, list[Batch]] = {}
            for batch in _merged(group):
                by_shard.setdefault(frontier.shard_of(batch.domain), []).append(batch)
            parts: dict[int, _Part] = {}
            for page in group:
                mine = self._parts_of[id(page)] = []
                for shard in {frontier.shard_of(batch.domain) for batch in page.batches}:
                    if shard not in parts:
                        parts[shard] = _Part(run, terms, shard, by_shard[shard], page)
                    mine.append(parts[shard])
            self._parts += parts.values()

    def add_all(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Add each part in a task of its own, which ends when the part's shard has answered."""
        return [tasks.create_task(self._add(part)) for part in self._parts]

    def confirmed(self, page: Finished) -> bool:
        """Whether all links of this page were queued, known or rejected."""
        return all(part.era is not None for part in self._parts_of.get(id(page), ()))

    async def confirm(self, pages: Iterable[Finished]) -> None:
        """Return when all links of these pages are queued, known or rejected; each page's `confirmed` has been called
        then.

        May be repeated: outlinks that the frontier has confirmed in its current era are not sent again. What became of
        them is entered in the settlements of their pages, once."""
        for page in pages:
            parts = self._parts_of.get(id(page), ())
            for part in parts:
                await self._add(part)
            confirmed, page.confirmed = page.confirmed, None
            if confirmed:
                confirmed(parts[0].rejected if len(parts) == 1 else {mark for p in parts for mark in p.rejected})

    async def _add(self, part: _Part) -> None:
        if part.era != self._frontier.era:
            async with part.lock:
                await self._patience.frontier(partial(self._add_once, part), shard=part.shard, failed=self._failed)

    async def _add_once(self, part: _Part) -> None:
        era = self._frontier.era
        if part.era == era:
            return
        added = await self._frontier.add(part.run, part.terms, part.batches)
        if added.rejected:
            part.rejected = {part.batches[batch].fingerprints[position] for batch, position in added.rejected}
        if part.era is None:
            _count(part.page, added)
        part.era = era


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
