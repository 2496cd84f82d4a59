"""Scheduler of a ClusterSpider: runs the requests of all the service's crawls that name its spider.

A leased request is one that the frontier (the queue that all processes share) has given to this process for a while;
settling it reports its outcome. The terms are the options that one crawl request carries, for all requests made of it.

Fixed: the reasons in `_REASONS`, which clients read in records and statistics and share with Gossamer's own worker;
that a retried result never reaches the spider; and that only requests made of a crawl request are stored, because no
other request has terms.
"""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gossamer.commit.own_outputs import OUTPUT_AWAY
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import SHARED_POOL, Run, Terms
from gossamer.model.record import Output
from gossamer.model.request import DropReason, Lease, Outcome, Payload, Settlement
from gossamer.policy.retry import Retry, decide
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.scope import LinkScope, scope_of
from gossamer.scrapy import scheduler
from gossamer.scrapy.cluster.pipelines import SINKS, BusPipeline, CrawlerBusSink
from gossamer.scrapy.cluster.records import failure_output
from gossamer.scrapy.cluster.terms import ClusterEntryEncoder, apply_terms, is_handover, remove_secrets
from gossamer.scrapy.downloader import AddressGuard, AddressRefused, was_taken_over
from gossamer.scrapy.engine import ResultHandler
from gossamer.scrapy.entries import EntryEncoder
from gossamer.scrapy.leasing import CURRENT_LEASE, ActiveLease
from gossamer.scrapy.options import PROJECT_SETTINGS, SchedulerOptions
from gossamer.sinks.base import Sink
from gossamer.worker.drops import drop_reason

log = logging.getLogger(__name__)

_MAX_SCOPES = 1000
"""Number of compiled scopes (which links a crawl request lets be followed) kept in memory. More need memory, fewer are
compiled more often."""


class Scheduler(scheduler.Scheduler):
    """Leases requests from all crawls of the service. Its process runs until it is asked to stop.

    The base class has the scheduler of one crawl, and calls the methods that this one overrides: the first group when
    it opens and closes, the second for each request of the spider, the third when a request has a result. Its `_active`
    has the leases in work by request, and `_end` settles one.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._retries = crawler.settings.getint("RETRY_TIMES")
        """Retries of a request for which neither its crawl request nor its meta names a number."""
        default_base, _ = PROJECT_SETTINGS["GOSSAMER_RETRY_BASE"]
        self._retry_base_seconds = crawler.settings.getfloat("GOSSAMER_RETRY_BASE", default_base)
        self._robots = RobotsPolicy(self.options.settings.fetch.robots)
        self._scopes: dict[int, tuple[Terms, LinkScope]] = {}
        """Compiled scopes by the id() of their terms, which is cheaper than a hash of all their fields."""

    # --- opening and closing ------------------------------------------------------------------------------------------

    def _read_options(self, crawler: Crawler) -> SchedulerOptions:
        if not any(load_object(one) is BusPipeline for one in crawler.settings.getdict("ITEM_PIPELINES")):
            raise BadInput(
                f"ITEM_PIPELINES: without {BusPipeline.__module__}.BusPipeline no page would be published; set it to "
                "None where a pipeline of yours publishes them"
            )
        if self._read_fresh_options(crawler) is not None:
            raise BadInput(
                "GOSSAMER_FRESH is for a spider with a crawl of its own. Crawl requests are kept up to date by their "
                "field recrawl"
            )
        options = super()._read_options(crawler)
        return replace(options, crawl=msgspec.structs.replace(options.crawl, pool=SHARED_POOL), stay_open=True)

    async def _join(self, frontier: ValkeyFrontier) -> Run:
        """Return a run that exists nowhere. It only stands for the spider where a request has no lease.

        Its number must stay 0: `StartClaims` in scrapy/start.py recognizes it by that."""
        return Run(self.options.crawl, number=0, generation=0)

    def _describe_work(self, run: Run) -> str:
        return f"Waiting for crawl requests with the spiderid {self._spider.name}"

    async def _open_sink(self) -> Sink:
        assert self._crawler.spider is not None
        self._sink = SINKS[self._crawler] = await CrawlerBusSink.open(self.options.settings, self._spider.name)
        return self._sink

    def _create_parts(self, run: Run, sink: Sink) -> None:
        super()._create_parts(run, sink)
        self._sink.own_outputs = self._committer.own_outputs

    async def _after_join(self, run: Run, encoder: EntryEncoder) -> EntryEncoder:
        self._guard = AddressGuard(self.options.settings)
        self._engine.add_downloader_middleware(self._guard)
        return ClusterEntryEncoder(
            self._spider, frontier=self.frontier, fingerprinter=self._crawler.request_fingerprinter
        )

    async def _close(self) -> None:
        await super()._close()  # first: it writes the last records into the sink
        self._guard.close()
        SINKS.pop(self._crawler, None)
        await self._sink.close()

    def has_pending_requests(self) -> bool:
        """Return True: there may be more requests at any moment."""
        return True

    async def _count_waiting(self) -> int:
        return sum(one.queued for one in await self.frontier.backlog() if one.spider == self._spider.name)

    def _on_spider_idle(self) -> None:
        raise DontCloseSpider

    def _start(self, lease: Lease) -> ActiveLease | None:
        """Override of LeaseRunner: give back requests of applications whose topic cannot be written."""
        own_outputs = self._committer.own_outputs
        if own_outputs is not None and own_outputs.is_any_late:
            delay = own_outputs.hold_seconds(lease.run.crawl.id.appid)
            if delay:
                self._settle(Settlement(lease, Outcome.POSTPONED, OUTPUT_AWAY, delay_seconds=delay))
                return None
        return super()._start(lease)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _prepare_request(self, request: Request, lease: Lease, payload: Payload) -> Request:
        # A crawl may ignore robots.txt unless the operator's policy applies it even to a crawl that asks for that.
        robots_always_apply = self._robots.applies(True)
        return apply_terms(request, lease, payload, may_ignore_robots=not robots_always_apply)

    def enqueue_request(self, request: Request) -> bool:
        """Store a request under its parent's terms.

        False: it is known, filtered or too deep, or does not come from a request of a crawl."""
        active = CURRENT_LEASE.get()
        if active is None or active.ended:
            log.error(
                "%s is dropped, because it does not come from a request of a crawl; feed a crawl request", request
            )
            return False
        reason = self._refusal(request, active)
        if reason is None:
            if active.replacing:  # a redirect or retry, which takes the place of its parent
                remove_secrets(request, active.lease.terms)
            return super().enqueue_request(request)
        if not active.replacing:
            active.drops[reason] = active.drops.get(reason, 0) + 1
        return False

    def _refusal(self, request: Request, active: ActiveLease) -> str | None:
        """Return the reason for which the crawl's terms refuse the request. None: they allow it."""
        if active.replacing:  # a redirect or retry, which is as deep as the request that it replaces
            may_skip_scope = request.url == active.request.url
        else:
            may_skip_scope = is_handover(request, active)  # the same page for another spider, which is no deeper
            if not may_skip_scope and self._is_too_deep(active):
                return str(DropReason.DEPTH)
        if may_skip_scope:  # this very URL was in scope before
            return None
        refusal = self._scope(active.lease.terms).refusal(request.url)
        return None if refusal is None else drop_reason(refusal.reason)

    def _is_too_deep(self, active: ActiveLease) -> bool:
        """Return whether the crawl's `maxdepth` forbids children of this request."""
        maxdepth = active.lease.terms.maxdepth
        if maxdepth is None or getattr(self._spider, "ignores_maxdepth", False):
            return False
        return active.lease.depth >= maxdepth

    def _scope(self, terms: Terms) -> LinkScope:
        """Return the compiled scope of these terms."""
        known = self._scopes.get(id(terms))
        if known is None:
            if len(self._scopes) >= _MAX_SCOPES:
                self._scopes.clear()
            # The terms are kept beside their id, so that no other object can get the id meanwhile.
            known = self._scopes[id(terms)] = (terms, scope_of(terms))
        return known[1]

    # --- results ------------------------------------------------------------------------------------------------------

    def _handle_result(self, result: Any, request: Request, original: ResultHandler) -> "Deferred[None]":
        """Override of LeaseRunner: retry what is worth a retry by way of the frontier, and count all other results.

        The base class handles results of requests without a lease, replacements (a redirect), and requests that another
        process has taken over."""
        active = self._active.get(request)
        if active is None or isinstance(result, Request) or was_taken_over(result):
            return super()._handle_result(result, request, original)
        active.result = result
        status_or_reason = _status_or_reason(result)
        retry = self._retry(active, status_or_reason) if status_or_reason else None
        if retry is not None:
            # The engine's handler is not called, so the spider gets only the result of the last attempt.
            active.outcome, active.retry_delay_seconds, active.handled = Outcome.RETRY, retry.delay_seconds, True
            active.reason = status_or_reason if isinstance(status_or_reason, str) else f"http_{status_or_reason}"
            self._sink.tally.retry(str(status_or_reason))
            self._end(active)
            return succeed(None)
        is_refused = isinstance(result, Failure) and isinstance(result.value, AddressRefused)
        if not is_refused:
            # Status 0 counts requests without a response.
            self._sink.tally.status(self._spider.name, getattr(result, "status", 0))
        if isinstance(status_or_reason, str):
            active.fail(status_or_reason)
        handled = super()._handle_result(result, request, original)
        if is_refused:  # the base class has just recorded it as filtered, as every IgnoreRequest
            active.outcome, active.reason = Outcome.DROPPED, str(DropReason.BLOCKED_ADDRESS)
        return handled

    def _retry(self, active: ActiveLease, status_or_reason: str | int) -> Retry | None:
        """Return the retry of a request, by any worker. None: no retry, as for the status of a good response.

        `status_or_reason`: as `_status_or_reason` returns it. The number of retries is that of the crawl request, else
        of the request's meta, else of RETRY_TIMES."""
        if active.request.meta.get("dont_retry"):
            return None
        retries = active.lease.terms.retries
        decision = decide(
            status_or_reason,
            active.lease.attempt + 1,
            active.request.meta.get("max_retry_times", self._retries) if retries is None else retries,
            random=random.random(),
            base_seconds=self._retry_base_seconds,
        )
        return decision if isinstance(decision, Retry) else None

    def _records(self, settlement: Settlement, active: ActiveLease | None) -> Sequence[Output]:
        """Return the record of a request that failed or was dropped; BusPipeline has published all others. Count it.

        A request that moved to another domain goes on there, so it has no record yet."""
        if settlement.outcome is Outcome.FETCHED:
            if active is not None:
                self._sink.tally.pages += 1
            return ()
        if settlement.outcome not in (Outcome.FAILED, Outcome.DROPPED) or settlement.reason == DropReason.MOVED:
            return ()
        if settlement.outcome is Outcome.FAILED:
            self._sink.tally.fail(settlement.reason)
        else:
            self._sink.tally.drop(settlement.reason)
        return [
            failure_output(
                settlement.lease, active, reason=settlement.reason, now=time.time(), redact=self._sink.redact
            )
        ]


_REASONS = {
    "CannotResolveHostError": "dns",
    "DNSLookupError": "dns",
    "DownloadConnectionRefusedError": "connect",
    "DownloadTimeoutError": "total_timeout",
    "TimeoutError": "total_timeout",
    "TCPTimedOutError": "connect_timeout",
    "ConnectError": "connect",
    "ResponseDataLossError": "connection_lost",
    "ResponseFailed": "connection_lost",
    "ConnectionLost": "connection_lost",
    "ConnectionDone": "connection_lost",
    "TunnelError": "proxy",
    "DownloadFailedError": "fetch",
}
"""Reason for an exception, by the name of its class or nearest base class. The names are Scrapy's and Twisted's; more
may be added. The reasons are those of Gossamer's own worker; WORTH_A_RETRY in policy/retry.py decides by them. An
exception without a reason here is not retried, and fails under its class's name.

Names instead of classes, because the classes differ between versions of Scrapy and its download handlers.
"""


def _status_or_reason(result: object) -> str | int | None:
    """Return the status of a response, or the reason of a failed download. None: neither, such as an IgnoreRequest."""
    if isinstance(result, Response):
        return result.status
    if not isinstance(result, Failure) or isinstance(result.value, IgnoreRequest):
        return None
    return next((_REASONS[kind.__name__] for kind in type(result.value).__mro__ if kind.__name__ in _REASONS), None)
