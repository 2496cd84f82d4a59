"""Browsers of one worker and their tabs: reuses a tab within a site, and replaces browsers before they grow old.

Several browsers of a few tabs serve more pages than one of many. Pages that find no free tab wait for one.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

import msgspec

from gossamer.errors import BrowserCrashed, BrowserError, BrowserHung, BrowserMissing, BrowserNotStarted, GossamerError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.render.browser import Browser, LaunchOptions
from gossamer.render.memory import group_bytes
from gossamer.render.requests import PageLoader
from gossamer.render.tab import Tab, WaitLimits
from gossamer.telemetry import logs
from gossamer.telemetry.tally import BrowserCounts

log = logging.getLogger("gossamer.render")

_MEMORY_POLL_SECONDS = 5.0
_START_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts to start a browser, as where a disk is full. A page without another browser waits for their
sum, and fills the worker's room for pages, so that it leases no more."""
_GRACE_SECONDS = 20.0
"""Time beyond the limit of a page after which its tab is taken for lost, whatever it waits for."""


class BrowserLimits(msgspec.Struct, frozen=True):
    """Size of the pool, and life of a browser."""

    browsers: int = 1
    tabs: int = 4
    """Tabs of each browser."""
    pages: int = 500
    """Pages after which a browser is replaced."""
    seconds: float = 1800.0
    """Age at which a browser is replaced."""
    memory_bytes: int = 768 * 1024 * 1024
    """Memory at which a browser is replaced."""


class BrowserPool:
    """Browsers and tabs. Belongs to one event loop; close it there. Browsers start with the first page."""

    def __init__(
        self,
        launch: LaunchOptions,
        limits: BrowserLimits,
        loader: PageLoader,
        waits: WaitLimits,
        counts: BrowserCounts | None = None,
    ) -> None:
        """`counts`: those of the process; None: nothing reads them."""
        self.counts = BrowserCounts() if counts is None else counts
        self._launch = launch
        self._limits = limits
        self._loader = loader
        self._waits = waits
        self._slots = asyncio.Semaphore(limits.browsers * limits.tabs)
        self._idle: list[Tab] = []
        """Free tabs, the least recently used first."""
        self._browsers: list[Browser] = []
        self._retired: set[Browser] = set()
        """Browsers that get no more pages, and end with their last one."""
        self._opening = asyncio.Lock()
        self._has_started = False
        """True: a browser has started here."""
        self._failed_starts = 0
        """Number of attempts to start a browser that have failed since one started."""
        self._start_fault: BrowserMissing | BrowserNotStarted = BrowserNotStarted()
        """Fault of the last of them."""
        self._next_start = 0.0
        """Monotonic time before which no other attempt is made, whichever page needs it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Start the first browser before the first page. Raises BrowserMissing for one that cannot be used here,
        and BrowserNotStarted."""
        async with self._opening:
            if not self._browsers:
                self._browsers.append(await self._start())
        self._show()

    async def render(self, request: FetchRequest, response: FetchResponse) -> FetchResponse:
        """Build the page of a response in a browser, as `Tab.render` does. Waits for a free tab."""
        load = request.page
        assert load is not None
        await self._wait_for_slot()
        try:
            tab = await self._take((load.sharing, load.site))
        except BaseException:
            self._slots.release()
            raise
        is_well, waits = False, self._waits.changed_by(load.terms)
        self.counts.building += 1
        self._show()
        try:
            async with asyncio.timeout(waits.seconds + _GRACE_SECONDS):
                rendered = await tab.render(request, response, self._loader, waits)
            is_well = True
            self._count_page(rendered)
            return rendered
        except TimeoutError:
            raise BrowserHung(f"the page was not built within {waits.seconds + _GRACE_SECONDS:g} s") from None
        finally:
            self.counts.building -= 1
            self._start_task(self._free(tab, is_well=is_well))

    async def _wait_for_slot(self) -> None:
        """Wait until a page may be built."""
        self.counts.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.counts.waiting -= 1

    def _count_page(self, page: FetchResponse) -> None:
        """Count a page that was built."""
        rendering, requests = page.rendering, self.counts.requests
        assert rendering is not None
        self.counts.pages += 1
        self.counts.seconds += rendering.seconds
        for result, count in (
            ("sent", rendering.requests),
            ("cached", rendering.cached),
            ("refused", rendering.refused),
        ):
            requests[result] = requests.get(result, 0) + count

    def _show(self) -> None:
        """Count the browsers and tabs that there are now."""
        running = [*self._browsers, *self._retired]
        self.counts.running = len(running)
        self.counts.tabs = sum(browser.tabs for browser in running)
        self.counts.memory = sum(browser.memory for browser in running)

    async def close(self) -> None:
        """End all browsers and delete their folders. May be repeated."""
        self._closed = True
        self._idle.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)
        browsers, self._browsers = [*self._browsers, *self._retired], []
        self._retired.clear()
        self._show()
        await asyncio.gather(*(browser.close() for browser in browsers))

    async def _take(self, key: tuple[str, str]) -> Tab:
        """Return a tab for the pages of this crawl and site: a free one of theirs, else a new one."""
        give_up = time.monotonic() + sum(_START_PAUSES)
        while True:
            await self._drop_dead()
            for tab in reversed(self._idle):
                if tab.key == key:
                    self._idle.remove(tab)
                    return tab
            try:
                async with self._opening:
                    return await self._open(key)
            except BrowserNotStarted:
                if time.monotonic() >= give_up:
                    raise
            await asyncio.sleep(self._next_start - time.monotonic())  # without the lock: other browsers may have room

    async def _open(self, key: tuple[str, str]) -> Tab:
        """Open a tab. Raises as `_browser_with_room`."""
        for is_last in (False, True):
            browser = await self._browser_with_room()
            try:
                return await Tab.open(browser, key)
            except (BrowserCrashed, BrowserHung):
                await self._end(browser)  # it ended while it was idle, so another one is tried
                if is_last:
                    raise
        raise AssertionError("unreachable")

    async def _browser_with_room(self) -> Browser:
        """Return a browser that may open another tab: one with few tabs, a new one, or one whose free tab is closed.
        Raises as `_start` where no other browser has room."""
        room = [browser for browser in self._browsers if browser.tabs < self._limits.tabs]
        fault = None
        if len(self._browsers) < self._limits.browsers and not any(browser.tabs == 0 for browser in room):
            try:
                browser = await self._start()
            except (BrowserMissing, BrowserNotStarted) as error:
                fault = error
            else:
                self._browsers.append(browser)
                return browser
            room = [browser for browser in room if browser in self._browsers]
        if room:
            return min(room, key=lambda browser: browser.tabs)
        tab = next((tab for tab in self._idle if tab.browser in self._browsers), None)
        if tab is None:
            assert fault is not None
            raise fault
        self._idle.remove(tab)
        await tab.close()
        return tab.browser

    async def _start(self) -> Browser:
        """Start a browser, if the pause after a failed attempt is over. Raises as `Browser.start`, but never
        BrowserMissing once a browser has started; within the pause why the attempt failed."""
        if time.monotonic() < self._next_start:
            raise type(self._start_fault)(self._start_fault.detail)
        try:
            browser = await Browser.start(self._launch)
        except (BrowserMissing, BrowserNotStarted) as error:
            log.warning("%s %s", logs.BROWSER_NOT_STARTED, error.detail)
            pause = _START_PAUSES[min(self._failed_starts, len(_START_PAUSES) - 1)]
            self._failed_starts += 1
            # A program that was there may come back, as while its package is replaced: pages wait, and do not fail.
            kind = BrowserNotStarted if self._has_started else type(error)
            self._start_fault, self._next_start = kind(error.detail), time.monotonic() + pause
            raise kind(error.detail) from error
        self._has_started = True
        self._failed_starts = 0
        return browser

    async def _free(self, tab: Tab, *, is_well: bool) -> None:
        """Make room for the next page: empty the tab, or close it if its page has failed. The page's caller does not
        wait for that."""
        try:
            if is_well and not self._closed:
                with contextlib.suppress(BrowserError):
                    await tab.blank()
                    await self._give_back(tab)
                    return
            await self._discard(tab)
        finally:
            self._slots.release()
            self._show()

    async def _give_back(self, tab: Tab) -> None:
        """Take an empty tab back after a page."""
        browser = tab.browser
        if self._closed or tab.crashed or browser.ended:
            await self._discard(tab)
            return
        if browser in self._retired:
            await tab.close()
            await self._end_if_unused(browser)
            return
        self._idle.append(tab)
        if browser in self._browsers and await self._is_old(browser):
            self._start_task(self._replace(browser))

    async def _discard(self, tab: Tab) -> None:
        """Close a tab after a failure, with its browser if that has ended."""
        await tab.close()
        if tab.browser.ended:
            await self._end(tab.browser)
        elif tab.browser in self._retired:
            await self._end_if_unused(tab.browser)

    async def _is_old(self, browser: Browser) -> bool:
        """Return whether a browser is to be replaced."""
        now, limits = time.monotonic(), self._limits
        if browser.pages >= limits.pages or now - browser.started >= limits.seconds:
            return True
        if now - browser.measured < _MEMORY_POLL_SECONDS:
            return False
        browser.measured = now
        browser.memory = await asyncio.to_thread(group_bytes, browser.process.pid)
        return browser.memory >= limits.memory_bytes

    async def _replace(self, browser: Browser) -> None:
        """Start another browser, and end this one after its last page."""
        if browser in self._retired or browser not in self._browsers:
            return
        self._retired.add(browser)
        self.counts.end("retired")
        try:
            self._browsers.append(await self._start())
        except GossamerError as error:
            # The next page starts another one, and fails with the reason if that is not possible, either.
            log.warning("%s %s", logs.BROWSER_NOT_REPLACED, error)
        finally:
            if browser in self._browsers:
                self._browsers.remove(browser)
            for tab in [tab for tab in self._idle if tab.browser is browser]:
                self._idle.remove(tab)
                await tab.close()
            await self._end_if_unused(browser)

    async def _end_if_unused(self, browser: Browser) -> None:
        if browser.tabs == 0 and browser not in self._browsers:
            await self._end(browser)

    async def _end(self, browser: Browser) -> None:
        """End a browser that is of no more use."""
        if browser.ended and (browser in self._browsers or browser in self._retired):
            self.counts.end("crashed")
        self._retired.discard(browser)
        if browser in self._browsers:
            self._browsers.remove(browser)
        self._idle = [tab for tab in self._idle if tab.browser is not browser]
        await browser.close(kill=browser.ended)

    async def _drop_dead(self) -> None:
        """Forget browsers that have ended while no page was in them, and close tabs whose renderer has."""
        for browser in [browser for browser in self._browsers if browser.ended]:
            self._browsers.remove(browser)
            self.counts.end("crashed")
            self._idle = [tab for tab in self._idle if tab.browser is not browser]
            self._start_task(browser.close(kill=True))
        crashed = [tab for tab in self._idle if tab.crashed]
        self._idle = [tab for tab in self._idle if not tab.crashed]
        for tab in crashed:
            await tab.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
