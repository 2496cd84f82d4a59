"""One worker: leases what it can start, works on it in its slots, commits, and says that it lives."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from gossamer.commit.committer import Committer, FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import FrontierUnavailable, LeaseLost
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import DEATHS, Lease, Outcome, Settlement
from gossamer.policy.timing import is_late
from gossamer.telemetry import logs as names
from gossamer.telemetry.tally import Tally
from gossamer.worker.fetcher import Fetcher
from gossamer.worker.robots import RobotsWaits


class WorkerSlots:
    """Hands leases to waiting slots. `take` and `done` are the slots' side, `room` and `give` the leaser's."""

    def __init__(self, count: int, *, linger_seconds: float = 0.005) -> None:
        """`linger_seconds`: how long the leaser waits for more slots to get free, so that one call leases for many."""
        self.count = count
        self._linger_seconds = linger_seconds
        self._batch_slots = max(1, count // 4)
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._given: deque[Lease] = deque()
        self._freed = asyncio.Event()
        self._freed_enough = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.busy = 0
        """Leases being worked on."""

    @property
    def free(self) -> int:
        """Slots that a lease could start in right now."""
        return max(0, len(self._waiting) - len(self._given))

    @property
    def held(self) -> int:
        """Leases being worked on or about to be."""
        return self.busy + len(self._given)

    async def take(self) -> Lease:
        """The next lease."""
        if self._given:
            self.busy += 1
            return self._given.popleft()
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._freed.set()
        if len(self._waiting) >= self._batch_slots:
            self._freed_enough.set()
        return await future

    def done(self) -> None:
        """The lease taken last by this slot is off its hands."""
        self.busy -= 1
        if not self.held:
            self._idle.set()

    async def wait_for_free(self) -> int:
        """Wait until slots are free; how many."""
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        if self.free < self._batch_slots and self.busy:
            self._freed_enough.clear()
            timer = asyncio.get_running_loop().call_later(self._linger_seconds, self._freed_enough.set)
            await self._freed_enough.wait()
            timer.cancel()
        return self.free

    def give(self, leases: Iterable[Lease]) -> None:
        """Start these as soon as the loop comes round."""
        for lease in leases:
            while self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    # Counted here: until the slot comes round, nobody else would know of this lease.
                    self.busy += 1
                    future.set_result(lease)
                    break
            else:
                self._given.append(lease)
        if self.held:
            self._idle.clear()

    def take_back(self) -> list[Lease]:
        """What was given and not taken."""
        leases = list(self._given)
        self._given.clear()
        if not self.busy:
            self._idle.set()
        return leases

    async def wait_until_idle(self) -> None:
        """Wait until nothing is worked on."""
        await self._idle.wait()


log = logging.getLogger("gossamer.worker")

STUCK_SECONDS = 3.0
"""A worker that was told to stop waits no longer than this for an output or a frontier that takes nothing: a full disk,
a reader of its pipe that has gone to sleep. What is not committed then is given back, to be fetched again."""

_POLL_SECONDS = 0.1
_SUSPECT_DELAY_SECONDS = 1.0
"""Delay of a request on its last chance, while the worker fetches another one of these."""


class Worker:
    """Runs until its crawl is over (where it works for one), or until `stop`.

    SIGKILL at any moment loses nothing: what it holds is reclaimed when its heartbeats are missed.
    """

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        fetcher: Fetcher,
        committer: Committer,
        retrier: Retrier,
        waits: RobotsWaits,
        tally: Tally,
        *,
        crawl: CrawlId | None = None,
        run: int = 0,
        idle_seconds: float = 0.0,
        concurrency: int = 64,
        heartbeat_seconds: float = 10.0,
        drain_seconds: float = 30.0,
    ) -> None:
        """`crawl`, `run`: end when this run is over; None: never. `idle_seconds`: how long it has nothing to do before
        it is over, in which case this worker helps to end it. `drain_seconds`: the longest that `stop` waits for
        requests under way, and again for their commits; what is not done then is given back. Less where waiting is in
        vain: `STUCK_SECONDS`."""
        self._frontier = frontier
        self._holder = holder
        self._fetcher = fetcher
        self._committer = committer
        self._retrier = retrier
        self._waits = waits
        self._tally = tally
        self._crawl = crawl
        self._run = run
        self._idle_seconds = idle_seconds
        self._drain_seconds = drain_seconds
        self._slots = WorkerSlots(concurrency)
        self._session = WorkerSession(frontier, holder, retrier, heartbeat_seconds=heartbeat_seconds)
        self._suspect: Lease | None = None
        """The lease on its last chance that this worker began last."""
        self._stopping = asyncio.Event()
        self._progress = self._session.progress
        committer.on_committed = self._committed

    def stop(self) -> None:
        """Lease nothing more, finish what is under way, give the rest back. May be repeated."""
        if not self._stopping.is_set():
            log.info(names.WORKER_DRAINING)
        self._stopping.set()
        self._progress.set()

    def tally(self) -> Tally:
        """The counters as they stand."""
        self._tally.in_flight = self._slots.busy
        self._tally.committing = self._committer.pending
        self._tally.reclaimed = self._frontier.reclaimed
        self._tally.troubles = self._retrier.troubles
        self._waits.show(self._tally)
        return self._tally

    def _committed(self, batch: Sequence[FinishedLease]) -> None:
        self._progress.set()

    async def run(self) -> None:
        """Work. The holder is closed at the end, whatever the end."""
        log.info("%s %s", names.WORKER_STARTED, self._holder.worker)
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(self._committer.run()),
                    group.create_task(self._session.run()),
                ]
                slots = [group.create_task(self._slot()) for _ in range(self._slots.count)]
                await self._lease_until_over()
                await self._drain()
                for task in slots + background:
                    task.cancel()
        finally:
            await self._holder.close()
            log.info("%s %s", names.WORKER_STOPPED, self._holder.worker)

    # --- leasing ------------------------------------------------------------------------------------------------------

    async def _lease_until_over(self) -> None:
        empty = 0
        while not self._stopping.is_set():
            room = asyncio.ensure_future(self._slots.wait_for_free())
            await self._wait_or_stop(room)
            if self._stopping.is_set():
                break
            self._progress.clear()
            free = self._slots.free
            try:
                leases = await self._holder.lease(limit=free)
            except FrontierUnavailable:
                await self._wait_or_stop(asyncio.ensure_future(self._session.wait_until_reachable()))
                continue
            self._slots.give(await self._postpone_suspects(leases))
            if len(leases) >= free:
                empty = 0
                continue
            empty = 0 if leases else empty + 1
            if not leases and self._is_idle() and await self._is_over():
                return
            at_most = 1.0 if self._crawl and self._is_idle() else 5.0
            await self._session.wait_for_work(at_most_seconds=at_most, empty_leases=empty)

    async def _postpone_suspects(self, leases: list[Lease]) -> list[Lease]:
        """Return the leases to begin: all but those that would be a second request on its last chance in this worker.

        A page that kills its workers makes suspects of all that are fetched beside it. Were they together again, all
        of them would be given up for its third death."""
        begun: list[Lease] = []
        postponed: list[Settlement] = []
        for lease in leases:
            if lease.deaths == DEATHS - 1:
                if self._suspect is not None and self._holder.holds(self._suspect):
                    postponed.append(Settlement(lease, Outcome.POSTPONED, delay_seconds=_SUSPECT_DELAY_SECONDS))
                    continue
                self._suspect = lease
            begun.append(lease)
        if postponed:  # before the suspect begins: what is still leased when it kills this worker dies with it
            try:
                await self._holder.settle(postponed)
            except FrontierUnavailable:
                for settlement in postponed:
                    await self._committer.put(FinishedLease(settlement))
        return begun

    def _is_idle(self) -> bool:
        return not self._slots.held and not self._committer.pending

    async def _is_over(self) -> bool:
        if self._crawl is None:
            return False
        try:
            if self._idle_seconds:
                await self._frontier.finish_idle()
            info = await self._frontier.crawl_info(self._crawl)
        except FrontierUnavailable:
            return False
        return info is None or info.state is not CrawlState.RUNNING or info.run != self._run

    async def _wait_or_stop(self, wait: "asyncio.Future[Any]") -> None:
        """Wait for it, but not beyond `stop`."""
        if wait.done():
            return
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((wait, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (wait, stop):
                task.cancel()
            await asyncio.gather(wait, stop, return_exceptions=True)

    # --- working ------------------------------------------------------------------------------------------------------

    async def _slot(self) -> None:
        slots = self._slots
        while True:
            await self._process(await slots.take())
            if not slots.busy:
                self._committer.flush()

    async def _process(self, lease: Lease) -> None:
        # Apart from the loop, whose variables would hold a finished page until the next one is finished.
        try:
            if not self._holder.holds(lease):
                return
            if is_late(lease.start, lease.spacing_seconds, now=time.monotonic()):
                finished = _returned(lease)
            else:
                finished = await self._fetcher.process(lease)
            await self._committer.put(finished)
        except LeaseLost:
            pass
        finally:
            self._slots.done()

    async def _drain(self) -> None:
        if back := [_returned(lease).settlement for lease in self._slots.take_back()]:
            with contextlib.suppress(FrontierUnavailable):
                await self._holder.settle(back)
        ending = asyncio.ensure_future(self._finish())
        try:
            await self._wait_unless_stuck(ending)
        finally:
            self._tally.abandoned = self._committer.pending
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _wait_unless_stuck(self, ending: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()
        moved = loop.time()
        while not ending.done() and loop.time() - moved < STUCK_SECONDS:
            self._progress.clear()
            await asyncio.wait((ending,), timeout=_POLL_SECONDS)
            waits = self._committer.pending or self._retrier.is_waiting
            if not waits or self._progress.is_set():
                moved = loop.time()

    async def _finish(self) -> None:
        """Until nothing is under way; `drain_seconds` for the requests, and again for their commits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await self._slots.wait_until_idle()
        self._committer.stop_lingering()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await self._committer.wait_until_drained()


def _returned(lease: Lease) -> FinishedLease:
    return FinishedLease(Settlement(lease, Outcome.RETURNED))
