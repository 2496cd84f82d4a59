"""Scrapy extension that measures the crawl stage by stage: `EXTENSIONS = {"gossamer.scrapy.PerformanceView": 0}`.

It works with Scrapy's own scheduler and with the shared frontier. A thread reads the lengths of the engine's queues;
only responses and items cost the event loop anything. The parts of the engine that it reads have no public interface:
where one is missing, its number is 0. Fixed: the extension changes nothing in a crawl. It only reads, except that it
passes `next_request` of the scheduler on, to know which requests are the scheduler's.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.reactor import is_reactor_installed

from gossamer.model import DATA_DIR
from gossamer.model.performance import Counts, MeasuredProcess, Measurement, Occupancy, Recording, StageLimits, Waiting
from gossamer.policy.diagnosis import diagnose
from gossamer.telemetry.performance import PerformanceRecorder
from gossamer.telemetry.recordings import COLUMNS, FOLDER, log_limits, log_row, this_process

log = logging.getLogger(__name__)

_LOG_SECONDS = 5.0
"""Default of GOSSAMER_PERFORMANCE_LOG."""
_ROWS_PER_HEADING = 20
"""Lines of the log after which the headings come again."""


class PerformanceView:
    """Extension that measures the crawl, writes the figures to the log and keeps them for `gossamer top` and
    `gossamer diagnose`."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        view = cls(crawler)
        crawler.signals.connect(view.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(view.spider_closed, signal=signals.spider_closed)
        return view

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._stages: _EngineStages | None = None
        self._recorder: PerformanceRecorder | None = None
        self._table = _LogTable(_setting_seconds(crawler))

    def spider_opened(self, spider: Spider) -> None:
        """Begin to measure."""
        settings = self._crawler.settings
        self._stages = _EngineStages(self._crawler)
        limits = StageLimits(
            requests=settings.getint("CONCURRENT_REQUESTS"),
            site_requests=settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"),
            items=settings.getint("CONCURRENT_ITEMS"),
            bytes=settings.getint("SCRAPER_SLOT_MAX_ACTIVE_SIZE"),
            delay=settings.getfloat("DOWNLOAD_DELAY"),
            throttled=settings.getbool("AUTOTHROTTLE_ENABLED"),
            shared=hasattr(self._stages.scheduler, "is_capped"),
        )
        process = this_process(spider.name, "scrapy", limits, getattr(spider, "benchmark_knobs", None))
        data_dir = settings.get("GOSSAMER_DATA_DIR") or os.environ.get("GOSSAMER_DATA_DIR") or DATA_DIR
        self._recorder = PerformanceRecorder(
            process, self._stages, Path(data_dir) / FOLDER, on_measurement=self._table.add
        )
        self._table.begin(process)
        self._recorder.start()

    def spider_closed(self, spider: Spider) -> None:
        """End the recording, and log what limited the crawl."""
        if self._recorder is None or self._stages is None:
            return
        self._recorder.stop()
        self._stages.close()
        recording = self._recorder.recording()
        self._add_stats(recording)
        finding = diagnose(recording)
        if finding is not None:
            path = self._recorder.path
            more = f". More: gossamer diagnose {path}" if path is not None else ""
            log.info("Performance: %s%s", finding.summary, more)

    def _add_stats(self, recording: Recording) -> None:
        """Add the sums to Scrapy's statistics."""
        stats = self._crawler.stats
        if stats is None or not recording.measurements:
            return
        whole = recording.measurements[0]
        for each in recording.measurements[1:]:
            whole = whole.plus(each)
        stats.set_value("performance/cpu_seconds", round(whole.cpu, 2))
        stats.set_value("performance/blocked_seconds", round(whole.blocked * whole.seconds, 2))
        stats.set_value("performance/longest_lag_seconds", whole.longest_lag)


def _setting_seconds(crawler: Crawler) -> float:
    """Return the interval of the lines in the log. 0: no lines."""
    given = crawler.settings.get("GOSSAMER_PERFORMANCE_LOG", os.environ.get("GOSSAMER_PERFORMANCE_LOG"))
    return _LOG_SECONDS if given in (None, "") else max(0.0, float(given))


class _LogTable:
    """Rows of figures in the log, with headings now and then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows = 0
        self._sum: Measurement | None = None
        self._process: MeasuredProcess | None = None

    def begin(self, process: MeasuredProcess) -> None:
        """Log the limits, which `gossamer diagnose` reads."""
        self._process = process
        if self._seconds:
            log.info("Performance: %s", log_limits(process))

    def add(self, measurement: Measurement) -> None:
        """Log a row, if it is time for one."""
        if not self._seconds:
            return
        self._sum = measurement if self._sum is None else self._sum.plus(measurement)
        if self._sum.seconds > self._seconds - 0.1:
            process = self._process
            if self._rows % _ROWS_PER_HEADING == 0:
                if self._rows and process is not None:  # a log may be cut, or one file of several
                    log.info("Performance: %s", log_limits(process))
                log.info("Performance: %s", COLUMNS)
            log.info("Performance: %s", log_row(self._sum, process.pid if process is not None else 0))
            self._rows += 1
            self._sum = None


class _EngineStages:
    """Reads the stages of a crawler's engine, for the recorder's thread."""

    def __init__(self, crawler: Crawler) -> None:
        self._counts = Counts()
        self._crawler = crawler
        self._engine: Any = crawler.engine
        self._page_requests: WeakSet[Request] = WeakSet()
        self._received: WeakKeyDictionary[Response, float] = WeakKeyDictionary()
        self._call_soon = _loop_call()
        self.scheduler: Any = None
        """The scheduler of the crawl. None: it is not known, or not read any more."""
        connect = crawler.signals.connect
        connect(self._response_received, signal=signals.response_received)
        connect(self._item_scraped, signal=signals.item_scraped)
        connect(self._item_lost, signal=signals.item_dropped)
        connect(self._item_lost, signal=signals.item_error)
        self._watch_scheduler()

    def _watch_scheduler(self) -> None:
        """Mark the requests that the scheduler gives out."""
        scheduler = getattr(getattr(self._engine, "_slot", None), "scheduler", None)
        if scheduler is None:
            return
        self.scheduler = scheduler
        original = scheduler.next_request
        counts, page_requests = self._counts, self._page_requests

        def next_request() -> Request | None:
            request: Request | None = original()
            if request is not None:
                counts.requested += 1
                page_requests.add(request)
            return request

        scheduler.next_request = next_request

    @property
    def counts(self) -> Counts:
        """Return the counters, with those that Scrapy's statistics have. Without DOWNLOADER_STATS, they are 0."""
        counts, stats = self._counts, self._crawler.stats
        known = stats.get_stats().copy() if stats is not None else {}  # a copy, because the event loop goes on counting
        errors = known.get("downloader/exception_count", 0)
        by_status = {
            key.removeprefix(_STATUS_STATS): count for key, count in known.items() if key.startswith(_STATUS_STATS)
        }
        counts.attempts = errors + sum(by_status.values())
        counts.failed = errors + sum(count for status, count in by_status.items() if status[:1] in ("4", "5"))
        counts.redirected = sum(count for status, count in by_status.items() if status[:1] == "3")
        return counts

    def close(self) -> None:
        """Let the scheduler be as it was."""
        if self.scheduler is not None:
            self.scheduler.__dict__.pop("next_request", None)
            self.scheduler = None

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the event loop call this."""
        self._call_soon(call)

    def occupancy(self) -> Occupancy:
        """Return what is in the stages."""
        downloader, slot = self._engine.downloader, self._engine.scraper.slot
        active = len(downloader.active)
        is_full = 0 < downloader.total_concurrency <= active
        sites = [one for one in tuple(downloader.slots.values())[:_SLOTS_READ] if one.active]
        found = Occupancy(
            active,
            sum(len(one.transferring) for one in sites),
            is_downloader_full=is_full,
            is_resting=getattr(self.scheduler, "is_resting", False),
            is_capped=getattr(self.scheduler, "is_capped", False),
            sites=len(sites),
            site_places=sum(one.concurrency for one in sites),
        )
        if slot is None:
            return found
        return found._replace(
            scraper=len(slot.active) + len(slot.queue),
            pipelines=slot.itemproc_size,
            held_bytes=slot.active_size,
            is_bytes_full=slot.active_size > slot.max_active_size,
        )

    def waiting(self) -> Waiting:
        """Return the scheduler's length, and how many requests in the downloader are the scheduler's."""
        scheduler, pages = self.scheduler, self._page_requests
        length = len(scheduler) if hasattr(scheduler, "__len__") else 0
        if getattr(scheduler, "is_capped", False) or getattr(scheduler, "is_resting", False):
            length = max(1, length)  # the length of a frontier is some seconds old
        return Waiting(length, sum(request in pages for request in self._engine.downloader.active.copy()))

    def _response_received(self, response: Response, request: Request) -> None:
        counts = self._counts
        seconds = request.meta.get("download_latency", 0.0)
        counts.responses += 1
        counts.response_seconds += seconds
        counts.response_bytes += len(response.body)
        if seconds and (seconds < counts.fastest_response or not counts.fastest_response):
            counts.fastest_response = seconds
        if request in self._page_requests:
            counts.page_responses += 1
            self._received[response] = time.monotonic()

    def _item_scraped(self, response: Response | None) -> None:
        counts = self._counts
        counts.items += 1
        received = self._received.get(response) if response is not None else None
        if received is not None:
            seconds = time.monotonic() - received
            counts.item_seconds += seconds
            if seconds < counts.fastest_item or not counts.fastest_item:
                counts.fastest_item = seconds

    def _item_lost(self) -> None:
        self._counts.lost_items += 1


_STATUS_STATS = "downloader/response_status_count/"
"""Beginning of the names of Scrapy's counters of responses by status; set by Scrapy."""
_SLOTS_READ = 200
"""Sites whose requests are counted one by one, of any number. More cost CPU in crawls of many sites."""


def _loop_call() -> Callable[[Callable[[], None]], object]:
    """Return a function that has the running event loop call something, from any thread."""
    if is_reactor_installed():
        from twisted.internet import reactor

        call: Callable[[Callable[[], None]], object] = reactor.callFromThread
        return call
    return asyncio.get_running_loop().call_soon_threadsafe
