"""Scrapy's scheduler over the shared frontier."""

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scheduler import Scheduler as ScrapysOwn
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.statscollectors import StatsCollector
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.commit.committer import CommitLimits, Committer
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import BadInput, CrawlRefused, FrontierError, FrontierUnavailable
from gossamer.frontier.base import AddResult, Frontier, Lane, RunFinished
from gossamer.model.crawl import Crawl, CrawlState, Run, Terms
from gossamer.model.request import Batch
from gossamer.scrapy.addon import DupefilterView
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.entries import EntryEncoder
from gossamer.scrapy.inbox import Inbox, StartOnce
from gossamer.scrapy.lease_runner import LeaseRunner
from gossamer.scrapy.leasing import LeaseFetcher
from gossamer.scrapy.live import CURRENT, LiveRequests, Part, part_of, refuse, runs_alone
from gossamer.scrapy.options import LaneOptions, read
from gossamer.scrapy.stored import Unstorable
from gossamer.scrapy.throttle import SharedThrottle
from gossamer.sinks.base import Fanout, Sink
from gossamer.wiring.frontier import connect

_LOADED = time.monotonic()
_last_end = float("-inf")


async def join(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    """Return the run that this process works on, with this project's requested rate and concurrency.

    `fresh`: the run after a finished one has seen nothing. A run that finished since this process was started is the
    process's own, and its start requests are duplicates there: processes that were started together are one run,
    however long each takes to load. Raises CrawlRefused for a crawl that was stopped or has expired.
    """
    try:
        run = await _joined(frontier, crawl, fresh=fresh)
    except RunFinished as finished:
        return finished.run
    if (run.crawl.rate, run.crawl.concurrency) != (crawl.rate, crawl.concurrency):
        run = await frontier.set_crawl_limits(run, rate=crawl.rate, concurrency=crawl.concurrency)
    return run


async def _joined(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    if not fresh:
        return await frontier.open_crawl(crawl, process_age_seconds=age_seconds())
    while True:
        try:
            return await frontier.open_crawl(crawl, fresh=True, process_age_seconds=age_seconds())
        except CrawlRefused:
            info = await frontier.crawl_info(crawl.id)
            if info is not None and info.state not in (CrawlState.RUNNING, CrawlState.FINISHED):
                raise
        # Another process began it, or it is not finished yet.
        if info is not None and info.state is CrawlState.RUNNING:
            return await frontier.open_crawl(crawl, process_age_seconds=age_seconds())


def age_seconds() -> float:
    """Return the seconds since this process was started, or since a crawl in it last ended.

    A program may crawl several times in one process; then each crawl is started by the end of the one before.
    """
    now = time.monotonic()
    return min(max(_process_age(), now - _LOADED), now - _last_end)


def note_end() -> None:
    """Remember that a crawl of this process has ended."""
    global _last_end
    _last_end = time.monotonic()


def _process_age() -> float:
    """Seconds since the process was started; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


log = logging.getLogger(__name__)

T = TypeVar("T")

_ARRIVAL_SECONDS = 30.0
"""How long a process that is being started waits for a frontier that does not answer. An outage has mostly passed by
then; an address that is wrong is told."""
_CLOSING_SECONDS = 30.0
_ANNOUNCE_SECONDS = 5.0


class Scheduler(LeaseRunner, BaseScheduler):
    """Many processes behave as one spider: they share one frontier, lose nothing, and fetch nothing twice.

    A request is leased from the frontier and stays so until its callback is exhausted, its items are through the
    pipelines and its requests are in the frontier; a process that dies before that loses nothing. None of its methods
    waits for the network: leases are fetched ahead by a task, what is to be stored goes in batches.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Raises BadInput, with the setting's name. `scrapy shell`, `fetch`, `parse` and `check` get Scrapy's own."""
        if runs_alone(crawler):
            return ScrapysOwn.from_crawler(crawler)  # type: ignore[return-value]
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.spider is not None
        engine = EngineDoor(crawler.engine)
        try:
            options = self._read(crawler)
            engine.check()
        except BadInput as error:
            refuse(error)
        super().__init__(crawler, engine, options)
        self._refused = 0
        self._waiting = 0
        self._known = DupefilterView(crawler, self._is_known)
        self._task: asyncio.Future[Any] | None = None
        self._ending: asyncio.Future[None] | None = None

    _part: Part
    """Of what `start` asks for."""

    # --- what those that come from elsewhere change -------------------------------------------------------------------

    def _read(self, crawler: Crawler) -> LaneOptions:
        """What the project wants. Raises BadInput."""
        assert crawler.spider is not None
        return read(crawler.settings, crawler.spider)

    async def _about_to_join(self, frontier: Frontier) -> None:
        """May change `options`. Raises BadInput and FrontierError."""

    async def _join(self, frontier: Frontier) -> Run:
        """The run that this process is for. Raises CrawlRefused and FrontierError."""
        return await join(frontier, self.options.crawl, fresh=self.options.fresh)

    async def _output(self) -> Sink:
        """Where the records of what ended go."""
        return Fanout([])

    def _purpose(self, run: Run) -> str:
        """What this process does, for people."""
        return f"Crawling {run.crawl.id}, run {run.number}"

    async def _joined(self, run: Run, entries: EntryEncoder) -> EntryEncoder:
        """What makes entries of requests. Raises FrontierError."""
        return entries

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, spider: Spider) -> "Deferred[None]":
        """Join the crawl. Raises FrontierUnavailable and FrontierIncompatible. A stopped crawl closes the spider."""
        return deferred_from_coro(self._open(spider))

    async def _open(self, spider: Spider) -> None:
        settings = self.options.settings
        try:
            self.frontier = frontier = await self._arrive(lambda: connect(settings, settings.frontier))
            await self._about_to_join(frontier)
        except (BadInput, FrontierError) as error:
            refuse(error)
        options = self.options
        self._crawler.signals.connect(self._spider_idle, signal=signals.spider_idle)
        try:
            run = await self._arrive(lambda: self._join(frontier))
            await self._arrive(lambda: frontier.spiders.announce(Lane.SCRAPY, [spider.name]))
            self.holder = await self._arrive(
                lambda: frontier.open_leaseholder(
                    pool=options.crawl.pool, spiders=[spider.name], egress=settings.egress
                )
            )
        except CrawlRefused as refused:
            await frontier.close()
            log.error("%s. Nothing is crawled; another GOSSAMER_CRAWL_ID begins another crawl.", refused)
            self._closing = True
            return
        except BaseException:
            await frontier.close()
            raise
        entries = EntryEncoder(spider, frontier=frontier, fingerprinter=self._crawler.request_fingerprinter)
        self._entries = await self._joined(run, entries)
        self._part = part_of(run)
        self._once = StartOnce(frontier, self._retrier, run, self._crawler)
        self._committer = Committer(
            frontier, self.holder, await self._output(), self._retrier, CommitLimits(linger_seconds=0.002)
        )
        self._committer.on_committed = self._committed
        self._inbox = Inbox(
            frontier,
            self._retrier,
            run,
            Terms(),
            sift=self._sift,
            added=self._start_added,
            refused=self._start_refused,
        )
        self._session = WorkerSession(frontier, self.holder, self._retrier, heartbeat_seconds=settings.worker.heartbeat)
        self._leasing = LeaseFetcher(
            frontier,
            self.holder,
            self._session,
            options.crawl.id,
            room=self._room,
            give=self._give,
            idle=self._is_idle,
            tell=self._over,
        )
        self._engine.surround(self._around)
        self._engine.hold_back_start(self._start_room, self._once.wants_item)
        self._engine.unthrottle()
        self._engine.share_robots()
        self._engine.add_middleware(
            SharedThrottle(
                frontier,
                self.holder,
                self._retrier,
                run,
                spider.name,
                self._crawler.settings,
                send_by=self._send_by,
            )
        )
        self._crawler.signals.connect(self._spider_error, signal=signals.spider_error)
        self._task = asyncio.gather(
            self._session.run(),
            self._leasing.run(),
            self._committer.run(),
            self._inbox.run(),
            self._announce(),
            self._once.run(),
        )
        self._task.add_done_callback(self._broke)
        # What is there by now stays: the collector need not look at all of Scrapy again and again, 50 ms at a time.
        gc.collect()
        gc.freeze()
        log.info("%s, as %s", self._purpose(run), self.holder.worker)

    async def _arrive(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of a call that opening needs, also where the frontier is away for a moment.

        Raises FrontierUnavailable when it was away for `_ARRIVAL_SECONDS`.
        """
        failure = FrontierUnavailable(f"it did not answer within {_ARRIVAL_SECONDS:g} s")

        async def attempt() -> T:
            nonlocal failure
            try:
                return await call()
            except FrontierUnavailable as error:
                failure = error
                raise

        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                return await self._retrier.call_frontier(attempt)
        except TimeoutError:
            raise failure from None

    async def _announce(self) -> None:
        """Keep this spider's name announced, learn of others', and count what waits. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            await self._retrier.call_frontier(
                lambda: self.frontier.spiders.announce(Lane.SCRAPY, [self._spider.name]), shard=0
            )
            with contextlib.suppress(FrontierUnavailable):  # the last count will do
                self._waiting = await self._count_waiting()

    def close(self, reason: str) -> "Deferred[None]":
        """Give back what was not started, commit what is done, leave. Never touches what others work on."""
        return deferred_from_coro(self._close())

    async def _close(self) -> None:
        if self._task is None:
            return
        self._closing = True
        self._give_back_ready()
        self._committer.stop_lingering()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._inbox.drained()
                await asyncio.gather(*self._tasks, return_exceptions=True)  # `_broke` has told of those
                await self._committer.wait_until_drained()
                await self._once.note_done()
        left = self._committer.pending + self._inbox.pending
        if left:
            log.error("%d requests could not be reported; the frontier gives them to others.", left)
        note_end()
        self._task.remove_done_callback(self._broke)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.holder.close()
        await self.frontier.close()

    def _broke(self, task: "asyncio.Future[Any]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.critical("The frontier's part of this process ended: %s", fault, exc_info=fault)
            if not self._closing:
                self._closing = True
                self._end_spider("frontier_failed")

    def _over(self) -> None:
        """The crawl is over or goes on again. One that was stopped ends whatever the spider waits for: a `start` that
        never ends, a `spider_idle` that wants to stay."""
        if self._leasing.over and self.frontier.lost_shards:
            log.error("The frontier lost its data: its server was emptied, or restarted without them.")
            self._end_spider("frontier_lost")
        elif self._leasing.over and self.stopped:
            self._end_spider(str(self._leasing.state))
        else:
            self._engine.wake()

    def _end_spider(self, reason: str) -> None:
        assert self._crawler.engine is not None
        # None of `_tasks`: closing waits for those.
        self._ending = asyncio.ensure_future(self._crawler.engine.close_spider_async(reason=reason))

    async def _start_room(self) -> None:
        """Return when the next of `start` may come: never when the spider closes, which would wait for the last."""
        await self._inbox.room()
        if self._closing:
            await asyncio.Event().wait()

    async def stored(self) -> bool:
        """Return when all start requests so far are in the frontier. False: one of them was refused, for the crawl was
        stopped meanwhile; it is dropped."""
        refused = self._refused
        await self._inbox.drained()
        return self._refused == refused

    @property
    def closing(self) -> bool:
        """Whether it takes no more start requests."""
        return self._closing or self._task is None

    @property
    def stopped(self) -> bool:
        """Whether the crawl was stopped or has expired, as far as is known here."""
        return self._task is None or self._leasing.state in (CrawlState.STOPPED, CrawlState.EXPIRED)

    # --- what extensions read -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Requests of the crawl that wait: those of this process, and in the frontier as many as a few seconds ago."""
        return self._waiting + len(self._ready) + self._inbox.pending if self._task is not None else 0

    def __bool__(self) -> bool:
        return True

    @property
    def stats(self) -> StatsCollector:
        """The crawler's."""
        return self._stats

    @property
    def df(self) -> DupefilterView:
        """Answers whether this process knows a request as seen; the frontier does the dedupe."""
        return self._known

    async def _count_waiting(self) -> int:
        info = await self.frontier.crawl_info(self.options.crawl.id)
        return info.total().queued if info is not None else 0

    # --- what Scrapy asks ---------------------------------------------------------------------------------------------

    def has_pending_requests(self) -> bool:
        """Whether the crawl goes on, here or anywhere. False: it is finished, stopped or expired, for all."""
        if self._task is None:
            return False
        return not self._leasing.over or self._local.pending

    def drops(self, request: Request) -> bool:
        """Whether it would drop this link of the page at hand as known; if so, it counts as dropped."""
        parent = CURRENT.get()
        if not self._filters(request) or parent is None or parent.over or self._task is None:
            return False
        try:
            name = self._entries.name(request)
        except Unstorable:
            return False
        if not self._seen.has_seen(parent.part, name.fingerprint):
            return False
        parent.known += 1
        self._stats.inc_value("dupefilter/filtered")
        return True

    def _is_known(self, request: Request) -> bool:
        if self._task is None:
            return False
        parent = CURRENT.get()
        try:
            name = self._entries.name(request)
        except Unstorable:
            return False
        return self._seen.has_seen(self._part if parent is None else parent.part, name.fingerprint)

    def _filters(self, request: Request) -> bool:
        return self.options.dedupe and not request.dont_filter

    def enqueue_request(self, request: Request) -> bool:
        """Store a request. False: it is known to be a duplicate. Whether others know it turns out in the frontier."""
        if self._task is None:
            return False
        parent = CURRENT.get()
        if parent is not None and parent.over:
            parent = None
        self._stats.inc_value("scheduler/enqueued")
        filtered = self._filters(request)
        try:
            name = self._entries.name(request)
            # Most links of most pages are known: nothing more is made of them.
            if (
                parent is not None
                and not parent.moving
                and filtered
                and self._seen.has_seen(parent.part, name.fingerprint)
            ):
                parent.known += 1
                self._stats.inc_value("dupefilter/filtered")
                return False
            entry = self._entries.of(request, name)
        except Unstorable as why:
            return self._keep(request, parent, why)
        except Exception:
            # A fingerprinter of the project's own: what it breaks on is no page that went well.
            if parent is not None:
                parent.fail("spider_error")
            raise
        if parent is None:
            # Start requests are for the crawl, not for each of its processes.
            start = request.meta.get("is_start_request", False)
            self._inbox.put(entry, unfiltered=not filtered and not start)
            self._leasing.not_over()
        elif parent.moving:
            parent.successor = (request, entry)
        else:
            parent.add(entry, unfiltered=not filtered)
        return True

    def _keep(self, request: Request, parent: LiveRequests | None, why: Unstorable) -> bool:
        meta = request.meta
        again = meta.get("retry_times") or meta.get("redirect_times")
        if parent is None and meta.get("is_start_request") and not again:
            self._leasing.not_over()
            self._later(self._keep_once(request, why))
            return True
        kept = self._local.keep(request, parent, why, filtered=self._filters(request))
        self._stats.inc_value("scheduler/unserializable" if kept else "dupefilter/filtered")
        self._engine.wake()
        return kept

    async def _keep_once(self, request: Request, why: Unstorable) -> None:
        """Run a start request here that cannot be stored, unless another process does."""
        if await self._once.wants_request(request):
            self._stats.inc_value("scheduler/unserializable")
            self._local.keep(request, None, why, filtered=False)
        else:
            self._stats.inc_value("dupefilter/filtered")
        self._engine.wake()

    def _local_done(self, result: Any, request: Request) -> Any:
        self._once.request_ended(request)
        return super()._local_done(result, request)

    # --- signals ------------------------------------------------------------------------------------------------------

    def _spider_error(self, failure: Failure) -> None:
        if (live := CURRENT.get()) is not None:
            live.fail("spider_error")

    def _spider_idle(self) -> None:
        if self._task is None:
            raise CloseSpider("refused")
        if self.stopped:
            raise CloseSpider(str(self._leasing.state))
        if self.options.stay_open:
            raise DontCloseSpider

    def _start_added(self, added: AddResult, batches: Sequence[Batch], since: int) -> None:
        rejected = {batches[batch].fingerprints[position] for batch, position in added.rejected}
        self._remember(self._part, batches, since, rejected)
        if added.duplicates:
            self._stats.inc_value("dupefilter/filtered", added.duplicates)
        self._refused += sum(added.rejected_by_reason.values())
        self._leasing.want()

    def _start_refused(self, count: int, refused: CrawlRefused) -> None:
        log.error("%s. Requests dropped: %d.", refused, count)
        self._refused += count
        self._leasing.want()
