"""The scheduler of a ClusterSpider: works on whatever crawls of the service name its spider."""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.http import Response
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gossamer.errors import BadInput
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import SHARED, Run, Terms
from gossamer.model.record import Output
from gossamer.model.request import Dropped, Lease, Outcome, Payload, Settlement
from gossamer.policy.retry import Retry, decide
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.scope import LinkScope
from gossamer.scrapy import scheduler
from gossamer.scrapy.cluster.guard import AddressGuard, AddressRefused, kind_of
from gossamer.scrapy.cluster.pipelines import OUTLETS, BusPipeline, Outlet
from gossamer.scrapy.cluster.records import failure_output
from gossamer.scrapy.cluster.terms import ClusterEntries, is_handover, under_terms, without_secrets
from gossamer.scrapy.entries import EntryEncoder
from gossamer.scrapy.live import CURRENT, LiveRequests
from gossamer.scrapy.options import LaneOptions
from gossamer.sinks.base import Sink
from gossamer.worker.context import scope_of
from gossamer.worker.page import drop_reason

log = logging.getLogger(__name__)

_SCOPES = 1000


class Scheduler(scheduler.Scheduler):
    """Leases what the service's crawls have for this spider. Its process stays until it is told to end."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._retries = crawler.settings.getint("RETRY_TIMES")
        self._retry_base = crawler.settings.getfloat("GOSSAMER_RETRY_BASE", 10.0)
        self._obedience = RobotsPolicy(self.options.settings.fetch.robots)
        self._scopes: dict[int, tuple[Terms, LinkScope]] = {}

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _read(self, crawler: Crawler) -> LaneOptions:
        if not any(load_object(one) is BusPipeline for one in crawler.settings.getdict("ITEM_PIPELINES")):
            raise BadInput(
                f"ITEM_PIPELINES: without {BusPipeline.__module__}.BusPipeline no page would be published; set it to "
                "None where a pipeline of yours publishes them"
            )
        options = super()._read(crawler)
        return replace(options, crawl=msgspec.structs.replace(options.crawl, pool=SHARED), stay_open=True)

    async def _join(self, frontier: Frontier) -> Run:
        """None in particular: this one only names the spider where a request comes from no lease."""
        return Run(self.options.crawl, 0, 0)

    def _purpose(self, run: Run) -> str:
        return f"Waiting for what is fed with the spiderid {self._spider.name}"

    async def _output(self) -> Sink:
        assert self._crawler.spider is not None
        self._outlet = OUTLETS[self._crawler] = await Outlet.open(self.options.settings, self._spider.name)
        return self._outlet

    async def _joined(self, run: Run, entries: EntryEncoder) -> EntryEncoder:
        self._guard = AddressGuard(self.options.settings)
        self._engine.add_middleware(self._guard)
        return ClusterEntries(self._spider, frontier=self.frontier, fingerprinter=self._crawler.request_fingerprinter)

    async def _close(self) -> None:
        await super()._close()
        self._guard.close()
        OUTLETS.pop(self._crawler, None)
        await self._outlet.close()

    def has_pending_requests(self) -> bool:
        """Always: there may be more at any moment."""
        return True

    async def _count_waiting(self) -> int:
        return sum(one.queued for one in await self.frontier.backlog() if one.spider == self._spider.name)

    def _spider_idle(self) -> None:
        raise DontCloseSpider

    # --- requests -----------------------------------------------------------------------------------------------------

    def _prepare(self, request: Request, lease: Lease, payload: Payload) -> Request:
        return under_terms(request, lease, payload, ignore_robots=self._obedience.asks(True) is False)

    def enqueue_request(self, request: Request) -> bool:
        """Store a request under its parent's terms. False: it is known, filtered, too deep, or for no crawl at all."""
        live = CURRENT.get()
        if live is None or live.over:
            log.error("%s came from no request of a crawl and is dropped; feed it as a crawl request", request)
            return False
        reason = self._refusal(request, live)
        if reason is None:
            if live.moving:
                without_secrets(request, live.lease.terms)
            return super().enqueue_request(request)
        if not live.moving:
            live.drops[reason] = live.drops.get(reason, 0) + 1
        return False

    def _refusal(self, request: Request, live: LiveRequests) -> str | None:
        """Why the terms do not want it; None: they do."""
        terms = live.lease.terms
        if live.moving:
            if request.url == live.request.url:
                return None
        elif is_handover(request, live):
            return None
        elif self._is_too_deep(live):
            return str(Dropped.DEPTH)
        refusal = self.scope(terms).refusal(request.url)
        return None if refusal is None else drop_reason(refusal.reason)

    def _is_too_deep(self, live: LiveRequests) -> bool:
        maxdepth = live.lease.terms.maxdepth
        return not (maxdepth is None or live.lease.depth < maxdepth or getattr(self._spider, "ignores_maxdepth", False))

    def scope(self, terms: Terms) -> LinkScope:
        """The filters of a submission."""
        known = self._scopes.get(id(terms))
        if known is None:
            if len(self._scopes) >= _SCOPES:
                self._scopes.clear()
            # The terms are kept beside their id, so that no other object can take it over meanwhile.
            known = self._scopes[id(terms)] = (terms, scope_of(terms))
        return known[1]

    # --- answers ------------------------------------------------------------------------------------------------------

    def _around(self, result: Any, request: Request, original: Any) -> "Deferred[None]":
        live = self._live.get(request)
        if live is None or isinstance(result, Request):
            return super()._around(result, request, original)
        live.answer = result
        failure = kind_of(result)
        again = self._again(live, failure) if failure else None
        if again is not None:
            live.outcome, live.delay_seconds, live.answered = Outcome.RETRY, again.delay_seconds, True
            self._outlet.tally.retry(str(failure))
            self._end(live)
            return succeed(None)
        refused = isinstance(result, Failure) and isinstance(result.value, AddressRefused)
        if isinstance(result, Response) or not refused:
            self._outlet.tally.status(self._spider.name, getattr(result, "status", 0))
        if isinstance(failure, str):
            live.fail(failure)
        handled = super()._around(result, request, original)
        if refused:
            live.outcome, live.reason = Outcome.DROPPED, str(Dropped.BLOCKED_ADDRESS)
        return handled

    def _again(self, live: LiveRequests, failure: str | int) -> Retry | None:
        """Another attempt, by any worker; the spider hears nothing of this one."""
        if live.request.meta.get("dont_retry"):
            return None
        own = live.lease.terms.retries
        decision = decide(
            failure,
            live.lease.attempt + 1,
            live.request.meta.get("max_retry_times", self._retries) if own is None else own,
            random=random.random(),
            base_seconds=self._retry_base,
        )
        return decision if isinstance(decision, Retry) else None

    def _records(self, settlement: Settlement, live: LiveRequests | None) -> Sequence[Output]:
        if settlement.outcome not in (Outcome.FAILED, Outcome.DROPPED) or settlement.reason == Dropped.MOVED:
            if live is not None and settlement.outcome is Outcome.FETCHED:
                self._outlet.tally.pages += 1
            return ()
        if settlement.outcome is Outcome.FAILED:
            self._outlet.tally.fail(settlement.reason)
        else:
            self._outlet.tally.drop(settlement.reason)
        return [
            failure_output(
                settlement.lease, live, reason=settlement.reason, now=time.time(), redact=self._outlet.redact
            )
        ]
