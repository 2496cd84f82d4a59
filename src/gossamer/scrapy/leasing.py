"""Takes leases for a Scrapy process while there is room, and knows when the whole crawl is over."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec
from scrapy import Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.python.failure import Failure

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Frontier, Leaseholder, RedirectPermit
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Dropped, Lease, Outcome, Settlement, pack, unpack
from gossamer.scrapy.entries import EntryEncoder
from gossamer.scrapy.live import LiveRequests

_LOOK_SECONDS = 1.0
"""An idle process looks so often whether the crawl is over. Work that arrives wakes it at once."""


class LeaseFetcher:
    """Runs in the spider's event loop until it is cancelled."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        seat: WorkerSession,
        crawl: CrawlId,
        *,
        room: Callable[[], int],
        give: Callable[[Sequence[Lease]], None],
        idle: Callable[[], bool],
        tell: Callable[[], None],
    ) -> None:
        """`room`: how many leases can be started now. `give` takes them. `idle`: nothing is under way here. `tell`:
        `over` has changed, or `state` of what is over."""
        self._frontier = frontier
        self._holder = holder
        self._session = seat
        self._crawl = crawl
        self._room = room
        self._give = give
        self._idle = idle
        self._tell = tell
        self.over = False
        """The crawl is over, and nothing is under way here."""
        self.state: CrawlState | None = None
        """How the crawl stood when it was last looked at. None: not looked at, or no such crawl."""

    def want(self) -> None:
        """There is room, or something was committed: look for work now."""
        self._session.progress.set()

    def not_over(self) -> None:
        """Something was added: whatever was known of the end no longer holds."""
        self.over = False
        self.want()

    async def run(self) -> None:
        """For ever; cancel it."""
        empty = 0
        while True:
            self._session.progress.clear()
            room = self._room()
            if room <= 0:
                await self._session.progress.wait()
                continue
            try:
                leases = await self._holder.lease(limit=room)
            except FrontierUnavailable:
                await self._session.wait_until_reachable()
                continue
            if leases:
                self.over = False
                self._give(leases)
            if len(leases) >= room:
                empty = 0
                continue
            empty = 0 if leases else empty + 1
            if not leases and self._idle():
                await self._look()
            await self._session.wait_for_work(
                at_most_seconds=_LOOK_SECONDS if self._idle() else 5.0, empty_leases=empty
            )

    async def _look(self) -> None:
        try:
            info = await self._frontier.crawl_info(self._crawl)
            if info is None:
                await self._frontier.check_data()
        except FrontierUnavailable:
            return
        before, self.state = self.state, info.state if info else None
        over = info is None or info.state is not CrawlState.RUNNING or not info.total().added
        over = over and self._idle() and not self._session.progress.is_set()
        if over != self.over or (over and self.state is not before):
            self.over = over
            self._tell()


_ROBOTS = "robots.txt"


class OutcomeRules:
    """The rules of one spider: which answers are pages is for HttpErrorMiddleware to say."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._all = settings.getbool("HTTPERROR_ALLOW_ALL")
        codes = getattr(spider, "handle_httpstatus_list", None) or settings.getlist("HTTPERROR_ALLOWED_CODES")
        self._codes: Collection[int] = frozenset(int(code) for code in codes)

    def judge(self, live: LiveRequests, result: object) -> None:
        """Note what the answer, or its absence, makes of the request."""
        if isinstance(result, Failure):
            self._failed(live, result)
        elif isinstance(result, Response) and not self._is_page(live, result.status):
            live.fail(f"http_{result.status}")

    def _failed(self, live: LiveRequests, failure: Failure) -> None:
        fault = failure.value
        if isinstance(fault, HttpError):
            live.fail(f"http_{fault.response.status}")
        elif isinstance(fault, IgnoreRequest):
            robots = _ROBOTS in str(fault)
            live.outcome, live.reason = Outcome.DROPPED, str(Dropped.ROBOTS if robots else Dropped.FILTERED)
        else:
            live.fail(type(fault).__name__)

    def _is_page(self, live: LiveRequests, status: int) -> bool:
        if 200 <= status < 300 or self._all:
            return True
        meta = live.request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        codes = meta.get("handle_httpstatus_list", self._codes)
        try:
            return status in codes
        except TypeError:
            return False


async def move(
    live: LiveRequests, settlement: Settlement, entries: EntryEncoder, holder: Leaseholder, retrier: Retrier
) -> bool:
    """Turn `settlement` into what the move asks for. True: a hit is granted, the lease goes on with the successor now.

    Inside the domain it stays one request: back to the front with the successor in its payload, later for a retry of
    the same. A redirect marks its target as seen, as Scrapy does, and may go on at once where a hit is free. To another
    domain or spider it goes as a new entry of the same request id. Raises LeaseLost.
    """
    assert live.successor is not None
    request, entry = live.successor
    lease = live.lease
    if entry.domain != lease.domain or entry.spider != lease.spider:
        known = unpack(lease.payload).request_id or lease.request_id
        renamed = msgspec.structs.replace(unpack(entry.payload), request_id=known)
        live.add(replace(entry, payload=pack(renamed)), unfiltered=request.dont_filter)
        settlement.outcome, settlement.reason = Outcome.DROPPED, str(Dropped.MOVED)
        return False
    payload = entries.payload(request, url=lease.url) or b""
    settlement.payload = payload
    if entry.fingerprint == entries.name(live.request).fingerprint:
        settlement.outcome = Outcome.RETRY
        return False
    settlement.outcome = Outcome.FORWARDED
    if request.dont_filter:
        return False
    hop = await retrier.call_frontier(
        lambda: holder.request_redirect(lease, fingerprint=entry.fingerprint, payload=payload), shard=lease.shard
    )
    if hop is RedirectPermit.SEEN:
        settlement.outcome, settlement.reason, settlement.payload = Outcome.DROPPED, str(Dropped.DUPLICATE), None
    return hop is RedirectPermit.GRANTED


_WINDOW_SECONDS = 0.1
"""A request that is leased ahead starts within about this long: half of what a lease may wait for its start."""
_WEIGHT = 0.2


class RequestRate:
    """How often Scrapy starts a request, smoothed. As fast as it is, so many are ready when it asks."""

    def __init__(self) -> None:
        self._gap = math.inf
        self._last = -math.inf

    def started(self, now: float) -> None:
        """A request was handed to Scrapy, at this monotonic time."""
        gap = min(now - self._last, 1.0)
        self._last = now
        self._gap = gap if self._gap == math.inf else self._gap + _WEIGHT * (gap - self._gap)

    def ahead(self, most: int) -> int:
        """How many requests may wait for their start, at most `most`."""
        if self._gap <= 0:
            return most
        return min(most, int(_WINDOW_SECONDS / self._gap))
