"""One lease from its start to its end: robots, the exchange, redirects, retries, and then the page."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from functools import partial

from msgspec import structs

from gossamer.commit.committer import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.errors import (
    BadInput,
    BadSpider,
    BlockedAddress,
    ConnectionLost,
    FetchError,
    FrontierError,
    NotSentInTime,
)
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.exchange import FetchResponse
from gossamer.frontier.base import Frontier, Leaseholder, RedirectPermit
from gossamer.model.record import Output
from gossamer.model.request import DEATHS, Batch, Dropped, Lease, Outcome, Settlement, too_large
from gossamer.policy.retry import Retry, decide, parse_retry_after
from gossamer.policy.timing import Pacing, is_late, send_by
from gossamer.policy.urls import host, location_target, registered_domain
from gossamer.telemetry import logs as names
from gossamer.telemetry.tally import Tally
from gossamer.worker.access import Access, AccessPostponed, AccessRefused, HttpClients
from gossamer.worker.attempt import MAX_HOPS, REDIRECTS, Attempt, location
from gossamer.worker.context import Contexts
from gossamer.worker.page import OVERHEAD, PageReader, counted_as, weight
from gossamer.worker.records import bare_record, page_record, wire_of

log = logging.getLogger("gossamer.worker")

_BLOCKING = (429, 503)
_PUNCTUAL_SECONDS = 0.001
"""A request that is to start so soon starts now."""
_SLOW_SECONDS = 10.0
"""So long a host is known to connect slowly."""
_SLOW_HOSTS = 10_000
_LARGE_BYTES = 64 * 1024
"""Smaller pages are bounded well enough by how many there may be."""
_READING = 2
"""A page that is being read takes so many times its body: that, and its text."""


class Fetcher:
    """Works on one lease at a time per call of `work`; calls overlap as there are slots."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        clients: HttpClients,
        access: Access,
        contexts: Contexts,
        reader: PageReader,
        retrier: Retrier,
        tally: Tally,
        *,
        keep_wire: bool,
        budget: ByteBudget | None = None,
        retries: int = 3,
        retry_base_seconds: float = 10.0,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`retries` and `retry_base_seconds` where the terms do not say; `keep_wire`: an output wants the raw bytes.
        `budget`: the one in which `clients` count what they receive; large pages count there until they are committed.
        None: nobody counts."""
        self._frontier = frontier
        self._holder = holder
        self._clients = clients
        self._access = access
        self._contexts = contexts
        self._reader = reader
        self._retrier = retrier
        self._tally = tally
        self._keep_wire = keep_wire
        self._budget = budget
        self._retries = retries
        self._retry_base_seconds = retry_base_seconds
        self._now = now
        self._chance = chance
        self._slow: dict[str, float] = {}
        self._pacing = Pacing()

    async def work(self, lease: Lease) -> FinishedLease:
        """How the lease ends. Raises LeaseLost and nothing else: what a page does to us is a record too."""
        try:
            journey = Attempt(lease, self._contexts.of(lease))
        except BadSpider as error:
            return self._not_begun(lease, "spider_error", error.detail)
        except Exception as error:
            return self._not_begun(lease, "bad_entry", f"{type(error).__name__}: {error}")
        try:
            if lease.deaths >= DEATHS:
                return self._fail(journey, "worker_died", f"{lease.deaths} workers died with it")
            if lease.blacklisted:
                return self._drop(journey, Dropped.BLACKLISTED, "its domain is on the operator's blacklist")
            return await self._travel(journey)
        except FrontierError:
            raise
        except Exception as error:
            log.exception("%s %s", names.PAGE_BROKE, journey.url)
            return self._fail(journey, "internal_error", f"{type(error).__name__}: {error}")

    async def _travel(self, journey: Attempt) -> FinishedLease:
        while True:
            try:
                exchange = journey.exchange(keep_wire=self._keep_wire)
                verdict = await self._access.check(journey, exchange)
                if verdict is not None:
                    return self._not_allowed(journey, verdict)
                if await self._starts_late(journey):
                    # Its robots.txt took long. Others wait for it too: now they would all go at once.
                    return self._too_late(journey)
                latest = send_by(journey.start, journey.lease.spacing_seconds)
                exchange = structs.replace(exchange, send_by=math.inf if self._connects_slowly(journey.url) else latest)
                timeout = journey.context.terms.timeout_seconds
                fetched = await self._clients.fetch(exchange, timeout, waits_for_room=self._budget is not None)
                self._tally.bytes += fetched.received_bytes
                if fetched.status in REDIRECTS and location(fetched.headers) is not None:
                    fetched = _shortened(fetched)
                if self._keep_wire:
                    hidden = journey.context.hidden_headers
                    journey.wires.append(wire_of(fetched, exchange.body, self._now(), hidden=hidden))
                ended = await self._answered(journey, fetched)
            except NotSentInTime as error:
                if error.connecting:
                    if len(self._slow) >= _SLOW_HOSTS:
                        self._slow.clear()
                    self._slow[host(journey.url)] = time.monotonic() + _SLOW_SECONDS
                return self._too_late(journey)
            except BlockedAddress as error:
                return self._drop(journey, Dropped.BLOCKED_ADDRESS, str(error))
            except FetchError as error:
                return self._fetch_failed(journey, error)
            except BadInput as error:
                return self._fail(journey, "bad_request", str(error))
            if ended is not None:
                return ended

    async def _starts_late(self, journey: Attempt) -> bool:
        """Wait until the journey's next request may start. Returns True when that is too late for its hit."""
        domain, spacing, now = journey.lease.domain, journey.lease.spacing_seconds, time.monotonic()
        at = self._pacing.next_start(domain, journey.start, spacing, now=now)
        if at is None:
            return True
        if at - now > _PUNCTUAL_SECONDS:
            await asyncio.sleep(at - now)
        return is_late(journey.start, spacing, now=time.monotonic())

    async def _answered(self, journey: Attempt, fetched: FetchResponse) -> FinishedLease | None:
        """None: a redirect leads on. What is large is counted until it is committed: sixty pages of 5 MiB that wait
        for a slow output, each with its text and its links, would fill the memory."""
        budget = self._budget
        if budget is None:
            return await self._ended(journey, fetched)
        body = len(fetched.body)
        reading = _READING * body if body > _LARGE_BYTES else 0
        if reading:
            budget.keep(reading)
        try:
            finished = await self._ended(journey, fetched)
            if finished is not None and finished.size >= _LARGE_BYTES:
                budget.keep(finished.size)
                finished.freed = partial(budget.let_go, finished.size)
            return finished
        finally:
            if reading:
                budget.let_go(reading)

    async def _ended(self, journey: Attempt, fetched: FetchResponse) -> FinishedLease | None:
        if fetched.status in REDIRECTS and (where := location(fetched.headers)) is not None:
            return await self._redirected(journey, fetched, where)
        if 200 <= fetched.status < 400:
            return await self._reader.read(journey, fetched)
        return await self._refused(journey, fetched)

    # --- redirects ----------------------------------------------------------------------------------------------------

    async def _redirected(self, journey: Attempt, fetched: FetchResponse, where: str) -> FinishedLease | None:
        onward = location_target(journey.url, where)
        if onward is None:
            return self._fail(journey, "bad_redirect", f"it leads to {where[:200]!r}", fetched)
        before = (journey.url, journey.method, journey.cookies)
        journey.redirect(fetched.status, fetched.headers, onward)
        if len(journey.chain) > MAX_HOPS:
            return self._fail(journey, "too_many_redirects", f"more than {MAX_HOPS}", fetched)
        visited = any(url == onward for url, _ in journey.chain)
        if visited and (onward, journey.method, journey.cookies) != before and journey.cookies != before[2]:
            # Back to where it was with a new cookie: no loop, but one more hit that must be asked for.
            return self._later(journey, Outcome.FORWARDED)
        if visited:
            return self._fail(journey, "redirect_loop", f"back to {onward}", fetched)
        refusal = journey.context.scope.refusal(onward)
        if refusal is not None:
            return self._drop(journey, counted_as(refusal.reason), f"{onward}: {refusal.rule}", fetched)
        mark = self._mark(journey, onward)
        domain = registered_domain(host(onward))
        if domain != journey.lease.domain:
            return await self._move(journey, fetched, domain, mark)
        if any(self._mark(journey, url) == mark for url, _ in journey.chain):
            # Only the order of its query changed, and that is ignored: no duplicate of itself, but one more hit.
            return self._later(journey, Outcome.FORWARDED)
        # Before the hop, which would spend a hit on what may not be asked.
        verdict = await self._access.check(journey, journey.exchange(keep_wire=False))
        if verdict is not None:
            return self._not_allowed(journey, verdict)
        asked = time.monotonic()
        hop = await self._retrier.call_frontier(
            lambda: self._holder.request_redirect(journey.lease, fingerprint=mark, payload=journey.packed()),
            shard=journey.lease.shard,
        )
        if hop is RedirectPermit.GRANTED:
            journey.start = asked
            return None
        if hop is RedirectPermit.WAIT:
            return self._later(journey, Outcome.FORWARDED)
        return self._drop(journey, Dropped.DUPLICATE, f"{onward} was found before", fetched)

    @staticmethod
    def _mark(journey: Attempt, url: str) -> int:
        """The fingerprint of the request as it would go to this URL."""
        return journey.context.fingerprint(url, method=journey.method, body=journey.body)

    async def _move(self, journey: Attempt, fetched: FetchResponse, domain: str, mark: int) -> FinishedLease:
        """The request goes on under another domain's budget, robots and scope; this lease of it ends."""
        lease = journey.lease
        batch = Batch(
            lease.spider, domain, lease.priority, lease.depth, [lease.url], [mark], [journey.packed(moved=True)],
            call=f"{journey.request_id}.{mark}",  # whoever has to say it again has not found a duplicate
        )  # fmt: skip
        added = await self._retrier.call_frontier(
            lambda: self._frontier.add(lease.run, lease.terms, [batch]), shard=self._frontier.shard_of(domain)
        )
        if added.added:
            self._tally.drop(Dropped.MOVED)
            return FinishedLease(Settlement(lease, Outcome.DROPPED, Dropped.MOVED), size=OVERHEAD)
        reason = next(iter(added.rejected_by_reason), Dropped.DUPLICATE.value)
        return self._drop(journey, reason, f"{journey.url} under {domain}", fetched)

    # --- other ends ---------------------------------------------------------------------------------------------------

    def _not_allowed(self, journey: Attempt, verdict: AccessRefused | AccessPostponed) -> FinishedLease:
        if isinstance(verdict, AccessRefused):
            return self._drop(journey, Dropped.ROBOTS, verdict.rule)
        return self._later(journey, Outcome.POSTPONED, verdict.seconds)

    def _fetch_failed(self, journey: Attempt, error: FetchError) -> FinishedLease:
        if isinstance(error, ConnectionLost) and error.repeatable:
            # Not a failed attempt, but the site saw the request: sending it again takes another hit. It does not go on
            # for ever, since connections to the site are not reused after two such losses.
            return self._later(journey, Outcome.FORWARDED)
        again = self._decide(journey, error.kind, None)
        if again is not None:
            return self._again(journey, error.kind, again)
        return self._fail(journey, error.kind, str(error))

    async def _refused(self, journey: Attempt, fetched: FetchResponse) -> FinishedLease:
        """An answer that is no page: 4xx, 5xx and what no standard knows."""
        wish = None
        if fetched.status in _BLOCKING:
            said = next((value for name, value in fetched.headers if name.lower() == "retry-after"), None)
            wish = None if said is None else parse_retry_after(said, now=self._now())
            if wish:
                domain, seconds = journey.lease.domain, wish
                await self._retrier.call_frontier(
                    lambda: self._frontier.block_domain(domain, seconds=seconds), shard=journey.lease.shard
                )
        again = self._decide(journey, fetched.status, wish)
        if again is not None:
            return self._again(journey, f"http_{fetched.status}", again)
        return self._fail(journey, f"http_{fetched.status}", "", fetched)

    def _decide(self, journey: Attempt, failure: str | int, wish: float | None) -> Retry | None:
        retries = journey.context.terms.retries
        decision = decide(
            failure,
            journey.lease.attempt + 1,
            self._retries if retries is None else retries,
            random=self._chance(),
            retry_after_seconds=wish,
            base_seconds=self._retry_base_seconds,
        )
        return decision if isinstance(decision, Retry) else None

    def _connects_slowly(self, url: str) -> bool:
        """A request to this host was given back a moment ago because connecting took too long. The connection waits for
        the next one; where it does not, a host that is always so slow must not be asked for ever in vain."""
        if not self._slow:
            return False
        until = self._slow.get(host(url))
        if until is None or time.monotonic() < until:
            return until is not None
        del self._slow[host(url)]
        return False

    def _too_late(self, journey: Attempt) -> FinishedLease:
        """Back to the front of its domain, for another hit; if this attempt sent nothing, as never started."""
        if len(journey.chain) > len(journey.payload.chain):
            return self._later(journey, Outcome.FORWARDED)
        return FinishedLease(Settlement(journey.lease, Outcome.RETURNED), size=OVERHEAD)

    def _again(self, journey: Attempt, reason: str, retry: Retry) -> FinishedLease:
        self._tally.retry(reason)
        return self._later(journey, Outcome.RETRY, retry.delay_seconds)

    def _later(self, journey: Attempt, outcome: Outcome, seconds: float = 0.0) -> FinishedLease:
        """Back to the frontier, where it stands: what redirects have led to is not asked for again."""
        payload = journey.packed() if journey.chain else None
        if why := too_large(payload):
            return self._fail(journey, "bad_redirect", f"with what its redirects added, {why}")
        return FinishedLease(Settlement(journey.lease, outcome, delay_seconds=seconds, payload=payload), size=OVERHEAD)

    def _fail(self, journey: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        self._tally.fail(reason)
        self._tally.status(journey.lease.spider, fetched.status if fetched else 0)
        return self._end(journey, Outcome.FAILED, reason, detail, fetched)

    def _drop(self, journey: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        self._tally.drop(reason)
        return self._end(journey, Outcome.DROPPED, reason, detail, fetched)

    def _end(
        self, journey: Attempt, outcome: Outcome, reason: str, detail: str, fetched: FetchResponse | None
    ) -> FinishedLease:
        reason = str(reason)
        text, encoding, content_type = self._reader.decode(fetched) if fetched else (None, "", "")
        record = page_record(
            journey,
            fetched,
            now=self._now(),
            success=False,
            reason=reason,
            exception=detail,
            text=text,
            encoding=encoding,
            content_type=content_type,
        )
        body = fetched.body if fetched else b""
        output = Output(record=record, body=body, wires=tuple(journey.wires))
        return FinishedLease(Settlement(journey.lease, outcome, reason), [output], size=weight(output))

    def _not_begun(self, lease: Lease, reason: str, detail: str) -> FinishedLease:
        """Its spider does not load here, or another program put it into the frontier with something we cannot use."""
        log.error("%s %s: %s", names.PAGE_BROKE, lease.url, detail)
        self._tally.fail(reason)
        output = Output(record=bare_record(lease, now=self._now(), reason=reason, exception=detail))
        return FinishedLease(Settlement(lease, Outcome.FAILED, reason), [output], size=OVERHEAD)


def _shortened(fetched: FetchResponse) -> FetchResponse:
    """A redirect whose body is no page of its own: it would stay in memory along the whole chain, uncounted, as what is
    counted must never wait for another answer, like the robots.txt of the redirect's target."""
    wire = fetched.wire_body
    if len(fetched.body) <= _LARGE_BYTES and (wire is None or len(wire) <= _LARGE_BYTES):
        return fetched
    return structs.replace(
        fetched,
        body=fetched.body[:_LARGE_BYTES],
        wire_body=None if wire is None else wire[:_LARGE_BYTES],
        truncated=True,
    )
