"""A worker: leases as many requests as it has free slots, fetches them and commits the results.

A lease is a request that the frontier (the cluster's store of requests) has handed to this worker until it is settled:
reported as finished, or given back. Fixed: a lease is settled only after its outputs are durable, which `Committer`
does, so that a kill at any moment loses nothing; and requests that may have killed a worker run one at a time.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.commit.committer import Committer, LeasesAfterCommits
from gossamer.commit.outlinks import FinishedLease, returned
from gossamer.commit.own_outputs import OUTPUT_AWAY, RECORD_TOO_LARGE
from gossamer.commit.worker_session import FrontierAccess, WorkerSession
from gossamer.errors import FrontierUnavailable, LeaseLost
from gossamer.fetch.budget import ByteBudget
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.performance import Counts, Occupancy, Waiting
from gossamer.model.request import MAX_DEATHS, Lease, Outcome, Settlement
from gossamer.policy.lateness import SHORTEST_START_DELAY, is_late
from gossamer.telemetry import logs
from gossamer.telemetry.tally import Tally, WorkerCounts
from gossamer.worker.browser_room import BrowserRoom, BrowserRoomLimits
from gossamer.worker.fetcher import Fetcher
from gossamer.worker.robots import RobotsWaits
from gossamer.worker.stalled_run import StalledRun

log = logging.getLogger("gossamer.worker")

_BATCH_SHARE = 1 / 2
"""Share of the slots that should be free for a call to the frontier. A larger share makes fewer calls, and lets slots
wait for others, at most `linger_seconds`."""


class WorkerSlots:
    """Slots of a worker, each of which works on one lease at a time. Each slot calls `take` and `done`; the worker's
    leasing loop calls `wait_for_free` and `give`."""

    def __init__(self, count: int, *, linger_seconds: float = 0.005) -> None:
        """`linger_seconds`: time to wait for more free slots, so that one call leases for many. A longer time makes
        fewer calls, and leaves free slots idle for longer."""
        self.count = count
        self._loop = asyncio.get_running_loop()
        self._linger_seconds = linger_seconds
        self._batch_slots = max(1, int(count * _BATCH_SHARE))  # free slots that are worth a call to the frontier
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        """Slots without a lease. Cancelled ones stay until `give` meets them; slots are cancelled only at the end."""
        self._given: deque[Lease] = deque()
        """Leases that no slot has taken yet."""
        self._freed = asyncio.Event()  # some slot is free
        self._freed_enough = asyncio.Event()  # `_batch_slots` are free, or the wait for them is over
        self._idle = asyncio.Event()  # no lease is held
        self._idle.set()
        self.busy = 0
        """Number of leases in progress."""
        self._stopped = False

    @property
    def free(self) -> int:
        """Number of slots in which a lease could start now."""
        return max(0, len(self._waiting) - len(self._given))

    @property
    def held(self) -> int:
        """Number of leases in progress, or given and not started."""
        return self.busy + len(self._given)

    def take(self) -> asyncio.Future[Lease]:
        """Return a future of the slot's next lease."""
        future: asyncio.Future[Lease] = self._loop.create_future()
        if self._given:
            self.busy += 1
            future.set_result(self._given.popleft())
            return future
        self._waiting.append(future)
        if (count := len(self._waiting)) == 1:
            self._freed.set()
        if count == self._batch_slots:
            self._freed_enough.set()
        return future

    def done(self) -> None:
        """Record that the slot has finished its lease."""
        self.busy -= 1
        if not self.busy and not self._given:
            self._idle.set()

    async def wait_for_free(self) -> int:
        """Wait until slots are free. Returns their number.

        With fewer than `_batch_slots` free ones, wait a little for more, unless nothing is in progress that could free
        any. Returns at once after `stop_waiting`."""
        while not self.free and not self._stopped:
            self._freed.clear()
            await self._freed.wait()
        if self.free < self._batch_slots and self.busy and not self._stopped:
            self._freed_enough.clear()
            timer = self._loop.call_later(self._linger_seconds, self._freed_enough.set)
            await self._freed_enough.wait()
            timer.cancel()
        return self.free

    def stop_waiting(self) -> None:
        """End `wait_for_free` now and for ever, because no more leases are wanted."""
        self._stopped = True
        self._freed.set()
        self._freed_enough.set()

    def give(self, leases: Iterable[Lease]) -> None:
        """Give these leases to free slots, which start as soon as the event loop reaches them."""
        for lease in leases:
            while self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    # Counted here, because the slot itself counts only once the event loop reaches it.
                    self.busy += 1
                    future.set_result(lease)
                    break
            else:
                self._given.append(lease)
        if self.held:
            self._idle.clear()

    def take_back(self) -> list[Lease]:
        """Return the leases that no slot has taken yet."""
        leases = list(self._given)
        self._given.clear()
        if not self.busy:
            self._idle.set()
        return leases

    async def wait_until_idle(self) -> None:
        """Wait until no lease is in progress."""
        await self._idle.wait()


STUCK_SECONDS = 3.0
"""A stopping worker waits no longer than this for an output or a frontier that accepts nothing: a full disk, or a
stalled reader of a pipe. Pages that are not committed by then are fetched again by another worker."""

_POLL_SECONDS = 0.1
"""Interval at which a stopping worker checks for progress. Must stay well below STUCK_SECONDS."""
_SUSPECT_DELAY_SECONDS = 1.0
"""Delay of a request on its last chance while the worker fetches another such request. A shorter delay hands it out
more often in vain."""
_FETCHING_SHOWN = 3
"""URLs in progress that a worker's statistics name. More make each report larger."""

# Longest wait for announced work before the worker asks again; the shorter one when it has no work and its run may be
# over, so that it ends soon. Shorter waits cost calls of idle workers.
_WAIT_SECONDS = 5.0
_WAIT_FOR_END_SECONDS = 1.0


class WorkerLimits(msgspec.Struct, frozen=True):
    """Size and time limits of a worker."""

    concurrency: int
    """Requests in progress at once."""
    dead_after_seconds: float
    """Time without a heartbeat after which a worker is declared dead."""
    rendered: BrowserRoomLimits
    """Limits of the requests that are to be rendered."""
    drain_seconds: float
    """Longest wait of `stop` for requests in progress, and again for their commits. Leases that are not settled then
    are given back. If an output or the frontier accepts nothing, the wait ends after `STUCK_SECONDS`."""


class WatchedRun(msgspec.Struct, frozen=True):
    """Run (one pass of a crawl) whose end ends the worker."""

    crawl: CrawlId
    number: int
    idle_seconds: float
    """Time that the run must have nothing to do before it is finished. If it is not 0, the worker checks for that."""
    stalled: StalledRun | None = None
    """Gets the state of the run while nothing of it is due."""
    on_rendering: Callable[[], None] | None = None
    """Called while requests of the run wait to be rendered, and the worker has nothing to do."""


class Worker:
    """Works until `stop`, or until the run that it works for is over.

    SIGKILL at any moment loses nothing: the worker's leases are reclaimed after its heartbeats stop.
    """

    def __init__(
        self,
        access: FrontierAccess,
        fetcher: Fetcher,
        committer: Committer,
        waits: RobotsWaits,
        counts: WorkerCounts,
        *,
        limits: WorkerLimits,
        run: WatchedRun | None,
    ) -> None:
        """`run` None: the worker works for its pool until it is stopped."""
        self._frontier = access.frontier
        self._holder = access.holder
        self._retrier = access.retrier
        self._fetcher = fetcher
        self._committer = committer
        self._waits = waits
        self._counts = counts
        self._tally = counts.tally
        self._run = run
        self._drain_seconds = limits.drain_seconds
        self._slots = WorkerSlots(limits.concurrency)
        self._browser_room = BrowserRoom(access.holder, limits.rendered, fetcher.pages_in_browser)
        self._working: list[Lease | None] = [None] * limits.concurrency
        """Lease that each slot works on."""
        self._latest_url = ""
        """URL of the lease that was started last."""
        self._session = WorkerSession(
            access.frontier, access.holder, access.retrier, dead_after_seconds=limits.dead_after_seconds
        )
        self._suspect: Lease | None = None
        """Latest lease that this worker started on its last chance: one more death of a worker gives the request up."""
        self._stopping = asyncio.Event()
        self._progress = self._session.progress
        """Wakes the leasing loop. The session, each commit and `stop` set it; the loop that waits for it clears it."""
        committer.on_committed = self._committed
        if committer.own_outputs is not None:
            committer.own_outputs.on_given_back = self._given_back
            committer.own_outputs.on_refused = self._refused

    def stop(self) -> None:
        """Lease nothing more, finish requests in progress, and give the others back. May be repeated."""
        if not self._stopping.is_set():
            log.info(logs.WORKER_DRAINING)
        self._stopping.set()
        self._slots.stop_waiting()
        self._progress.set()

    @property
    def slots(self) -> int:
        """Number of requests that may be in progress."""
        return self._slots.count

    @property
    def in_flight(self) -> int:
        """Number of requests in progress. May be read in any thread."""
        return self._slots.busy

    @property
    def is_working(self) -> bool:
        """True: a worker that exists has begun. May be read in any thread."""
        return True

    @property
    def is_resting(self) -> bool:
        """True while slots are free and all requests that wait are not due yet. May be read in any thread."""
        return self._slots.busy < self._slots.count and self._holder.has_later_work and not self.is_capped

    @property
    def is_capped(self) -> bool:
        """True while slots are free and requests wait only for those in flight at their sites. May be read in any
        thread."""
        return self._slots.busy < self._slots.count and self._holder.has_capped_work

    @property
    def sites_in_flight(self) -> int:
        """Number of domains with requests in flight. May be read in any thread."""
        return len({lease.domain for lease in self._working.copy() if lease is not None})

    @property
    def committing(self) -> int:
        """Number of finished pages that are not settled. May be read in any thread."""
        return self._committer.pending

    def tally(self) -> Tally:
        """Return the current counters."""
        self._tally.in_flight = self._slots.busy
        self._tally.committing = self._committer.pending
        self._tally.reclaimed = self._frontier.reclaimed
        self._tally.troubles = self._retrier.troubles
        self._tally.fetching = self._fetching()
        self._counts.show()
        self._waits.show(self._tally)
        return self._tally

    def _fetching(self) -> dict[str, float]:
        """Return a few of the URLs that are being fetched, and for how many seconds, the longest first. If there are
        none, return the latest one with 0 seconds."""
        working = sorted((lease.start, lease.url) for lease in self._working if lease is not None)
        if not working:
            return {self._latest_url: 0.0} if self._latest_url else {}
        now = time.monotonic()
        return {url: max(0.0, now - start) for start, url in working[:_FETCHING_SHOWN]}

    def _committed(self, batch: Sequence[FinishedLease]) -> None:
        """Wake the leasing loop, because a commit may have made new requests, or ended the run."""
        self._progress.set()

    def _given_back(self, pages: Sequence[FinishedLease]) -> None:
        """Count fetched pages that go back to the frontier, because their application's own output is away."""
        for page in pages:
            self._uncount(page.settlement)
            self._tally.retry(OUTPUT_AWAY)

    def _refused(self, page: FinishedLease) -> None:
        """Count a page that has failed because no message can hold its record."""
        self._uncount(page.settlement)
        self._tally.fail(RECORD_TOO_LARGE, page.settlement.lease.url)

    def _uncount(self, settlement: Settlement) -> None:
        """Count a page no more as fetched."""
        if settlement.outcome is not Outcome.FETCHED and settlement.reason != RECORD_TOO_LARGE:
            return
        if settlement.lease.spider == ASSET_SPIDER:
            self._tally.assets -= 1
        else:
            self._tally.pages -= 1

    async def run(self) -> None:
        """Work until the end; then close the lease holder, even after an error."""
        log.info("%s %s", logs.WORKER_STARTED, self._holder.worker)
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(self._committer.run()),
                    group.create_task(self._session.run()),
                ]
                slots = [group.create_task(self._slot(number)) for number in range(self._slots.count)]
                await self._lease_until_over()
                await self._drain()
                for task in slots + background:
                    task.cancel()
        finally:
            await self._holder.close()
            log.info("%s %s", logs.WORKER_STOPPED, self._holder.worker)

    # --- leasing ------------------------------------------------------------------------------------------------------

    async def _lease_until_over(self) -> None:
        """Lease requests for free slots until `stop`, or until the run is over."""
        empty_leases = 0  # calls in a row that leased nothing
        commits = LeasesAfterCommits(self._committer)
        while not self._stopping.is_set():
            await self._slots.wait_for_free()
            await commits.before_lease()
            if self._stopping.is_set():
                break
            self._progress.clear()
            free = self._slots.free
            if self._browser_room.is_used:
                self._browser_room.update()
            try:
                leases = await self._holder.lease(limit=free)
            except FrontierUnavailable:
                await self._wait_or_stop(asyncio.ensure_future(self._session.wait_until_reachable()))
                continue
            commits.after_lease(len(leases), has_later_work=self._holder.has_later_work)
            self._slots.give(await self._postpone(leases))
            empty_leases = 0 if leases else empty_leases + 1
            if leases and self._run is not None and self._run.stalled is not None:
                self._run.stalled.on_leases()
            if len(leases) >= free:
                continue  # there may be more
            if not leases and self._is_idle() and await self._is_over():
                return
            at_most = _WAIT_FOR_END_SECONDS if self._run and self._is_idle() else _WAIT_SECONDS
            await self._session.wait_for_work(at_most_seconds=at_most, empty_leases=empty_leases)

    async def _postpone(self, leases: list[Lease]) -> list[Lease]:
        """Return the leases to start, and give the others back to be leased later: requests of applications whose own
        output is away, those for which the browser has no room, and further requests on their last chance while one is
        in progress here.

        A page that kills its workers makes suspects of all requests that are fetched beside it. If suspects were
        fetched together again, all of them would be given up with it at its last kill (MAX_DEATHS).
        """
        started: list[Lease] = []
        leases, postponed = self._browser_room.admit(leases)
        own_outputs = self._committer.own_outputs
        holds_any = own_outputs is not None and own_outputs.is_any_late
        for lease in leases:
            delay = own_outputs.hold_seconds(lease.run.crawl.id.appid) if own_outputs and holds_any else 0.0
            reason = OUTPUT_AWAY if delay else ""
            if not delay and lease.deaths == MAX_DEATHS - 1:
                if self._suspect is not None and self._holder.holds(self._suspect):
                    delay = _SUSPECT_DELAY_SECONDS
                else:
                    self._suspect = lease
            if delay:
                postponed.append(Settlement(lease, Outcome.POSTPONED, reason, delay_seconds=delay))
            else:
                started.append(lease)
        if postponed:
            # Must be settled before the suspect starts: if that kills this worker, every lease that the worker still
            # has counts one more death.
            try:
                await self._holder.settle(postponed)
            except FrontierUnavailable:
                for settlement in postponed:
                    await self._committer.put(FinishedLease(settlement))
        return started

    def _is_idle(self) -> bool:
        """Return whether no lease is in progress, given or waiting for its commit."""
        return not self._slots.held and not self._committer.pending

    async def _is_over(self) -> bool:
        """Return whether the run that this worker works for has ended."""
        run = self._run
        if run is None:
            return False
        try:
            if run.idle_seconds:
                await self._frontier.finish_idle()
            info = await self._frontier.crawl_info(run.crawl)
            if info is None or info.state is not CrawlState.RUNNING or info.run != run.number:
                return True
            if info.rendering.waiting and run.on_rendering is not None:
                run.on_rendering()
            if run.stalled is not None and not self._holder.has_later_work:
                await run.stalled.look(info)
        except FrontierUnavailable:
            pass
        return False

    async def _wait_or_stop(self, wait: "asyncio.Future[Any]") -> None:
        """Wait for `wait`, but not after `stop`. Cancels what is still waiting."""
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

    async def _slot(self, number: int) -> None:
        """Work on leases that this worker still holds, one after the other, until cancelled."""
        slots, committer = self._slots, self._committer
        while True:
            lease = await slots.take()
            try:
                if self._holder.holds(lease):
                    start, now = lease.start, time.monotonic()
                    if now - start > SHORTEST_START_DELAY and is_late(start, lease.spacing_seconds, now=now):
                        finished = returned(lease)
                    else:
                        self._working[number] = lease
                        self._latest_url = lease.url
                        finished = await self._fetcher.process(lease)
                    if not committer.put_at_once(finished):
                        await committer.put(finished)
                    del finished  # otherwise the page would stay in memory until the next one is finished
            except LeaseLost:
                pass
            finally:
                self._working[number] = None
                slots.done()
                if lease.render or self._browser_room.is_full:
                    self._browser_room.leave(lease)
            del lease
            if not slots.busy:  # no other result will come soon that could share the commit
                committer.flush()

    async def _drain(self) -> None:
        """Give back leases that were not started, and finish those in progress."""
        if back := [returned(lease).settlement for lease in self._slots.take_back()]:
            with contextlib.suppress(FrontierUnavailable):
                await self._holder.settle(back)
        ending = asyncio.ensure_future(self._finish_leases())
        try:
            await self._wait_unless_stuck(ending)
        finally:
            self._tally.abandoned = self._committer.pending
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _wait_unless_stuck(self, ending: "asyncio.Future[None]") -> None:
        """Wait for `ending`; give up STUCK_SECONDS after the last progress if an output or the frontier is blocked."""
        loop = asyncio.get_running_loop()
        progressed_at = loop.time()
        while not ending.done() and loop.time() - progressed_at < STUCK_SECONDS:
            self._progress.clear()
            await asyncio.wait((ending,), timeout=_POLL_SECONDS)
            # Pages wait for an output or a call waits for the frontier. A commit sets `_progress`.
            blocked = self._committer.pending or self._retrier.is_waiting
            if not blocked or self._progress.is_set():
                progressed_at = loop.time()

    async def _finish_leases(self) -> None:
        """Wait until all is settled: `drain_seconds` for the requests, and again for their commits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await self._slots.wait_until_idle()
        self._committer.stop_lingering()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                await self._committer.wait_until_drained()


_REDIRECTS_FROM, _ERRORS_FROM = 300, 400
"""Status codes of HTTP: fixed."""


class WorkerStages:
    """Reads the stages of a worker, for the recorder's thread.

    The scheduler of a worker is the frontier, which all workers share; its length is not read. Requests in progress are
    in the downloader, and finished pages that wait to be written and settled are in the pipelines.
    """

    def __init__(self, worker: Worker, tally: Tally, budget: ByteBudget, *, site_requests: int) -> None:
        """`site_requests`: requests that may be in flight at one site; 0: not known."""
        self._worker = worker
        self._site_requests = site_requests
        self._tally = tally
        self._budget = budget
        self._loop = asyncio.get_running_loop()

    @property
    def counts(self) -> Counts:
        """Return the counters, from those that the worker keeps anyway."""
        tally = self._tally
        by_status = tally.responses.copy()
        responses = sum(by_status.values())
        unanswered = tally.failed_unanswered + sum(
            count for reason, count in tally.retried.copy().items() if not reason.startswith("http_")
        )
        return Counts(
            requested=responses,
            responses=responses,
            page_responses=tally.pages + sum(tally.failed.copy().values()),
            attempts=responses + unanswered,
            failed=unanswered + sum(count for status, count in by_status.items() if status >= _ERRORS_FROM),
            redirected=sum(count for status, count in by_status.items() if _REDIRECTS_FROM <= status < _ERRORS_FROM),
            response_seconds=tally.response_seconds,
            response_bytes=tally.bytes,
            rendered=tally.browser.pages,
            items=tally.items,
        )

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the event loop call this."""
        self._loop.call_soon_threadsafe(call)

    def occupancy(self) -> Occupancy:
        """Return what is in the stages."""
        in_flight, budget, sites = self._worker.in_flight, self._budget, self._worker.sites_in_flight
        return Occupancy(
            downloader=in_flight,
            transferring=in_flight,
            pipelines=self._worker.committing,
            held_bytes=budget.held_bytes + budget.complete_bytes + budget.retained_bytes,
            is_downloader_full=in_flight >= self._worker.slots,
            is_bytes_full=budget.is_full,
            is_resting=self._worker.is_resting,
            is_capped=self._worker.is_capped,
            sites=sites,
            site_places=sites * self._site_requests,
            browser=self._tally.browser.building + self._tally.browser.waiting,
            is_browser_full=self._tally.browser.waiting > 0,
        )

    def waiting(self) -> Waiting:
        """Return that all requests are the frontier's."""
        return Waiting(pages=self._worker.in_flight)
