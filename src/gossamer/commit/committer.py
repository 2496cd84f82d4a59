"""Takes finished pages in batches through the three steps that make nothing lost."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from gossamer.commit.finished import Finished
from gossamer.commit.outlinks import Outlinks
from gossamer.commit.patience import Patience
from gossamer.errors import FrontierForgot
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.outcome import Settled
from gossamer.sinks.base import Sink


class Committer:
    """Bounded by pages and bytes: `put` waits while there is no room, so slow outputs slow the fetching.

    For each batch: 1. the records are written and durable, 2. the outlinks are in the frontier, 3. the parents are
    settled. A crash between two steps repeats work and loses none. A step that fails is repeated until it succeeds;
    it is never skipped. A frontier that was away between 2 and 3 may have forgotten 2, which is done again then. Two
    batches may be under way, so that one's disk and the other's round trip overlap.
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
    ) -> None:
        """`linger_seconds`: how long an incomplete batch waits for company.

        `queue_pages`, `queue_bytes`: what may wait here; beyond it `put` waits.
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
        self.committed: Callable[[Sequence[Finished], bool], None] | None = None
        """Told of each batch at its end; the flag is True when the frontier no longer knows this worker."""
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

    def discard(self) -> None:
        """Forget what has not begun: its leases belong to others now."""
        for finished in self._queue:
            finished.free()
        self._queue.clear()
        self._bytes = 0
        self._settle_down()

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
        size = 0
        for finished in self._queue:
            if batch and (len(batch) >= self._batch_pages or size + finished.size > self._batch_bytes):
                break
            batch.append(finished)
            size += finished.size
        del self._queue[: len(batch)]
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
        stale = False
        try:
            outputs = [output for finished in batch for output in finished.outputs]
            if outputs:
                await self._patience.output(lambda: self._sink.write(outputs))
            stale = Settled.STALE_WORKER in await self._settle(batch)
        finally:
            for finished in batch:
                finished.free()
            self._under_way -= len(batch)
            self._gate.release()
            self._settle_down()
        if self.committed:
            self.committed(batch, stale)

    async def _settle(self, batch: list[Finished]) -> list[Settled]:
        outlinks = Outlinks(batch)
        settlements = [finished.settlement for finished in batch]

        async def add_and_settle() -> list[Settled]:
            while True:
                era = self._frontier.era
                await outlinks.add(self._frontier, self._patience)
                with contextlib.suppress(FrontierForgot):
                    return await self._holder.settle(settlements, since=era)

        return await self._patience.frontier(add_and_settle)
