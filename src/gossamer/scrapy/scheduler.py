"""Scrapy's scheduler on the shared frontier: the queue and the memory of seen requests that all processes use.

`LeaseRunner`, the base class, runs leased requests (each given to one process for a while) and settles them (reports
their outcomes). This file opens and closes that machinery, and stores the requests that spiders make.

Fixed: the names of Scrapy's interface (`df`, `stats`, `enqueue_request`, ...), which extensions use; the finish reasons
and the names of statistics, which users read; and the order of the steps in `_close`, which decides what a closing
process still saves.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scheduler import Scheduler as ScrapyScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.statscollectors import StatsCollector
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gossamer.commit.committer import Committer
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import BadInput, BrowserMissing, CrawlRefused, FrontierError, FrontierUnavailable
from gossamer.frontier.base import AddResult, Lane
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Run, Terms
from gossamer.model.request import Batch, DropReason, Outcome
from gossamer.option_names import ProjectNames, reader
from gossamer.scrapy.addon import DupefilterView
from gossamer.scrapy.browser_lane import ScrapyBrowserLane, render_alone
from gossamer.scrapy.downloader import SharedThrottle
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.entries import RENDER_KEY, EntryEncoder, Unstorable, add_to_batch
from gossamer.scrapy.lease_runner import LeaseRunner
from gossamer.scrapy.leasing import CURRENT_LEASE, ActiveLease, LeaseFetcher, RunKey, known_filter, run_key
from gossamer.scrapy.options import SchedulerOptions, abort, read_options, runs_alone
from gossamer.scrapy.proxies import setting
from gossamer.scrapy.refusals import RefusalCounter
from gossamer.scrapy.start import Inbox, StartClaims, join, on_crawl_end, wait_for_frontier
from gossamer.sinks.base import Fanout, Sink
from gossamer.wiring.frontier import connect
from gossamer.wiring.refusals import load_refusals

if TYPE_CHECKING:
    from gossamer.scrapy.fresh_visits import FreshOptions, FreshVisits

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 30.0
"""Longest time that a closing process waits for the frontier. Longer delays the end in an outage; with a shorter time,
other processes fetch more pages again, because those are not settled by then."""
_ANNOUNCE_SECONDS = 5.0
"""Seconds between two announcements of the spider, which also refresh the number of waiting requests. Longer makes
`len(scheduler)` older (documented as a few seconds), shorter costs calls. The frontier keeps an announcement for 30
days."""
_START_POLL_SECONDS = 0.05
"""Seconds between two looks at the start requests that are to be started before the spider closes. Longer delays its
end, shorter costs calls."""

_ATTRIBUTES_ADVICE = (
    "Pages change attributes of the spider: %s. Each process has its own spider, and other processes (%d) use this "
    "frontier. Where they share this crawl, a counter, a limit or a memory in an attribute covers a part of the pages. "
    "Put such values into meta or cb_kwargs of requests, use GOSSAMER_MAX_PAGES for a limit of pages, or crawl with "
    "one process."
)


class Scheduler(LeaseRunner, BaseScheduler):
    """Makes many processes act as one spider: they share one frontier and each other's memory of seen requests.

    A request stays leased until its callback is exhausted, its items are through the pipelines and its requests are in
    the frontier; if the process dies before that, another one fetches the page again. No method that Scrapy calls while
    it crawls waits for the network, and none may: a task leases requests ahead, and requests are stored in batches.
    """

    _start_run_key: RunKey
    """Run of the start requests."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the scheduler; Scrapy's own for `scrapy shell`, `fetch`, `parse` and `check`.

        Raises BadInput, with the setting's name."""
        if runs_alone(crawler):
            try:
                render_alone(crawler)
            except (BadInput, BrowserMissing) as error:
                abort(error)
            return ScrapyScheduler.from_crawler(crawler)  # type: ignore[return-value]
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.spider is not None
        engine = EngineAdapter(crawler.engine)
        try:
            options = self._read_options(crawler)
            engine.check_supported()
            self._browser = ScrapyBrowserLane(crawler, engine, options.settings)
            self._fresh = self._read_fresh_options(crawler)
        except (BadInput, BrowserMissing) as error:
            abort(error)
        super().__init__(crawler, engine, options)
        self._refused = 0
        """Number of start requests that the frontier refused, because the crawl was stopped or a limit was reached."""
        self._waiting = 0
        """Number of requests that waited in the frontier when they were last counted."""
        self._warned_attributes = 0
        """Number of changed attributes of the spider of which the log warns."""
        self._keeping_count = 0
        """Number of start requests that cannot be stored, of which it is not decided yet which process runs them."""
        self._dupefilter = DupefilterView(crawler, self._is_known)
        self._task: asyncio.Future[Any] | None = None
        """The background tasks. None: the crawl was not joined."""
        self._close_task: asyncio.Future[None] | None = None

    # --- what subclasses override -------------------------------------------------------------------------------------

    def _read_options(self, crawler: Crawler) -> SchedulerOptions:
        """Read the project's settings. Raises BadInput."""
        assert crawler.spider is not None
        return read_options(crawler.settings, crawler.spider)

    def _read_fresh_options(self, crawler: Crawler) -> "FreshOptions | None":
        """Read the project's settings of incremental runs. None: there are none. Raises BadInput."""
        if not setting(crawler.settings, "GOSSAMER_FRESH"):
            return None
        from gossamer.scrapy.fresh_visits import read_fresh_options  # most projects have no incremental runs

        return read_fresh_options(crawler.settings)

    async def _before_join(self, frontier: ValkeyFrontier) -> None:
        """Prepare the crawl; may change `options`. Raises BadInput and FrontierError."""

    async def _join(self, frontier: ValkeyFrontier) -> Run:
        """Return the run (one life of the crawl) that this process works on. Raises CrawlRefused and FrontierError."""
        return await join(frontier, self.options.crawl, fresh=self.options.fresh)

    async def _after_join(self, run: Run, encoder: EntryEncoder) -> EntryEncoder:
        """Return the encoder to use. Raises FrontierError."""
        return encoder

    async def _open_sink(self) -> Sink:
        """Return the sink: the destination of the records of settled requests. Here there is none."""
        return Fanout([])

    def _describe_work(self, run: Run) -> str:
        """Return what this process does, for the log."""
        return f"Crawling {run.crawl.id}, run {run.number}"

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, spider: Spider) -> "Deferred[None]":
        """Join the crawl. A stopped crawl closes the spider. Raises FrontierUnavailable and FrontierIncompatible."""
        return deferred_from_coro(self._open(spider))

    async def _open(self, spider: Spider) -> None:
        """Connect to the frontier, join the run, create all parts, then start the background tasks."""
        settings = self.options.settings
        reader.set(ProjectNames())
        try:
            self._refusals = RefusalCounter(self._crawler.stats, load_refusals(settings))
            await self._browser.check()
            self.frontier = frontier = await wait_for_frontier(
                self._retrier, lambda: connect(settings, settings.frontier)
            )
            await self._before_join(frontier)
            if self._fresh is not None:
                self._visits = await self._open_visits(self._fresh)
        except (BadInput, BrowserMissing, FrontierError) as error:
            abort(error)
        self._crawler.signals.connect(self._on_spider_idle, signal=signals.spider_idle)
        self._crawler.signals.connect(self._refusals.on_response, signal=signals.response_received)
        try:
            run = await self._enter_run(frontier, spider)
        except CrawlRefused as refusal:
            await self._close_connections()
            log.error("%s. Nothing is crawled; another GOSSAMER_CRAWL_ID begins another crawl.", refusal)
            self._is_closing = True
            return
        except BaseException:
            await self._close_connections()
            raise
        # All parts exist before the tasks start: the first leased request uses every one of them.
        encoder = EntryEncoder(spider, frontier=frontier, fingerprinter=self._crawler.request_fingerprinter)
        self._encoder = await self._after_join(run, encoder)
        self._encoder.is_rendered = self._browser.is_asked
        self._start_run_key = run_key(run)
        self._create_parts(run, await self._open_sink())
        self._attach_to_engine(run)
        self._crawler.signals.connect(self._on_spider_error, signal=signals.spider_error)
        self._task = asyncio.gather(
            self._session.run(),
            self._fetcher.run(),
            self._committer.run(),
            self._inbox.run(),
            self._announce(),
            self._claims.run(),
            *([self._proxies.follow(self.holder)] if self._proxies is not None else []),
        )
        self._task.add_done_callback(self._on_task_done)
        # All that exists by now stays. The garbage collector would otherwise walk all of Scrapy again and again, each
        # time for 50 ms.
        gc.collect()
        gc.freeze()
        log.info("%s, as %s", self._describe_work(run), self.holder.worker)

    async def _open_visits(self, options: "FreshOptions") -> "FreshVisits":
        """Open the index of earlier runs. Raises BadInput."""
        from gossamer.scrapy.fresh_index import FreshIndex
        from gossamer.scrapy.fresh_visits import FreshVisits, index_address

        crawl = self.options.crawl.id
        address = index_address(options, str(self.options.settings.data_dir), crawl.token)
        index = FreshIndex(address, crawl, self._retrier)
        await index.open()
        if not self.options.fresh:
            log.warning(
                "GOSSAMER_FRESH with SCHEDULER_PERSIST: a run visits no page that the crawl has seen in the last "
                "%g hours (GOSSAMER_RETENTION). Without SCHEDULER_PERSIST, each run visits all pages.",
                self.options.settings.retention / 3600,
            )
        visits = FreshVisits(
            self._crawler,
            self._spider,
            options,
            index,
            self._feeds,
            active=self._active.get,
            may_render=self._browser.may_render,
        )
        self._engine.ask_before_others(visits.look_up)
        self._engine.add_spider_middleware(visits)
        return visits

    async def _enter_run(self, frontier: ValkeyFrontier, spider: Spider) -> Run:
        """Join the run and become a worker of its pool (the workers that share the crawl's requests)."""
        run = await wait_for_frontier(self._retrier, lambda: self._join(frontier))
        await wait_for_frontier(self._retrier, lambda: frontier.spiders.announce(Lane.SCRAPY, [spider.name]))
        self.holder = await wait_for_frontier(
            self._retrier,
            lambda: frontier.open_leaseholder(
                pool=self.options.crawl.pool, spiders=[spider.name], egress=self.options.settings.egress
            ),
        )
        return run

    def _create_parts(self, run: Run, sink: Sink) -> None:
        """Create what `_open` starts as background tasks, and what the base class uses."""
        frontier, holder, retrier = self.frontier, self.holder, self._retrier
        self._claims = StartClaims(frontier, retrier, run, self._crawler)
        self._committer = Committer(frontier, holder, sink, retrier)
        self._committer.on_committed = self._on_committed
        self._inbox = Inbox(
            frontier,
            retrier,
            run,
            Terms(),
            filter_batches=self._filter_batches,
            on_added=self._on_start_added,
            on_refused=self._on_start_refused,
            newest_count=self.options.concurrency,
        )
        dead_after_seconds = self.options.settings.worker.heartbeat
        self._session = WorkerSession(frontier, holder, retrier, dead_after_seconds=dead_after_seconds)
        self._fetcher = LeaseFetcher(
            frontier,
            holder,
            self._session,
            self.options.crawl.id,
            free_slots=self._free_slots,
            on_leases=self._on_leases,
            is_idle=self._is_idle,
            on_change=self._on_crawl_change,
        )
        self._fetcher.on_rendering = self._browser.open

    def _attach_to_engine(self, run: Run) -> None:
        """Change Scrapy's engine for a shared crawl: results, start requests, delays, robots.txt, the throttle."""
        self._engine.wrap_result_handler(self._handle_result)
        self._engine.throttle_start(self._wait_for_start_room, self._claims.claim_item, self._start_before_close)
        self._engine.disable_download_delays()
        self._engine.share_robots()
        if self._visits is not None:
            self._engine.add_downloader_middleware(self._visits)
        throttle = SharedThrottle(
            self.frontier,
            self.holder,
            self._retrier,
            run,
            self._spider.name,
            self._crawler.settings,
            send_by=self._send_by,
            is_taken_over=self._is_taken_over,
        )
        self._engine.add_downloader_middleware(throttle)
        self._engine.charge_repeated_requests(throttle.may_repeat)
        self._engine.share_cookies(self.frontier, run)
        self._proxies = self._engine.proxy_pool()
        if self._proxies is not None:
            self._proxies.join_frontier(self.holder, self._egress_of)
            throttle.egress_of = self._proxies.address_of
            throttle.charges_addresses = self._proxies.has_budgets
        throttle.on_rendering = self._browser.open
        self._browser.join(self.frontier, self._retrier, self.holder, self.options.crawl.pool)

    async def _announce(self) -> None:
        """Keep the spider's name announced, learn other spiders' names, and count what waits, until cancelled."""
        while True:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            await self._retrier.call_frontier(
                lambda: self.frontier.spiders.announce(Lane.SCRAPY, [self._spider.name]), shard=0
            )
            with contextlib.suppress(FrontierUnavailable):  # the last count stays
                self._waiting = await self._count_waiting()
            await self._warn_of_attributes()

    def close(self, reason: str) -> "Deferred[None]":
        """Give back what was not started, commit what is done, and disconnect. Other processes are not affected."""
        return deferred_from_coro(self._close())

    async def _close(self) -> None:
        """Return the leases that were not started; wait for the start requests, the tasks of requests, the committer
        and the claims; then end the background tasks and disconnect. The order must stay: each step feeds the next."""
        if self._task is None:
            return
        self._is_closing = True
        self._return_ready()
        self._committer.stop_lingering()  # what is settled from now on is committed at once
        tasks = list(self._tasks)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._inbox.drained()
                tasks = list(self._tasks)
                await asyncio.gather(*tasks, return_exceptions=True)  # `_on_task_done` has logged the failures
                await self._committer.wait_until_drained()
                await self._warn_of_attributes()
                await self._claims.report_done()
        unsettled = self._committer.pending + self._inbox.pending
        unsettled += sum(task.cancelled() or not task.done() for task in tasks)
        if unsettled:  # the time was over
            log.error("%d requests could not be reported; the frontier gives them to others.", unsettled)
        on_crawl_end()
        self._task.remove_done_callback(self._on_task_done)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._browser.close()
        await self.holder.close()
        await self._close_connections()

    async def _close_connections(self) -> None:
        """Close the connections to the frontier and to the index of earlier runs."""
        if self._visits is not None:
            await self._visits.close()
        await self.frontier.close()

    def _on_task_done(self, task: "asyncio.Future[Any]") -> None:
        """Close the spider if a background task has failed: the crawl could not go on without it."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.critical("A background task of the scheduler failed: %s", fault, exc_info=fault)
            if not self._is_closing:
                self._is_closing = True
                self._close_spider("frontier_failed")

    def _on_crawl_change(self) -> None:
        """React to the end of the crawl, or to its going on again.

        A stopped or expired crawl closes the spider whatever the spider waits for: a `start` that never ends, or a
        `spider_idle` handler that keeps it open.
        """
        if self._fetcher.has_ended and self.frontier.lost_shards:
            log.error("The frontier lost its data: its server was emptied, or restarted without them.")
            self._close_spider("frontier_lost")
        elif self._fetcher.has_ended and self.is_stopped:
            self._close_spider(str(self._fetcher.state))
        else:
            self._engine.wake()

    def _close_spider(self, reason: str) -> None:
        """Make Scrapy close the spider. `reason`: the finish reason in the spider's statistics, fixed."""
        assert self._crawler.engine is not None
        # Not one of `_tasks`: closing waits for those.
        self._close_task = asyncio.ensure_future(self._crawler.engine.close_spider_async(reason=reason))

    async def _wait_for_start_room(self) -> None:
        """Return when `start()` may yield its next object; never once the spider closes."""
        await self._inbox.wait_for_room()
        if self._is_closing:
            await asyncio.Event().wait()

    async def _start_before_close(self) -> None:
        """Return when the spider may close because `start()` has raised CloseSpider.

        Scrapy has started the requests by then that `start()` yielded before, as many as its downloader takes. So this
        waits until none of them waits in the frontier, or as many requests were started instead: newer ones of the
        crawl may come first.
        """
        room = self.options.concurrency - self._engine.download_count
        started = self._started_count
        await self._inbox.drained()
        while not self._engine.is_full and not self.is_stopped:
            if self._started_count - started >= room:
                return
            is_waiting = self._ready or self._local.has_waiting or self._keeping_count
            if not is_waiting and not await self._inbox.newest_waits() and not self._ready:
                return
            await asyncio.sleep(_START_POLL_SECONDS)

    async def start_requests_stored(self) -> bool:
        """Return when all start requests so far are in the frontier.

        False: the crawl was stopped meanwhile, and refused one of them, which is dropped."""
        refused = self._refused
        await self._inbox.drained()
        return self._refused == refused

    @property
    def is_closing(self) -> bool:
        """True once the scheduler takes no more start requests."""
        return self._is_closing or self._task is None

    @property
    def is_stopped(self) -> bool:
        """True once this process knows that the crawl was stopped or has expired, or while it has not joined it."""
        return self._task is None or self._fetcher.state in (CrawlState.STOPPED, CrawlState.EXPIRED)

    # --- what extensions read -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of waiting requests: this process's, and the frontier's as of a few seconds ago."""
        return self._waiting + len(self._ready) + self._inbox.pending if self._task is not None else 0

    def __bool__(self) -> bool:
        return True

    @property
    def is_resting(self) -> bool:
        """True while all requests that wait in the frontier are not due yet. May be read in any thread."""
        return self._task is not None and self.holder.has_later_work and not self.is_capped

    @property
    def is_capped(self) -> bool:
        """True while requests wait in the frontier only for those in flight at their sites. May be read in any
        thread."""
        return self._task is not None and self.holder.has_capped_work

    @property
    def stats(self) -> StatsCollector:
        """The crawler's statistics."""
        return self._stats

    @property
    def df(self) -> DupefilterView:
        """Dupefilter that answers from what this process knows. The frontier does the deduplication."""
        return self._dupefilter

    async def _count_waiting(self) -> int:
        info = await self.frontier.crawl_info(self.options.crawl.id)
        return info.total().queued if info is not None else 0

    # --- what Scrapy calls --------------------------------------------------------------------------------------------

    def has_pending_requests(self) -> bool:
        """Return whether the crawl goes on in any process. False: it is finished, stopped or expired."""
        if self._task is None:
            return False
        return not self._fetcher.has_ended or self._local.has_pending

    def drops_known(self, request: Request) -> bool:
        """Return whether `enqueue_request` would drop this link as known. If so, it is counted as dropped: in the
        statistics when the page has ended, which costs less than link by link."""
        parent = CURRENT_LEASE.get()
        if not self._filters(request) or parent is None or parent.ended or self._task is None:
            return False
        try:
            key = self._encoder.key(request)
        except Unstorable:
            return False
        if not self._seen.has_seen(parent.run_key, key.fingerprint):
            return False
        parent.known_children += 1
        parent.uncounted += 1
        return True

    def known_filter(self, *, survives_await: bool) -> Callable[[Request], bool] | None:
        """Return a function that does what `drops_known` does for this page, in a fraction of the time. None: no link
        is dropped. Without `survives_await`, it is valid until the next await only."""
        if type(self).drops_known is not Scheduler.drops_known:
            return self.drops_known
        parent = CURRENT_LEASE.get()
        if parent is None or parent.ended or self._task is None or not self.options.dedupe:
            return None
        epoch = self._seen.data_epoch if survives_await else None
        return known_filter(parent, self._seen, self._encoder.url_keys, self.drops_known, epoch=epoch)

    def _is_known(self, request: Request) -> bool:
        """Return whether this process knows that the request's run has seen it."""
        if self._task is None:
            return False
        parent = CURRENT_LEASE.get()
        try:
            key = self._encoder.key(request)
        except Unstorable:
            return False
        return self._seen.has_seen(self._start_run_key if parent is None else parent.run_key, key.fingerprint)

    def _filters(self, request: Request) -> bool:
        """Return whether the request is dropped if it is a duplicate."""
        return self.options.dedupe and not request.dont_filter

    def enqueue_request(self, request: Request) -> bool:
        """Store a request. False: this process knows it as a duplicate. The frontier drops all other duplicates.

        - No lease led to it, as to a start request: it goes into the frontier at once, by the inbox.
        - It is a redirect or retry of a leased request: it becomes the successor of that request.
        - A callback made it, as most links: it waits in its parent until the parent's lease is settled.
        - It cannot be stored: it runs in this process.
        """
        if self._task is None:
            return False
        parent = CURRENT_LEASE.get()
        if parent is not None and parent.ended:
            parent = None  # a task that outlives its request; its requests are stored like start requests
        self._stats.inc_value("scheduler/enqueued")
        filtered = self._filters(request)
        try:
            key = self._encoder.key(request)
            # Most links of most pages are known, so they are dropped before they are encoded.
            if parent is not None and filtered and self._seen.has_seen(parent.run_key, key.fingerprint):
                if parent.replacing:
                    parent.outcome, parent.reason = Outcome.DROPPED, str(DropReason.DUPLICATE)
                else:
                    parent.known_children += 1
                self._stats.inc_value("dupefilter/filtered")
                return False
            if request._meta and RENDER_KEY in request._meta and (fault := self._browser.fault(request)):
                log.error("%s is dropped: %s", request, fault)
                self._stats.inc_value("gossamer/dropped/bad_render")
                return False
            entry = self._encoder.entry(request, key)
        except Unstorable as why:
            return self._keep(request, parent, why)
        except Exception:
            # The project's own fingerprinter failed. The page must not count as fetched.
            if parent is not None:
                parent.fail("spider_error")
            raise
        if parent is None:
            # Start requests are for the crawl, not for each of its processes, whatever their `dont_filter`.
            is_start = request.meta.get("is_start_request", False)
            self._inbox.put(entry, unfiltered=not filtered and not is_start)
            self._fetcher.continue_crawl()
        elif parent.replacing:
            parent.successor, parent.filters_successor = (request, entry), filtered
        else:
            add_to_batch(parent.batches, entry, unfiltered=not filtered)
        return True

    def _keep(self, request: Request, parent: ActiveLease | None, why: Unstorable) -> bool:
        """Run a request in this process that cannot be stored. False: it is a duplicate."""
        meta = request.meta
        is_repeat = meta.get("retry_times") or meta.get("redirect_times")
        if parent is None and meta.get("is_start_request") and not is_repeat:
            self._fetcher.continue_crawl()
            self._keeping_count += 1
            self._start_task(self._keep_start_request(request, why))
            return True
        kept = self._local.add(request, parent, why, filtered=self._filters(request))
        self._stats.inc_value("scheduler/unserializable" if kept else "dupefilter/filtered")
        self._engine.wake()
        return kept

    async def _keep_start_request(self, request: Request, why: Unstorable) -> None:
        """Run a start request in this process that cannot be stored, unless another process does."""
        is_claimed = await self._claims.claim_request(request)
        self._keeping_count -= 1
        if is_claimed:
            self._stats.inc_value("scheduler/unserializable")
            self._local.add(request, None, why, filtered=False)
        else:
            self._stats.inc_value("dupefilter/filtered")
        self._engine.wake()

    def _on_local_handled(self, result: Any, request: Request) -> Any:
        self._claims.on_request_end(request)
        return super()._on_local_handled(result, request)

    def _prepare_rendering(self, request: Request) -> None:
        self._browser.prepare(request)

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_spider_error(self, failure: Failure) -> None:
        """Let the request fail whose callback has raised an error."""
        if (active := CURRENT_LEASE.get()) is not None:
            active.fail("spider_error")

    def _on_attributes_changed(self) -> None:
        self._start_task(self._warn_of_attributes())

    async def _warn_of_attributes(self) -> None:
        """Warn of attributes of the spider that pages change, once, if other processes may share the crawl."""
        if len(self._attributes.changed) == self._warned_attributes:
            return
        with contextlib.suppress(FrontierUnavailable):  # the next call decides
            others = [one for one in await self.frontier.workers() if one.name != self.holder.worker]
            names = list(self._attributes.changed)[self._warned_attributes :]
            if others and names:
                self._warned_attributes += len(names)
                log.warning(_ATTRIBUTES_ADVICE, ", ".join(names), len(others))

    def _on_spider_idle(self) -> None:
        """Answer Scrapy's question whether an idle spider closes. The reasons of CloseSpider are fixed."""
        if self._task is None:
            raise CloseSpider("refused")
        if self.is_stopped:
            raise CloseSpider(str(self._fetcher.state))
        if self.options.stay_open:
            raise DontCloseSpider

    def _on_start_added(self, added: AddResult, batches: Sequence[Batch], since: int) -> None:
        """Take note of the start requests that the frontier has accepted. `since`: the frontier's data epoch when they
        were sent, a number that changes when the frontier may have lost data."""
        rejected = {batches[number].fingerprints[position] for number, position in added.rejected}
        self._remember(self._start_run_key, batches, since, rejected)
        if added.duplicates:
            self._stats.inc_value("dupefilter/filtered", added.duplicates)
        self._refused += sum(added.rejected_by_reason.values())
        self._fetcher.wake()

    def _on_start_refused(self, count: int, refusal: CrawlRefused) -> None:
        """Take note of start requests that the stopped crawl has refused."""
        log.error("%s. Requests dropped: %d.", refusal, count)
        self._refused += count
        self._fetcher.wake()
