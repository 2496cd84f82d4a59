"""A worker's session with the frontier: heartbeats, reclaims, and waiting for work.

The frontier is the store of the requests that wait, divided into shards. Workers lease requests from it. A worker that
sends no heartbeat to a shard for `dead_after_seconds` (the setting `worker.heartbeat`) counts as dead there, and other
workers reclaim its leases. The session has its own tasks for each shard, so that an unreachable shard delays no other.

Fixed: a living worker must send HEARTBEATS_BEFORE_DEATH heartbeats in `dead_after_seconds` even while its event loop is
blocked, and may declare others dead only when its LivenessJudge allows it. Otherwise pages would be fetched twice.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable

import msgspec

from gossamer.commit.retrier import Retrier
from gossamer.errors import FrontierUnavailable, GossamerError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.pauses import happens_within
from gossamer.policy.liveness import HEARTBEATS_BEFORE_DEATH, LivenessJudge

MAX_STALL_SECONDS = 600.0
"""Time after which an event loop that stands still counts as stuck for good: HeartbeatThread then sends no more
heartbeats, and other workers reclaim the worker's leases. Must exceed the longest blocking call of a spider; a longer
time delays the requests of a worker that is stuck."""
_JITTER = 0.1
"""Share by which intervals vary at random, so that workers do not act at the same moment. HeartbeatThread must not take
the longest interval for a stall."""


class HeartbeatThread:
    """Thread that sends heartbeats for a worker while its event loop is blocked, over a connection of its own.

    The session calls `mark_alive` before each of its own heartbeats. The thread steps in when such a call is half an
    interval late. It checks twice in an interval, so it sends its first heartbeat at most two intervals after the last
    one of the session. That is in time only if HEARTBEATS_BEFORE_DEATH is at least 3. Both factors (of
    `_check_seconds` and `_late_seconds`) may be smaller, at more work, but `_late_seconds` must exceed the interval
    with its jitter.
    """

    def __init__(self, frontier: ValkeyFrontier, holder: ValkeyLeaseholder, *, dead_after_seconds: float) -> None:
        """`dead_after_seconds`: time without a heartbeat after which a worker is declared dead."""
        self._frontier = frontier
        self._holder = holder
        interval = dead_after_seconds / HEARTBEATS_BEFORE_DEATH
        self._check_seconds = interval / 2
        self._late_seconds = 1.5 * interval
        self._alive_at = time.monotonic()
        """Time of the last call of `mark_alive`. Two threads use it: one writes, the other only reads."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gossamer-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; once only."""
        self._alive_at = time.monotonic()
        self._thread.start()

    def mark_alive(self) -> None:
        """Record that the event loop is running."""
        self._alive_at = time.monotonic()

    def stop(self) -> None:
        """Ask the thread to end, and return at once. May be repeated."""
        self._stopped.set()

    def _run(self) -> None:
        """Body of the thread. It uses an event loop of its own, because the worker's is blocked."""
        while not self._stopped.wait(self._check_seconds):
            if self._is_late():
                asyncio.run(self._send_heartbeats())

    def _is_late(self) -> bool:
        return self._late_seconds < time.monotonic() - self._alive_at < MAX_STALL_SECONDS

    async def _send_heartbeats(self) -> None:
        """Send heartbeats to all shards until the event loop runs again."""
        frontier = self._frontier.clone()
        try:
            await asyncio.gather(*(self._send_heartbeats_to(frontier, shard) for shard in range(frontier.shard_count)))
        finally:
            await frontier.close()

    async def _send_heartbeats_to(self, frontier: ValkeyFrontier, shard: int) -> None:
        while self._is_late() and not self._stopped.is_set():
            with contextlib.suppress(GossamerError):  # an unreachable shard declares no worker dead
                await frontier.heartbeat_for(shard, self._holder.session_name(shard))
            await asyncio.sleep(self._check_seconds)


class FrontierAccess(msgspec.Struct, frozen=True):
    """One worker's access to the frontier. Calls name the shard (one of the frontier's servers) that they need."""

    frontier: ValkeyFrontier
    holder: ValkeyLeaseholder
    """Holds the worker's leases."""
    retrier: Retrier
    """Repeats calls while the frontier is unreachable."""


class WorkerSession:
    """Keeps a worker alive at the frontier while it works. Start `run` in a task beside the work."""

    def __init__(
        self, frontier: ValkeyFrontier, holder: ValkeyLeaseholder, retrier: Retrier, *, dead_after_seconds: float
    ) -> None:
        """`dead_after_seconds`: time without a heartbeat after which a worker is declared dead."""
        self._holder = holder
        self._retrier = retrier
        self._heartbeat_thread = HeartbeatThread(frontier, holder, dead_after_seconds=dead_after_seconds)
        self.progress = asyncio.Event()
        """Set when this worker has completed requests or reclaimed leases: there may then be new work, or the run may
        be finished. The work waits for this event and clears it."""
        self._shard_sessions = [
            _ShardSession(
                frontier,
                holder,
                shard,
                dead_after_seconds=dead_after_seconds,
                before_heartbeat=self._heartbeat_thread.mark_alive,
                on_reclaimed=self.progress.set,
            )
            for shard in range(frontier.shard_count)
        ]

    async def run(self) -> None:
        """Send heartbeats and reclaim leases of dead workers until cancelled; once only."""
        self._heartbeat_thread.start()
        try:
            async with asyncio.TaskGroup() as group:
                for session in self._shard_sessions:
                    group.create_task(session.send_heartbeats())
                    group.create_task(session.reclaim_leases())
        finally:
            self._heartbeat_thread.stop()

    async def wait_for_work(self, *, at_most_seconds: float, empty_leases: int) -> None:
        """Wait until the frontier announces work, `progress` is set, or `at_most_seconds` have passed.

        `empty_leases`: number of calls in a row that leased nothing, up to now. After the second one, announced work
        could not be leased again: then this pauses, which prevents a busy loop.
        """
        if self.progress.is_set():
            return
        waits = [
            asyncio.ensure_future(self._holder.wait_for_work(timeout_seconds=at_most_seconds)),
            asyncio.ensure_future(self.progress.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done() and empty_leases > 1 and not self.progress.is_set():
                await happens_within(self.progress, _pause_after_empty(empty_leases))
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def wait_until_reachable(self) -> None:
        """Return when some shard of the frontier answers again, even one that has declared this worker dead."""
        await self._retrier.call_frontier(self._holder.ping)


class _ShardSession:
    """Heartbeats and reclaims of one worker on one shard."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        holder: ValkeyLeaseholder,
        shard: int,
        *,
        dead_after_seconds: float,
        before_heartbeat: Callable[[], None],
        on_reclaimed: Callable[[], None],
    ) -> None:
        """`before_heartbeat` is called before each heartbeat, `on_reclaimed` after leases were reclaimed."""
        self._frontier = frontier
        self._holder = holder
        self._shard = shard
        self._dead_after_seconds = dead_after_seconds
        self._before_heartbeat = before_heartbeat
        self._on_reclaimed = on_reclaimed
        self._judge = LivenessJudge(dead_after_seconds)
        self._death_noticed = asyncio.Event()
        """Set when a heartbeat's reply reports that another worker is dead."""

    async def send_heartbeats(self) -> None:
        """Send heartbeats until cancelled: one per interval, and one when another worker is due to be declared dead.

        The reply to a heartbeat contains the time until the next worker will count as dead. Each living worker
        therefore notices a death within about a second and reclaims the leases; if several do, only the first finds
        any.
        """
        # 0: the first heartbeat is sent soon, because only `dead_after_seconds` after its first reply may this worker
        # declare others dead (see LivenessJudge).
        seconds_left = 0.0
        while True:
            interval = _varied(self._dead_after_seconds / HEARTBEATS_BEFORE_DEATH)
            await asyncio.sleep(min(interval, seconds_left + _reclaim_delay()))
            self._before_heartbeat()
            seconds_left = self._dead_after_seconds  # unless the reply announces an earlier death
            with contextlib.suppress(FrontierUnavailable):
                seconds_left = await self._send_heartbeat()
                if seconds_left <= 0:
                    self._death_noticed.set()

    async def reclaim_leases(self) -> None:
        """Run the shard's maintenance, which reclaims leases, until cancelled: whenever a worker was found dead, and
        about every `dead_after_seconds`. It has a task of its own, because it may take longer than the time between two
        heartbeats."""
        while True:
            await happens_within(self._death_noticed, _varied(self._dead_after_seconds))
            self._death_noticed.clear()  # before the work: a death that is noticed during it causes another round
            with contextlib.suppress(FrontierUnavailable):
                await self._reclaim()

    async def _send_heartbeat(self) -> float:
        """Send one heartbeat. Return the seconds until another worker will count as dead; 0 or less: one does now."""
        loop = asyncio.get_running_loop()
        self._judge.on_call(loop.time())
        try:
            seconds_left = await self._holder.heartbeat(self._shard)
        except FrontierUnavailable:
            self._judge.on_failure()
            raise
        self._judge.on_reply(loop.time())
        return seconds_left

    async def _reclaim(self) -> None:
        """Run the shard's maintenance once."""
        loop = asyncio.get_running_loop()
        if await self._frontier.maintain(
            may_declare_dead=lambda: self._judge.may_declare_dead(loop.time()), shard=self._shard
        ):
            self._on_reclaimed()


def _varied(seconds: float) -> float:
    """Return this time, varied at random by at most _JITTER."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


def _pause_after_empty(empty_leases: int) -> float:
    """Return the pause in seconds after so many calls in a row that leased nothing: 1 ms doubling to 50 ms.

    It may be shorter, at more calls; a longer one delays work that can be leased.
    """
    doublings = min(empty_leases, 6)  # 2**6 ms is beyond the longest pause
    return min(0.001 * 2.0**doublings, 0.05)


def _reclaim_delay() -> float:
    """Return a random delay in seconds, so that workers do not all reclaim at the same moment.

    The upper bound delays reclaims. The lower one must be above 0, or the heartbeat might arrive just before the other
    worker counts as dead.
    """
    return random.uniform(0.05, 1.0)
