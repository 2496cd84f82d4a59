"""One lease from its start to its end: robots, the request, redirects, retries, and then the page."""

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
from gossamer.fetch.client import HttpClients
from gossamer.fetch.exchange import FetchResponse
from gossamer.frontier.base import Frontier, Leaseholder, RedirectPermit
from gossamer.model.record import Output
from gossamer.model.request import DEATHS, Batch, Dropped, Lease, Outcome, Settlement, too_large
from gossamer.policy.retry import Retry, decide, parse_retry_after
from gossamer.policy.timing import Pacing, is_late, send_by
from gossamer.policy.urls import host, location_target, registered_domain
from gossamer.telemetry import logs as names
from gossamer.telemetry.tally import Tally
from gossamer.worker.attempt import MAX_HOPS, REDIRECTS, Attempt, location
from gossamer.worker.context import Contexts
from gossamer.worker.page import PAGE_OVERHEAD_BYTES, PageReader, drop_reason, output_size
from gossamer.worker.records import bare_record, page_record, wire_of
from gossamer.worker.robots import RobotsChecker, RobotsPostponed, RobotsRefused

log = logging.getLogger("gossamer.worker")

_BLOCKING = (429, 503)
_PUNCTUAL_SECONDS = 0.001
"""A request that is to start so soon starts now."""
_SLOW_SECONDS = 10.0
"""So long a host is known to connect slowly."""
_MAX_SLOW_HOSTS = 10_000
_LARGE_BYTES = 64 * 1024
"""Smaller pages are bounded well enough by how many there may be."""
_READING_FACTOR = 2
"""A page that is being read takes so many times its body: that, and its text."""


class Fetcher:
    """Works on one lease at a time per call of `work`; calls overlap as there are slots."""

    def __init__(
        self,
        frontier: Frontier,
        holder: Leaseholder,
        clients: HttpClients,
        robots: RobotsChecker,
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
        self._robots = robots
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
        self._slow_hosts: dict[str, float] = {}
        self._pacing = Pacing()

    async def process(self, lease: Lease) -> FinishedLease:
        """How the lease ends. Raises LeaseLost and nothing else: what a page does to us is a record too."""
        try:
            attempt = Attempt(lease, self._contexts.for_lease(lease))
        except BadSpider as error:
            return self._fail_unstarted(lease, "spider_error", error.detail)
        except Exception as error:
            return self._fail_unstarted(lease, "bad_entry", f"{type(error).__name__}: {error}")
        try:
            if lease.deaths >= DEATHS:
                return self._fail(attempt, "worker_died", f"{lease.deaths} workers died with it")
            if lease.blacklisted:
                return self._drop(attempt, Dropped.BLACKLISTED, "its domain is on the operator's blacklist")
            return await self._fetch(attempt)
        except FrontierError:
            raise
        except Exception as error:
            log.exception("%s %s", names.PAGE_BROKE, attempt.url)
            return self._fail(attempt, "internal_error", f"{type(error).__name__}: {error}")

    async def _fetch(self, attempt: Attempt) -> FinishedLease:
        while True:
            try:
                request = attempt.request(keep_wire=self._keep_wire)
                verdict = await self._robots.check(attempt, request)
                if verdict is not None:
                    return self._refuse_by_robots(attempt, verdict)
                if await self._starts_late(attempt):
                    # Its robots.txt took long. Others wait for it too: now they would all go at once.
                    return self._give_back(attempt)
                latest = send_by(attempt.start, attempt.lease.spacing_seconds)
                request = structs.replace(request, send_by=math.inf if self._connects_slowly(attempt.url) else latest)
                timeout = attempt.context.terms.timeout_seconds
                fetched = await self._clients.fetch(request, timeout, wait_for_room=self._budget is not None)
                self._tally.bytes += fetched.received_bytes
                if fetched.status in REDIRECTS and location(fetched.headers) is not None:
                    fetched = _without_long_body(fetched)
                if self._keep_wire:
                    hidden = attempt.context.hidden_headers
                    attempt.wires.append(wire_of(fetched, request.body, self._now(), hidden=hidden))
                ended = await self._handle_response(attempt, fetched)
            except NotSentInTime as error:
                if error.connecting:
                    if len(self._slow_hosts) >= _MAX_SLOW_HOSTS:
                        self._slow_hosts.clear()
                    self._slow_hosts[host(attempt.url)] = time.monotonic() + _SLOW_SECONDS
                return self._give_back(attempt)
            except BlockedAddress as error:
                return self._drop(attempt, Dropped.BLOCKED_ADDRESS, str(error))
            except FetchError as error:
                return self._fetch_failed(attempt, error)
            except BadInput as error:
                return self._fail(attempt, "bad_request", str(error))
            if ended is not None:
                return ended

    async def _starts_late(self, attempt: Attempt) -> bool:
        """Wait until the attempt's next request may start. Returns True when that is too late for its hit."""
        domain, spacing, now = attempt.lease.domain, attempt.lease.spacing_seconds, time.monotonic()
        at = self._pacing.next_start(domain, attempt.start, spacing, now=now)
        if at is None:
            return True
        if at - now > _PUNCTUAL_SECONDS:
            await asyncio.sleep(at - now)
        return is_late(attempt.start, spacing, now=time.monotonic())

    async def _handle_response(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease | None:
        """None: a redirect leads on. What is large is counted until it is committed: sixty pages of 5 MiB that wait
        for a slow output, each with its text and its links, would fill the memory."""
        budget = self._budget
        if budget is None:
            return await self._finish_response(attempt, fetched)
        body = len(fetched.body)
        reading = _READING_FACTOR * body if body > _LARGE_BYTES else 0
        if reading:
            budget.retain(reading)
        try:
            finished = await self._finish_response(attempt, fetched)
            if finished is not None and finished.size >= _LARGE_BYTES:
                budget.retain(finished.size)
                finished.on_released = partial(budget.release, finished.size)
            return finished
        finally:
            if reading:
                budget.release(reading)

    async def _finish_response(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease | None:
        if fetched.status in REDIRECTS and (where := location(fetched.headers)) is not None:
            return await self._follow_redirect(attempt, fetched, where)
        if 200 <= fetched.status < 400:
            return await self._reader.read(attempt, fetched)
        return await self._fail_status(attempt, fetched)

    # --- redirects ----------------------------------------------------------------------------------------------------

    async def _follow_redirect(self, attempt: Attempt, fetched: FetchResponse, where: str) -> FinishedLease | None:
        onward = location_target(attempt.url, where)
        if onward is None:
            return self._fail(attempt, "bad_redirect", f"it leads to {where[:200]!r}", fetched)
        before = (attempt.url, attempt.method, attempt.cookies)
        attempt.redirect(fetched.status, fetched.headers, onward)
        if len(attempt.chain) > MAX_HOPS:
            return self._fail(attempt, "too_many_redirects", f"more than {MAX_HOPS}", fetched)
        visited = any(url == onward for url, _ in attempt.chain)
        if visited and (onward, attempt.method, attempt.cookies) != before and attempt.cookies != before[2]:
            # Back to where it was with a new cookie: no loop, but one more hit that must be asked for.
            return self._requeue(attempt, Outcome.FORWARDED)
        if visited:
            return self._fail(attempt, "redirect_loop", f"back to {onward}", fetched)
        refusal = attempt.context.scope.refusal(onward)
        if refusal is not None:
            return self._drop(attempt, drop_reason(refusal.reason), f"{onward}: {refusal.rule}", fetched)
        fingerprint = self._fingerprint(attempt, onward)
        domain = registered_domain(host(onward))
        if domain != attempt.lease.domain:
            return await self._move_to_domain(attempt, fetched, domain, fingerprint)
        if any(self._fingerprint(attempt, url) == fingerprint for url, _ in attempt.chain):
            # Only the order of its query changed, and that is ignored: no duplicate of itself, but one more hit.
            return self._requeue(attempt, Outcome.FORWARDED)
        # Before the hop, which would spend a hit on what may not be asked.
        verdict = await self._robots.check(attempt, attempt.request(keep_wire=False))
        if verdict is not None:
            return self._refuse_by_robots(attempt, verdict)
        asked = time.monotonic()
        hop = await self._retrier.call_frontier(
            lambda: self._holder.request_redirect(attempt.lease, fingerprint=fingerprint, payload=attempt.packed()),
            shard=attempt.lease.shard,
        )
        if hop is RedirectPermit.GRANTED:
            attempt.start = asked
            return None
        if hop is RedirectPermit.WAIT:
            return self._requeue(attempt, Outcome.FORWARDED)
        return self._drop(attempt, Dropped.DUPLICATE, f"{onward} was found before", fetched)

    @staticmethod
    def _fingerprint(attempt: Attempt, url: str) -> int:
        """The fingerprint of the request as it would go to this URL."""
        return attempt.context.fingerprint(url, method=attempt.method, body=attempt.body)

    async def _move_to_domain(
        self, attempt: Attempt, fetched: FetchResponse, domain: str, fingerprint: int
    ) -> FinishedLease:
        """The request goes on under another domain's budget, robots and scope; this lease of it ends."""
        lease = attempt.lease
        batch = Batch(
            lease.spider, domain, lease.priority, lease.depth, [lease.url], [fingerprint], [attempt.packed(moved=True)],
            call=f"{attempt.request_id}.{fingerprint}",  # whoever has to say it again has not found a duplicate
        )  # fmt: skip
        added = await self._retrier.call_frontier(
            lambda: self._frontier.add(lease.run, lease.terms, [batch]), shard=self._frontier.shard_of(domain)
        )
        if added.added:
            self._tally.drop(Dropped.MOVED)
            return FinishedLease(Settlement(lease, Outcome.DROPPED, Dropped.MOVED), size=PAGE_OVERHEAD_BYTES)
        reason = next(iter(added.rejected_by_reason), Dropped.DUPLICATE.value)
        return self._drop(attempt, reason, f"{attempt.url} under {domain}", fetched)

    # --- other ends ---------------------------------------------------------------------------------------------------

    def _refuse_by_robots(self, attempt: Attempt, verdict: RobotsRefused | RobotsPostponed) -> FinishedLease:
        if isinstance(verdict, RobotsRefused):
            return self._drop(attempt, Dropped.ROBOTS, verdict.rule)
        return self._requeue(attempt, Outcome.POSTPONED, verdict.seconds)

    def _fetch_failed(self, attempt: Attempt, error: FetchError) -> FinishedLease:
        if isinstance(error, ConnectionLost) and error.repeatable:
            # Not a failed attempt, but the site saw the request: sending it again takes another hit. It does not go on
            # for ever, since connections to the site are not reused after two such losses.
            return self._requeue(attempt, Outcome.FORWARDED)
        again = self._decide_retry(attempt, error.kind, None)
        if again is not None:
            return self._retry(attempt, error.kind, again)
        return self._fail(attempt, error.kind, str(error))

    async def _fail_status(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease:
        """An answer that is no page: 4xx, 5xx and what no standard knows."""
        retry_after = None
        if fetched.status in _BLOCKING:
            said = next((value for name, value in fetched.headers if name.lower() == "retry-after"), None)
            retry_after = None if said is None else parse_retry_after(said, now=self._now())
            if retry_after:
                domain, seconds = attempt.lease.domain, retry_after
                await self._retrier.call_frontier(
                    lambda: self._frontier.block_domain(domain, seconds=seconds), shard=attempt.lease.shard
                )
        again = self._decide_retry(attempt, fetched.status, retry_after)
        if again is not None:
            return self._retry(attempt, f"http_{fetched.status}", again)
        return self._fail(attempt, f"http_{fetched.status}", "", fetched)

    def _decide_retry(self, attempt: Attempt, failure: str | int, retry_after: float | None) -> Retry | None:
        retries = attempt.context.terms.retries
        decision = decide(
            failure,
            attempt.lease.attempt + 1,
            self._retries if retries is None else retries,
            random=self._chance(),
            retry_after_seconds=retry_after,
            base_seconds=self._retry_base_seconds,
        )
        return decision if isinstance(decision, Retry) else None

    def _connects_slowly(self, url: str) -> bool:
        """A request to this host was given back a moment ago because connecting took too long. The connection waits for
        the next one; where it does not, a host that is always so slow must not be asked for ever in vain."""
        if not self._slow_hosts:
            return False
        until = self._slow_hosts.get(host(url))
        if until is None or time.monotonic() < until:
            return until is not None
        del self._slow_hosts[host(url)]
        return False

    def _give_back(self, attempt: Attempt) -> FinishedLease:
        """Back to the front of its domain, for another hit; if this attempt sent nothing, as never started."""
        if len(attempt.chain) > len(attempt.payload.chain):
            return self._requeue(attempt, Outcome.FORWARDED)
        return FinishedLease(Settlement(attempt.lease, Outcome.RETURNED), size=PAGE_OVERHEAD_BYTES)

    def _retry(self, attempt: Attempt, reason: str, retry: Retry) -> FinishedLease:
        self._tally.retry(reason)
        return self._requeue(attempt, Outcome.RETRY, retry.delay_seconds)

    def _requeue(self, attempt: Attempt, outcome: Outcome, seconds: float = 0.0) -> FinishedLease:
        """Back to the frontier, where it stands: what redirects have led to is not asked for again."""
        payload = attempt.packed() if attempt.chain else None
        if why := too_large(payload):
            return self._fail(attempt, "bad_redirect", f"with what its redirects added, {why}")
        return FinishedLease(
            Settlement(attempt.lease, outcome, delay_seconds=seconds, payload=payload), size=PAGE_OVERHEAD_BYTES
        )

    def _fail(self, attempt: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        self._tally.fail(reason)
        self._tally.status(attempt.lease.spider, fetched.status if fetched else 0)
        return self._finish(attempt, Outcome.FAILED, reason, detail, fetched)

    def _drop(self, attempt: Attempt, reason: str, detail: str, fetched: FetchResponse | None = None) -> FinishedLease:
        self._tally.drop(reason)
        return self._finish(attempt, Outcome.DROPPED, reason, detail, fetched)

    def _finish(
        self, attempt: Attempt, outcome: Outcome, reason: str, detail: str, fetched: FetchResponse | None
    ) -> FinishedLease:
        reason = str(reason)
        text, encoding, content_type = self._reader.decode(fetched) if fetched else (None, "", "")
        record = page_record(
            attempt,
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
        output = Output(record=record, body=body, wires=tuple(attempt.wires))
        return FinishedLease(Settlement(attempt.lease, outcome, reason), [output], size=output_size(output))

    def _fail_unstarted(self, lease: Lease, reason: str, detail: str) -> FinishedLease:
        """Its spider does not load here, or another program put it into the frontier with something we cannot use."""
        log.error("%s %s: %s", names.PAGE_BROKE, lease.url, detail)
        self._tally.fail(reason)
        output = Output(record=bare_record(lease, now=self._now(), reason=reason, exception=detail))
        return FinishedLease(Settlement(lease, Outcome.FAILED, reason), [output], size=PAGE_OVERHEAD_BYTES)


def _without_long_body(fetched: FetchResponse) -> FetchResponse:
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
