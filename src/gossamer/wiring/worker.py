"""Builds a worker of this process from settings: HTTP clients, outputs, lease holder, and what connects them.

A lease is a request that the frontier (the store of requests) has handed to one worker; the lease holder takes leases
and reports their results. A worker of a command has the pool of its crawl; one of a service has SHARED_POOL, the pool
of all crawls of the service.

Fixed: the outputs are closed last, because that may fail.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gossamer.commit.committer import CommitLimits, Committer, VisitedPages
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import FrontierAccess
from gossamer.errors import BadInput, FrontierError
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.client import HttpClient, HttpClients, PoolLimits
from gossamer.fetch.egress import MAX_RESPONSE_BYTES, EgressMonitor
from gossamer.fetch.exchange import ResponseLimits, Timeouts
from gossamer.fetch.http_versions import HttpVersions
from gossamer.fetch.pool import LostConnections
from gossamer.fetch.proxies import pool_egress, proxy_budgets
from gossamer.fetch.robots_service import RobotsService
from gossamer.frontier.base import Lane
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import SHARED_POOL, Crawl, CrawlId, Run, Terms, site_concurrency
from gossamer.model.performance import StageLimits
from gossamer.model.request import Lease
from gossamer.net.resolve import Resolver
from gossamer.policy.proxies import ProxyRests
from gossamer.policy.robots import COMMAND_PATIENCE_SECONDS, RobotsPolicy
from gossamer.settings import Settings
from gossamer.sinks.base import ReaderFirst, Sink
from gossamer.telemetry import logs
from gossamer.telemetry.logs import SeedErrors, Troubles
from gossamer.telemetry.patterns import growth_sentence
from gossamer.telemetry.performance import PerformanceRecorder
from gossamer.telemetry.recordings import FOLDER, this_process
from gossamer.telemetry.tally import Tally, WorkerCounts
from gossamer.wiring.browser_lane import BrowserLane, patience, room_limits, takes_browser_lane, takes_plain_lane
from gossamer.wiring.outputs import OutputLosses, missing_sentence, open_outputs
from gossamer.wiring.plan import address_service, check_settings, keeps_index
from gossamer.wiring.processes import memory_limit, usable_cpus
from gossamer.wiring.refusals import load_refusals
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context, ContextOptions, Contexts, SharedMemory
from gossamer.worker.extraction import PageContents
from gossamer.worker.fetcher import Fetcher, FetchPolicy
from gossamer.worker.loading import SpiderSet, known_spiders
from gossamer.worker.page import PageReader
from gossamer.worker.proxies import ProxyOptions, WorkerProxies
from gossamer.worker.records import PageText
from gossamer.worker.robots import FrontierRobotsStore, RobotsChecker, RobotsWaits
from gossamer.worker.seen import SeenCache, SeenTable
from gossamer.worker.stalled_run import StalledRun
from gossamer.worker.worker import WatchedRun, Worker, WorkerLimits, WorkerStages

if TYPE_CHECKING:
    from gossamer.extract.content_pool import ContentLimits, ContentPool
    from gossamer.extract.document import HtmlDocument
    from gossamer.fetch.foreign import ForeignFetcher
    from gossamer.render.backend import BrowserBackend
    from gossamer.session.worker_sessions import WorkerSessions
    from gossamer.sinks.bus import BusSink
    from gossamer.wiring.sessions import CrawlSessions
    from gossamer.worker.spider_runner import SpiderRunner

log = logging.getLogger("gossamer.worker")

_ANNOUNCE_SECONDS = 60.0
"""Interval at which a worker announces its spiders again. The frontier keeps announcements for 30 days, but may lose
its data; requests for a spider that is not announced are refused. Shorter costs more calls."""
_SILENCE_SECONDS = 2.5
"""Time without an answer to the first request after which a person is told what it waits for. With the start of the
command it should stay below 5 seconds."""
_SILENCE_POLL_SECONDS = 0.5
"""Interval of checks for that, until there is an answer."""
_PROXIES_POLL_SECONDS = 0.2
"""Interval at which the worker checks which proxies can be used, where each has a budget of its own. Until then, hits
of a proxy that rests are lost, or those of one that is back are not used."""
_GROWTH_POLL_SECONDS = 5.0
"""Pause between two reports of pages that may have no end."""
_LOGINS_POLL_SECONDS = 2.0
"""Interval at which a worker of a service without logins asks for one. Longer starts the first crawl with a login
later, shorter costs calls."""
_OUTAGES_POLL_SECONDS = 30.0
"""Interval at which reports about proxies that no request needs any more are ended."""
_MIN_CONNECTIONS = 512
"""Connections that a worker may keep open however few requests it has in flight. Fewer cost more new connections in
crawls of many sites, more need open files."""
_CONNECTIONS_PER_REQUEST = 2
"""Connections for each request in flight, if that is more than _MIN_CONNECTIONS. Must be at least 1."""
_READER_LIMITS = CommitLimits(batch_pages=16, queue_pages=64, queue_bytes=16 * 1024 * 1024)
"""Limits of the committer where the program itself reads the pages: how far the worker is ahead of a slow program. More
hides pauses of the program, and fetches more pages that it may never read."""


def make_resolver(settings: Settings) -> Resolver:
    """Return the resolver of these settings. Raises BadInput for an invalid override or network."""
    return Resolver(overrides=settings.fetch.resolve, allow_networks=settings.allow_networks)


def content_limits(settings: Settings, *, shares: int | None = None) -> "ContentLimits":
    """Return the size and the limits of a pool of processes that extract text.

    `shares`: number of pools on this machine that share its CPUs and memory; None: one for each worker process."""
    from gossamer.extract.content_pool import ContentLimits  # imported late, as below: most crawls extract none

    text = settings.text
    most = usable_cpus()
    if (limit := memory_limit()) is not None:
        most = min(most, limit // text.memory)  # each may have a page of the largest size
    processes = text.processes or max(1, most // (shares or settings.worker.processes or 1))
    return ContentLimits(processes=processes, cpu_seconds=text.cpu, memory_bytes=text.memory)


def _content_pool(settings: Settings) -> "ContentPool | None":
    """Return the processes that extract text from pages. None: the library for it is not installed."""
    from gossamer.extract.content_pool import ContentPool, has_trafilatura

    return ContentPool(content_limits(settings)) if has_trafilatura() else None


def make_clients(
    settings: Settings, resolver: Resolver, *, body_bytes: int | None = None, budget: ByteBudget | None = None
) -> HttpClients:
    """Return HTTP clients with the limits of these settings: one for each timeout that requests ask for.

    `body_bytes`: the largest body; None: that of pages. `budget`: limits the bytes of bodies in memory, and may be
    shared with other clients; None: a budget of their own.
    """
    fetch = settings.fetch
    shared_budget = ByteBudget(fetch.bodies_in_flight) if budget is None else budget
    losses = LostConnections()
    versions = HttpVersions(fetch.http2)
    limits = ResponseLimits(header_bytes=fetch.max_header, body_bytes=body_bytes or fetch.max_body)

    def make(total_seconds: float | None) -> HttpClient:
        return HttpClient(
            resolver,
            limits=limits,
            timeouts=_timeouts(settings, total_seconds),
            connections=PoolLimits(
                total=max(_MIN_CONNECTIONS, _CONNECTIONS_PER_REQUEST * settings.worker.concurrency),
                per_address=settings.worker.concurrency,
            ),
            budget=shared_budget,
            losses=losses,
            versions=versions,
            extra_ca=fetch.ca_file or None,
        )

    return HttpClients(make)


def _timeouts(settings: Settings, total_seconds: float | None = None) -> Timeouts:
    fetch = settings.fetch
    total = fetch.timeout if total_seconds is None else total_seconds
    return Timeouts(
        connect=min(fetch.connect_timeout, total), first_byte=min(fetch.first_byte_timeout, total), total=total
    )


def page_fetcher(settings: Settings, resolver: Resolver) -> "ForeignFetcher | None":
    """Return the fetcher of another package that sends the requests of pages. None: Gossamer's own client does. Raises
    BadInput if there is no such fetcher."""
    fetch = settings.fetch
    if not fetch.backend:
        return None
    from gossamer.fetch.foreign import FetcherParts, make_fetcher  # imported late: most crawls have none

    limits = ResponseLimits(header_bytes=fetch.max_header, body_bytes=fetch.max_body)
    return make_fetcher(fetch.backend, FetcherParts(resolver, limits, _timeouts(settings), fetch.ca_file))


@asynccontextmanager
async def open_worker(
    settings: Settings,
    frontier: ValkeyFrontier,
    *,
    pool: str,
    spiders: Sequence[str] = (),
    run: Run | None = None,
    bus: "BusSink | None" = None,
    reader: Sink | None = None,
    say: Callable[[str], None] | None = None,
    seen: SeenTable | None = None,
) -> AsyncIterator[Worker]:
    """Return a worker of this process, ready to `run`. Its connections and outputs are closed with the context.

    `pool`: the worker fetches the requests of the crawls in this pool. `run`, one life of a crawl: the worker ends when
    it is over; None: the worker works until it is stopped. `spiders`: references to those that it works for;
    empty: all that are installed. `bus`: pages also go to this message queue. `reader`: pages first go to this sink of
    the program itself, a few at a time. Both are closed with the outputs. `say` shows a sentence to a person; None:
    troubles are only logged. `seen`: what the worker shares with others of its command.
    """
    check_settings(settings)
    loaded = SpiderSet(spiders or known_spiders())
    spiders = loaded.names
    parts = _WorkerParts(settings, frontier, loaded, pool=pool, run=run, bus=bus, reader=reader, say=say, seen=seen)
    try:
        if takes_browser_lane(settings, run):
            await parts.start_browser()
        async with (
            _spiders_announced(frontier, spiders, parts.retrier, pool=pool),
            _leaseholder(
                settings, frontier, parts.resolver, parts.troubles, pool=pool, spiders=(*spiders, ASSET_SPIDER), run=run
            ) as holder,
            _browser_announced(settings, frontier, parts.retrier, holder, pool=pool, run=run) as lane,
            _statistics_reported(settings, frontier, parts, spiders, name=holder.worker if pool == SHARED_POOL else ""),
        ):
            worker = parts.worker(holder, lane)
            name = run.crawl.id.crawlid if run is not None else pool
            limits = StageLimits(
                requests=settings.worker.concurrency,
                site_requests=site_concurrency(run.crawl) if run is not None else 0,
                bytes=parts.budget.limit_bytes,
                delay=_requested_delay(run.crawl) if run is not None else 0.0,
                tabs=settings.browser.processes * settings.browser.tabs if takes_browser_lane(settings, run) else 0,
                shared=True,
            )
            stages = WorkerStages(worker, parts.tally, parts.budget, site_requests=limits.site_requests)
            process = this_process(name, "worker", limits)
            with PerformanceRecorder(process, stages, settings.data_dir / FOLDER) as parts.recorder:
                async with (
                    _in_background(parts.tell_of_silence(worker)),
                    _in_background(parts.follow_proxies(holder)),
                    parts.logged_in(worker, holder),
                    _in_background(parts.follow_logins(holder)),
                    _in_background(parts.report_growth()),
                ):
                    yield worker
    finally:
        await parts.close()


def _requested_delay(crawl: Crawl) -> float:
    """Return the seconds between two requests to a domain that the crawl asks for. 0: it asks for none."""
    rate = crawl.rate
    return rate.window_seconds / rate.hits if rate is not None and rate.moderated else 0.0


class _WorkerParts:
    """The parts of one worker, which share its counters and its troubles."""

    _sessions: "CrawlSessions | None" = None
    """Sessions of the worker's crawls; None: no request has asked for one."""
    _worker: Worker | None = None
    """Worker that ends when a login has failed."""

    _foreign: "ForeignFetcher | None" = None
    """Fetcher of another package that sends the requests of pages."""
    _browser: "BrowserBackend | None" = None

    def __init__(
        self,
        settings: Settings,
        frontier: ValkeyFrontier,
        spiders: SpiderSet,
        *,
        pool: str,
        run: Run | None,
        bus: "BusSink | None",
        reader: Sink | None,
        say: Callable[[str], None] | None,
        seen: SeenTable | None,
    ) -> None:
        self._settings = settings
        self._frontier = frontier
        self._pool = pool
        self._run = run
        self._say = say
        self._context_options = ContextOptions(
            user_agent=settings.fetch.full_user_agent,
            proxy=settings.fetch.proxy,
            app_proxies=settings.fetch.app_proxies,
            include_links=bus is not None,
            redact=settings.records.secrets == "redact",
        )
        # A program that reads the pages gets the messages through its log.
        self.troubles = Troubles(say, level=logging.WARNING if reader is None else logging.INFO)
        self.retrier = Retrier(self.troubles)
        frontier.on_repair(partial(self.troubles.report, logs.FRONTIER_REPAIRED))
        self.tally = Tally()
        self.recorder: PerformanceRecorder | None = None
        """Set once the worker has begun."""
        # A service has no person in front of it, and its requests come at any time.
        seeds = None if run is None else SeedErrors(self.troubles)
        self._counts = WorkerCounts(self.tally, seeds, self.troubles, pool=pool)
        self._sink = open_outputs(settings, bus, run, OutputLosses(self._on_missing, self._on_refused))
        self._commit_limits = CommitLimits() if reader is None else _READER_LIMITS
        self._visited_pages = self._open_visits()
        if reader is not None:
            self._sink = ReaderFirst(reader, self._sink)
        self.resolver = make_resolver(settings)
        self.budget = ByteBudget(settings.fetch.bodies_in_flight)
        self._clients = make_clients(settings, self.resolver, budget=self.budget)
        self._robots = RobotsService(
            self._clients.fetch,
            FrontierRobotsStore(frontier),
            patience_seconds=robots_patience(settings, pool),
            on_sitemaps=self._counts.name_sitemaps,
        )
        self._memory = self._shared_memory(seen)
        self._contents = PageContents(
            lambda: _content_pool(settings),
            self.tally,
            max_pages=max(1, settings.worker.concurrency // 2) if pool == SHARED_POOL else None,
        )
        self._spider_runner: SpiderRunner | None = None
        self._proxies = WorkerProxies(_proxy_options(settings), self.tally.fail_proxy, self.troubles)
        self._loaded_spiders = spiders
        self._available = frozenset((*known_spiders(), *spiders.names))

    def _open_visits(self) -> VisitedPages | None:
        """Return the page indexes of crawls that are kept up to date. None: the worker fetches for no such crawl."""
        if self._run is not None and not keeps_index(self._settings):
            return None
        from gossamer.wiring.recrawling import open_visits  # imported late: most crawls have no index

        return open_visits(self._settings, secret=self._frontier.secret, of_service=self._run is None)

    def _shared_memory(self, seen: SeenTable | None) -> SharedMemory:
        """Return the caches of the worker's contexts."""
        # The epoch changes when the frontier may have lost data; the cache of known URLs is emptied then.
        data_epoch = partial(getattr, self._frontier, "data_epoch")
        cache = SeenCache(self._settings.worker.seen_cache, data_epoch=data_epoch, table=seen)
        # A service has any number of crawls, so nothing shows the counts of their filters.
        return SharedMemory(cache, filters=self._counts.filters if self._run is not None else None)

    def worker(self, holder: ValkeyLeaseholder, lane: BrowserLane) -> Worker:
        """Return the worker that leases by `holder`."""
        settings, frontier, run = self._settings, self._frontier, self._run
        self._foreign = page_fetcher(settings, self.resolver)
        access = FrontierAccess(frontier, holder, self.retrier)
        waits = RobotsWaits(self.troubles)
        robots = RobotsChecker(
            frontier,
            self._robots,
            self.retrier,
            waits,
            self.tally,
            _robots_policy(settings, self._pool),
            self._proxies.reroute,
        )
        robots.visited_pages = self._visited_pages
        fetcher = Fetcher(
            access,
            self._foreign or self._clients,
            robots,
            Contexts(self._context),
            PageReader(self._counts, self._run_spider, self._contents, wants_text=self._sink.wants_text),
            self._counts,
            policy=FetchPolicy(
                keep_wire=self._sink.wants_wire,
                retries=settings.fetch.retries,
                retry_base_seconds=settings.fetch.retry_base,
                asset_bytes=settings.fetch.max_asset,
                body_bytes=settings.fetch.max_body,
                proxies=self._proxies,
                open_browser=self._open_browser,
                sessions_of=self._sessions_of,
                refusals=load_refusals(settings),
            ),
            budget=self.budget,
        )
        if egresses := self._proxies.egresses():  # before the first lease
            holder.set_egress(*egresses)
        committer = Committer(frontier, holder, self._sink, self.retrier, self._commit_limits)
        committer.unique_items.on_repeated = self.tally.leave_out_items
        committer.visited_pages = self._visited_pages
        return Worker(
            access,
            fetcher,
            committer,
            waits,
            self._counts,
            limits=WorkerLimits(
                concurrency=settings.worker.concurrency,
                dead_after_seconds=settings.worker.heartbeat,
                rendered=room_limits(settings, run),
                drain_seconds=settings.worker.drain,
            ),
            run=self._watched(run, lane) if run is not None else None,
        )

    def _watched(self, run: Run, lane: BrowserLane) -> WatchedRun:
        """Return the run whose end ends the worker."""
        spiders = (*self._loaded_spiders.names, ASSET_SPIDER)
        stalled = StalledRun(self._frontier, spiders, self.troubles)
        return WatchedRun(run.crawl.id, run.number, run.crawl.idle_seconds, stalled, lane.take)

    async def follow_proxies(self, holder: ValkeyLeaseholder) -> None:
        """Lease for the addresses of the proxies that can be used, where each has a budget of its own. Also end reports
        about proxies that no request needs any more."""
        leased_for: tuple[str, ...] = ()
        while True:
            self._proxies.forget_outages()
            egresses = self._proxies.egresses()
            if egresses != leased_for:
                holder.set_egress(*egresses)
                leased_for = egresses
            await asyncio.sleep(_PROXIES_POLL_SECONDS if egresses else _OUTAGES_POLL_SECONDS)

    async def tell_of_silence(self, worker: Worker) -> None:
        """Tell the person who started a crawl if its first request gets no answer for some seconds."""
        seeds = self._counts.seeds
        if seeds is None:
            return
        while True:
            await asyncio.sleep(_SILENCE_POLL_SECONDS)
            tally = worker.tally()
            if tally.responses or tally.failed or tally.dropped or tally.retried or tally.waits:
                return
            url, seconds = next(iter(tally.fetching.items()), ("", 0.0))
            if seconds >= _SILENCE_SECONDS:
                is_rendered = self._browser is not None and self._browser.pages_in_progress
                what = "the browser" if is_rendered else self._clients.waiting_for()
                seeds.report("silence", f"No answer from {url} for {seconds:.1f} s: waiting for {what}. Ctrl-C stops.")
                return

    async def report_growth(self) -> None:
        """Tell the frontier about pages that may have no end, and the log of a service once for each pattern."""
        patterns = self._counts.patterns
        while True:
            await asyncio.sleep(_GROWTH_POLL_SECONDS)
            for found in patterns.unreported():
                run, count, pages = found.run, found.count, found.count.pages
                if not found.reported and self._run is None:
                    sentence = growth_sentence(found.pattern, count, pool=run.crawl.pool)
                    log.warning("%s %s: %s", logs.PAGES_WITHOUT_END, run.crawl.id, sentence)
                with contextlib.suppress(FrontierError):  # a hint, which the next turn repeats
                    await self._frontier.note_growth(run, found.pattern, count, pages=pages - found.reported)
                    found.reported = pages

    async def close(self) -> None:
        """Close the parts, each before those that it uses; the outputs last, because they may raise SinkError."""
        await self._contents.close()
        if self._sessions is not None:
            await self._sessions.close()
        if self._browser is not None:
            await self._browser.close()
        await self._robots.close()
        if self._foreign is not None:
            await self._foreign.close()
        await self._clients.close()
        self.resolver.close()
        if self._visited_pages is not None:
            await self._visited_pages.close()
        await self._sink.close()

    def _open_browser(self) -> "BrowserBackend":
        """Return the backend of rendered pages, which is imported late: most crawls render none."""
        if self._browser is not None:
            return self._browser
        from gossamer.render.shared_choices import SharedChoices
        from gossamer.wiring.browser import browser_backend, no_browser

        shared = SharedChoices(self._frontier, self._pool)
        if self._run is None and not takes_browser_lane(self._settings, None):
            self._browser = no_browser(self._clients, shared)
        else:
            self._browser = browser_backend(
                self._settings,
                self._clients,
                patience=patience(self._settings, self._run),
                counts=self.tally.browser,
                shared=shared,
                on_load=self._counts.count_load,
            )
        return self._browser

    async def start_browser(self) -> None:
        """Start a browser before anything is fetched. Raises BrowserMissing if none can be used here: without its
        sandbox, for example, each page would fail."""
        await self._open_browser().start()

    def _crawl_sessions(self) -> "CrawlSessions":
        """Return the sessions of the worker's crawls, which are imported late: most crawls have none."""
        if self._sessions is None:
            from gossamer.session.vault import open_vault_keys
            from gossamer.wiring.sessions import CrawlSessions

            self._sessions = CrawlSessions(self._frontier, open_vault_keys(os.environ))
            self._sessions.on_failure = self._stop
        return self._sessions

    def _stop(self) -> None:
        """Stop the worker, because a login has failed. One of a service goes on with other crawls."""
        if self._worker is not None:
            self._worker.stop()

    def _sessions_of(self, lease: Lease) -> "WorkerSessions":
        """Return the sessions of a lease's crawl."""
        return self._crawl_sessions().of(lease)

    async def follow_logins(self, holder: ValkeyLeaseholder) -> None:
        """Hold accounts of the service's logins, from when there are any. Runs until it is cancelled."""
        if self._pool != SHARED_POOL or self._run is not None:
            return
        await self._wait_for_logins()
        from gossamer.wiring.sessions import CrawlSessions, service_logins  # imported late: most services have none

        fault = ""
        try:
            sessions = self._crawl_sessions()
        except BadInput as error:  # the keys are no keys
            sessions, fault = CrawlSessions(self._frontier, None), error.detail
            self.troubles.begin("login", f"This worker cannot log in: {fault}")
        logins = service_logins(
            sessions,
            self._settings,
            self._frontier,
            holder,
            self.troubles,
            spider=partial(self._loaded_spiders.get, CrawlId("", self._pool)),
            key_fault=fault,
        )
        await logins.follow()

    async def _wait_for_logins(self) -> None:
        """Return when the service has any logins."""
        while True:
            with contextlib.suppress(FrontierError):
                if await self._frontier.logins.exist():
                    return
            await asyncio.sleep(_LOGINS_POLL_SECONDS)

    @asynccontextmanager
    async def logged_in(self, worker: Worker, holder: ValkeyLeaseholder) -> AsyncIterator[None]:
        """Let the worker lease only while it has an account, if its crawl needs a login. Raises LoginFailed at the
        end, if a login has failed."""
        run = self._run
        if run is None:
            yield
            return
        self._worker = worker
        if self._settings.crawl.session:
            from gossamer.wiring.sessions import logged_in

            spider = partial(self._loaded_spiders.get, run.crawl.id)
            sessions = self._crawl_sessions()
            async with logged_in(sessions, self._settings, self._frontier, holder, run, spider=spider):
                yield
        else:  # a crawl that another command has begun may need sessions all the same
            yield
        if self._sessions is not None:
            self._sessions.raise_failure()

    async def _run_spider(
        self, attempt: Attempt, finished: FinishedLease, document: "HtmlDocument | None", decoded: PageText
    ) -> bool:
        """Pass a page to its spider; see `SpiderRunner.run`, which is imported late: most crawls only follow links."""
        if self._spider_runner is None:
            from gossamer.worker.spider_runner import SpiderRunner

            self._spider_runner = SpiderRunner(self.tally, self.troubles, self._frontier.spiders)
        return await self._spider_runner.run(attempt, finished, document, decoded)

    def _context(self, run: Run, spider: str, terms: Terms) -> Context:
        """Return all that the worker keeps for requests of this run and spider (a name) with the same options
        (`terms`)."""
        return Context(
            run,
            spider,
            terms,
            spider=self._loaded_spiders.get(run.crawl.id, spider),
            # Other workers of a service may run other spiders; a crawl of the command line has those of this machine.
            available_spiders=None if run.crawl.is_of_service else self._available,
            secret=self._frontier.secret,  # read each time: a frontier that lost its data gets another secret
            memory=self._memory,
            options=self._context_options,
        )

    def _on_missing(self, path: str, records: int) -> None:
        """Report records that were written to this output and are gone."""
        self.tally.missing += records
        sentence = missing_sentence(path, records)
        log.warning("%s %s", logs.RECORDS_MISSING, sentence)
        if self._say is not None:
            self._say(sentence)

    def _on_refused(self, sentence: str, rows: int) -> None:
        """Report rows that did not fit a store's table: to the log always, to a person the first time."""
        if self._say is not None and not self.tally.refused:
            self._say(sentence)
        self.tally.refused += rows
        log.warning("%s %s", logs.ROWS_REFUSED, sentence)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` in a task of its own, and cancel it when the context ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def _spiders_announced(
    frontier: ValkeyFrontier, spiders: Sequence[str], retrier: Retrier, *, pool: str
) -> AsyncIterator[None]:
    """Announce the spiders of a service's worker to the frontier, at once and every minute. Lane.FAST stands for
    Gossamer's own workers, in contrast to Scrapy processes."""
    if pool != SHARED_POOL:
        yield
        return

    async def announce() -> None:
        while True:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            await retrier.call_frontier(lambda: frontier.spiders.announce(Lane.FAST, spiders))

    await frontier.spiders.announce(Lane.FAST, spiders)
    async with _in_background(announce()):
        yield


@asynccontextmanager
async def _browser_announced(
    settings: Settings,
    frontier: ValkeyFrontier,
    retrier: Retrier,
    holder: ValkeyLeaseholder,
    *,
    pool: str,
    run: Run | None,
) -> AsyncIterator[BrowserLane]:
    """Announce the worker while it takes requests that are to be rendered."""
    lane = BrowserLane(settings, frontier, retrier, holder, pool=pool, is_taken=takes_browser_lane(settings, run))
    async with _in_background(lane.announce()):
        try:
            yield lane
        finally:
            await lane.close()


def _own_facts(parts: _WorkerParts, name: str) -> Callable[[], dict[str, Any]]:
    """Return a function that returns the facts about this process, in which the worker of this name runs."""
    from gossamer.control.process_facts import OwnFacts  # imported late: only services report them

    own = OwnFacts(name=name)
    return lambda: own.of_worker(parts.recorder.recording() if parts.recorder else None)


@asynccontextmanager
async def _statistics_reported(
    settings: Settings, frontier: ValkeyFrontier, parts: _WorkerParts, spiders: Sequence[str], *, name: str
) -> AsyncIterator[None]:
    """Add the worker's counts to the statistics of the cluster every few seconds, and once more at the end. Report its
    troubles there, too; and facts about its process under this name, unless that is empty."""
    from gossamer.control.stats import Counters, StatsReporter  # imported late: only services have statistics

    counters = Counters(frontier.connection, prefix=settings.prefix)
    facts = _own_facts(parts, name) if name else None
    reporter = StatsReporter(counters, lambda: parts.tally, spiders, parts.troubles.current, facts=facts)
    try:
        async with _in_background(reporter.run()):
            yield
    finally:
        await reporter.close()


@asynccontextmanager
async def _leaseholder(
    settings: Settings,
    frontier: ValkeyFrontier,
    resolver: Resolver,
    troubles: Troubles,
    *,
    pool: str,
    spiders: Sequence[str],
    run: Run | None,
) -> AsyncIterator[ValkeyLeaseholder]:
    """Return a lease holder, which the worker closes. `run`: the one that its command crawls; None: it works for the
    pool.

    It leases under this machine's egress, the public address that requests come from or a name for it. Limits of a site
    that hold for each address are counted by the egress.
    Where `fetch.egress_url` names a service that reports the public address, the egress follows its answers.
    """
    egress = settings.egress or _proxy_egress(settings)
    lanes = {"plain": takes_plain_lane(settings, run), "browser": takes_browser_lane(settings, run)}
    if not settings.fetch.egress_url:
        yield await frontier.open_leaseholder(pool=pool, spiders=spiders, egress=egress, **lanes)
        return
    clients = make_clients(settings, resolver, body_bytes=MAX_RESPONSE_BYTES)
    monitor = EgressMonitor(
        address_service(settings),
        lambda exchange: clients.fetch(exchange, settings.fetch.egress_timeout),
        troubles,
        fallback_name=egress,
        refresh_seconds=settings.fetch.egress_refresh,
    )
    try:
        await monitor.refresh()
        holder = await frontier.open_leaseholder(pool=pool, spiders=spiders, egress=monitor.name, **lanes)
        async with _in_background(monitor.run(holder.set_egress)):
            yield holder
    finally:
        await clients.close()


def _proxy_egress(settings: Settings) -> str:
    """Return the egress of the configured proxies. Empty: no proxy.

    Must be the same for all workers behind one proxy, or each would use up the limit of the common address alone.
    """
    return pool_egress(settings.fetch.proxy)


def _proxy_options(settings: Settings) -> ProxyOptions:
    """Return how the proxies of each crawl are chosen."""
    fetch = settings.fetch
    return ProxyOptions(
        sticky=fetch.proxy_sticky,
        rests=ProxyRests(fetch.proxy_rest, max(fetch.proxy_rest, fetch.proxy_longest_rest)),
        ban_statuses=frozenset(fetch.proxy_ban_statuses),
        budgeted=proxy_budgets(fetch.proxy, fetch.app_proxies) if fetch.proxy_budget == "address" else "",
        appids=frozenset(fetch.app_proxies),
    )


def _robots_policy(settings: Settings, pool: str) -> RobotsPolicy:
    """Return how the worker treats robots.txt. A crawl of the command line may always ask to ignore it, because the
    person who started it is the operator."""
    policy = RobotsPolicy(settings.fetch.robots)
    is_service = pool == SHARED_POOL
    return policy if is_service or policy is RobotsPolicy.IGNORE else RobotsPolicy.ALLOW_OVERRIDE


def robots_patience(settings: Settings, pool: str) -> float | None:
    """Return the seconds for which requests wait for a robots.txt that cannot be fetched; None: that of a service,
    where no person waits for the end."""
    patience = settings.fetch.robots_patience
    return COMMAND_PATIENCE_SECONDS if patience is None and pool != SHARED_POOL else patience
