"""Passes responses to the spider, and what the spider makes of them through spider middlewares and item pipelines.

Scrapy runs an asynchronous generator for each middleware and tasks with a queue for each page. Here, the objects of a
generator callback pass the middlewares in a loop, and an item whose pipelines do not wait needs no task.

Safe to change: how fast this is, and which pages are left to Scrapy's generators. Fixed: callbacks are run, middlewares
called and items processed in Scrapy's order, with the same errors; and no page keeps the event loop for itself longer
than Scrapy lets it.
"""

import asyncio
import inspect
import logging
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import lru_cache
from types import GeneratorType
from typing import Any, Final

import scrapy
from scrapy import Request, signals
from scrapy.core.scraper import Scraper
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.exceptions import DropItem, ScrapyDeprecationWarning
from scrapy.http import Response
from scrapy.pipelines import ItemPipelineManager
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware
from scrapy.spidermiddlewares.referer import DefaultReferrerPolicy, RefererMiddleware
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.misc import is_generator_with_return_value, warn_on_generator_with_return_value
from scrapy.utils.python import global_object_name
from scrapy.utils.spider import iterate_spider_output
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.scrapy.addon import KnownLinks
from gossamer.scrapy.shortcuts.middlewares import process_pending_io
from gossamer.scrapy.shortcuts.notices import LogLines, Signals
from gossamer.scrapy.shortcuts.parts import is_scrapys, is_stock, is_stock_method, owns_none_of

_log = logging.getLogger("scrapy.core.scraper")  # the name that users know from Scrapy's lines
_TURN_SECONDS: Final = 0.005
"""Time after which a page with many objects lets the event loop do other work. Tuning only: longer delays other
requests, shorter costs turns of the loop."""

_SCRAPER = (
    "_scrape", "call_spider_async", "handle_spider_error", "handle_spider_output_async",
    "_process_spidermw_output_async", "start_itemproc_async",
)  # fmt: skip
_MANAGER = (
    "_process_spider_input", "_process_spider_output", "_process_callback_output", "_evaluate_iterable",
    "_process_spider_exception", "scrape_response_async",
)  # fmt: skip
"""Methods of Scrapy that this module does the work of."""
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
        self._items = _Items(engine, notices, lines)
        self._quiet_callbacks: set[Any] = set()
        """Callbacks of which no warning is due."""
        self._seen_methods: Any = None
        self._inputs: list[tuple[Any, bool]] = []
        """Methods for responses, each with whether it does nothing if the status is that of a page."""
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
            if self._steps is None or isinstance(output, AsyncIterator):
                output = await self._manager._process_callback_output(
                    result, output if isinstance(output, AsyncIterator) else as_async_generator(output)
                )
        except Exception as error:
            try:
                await process_pending_io()
                output = self._manager._process_spider_exception(result, error)
            except Exception:
                self._scraper.handle_spider_error(_failure(), request, result)
                return
        if isinstance(output, AsyncIterator):
            await self._scraper.handle_spider_output_async(output, request, result)
        else:
            await self._pass_on(iter(output), result, request)

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

    async def _pass_on(self, output: Iterator[Any], response: Response, request: Request) -> None:
        """Pass all objects of a page through the spider middlewares, and to the scheduler or the pipelines."""
        running: set[asyncio.Future[None]] = set()
        began = time.monotonic()
        try:
            for begin in self._beginnings:
                begin(response)
            for one in self._processed(output, response):
                rest = self._emit(one, response)
                if rest is not None:
                    running.add(asyncio.ensure_future(rest))
                    if len(running) >= self._scraper.concurrent_items:
                        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() - began > _TURN_SECONDS:
                    await asyncio.sleep(0)
                    began = time.monotonic()
        except _LayerError as layer:
            await self._recover(layer.error, layer.level, response, request)
        finally:
            if running:
                await asyncio.wait(running)

    def _processed(self, output: Iterator[Any], response: Response) -> Iterator[Any]:
        """Yield the objects that pass all spider middlewares. Raises _LayerError."""
        level = 0
        steps = self._steps
        assert steps is not None
        known = None
        try:
            if self._known is not None:
                known = self._known.page_filter()
            for one in output:
                if known is not None and isinstance(one, Request):
                    level = self._known_level
                    if known(one):
                        level = 0
                        continue
                for level, step in steps:  # noqa: B007 (the error handler reads the level)
                    one = step(one, response)
                    if one is None:
                        break
                level = 0
                if one is not None:
                    yield one
                    if self._known is not None:
                        known = self._known.page_filter()
        except Exception as error:
            raise _LayerError(error, level) from None

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


@lru_cache(maxsize=64)  # one for each page that is being handled; may be changed freely
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


class _Items:
    """Passes items through the pipelines."""

    def __init__(self, engine: Any, notices: Signals, lines: LogLines) -> None:
        self._crawler = engine.crawler
        self._scraper: Scraper = engine.scraper
        self._notices = notices
        self._lines = lines
        pipelines = engine.scraper.itemproc
        names = ("process_item_async", "_process_chain", "_add_middleware")
        self._pipelines: ItemPipelineManager = pipelines
        self._is_stock = is_stock(pipelines, ItemPipelineManager, names)

    def begin(self, item: Any, response: Response) -> Coroutine[Any, Any, None] | None:
        """Do what `Scraper.start_itemproc_async` does, as far as nothing waits. Return the rest, if there is one."""
        if not self._is_stock:
            return self._scraper.start_itemproc_async(item, response=response)
        slot = self._scraper.slot
        assert slot is not None
        slot.itemproc_size += 1
        rest: Coroutine[Any, Any, None] | None = None
        try:
            rest = self._process(item, response)
        finally:
            if rest is None:
                slot.itemproc_size -= 1
        return rest

    def _process(self, item: Any, response: Response) -> Coroutine[Any, Any, None] | None:
        needing_spider = self._pipelines._mw_methods_requiring_spider
        output = item
        try:
            for position, method in enumerate(self._pipelines.methods["process_item"]):
                assert method is not None
                result = method(output, self._crawler.spider) if method in needing_spider else method(output)
                if result is not output and (isinstance(result, Deferred) or inspect.isawaitable(result)):
                    return self._finish(item, result, position, response)
                output = result
        except Exception as error:
            return self._finish_failed(item, error, response)
        waiting = self._scraped(output, response)
        return None if waiting is None else self._end_with(waiting)

    async def _finish(self, item: Any, result: Any, position: int, response: Response) -> None:
        """Wait for the pipeline at this position, then pass the item through the others."""
        slot = self._scraper.slot
        assert slot is not None
        methods = list(self._pipelines.methods["process_item"])
        needing_spider = self._pipelines._mw_methods_requiring_spider
        try:
            try:
                output = await ensure_awaitable(result, _warn=global_object_name(methods[position]))
                for method in methods[position + 1 :]:
                    assert method is not None
                    result = method(output, self._crawler.spider) if method in needing_spider else method(output)
                    output = await ensure_awaitable(result, _warn=global_object_name(method))
            except Exception as error:
                await self._fail(item, error, response)
            else:
                waiting = self._scraped(output, response)
                if waiting is not None:
                    await waiting
        finally:
            slot.itemproc_size -= 1

    async def _finish_failed(self, item: Any, error: Exception, response: Response) -> None:
        slot = self._scraper.slot
        assert slot is not None
        try:
            await self._fail(item, error, response)
        finally:
            slot.itemproc_size -= 1

    async def _end_with(self, waiting: Awaitable[Any]) -> None:
        """Wait for the receivers of a signal."""
        slot = self._scraper.slot
        assert slot is not None
        try:
            await waiting
        finally:
            slot.itemproc_size -= 1

    def _scraped(self, output: Any, response: Response) -> Awaitable[Any] | None:
        """Log the item and send the signal. Return what is left to wait for."""
        spider = self._crawler.spider
        self._lines.scraped(output, response, spider, self._extra)
        return self._notices.send_to_all(signals.item_scraped, item=output, response=response, spider=spider)

    def _extra(self, item: Any) -> dict[str, Any]:
        """Return further attributes of the log lines about an item."""
        spider = self._crawler.spider
        return {"spider": spider, "item": item} if scrapy.version_info[:2] >= (2, 19) else {"spider": spider}

    async def _fail(self, item: Any, error: Exception, response: Response) -> None:
        """Log the item that a pipeline has dropped or failed with, and send the signal."""
        spider, formatter = self._crawler.spider, self._scraper.logformatter
        try:
            raise error
        except DropItem as drop:
            line = formatter.dropped(item, drop, response, spider)
            if line is not None:
                _log.log(*logformatter_adapter(line), extra=self._extra(item))
            waiting = self._notices.send_to_all(
                signals.item_dropped, item=item, response=response, spider=spider, exception=drop
            )
        except Exception as fault:
            line = formatter.item_error(item, fault, response, spider)
            _log.log(*logformatter_adapter(line), extra=self._extra(item), exc_info=True)
            waiting = self._notices.send_to_all(
                signals.item_error, item=item, response=response, spider=spider, failure=_failure()
            )
        if waiting is not None:
            await waiting
