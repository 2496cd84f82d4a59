"""Access to parts of Scrapy that have no public interface. Besides this file, performance.py reads some of them,
buffered_feeds.py those of feed exports, and the package `shortcuts` does the work of others.

- The engine. Scrapy has no signal for "this request is done": its result handled, its items through the pipelines, its
  requests scheduled. `ExecutionEngine._handle_downloader_output` returns a Deferred that fires at that moment, so
  `EngineAdapter` wraps that method, for one engine only.
- The connection pools of the download handlers (`charged_connections.py`).

`EngineAdapter.check_supported` runs at the start, so that an unsupported Scrapy is refused with its version.

The names with an underscore that are used on Scrapy's objects change only with Scrapy: add each new one to
`check_supported`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import scrapy
from scrapy import Request, Spider
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import CloseSpider
from scrapy.robotstxt import RobotParser
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.reactor import is_asyncio_reactor_installed
from twisted.internet.defer import Deferred

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from gossamer.scrapy.download_handler import SCHEMES, DownloadHandler
from gossamer.scrapy.proxies import ProxyPoolMiddleware
from gossamer.scrapy.shortcuts import flow

ResultHandler = Callable[[Any, Request], "Deferred[None]"]
"""Handles a request's result: a Response, a Failure, or the Request that a middleware put in its place."""


class EngineAdapter:
    """Wraps the engine of one crawler."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def check_supported(self) -> None:
        """Raise BadInput for a version of Scrapy, or a reactor, that the scheduler cannot work with."""
        engine = self._engine
        # Every part without which nothing works. The others below are looked up with a default.
        for owner, name in (
            (engine, "_handle_downloader_output"),
            (engine, "downloader"),
            (engine, "scraper"),
            (engine, "_start"),
            (engine.downloader, "active"),
            (engine.downloader, "per_slot_settings"),
            (engine.downloader.middleware, "_add_middleware"),
            (engine.downloader.handlers, "_get_handler"),
            (engine.scraper.spidermw, "_add_middleware"),
        ):
            if not hasattr(owner, name):
                raise BadInput(
                    f"Scrapy {scrapy.__version__} has no {type(owner).__name__}.{name} any more; use another version"
                )
        if engine.settings.getbool("TWISTED_REACTOR_ENABLED", True) and not is_asyncio_reactor_installed():
            raise BadInput("TWISTED_REACTOR: gossamer.scrapy needs Scrapy's asyncio reactor, which is the default")

    def wrap_result_handler(self, wrapper: Callable[[Any, Request, ResultHandler], "Deferred[None]"]) -> None:
        """Call `wrapper(result, request, original)` where the engine would call its own result handler."""
        original = self._engine._handle_downloader_output

        def handle(result: Any, request: Request) -> "Deferred[None]":
            return wrapper(result, request, original)

        takes_short_way = self._engine.settings.getbool("GOSSAMER_FAST_ENGINE") and flow.is_engine_stock(self._engine)
        self._engine._handle_downloader_output = handle
        if takes_short_way:
            self._take_short_way(handle, wrapper)

    def _take_short_way(self, handle: Any, wrapper: Callable[[Any, Request, ResultHandler], "Deferred[None]"]) -> None:
        """Run requests with `Flow`. The first request decides, because by then all extensions have changed what they
        change: where they have replaced a part that `Flow` does the work of, Scrapy's own way remains."""
        engine = self._engine

        def decide() -> bool:
            del engine._start_scheduled_request
            if engine._handle_downloader_output is handle and flow.is_possible(engine):
                engine._start_scheduled_request = flow.Flow(engine, wrapper).start_request
            return bool(engine._start_scheduled_request())

        engine._start_scheduled_request = decide

    def throttle_start(
        self,
        wait_for_room: Callable[[], Awaitable[None]],
        wants_item: Callable[[], Awaitable[bool]],
        before_close: Callable[[], Awaitable[None]],
    ) -> None:
        """Await `wait_for_room` after each object that the spider's `start()` yields, skip unwanted items, and await
        `before_close` where it raises CloseSpider."""
        start = self._engine._start
        if start is not None:
            self._engine._start = _throttled(start, wait_for_room, wants_item, before_close)

    def disable_download_delays(self) -> None:
        """Drop the downloader's delays, except those in DOWNLOAD_SLOTS: the frontier (the queue that all processes
        share) spaces the requests of all processes."""
        downloader = self._engine.downloader
        downloader.per_slot_settings = _SlotSettingsWithoutDelay(downloader.per_slot_settings)

    def add_downloader_middleware(self, middleware: object) -> None:
        """Add a downloader middleware, closer to the downloader than all others."""
        self._engine.downloader.middleware._add_middleware(middleware)

    def ask_before_others(self, process_request: Callable[[Request], Awaitable[None]]) -> None:
        """Await `process_request` for each request before all downloader middlewares."""
        self._engine.downloader.middleware.methods["process_request"].appendleft(process_request)

    def add_spider_middleware(self, middleware: object) -> None:
        """Add a spider middleware, closer to the spider than all others."""
        self._engine.scraper.spidermw._add_middleware(middleware)

    def proxy_pool(self) -> ProxyPoolMiddleware | None:
        """Return the project's pool of proxies. None: it has none."""
        middlewares = self._engine.downloader.middleware.middlewares
        return next((one for one in middlewares if isinstance(one, ProxyPoolMiddleware)), None)

    def share_cookies(self, frontier: ValkeyFrontier, run: Run) -> None:
        """Let the project's SharedCookiesMiddleware, if it has one, share the cookies of this run."""
        for one in self._engine.downloader.middleware.middlewares:
            if isinstance(one, CookiesMiddleware) and (join := getattr(one, "join_frontier", None)):
                join(frontier, run)

    def charge_repeated_requests(self, may_repeat: Callable[..., Coroutine[Any, Any, bool]]) -> None:
        """Await `may_repeat(url)` before a request is sent again because the server closed the kept connection; where
        it returns False, the request fails. So a repeated request, like any other, needs the frontier's permission to
        visit its domain. After two such losses connections to that server are not reused.

        Only Gossamer's download handler and pools of Twisted's HTTP/1.1 client are changed; other download handlers
        report the loss.
        """

        def charge(handler: Any) -> None:
            if isinstance(handler, DownloadHandler):
                handler.may_repeat = may_repeat
                handler.on_scrapys_handler = charge
            elif (pool := getattr(handler, "_pool", None)) is not None:
                # Twisted's client is large, and loaded already where such a handler is used.
                from gossamer.scrapy.charged_connections import charge_repeated_requests

                charge_repeated_requests(pool, may_repeat)

        for scheme in SCHEMES:
            charge(self._engine.downloader.handlers._get_handler(scheme))

    def wrap_download_handlers(self, wrap: Callable[[Any, Spider | None], Any]) -> None:
        """Put `wrap(handler, spider)` in the place of the handlers of http and https. The spider is None for a handler
        with Scrapy's present interface; others want it, and return a Deferred."""
        handlers = self._engine.downloader.handlers
        old: set[str] = getattr(handlers, "_old_style_handlers", set())
        for scheme in SCHEMES:
            if (handler := handlers._get_handler(scheme)) is not None:
                handlers._handlers[scheme] = wrap(handler, self._engine.spider if scheme in old else None)
                old.discard(scheme)

    def share_robots(self) -> None:
        """Make every request that waits for a robots.txt obey it.

        When several requests wait for one robots.txt, Scrapy (2.14 to 2.19) gives its rules to the first request only;
        the others get None and go ahead. Remove this method when no supported version does that.
        """
        for middleware in self._engine.downloader.middleware.middlewares:
            if isinstance(middleware, RobotsTxtMiddleware) and hasattr(middleware, "_parsers"):
                middleware.robot_parser = _shared_robot_parser(middleware)  # type: ignore[method-assign, assignment]

    def wake(self) -> None:
        """Make the engine ask the scheduler again: there may be a request now, or none left."""
        slot = self._engine._slot
        if slot is not None:
            slot.nextcall.schedule()

    @property
    def scheduler(self) -> Any:
        """The crawler's scheduler. None before the spider is opened and after it is closed."""
        slot = self._engine._slot
        return slot.scheduler if slot is not None else None

    @property
    def has_start_ended(self) -> bool:
        """True once the spider's `start()` has yielded all that it yields."""
        return self._engine._start is None

    @property
    def download_count(self) -> int:
        """Number of requests that the downloader has in flight."""
        return len(self._engine.downloader.active)

    @property
    def is_full(self) -> bool:
        """True while the engine takes no more requests."""
        return self._engine._slot is None or self._engine.scraper.slot is None or bool(self._engine.needs_backout())


def _shared_robot_parser(
    middleware: RobotsTxtMiddleware,
) -> Callable[[Request], Coroutine[Any, Any, RobotParser | None]]:
    """Return a replacement of the middleware's `robot_parser` that gives every waiting request the same parser."""
    original = middleware.robot_parser

    async def robot_parser(request: Request) -> RobotParser | None:
        pending = middleware._parsers.get(urlparse_cached(request).netloc)
        if not isinstance(pending, Deferred):
            return await original(request)
        copy: Deferred[RobotParser | None] = Deferred()

        def pass_on(parser: RobotParser | None) -> RobotParser | None:
            copy.callback(parser)
            return parser

        pending.addCallback(pass_on)
        return await maybe_deferred_to_future(copy)

    return robot_parser


async def _throttled(
    start: AsyncIterator[Any],
    wait_for_room: Callable[[], Awaitable[None]],
    wants_item: Callable[[], Awaitable[bool]],
    before_close: Callable[[], Awaitable[None]],
) -> AsyncIterator[Any]:
    try:
        async for one in start:
            if isinstance(one, Request) or await wants_item():
                yield one
            await wait_for_room()
    except CloseSpider:
        await before_close()
        raise


class _SlotSettingsWithoutDelay(dict[str, dict[str, Any]]):
    """Settings by host for the downloader: no delay, unless the project's DOWNLOAD_SLOTS name one for the host."""

    def get(self, key: str, default: Any = None) -> Any:
        return {"delay": 0.0, **(super().get(key) or {})}
