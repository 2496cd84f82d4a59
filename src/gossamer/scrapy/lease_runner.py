"""Runs leases in Scrapy: gives leased requests to the engine, and reports the outcome of each to the frontier.

The frontier is the queue that all processes of a crawl share. A lease is a request that it has given to this process
for a while, with a hit: the permission to send one request to the domain at a certain time. Settling reports the
outcome and ends the lease. The states of a lease in this process, in their order:

- Ready (in `_ready`): it waits for its start time. It may go back to the frontier from here, as if never leased.
- Active (in `_active`, as an ActiveLease): Scrapy has its request, or one of its local requests. A local request is one
  that the callback made and that cannot be stored, for example because its own callback is a lambda. It runs in this
  process without a lease, and the lease that led to it waits for it. `_end` ends this state.
- Committing (a task in `_tasks`, then in `_committer`): its items and child requests are stored, then it is settled.
  If its request was redirected and the frontier grants another hit, the lease is active again instead, with the
  redirect as its request (`_redirects`, `_continue_with`).

Another worker may take a lease over at any time, if this process was silent for too long. `holder.holds` returns False
then, and the lease is dropped without being settled.

A suspect is a lease with one try left, because every process that ran it so far has died. It runs alone.

Fixed: a lease is settled only after its items and child requests are stored (`_commit`), because a process that died
in between would lose them; a suspect runs alone, redirects included (`_suspect`), because requests that ran beside it
would be given up, too; and the reasons (`worker_died`) and names of statistics, which users read.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from twisted.internet.defer import Deferred, succeed

from gossamer.commit.committer import Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import LeaseLost
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.record import Output
from gossamer.model.request import MAX_DEATHS, Batch, DropReason, Lease, Outcome, Payload, Settlement, unpack
from gossamer.policy.lateness import is_late, send_by
from gossamer.scrapy.buffered_feeds import FeedFiles
from gossamer.scrapy.downloader import was_taken_over
from gossamer.scrapy.engine import EngineAdapter, ResultHandler
from gossamer.scrapy.entries import (
    BatchKey,
    EntryEncoder,
    FrontierEntry,
    Unreadable,
    add_to_batch,
    deserialize,
)
from gossamer.scrapy.leasing import (
    CURRENT_LEASE,
    ActiveLease,
    LeaseFetcher,
    LocalRequests,
    OutcomeRules,
    RequestRate,
    RunKey,
    settle_with_successor,
)
from gossamer.scrapy.options import SchedulerOptions
from gossamer.scrapy.spider_attributes import SpiderAttributes
from gossamer.scrapy.start import Inbox
from gossamer.telemetry.logs import Troubles
from gossamer.worker.seen import SeenCache

if TYPE_CHECKING:
    from gossamer.scrapy.fresh_visits import FreshVisits

log = logging.getLogger(__name__)

_PUNCTUAL_SECONDS = 0.001
"""A request whose start time is this close starts now: a timer would not be more precise. Larger values let a site see
requests that much too early."""
_MAX_UNSETTLED = 512
"""Number of finished requests waiting for their outputs or the frontier at which leasing pauses. More need memory,
fewer make a slow frontier pause the crawl earlier."""
_LEASE_BYTES = 1000
_CHILD_BYTES = 200
"""Memory of a finished lease, and of each child request besides its payload. Estimates, which the committer adds up to
bound its queue."""


class LeaseRunner:
    """Base of the schedulers: the part that runs leases. A scheduler sets the attributes below when it opens."""

    frontier: ValkeyFrontier
    holder: ValkeyLeaseholder
    """This process as a worker of the frontier: leases requests and knows which it still holds."""
    _encoder: EntryEncoder
    _committer: Committer
    """Publishes records, adds child requests and settles leases, in this order and in batches."""
    _inbox: Inbox
    """Adds requests that no lease led to, such as start requests."""
    _session: WorkerSession
    """Sends heartbeats, and wakes `_fetcher`."""
    _fetcher: LeaseFetcher

    def __init__(self, crawler: Crawler, engine: EngineAdapter, options: SchedulerOptions) -> None:
        assert crawler.spider is not None
        assert crawler.stats is not None
        self.options = options
        self._crawler = crawler
        self._spider: Spider = crawler.spider
        self._stats = crawler.stats
        self._engine = engine
        self._outcomes = OutcomeRules(crawler.spider, crawler.settings)
        self._feeds = FeedFiles(crawler)
        self._retrier = Retrier(Troubles())
        self._seen = SeenCache(options.settings.worker.seen_cache, data_epoch=lambda: self.frontier.data_epoch)
        """Fingerprints that the frontier is known to have seen. It grows only after the frontier's answer."""
        self._local = LocalRequests(crawler, self._seen)
        """Requests that cannot be stored, so they run in this process without a lease; parents know how many they have
        (`ActiveLease.local_children`)."""
        self._ready: deque[Lease] = deque()
        """Leases that wait for their start, ordered by start time."""
        self._active: dict[Request, ActiveLease] = {}
        """Leases whose request Scrapy has or gets next, or which wait for one of their local requests."""
        self._redirects: deque[ActiveLease] = deque()
        """Active leases that continue with a redirect, which Scrapy gets next: the frontier has granted its hit."""
        self._attributes = SpiderAttributes(crawler.spider)
        self._visits: FreshVisits | None = None
        """Visits of pages in an incremental run. None: all pages are handled."""
        self._suspect: Lease | None = None
        """The suspect, from its turn until it is certain that its lease does not continue. Meanwhile no other lease is
        started or taken."""
        self._started_count = 0
        """Number of leases whose request Scrapy has got."""
        self._rate = RequestRate()
        self._tasks: set[asyncio.Future[None]] = set()
        """Tasks that settle leases. A scheduler that closes waits for them."""
        self._is_closing = False

    # --- what schedulers override -------------------------------------------------------------------------------------

    def _prepare_request(self, request: Request, lease: Lease, payload: Payload) -> Request:
        """Return the leased request as it is to be sent."""
        return request

    def _prepare_rendering(self, request: Request) -> None:
        """Prepare a leased request that is to be rendered."""

    def _records(self, settlement: Settlement, active: ActiveLease | None) -> Sequence[Output]:
        """Return the records to publish for a settlement. `active` None: the request was not started here."""
        return ()

    async def _filter_batches(self, batches: list[Batch]) -> list[Batch]:
        """Return the batches that are to be added. Raises FrontierUnavailable, and is called again then."""
        return batches

    def _on_attributes_changed(self) -> None:
        """Handle that `_attributes` has found attributes of the spider that pages change."""

    def _on_task_done(self, task: "asyncio.Future[Any]") -> None:
        """Handle the end of a background task. One that failed leaves leases that would never be settled."""

    # --- from the frontier to Scrapy ----------------------------------------------------------------------------------

    def next_request(self) -> Request | None:
        """Return the next request to download. None: there is none at the moment.

        The order: local requests and redirects, because leases that are under way wait for them; a suspect, alone; the
        ready leases by start time. Of the ready leases, those that another worker has by now are forgotten, and those
        that are too late go back to the frontier.

        Scrapy's callbacks run with the CURRENT_LEASE that is set here: the lease that the request belongs to.
        """
        if self._is_closing:
            return None
        if self._local.has_waiting:
            request, parent = self._local.start_next()
            CURRENT_LEASE.set(parent)
            return request
        while self._redirects:
            active = self._redirects.popleft()
            if self.holder.holds(active.lease):
                CURRENT_LEASE.set(active)
                return active.request
            self._active.pop(active.request, None)
        if self._suspect is not None:
            return self._next_suspect()
        now = time.monotonic()
        while self._ready:
            lease = self._ready[0]
            is_held = self.holder.holds(lease)
            if is_held and (wait := lease.start - now) > _PUNCTUAL_SECONDS:  # not due yet, nor are those behind it
                asyncio.get_running_loop().call_later(wait, self._engine.wake)
                break
            self._ready.popleft()
            if not is_held:
                continue  # another worker has the request by now
            if lease.deaths == MAX_DEATHS - 1:
                self._suspect = lease
                self._return_ready()
                return self._next_suspect()
            if is_late(lease.start, lease.spacing_seconds, now=now):
                # Sent now, it would come together with requests whose hits were charged for later times.
                self._settle(Settlement(lease, Outcome.RETURNED))
                continue
            if (started := self._start(lease)) is not None:
                self._rate.on_start(now)
                self._fetcher.wake()
                CURRENT_LEASE.set(started)
                return started.request
        self._fetcher.wake()
        return None

    def _next_suspect(self) -> Request | None:
        """Return the suspect's request once nothing else is under way: if it kills this process too, nothing else is
        lost with it. None: not yet, or the suspect is under way itself.

        Its hit may be too old by then. The downloader middleware that the scheduler adds (`SharedThrottle` in
        downloader.py) makes a request without a usable hit wait for another one.
        """
        assert self._suspect is not None
        if not self.holder.holds(self._suspect):
            self._release_suspect(self._suspect)
            return None
        if self._active or self._tasks or self._committer.pending:
            return None
        active = self._start(self._suspect)
        if active is None:
            self._suspect = None
            return None
        CURRENT_LEASE.set(active)
        return active.request

    def _release_suspect(self, lease: Lease) -> None:
        """Let other leases run again, if this one is the suspect: it does not continue in this process."""
        if self._suspect is lease:
            self._suspect = None
            self._fetcher.wake()

    def _start(self, lease: Lease) -> ActiveLease | None:
        """Decode the request of a lease, which is active from then on. None: the request cannot or must not be run; the
        lease is settled."""
        if lease.deaths >= MAX_DEATHS:
            log.error("%s: given up, because %d processes died with it", lease.url, lease.deaths)
            self._settle(Settlement(lease, Outcome.FAILED, "worker_died"))
            return None
        if lease.blacklisted:
            log.warning("%s: dropped, because its domain is on the operator's blacklist", lease.url)
            self._stats.inc_value(f"gossamer/dropped/{DropReason.BLACKLISTED}")
            self._settle(Settlement(lease, Outcome.DROPPED, DropReason.BLACKLISTED))
            return None
        try:
            payload = unpack(lease.payload)
            request = deserialize(payload, self._spider, url=lease.url, priority=lease.priority)
            request = self._prepare_request(request, lease, payload)
            if lease.render:
                self._prepare_rendering(request)
        except Unreadable as error:
            log.error("%s: %s", lease.url, error)
            self._stats.inc_value(f"gossamer/failed/{error.reason}")
            self._settle(Settlement(lease, Outcome.FAILED, error.reason))
            return None
        active = self._active[request] = ActiveLease(lease, request)
        self._started_count += 1
        self._stats.inc_value("scheduler/dequeued")
        return active

    def _send_by(self, request: Request) -> float | None:
        """Return the latest time at which the request may be sent on its hit. None: it was not leased."""
        active = self._active.get(request)
        return None if active is None else send_by(active.start, active.lease.spacing_seconds)

    def _egress_of(self, request: Request) -> str | None:
        """Return the address for which the request's hit was charged. None: it was not leased."""
        active = self._active.get(request)
        return None if active is None else active.lease.egress

    def _is_taken_over(self, request: Request) -> bool:
        """Return whether a leased request is another process's by now, because this one was silent for too long."""
        active = self._active.get(request)
        return active is not None and not self.holder.holds(active.lease)

    def _free_slots(self) -> int:
        """Return how many more requests to lease: as many as can be sent at once, and some to be sent soon after."""
        unsettled = len(self._tasks) + self._committer.pending  # tasks wait for outputs: a full disk, say
        if self._is_closing or self._suspect or unsettled >= _MAX_UNSETTLED or self._engine.is_full:
            return 0
        wanted = self.options.concurrency + self._rate.lead(limit=self.options.concurrency)
        return wanted - self._engine.download_count - len(self._ready)

    def _on_leases(self, leases: Sequence[Lease]) -> None:
        """Take new leases. While a suspect waits or runs, they go back."""
        self._ready = deque(sorted([*self._ready, *leases], key=lambda lease: lease.start))
        if self._suspect:
            self._return_ready()
        self._engine.wake()

    def _return_ready(self) -> None:
        """Give back the leases that were not started, so that they do not count as died with this process."""
        while self._ready:
            self._settle(Settlement(self._ready.popleft(), Outcome.RETURNED))

    def _is_idle(self) -> bool:
        return not (
            self._ready or self._suspect or self._active or self._tasks or self._local.has_pending
            or self._committer.pending or self._inbox.pending
        )  # fmt: skip

    # --- the end of a request -----------------------------------------------------------------------------------------

    def _handle_result(self, result: Any, request: Request, original: ResultHandler) -> "Deferred[None]":
        """Let the engine handle a result with the request's lease as CURRENT_LEASE.

        Afterwards the lease of a leased request is settled, and a local request ends. Results of other requests, such
        as those of `engine.download`, only pass through."""
        active = self._active.get(request)
        if active is not None and was_taken_over(result):
            active.handled = True
            self._end(active)  # settles nothing, because the lease is not held
            return succeed(None)
        if active is not None and self._visits is not None and self._visits.skips(active, result):
            active.handled = True
            self._end(active)
            return succeed(None)
        parent = active or self._local.parent_of(request)
        token = CURRENT_LEASE.set(parent)
        try:
            if active is not None and isinstance(result, Request):
                active.replacing = True
            elif active is not None and self._engine.has_start_ended:
                active.attributes = self._attributes.before_page()
            handled: Deferred[None] = original(result, request)
        finally:
            CURRENT_LEASE.reset(token)
        if active is not None:
            active.replacing = False
            self._outcomes.apply(active, result)
            handled.addBoth(self._on_handled, active, isinstance(result, Request))
        elif self._local.is_running(request):
            handled.addBoth(self._on_local_handled, request)
        return handled

    def _on_handled(self, result: Any, active: ActiveLease, replaced: bool) -> Any:
        """Settle the lease. `replaced`: a middleware put another request (a redirect, a retry) in place of this one."""
        active.handled = True
        self._count_known(active)
        if active.attributes is not None and self._attributes.after_page(active.attributes):
            self._on_attributes_changed()
        if replaced and active.successor is None and active.outcome is Outcome.FETCHED:
            # The scheduler has refused the other request.
            active.outcome, active.reason = Outcome.DROPPED, str(DropReason.FILTERED)
        self._end(active)
        return result

    def _on_local_handled(self, result: Any, request: Request) -> Any:
        """End a local request. The lease that led to it may be settled now."""
        if (parent := self._local.end(request)) is not None:
            self._count_known(parent)
            self._end(parent)
        self._fetcher.wake()
        self._engine.wake()
        return result

    def _count_known(self, active: ActiveLease) -> None:
        """Count the links of a page that were dropped as known."""
        if active.uncounted:
            self._stats.inc_value("dupefilter/filtered", active.uncounted)
            active.uncounted = 0

    def _end(self, active: ActiveLease) -> None:
        """Settle the lease, unless something is still under way for it."""
        if not active.handled or active.local_children or active.ended:
            return
        active.ended = True
        self._active.pop(active.request, None)
        if not self.holder.holds(active.lease):
            self._release_suspect(active.lease)
            return  # another worker has the request by now
        self._start_task(self._commit(active))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work in a task, for which a closing scheduler waits."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_task_done)

    async def _commit(self, active: ActiveLease) -> None:
        """Report the end of a request; continue its lease with a redirect if the frontier grants a hit for that.

        The order must stay: the items leave this process's buffers, then the committer adds the child requests, and
        then it settles the lease. A process killed in between leaves the lease, and the page is fetched again. The
        suspect remains the suspect until it is certain here that its lease does not continue.
        """
        drops = active.drops
        if active.known_children:
            drops[str(DropReason.DUPLICATE)] = active.known_children
        settlement = Settlement(
            active.lease, active.outcome, active.reason, delay_seconds=active.retry_delay_seconds, drops=drops or None
        )
        if active.successor is not None:
            try:
                final = await self._continue_with(active.successor, active, settlement)
            except LeaseLost:
                self._release_suspect(active.lease)
                return
            if final is None:
                return
            settlement = final
        self._release_suspect(active.lease)
        await self._retrier.write_output(self._feeds.flush)
        if self._visits is not None:
            await self._visits.settle(active)
        batches = list(active.batches.values())
        batches = await self._retrier.call_frontier(lambda: self._filter_batches(batches))
        outputs = self._records(settlement, active)
        finished = FinishedLease(settlement, outputs, batches, size=_size(batches))
        if batches:
            finished.on_links_added = partial(self._on_links_added, finished, active, self._seen.data_epoch)
        await self._committer.put(finished)
        if not self._active and not self._ready:
            self._committer.flush()  # no other page will come to the batch

    async def _continue_with(
        self, successor: tuple[Request, FrontierEntry], active: ActiveLease, settlement: Settlement
    ) -> Settlement | None:
        """Decide how a lease ends whose request was replaced by its successor, another request (a redirect, a retry).

        Return the settlement to use in place of the given one. None: the frontier has granted a hit to the successor,
        so the lease is active again with it. Raises LeaseLost."""
        request, entry = successor
        # Read before the first call: when a call is repeated, the frontier grants the hit of the first one.
        asked_at = time.monotonic()
        if not await self._is_wanted(entry, unfiltered=not active.filters_successor):
            return msgspec.structs.replace(settlement, outcome=Outcome.DROPPED, reason=str(DropReason.DUPLICATE))
        final = await settle_with_successor(active, settlement, self._encoder, self.holder, self._retrier)
        if final is not None:
            if (final.outcome, final.reason) == (Outcome.DROPPED, DropReason.DUPLICATE):
                self._stats.inc_value("dupefilter/filtered")
            return final
        continued = self._active[request] = ActiveLease(active.lease, request)
        continued.start = asked_at
        self._redirects.append(continued)
        self._engine.wake()
        return None

    async def _is_wanted(self, entry: FrontierEntry, *, unfiltered: bool) -> bool:
        """Return whether `_filter_batches` lets a successor through."""
        batches: dict[BatchKey, Batch] = {}
        add_to_batch(batches, entry, unfiltered=unfiltered)
        return bool(await self._retrier.call_frontier(lambda: self._filter_batches(list(batches.values()))))

    def _settle(self, settlement: Settlement) -> None:
        """Settle a lease whose request Scrapy has not got."""
        self._start_task(self._committer.put(FinishedLease(settlement, self._records(settlement, None))))

    def _on_links_added(self, page: FinishedLease, active: ActiveLease, since: int, rejected: Collection[int]) -> None:
        """Remember the links of a page, and count those that only the frontier knew as seen."""
        self._remember(active.run_key, page.batches, since, rejected)
        duplicates = (page.settlement.drops or {}).get(str(DropReason.DUPLICATE), 0) - active.known_children
        if duplicates > 0:
            self._stats.inc_value("dupefilter/filtered", duplicates)

    def _remember(self, run: RunKey, batches: Sequence[Batch], since: int, rejected: Collection[int]) -> None:
        """Remember as seen what the frontier has accepted. Earlier would be wrong: the requests could get lost.

        `since`: the frontier's data epoch when the batches were sent; it changes when the frontier may have lost data.
        `rejected`: fingerprints that it did not accept.
        """
        for batch in batches:
            if not batch.unfiltered:
                fingerprints = [one for one in batch.fingerprints if one not in rejected]
                self._seen.remember(run, fingerprints, since=since)

    def _on_committed(self, batch: Sequence[FinishedLease]) -> None:
        self._fetcher.wake()
        if self._suspect:  # it may have waited for this batch
            self._engine.wake()


def _size(batches: Sequence[Batch]) -> int:
    """Return the approximate number of bytes that a finished lease with these batches occupies."""
    return _LEASE_BYTES + sum(
        _CHILD_BYTES + len(payload or b"") for batch in batches for payload in batch.payloads or ()
    )
