"""Lane `browser` of a worker: whether it leases requests that are to be rendered, and its announcement.

The frontier keeps these requests apart from all others (ADR 24), because few workers have a browser.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from gossamer.commit.retrier import Retrier
from gossamer.errors import BrowserMissing, FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Run
from gossamer.policy.liveness import HEARTBEATS_BEFORE_DEATH
from gossamer.settings import Settings
from gossamer.wiring.plan import renders
from gossamer.worker.browser_room import BrowserRoomLimits

if TYPE_CHECKING:
    from gossamer.render.backend import Patience

_PAGES_PER_TAB = 4
"""Pages for each tab, built or waiting, from which on a worker leases no more. More hold slots, and keep pages from
other workers; fewer let tabs wait for pages."""


def takes_browser_lane(settings: Settings, run: Run | None) -> bool:
    """Return whether a worker leases requests that are to be rendered from its start. `run`: the one that its command
    crawls; None: it works for a pool."""
    worker = settings.worker
    return worker.render or worker.render_only or (run is not None and renders(settings))


def takes_plain_lane(settings: Settings, run: Run | None) -> bool:
    """Return whether a worker leases requests that are fetched plainly. The workers of a command take all of its
    crawl."""
    return run is not None or not settings.worker.render_only


def room_limits(settings: Settings, run: Run | None) -> BrowserRoomLimits:
    """Return how many of a worker's requests may be ones that are to be rendered."""
    slots, browser = settings.worker.concurrency, settings.browser
    # A worker that has nothing else to do may use all of its slots: for pages that are fetched, or wait for a tab.
    is_only = not takes_plain_lane(settings, run) or (run is not None and settings.crawl.render == "always")
    held = slots if is_only else max(1, slots // 2)
    return BrowserRoomLimits(held=held, in_browser=min(_PAGES_PER_TAB * browser.processes * browser.tabs, held))


def patience(settings: Settings, run: Run | None) -> "Patience | None":
    """Return how many pages that a worker has leased as plain ones may wait for its browser; the others change the
    lane. None: any number, because the worker does not take that lane, and perhaps no other does."""
    from gossamer.render.backend import Patience  # imported late: most workers render no page

    if not takes_browser_lane(settings, run):
        return None
    room = room_limits(settings, run)
    left = max(1, settings.worker.concurrency - room.held - 1)  # one slot stays for plain pages in any case
    return Patience(unsent=min(room.in_browser, left), sent=left)


class BrowserLane:
    """A worker's announcement that it has a browser, which ends with the worker."""

    def __init__(
        self,
        settings: Settings,
        frontier: ValkeyFrontier,
        retrier: Retrier,
        holder: ValkeyLeaseholder,
        *,
        pool: str,
        is_taken: bool,
    ) -> None:
        """`is_taken`: the worker leases such requests already."""
        self._settings = settings
        self._frontier = frontier
        self._retrier = retrier
        self._holder = holder
        self._pool = pool
        self._seconds = settings.worker.heartbeat
        self._taken = asyncio.Event()
        self._has_tried = is_taken
        if is_taken:
            self._taken.set()

    def take(self) -> None:
        """Lease such requests from now on, if there is a browser. Tried once."""
        if self._has_tried:
            return
        self._has_tried = True
        from gossamer.wiring.browser import launch_options  # imported late: most crawls need no browser

        with contextlib.suppress(BrowserMissing):
            launch_options(self._settings)
            self._holder.take_browser_lane()
            self._taken.set()

    async def announce(self) -> None:
        """Announce the worker as long as it has the lane, as often as it sends heartbeats. Runs until it is
        cancelled."""
        await self._taken.wait()
        while True:
            await self._retrier.call_frontier(lambda: self._announce(self._seconds))
            await asyncio.sleep(self._seconds / HEARTBEATS_BEFORE_DEATH)

    async def close(self) -> None:
        """End the announcement. If the frontier is away, its time ends it."""
        if self._taken.is_set():
            with contextlib.suppress(FrontierError):
                await self._announce(0)

    async def _announce(self, seconds: float) -> None:
        await self._frontier.announce_browser(pool=self._pool, worker=self._holder.worker, seconds=seconds)
