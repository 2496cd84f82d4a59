"""Lane `browser` of a Scrapy process: whether it takes requests that are to be rendered, and its announcement.

The frontier keeps these requests apart from all others (ADR 24), because few processes have a browser. Nothing of the
browser is loaded before a request is to be rendered.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import scrapy
from scrapy import Request, exceptions
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, BrowserMissing
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.entries import RENDER_KEY
from gossamer.scrapy.options import own_settings
from gossamer.scrapy.proxies import setting
from gossamer.settings import Settings

if TYPE_CHECKING:
    from gossamer.scrapy.render_options import RenderRules
    from gossamer.scrapy.rendering import PageRenderer
    from gossamer.wiring.browser_lane import BrowserLane

log = logging.getLogger(__name__)


class ScrapyBrowserLane:
    """Requests of one crawler that are to be rendered."""

    def __init__(self, crawler: Crawler, engine: EngineAdapter, settings: Settings) -> None:
        """Raises BadInput for invalid settings, and BrowserMissing where GOSSAMER_RENDER needs a browser."""
        self._crawler = crawler
        self._engine = engine
        self._settings = settings
        self._known_rules: RenderRules | None = None
        self._lane: BrowserLane | None = None
        self._announcing: asyncio.Future[None] | None = None
        self._is_open = False
        """True: this process renders, or finds out whether it can."""
        self._is_checked = False
        """True: a browser has started here."""
        own = (setting(crawler.settings, name) for name in ("GOSSAMER_RENDER", "GOSSAMER_RENDER_OPTIONS"))
        if any(value not in ("", "never", {}) for value in own) and self._rules.mode != "never":
            from gossamer.wiring.browser import launch_options  # imported late, as below: most projects render nothing

            launch_options(settings)

    @property
    def _rules(self) -> "RenderRules":
        if self._known_rules is None:
            from gossamer.scrapy.render_options import RenderRules

            if not hasattr(exceptions, "DownloadFailedError"):
                raise BadInput(f"pages are rendered with Scrapy 2.15 and newer; this is {scrapy.__version__}")
            self._known_rules = RenderRules(self._crawler.settings, self._settings)
        return self._known_rules

    @property
    def is_wanted(self) -> bool:
        """True: the project's settings render pages."""
        return self._known_rules is not None and self._known_rules.mode != "never"

    def is_asked(self, request: Request) -> bool:
        """Return whether only processes with a browser take a request."""
        if self._known_rules is None and not (request._meta and RENDER_KEY in request._meta):
            return False
        return self._rules.is_asked(request)

    def may_render(self, request: Request) -> bool:
        """Return whether a browser may build the page of a request: it is asked for, or its page decides."""
        return bool(request._meta and RENDER_KEY in request._meta) or self.is_wanted

    def fault(self, request: Request) -> str:
        """Return what is wrong with `render` in the meta of a request that has it. Empty: nothing."""
        try:
            self._rules.options(request)  # the rules themselves may raise it, too
        except BadInput as error:
            return str(error)
        self.open()
        return ""

    async def check(self) -> None:
        """Raise BrowserMissing where the project's settings render pages, and no browser can be used here."""
        if self.is_wanted:
            from gossamer.wiring.browser import check_browser

            await check_browser(self._settings)
            self._is_checked = True

    def join(self, frontier: ValkeyFrontier, retrier: Retrier, holder: ValkeyLeaseholder, pool: str) -> None:
        """Become a worker of this pool that may take such requests."""
        self._parts = (frontier, retrier, holder, pool)
        if self.is_wanted:
            self.open()

    def open(self) -> None:
        """Take such requests from now on, if a browser can be used here. May be repeated."""
        if self._is_open:
            return
        self._is_open = True
        self._announcing = asyncio.ensure_future(self._take(self.render()))

    async def _take(self, renderer: "PageRenderer") -> None:
        """Take such requests, and announce it until cancelled. Returns if no browser can be used here."""
        from gossamer.wiring.browser import check_browser
        from gossamer.wiring.browser_lane import BrowserLane

        frontier, retrier, holder, pool = self._parts
        try:
            if not self._is_checked:
                await check_browser(self._settings)
        except BrowserMissing as error:
            log.warning(
                "A request is to be rendered, and this process has no browser, so it waits for one that has. %s", error
            )
            return
        renderer.on_load = lambda is_full: holder.rest_browser_lane(rests=is_full)
        holder.take_browser_lane()
        self._lane = BrowserLane(self._settings, frontier, retrier, holder, pool=pool, is_taken=True)
        await self._lane.announce()

    def render(self) -> "PageRenderer":
        """Let the crawler's download handlers render pages, and return what does."""
        from gossamer.scrapy.rendering import PageRenderer, RenderingHandler

        renderer = PageRenderer(self._crawler, self._settings, self._rules)
        self._engine.wrap_download_handlers(lambda handler, spider: RenderingHandler(handler, renderer, spider))
        return renderer

    def prepare(self, request: Request) -> None:
        """Note in a leased request that it is to be rendered."""
        request.meta.setdefault(RENDER_KEY, True)
        self.open()

    async def close(self) -> None:
        """End the announcement. The download handlers end the browsers."""
        if self._announcing is not None:
            self._announcing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._announcing
        if self._lane is not None:
            await self._lane.close()


def render_alone(crawler: Crawler) -> None:
    """Let a command that looks at one page render it, if a crawl of the project would. Raises BadInput and
    BrowserMissing."""
    if setting(crawler.settings, "GOSSAMER_RENDER") in ("", "never"):
        return
    ScrapyBrowserLane(crawler, EngineAdapter(crawler.engine), own_settings(crawler.settings)).render()
