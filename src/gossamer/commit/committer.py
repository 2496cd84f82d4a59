"""Takes finished pages in batches through the three steps that make nothing lost."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence

from gossamer.commit.finished import Finished
from gossamer.commit.outlinks import Outlinks
from gossamer.commit.patience import Patience
from gossamer.errors import FrontierForgot
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.sinks.base import Sink

_COMPANY_SECONDS = 0.05
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
        patience: Patience,
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
        self._patience = patience
        self._batch_pages = batch_pages
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._queue_pages = queue_pages
        self._queue_bytes = queue_bytes
        self._waiting_bytes = waiting_bytes
        self._waiting = 0
        self.committed: Callable[[Sequence[Finished]], None] | None = None
        """Told of each batch at its end."""
        self._queue: list[Finished] = []
        self._bytes = 0
        self._under_way = 0
        self._gate = asyncio.Semaphore(2)
        self._work = asyncio.Event()
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._closing = False

    @property
    def pending(self) -> int:
        """Pages that are not settled yet."""
        return len(self._queue) + self._under_way

    async def put(self, finished: Finished) -> None:
        """Hand over a finished page; waits while too much waits already."""
        while not self._room.is_set():
            await self._room.wait()
        self._queue.append(finished)
        self._bytes += finished.size
        self._quiet.clear()
        self._work.set()
        if len(self._queue) >= self._batch_pages or self._bytes >= self._batch_bytes:
            self._full.set()
        if len(self._queue) >= self._queue_pages or self._bytes >= self._queue_bytes:
            self._room.clear()

    async def drained(self) -> None:
        """Wait until nothing is pending."""
        await self._quiet.wait()

    def flush(self) -> None:
        """What is here now waits for no more company: nothing else is being fetched."""
        if self._queue:
            self._full.set()

    def hurry(self) -> None:
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
                await self._gate.acquire()
                batch = self._take()
                if batch:
                    group.create_task(self._commit(batch))
                else:
                    self._gate.release()
                del batch  # or it would stay in memory until the next one comes

    async def _linger(self) -> None:
        # A timer of the loop, not a timeout around the wait: this happens for every batch.
        timer = asyncio.get_running_loop().call_later(self._linger_seconds, self._full.set)
        try:
            await self._full.wait()
        finally:
            timer.cancel()

    def _take(self) -> list[Finished]:
        batch: list[Finished] = []
        taken = size = 0
        for finished in self._queue:
            if batch and (len(batch) >= self._batch_pages or size + finished.size > self._batch_bytes):
                break
            taken += 1
            size += finished.size
            if self._holder.holds(finished.settlement.lease):
                batch.append(finished)
            else:  # another worker has it by now
                finished.written()
        del self._queue[:taken]
        self._bytes -= size
        self._under_way += len(batch)
        if not self._closing:
            self._full.clear()
        if len(self._queue) >= self._batch_pages or self._bytes >= self._batch_bytes:
            self._full.set()
        self._settle_down()
        return batch

    def _settle_down(self) -> None:
        if len(self._queue) < self._queue_pages and self._bytes < self._queue_bytes:
            self._room.set()
        if not self._queue:
            self._work.clear()
            if not self._under_way:
                self._quiet.set()

    async def _commit(self, batch: list[Finished]) -> None:
        try:
            await self._write(batch)
        except BaseException:
            self._gate.release()
            self._over(batch)
            raise
        if self._frontier.shards > 1:
            await self._settle_apart(batch)
            return
        try:
            await self._settle_on(0, batch, Outlinks(batch, self._frontier, self._patience))
        finally:
            self._gate.release()

    async def _write(self, batch: Sequence[Finished]) -> None:
        try:
            if outputs := [output for finished in batch for output in finished.outputs]:
                await self._patience.output(lambda: self._sink.write(outputs))
        finally:
            for finished in batch:
                finished.written()

    async def _settle_apart(self, batch: Sequence[Finished]) -> None:
        """Settle; what waits for a shard that is away waits beside the next batches, while there is room."""
        failed = asyncio.Event()
        outlinks = Outlinks(batch, self._frontier, self._patience, failed.set)
        settling = asyncio.ensure_future(self._settle_by_shard(batch, outlinks, failed.set))
        failing = asyncio.ensure_future(failed.wait())
        size = 0
        try:
            await asyncio.wait((settling, failing), return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                size = sum(finished.links_size() for finished in batch)
                if self._waiting + size > self._waiting_bytes:
                    size = 0
            if size:
                self._waiting += size
                self._gate.release()
            await settling
        finally:
            settling.cancel()
            failing.cancel()
            if size:
                self._waiting -= size
            else:
                self._gate.release()

    async def _settle_by_shard(self, batch: Sequence[Finished], outlinks: Outlinks, failed: Callable[[], None]) -> None:
        """Add the outlinks, then settle the pages. No page waits for a shard that neither it nor its links live on."""
        async with asyncio.TaskGroup() as group:
            adding: Collection[asyncio.Task[None]] = outlinks.add_all(group)
            if adding:
                _, adding = await asyncio.wait(adding, timeout=_COMPANY_SECONDS)
            left = list(batch)
            while left:
                ready: dict[int, list[Finished]] = {}
                waiting = []
                for page in left:
                    if outlinks.confirmed(page):
                        ready.setdefault(page.settlement.lease.shard, []).append(page)
                    else:
                        waiting.append(page)
                for shard, pages in ready.items():
                    group.create_task(self._settle_on(shard, pages, outlinks, failed))
                left = waiting
                if left:
                    _, adding = await asyncio.wait(adding, return_when=asyncio.FIRST_COMPLETED)

    async def _settle_on(
        self, shard: int, pages: Sequence[Finished], outlinks: Outlinks, failed: Callable[[], None] | None = None
    ) -> None:
        settlements = [page.settlement for page in pages]

        async def settle() -> None:
            while True:
                era = self._frontier.era
                await outlinks.confirm(pages)
                with contextlib.suppress(FrontierForgot):
                    await self._holder.settle(settlements, since=era)
                    return

        try:
            await self._patience.frontier(settle, shard=shard, failed=failed)
        finally:
            self._over(pages)
        if self.committed:
            self.committed(pages)

    def _over(self, pages: Sequence[Finished]) -> None:
        self._under_way -= len(pages)
        self._settle_down()
