"""A worker's place at the frontier while it works: heartbeats, housekeeping, and waiting for work. Shard by shard."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable

from gossamer.commit.retrier import Retrier
from gossamer.errors import FrontierUnavailable, GossamerError
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.policy.timing import LivenessJudge

MOST_SECONDS = 600.0
"""A loop that has not turned for so long will not turn again: then it is taken for dead like any other."""


class HeartbeatThread:
    """A thread with a connection of its own, which is made when it is first needed. Between `start` and `stop` whoever
    beats calls `turned`; when that is missed for half a heartbeat, the thread vouches for the worker."""

    def __init__(self, frontier: Frontier, holder: Leaseholder, *, heartbeat_seconds: float) -> None:
        self._frontier = frontier
        self._holder = holder
        self._heartbeat_seconds = heartbeat_seconds
        self._turned = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gossamer-pulse", daemon=True)

    def start(self) -> None:
        """Once."""
        self._turned = time.monotonic()
        self._thread.start()

    def turned(self) -> None:
        """The event loop goes round."""
        self._turned = time.monotonic()

    def stop(self) -> None:
        """The thread ends by itself soon after. May be repeated."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._heartbeat_seconds / 6):
            if self._is_late():
                asyncio.run(self._vouch())

    def _is_late(self) -> bool:
        return self._heartbeat_seconds / 2 < time.monotonic() - self._turned < MOST_SECONDS

    async def _vouch(self) -> None:
        """Until the loop turns again."""
        frontier = self._frontier.clone()
        try:
            await asyncio.gather(*(self._vouch_on(frontier, shard) for shard in range(frontier.shard_count)))
        finally:
            await frontier.close()

    async def _vouch_on(self, frontier: Frontier, shard: int) -> None:
        while self._is_late() and not self._over.is_set():
            with contextlib.suppress(GossamerError):  # where the shard is away, nobody can be heard there
                await frontier.heartbeat_for(shard, self._holder.session_name(shard))
            await asyncio.sleep(self._heartbeat_seconds / 6)


class WorkerSession:
    """Shared by both lanes. `keep` runs beside the work."""

    def __init__(self, frontier: Frontier, holder: Leaseholder, retrier: Retrier, *, heartbeat_seconds: float) -> None:
        self._holder = holder
        self._retrier = retrier
        self._pulse = HeartbeatThread(frontier, holder, heartbeat_seconds=heartbeat_seconds)
        self.progress = asyncio.Event()
        """Something happened here, or was taken back from the dead: there may be new work, or none left."""
        self._watches = [
            _ShardWatch(
                frontier,
                holder,
                shard,
                heartbeat_seconds=heartbeat_seconds,
                turned=self._pulse.turned,
                reclaimed=self.progress.set,
            )
            for shard in range(frontier.shard_count)
        ]

    async def keep(self) -> None:
        """Send heartbeats and take back what the dead held, for ever; once, and to be cancelled."""
        self._pulse.start()
        try:
            async with asyncio.TaskGroup() as group:
                for watch in self._watches:
                    group.create_task(watch.beat_for_ever())
                    group.create_task(watch.reclaim_for_ever())
        finally:
            self._pulse.stop()

    async def until_work(self, *, at_most_seconds: float, empty: int) -> None:
        """Until work may be due: the frontier says so, or there was progress. `empty`: how often in a row leasing found
        nothing."""
        if self.progress.is_set():
            return
        waits = [
            asyncio.ensure_future(self._holder.wait_for_work(timeout_seconds=at_most_seconds)),
            asyncio.ensure_future(self.progress.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done() and empty > 1 and not self.progress.is_set():
                # Due, yet nothing to be had, again: a short pause, so that this can never become a busy loop.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(0.001 * 2 ** min(empty, 6), 0.05)):
                        await self.progress.wait()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def until_reached(self) -> None:
        """Return when some shard of the frontier answers again, whatever it says of this worker."""
        await self._retrier.call_frontier(self._holder.ping)


class _ShardWatch:
    """Heartbeats of one worker on one shard, and its housekeeping there."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        shard: int,
        *,
        heartbeat_seconds: float,
        turned: Callable[[], None],
        reclaimed: Callable[[], None],
    ) -> None:
        """`turned` is called whenever the event loop gets here; `reclaimed` after work was taken back from the dead."""
        self._frontier = frontier
        self._holder = holder
        self._shard = shard
        self._heartbeat_seconds = heartbeat_seconds
        self._turned = turned
        self._reclaimed = reclaimed
        self._witness = LivenessJudge(heartbeat_seconds)
        self._dead = asyncio.Event()
        """Some worker counts as dead."""

    async def beat_for_ever(self) -> None:
        """Beat three times a heartbeat, and whenever a worker's silence has lasted one.

        What the dead held is taken back a second later at most, by any worker that lives. Nobody needs to agree on who
        they are."""
        left = 0.0  # the worker that this one replaces may be dead for long
        while True:
            usual = self._heartbeat_seconds / 3 * (0.9 + 0.2 * random.random())
            await asyncio.sleep(min(usual, left + _soon()))
            self._turned()
            left = self._heartbeat_seconds
            with contextlib.suppress(FrontierUnavailable):
                left = await self.beat()
                if left <= 0:
                    self._dead.set()

    async def reclaim_for_ever(self) -> None:
        """When the beats say that a worker is dead, and regularly, with all other housekeeping. Apart from the beats:
        it may take longer than they may."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_seconds * (0.9 + 0.2 * random.random())):
                    await self._dead.wait()
            self._dead.clear()
            with contextlib.suppress(FrontierUnavailable):
                await self._reclaim()

    async def beat(self) -> float:
        """Send one heartbeat. The seconds until some worker counts as dead."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            left = await self._holder.heartbeat(self._shard)
        except FrontierUnavailable:
            self._witness.failed()
            raise
        self._witness.answered(asked=asked, now=loop.time())
        return left

    async def _reclaim(self) -> None:
        judge = self._witness.is_fair(asyncio.get_running_loop().time())
        if await self._frontier.maintain(declare_dead=judge, shard=self._shard):
            self._reclaimed()


def _soon() -> float:
    """Not all who watch at the same moment."""
    return 0.05 + 0.95 * random.random()
