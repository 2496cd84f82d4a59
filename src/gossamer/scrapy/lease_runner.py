"""What a scheduler does with leases: from the frontier to Scrapy, and from Scrapy's answer to their settlement."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from twisted.internet.defer import Deferred

from gossamer.commit.committer import Committer, FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import LeaseLost
from gossamer.frontier.base import Frontier, Leaseholder
from gossamer.model.record import Output
from gossamer.model.request import DEATHS, Batch, Dropped, Lease, Outcome, Payload, Settlement, unpack
from gossamer.policy.timing import is_late, send_by
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.entries import EntryEncoder, FrontierEntry
from gossamer.scrapy.feeds import Feeds
from gossamer.scrapy.inbox import Inbox, LocalRequests
from gossamer.scrapy.leasing import LeaseFetcher, OutcomeRules, RequestRate, move
from gossamer.scrapy.live import CURRENT, LiveRequests, Part, append
from gossamer.scrapy.options import LaneOptions
from gossamer.scrapy.stored import Unreadable, restore
from gossamer.telemetry.logs import Troubles
from gossamer.worker.context import SeenCache

log = logging.getLogger(__name__)

_PUNCTUAL_SECONDS = 0.001
"""A request that is to start so soon starts now."""
_PENDING_PAGES = 512
"""Finished requests that wait for the frontier; beyond it nothing more is leased."""


class LeaseRunner:
    """The larger half of the scheduler. The parts below are set when the crawl has been joined."""

    frontier: Frontier
    holder: Leaseholder
    _entries: EntryEncoder
    _committer: Committer
    _inbox: Inbox
    _session: WorkerSession
    _leasing: LeaseFetcher

    def __init__(self, crawler: Crawler, engine: EngineDoor, options: LaneOptions) -> None:
        assert crawler.spider is not None
        assert crawler.stats is not None
        self.options = options
        self._crawler = crawler
        self._spider: Spider = crawler.spider
        self._stats = crawler.stats
        self._engine = engine
        self._outcomes = OutcomeRules(crawler.spider, crawler.settings)
        self._feeds = Feeds(crawler)
        self._retrier = Retrier(Troubles())
        self._seen = SeenCache(options.settings.worker.seen_cache, era=lambda: self.frontier.era)
        self._local = LocalRequests(crawler, self._seen)
        self._ready: deque[Lease] = deque()
        """Leased, not begun. The next to start is the first."""
        self._live: dict[Request, LiveRequests] = {}
        self._granted: deque[LiveRequests] = deque()
        """Redirects that may go on at once."""
        self._suspect: Lease | None = None
        self._pace = RequestRate()
        self._tasks: set[asyncio.Future[None]] = set()
        self._closing = False

    # --- what those that come from elsewhere change -------------------------------------------------------------------

    def _prepare(self, request: Request, lease: Lease, payload: Payload) -> Request:
        """The leased request as it is to be sent."""
        return request

    def _records(self, settlement: Settlement, live: LiveRequests | None) -> Sequence[Output]:
        """What is to be told of an end. `live` None: it was not begun here."""
        return ()

    async def _sift(self, batches: list[Batch]) -> list[Batch]:
        """What of these is to be added. Raises FrontierUnavailable, and is asked again."""
        return batches

    def _broke(self, task: "asyncio.Future[Any]") -> None:
        """Something that was under way has ended, perhaps badly: then what it held would never be settled."""

    # --- from the frontier to Scrapy ---

    def next_request(self) -> Request | None:
        """A leased request, as the one Scrapy knows. None: none is here now."""
        if self._closing:
            return None
        if self._local.waiting:
            request, parent = self._local.begin()
            CURRENT.set(parent)
            return request
        while self._granted:
            live = self._granted.popleft()
            if self.holder.holds(live.lease):
                CURRENT.set(live)
                return live.request
            self._live.pop(live.request, None)
        if self._suspect is not None:
            return self._next_suspect()
        now = time.monotonic()
        while self._ready:
            lease = self._ready[0]
            held = self.holder.holds(lease)
            if held and (ahead := lease.start - now) > _PUNCTUAL_SECONDS:
                asyncio.get_running_loop().call_later(ahead, self._engine.wake)
                break
            self._ready.popleft()
            if not held:
                continue
            if lease.deaths == DEATHS - 1:
                self._suspect = lease
                self._give_back_ready()
                return self._next_suspect()
            if is_late(lease.start, lease.spacing_seconds, now=now):
                self._settle(Settlement(lease, Outcome.RETURNED))
                continue
            if (begun := self._begin(lease)) is not None:
                self._pace.started(now)
                self._leasing.want()
                CURRENT.set(begun)
                return begun.request
        self._leasing.want()
        return None

    def _next_suspect(self) -> Request | None:
        """Its last chance a request gets alone: else what is beside the one that kills would be given up with it. By
        then its hit may be too old for it: the throttle asks for another."""
        assert self._suspect is not None
        if not self.holder.holds(self._suspect):
            self._suspect = None
            self._leasing.want()
            return None
        if self._live or self._tasks or self._committer.pending:
            return None
        live = self._begin(self._suspect)
        if live is None:
            self._suspect = None
            return None
        CURRENT.set(live)
        return live.request

    # --- leases -------------------------------------------------------------------------------------------------------

    def _begin(self, lease: Lease) -> LiveRequests | None:
        if lease.deaths >= DEATHS:
            log.error("%s: %d processes died with it; it is given up", lease.url, lease.deaths)
            self._settle(Settlement(lease, Outcome.FAILED, "worker_died"))
            return None
        if lease.blacklisted:
            log.warning("%s: its domain is on the operator's blacklist; it is dropped", lease.url)
            self._stats.inc_value(f"gossamer/dropped/{Dropped.BLACKLISTED}")
            self._settle(Settlement(lease, Outcome.DROPPED, Dropped.BLACKLISTED))
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
        live = self._live[request] = LiveRequests(lease, request)
        self._stats.inc_value("scheduler/dequeued")
        return live

    def _send_by(self, request: Request) -> float | None:
        """The latest moment at which the request may be sent on the hit it has; None: it was not leased."""
        live = self._live.get(request)
        return None if live is None else send_by(live.start, live.lease.spacing_seconds)

    def _room(self) -> int:
        if self._closing or self._suspect or self._committer.pending >= _PENDING_PAGES or self._engine.backs_out:
            return 0
        ahead = self._pace.ahead(self.options.concurrency)
        return self.options.concurrency + ahead - self._engine.downloading - len(self._ready)

    def _give(self, leases: Sequence[Lease]) -> None:
        self._ready = deque(sorted([*self._ready, *leases], key=lambda lease: lease.start))
        if self._suspect:
            self._give_back_ready()
        self._engine.wake()

    def _give_back_ready(self) -> None:
        """As never started: nobody's death counts for them."""
        while self._ready:
            self._settle(Settlement(self._ready.popleft(), Outcome.RETURNED))

    def _is_idle(self) -> bool:
        return not (
            self._ready or self._suspect or self._live or self._tasks or self._local.pending
            or self._committer.pending or self._inbox.pending
        )  # fmt: skip

    # --- the end of a request -----------------------------------------------------------------------------------------

    def _around(self, result: Any, request: Request, original: Any) -> "Deferred[None]":
        """What the engine does with an answer, as the work of its lease."""
        live = self._live.get(request)
        parent = live or self._local.parent_of(request)
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
        elif self._local.runs(request):
            handled.addBoth(self._local_done, request)
        return handled

    def _answered(self, result: Any, live: LiveRequests, moved: bool) -> Any:
        live.answered = True
        if moved and live.successor is None:
            live.outcome, live.reason = Outcome.DROPPED, str(Dropped.FILTERED)
        self._end(live)
        return result

    def _local_done(self, result: Any, request: Request) -> Any:
        if (parent := self._local.end(request)) is not None:
            self._end(parent)
        self._leasing.want()
        self._engine.wake()
        return result

    def _end(self, live: LiveRequests) -> None:
        if not live.answered or live.local or live.over:
            return
        live.over = True
        self._live.pop(live.request, None)
        if self._suspect is not None and self._suspect is live.lease:
            self._suspect = None
        if not self.holder.holds(live.lease):
            return  # it is another worker's by now
        self._later(self._commit(live))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._broke)

    async def _commit(self, live: LiveRequests) -> None:
        drops = live.drops
        if live.known:
            drops[str(Dropped.DUPLICATE)] = live.known
        settlement = Settlement(
            live.lease, live.outcome, live.reason, delay_seconds=live.delay_seconds, drops=drops or None
        )
        asked = time.monotonic()  # before the first time: a call that is repeated gives the hit of the first
        try:
            if live.successor and not await self._wanted(*live.successor):
                settlement.outcome, settlement.reason = Outcome.DROPPED, str(Dropped.DUPLICATE)
            elif live.successor and await move(live, settlement, self._entries, self.holder, self._retrier):
                successor = self._live[live.successor[0]] = LiveRequests(live.lease, live.successor[0])
                successor.start = asked
                self._granted.append(successor)
                self._engine.wake()
                return
        except LeaseLost:
            return
        await self._retrier.write_output(self._feeds.flush)
        batches = list(live.batches.values())
        batches = await self._retrier.call_frontier(lambda: self._sift(batches))
        outputs = self._records(settlement, live)
        finished = FinishedLease(settlement, outputs, batches, size=_size(batches))
        if batches:
            finished.on_links_added = partial(self._remember, live.part, batches, self._seen.era)
        await self._committer.put(finished)

    async def _wanted(self, request: Request, entry: FrontierEntry) -> bool:
        """Whether a request that takes another's place is to be made at all."""
        batch = Batch(
            entry.spider, entry.domain, entry.priority, entry.depth, payloads=[], unfiltered=request.dont_filter
        )
        append(batch, entry)
        return bool(await self._retrier.call_frontier(lambda: self._sift([batch])))

    def _settle(self, settlement: Settlement) -> None:
        self._later(self._committer.put(FinishedLease(settlement, self._records(settlement, None))))

    def _remember(self, part: Part, batches: Sequence[Batch], since: int, rejected: Collection[int]) -> None:
        for batch in batches:
            if not batch.unfiltered:
                marks = [mark for mark in batch.fingerprints if mark not in rejected]
                self._seen.remember(part, marks, since=since)

    def _committed(self, batch: Sequence[FinishedLease]) -> None:
        self._leasing.want()
        if self._suspect:
            self._engine.wake()


def _size(batches: Sequence[Batch]) -> int:
    return 1000 + sum(len(payload or b"") + 200 for batch in batches for payload in batch.payloads or ())
