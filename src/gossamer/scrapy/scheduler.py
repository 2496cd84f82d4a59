"""Scrapy's scheduler over the shared frontier."""

import asyncio
import contextlib
import gc
import logging
import time
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Self

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scheduler import Scheduler as ScrapysOwn
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.commit.committer import Committer
from gossamer.commit.finished import Finished
from gossamer.commit.patience import Patience
from gossamer.commit.seat import Seat
from gossamer.errors import BadInput, CrawlRefused, FrontierError, StaleWorker
from gossamer.frontier.base import Added, Frontier
from gossamer.model.crawl import CrawlState, Run, Terms
from gossamer.model.outcome import Dropped, Outcome
from gossamer.model.payload import Payload, unpack
from gossamer.model.record import Output
from gossamer.model.request import Batch, Lease, Settlement
from gossamer.scrapy.commands import refuse, runs_alone
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.entries import Entries, Entry
from gossamer.scrapy.feeds import Feeds
from gossamer.scrapy.inbox import Inbox
from gossamer.scrapy.join import join
from gossamer.scrapy.leasing import Leasing
from gossamer.scrapy.live import CURRENT, Live, append
from gossamer.scrapy.moves import move
from gossamer.scrapy.options import Options, read
from gossamer.scrapy.outcomes import Outcomes
from gossamer.scrapy.pace import Pace
from gossamer.scrapy.stored import Unreadable, Unstorable, restore
from gossamer.scrapy.throttle import SharedThrottle
from gossamer.sinks.base import Sink
from gossamer.sinks.fanout import Fanout
from gossamer.telemetry.troubles import Troubles
from gossamer.wiring.joining import connect
from gossamer.worker.seen_cache import SeenCache

log = logging.getLogger(__name__)

START_WITHIN_SECONDS = 0.2
"""A lease that could not be started within this goes back: its hit was meant for then, not for later."""

_TOO_MANY_DEATHS = 3
_PENDING_PAGES = 512
"""Finished requests that wait for the frontier; beyond it nothing more is leased."""
_CLOSING_SECONDS = 30.0
_UNSTORABLE_TOLD = 20


class Scheduler(BaseScheduler):
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
        assert crawler.stats is not None
        self._crawler = crawler
        self._spider: Spider = crawler.spider
        self._stats = crawler.stats
        self._engine = EngineDoor(crawler.engine)
        try:
            self.options: Options = self._read(crawler)
            self._engine.check()
        except BadInput as error:
            refuse(error)
        self._outcomes = Outcomes(crawler.spider, crawler.settings)
        self._feeds = Feeds(crawler)
        self._patience = Patience(Troubles())
        self._seen = SeenCache(self.options.settings.worker.seen_cache)
        self._ready: deque[tuple[Lease, float, int]] = deque()
        self._local: deque[tuple[Request, Live | None]] = deque()
        self._running_local: dict[Request, Live | None] = {}
        self._live: dict[Request, Live] = {}
        self._unstorable_told = 0
        self._refused = 0
        self._pace = Pace()
        self._granted: deque[Live] = deque()
        self._suspect: tuple[Lease, int] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._closing = False
        self._task: asyncio.Future[Any] | None = None

    # --- what those that come from elsewhere change -------------------------------------------------------------------

    def _read(self, crawler: Crawler) -> Options:
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

    def _prepare(self, request: Request, lease: Lease, payload: Payload) -> Request:
        """The leased request as it is to be sent."""
        return request

    def _records(self, settlement: Settlement, live: Live | None) -> Sequence[Output]:
        """What is to be told of an end. `live` None: it was not begun here."""
        return ()

    async def _joined(self, run: Run, entries: Entries) -> Entries:
        """What makes entries of requests. Raises FrontierError."""
        return entries

    async def _sift(self, batches: list[Batch]) -> list[Batch]:
        """What of these is to be added. Raises FrontierUnavailable, and is asked again."""
        return batches

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, spider: Spider) -> "Deferred[None]":
        """Join the crawl. Raises FrontierUnavailable and FrontierIncompatible. A stopped crawl closes the spider."""
        return deferred_from_coro(self._open(spider))

    async def _open(self, spider: Spider) -> None:
        settings = self.options.settings
        try:
            self.frontier = frontier = await connect(settings, settings.frontier)
            await self._about_to_join(frontier)
        except (BadInput, FrontierError) as error:
            refuse(error)
        options = self.options
        self._crawler.signals.connect(self._spider_idle, signal=signals.spider_idle)
        try:
            run = await self._join(frontier)
            self.holder = await frontier.holder(pool=options.crawl.pool, spiders=[spider.name], egress=settings.egress)
        except CrawlRefused as refused:
            await frontier.close()
            log.error("%s Nothing is crawled; another GOSSAMER_CRAWL_ID begins another crawl.", refused)
            self._closing = True
            return
        except BaseException:
            await frontier.close()
            raise
        entries = Entries(spider, secret=frontier.secret, fingerprinter=self._crawler.request_fingerprinter)
        self._entries = await self._joined(run, entries)
        self._committer = Committer(frontier, self.holder, await self._output(), self._patience, linger_seconds=0.002)
        self._committer.committed = self._committed
        self._inbox = Inbox(
            frontier,
            self._patience,
            run,
            Terms(),
            sift=self._sift,
            added=self._start_added,
            refused=self._start_refused,
        )
        self._seat = Seat(
            frontier, self.holder, self._patience, heartbeat_seconds=settings.worker.heartbeat, forget=self._forget
        )
        self._leasing = Leasing(
            frontier,
            self.holder,
            self._seat,
            options.crawl.id,
            room=self._room,
            give=self._give,
            idle=self._is_idle,
            tell=self._engine.wake,
        )
        self._engine.surround(self._around)
        self._engine.hold_back_start(self._inbox.room)
        self._engine.unthrottle()
        self._engine.add_middleware(
            SharedThrottle(
                frontier,
                self.holder,
                self._patience,
                run,
                spider.name,
                self._crawler.settings,
                is_leased=self._live.__contains__,
            )
        )
        self._crawler.signals.connect(self._spider_error, signal=signals.spider_error)
        self._task = asyncio.gather(self._seat.keep(), self._leasing.run(), self._committer.run(), self._inbox.run())
        self._task.add_done_callback(self._broke)
        # What is there by now stays: the collector need not look at all of Scrapy again and again, 50 ms at a time.
        gc.collect()
        gc.freeze()
        log.info("Crawling %s as %s (run %d)", options.crawl.id, self.holder.worker, run.number)

    def close(self, reason: str) -> "Deferred[None]":
        """Give back what was not started, commit what is done, leave. Never touches what others work on."""
        return deferred_from_coro(self._close())

    async def _close(self) -> None:
        if self._task is None:
            return
        self._closing = True
        self._give_back_ready()
        self._committer.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._inbox.drained()
                await asyncio.gather(*self._tasks)
                await self._committer.drained()
        left = self._committer.pending + self._inbox.pending
        if left:
            log.error("%d requests could not be reported; the frontier gives them to others.", left)
        self._task.remove_done_callback(self._broke)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.holder.close()
        await self.frontier.close()

    def _broke(self, task: "asyncio.Future[Any]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.critical("The frontier's part of this process ended: %s", fault, exc_info=fault)
            self._closing = True
            assert self._crawler.engine is not None
            self._later(self._crawler.engine.close_spider_async(reason="frontier_failed"))

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

    # --- what Scrapy asks ---------------------------------------------------------------------------------------------

    def has_pending_requests(self) -> bool:
        """Whether the crawl goes on, here or anywhere. False: it is finished, stopped or expired, for all."""
        if self._task is None:
            return False
        return not self._leasing.over or bool(self._local) or bool(self._running_local)

    def drops(self, request: Request) -> bool:
        """Whether it would drop this link of the page at hand as known; if so, it counts as dropped."""
        parent = CURRENT.get()
        if not self._filters(request) or parent is None or parent.over or self._task is None:
            return False
        try:
            name = self._entries.name(request)
        except Unstorable:
            return False
        if not self._seen.knows(name.spider, name.fingerprint):
            return False
        parent.known += 1
        self._stats.inc_value("dupefilter/filtered")
        return True

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
            child = parent is not None and not parent.moving
            # Most links of most pages are known: nothing more is made of them.
            if child and filtered and self._seen.knows(name.spider, name.fingerprint):
                assert parent is not None
                parent.known += 1
                self._stats.inc_value("dupefilter/filtered")
                return False
            entry = self._entries.of(request, name)
        except Unstorable as why:
            return self._keep_local(request, parent, why)
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

    def next_request(self) -> Request | None:
        """A leased request, as the one Scrapy knows. None: none is here now."""
        if self._closing:
            return None
        if self._local:
            request, parent = self._local.popleft()
            self._running_local[request] = parent
            CURRENT.set(parent)
            return request
        if self._granted:
            live = self._granted.popleft()
            CURRENT.set(live)
            return live.request
        if self._suspect is not None:
            return self._next_suspect()
        now = time.monotonic()
        while self._ready:
            lease, given, epoch = self._ready.popleft()
            if lease.deaths == _TOO_MANY_DEATHS - 1:
                self._suspect = (lease, epoch)
                self._give_back_ready()
                return self._next_suspect()
            if now - given > START_WITHIN_SECONDS:
                self._settle(Settlement(lease, Outcome.RETURNED))
                continue
            if (begun := self._begin(lease, epoch)) is not None:
                self._pace.started(now)
                self._leasing.want()
                CURRENT.set(begun)
                return begun.request
        self._leasing.want()
        return None

    def _next_suspect(self) -> Request | None:
        """Its last chance a request gets alone: else what is beside the one that kills would be given up with it. For
        this once the start may be later than a lease allows."""
        assert self._suspect is not None
        if self._live or self._tasks or self._committer.pending:
            return None
        live = self._begin(*self._suspect)
        if live is None:
            self._suspect = None
            return None
        CURRENT.set(live)
        return live.request

    # --- leases -------------------------------------------------------------------------------------------------------

    def _begin(self, lease: Lease, epoch: int) -> Live | None:
        if lease.deaths >= _TOO_MANY_DEATHS:
            log.error("%s: three processes died with it; it is given up", lease.url)
            self._settle(Settlement(lease, Outcome.FAILED, "worker_died"))
            return None
        try:
            payload = unpack(lease.payload)
            request = restore(payload, self._spider, url=lease.url, priority=lease.priority)
            request = self._prepare(request, lease, payload)
        except Unreadable as why:
            log.error("%s: %s", lease.url, why)
            self._stats.inc_value(f"gossamer/failed/{why.reason}")
            self._settle(Settlement(lease, Outcome.FAILED, why.reason))
            return None
        live = self._live[request] = Live(lease, epoch, request)
        self._stats.inc_value("scheduler/dequeued")
        return live

    def _room(self) -> int:
        if self._closing or self._suspect or self._committer.pending >= _PENDING_PAGES or self._engine.backs_out:
            return 0
        ahead = self._pace.ahead(self.options.concurrency)
        return self.options.concurrency + ahead - self._engine.downloading - len(self._ready)

    def _give(self, leases: Sequence[Lease]) -> None:
        now = time.monotonic()
        self._ready.extend((lease, now, self._seat.epoch) for lease in leases)
        if self._suspect:
            self._give_back_ready()
        self._engine.wake()

    def _give_back_ready(self) -> None:
        """As never started: nobody's death counts for them."""
        while self._ready:
            self._settle(Settlement(self._ready.popleft()[0], Outcome.RETURNED))

    def _is_idle(self) -> bool:
        return not (
            self._ready or self._live or self._tasks or self._local or self._running_local
            or self._committer.pending or self._inbox.pending
        )  # fmt: skip

    def _forget(self) -> None:
        self._ready.clear()
        for live in self._granted:
            self._live.pop(live.request, None)
        self._granted.clear()
        self._suspect = None
        self._committer.discard()
        # Whoever took us for dead may have been a server that lost its memory.
        self._seen.clear()

    # --- the end of a request -----------------------------------------------------------------------------------------

    def _around(self, result: Any, request: Request, original: Any) -> "Deferred[None]":
        """What the engine does with an answer, as the work of its lease."""
        live = self._live.get(request)
        parent = live or self._running_local.get(request)
        before = CURRENT.set(parent)
        try:
            if live is not None and isinstance(result, Request):
                live.moving = True
            handled: Deferred[None] = original(result, request)
        finally:
            CURRENT.reset(before)
        if live is not None:
            live.moving = False
            self._outcomes.judge(live, result)
            handled.addBoth(self._answered, live, isinstance(result, Request))
        elif request in self._running_local:
            handled.addBoth(self._local_done, request)
        return handled

    def _answered(self, result: Any, live: Live, moved: bool) -> Any:
        live.answered = True
        if moved and live.successor is None:
            live.outcome, live.reason = Outcome.DROPPED, str(Dropped.FILTERED)
        self._end(live)
        return result

    def _local_done(self, result: Any, request: Request) -> Any:
        parent = self._running_local.pop(request)
        if parent is not None:
            parent.local -= 1
            self._end(parent)
        self._leasing.want()
        self._engine.wake()
        return result

    def _end(self, live: Live) -> None:
        if not live.answered or live.local or live.over:
            return
        live.over = True
        self._live.pop(live.request, None)
        if self._suspect is not None and self._suspect[0] is live.lease:
            self._suspect = None
        if live.epoch != self._seat.epoch:
            return  # it is somebody else's by now
        self._later(self._commit(live))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, live: Live) -> None:
        drops = live.drops
        if live.known:
            drops[str(Dropped.DUPLICATE)] = live.known
        settlement = Settlement(
            live.lease, live.outcome, live.reason, delay_seconds=live.delay_seconds, drops=drops or None
        )
        try:
            if live.successor and not await self._wanted(*live.successor):
                settlement.outcome, settlement.reason = Outcome.DROPPED, str(Dropped.DUPLICATE)
            elif live.successor and await move(live, settlement, self._entries, self.holder, self._patience):
                successor = self._live[live.successor[0]] = Live(live.lease, live.epoch, live.successor[0])
                self._granted.append(successor)
                self._engine.wake()
                return
        except StaleWorker:
            await self._seat.renew(live.epoch)
            return
        await self._patience.output(self._feeds.flush)
        batches = list(live.batches.values())
        batches = await self._patience.frontier(lambda: self._sift(batches))
        outputs = self._records(settlement, live)
        finished = Finished(settlement, outputs, batches, size=_size(batches))
        if batches:
            finished.confirmed = partial(self._remember, batches)
        await self._committer.put(finished)

    async def _wanted(self, request: Request, entry: Entry) -> bool:
        """Whether a request that takes another's place is to be made at all."""
        batch = Batch(
            entry.spider, entry.domain, entry.priority, entry.depth, payloads=[], unfiltered=request.dont_filter
        )
        append(batch, entry)
        return bool(await self._patience.frontier(lambda: self._sift([batch])))

    def _settle(self, settlement: Settlement) -> None:
        self._later(self._committer.put(Finished(settlement, self._records(settlement, None))))

    def _remember(self, batches: Sequence[Batch], rejected: Collection[int]) -> None:
        for batch in batches:
            if not batch.unfiltered:
                self._seen.remember(batch.spider, [mark for mark in batch.fingerprints if mark not in rejected])

    def _committed(self, batch: Sequence[Finished], stale: bool) -> None:
        if stale:
            self._later(self._seat.renew(self._seat.epoch))
        self._leasing.want()
        if self._suspect:
            self._engine.wake()

    # --- what cannot be stored ----------------------------------------------------------------------------------------

    def _keep_local(self, request: Request, parent: Live | None, why: Unstorable) -> bool:
        """Run it in this process, as Scrapy does with what it cannot put on disk. Its parent waits for it, so that a
        process that dies before it is done fetches the parent again, and so comes to it once more."""
        if self._unstorable_told < _UNSTORABLE_TOLD:
            self._unstorable_told += 1
            log.warning("%s is kept in this process: %s", request, why)
        self._stats.inc_value("scheduler/unserializable")
        if self._filters(request):
            mark = hash(self._crawler.request_fingerprinter.fingerprint(request))
            if self._seen.knows(_LOCAL, mark):
                self._stats.inc_value("dupefilter/filtered")
                return False
            self._seen.remember(_LOCAL, (mark,))
        if parent is not None:
            parent.local += 1
        self._local.append((request, parent))
        self._engine.wake()
        return True

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

    def _start_added(self, added: Added, batches: Sequence[Batch]) -> None:
        rejected = {batches[batch].fingerprints[position] for batch, position in added.rejected}
        self._remember(batches, rejected)
        if added.duplicates:
            self._stats.inc_value("dupefilter/filtered", added.duplicates)
        self._refused += sum(added.dropped.values())
        self._leasing.want()

    def _start_refused(self, count: int, refused: CrawlRefused) -> None:
        log.error("%s %d requests are dropped.", refused, count)
        self._refused += count
        self._leasing.want()


_LOCAL = "local"


def _size(batches: Sequence[Batch]) -> int:
    return 1000 + sum(len(payload or b"") + 200 for batch in batches for payload in batch.payloads or ())
