"""Leases of a Scrapy process: fetching them ahead of time, and the state and the outcome of each while Scrapy works.

A lease is a request that the frontier (the queue that all processes share) has given to this process for a while;
settling it reports its outcome. Beside leases this file keeps local requests: those that could not be stored, so this
process runs them without a lease.

Fixed: the reasons that `OutcomeRules` gives (`http_404`, the name of an exception), which users read in counters and
records, and the rules of `settle_with_successor`, which decide that a redirect or a retry is neither lost nor fetched
twice.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import RedirectPermit
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import CrawlId, CrawlState, Run
from gossamer.model.request import Batch, DropReason, Lease, Outcome, Settlement, pack, unpack
from gossamer.policy.lateness import START_WITHIN_SECONDS
from gossamer.scrapy.entries import (
    SPIDER_KEY,
    BatchKey,
    EntryEncoder,
    FrontierEntry,
    RequestKey,
    Unstorable,
    add_to_batch,
)
from gossamer.scrapy.spider_attributes import Snapshot
from gossamer.worker.seen import SeenCache

if TYPE_CHECKING:
    from gossamer.scrapy.fresh_visits import PageVisit

log = logging.getLogger(__name__)

RunKey = tuple[str, int, int]
"""Key of a run's fingerprints in SeenCache, this process's memory of seen requests: crawl, run number, generation. A
run is one life of a crawl, from its first request until nothing is left; the generation grows when a run starts with
nothing seen. Each run has its own key, because another run may not have seen the same requests."""


def run_key(run: Run) -> RunKey:
    """Return the key under which the fingerprints of this run are remembered."""
    return run.crawl.id.token, run.number, run.generation


@dataclass(slots=True, eq=False)
class ActiveLease:
    """A lease from the moment when Scrapy gets its request until it is settled."""

    lease: Lease
    request: Request
    outcome: Outcome = Outcome.FETCHED
    reason: str = ""
    replacing: bool = False
    """True while Scrapy schedules the request (a redirect, a retry) by which a middleware has replaced this one."""
    successor: tuple[Request, FrontierEntry] | None = None
    """The request that replaced this one, and its entry."""
    filters_successor: bool = True
    """True: that request is dropped if it is a duplicate."""
    known_children: int = 0
    """Number of child requests that this process knew as seen."""
    uncounted: int = 0
    """Number of those that the statistics do not count yet."""
    local_children: int = 0
    """Number of child requests that could not be stored and run in this process. The lease waits for them."""
    drops: dict[str, int] = field(default_factory=dict)
    """Numbers of dropped child requests by reason."""
    retry_delay_seconds: float = 0.0
    """Shortest time before the retry, where the outcome is RETRY."""
    result: object = None
    """The response or the failure, where a scheduler needs it for a record."""
    attributes: Snapshot | None = None
    """Attributes of the spider before the result was handled. None: they are not compared."""
    handled: bool = False
    """True once Scrapy has handled the result: the callback is exhausted, its items are through the pipelines."""
    ended: bool = False
    """True once its settlement has begun. Later requests are not its children."""
    visit: "PageVisit | None" = None
    """The visit of the page, in an incremental run. None: the page is not compared."""
    batches: dict[BatchKey, Batch] = field(default_factory=dict)
    """Child requests that enter the frontier before the lease is settled."""

    start: float = field(init=False)
    """Monotonic time at which the request is to start."""
    run_key: RunKey = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.lease.start
        self.run_key = run_key(self.lease.run)

    def fail(self, reason: str) -> None:
        """Set the outcome to FAILED. The first reason counts."""
        if self.outcome is Outcome.FETCHED:
            self.outcome, self.reason = Outcome.FAILED, reason


CURRENT_LEASE: ContextVar[ActiveLease | None] = ContextVar("gossamer_lease", default=None)
"""The lease whose result the running code handles. Callbacks, pipelines and the tasks that they start inherit it."""


def known_filter(
    parent: ActiveLease,
    seen: SeenCache,
    url_keys: Mapping[str, RequestKey],
    drops_known: Callable[[Request], bool],
    *,
    epoch: int | None,
) -> Callable[[Request], bool]:
    """Return a function that does what `drops_known` does for the links of a page, in a fraction of the time.

    `url_keys`: keys of GET requests that are nothing but a URL. `epoch`: the current data epoch of `seen`; None: the
    function is valid until the next await only, in which the epoch may change.
    """
    young, old = seen.view(parent.run_key)

    def drops(request: Request) -> bool:
        if type(request) is not Request or request.method != "GET" or request.body:
            return drops_known(request)
        if (meta := request._meta) and (SPIDER_KEY in meta or "verbatim_url" in meta):
            return drops_known(request)
        if request.dont_filter:
            return False
        if epoch is not None and seen.data_epoch != epoch:
            return drops_known(request)
        key = url_keys.get(request.url)
        if key is None:
            return drops_known(request)
        if key.fingerprint in young or key.fingerprint in old:
            parent.known_children += 1
            parent.uncounted += 1
            return True
        return False

    return drops


_IDLE_POLL_SECONDS = 1.0
"""Seconds between two checks for the end of the crawl by an idle process. Longer delays the end of the spider, shorter
costs calls to the frontier. New work wakes the process at once."""
_BUSY_POLL_SECONDS = 5.0
"""Longest wait for work of a process that is not idle."""


class LeaseFetcher:
    """Leases requests while Scrapy has room for them, and detects the end of the crawl."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        holder: ValkeyLeaseholder,
        session: WorkerSession,
        crawl: CrawlId,
        *,
        free_slots: Callable[[], int],
        on_leases: Callable[[Sequence[Lease]], None],
        is_idle: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        """Create a fetcher; `run` does the work.

        `free_slots` returns how many leases can be started now. `on_leases` takes new leases. `is_idle` returns whether
        nothing is under way in this process. `on_change` is called when `has_ended`, or the `state` of an ended crawl,
        has changed.
        """
        self.on_rendering: Callable[[], None] = lambda: None
        """Called while this process is idle and requests wait to be rendered."""
        self._frontier = frontier
        self._holder = holder
        self._session = session
        self._crawl = crawl
        self._free_slots = free_slots
        self._on_leases = on_leases
        self._is_idle = is_idle
        self._on_change = on_change
        self.has_ended = False
        """True: the crawl is finished, stopped or expired, and nothing is under way in this process."""
        self.state: CrawlState | None = None
        """The crawl's state at the last look. None: there was no look yet, or no such crawl."""

    def wake(self) -> None:
        """Look for work now: there is room, or something was committed."""
        self._session.progress.set()

    def continue_crawl(self) -> None:
        """Look for work now, and forget an end of the crawl: a request was added."""
        self.has_ended = False
        self.wake()

    async def run(self) -> None:
        """Lease requests until the task is cancelled."""
        empty_calls = 0  # calls in a row that leased nothing
        while True:
            # Cleared before the slots are counted: a slot that becomes free later sets it again, so none is missed.
            self._session.progress.clear()
            slots = self._free_slots()
            if slots <= 0:
                await self._session.progress.wait()
                continue
            try:
                leases = await self._holder.lease(limit=slots)
            except FrontierUnavailable:
                await self._session.wait_until_reachable()
                continue
            if leases:
                self.has_ended = False
                self._on_leases(leases)
            if len(leases) >= slots:  # there may be more at once
                empty_calls = 0
                continue
            empty_calls = 0 if leases else empty_calls + 1
            if not leases and self._is_idle():
                await self._check_end()
            longest = _IDLE_POLL_SECONDS if self._is_idle() else _BUSY_POLL_SECONDS
            await self._session.wait_for_work(at_most_seconds=longest, empty_leases=empty_calls)

    async def _check_end(self) -> None:
        """Find out whether the crawl has ended, and report a change. An outage is no end: the next check decides."""
        try:
            info = await self._frontier.crawl_info(self._crawl)
            if info is None:
                await self._frontier.check_data()  # notes whether the frontier has lost its data
        except FrontierUnavailable:
            return
        if info is not None and info.rendering.waiting:
            self.on_rendering()
        previous, self.state = self.state, info.state if info else None
        is_over = (
            info is None  # there is no such crawl, for example because its data were lost
            or info.state is not CrawlState.RUNNING
            or not info.total().added  # no request was ever added: a crawl without one would never finish
        )
        # During the calls above, this process may have got work again.
        has_ended = is_over and self._is_idle() and not self._session.progress.is_set()
        if has_ended != self.has_ended or (has_ended and self.state is not previous):
            self.has_ended = has_ended
            self._on_change()


_LEAD_SECONDS = START_WITHIN_SECONDS
"""A request that is leased ahead starts within about this time. May be shorter, which leases less ahead and makes the
spider wait for the frontier more often; must not be longer, because leases that wait longer go back unused."""
_SMOOTHING = 0.2
"""Weight of the newest gap in the average. Above 0 and up to 1: larger follows a change of speed faster, smaller
ignores single pauses better."""
_LONGEST_GAP_SECONDS = 1.0
"""A longer gap between two requests counts as this long. Larger means that after a pause it takes more requests until
any are leased ahead."""


class RequestRate:
    """Smoothed rate at which Scrapy starts requests. It determines how many requests are leased ahead."""

    def __init__(self) -> None:
        self._gap = math.inf
        """Average seconds between two starts; infinite before the first start."""
        self._last = -math.inf

    def on_start(self, now: float) -> None:
        """Record that Scrapy got a request at this monotonic time."""
        gap = min(now - self._last, _LONGEST_GAP_SECONDS)
        self._last = now
        self._gap = gap if self._gap == math.inf else self._gap + _SMOOTHING * (gap - self._gap)

    def lead(self, *, limit: int) -> int:
        """Return how many requests may wait for their start, at most `limit`."""
        if self._gap <= 0:
            return limit
        return min(limit, int(_LEAD_SECONDS / self._gap))


# --- requests that cannot be stored -----------------------------------------------------------------------------------

_MAX_WARNINGS = 20
"""Number of local requests that are logged. Further warnings would say the same."""


class LocalRequests:
    """Requests that could not be stored and run in this process.

    The lease that led to a local request waits for it. If the process dies before, another process fetches the lease's
    page again and comes to the request once more.
    """

    def __init__(self, crawler: Crawler, seen: SeenCache) -> None:
        self._crawler = crawler
        self._seen = seen
        self._waiting: deque[tuple[Request, ActiveLease | None]] = deque()
        self._running: dict[Request, ActiveLease | None] = {}
        self._warnings = 0

    @property
    def has_waiting(self) -> bool:
        """True while a request waits for its start."""
        return bool(self._waiting)

    @property
    def has_pending(self) -> bool:
        """True while a request waits or runs."""
        return bool(self._waiting or self._running)

    def add(self, request: Request, parent: ActiveLease | None, why: Unstorable, *, filtered: bool) -> bool:
        """Accept a request. False: `filtered` is set, and this process had the request before."""
        if self._warnings < _MAX_WARNINGS:
            self._warnings += 1
            log.warning("%s is kept in this process: %s", request, why)
        if filtered:
            # Key and hash have a meaning in this process only: these requests are never in the frontier.
            fingerprint = hash(self._crawler.request_fingerprinter.fingerprint(request))
            key = ("local", parent.run_key if parent is not None else None)
            if self._seen.has_seen(key, fingerprint):
                return False
            self._seen.remember(key, (fingerprint,))
        if parent is not None:
            parent.local_children += 1
        self._waiting.append((request, parent))
        return True

    def start_next(self) -> tuple[Request, ActiveLease | None]:
        """Return the next waiting request, and the lease that led to it."""
        request, parent = self._waiting.popleft()
        self._running[request] = parent
        return request, parent

    def is_running(self, request: Request) -> bool:
        """Return whether this local request was started and has not ended."""
        return request in self._running

    def parent_of(self, request: Request) -> ActiveLease | None:
        """Return the lease that led to a running local request. None: no lease did, or the request is not local."""
        return self._running.get(request)

    def end(self, request: Request) -> ActiveLease | None:
        """Record the end of a request. Return the lease that led to it."""
        parent = self._running.pop(request)
        if parent is not None:
            parent.local_children -= 1
        return parent


# --- outcomes ---------------------------------------------------------------------------------------------------------

_ROBOTS = "robots.txt"
"""Text by which Scrapy's message for a URL that robots.txt forbids is recognized. Changes only if Scrapy's does."""


class OutcomeRules:
    """Derives outcomes from results. A response is a page where Scrapy's HttpErrorMiddleware lets it through; these
    rules must decide as that does, or a page whose callback never ran would count as fetched."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._all_statuses = settings.getbool("HTTPERROR_ALLOW_ALL")
        statuses = getattr(spider, "handle_httpstatus_list", settings.getlist("HTTPERROR_ALLOWED_CODES"))
        self._statuses: Collection[int] = frozenset(int(status) for status in statuses or ())

    def apply(self, active: ActiveLease, result: object) -> None:
        """Set the lease's outcome according to the result of its request."""
        if isinstance(result, Failure):
            self._apply_failure(active, result)
        elif isinstance(result, Response) and not self._is_page(active, result.status):
            active.fail(f"http_{result.status}")

    def _apply_failure(self, active: ActiveLease, failure: Failure) -> None:
        """Set the outcome of a request that raised this failure."""
        fault = failure.value
        if isinstance(fault, HttpError):
            active.fail(f"http_{fault.response.status}")
        elif isinstance(fault, IgnoreRequest):
            robots = _ROBOTS in str(fault)
            active.outcome, active.reason = Outcome.DROPPED, str(DropReason.ROBOTS if robots else DropReason.FILTERED)
        else:
            active.fail(type(fault).__name__)

    def _is_page(self, active: ActiveLease, status: int) -> bool:
        """Return whether a response with this status is a page: its callback runs."""
        if 200 <= status < 300:
            return True
        meta = active.request.meta
        if meta.get("handle_httpstatus_all") or (self._all_statuses and "handle_httpstatus_list" not in meta):
            return True
        statuses = meta.get("handle_httpstatus_list", self._statuses)
        try:
            return status in statuses
        except TypeError:
            return False


async def settle_with_successor(
    active: ActiveLease, settlement: Settlement, encoder: EntryEncoder, holder: ValkeyLeaseholder, retrier: Retrier
) -> Settlement | None:
    """Return the settlement of a lease whose request was replaced by another, its successor (a redirect, a retry).

    `settlement` is what the lease would be settled with otherwise. None: the frontier granted a hit (permission to send
    now), so the lease continues with the successor and is not settled yet.

    - In the same domain and for the same spider, the frontier's entry stays and gets the successor as its payload (the
      stored request). A retry of the same request comes later. A redirect marks its target as seen, as Scrapy does, and
      goes to the front of the queue; it continues at once where a hit is free. A redirect to a request that was seen,
      such as this one itself, is dropped as a duplicate.
    - Otherwise the successor becomes a new entry with the same request id, and is added to the lease's `batches`.

    Raises LeaseLost.
    """
    assert active.successor is not None
    request, entry = active.successor
    lease = active.lease
    if entry.domain != lease.domain or entry.spider != lease.spider:
        request_id = unpack(lease.payload).request_id or lease.request_id
        payload = pack(msgspec.structs.replace(unpack(entry.payload), request_id=request_id))
        add_to_batch(active.batches, replace(entry, payload=payload), unfiltered=not active.filters_successor)
        return msgspec.structs.replace(settlement, outcome=Outcome.DROPPED, reason=str(DropReason.MOVED))
    payload = encoder.payload(request, url=lease.url)
    is_itself = entry.fingerprint == encoder.key(active.request).fingerprint
    if not active.filters_successor:
        outcome = Outcome.RETRY if is_itself else Outcome.FORWARDED
        return msgspec.structs.replace(settlement, outcome=outcome, payload=payload)
    duplicate = msgspec.structs.replace(settlement, outcome=Outcome.DROPPED, reason=str(DropReason.DUPLICATE))
    if is_itself:
        return duplicate
    permit = await retrier.call_frontier(
        lambda: holder.request_redirect(lease, fingerprint=entry.fingerprint, payload=payload), shard=lease.shard
    )
    if permit is RedirectPermit.SEEN:
        return duplicate
    if permit is RedirectPermit.GRANTED:
        return None
    return msgspec.structs.replace(settlement, outcome=Outcome.FORWARDED, payload=payload)
