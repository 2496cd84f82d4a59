"""Passes responses to the spider, and what the spider makes of them through spider middlewares and item pipelines.

Scrapy runs an asynchronous generator for each middleware and tasks with a queue for each page. Here, the objects of a
generator callback pass the middlewares in a loop, and an item whose pipelines do not wait needs no task.

Fixed: callbacks are run, middlewares called and items processed in Scrapy's order, with the same errors; and no page
keeps the event loop for itself longer than Scrapy lets it.
"""

import asyncio
import contextlib
import inspect
import logging
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import lru_cache
from types import GeneratorType
from typing import Any, Final
from weakref import WeakSet

from scrapy import Request
from scrapy.core.scraper import Scraper
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.exceptions import ScrapyDeprecationWarning
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware
from scrapy.spidermiddlewares.referer import DefaultReferrerPolicy, RefererMiddleware
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import is_generator_with_return_value, warn_on_generator_with_return_value
from scrapy.utils.python import MutableAsyncChain, global_object_name
from scrapy.utils.spider import iterate_spider_output
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.scrapy.addon import KnownLinks
from gossamer.scrapy.shortcuts.items import ItemProcessing
from gossamer.scrapy.shortcuts.middlewares import process_pending_io
from gossamer.scrapy.shortcuts.notices import LogLines, Signals
from gossamer.scrapy.shortcuts.parts import is_scrapys, is_stock, is_stock_method, owns_none_of

_log = logging.getLogger("scrapy.core.scraper")  # the name that users know from Scrapy's lines
_TURN_SECONDS: Final = 0.005
"""Time after which a page with many objects lets the event loop do other work. Longer delays other requests, shorter
costs turns of the loop."""

_SCRAPER = (
    "_scrape", "call_spider_async", "handle_spider_error", "handle_spider_output_async",
    "_process_spidermw_output_async", "start_itemproc_async",
)  # fmt: skip
_MANAGER = (
    "_process_spider_input", "_process_spider_output", "_process_callback_output", "_evaluate_iterable",
    "_process_spider_exception", "scrape_response_async",
)  # fmt: skip
"""Methods of Scrapy's Scraper and SpiderMiddlewareManager whose work this module does. If a project replaces one of
them, Scrapy's own code handles its pages."""
_POLICY = ("referrer", "stripped_referrer", "strip_url", "tls_protected")

Step = Callable[[Any, Response], Any]
"""Returns what a spider middleware makes of an object. None: the object is dropped."""


class Pages:
    """Has the spider handle the responses of a crawler."""

    def __init__(self, engine: Any, notices: Signals, lines: LogLines) -> None:
        self._engine = engine
        self._crawler = engine.crawler
        self._scraper: Scraper = engine.scraper
        self._manager: SpiderMiddlewareManager = engine.scraper.spidermw
        self._is_stock = is_stock(self._scraper, Scraper, _SCRAPER) and is_stock(
            self._manager, SpiderMiddlewareManager, _MANAGER
        )
        self._items = ItemProcessing(engine, notices, lines)
        self._quiet_callbacks: WeakSet[Any] = WeakSet()
        """Callbacks that were checked and need no warning. Weak, because a project may make a callback for each
        request."""
        self._seen_methods: Any = None
        self._inputs: list[tuple[Any, bool]] = []
        """Methods `process_spider_input`, each with True if it does nothing for responses with a status from 200 to
        299."""
        self._steps: list[tuple[int, Step]] | None = None
        self._beginnings: list[Callable[[Response], None]] = []
        """Called before the first object of a page is taken."""
        self._known: KnownLinks | None = None
        self._known_level = 0

    async def scrape(self, result: Response | Failure, request: Request) -> None:
        """Do what `Scraper._scrape` does."""
        if not self._is_stock or not isinstance(result, Response):
            await self._scraper._scrape(result, request)
            return
        output: Any
        methods = self._manager.methods
        if (methods["process_spider_input"], methods["process_spider_output"]) != self._seen_methods:
            self._prepare()
        try:
            output = await self._handle_response(result, request)
            if self._steps is None:
                source = output if isinstance(output, AsyncIterator) else as_async_generator(output)
                output = await self._manager._process_callback_output(result, source)
        except Exception as error:
            try:
                await process_pending_io()
                output = self._manager._process_spider_exception(result, error)
            except Exception:
                self._scraper.handle_spider_error(_failure(), request, result)
                return
        if self._steps is None or isinstance(output, MutableAsyncChain):
            await self._scraper.handle_spider_output_async(output, request, result)
        else:
            await self._pass_on(output, result, request)

    # --- the callback -------------------------------------------------------------------------------------------------

    async def _handle_response(self, response: Response, request: Request) -> Any:
        """Return what the callback returns, as an iterable or an asynchronous iterator."""
        manager = self._manager
        for method, checks_status in self._inputs:
            if checks_status and 200 <= response.status < 300:
                continue
            try:
                if method in manager._mw_methods_requiring_spider:
                    result = method(response=response, spider=manager._spider)
                else:
                    result = method(response=response)
            except Exception:
                return await self._scraper.call_spider_async(_failure(), request)
            if result is not None:
                raise _invalid(method, result)
        return await self._call_spider(response, request)

    async def _call_spider(self, response: Response, request: Request) -> Any:
        """Do what `Scraper.call_spider_async` does for a response."""
        spider = self._crawler.spider
        if getattr(response, "request", None) is None:
            response.request = request
        made_by = response.request
        assert made_by is not None
        callback = made_by.callback or spider._parse
        self._warn_of_return_value(callback)
        output: Any = callback(response, **made_by.cb_kwargs)
        if type(output) is GeneratorType:
            return output
        if isinstance(output, Deferred):
            warnings.warn(
                f"{callback} returned a Deferred. Returning Deferreds from spider callbacks is deprecated.",
                ScrapyDeprecationWarning,
                stacklevel=2,
            )
        return await ensure_awaitable(iterate_spider_output(output))

    def _warn_of_return_value(self, callback: Any) -> None:
        """Warn of a generator that returns a value, which would be lost, as Scrapy does."""
        function = getattr(callback, "__func__", callback)
        if function in self._quiet_callbacks:
            return
        warn_on_generator_with_return_value(self._crawler.spider, callback)
        try:
            is_quiet = not is_generator_with_return_value(callback)
        except IndentationError:
            is_quiet = False
        if is_quiet:
            with contextlib.suppress(TypeError):  # an object without weak references
                self._quiet_callbacks.add(function)

    # --- spider middlewares -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Find the steps of all spider middlewares, that of the closest to the spider first."""
        manager = self._manager
        inputs, methods = manager.methods["process_spider_input"], manager.methods["process_spider_output"]
        self._seen_methods = inputs.copy(), methods.copy()
        self._inputs = [(method, is_stock_method(method, HttpErrorMiddleware)) for method in inputs]
        self._steps, self._beginnings, self._known = None, [], None
        steps: list[tuple[int, Step]] = []
        for level, method in enumerate(methods, start=1):
            if method is None:
                continue
            middleware = getattr(method, "__self__", None)
            if method in manager._mw_methods_requiring_spider:
                return
            if type(middleware) is KnownLinks and not steps:
                self._known = middleware
                self._known_level = level
            elif isinstance(middleware, BaseSpiderMiddleware) and _has_stock_output(middleware, method):
                if isinstance(middleware, DepthMiddleware):
                    self._beginnings.append(middleware._init_depth)
                steps.append((level, _referer_step(middleware) or middleware._get_processed))
            else:
                return
        self._steps = steps

    async def _pass_on(self, output: Any, response: Response, request: Request) -> None:
        """Pass all objects of a page through the spider middlewares, and to the scheduler or the pipelines."""
        running: set[asyncio.Future[None]] = set()
        turn = time.monotonic() + _TURN_SECONDS
        try:
            for begin in self._beginnings:
                begin(response)
            if isinstance(output, AsyncIterator):
                async for one in self._processed_later(output, response):
                    if (rest := self._emit(one, response)) is not None:
                        running = await self._run(rest, running)
                    if time.monotonic() > turn:
                        turn = await _next_turn()
            else:
                for one in self._processed(iter(output), response):
                    if (rest := self._emit(one, response)) is not None:
                        running = await self._run(rest, running)
                    if time.monotonic() > turn:
                        turn = await _next_turn()
        except _LayerError as layer:
            await self._recover(layer.error, layer.level, response, request)
        finally:
            if running:
                await asyncio.wait(running)

    async def _run(
        self, rest: Coroutine[Any, Any, None], running: set[asyncio.Future[None]]
    ) -> set[asyncio.Future[None]]:
        """Finish the processing of an item in a task. Wait until another task may start, and return the tasks that
        still run."""
        running.add(asyncio.ensure_future(rest))
        if len(running) >= self._scraper.concurrent_items:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return running

    def _processed(self, output: Iterator[Any], response: Response) -> Iterator[Any]:
        """Yield the objects that pass all spider middlewares. Raises _LayerError."""
        known = self._known.page_filter() if self._known is not None else None
        try:
            for one in output:
                if known is not None and isinstance(one, Request) and self._drops(known, one):
                    continue
                passed = self._pass_middlewares(one, response)
                if passed is not None:
                    yield passed
                    if self._known is not None:
                        known = self._known.page_filter()
        except _LayerError:
            raise
        except Exception as error:
            raise _LayerError(error, 0) from None

    async def _processed_later(self, output: AsyncIterator[Any], response: Response) -> AsyncIterator[Any]:
        """Yield the objects that pass all spider middlewares. Raises _LayerError."""
        known = self._known.page_filter(survives_await=True) if self._known is not None else None
        try:
            async for one in output:
                if known is not None and isinstance(one, Request) and self._drops(known, one):
                    continue
                passed = self._pass_middlewares(one, response)
                if passed is not None:
                    yield passed
        except _LayerError:
            raise
        except Exception as error:
            raise _LayerError(error, 0) from None

    def _drops(self, known: Callable[[Request], bool], request: Request) -> bool:
        """Return whether a link is dropped as known. Raises _LayerError."""
        try:
            return known(request)
        except Exception as error:
            raise _LayerError(error, self._known_level) from None

    def _pass_middlewares(self, one: Any, response: Response) -> Any:
        """Return what the spider middlewares make of an object. None: it is dropped. Raises _LayerError."""
        level = 0
        assert self._steps is not None
        try:
            for level, step in self._steps:  # noqa: B007 (the error handler reads the level)
                one = step(one, response)
                if one is None:
                    return None
        except Exception as error:
            raise _LayerError(error, level) from None
        return one

    async def _recover(self, error: Exception, level: int, response: Response, request: Request) -> None:
        """Let the spider middlewares outside of this level handle an error, as SpiderMiddlewareManager does; level 0 is
        the callback."""
        levels = [at for at, method in enumerate(self._manager.methods["process_spider_output"], start=1) if method]
        recovered: Any = None
        for start in (0, *levels):
            if start < level or getattr(error, "_spidermw_unhandled", False):
                continue
            try:
                recovered = self._manager._process_spider_exception(response, error, start)
                break
            except Exception as raised:
                error = raised
        if recovered is not None:
            await self._scraper.handle_spider_output_async(recovered, request, response)
            return
        try:
            raise error
        except Exception:
            self._scraper.handle_spider_error(_failure(), request, response)

    def _emit(self, one: Any, response: Response) -> Coroutine[Any, Any, None] | None:
        """Pass an object to the scheduler or the pipelines. Return what is left to do."""
        try:
            if isinstance(one, Request):
                self._engine.crawl(one)
                return None
            return self._items.begin(one, response)
        except Exception as error:
            # In Scrapy, the error ends a task.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "Task exception was never retrieved", "exception": error}
            )
            return None


async def _next_turn() -> float:
    """Let the event loop do other work. Return when the next turn is due."""
    await asyncio.sleep(0)
    return time.monotonic() + _TURN_SECONDS


class _LayerError(Exception):
    """Error of a callback or a spider middleware."""

    def __init__(self, error: Exception, level: int) -> None:
        super().__init__()
        self.error = error
        self.level = level
        """Position of the middleware, from 1; 0: the callback."""


def _has_stock_output(middleware: BaseSpiderMiddleware, method: Any) -> bool:
    """Return whether a spider middleware does to single objects what BaseSpiderMiddleware or DepthMiddleware does."""
    kind = type(middleware)
    function = getattr(method, "__func__", None)
    if not owns_none_of(middleware, ("process_spider_output", "process_spider_output_async", "_get_processed")):
        return False
    if kind._get_processed is not BaseSpiderMiddleware._get_processed:
        return False
    if isinstance(middleware, DepthMiddleware):
        owner: type = DepthMiddleware
    else:
        owner = BaseSpiderMiddleware
    names = ("process_spider_output", "process_spider_output_async")
    return (
        function is vars(owner)[names[1]]
        and all(getattr(kind, name) is vars(owner)[name] for name in names)
        and all(is_scrapys(vars(owner)[name]) for name in names)
        and is_scrapys(BaseSpiderMiddleware._get_processed)
    )


def _referer_step(middleware: BaseSpiderMiddleware) -> Step | None:
    """Return a step that does what RefererMiddleware does, if this is that middleware with Scrapy's default policy."""
    names = ("policy", "get_processed_request", "get_processed_item", "_get_processed")
    if (
        not isinstance(middleware, RefererMiddleware)
        or not is_stock(middleware, RefererMiddleware, names)
        or middleware.default_policy is not DefaultReferrerPolicy
        or not all(is_scrapys(inspect.getattr_static(DefaultReferrerPolicy, name)) for name in _POLICY)
    ):
        return None
    process = middleware._get_processed

    def step(one: Any, response: Response) -> Any:
        if not isinstance(one, Request):
            return one
        if (
            (one._meta and "referrer_policy" in one._meta)
            or dict.__contains__(response.headers, b"Referrer-Policy")
            or one.headers.encoding != "utf-8"
            or not one.url.startswith(("https:", "http:"))
        ):
            return process(one, response)
        referrer = _default_referrer(response.url, one.url.startswith("https:"))
        if referrer is not None and not dict.__contains__(one.headers, b"Referer"):
            dict.__setitem__(one.headers, b"Referer", [referrer])
        return one

    return step


@lru_cache(maxsize=64)  # one for each page that is being handled
def _default_referrer(url: str, is_secure: bool) -> bytes | None:
    """Return the header that requests of a page get by Scrapy's default policy, which looks at their scheme only."""
    referrer = DefaultReferrerPolicy().referrer(url, "https://a.test/" if is_secure else "http://a.test/")
    return None if referrer is None else referrer.encode()


def _failure() -> Failure:
    """Return the error that is being handled."""
    return Failure()  # type: ignore[no-untyped-call]


def _invalid(method: Any, result: object) -> Exception:
    from scrapy.exceptions import _InvalidOutput

    return _InvalidOutput(f"{global_object_name(method)} must return None or raise an exception, got {type(result)}")
