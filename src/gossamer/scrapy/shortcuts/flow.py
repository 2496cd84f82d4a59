"""Runs a request in one task: downloader middlewares, download, callback, pipelines.

Scrapy runs `ExecutionEngine._download`, `Downloader.fetch`, `Downloader._enqueue_request`, `Scraper.enqueue_scrape` and
others with Deferreds and tasks of their own. The sets of active requests, the signals and the log lines of all these
are kept here.

Fixed: the order of these, and that an engine, a downloader or a scraper that the project has replaced, changed or
wrapped is used in Scrapy's way.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from scrapy import Request, signals
from scrapy.core.downloader import Downloader
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Scraper
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.signalmanager import SignalManager
from scrapy.utils.log import failure_to_exc_info
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from gossamer.scrapy.download_handler import DownloadHandler
from gossamer.scrapy.shortcuts.middlewares import Middlewares, process_pending_io
from gossamer.scrapy.shortcuts.notices import LogLines, Signals
from gossamer.scrapy.shortcuts.pages import Pages
from gossamer.scrapy.shortcuts.parts import is_known_version, is_stock

log = logging.getLogger(__name__)
_engine_log = logging.getLogger("scrapy.core.engine")  # the names that users know from Scrapy's lines
_scraper_log = logging.getLogger("scrapy.core.scraper")

ResultHandler = Callable[[Any, Request], "Deferred[None]"]

_ENGINE = ("_start_scheduled_requests", "_download", "_remove_request", "crawl", "_schedule_request", "needs_backout")
_DOWNLOADER = ("fetch", "_enqueue_request", "_process_queue", "_download", "_wait_for_download", "needs_backout")
_MIDDLEWARES = ("download_async", "_process_request", "_process_response", "_process_exception", "_handle_mw_method")
_HANDLERS = ("download_request_async", "_get_handler")
_SCRAPER = ("enqueue_scrape", "_scrape_next", "_wait_for_processing")
_SIGNALS = ("send_catch_log", "send_catch_log_async", "connect")
"""Methods of Scrapy that this module does the work of."""


def is_engine_stock(engine: Any) -> bool:
    """Return whether the engine starts requests, and handles their results, in Scrapy's way."""
    return is_stock(engine, ExecutionEngine, ("_start_scheduled_request", "_handle_downloader_output"))


def is_possible(engine: Any) -> bool:
    """Return whether requests may take the short way: all parts that it replaces are Scrapy's own."""
    downloader = engine.downloader
    return (
        is_known_version()
        and is_stock(engine, ExecutionEngine, _ENGINE)
        and not engine._downloader_fetch_needs_spider
        and is_stock(downloader, Downloader, _DOWNLOADER)
        and is_stock(downloader.middleware, DownloaderMiddlewareManager, _MIDDLEWARES)
        and is_stock(downloader.handlers, DownloadHandlers, _HANDLERS)
        and is_stock(engine.scraper, Scraper, _SCRAPER)
        and is_stock(engine.signals, SignalManager, _SIGNALS)
        and downloader.signals is engine.signals
        and engine.scraper.signals is engine.signals
    )


class Flow:
    """Runs the requests of one crawler."""

    def __init__(self, engine: Any, wrapper: Callable[[Any, Request, ResultHandler], "Deferred[None]"]) -> None:
        """`wrapper(result, request, original)`: called where the engine would call its result handler, `original`."""
        self._engine = engine
        self._crawler = engine.crawler
        self._wrapper = wrapper
        self._notices = Signals(engine.signals.sender)
        self._lines = LogLines(engine.crawler, engine.logformatter)
        self._middlewares = Middlewares(engine.downloader.middleware)
        self._pages = Pages(engine, self._notices, self._lines)
        self._tasks: set[asyncio.Task[None]] = set()
        engine._schedule_request = self._schedule_request

    def start_request(self) -> bool:
        """Do what `ExecutionEngine._start_scheduled_request` does."""
        engine = self._engine
        slot = engine._slot
        request = slot.scheduler.next_request()
        if request is None:
            self._notices.send(signals.scheduler_empty)
            return False
        slot.add_request(request)
        engine.downloader.active.add(request)
        task = asyncio.get_running_loop().create_task(self._run(request, slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def _schedule_request(self, request: Request) -> None:
        """Do what `ExecutionEngine._schedule_request` does."""
        engine = self._engine
        if self._middlewares.lets_schedule(request, self._notices.receivers(signals.request_scheduled)):
            results = []
        else:
            results = self._notices.send(
                signals.request_scheduled, dont_log=(IgnoreRequest,), request=request, spider=engine.spider
            )
        for _, result in results:
            if isinstance(result, Failure) and isinstance(result.value, IgnoreRequest):
                return
        if not engine._slot.scheduler.enqueue_request(request):
            self._notices.send(signals.request_dropped, request=request, spider=engine.spider)

    async def _run(self, request: Request, slot: Any) -> None:
        """Download a request and have its result handled."""
        try:
            result = await self._result(request, slot)
            await self._handle(result, request)
        except Exception:
            _engine_log.info(
                "Error while handling downloader output", exc_info=True, extra={"spider": self._engine.spider}
            )
        finally:
            slot.remove_request(request)
            slot.nextcall.schedule()

    # --- the download -------------------------------------------------------------------------------------------------

    async def _result(self, request: Request, slot: Any) -> Response | Request | Failure:
        """Do what `ExecutionEngine._download` does."""
        engine = self._engine
        try:
            try:
                result = await self._middlewares.download(request, self._enqueue)
            finally:
                engine.downloader.active.remove(request)
            if isinstance(result, Response):
                if result.request is None:
                    result.request = request
                self._lines.crawled(result.request, result, engine.spider)
                self._notices.send(
                    signals.response_received, response=result, request=result.request, spider=engine.spider
                )
        except Exception:
            return Failure()  # type: ignore[no-untyped-call]
        finally:
            slot.nextcall.schedule()
        return result

    async def _enqueue(self, request: Request) -> Response:
        """Do what `Downloader._enqueue_request` does."""
        downloader: Downloader = self._engine.downloader
        key, slot = downloader._get_slot(request)
        if slot.latercall or slot.queue or slot.free_transfer_slots() <= 0 or slot.download_delay():
            return await downloader._enqueue_request(request)
        request.meta[Downloader.DOWNLOAD_SLOT] = key
        slot.active.add(request)
        notices, spider = self._notices, self._crawler.spider
        try:
            notices.send(signals.request_reached_downloader, request=request, spider=spider)
            slot.lastseen = time.monotonic()
            slot.transferring.add(request)
            try:
                response = await self._transfer(downloader.handlers, request)
                notices.send(signals.response_downloaded, response=response, request=request, spider=spider)
                return response
            except Exception:
                await process_pending_io()
                raise
            finally:
                slot.transferring.remove(request)
                downloader._process_queue(slot)
                notices.send(signals.request_left_downloader, request=request, spider=spider)
        finally:
            slot.active.remove(request)

    async def _transfer(self, handlers: DownloadHandlers, request: Request) -> Response:
        handler = handlers._handlers.get(request.url.partition(":")[0])
        if type(handler) is DownloadHandler:
            return await handler.download_request(request)
        return await handlers.download_request_async(request)

    # --- the result ---------------------------------------------------------------------------------------------------

    async def _handle(self, result: Response | Request | Failure, request: Request) -> None:
        """Do what `ExecutionEngine._handle_downloader_output` does, as the wrapper decides."""
        waiting: list[Deferred[None]] = []

        def original(result: Any, request: Request) -> "Deferred[None]":
            if isinstance(result, Request):
                try:
                    self._engine.crawl(result)
                except Exception:
                    return fail()
                return succeed(None)
            done: Deferred[None] = Deferred()
            waiting.append(done)
            return done

        handled = self._wrapper(result, request, original)
        handled.addErrback(self._log_error)
        if not waiting:
            return
        assert not isinstance(result, Request)
        await self._scrape(result, request)
        waiting[0].callback(None)

    def _log_error(self, failure: Failure) -> None:
        _engine_log.info(
            "Error while handling downloader output",
            exc_info=failure_to_exc_info(failure),
            extra={"spider": self._engine.spider},
        )

    async def _scrape(self, result: Response | Failure, request: Request) -> None:
        """Do what `Scraper.enqueue_scrape` does."""
        scraper: Scraper = self._engine.scraper
        slot = scraper.slot
        assert slot is not None
        if slot.queue:  # its requests came first
            scraper._scrape_next()
        slot.add_response_request(result, request)
        slot.next_response_request_deferred()
        try:
            await self._pages.scrape(result, request)
        except Exception:
            _scraper_log.error(
                "Scraper bug processing %(request)s",
                {"request": request},
                exc_info=True,
                extra={"spider": self._crawler.spider},
            )
        finally:
            slot.finish_response(result, request)
            scraper._check_if_closing()
            scraper._scrape_next()
