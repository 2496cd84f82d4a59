"""A worker's seat at the frontier while it works: kept by heartbeats, lost when those were missed, taken again."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from gossamer.commit.patience import Patience
from gossamer.commit.pulse import Pulse
from gossamer.errors import FrontierUnavailable, StaleWorker
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.policy.witness import Witness
from gossamer.telemetry import names

log = logging.getLogger("gossamer.worker")


class Seat:
    """Shared by both lanes. `keep` runs beside the work."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        patience: Patience,
        *,
        heartbeat_seconds: float,
        forget: Callable[[], None],
    ) -> None:
        """`forget`: the frontier took this worker for dead; what it holds is others' now."""
        self._frontier = frontier
        self._holder = holder
        self._patience = patience
        self._heartbeat_seconds = heartbeat_seconds
        self._forget = forget
        self._renewing = asyncio.Lock()
        self._witness = Witness(heartbeat_seconds)
        self._pulse = Pulse(frontier, holder, heartbeat_seconds=heartbeat_seconds)
        self.epoch = 0
        """Grows when everything held has gone to others. What was leased in an earlier one must not be settled."""
        self.progress = asyncio.Event()
        """Something happened here, or was taken back from the dead: there may be new work, or none left."""

    async def keep(self) -> None:
        """Say that the worker lives, and take back what the dead held, for ever; once, and to be cancelled."""
        self._pulse.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._live())
                group.create_task(self._reclaim_for_ever())
        finally:
            self._pulse.stop()

    async def until_work(self, *, at_most_seconds: float, empty: int) -> None:
        """Until work may be due: the frontier says so, or there was progress. `empty`: how often in a row leasing found
        nothing."""
        if self.progress.is_set():
            return
        waits = [
            asyncio.ensure_future(self._holder.wait(at_most_seconds=at_most_seconds)),
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
        """Return when the frontier answers again, whatever it says of this worker."""
        await self._patience.frontier(self._beat)

    async def renew(self, epoch: int) -> None:
        """The frontier took this worker for dead in that epoch: forget everything held and begin the next. Repeatable:
        for an epoch that is over nothing happens."""
        async with self._renewing:
            if epoch != self.epoch:
                return
            log.warning("%s %s", names.WORKER_STALE, self._holder.worker)
            self.epoch += 1
            self._forget()
            await self._patience.frontier(self._holder.renew)
            self.progress.set()

    async def _live(self) -> None:
        """Beat three times a heartbeat, and whenever somebody's silence has lasted one: what the dead held is taken
        back a second later at most, by whoever lives. Who they are, nobody needs to agree on."""
        left = 0.0  # whom this worker replaces may be dead for long
        while True:
            usual = self._heartbeat_seconds / 3 * (0.9 + 0.2 * random.random())
            await asyncio.sleep(min(usual, left + _soon()))
            self._pulse.turned()
            left = self._heartbeat_seconds
            with contextlib.suppress(FrontierUnavailable):
                left = await self._beat()
                if left <= 0:
                    await self._reclaim()

    async def _reclaim_for_ever(self) -> None:
        """On the shards, too, that the beats say nothing of; and all other housekeeping."""
        while True:
            await asyncio.sleep(self._heartbeat_seconds * (0.9 + 0.2 * random.random()))
            with contextlib.suppress(FrontierUnavailable):
                await self._reclaim()

    async def _beat(self) -> float:
        """The seconds until somebody counts as dead."""
        loop = asyncio.get_running_loop()
        epoch, asked = self.epoch, loop.time()
        left = self._heartbeat_seconds
        try:
            left = await self._holder.heartbeat()
        except StaleWorker:
            await self.renew(epoch)
        except FrontierUnavailable:
            self._witness.failed()
            raise
        self._witness.answered(asked=asked, now=loop.time())
        return left

    async def _reclaim(self) -> None:
        if await self._frontier.reclaim(judge=self._witness.is_fair(asyncio.get_running_loop().time())):
            self.progress.set()


def _soon() -> float:
    """Not all who watch at the same moment."""
    return 0.05 + 0.95 * random.random()
