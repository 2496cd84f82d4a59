"""Takes finished pages in batches through the three steps that make nothing lost."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gossamer.commit.retrier import Retrier
from gossamer.errors import FrontierForgot
from gossamer.frontier.base import AddResult, Frontier, Leaseholder
from gossamer.model.crawl import Run, Terms
from gossamer.model.record import Output
from gossamer.model.request import Batch, Lease, Settlement
from gossamer.sinks.base import Sink

_PAGE_BYTES = 2048
_LINK_BYTES = 300
"""Of one link beside its characters."""

LinksAddedCallback = Callable[[Collection[int]], None]
"""Called once the frontier has answered, with the fingerprints of the outlinks that it rejected: these are not in its
seen-set. All others are."""


@dataclass(slots=True)
class FinishedLease:
    """One lease's end. The outlinks travel under the lease's own run and terms."""

    settlement: Settlement
    outputs: Sequence[Output] = ()
    batches: list[Batch] = field(default_factory=list)
    on_links_added: LinksAddedCallback | None = None
    size: int = 0
    """About how many bytes it keeps in memory."""
    on_released: Callable[[], None] | None = None
    """Told once, when that memory is needed no more, however it ended."""

    def links_size(self) -> int:
        """About how many bytes it keeps in memory once it is written, on the high side."""
        batches = self.batches
        payloads = sum(len(payload or b"") for batch in batches for payload in batch.payloads or ())
        urls = sum(_LINK_BYTES + len(url) for batch in batches for url in batch.urls)
        return _PAGE_BYTES + urls + payloads

    def release_outputs(self) -> None:
        """Its outputs are durable, or it is given up: let go of them. May be repeated."""
        self.outputs = ()
        on_released, self.on_released = self.on_released, None
        if on_released:
            on_released()


@dataclass(slots=True, eq=False)
class _LinkGroup:
    """Links of pages of one spider under one set of terms that live on one shard: they travel in one call."""

    run: Run
    terms: Terms
    shard: int
    batches: list[Batch]
    page: FinishedLease
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
        pages: Iterable[FinishedLease],
        frontier: Frontier,
        retrier: Retrier,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """`on_failure` is called whenever a call to a shard failed."""
        self._on_failure = on_failure
        self._frontier = frontier
        self._retrier = retrier
        self._groups: list[_LinkGroup] = []
        self._groups_of_page: dict[int, list[_LinkGroup]] = {}
        """By the page's id()."""
        for run, terms, group in _group_by_terms(pages):
            by_shard: dict[int, list[Batch]] = {}
            for batch in _merge_batches(group):
                by_shard.setdefault(frontier.shard_of(batch.domain), []).append(batch)
            groups: dict[int, _LinkGroup] = {}
            for page in group:
                mine = self._groups_of_page[id(page)] = []
                for shard in {frontier.shard_of(batch.domain) for batch in page.batches}:
                    if shard not in groups:
                        groups[shard] = _LinkGroup(run, terms, shard, by_shard[shard], page)
                    mine.append(groups[shard])
            self._groups += groups.values()

    def add_all(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Add each group in a task of its own, which ends when the part's shard has answered."""
        return [tasks.create_task(self._add(group)) for group in self._groups]

    def all_added(self, page: FinishedLease) -> bool:
        """Whether all links of this page were queued, known or rejected."""
        return all(group.era is not None for group in self._groups_of_page.get(id(page), ()))

    async def ensure_added(self, pages: Iterable[FinishedLease]) -> None:
        """Return when all links of these pages are queued, known or rejected; each page's `confirmed` has been called
        then.

        May be repeated: outlinks that the frontier has confirmed in its current era are not sent again. What became of
        them is entered in the settlements of their pages, once."""
        for page in pages:
            groups = self._groups_of_page.get(id(page), ())
            for group in groups:
                await self._add(group)
            on_links_added, page.on_links_added = page.on_links_added, None
            if on_links_added:
                on_links_added(
                    groups[0].rejected if len(groups) == 1 else {mark for p in groups for mark in p.rejected}
                )

    async def _add(self, group: _LinkGroup) -> None:
        if group.era != self._frontier.era:
            async with group.lock:
                await self._retrier.call_frontier(
                    partial(self._add_once, group), shard=group.shard, on_failure=self._on_failure
                )

    async def _add_once(self, group: _LinkGroup) -> None:
        era = self._frontier.era
        if group.era == era:
            return
        added = await self._frontier.add(group.run, group.terms, group.batches)
        if added.rejected:
            group.rejected = {group.batches[batch].fingerprints[position] for batch, position in added.rejected}
        if group.era is None:
            _count(group.page, added)
        group.era = era


def _count(page: FinishedLease, added: AddResult) -> None:
    """Enter what was not added in this page's settlement."""
    drops = Counter(page.settlement.drops)
    drops.update(added.rejected_by_reason)
    drops["duplicate"] += added.duplicates
    page.settlement.drops = +drops or None


def _group_by_terms(pages: Iterable[FinishedLease]) -> list[tuple[Run, Terms, list[FinishedLease]]]:
    """Pages that may share a call. Run and terms are told apart by identity: leases of one submission share the
    objects, and where they do not, a call more is all it costs."""
    groups: dict[tuple[int, int, str], tuple[Run, Terms, list[FinishedLease]]] = {}
    for page in pages:
        if page.batches or page.on_links_added:
            lease = page.settlement.lease
            group = groups.setdefault((id(lease.run), id(lease.terms), lease.spider), (lease.run, lease.terms, []))
            group[2].append(page)
    return list(groups.values())


def _merge_batches(pages: Iterable[FinishedLease]) -> list[Batch]:
    """The pages' batches, those of one spider, domain, priority and depth as one.

    A URL that several of the pages link to travels once; its repeats are counted as the later pages' duplicates.
    """
    merged: dict[tuple[str, str, int, int], dict[int, str]] = {}
    apart: list[Batch] = []
    for page in pages:
        for number, batch in enumerate(page.batches):
            if batch.unfiltered and not batch.call:
                batch.call = _call_id(page.settlement.lease, number, batch)
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


def _call_id(lease: Lease, number: int, batch: Batch) -> str:
    """A name for the addition of a page's `number`th batch: a page that is read again after a crash adds it once."""
    content = (lease.request_id, number, batch.spider, batch.depth, batch.priority, batch.urls, batch.payloads)
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).hexdigest()


_BATCH_WAIT_SECONDS = 0.05
"""How long pages whose links are in the frontier wait for the others of their batch, to be settled with them."""


class Committer:
    """Bounded by pages and bytes: `put` waits while there is no room, so slow outputs slow the fetching.

    For each batch: 1. the records are written and durable, 2. the outlinks are in the frontier, 3. the parents are
    settled. A crash between two steps repeats work and loses none. A step that fails is repeated until it succeeds;
    it is never skipped. A frontier that was away between 2 and 3 may have forgotten 2, which is done again then. Two
    batches may be under way, so that one's disk and the other's round trip overlap.

    Where the frontier has several shards, a page waits only for those that it and its links live on. What waits for a
    shard that does not answer is bounded by bytes; beyond that the next batches wait, too.
    """

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        sink: Sink,
        retrier: Retrier,
        *,
        batch_pages: int = 64,
        batch_bytes: int = 4 * 1024 * 1024,
        linger_seconds: float = 0.01,
        queue_pages: int = 512,
        queue_bytes: int = 64 * 1024 * 1024,
        waiting_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """`linger_seconds`: how long an incomplete batch waits for company.

        `queue_pages`, `queue_bytes`: what may wait here; beyond it `put` waits. `waiting_bytes`: about how much the
        links of written pages may take that wait for a shard.
        """
        self._frontier = frontier
        self._holder = holder
        self._sink = sink
        self._retrier = retrier
        self._batch_pages = batch_pages
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._queue_pages = queue_pages
        self._queue_bytes = queue_bytes
        self._waiting_bytes = waiting_bytes
        self._waiting_links_bytes = 0
        self.on_committed: Callable[[Sequence[FinishedLease]], None] | None = None
        """Told of each batch at its end."""
        self._queue: list[FinishedLease] = []
        self._queued_bytes = 0
        self._under_way = 0
        self._slots = asyncio.Semaphore(2)
        self._work = asyncio.Event()
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._drained = asyncio.Event()
        self._drained.set()
        self._closing = False

    @property
    def pending(self) -> int:
        """Pages that are not settled yet."""
        return len(self._queue) + self._under_way

    async def put(self, finished: FinishedLease) -> None:
        """Hand over a finished page; waits while too much waits already."""
        while not self._room.is_set():
            await self._room.wait()
        self._queue.append(finished)
        self._queued_bytes += finished.size
        self._drained.clear()
        self._work.set()
        if len(self._queue) >= self._batch_pages or self._queued_bytes >= self._batch_bytes:
            self._full.set()
        if len(self._queue) >= self._queue_pages or self._queued_bytes >= self._queue_bytes:
            self._room.clear()

    async def wait_until_drained(self) -> None:
        """Wait until nothing is pending."""
        await self._drained.wait()

    def flush(self) -> None:
        """What is here now waits for no more company: nothing else is being fetched."""
        if self._queue:
            self._full.set()

    def stop_lingering(self) -> None:
        """From now on an incomplete batch waits for nobody."""
        self._closing = True
        self._full.set()

    async def run(self) -> None:
        """Commit for ever; cancel it when `drained`."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._work.wait()
                if not self._full.is_set() and not self._closing:
                    await self._linger()
                await self._slots.acquire()
                batch = self._take()
                if batch:
                    group.create_task(self._commit(batch))
                else:
                    self._slots.release()
                del batch  # or it would stay in memory until the next one comes

    async def _linger(self) -> None:
        # A timer of the loop, not a timeout around the wait: this happens for every batch.
        timer = asyncio.get_running_loop().call_later(self._linger_seconds, self._full.set)
        try:
            await self._full.wait()
        finally:
            timer.cancel()

    def _take(self) -> list[FinishedLease]:
        batch: list[FinishedLease] = []
        taken = size = 0
        for finished in self._queue:
            if batch and (len(batch) >= self._batch_pages or size + finished.size > self._batch_bytes):
                break
            taken += 1
            size += finished.size
            if self._holder.holds(finished.settlement.lease):
                batch.append(finished)
            else:  # another worker has it by now
                finished.release_outputs()
        del self._queue[:taken]
        self._queued_bytes -= size
        self._under_way += len(batch)
        if not self._closing:
            self._full.clear()
        if len(self._queue) >= self._batch_pages or self._queued_bytes >= self._batch_bytes:
            self._full.set()
        self._update_events()
        return batch

    def _update_events(self) -> None:
        if len(self._queue) < self._queue_pages and self._queued_bytes < self._queue_bytes:
            self._room.set()
        if not self._queue:
            self._work.clear()
            if not self._under_way:
                self._drained.set()

    async def _commit(self, batch: list[FinishedLease]) -> None:
        try:
            await self._write(batch)
        except BaseException:
            self._slots.release()
            self._finish(batch)
            raise
        if self._frontier.shard_count > 1:
            await self._settle_sharded(batch)
            return
        try:
            await self._settle_on(0, batch, Outlinks(batch, self._frontier, self._retrier))
        finally:
            self._slots.release()

    async def _write(self, batch: Sequence[FinishedLease]) -> None:
        try:
            if outputs := [output for finished in batch for output in finished.outputs]:
                await self._retrier.write_output(lambda: self._sink.write(outputs))
        finally:
            for finished in batch:
                finished.release_outputs()

    async def _settle_sharded(self, batch: Sequence[FinishedLease]) -> None:
        """Settle; what waits for a shard that is away waits beside the next batches, while there is room."""
        failed = asyncio.Event()
        outlinks = Outlinks(batch, self._frontier, self._retrier, failed.set)
        settling = asyncio.ensure_future(self._settle_by_shard(batch, outlinks, failed.set))
        failing = asyncio.ensure_future(failed.wait())
        size = 0
        try:
            await asyncio.wait((settling, failing), return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                size = sum(finished.links_size() for finished in batch)
                if self._waiting_links_bytes + size > self._waiting_bytes:
                    size = 0
            if size:
                self._waiting_links_bytes += size
                self._slots.release()
            await settling
        finally:
            settling.cancel()
            failing.cancel()
            if size:
                self._waiting_links_bytes -= size
            else:
                self._slots.release()

    async def _settle_by_shard(
        self, batch: Sequence[FinishedLease], outlinks: Outlinks, failed: Callable[[], None]
    ) -> None:
        """Add the outlinks, then settle the pages. No page waits for a shard that neither it nor its links live on."""
        async with asyncio.TaskGroup() as group:
            adding: Collection[asyncio.Task[None]] = outlinks.add_all(group)
            if adding:
                _, adding = await asyncio.wait(adding, timeout=_BATCH_WAIT_SECONDS)
            left = list(batch)
            while left:
                ready: dict[int, list[FinishedLease]] = {}
                waiting = []
                for page in left:
                    if outlinks.all_added(page):
                        ready.setdefault(page.settlement.lease.shard, []).append(page)
                    else:
                        waiting.append(page)
                for shard, pages in ready.items():
                    group.create_task(self._settle_on(shard, pages, outlinks, failed))
                left = waiting
                if left:
                    _, adding = await asyncio.wait(adding, return_when=asyncio.FIRST_COMPLETED)

    async def _settle_on(
        self, shard: int, pages: Sequence[FinishedLease], outlinks: Outlinks, failed: Callable[[], None] | None = None
    ) -> None:
        settlements = [page.settlement for page in pages]

        async def settle() -> None:
            while True:
                era = self._frontier.era
                await outlinks.ensure_added(pages)
                with contextlib.suppress(FrontierForgot):
                    await self._holder.settle(settlements, era=era)
                    return

        try:
            await self._retrier.call_frontier(settle, shard=shard, on_failure=failed)
        finally:
            self._finish(pages)
        if self.on_committed:
            self.on_committed(pages)

    def _finish(self, pages: Sequence[FinishedLease]) -> None:
        self._under_way -= len(pages)
        self._update_events()
