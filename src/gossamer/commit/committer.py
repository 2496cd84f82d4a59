"""Commits finished pages in batches: writes the records, adds the outlinks, settles the leases.

The frontier is the store of the requests that wait, divided into shards by domain. A lease is its loan of a request to
this worker. To settle a lease is to report the outcome, after which no worker fetches the page again.

Safe to change: the sizes and waits below, and how links are grouped into calls. Fixed: the order of the three steps,
the unlimited retries, and the names of additions (`_call_id`), because pages would be lost or added twice after a
crash.
"""

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
"""Estimate of the memory that a page without links takes after its records are written. Must stay above 0, and should
not be too low: `CommitLimits.waiting_bytes` would be exceeded."""
LINK_BYTES = 300
"""Estimate of the memory that one link takes besides its characters, in all places that hold it on its way to the
frontier. Too low a value makes a worker exceed its limits of memory, too high a one makes it wait early."""

LinksAddedCallback = Callable[[Collection[int]], None]
"""Called when the frontier has added the outlinks, with the fingerprints that it rejected. Rejected ones are not in the
frontier's seen-set; all others are."""


@dataclass(slots=True)
class FinishedLease:
    """Result of the work on one lease.

    The outlinks are added under the lease's run (one life of a crawl, from its first request to its end) and terms (the
    options that its submission carried).
    """

    settlement: Settlement
    outputs: Sequence[Output] = ()
    batches: list[Batch] = field(default_factory=list)
    """Outlinks."""
    on_links_added: LinksAddedCallback | None = None
    size: int = 0
    """Approximate memory that the result takes, in bytes."""
    on_released: Callable[[], None] | None = None
    """Called once, when that memory is free again, even if the result is discarded."""

    def links_size(self) -> int:
        """Return an upper estimate of the memory in bytes that the result takes after its records are written."""
        size = _PAGE_BYTES
        for batch in self.batches:
            size += sum(LINK_BYTES + len(url) for url in batch.urls)
            size += sum(len(payload or b"") for payload in batch.payloads or ())
        return size

    def release_outputs(self) -> None:
        """Release the outputs, which are durable now or discarded. May be repeated."""
        self.outputs = ()
        on_released, self.on_released = self.on_released, None
        if on_released:
            on_released()


@dataclass(slots=True, eq=False)
class _LinkGroup:
    """Outlinks on one shard, of one spider's pages under the same run and terms. They are added in one call."""

    run: Run
    terms: Terms
    shard: int
    batches: list[Batch]
    page: FinishedLease
    """First of the pages. What the frontier rejects is counted in its settlement."""
    data_epoch: int | None = None
    """Data epoch in which the frontier added the links; None: not yet. It increases when the frontier may have lost
    what it confirmed; the links are then added again."""
    rejected: Collection[int] = frozenset()
    """Fingerprints of links that are not in the frontier's seen-set."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Outlinks:
    """Outlinks of a batch of pages, merged into as few calls to the frontier as possible.

    The caller keeps the pages in memory as long as this object: they are known by `id()`.
    """

    def __init__(
        self,
        pages: Iterable[FinishedLease],
        frontier: Frontier,
        retrier: Retrier,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """`on_failure` is called for each call to a shard that failed."""
        self._on_failure = on_failure
        self._frontier = frontier
        self._retrier = retrier
        self._groups: list[_LinkGroup] = []
        self._groups_of_page: dict[int, list[_LinkGroup]] = {}
        """By the page's id()."""
        for run, terms, some_pages in _group_by_terms(pages):
            self._form_groups(run, terms, some_pages)

    def _form_groups(self, run: Run, terms: Terms, pages: Sequence[FinishedLease]) -> None:
        """Form one group for each shard that these pages link to."""
        shard_of = self._frontier.shard_of
        batches: dict[int, list[Batch]] = {}
        for batch in _merge_batches(pages):
            batches.setdefault(shard_of(batch.domain), []).append(batch)
        groups: dict[int, _LinkGroup] = {}
        for page in pages:
            groups_of_page = self._groups_of_page[id(page)] = []
            for shard in {shard_of(batch.domain) for batch in page.batches}:
                if shard not in groups:
                    groups[shard] = _LinkGroup(run, terms, shard, batches[shard], page)
                groups_of_page.append(groups[shard])
        self._groups += groups.values()

    def add_all(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start one task for each group of links. It ends when the group's shard has answered."""
        return [tasks.create_task(self._add(group)) for group in self._groups]

    def all_added(self, page: FinishedLease) -> bool:
        """Return whether the frontier has decided on all links of this page: queued, known or rejected."""
        return all(group.data_epoch is not None for group in self._groups_of_page.get(id(page), ()))

    async def ensure_added(self, pages: Iterable[FinishedLease]) -> None:
        """Return when the frontier has decided on all links of these pages, and each page's `on_links_added` was
        called.

        May be repeated: links that the frontier has added in its current data epoch are not sent again. Their counts
        are entered in the settlement of a page once.
        """
        for page in pages:
            groups = self._groups_of_page.get(id(page), ())
            for group in groups:
                await self._add(group)
            on_links_added, page.on_links_added = page.on_links_added, None
            if on_links_added:
                if len(groups) == 1:
                    on_links_added(groups[0].rejected)
                else:
                    on_links_added({fingerprint for group in groups for fingerprint in group.rejected})

    async def _add(self, group: _LinkGroup) -> None:
        if group.data_epoch != self._frontier.data_epoch:
            async with group.lock:  # several tasks may need the same group
                await self._retrier.call_frontier(
                    partial(self._add_once, group), shard=group.shard, on_failure=self._on_failure
                )

    async def _add_once(self, group: _LinkGroup) -> None:
        # Read before the call: a loss during the call must make the links be added again.
        data_epoch = self._frontier.data_epoch
        if group.data_epoch == data_epoch:
            return
        added = await self._frontier.add(group.run, group.terms, group.batches)
        if added.rejected:
            group.rejected = {group.batches[batch].fingerprints[position] for batch, position in added.rejected}
        if group.data_epoch is None:  # else the links may be duplicates of this page's own, from the first addition
            _count_rejected(group.page, added)
        group.data_epoch = data_epoch


def _count_rejected(page: FinishedLease, added: AddResult) -> None:
    """Count links that were not added in this page's settlement."""
    drops = Counter(page.settlement.drops)
    drops.update(added.rejected_by_reason)
    drops["duplicate"] += added.duplicates
    page.settlement.drops = +drops or None  # `+` removes the counts of 0


def _group_by_terms(pages: Iterable[FinishedLease]) -> list[tuple[Run, Terms, list[FinishedLease]]]:
    """Group the pages whose links may share a call.

    Run and terms are compared by identity: leases of one submission share these objects. Where they do not, the only
    cost is one more call.
    """
    groups: dict[tuple[int, int, str], tuple[Run, Terms, list[FinishedLease]]] = {}
    for page in pages:
        if page.batches or page.on_links_added:
            lease = page.settlement.lease
            group = groups.setdefault((id(lease.run), id(lease.terms), lease.spider), (lease.run, lease.terms, []))
            group[2].append(page)
    return list(groups.values())


def _merge_batches(pages: Iterable[FinishedLease]) -> list[Batch]:
    """Merge the pages' batches of one spider, domain, priority and depth.

    A URL that several pages link to is sent once; its repeats count as duplicates of the later pages.
    """
    merged: dict[tuple[str, str, int, int], dict[int, str]] = {}  # by the first four fields of Batch
    unmergeable: list[Batch] = []
    for page in pages:
        for number, batch in enumerate(page.batches):
            if batch.unfiltered and not batch.call:
                batch.call = _call_id(page.settlement.lease, number, batch)
            if batch.payloads is not None or batch.unfiltered:
                unmergeable.append(batch)
                continue
            known = merged.setdefault((batch.spider, batch.domain, batch.priority, batch.depth), {})
            expected = len(known) + len(batch.urls)
            known.update(zip(batch.fingerprints, batch.urls, strict=True))
            if len(known) < expected:
                drops = page.settlement.drops = page.settlement.drops or {}
                drops["duplicate"] = drops.get("duplicate", 0) + expected - len(known)
    batches = [Batch(*key, urls=list(known.values()), fingerprints=list(known)) for key, known in merged.items()]
    return batches + unmergeable


def _call_id(lease: Lease, number: int, batch: Batch) -> str:
    """Return the name of the call that adds a page's `number`th batch.

    It must be the same when the page is read again after a crash, so that the frontier, which remembers it for an hour,
    adds the batch once. So it may depend only on the request and the links.
    """
    content = (lease.request_id, number, batch.spider, batch.depth, batch.priority, batch.urls, batch.payloads)
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=16).hexdigest()


_BATCH_WAIT_SECONDS = 0.05
"""Time that pages whose links are added wait for the rest of their batch, so that all are settled in one call. May be
tuned: longer waits save calls and delay settlements. Only with several shards."""


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """Sizes of the committer's batches and queues. All may be tuned: larger ones take memory and save calls."""

    batch_pages: int = 64
    """With `batch_bytes`: largest batch. A larger one repeats more work after a crash."""
    batch_bytes: int = 4 * 1024 * 1024
    linger_seconds: float = 0.01
    """Time that an incomplete batch waits for more pages. Longer: larger batches, later settlements."""
    queue_pages: int = 512
    """With `queue_bytes`: pages that may be queued before `put` waits. Should exceed a batch."""
    queue_bytes: int = 64 * 1024 * 1024
    waiting_bytes: int = 64 * 1024 * 1024
    """Approximate memory for links of written pages that wait for an unreachable shard. When it is used up, the next
    batches keep their slots, and the worker stops until the shard answers."""


_BATCHES_IN_PROGRESS = 2
"""The disk writes of one batch overlap the frontier's round trips of the other. May be changed: 1 is slower, more take
memory."""


class Committer:
    """Commits finished pages so that a crash loses none.

    For each batch: 1. the records are written and durable, 2. the outlinks are added to the frontier, 3. the pages'
    leases are settled. This order must hold: a crash between two steps repeats work and loses none. A step that fails
    is repeated until it succeeds and is never skipped. If the frontier loses its data between 2 and 3, step 2 is
    repeated.

    The queue is bounded by pages and bytes: `put` waits while it is full, so that slow outputs slow down the fetching.
    With several shards, a page waits only for the shards that it and its links live on. Pages that wait for an
    unreachable shard are bounded by bytes; beyond that the next batches wait, too.
    """

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        sink: Sink,
        retrier: Retrier,
        limits: CommitLimits = CommitLimits(),
    ) -> None:
        self._frontier = frontier
        self._holder = holder
        self._sink = sink
        self._retrier = retrier
        self._batch_pages = limits.batch_pages
        self._batch_bytes = limits.batch_bytes
        self._linger_seconds = limits.linger_seconds
        self._queue_pages = limits.queue_pages
        self._queue_bytes = limits.queue_bytes
        self._waiting_bytes = limits.waiting_bytes
        self._waiting_links_bytes = 0
        self.on_committed: Callable[[Sequence[FinishedLease]], None] | None = None
        """Called with the pages of each batch that was settled."""
        self._queue: list[FinishedLease] = []
        self._queued_bytes = 0
        self._in_progress = 0
        """Pages of the batches that are being committed."""
        self._batch_slots = asyncio.Semaphore(_BATCHES_IN_PROGRESS)
        self._not_empty = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._drained = asyncio.Event()
        self._drained.set()
        self._stopped_lingering = False

    @property
    def pending(self) -> int:
        """Number of pages that are not settled yet."""
        return len(self._queue) + self._in_progress

    async def put(self, finished: FinishedLease) -> None:
        """Queue a finished page. Waits while the queue is full."""
        while not self._has_room.is_set():
            await self._has_room.wait()
        self._queue.append(finished)
        self._queued_bytes += finished.size
        self._drained.clear()
        self._not_empty.set()
        if len(self._queue) >= self._batch_pages or self._queued_bytes >= self._batch_bytes:
            self._batch_ready.set()
        if len(self._queue) >= self._queue_pages or self._queued_bytes >= self._queue_bytes:
            self._has_room.clear()

    async def wait_until_drained(self) -> None:
        """Wait until nothing is pending."""
        await self._drained.wait()

    def flush(self) -> None:
        """Commit the queued pages without waiting for more, because no other page is being fetched."""
        if self._queue:
            self._batch_ready.set()

    def stop_lingering(self) -> None:
        """Commit incomplete batches at once from now on."""
        self._stopped_lingering = True
        self._batch_ready.set()

    async def run(self) -> None:
        """Commit until cancelled. Cancel it after `wait_until_drained`."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._not_empty.wait()
                if not self._batch_ready.is_set() and not self._stopped_lingering:
                    await self._linger()
                await self._batch_slots.acquire()
                batch = self._take()
                if batch:
                    group.create_task(self._commit(batch))
                else:
                    self._batch_slots.release()
                del batch  # otherwise its pages would stay in memory until the next batch

    async def _linger(self) -> None:
        # A timer is cheaper than a timeout around the wait, and this happens for every batch.
        timer = asyncio.get_running_loop().call_later(self._linger_seconds, self._batch_ready.set)
        try:
            await self._batch_ready.wait()
        finally:
            timer.cancel()

    def _take(self) -> list[FinishedLease]:
        """Take the next batch from the queue. Empty: the leases of all taken pages were reclaimed."""
        batch: list[FinishedLease] = []
        taken = size = 0
        for finished in self._queue:
            if batch and (len(batch) >= self._batch_pages or size + finished.size > self._batch_bytes):
                break
            taken += 1
            size += finished.size
            if self._holder.holds(finished.settlement.lease):
                batch.append(finished)
            else:  # reclaimed: another worker has the request now, and writes the records
                finished.release_outputs()
        del self._queue[:taken]
        self._queued_bytes -= size
        self._in_progress += len(batch)
        if not self._stopped_lingering:
            self._batch_ready.clear()
        if len(self._queue) >= self._batch_pages or self._queued_bytes >= self._batch_bytes:
            self._batch_ready.set()
        self._update_events()
        return batch

    def _update_events(self) -> None:
        """Set the events that depend on the queue, after pages have left it."""
        if len(self._queue) < self._queue_pages and self._queued_bytes < self._queue_bytes:
            self._has_room.set()
        if not self._queue:
            self._not_empty.clear()
            if not self._in_progress:
                self._drained.set()

    async def _commit(self, batch: list[FinishedLease]) -> None:
        """Carry out the three steps for a batch, and release its slot."""
        try:
            await self._write(batch)
        except BaseException:
            self._batch_slots.release()
            self._mark_settled(batch)
            raise
        if self._frontier.shard_count > 1:
            await self._settle_sharded(batch)
            return
        try:
            await self._settle_on(0, batch, Outlinks(batch, self._frontier, self._retrier))
        finally:
            self._batch_slots.release()

    async def _write(self, batch: Sequence[FinishedLease]) -> None:
        """Step 1: return when the records are durable."""
        try:
            if outputs := [output for finished in batch for output in finished.outputs]:
                await self._retrier.write_output(lambda: self._sink.write(outputs))
        finally:
            for finished in batch:
                finished.release_outputs()

    async def _settle_sharded(self, batch: Sequence[FinishedLease]) -> None:
        """Steps 2 and 3 with several shards. Once a shard has failed, the batch leaves its slot to the next one, while
        `waiting_bytes` allow it, and waits."""
        shard_failed = asyncio.Event()
        outlinks = Outlinks(batch, self._frontier, self._retrier, shard_failed.set)
        settling = asyncio.ensure_future(self._settle_by_shard(batch, outlinks, shard_failed.set))
        failure = asyncio.ensure_future(shard_failed.wait())
        reserved_bytes = 0  # above 0: the slot is released
        try:
            await asyncio.wait((settling, failure), return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                size = sum(finished.links_size() for finished in batch)
                if self._waiting_links_bytes + size <= self._waiting_bytes:
                    reserved_bytes = size
                    self._waiting_links_bytes += size
                    self._batch_slots.release()
            await settling
        finally:
            settling.cancel()
            failure.cancel()
            if reserved_bytes:
                self._waiting_links_bytes -= reserved_bytes
            else:
                self._batch_slots.release()

    async def _settle_by_shard(
        self, batch: Sequence[FinishedLease], outlinks: Outlinks, on_failure: Callable[[], None]
    ) -> None:
        """Add the outlinks, then settle the pages. A page waits only for the shards that it and its links live on."""
        async with asyncio.TaskGroup() as group:
            adding: Collection[asyncio.Task[None]] = outlinks.add_all(group)
            if adding:
                _, adding = await asyncio.wait(adding, timeout=_BATCH_WAIT_SECONDS)
            waiting = list(batch)
            while waiting:
                ready: dict[int, list[FinishedLease]] = {}
                not_ready = []
                for page in waiting:
                    if outlinks.all_added(page):
                        ready.setdefault(page.settlement.lease.shard, []).append(page)
                    else:
                        not_ready.append(page)
                for shard, pages in ready.items():
                    group.create_task(self._settle_on(shard, pages, outlinks, on_failure))
                waiting = not_ready
                if waiting:
                    _, adding = await asyncio.wait(adding, return_when=asyncio.FIRST_COMPLETED)

    async def _settle_on(
        self,
        shard: int,
        pages: Sequence[FinishedLease],
        outlinks: Outlinks,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """Settle pages whose leases are on this shard, after all their links are added."""
        settlements = [page.settlement for page in pages]

        async def settle() -> None:
            while True:
                # Read first: the settlement is refused if the frontier may have lost the links since.
                data_epoch = self._frontier.data_epoch
                await outlinks.ensure_added(pages)
                with contextlib.suppress(FrontierForgot):
                    await self._holder.settle(settlements, data_epoch=data_epoch)
                    return

        try:
            await self._retrier.call_frontier(settle, shard=shard, on_failure=on_failure)
        finally:
            self._mark_settled(pages)
        if self.on_committed:
            self.on_committed(pages)

    def _mark_settled(self, pages: Sequence[FinishedLease]) -> None:
        """Count pages as no longer pending: settled, or given up with an error."""
        self._in_progress -= len(pages)
        self._update_events()
