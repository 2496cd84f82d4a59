"""A Scrapy process's seat at the frontier: takes leases while there is room, keeps them, knows when all is over."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from gossamer.commit.patience import Patience
from gossamer.errors import FrontierUnavailable, StaleWorker
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Lease
from gossamer.telemetry import names

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""An idle process looks so often whether the crawl is over. Work that arrives wakes it at once."""


class Seat:
    """Runs in the spider's event loop until it is cancelled."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        patience: Patience,
        crawl: CrawlId,
        *,
        room: Callable[[], int],
        give: Callable[[Sequence[Lease]], None],
        idle: Callable[[], bool],
        forget: Callable[[], None],
        tell: Callable[[], None],
        heartbeat_seconds: float,
    ) -> None:
        """`room`: how many leases can be started now. `give` takes them. `idle`: nothing is under way here. `forget`:
        the frontier took this worker for dead, what it holds is others' now. `tell`: `over` has changed."""
        self._frontier = frontier
        self._holder = holder
        self._patience = patience
        self._crawl = crawl
        self._room = room
        self._give = give
        self._idle = idle
        self._forget = forget
        self._tell = tell
        self._heartbeat_seconds = heartbeat_seconds
        self._renewing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self.epoch = 0
        """Grows when everything held has gone to others."""
        self.over = False
        """The crawl is over, and nothing is under way here."""
        self.state: CrawlState | None = None
        """How the crawl stood when it was last looked at. None: not looked at, or no such crawl."""

    def want(self) -> None:
        """There is room, or something was committed: look for work now."""
        self._wanted.set()

    def not_over(self) -> None:
        """Something was added: whatever was known of the end no longer holds."""
        self.over = False
        self._wanted.set()

    async def run(self) -> None:
        """For ever; cancel it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._chore(self._heartbeat, self._heartbeat_seconds / 3))
            group.create_task(self._chore(self._reclaim, self._heartbeat_seconds))
            await self._lease_for_ever()

    async def _lease_for_ever(self) -> None:
        empty = 0
        while True:
            self._wanted.clear()
            room = self._room()
            if room <= 0:
                await self._wanted.wait()
                continue
            epoch = self.epoch
            try:
                leases = await self._holder.lease(limit=room)
            except StaleWorker:
                await self.renew(epoch)
                continue
            except FrontierUnavailable:
                await self._patience.frontier(self._holder.heartbeat)
                continue
            if leases and epoch == self.epoch:
                self.over = False
                self._give(leases)
            if len(leases) >= room:
                empty = 0
                continue
            empty = 0 if leases else empty + 1
            if not leases and self._idle():
                await self._look()
            await self._until_work(empty)

    async def _look(self) -> None:
        try:
            info = await self._frontier.crawl_info(self._crawl)
        except FrontierUnavailable:
            return
        self.state = info.state if info else None
        over = info is None or info.state is not CrawlState.RUNNING or not info.total().added
        over = over and self._idle() and not self._wanted.is_set()
        if over != self.over:
            self.over = over
            self._tell()

    async def _until_work(self, empty: int) -> None:
        if self._wanted.is_set():
            return
        waits = [
            asyncio.ensure_future(self._holder.wait(at_most_seconds=_LOOK_SECONDS if self._idle() else 5.0)),
            asyncio.ensure_future(self._wanted.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done() and empty > 1 and not self._wanted.is_set():
                # Due, yet nothing to be had, again: a short pause, so that this can never become a busy loop.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(0.001 * 2 ** min(empty, 6), 0.05)):
                        await self._wanted.wait()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # --- living -------------------------------------------------------------------------------------------------------

    async def _chore(self, run_once: Callable[[], Awaitable[object]], every_seconds: float) -> None:
        while True:
            await asyncio.sleep(every_seconds * (0.9 + 0.2 * random.random()))
            with contextlib.suppress(FrontierUnavailable):
                await run_once()

    async def _heartbeat(self) -> None:
        epoch = self.epoch
        try:
            await self._holder.heartbeat()
        except StaleWorker:
            await self.renew(epoch)

    async def _reclaim(self) -> None:
        if await self._frontier.reclaim():
            self.want()

    async def renew(self, epoch: int) -> None:
        """The frontier took this worker for dead in that epoch: forget everything held and begin the next."""
        async with self._renewing:
            if epoch != self.epoch:
                return
            log.warning("%s %s", names.WORKER_STALE, self._holder.worker)
            self.epoch += 1
            self._forget()
            await self._patience.frontier(self._holder.renew)
            self.want()
