"""A worker's session with the frontier: heartbeats, reclaims, and waiting for work. Shards are independent."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable

from gossamer.commit.retrier import Retrier
from gossamer.errors import FrontierUnavailable, GossamerError
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.policy.timing import HEARTBEATS_PER_LIFETIME, LivenessJudge

MAX_STALL_SECONDS = 600.0
"""An event loop that has stood still for longer is stuck for good: its worker is left to be declared dead."""


class HeartbeatThread:
    """Thread that sends heartbeats in place of an event loop that is held up, over a connection of its own.

    The session calls `mark_alive` with each of its own heartbeats. The thread steps in when one is half an interval
    overdue, which is later than the jitter of the session's heartbeats and earlier than the worker's death.
    """

    def __init__(self, frontier: Frontier, holder: Leaseholder, *, heartbeat_seconds: float) -> None:
        self._frontier = frontier
        self._holder = holder
        interval = heartbeat_seconds / HEARTBEATS_PER_LIFETIME
        self._check_seconds = interval / 2
        self._late_seconds = 1.5 * interval
        self._alive_at = time.monotonic()
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
        """Ask the thread to end; it does so soon after. May be repeated."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._check_seconds):
            if self._is_late():
                asyncio.run(self._vouch())

    def _is_late(self) -> bool:
        return self._late_seconds < time.monotonic() - self._alive_at < MAX_STALL_SECONDS

    async def _vouch(self) -> None:
        """Send heartbeats until the event loop runs again."""
        frontier = self._frontier.clone()
        try:
            await asyncio.gather(*(self._vouch_on(frontier, shard) for shard in range(frontier.shard_count)))
        finally:
            await frontier.close()

    async def _vouch_on(self, frontier: Frontier, shard: int) -> None:
        while self._is_late() and not self._stopped.is_set():
            with contextlib.suppress(GossamerError):  # an unreachable shard declares no worker dead
                await frontier.heartbeat_for(shard, self._holder.session_name(shard))
            await asyncio.sleep(self._check_seconds)


class WorkerSession:
    """Keeps a worker alive at the frontier while it works. Start `run` in a task beside the work."""

    def __init__(self, frontier: Frontier, holder: Leaseholder, retrier: Retrier, *, heartbeat_seconds: float) -> None:
        """`heartbeat_seconds`: time without a heartbeat after which a worker is declared dead."""
        self._holder = holder
        self._retrier = retrier
        self._heartbeat_thread = HeartbeatThread(frontier, holder, heartbeat_seconds=heartbeat_seconds)
        self.progress = asyncio.Event()
        """Set when this worker got something done or reclaimed leases: there may be new work, or none left."""
        self._shard_sessions = [
            _ShardSession(
                frontier,
                holder,
                shard,
                heartbeat_seconds=heartbeat_seconds,
                on_loop_turn=self._heartbeat_thread.mark_alive,
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
        """Wait until there may be work: the frontier announces some, or `progress` is set.

        `empty_leases`: number of calls in a row that leased nothing.
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
                # Work was announced but could not be leased, again: a short pause keeps this from being a busy loop.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(0.001 * 2 ** min(empty_leases, 6), 0.05)):
                        await self.progress.wait()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def wait_until_reachable(self) -> None:
        """Return when some shard of the frontier answers again, even if it has declared this worker dead."""
        await self._retrier.call_frontier(self._holder.ping)


class _ShardSession:
    """Heartbeats and reclaims of one worker on one shard."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        shard: int,
        *,
        heartbeat_seconds: float,
        on_loop_turn: Callable[[], None],
        on_reclaimed: Callable[[], None],
    ) -> None:
        """`on_loop_turn` is called before each heartbeat; `on_reclaimed` after leases were reclaimed."""
        self._frontier = frontier
        self._holder = holder
        self._shard = shard
        self._heartbeat_seconds = heartbeat_seconds
        self._on_loop_turn = on_loop_turn
        self._on_reclaimed = on_reclaimed
        self._judge = LivenessJudge(heartbeat_seconds)
        self._death_noticed = asyncio.Event()

    async def send_heartbeats(self) -> None:
        """Send a heartbeat in every interval, and another when a worker's silence has lasted long enough.

        Any living worker reclaims a dead worker's leases, within about a second; they need no agreement on it.
        """
        seconds_left = 0.0  # soon: this worker may declare others dead one heartbeat after its first reply
        while True:
            interval = self._heartbeat_seconds / HEARTBEATS_PER_LIFETIME * (0.9 + 0.2 * random.random())
            await asyncio.sleep(min(interval, seconds_left + _jitter_seconds()))
            self._on_loop_turn()
            seconds_left = self._heartbeat_seconds
            with contextlib.suppress(FrontierUnavailable):
                seconds_left = await self._send_heartbeat()
                if seconds_left <= 0:
                    self._death_noticed.set()

    async def reclaim_leases(self) -> None:
        """Reclaim when a heartbeat reports a dead worker, and about once in `heartbeat_seconds` for the shard's other
        maintenance. A task of its own, because a reclaim may take longer than the time between two heartbeats."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_seconds * (0.9 + 0.2 * random.random())):
                    await self._death_noticed.wait()
            self._death_noticed.clear()
            with contextlib.suppress(FrontierUnavailable):
                await self._reclaim()

    async def _send_heartbeat(self) -> float:
        """Send one heartbeat. Returns the seconds until the next worker counts as dead."""
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        try:
            seconds_left = await self._holder.heartbeat(self._shard)
        except FrontierUnavailable:
            self._judge.on_failure()
            raise
        self._judge.on_reply(sent_at=sent_at, now=loop.time())
        return seconds_left

    async def _reclaim(self) -> None:
        may_declare_dead = self._judge.may_declare_dead(asyncio.get_running_loop().time())
        if await self._frontier.maintain(declare_dead=may_declare_dead, shard=self._shard):
            self._on_reclaimed()


def _jitter_seconds() -> float:
    """Return a random delay, so that workers do not all reclaim at the same moment."""
    return 0.05 + 0.95 * random.random()
