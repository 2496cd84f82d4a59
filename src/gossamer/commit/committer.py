"""Commits finished pages in batches: writes the records, adds the outlinks, settles the leases.

The frontier is the store of the requests that wait, divided into shards by domain. A lease is its loan of a request to
this worker. To settle a lease is to report the outcome, after which no worker fetches the page again.

Fixed: the order of the three steps and the unlimited retries, because pages would be lost after a crash.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from gossamer.commit.outlinks import FinishedLease, Outbox, Outlinks
from gossamer.commit.own_outputs import OwnOutputLimits, OwnOutputs
from gossamer.commit.retrier import Retrier
from gossamer.commit.unique_items import UniqueItems
from gossamer.errors import FrontierForgot, OutputClosed
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.request import Batch, Lease
from gossamer.sinks.base import Sink, SplitSink

_BATCH_WAIT_SECONDS = 0.05
"""Time that pages whose links are added wait for the rest of their batch, so that all are settled in one call. Longer
waits save calls and delay settlements. Only with several shards."""
_SETTLEMENT_SHARE = 0.5
"""Share of the time that links wait on a busy shard for which settlements wait in addition."""


class VisitedPages(Protocol):
    """Page indexes of crawls that are kept up to date."""

    async def enter(self, finished: Sequence[FinishedLease]) -> None:
        """Enter these results in the indexes of their crawls, and take links to pages that those know out of the
        results. May be repeated. Raises SinkError."""

    async def without_known(self, lease: Lease, batches: Sequence[Batch]) -> list[Batch]:
        """Return these links of a lease's crawl without those to pages that its index knows. Raises SinkError."""

    async def close(self) -> None:
        """Close the indexes. May be repeated."""


class CommitLimits(msgspec.Struct, frozen=True):
    """Sizes of the committer's batches and queues. Larger ones take memory and save calls."""

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
    own_outputs: OwnOutputLimits = OwnOutputLimits()
    """Bounds of pages that wait for an output of their application alone."""


_CLOSE_SECONDS = 3.0
"""Longest wait for settlements after the reader of an output (such as a pipe) went away. Pages that are not settled by
then are fetched and written again when the crawl is resumed."""
_BATCHES_IN_PROGRESS = 2
"""Batches that are committed at a time (slots): the disk writes of one overlap the frontier's round trips of the other.
1 is slower, more take memory."""


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
        frontier: ValkeyFrontier,
        holder: ValkeyLeaseholder,
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
        self._outbox = Outbox(frontier)
        self._settlements: dict[int, _WaitingSettlement] = {}
        """By shard: pages that wait for others, so that one call settles all."""
        self.own_outputs = (
            OwnOutputs(sink, retrier, limits.own_outputs, self._settle_apart) if isinstance(sink, SplitSink) else None
        )
        """Writes to the sink if some of its outputs belong to single applications. None: none does."""
        self.on_committed: Callable[[Sequence[FinishedLease]], None] | None = None
        """Called with the pages of each batch that was settled."""
        self.unique_items = UniqueItems(frontier, retrier)
        self.visited_pages: VisitedPages | None = None
        """Page indexes. They get the results before the outputs and before the links are added. A batch that is
        repeated after a crash, because it was not settled, finds the ids of its requests there. None: no crawl has
        one."""
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
        self._settled = asyncio.Event()
        """Set when pages are no longer pending; cleared by `wait_for_settlement`."""
        self._stopped_lingering = False
        self._commits = 0
        """Batches in one of the three steps."""
        self._commits_waiting = 0
        """Those of them that wait for the others, because the reader of an output went away."""
        self._commit_changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        """The tasks of `run`."""

    @property
    def pending(self) -> int:
        """Number of pages that are not settled yet."""
        return len(self._queue) + self._in_progress

    async def put(self, finished: FinishedLease) -> None:
        """Queue a finished page. Waits while the queue is full."""
        while not self.put_at_once(finished):
            await self._has_room.wait()

    def put_at_once(self, finished: FinishedLease) -> bool:
        """Queue a finished page, unless the queue is full. Returns whether it is queued."""
        queue = self._queue
        if len(queue) >= self._queue_pages or self._queued_bytes >= self._queue_bytes:
            self._has_room.clear()
            return False
        queue.append(finished)
        self._outbox.expects_more = True
        size = self._queued_bytes = self._queued_bytes + finished.size
        count = len(queue)
        if count == 1:
            self._drained.clear()
            self._not_empty.set()
        if count >= self._batch_pages or size >= self._batch_bytes:
            self._batch_ready.set()
        return True

    async def wait_until_drained(self) -> None:
        """Wait until nothing is pending."""
        await self._drained.wait()

    async def wait_for_settlement(self, *, at_most_seconds: float) -> None:
        """Wait until some of the pending pages are settled."""
        self._settled.clear()
        timer = asyncio.get_running_loop().call_later(at_most_seconds, self._settled.set)
        await self._settled.wait()
        timer.cancel()

    def flush(self) -> None:
        """Commit the queued pages without waiting for more, because no other page is being fetched."""
        if self._queue:
            self._batch_ready.set()
        self._outbox.expects_more = False
        self._end_waits()

    def stop_lingering(self) -> None:
        """Commit incomplete batches at once from now on."""
        self._stopped_lingering = True
        self._batch_ready.set()
        self._outbox.is_stopped = True
        self._end_waits()

    def _end_waits(self) -> None:
        """Send the links and settlements that wait for others."""
        self._outbox.flush()
        for waiting in self._settlements.values():
            waiting.over.set()

    async def run(self) -> None:
        """Commit until cancelled. Cancel it after `wait_until_drained`."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
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
        self._commits += 1
        try:
            written, closed = await self._write(batch)
            await self._settle(written)
            if closed:
                await self._wait_for_other_commits()
                raise closed
        finally:
            self._commits -= 1
            self._commit_changed.set()

    async def _write(self, batch: list[FinishedLease]) -> tuple[list[FinishedLease], OutputClosed | None]:
        """Step 1: return when the records are durable.

        Returns the pages that are written, and an error if the others never will be, because the reader of an output
        went away. Without an error, the others are written and settled apart, by `own_outputs`.
        """
        try:
            await self.unique_items.drop_repeated(batch)
            if (visited := self.visited_pages) is not None:
                await self._retrier.write_output(lambda: visited.enter(batch))
            if self.own_outputs is not None:
                return await self.own_outputs.write(batch, self._tasks.create_task), None
            if outputs := [output for finished in batch for output in finished.outputs]:
                await self._retrier.write_output(lambda: self._sink.write(outputs))
            return batch, None
        except OutputClosed as closed:
            count = _written_leases(batch, closed.taken)
            self._mark_settled(batch[count:])
            return batch[:count], closed
        except BaseException:
            self._batch_slots.release()
            self._mark_settled(batch)
            raise
        finally:
            if self.own_outputs is None:  # which releases them itself
                for finished in batch:
                    finished.release_outputs()

    async def _settle_apart(self, pages: Sequence[FinishedLease]) -> None:
        """Steps 2 and 3 for pages of a batch that holds no slot any more."""
        outlinks = Outlinks(pages, self._frontier, self._retrier, self._outbox)
        if self._frontier.shard_count > 1:
            await self._settle_by_shard(pages, outlinks)
        else:
            await self._settle_on(0, [_Settleable(pages, outlinks)])

    async def _settle(self, batch: list[FinishedLease]) -> None:
        """Steps 2 and 3."""
        if batch and self._frontier.shard_count > 1:
            await self._settle_sharded(batch)
            return
        try:
            if batch:
                outlinks = Outlinks(batch, self._frontier, self._retrier, self._outbox)
                await self._settle_on(0, [_Settleable(batch, outlinks)])
        finally:
            self._batch_slots.release()

    async def _wait_for_other_commits(self) -> None:
        """Wait, before the worker ends because a reader went away, until the other batches that it read are settled:
        the end cancels them, and their pages would be fetched and read again."""
        self._commits_waiting += 1
        self._commit_changed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._commits > self._commits_waiting:
                    self._commit_changed.clear()
                    await self._commit_changed.wait()

    async def _settle_sharded(self, batch: Sequence[FinishedLease]) -> None:
        """Steps 2 and 3 with several shards.

        If no shard is busy or fails, the batch keeps its slot until it is settled. Once its links wait for those of
        other batches, or a shard has failed, the batch releases its slot for the next one, if `waiting_bytes` have room
        for its links; else it keeps the slot, and no links wait any longer.
        """
        delayed = asyncio.Event()
        outlinks = Outlinks(batch, self._frontier, self._retrier, self._outbox, delayed.set)
        settling = asyncio.ensure_future(self._settle_by_shard(batch, outlinks))
        delay = asyncio.ensure_future(delayed.wait())
        reserved_bytes = 0  # above 0: the slot is released
        try:
            await asyncio.wait((settling, delay), return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                size = sum(finished.links_size() for finished in batch)
                if self._waiting_links_bytes + size <= self._waiting_bytes:
                    reserved_bytes = size
                    self._waiting_links_bytes += size
                    self._batch_slots.release()
                else:
                    outlinks.may_wait = False
                    self._end_waits()
            await settling
        finally:
            settling.cancel()
            delay.cancel()
            if reserved_bytes:
                self._waiting_links_bytes -= reserved_bytes
            else:
                self._batch_slots.release()

    async def _settle_by_shard(self, batch: Sequence[FinishedLease], outlinks: Outlinks) -> None:
        """Add the outlinks, then settle the pages. A page waits only for the shards that it and its links live on.

        First all links get a short time to be added, so that most pages are settled together. Then, whenever a shard
        has added its links, the pages that waited only for this are settled.
        """
        async with asyncio.TaskGroup() as group:
            adding: Collection[asyncio.Task[None]] = outlinks.add_all(group)
            if adding:
                _, adding = await asyncio.wait(adding, timeout=_BATCH_WAIT_SECONDS)
            waiting = list(batch)
            while waiting:
                ready_by_shard: dict[int, list[FinishedLease]] = {}
                not_ready = []
                for page in waiting:
                    if outlinks.all_added(page):
                        ready_by_shard.setdefault(page.settlement.lease.shard, []).append(page)
                    else:
                        not_ready.append(page)
                for shard, pages in ready_by_shard.items():
                    group.create_task(self._settle_with_others(shard, _Settleable(pages, outlinks)))
                waiting = not_ready
                if waiting:
                    _, adding = await asyncio.wait(adding, return_when=asyncio.FIRST_COMPLETED)

    async def _settle_with_others(self, shard: int, ready: "_Settleable") -> None:
        """Settle pages whose leases are on this shard. Where it is busy, they wait for others, as links do."""
        waiting = self._settlements.get(shard)
        is_urgent = not ready.outlinks.may_wait or any(page.settlement.lease.is_last for page in ready.pages)
        if waiting is None:
            seconds = 0.0 if is_urgent else _SETTLEMENT_SHARE * self._outbox.wait_seconds(shard)
            if not seconds:
                await self._settle_on(shard, [ready])
                return
            waiting = self._settlements[shard] = _WaitingSettlement()
            waiting.task = asyncio.ensure_future(self._settle_after(seconds, shard, waiting))
        waiting.ready.append(ready)
        if is_urgent:
            waiting.over.set()
        else:
            ready.outlinks.note_delay()
        await waiting.task

    async def _settle_after(self, seconds: float, shard: int, waiting: "_WaitingSettlement") -> None:
        """Settle what has come together after this time, or when the wait is over."""
        timer = asyncio.get_running_loop().call_later(seconds, waiting.over.set)
        try:
            await waiting.over.wait()
        finally:
            timer.cancel()
            del self._settlements[shard]
        await self._settle_on(shard, waiting.ready)

    async def _settle_on(self, shard: int, ready: "Sequence[_Settleable]") -> None:
        """Settle pages whose leases are on this shard, after all their links are added."""
        pages = [page for one in ready for page in one.pages]
        settlements = [page.settlement for page in pages]

        def on_failure() -> None:
            for one in ready:
                one.outlinks.note_delay()

        try:
            while True:
                # Read first: the settlement is refused if the frontier may have lost the links since.
                data_epoch = self._frontier.data_epoch
                for one in ready:
                    await one.outlinks.ensure_added(one.pages)
                settle = partial(self._holder.settle, settlements, data_epoch=data_epoch)
                with contextlib.suppress(FrontierForgot):
                    await self._retrier.call_frontier(settle, shard=shard, on_failure=on_failure)
                    break
        finally:
            self._mark_settled(pages)
        if self.on_committed:
            self.on_committed(pages)

    def _mark_settled(self, pages: Sequence[FinishedLease]) -> None:
        """Count pages as no longer pending: settled, or given up with an error."""
        self._in_progress -= len(pages)
        self._settled.set()
        self._update_events()


class _Settleable(NamedTuple):
    """Pages of one shard whose links are added."""

    pages: Sequence[FinishedLease]
    outlinks: Outlinks
    """Has their links."""


class _WaitingSettlement:
    """Pages of one shard that wait for others, to be settled in one call."""

    def __init__(self) -> None:
        self.ready: list[_Settleable] = []
        self.over = asyncio.Event()
        """Set when they wait no longer."""
        self.task: asyncio.Future[None]
        """Waits, and settles them."""


_SETTLED_WITHIN_SECONDS = 0.01
"""Longest wait of a lease for a commit. A longer one leaves slots free for longer while an output or the frontier is
slow."""
_WAITS_AFTER_EMPTY_LEASE = 16
"""Leases that wait for a commit after one before a commit got nothing. With more, slots of a crawl whose domains change
may be free for some milliseconds more often."""


class LeasesAfterCommits:
    """Decides whether a lease waits for the commit in progress.

    While all domains have as many requests in progress as they may, a lease gets nothing until pages are settled, and
    costs as much as one that gets many. Where requests wait for their time instead, leases do not wait.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._waits_left = 0
        self._is_early = False

    async def before_lease(self) -> None:
        """Wait for the commit in progress, if the next lease would get nothing before it."""
        self._is_early = self._committer.pending > 0
        if self._is_early and self._waits_left:
            self._is_early = False
            self._waits_left -= 1
            await self._committer.wait_for_settlement(at_most_seconds=_SETTLED_WITHIN_SECONDS)

    def after_lease(self, count: int, *, has_later_work: bool) -> None:
        """Record how many requests the lease got, and whether others wait for their time."""
        if has_later_work:
            self._waits_left = 0
        elif self._is_early and not count:
            self._waits_left = _WAITS_AFTER_EMPTY_LEASE


def _written_leases(batch: Sequence[FinishedLease], output_count: int) -> int:
    """Return how many leases at the beginning of a batch have all their outputs among its first `output_count` ones."""
    if not output_count:
        return 0
    left = output_count
    for count, finished in enumerate(batch):
        left -= len(finished.outputs)
        if left < 0:
            return count
    return len(batch)
