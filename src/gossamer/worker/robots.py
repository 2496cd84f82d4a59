"""Checks robots.txt before each request, and sends the crawl delays and sitemaps that it names to the frontier.

Here are also the stores in which workers share what they have fetched. The frontier is the cluster's store of requests;
an origin is scheme, host and port of a URL. Fixed: no request is sent before `check` has allowed it, and sitemaps are
remembered as known only after the frontier has accepted all of them.
"""

import time
from collections.abc import Callable

import msgspec

from gossamer.commit.committer import VisitedPages
from gossamer.commit.retrier import Retrier
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.robots_service import Reroute, RobotsService, RobotsUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.request import Batch, Lease
from gossamer.option_names import named
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.urls import host, origin, registered_domain
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import OriginWait, Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.sitemaps import REFUSED, named_sitemaps

_TROUBLE = "robots"
"""Key of the reported trouble (a lasting condition, which is shown at its begin and its end). May be any word that no
other trouble has."""
_MAX_WAITS = 10_000
"""Waiting origins that a worker remembers. More take memory, others are not shown."""
_WAITS_SHOWN = 20
"""Waiting origins in a worker's statistics. More make each report larger."""
_DROPPED_AFTER_SECONDS = 60.0
"""Time after the next try was due from which an origin is no longer shown as waiting, if this worker has not tried
again: another worker has its requests now, or there are none left."""


class RobotsWaits:
    """Origins of this worker's requests that wait for a robots.txt, for its statistics (tally) and its log
    (troubles)."""

    def __init__(self, troubles: Troubles, *, now: Callable[[], float] = time.time) -> None:
        self._troubles = troubles
        self._now = now
        self._by_origin: dict[str, OriginWait] = {}

    def __bool__(self) -> bool:
        return bool(self._by_origin)

    def begin(self, origin: str, reason: str, until: float, given_up_at: float) -> None:
        """Record that an origin's robots.txt is unavailable. `until`: Unix time of the next try. `given_up_at`: Unix
        time from which its requests fail. May be repeated."""
        if origin in self._by_origin or len(self._by_origin) < _MAX_WAITS:
            self._by_origin[origin] = OriginWait(reason, until)
        self._troubles.begin(
            _TROUBLE,
            f"The robots.txt of {origin} cannot be fetched ({reason}), so the site's pages wait. "
            f"They fail if it still cannot in {_in_words(given_up_at - self._now())} ({named('robots_patience')}).",
        )

    def end(self, origin: str) -> None:
        """Record that an origin's robots.txt was fetched, or that its requests no longer wait for it."""
        if self._by_origin.pop(origin, None) is not None and not self._by_origin:
            self._end_trouble()

    def show(self, tally: Tally) -> None:
        """Put the waits that end first into the tally."""
        tally.waits = {}
        if not self._by_origin:
            return
        forgotten_before = self._now() - _DROPPED_AFTER_SECONDS
        self._by_origin = {origin: wait for origin, wait in self._by_origin.items() if wait.until > forgotten_before}
        if not self._by_origin:
            self._end_trouble()
        first = sorted(self._by_origin.items(), key=lambda pair: pair[1].until)[:_WAITS_SHOWN]
        tally.waits = dict(first)

    def _end_trouble(self) -> None:
        self._troubles.end(_TROUBLE, "No request waits for a robots.txt any more.")


def _in_words(seconds: float) -> str:
    """Return a duration for a person: `90 s`, `5 min`, `24 h`; hours from 2 h on, minutes from 2 min on. Both begin one
    second earlier, because some time has passed since the duration was computed."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length - 1:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


_MIN_POSTPONE_SECONDS = 1.0
"""Shortest delay of a request whose robots.txt is unavailable. May be longer; 0 would make a busy loop of requests
whose origin is due just now."""
_DELAY_REFRESH_SECONDS = 12 * 3600.0
"""Time after which a crawl delay is sent again. Must stay well below the day after which the frontier forgets it
(`_CRAWL_DELAY_KEPT_MS` in frontier/valkey/frontier.py)."""
_MAX_DELAYS = 100_000
"""Domains whose crawl delay a worker remembers as sent. When there are more, all delays are sent again."""


class RobotsRefused(msgspec.Struct, frozen=True):
    """The URL must not be fetched; `rule` is the reason."""

    rule: str
    unreachable: bool = False
    """True: there are no rules, because the robots.txt could not be fetched for too long."""


class RobotsPostponed(msgspec.Struct, frozen=True):
    """The rules are unknown now; check again after `seconds`."""

    seconds: float
    reason: str


class RobotsChecker:
    """Decides whether robots.txt allows a request."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        robots: RobotsService,
        retrier: Retrier,
        waits: RobotsWaits,
        tally: Tally,
        robots_policy: RobotsPolicy,
        reroute: Callable[[Attempt], Reroute | None] = lambda attempt: None,
    ) -> None:
        """`reroute`: as `WorkerProxies.reroute`, for crawls with several proxies."""
        self._frontier = frontier
        self._robots = robots
        self._retrier = retrier
        self._waits = waits
        self._tally = tally
        self._robots_policy = robots_policy
        self._reroute = reroute
        self._delays: dict[str, tuple[float, float]] = {}
        """By domain: the crawl delay that was sent to the frontier, and when."""
        self.visited_pages: VisitedPages | None = None
        """Page indexes, which decide when sitemaps that they know are fetched again."""

    def allows_at_once(self, attempt: Attempt) -> bool:
        """Return whether the attempt's next request is allowed and nothing about robots.txt is left to do: the crawl
        ignores it, or this process has the rules. False: `check` has to decide."""
        context, url = attempt.context, attempt.url
        terms = context.terms
        if self._robots_policy.applies(terms.ignore_robots):
            if self._waits:
                return False
            verdict = self._robots.check_cached(url, user_agent=context.user_agent, insecure=terms.insecure)
            if verdict is None or not verdict.allowed or verdict.crawl_delay:
                return False
        return not _adds_sitemaps(attempt) or context.has_sitemaps_of(origin(url))

    async def check(self, attempt: Attempt, template: FetchRequest) -> RobotsRefused | RobotsPostponed | None:
        """Return None if the attempt's next request is allowed, else why it is not, or not yet. `template`: that
        request, as it will be sent.

        Raises the FetchErrors of an origin that cannot be connected to (dns, connect, tls, blocked_address, proxy).
        """
        terms = attempt.context.terms
        adds_sitemaps = _adds_sitemaps(attempt)
        if not self._robots_policy.applies(terms.ignore_robots):
            if adds_sitemaps:
                await self._add_sitemaps(attempt, template)
            return None
        verdict = await self._retrier.call_frontier(
            lambda: self._robots.check(
                attempt.url, user_agent=attempt.context.user_agent, template=template, reroute=self._reroute(attempt)
            ),
            shard=attempt.lease.shard,
        )
        if isinstance(verdict, RobotsUnavailable):
            self._waits.begin(origin(attempt.url), verdict.reason, verdict.retry_at, verdict.given_up_at)
            seconds = max(_MIN_POSTPONE_SECONDS, min(verdict.retry_at, verdict.given_up_at) - time.time())
            return RobotsPostponed(seconds, f"robots.txt: {verdict.reason}")
        if self._waits:
            self._waits.end(origin(attempt.url))
        if verdict.crawl_delay:
            await self._set_crawl_delay(attempt.url, verdict.crawl_delay)
        if not verdict.allowed:
            return RobotsRefused(verdict.rule, verdict.unreachable)
        if adds_sitemaps:
            await self._add_sitemaps(attempt, template)
        return None

    async def allows_load(self, attempt: Attempt, request: FetchRequest) -> bool:
        """Return whether a page may load this in a browser, by the robots.txt of its origin. One that is unavailable
        allows nothing. Raises FetchErrors, as `check` does."""
        context = attempt.context
        terms, agent = context.terms, context.user_agent
        if not self._robots_policy.applies(terms.ignore_robots):
            return True
        known = self._robots.check_cached(request.url, user_agent=agent, insecure=terms.insecure)
        if known is None:
            verdict = await self._retrier.call_frontier(
                lambda: self._robots.check(request.url, user_agent=agent, template=request),
                shard=attempt.lease.shard,
            )
            return not isinstance(verdict, RobotsUnavailable) and verdict.allowed
        return known.allowed

    async def _set_crawl_delay(self, url: str, seconds: float) -> None:
        """Send the delay to the frontier, unless the frontier has it."""
        domain = registered_domain(host(url))
        sent_seconds, sent_at = self._delays.get(domain, (0.0, 0.0))
        if sent_seconds == seconds and time.time() - sent_at < _DELAY_REFRESH_SECONDS:
            return
        if len(self._delays) >= _MAX_DELAYS:
            self._delays.clear()
        self._delays[domain] = (seconds, time.time())  # before the call: requests beside this one need not send it, too
        try:
            await self._retrier.call_frontier(
                lambda: self._frontier.set_crawl_delay(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
            )
        except BaseException:  # also a cancellation: the next request of the domain sends it
            self._delays.pop(domain, None)
            raise

    async def _add_sitemaps(self, attempt: Attempt, template: FetchRequest) -> None:
        """Add the sitemaps that the origin's robots.txt names to the frontier, once."""
        context = attempt.context
        site = origin(attempt.url)
        if context.has_sitemaps_of(site):
            return
        # Read before the calls. A new epoch begins when the frontier has lost data: what it accepted before that counts
        # as not accepted.
        data_epoch = context.data_epoch
        sitemaps = await self._retrier.call_frontier(
            lambda: self._robots.sitemaps(
                attempt.url, user_agent=context.user_agent, template=template, reroute=self._reroute(attempt)
            ),
            shard=attempt.lease.shard,
        )
        if isinstance(sitemaps, RobotsUnavailable):
            return
        lease = attempt.lease
        found = named_sitemaps(context, sitemaps.urls, priority=lease.priority, depth=lease.depth)
        if batches := await self._without_known(lease, found.sitemaps):
            # Without `shard`, because the sitemaps may be of several domains.
            added = await self._retrier.call_frontier(
                lambda: self._frontier.add(lease.run, lease.terms.of_links(), batches)
            )
            if added.rejected:
                return  # the frontier does not have them all, so the next page of this site offers them again
        if not context.has_sitemaps_of(site):  # else another request of the site was quicker, and has counted them
            for _ in range(sitemaps.invalid + sum(found.drops.values())):
                self._tally.leave_unread(REFUSED, f"{site}/robots.txt")
        context.confirm_sitemaps_of(site, since=data_epoch)

    async def _without_known(self, lease: Lease, batches: list[Batch]) -> list[Batch]:
        """Return sitemaps without those that the crawl's page index knows."""
        visited, left = self.visited_pages, batches
        if not batches or visited is None:
            return batches

        async def ask() -> None:
            nonlocal left
            left = await visited.without_known(lease, batches)

        await self._retrier.write_output(ask)
        return left


def _adds_sitemaps(attempt: Attempt) -> bool:
    """Return whether the sitemaps of the attempt's origin are wanted. Not those of a host that only has assets, or only
    a sitemap of another host."""
    return attempt.context.terms.sitemaps and attempt.payload.asset is None and not attempt.payload.sitemap


class MemoryRobotsStore:
    """Implements RobotsStore (fetch/robots_service.py) for one process, such as a single fetch or a test.

    The number of records is bounded; the oldest makes room.
    """

    def __init__(self, *, max_records: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        """`max_records`: any number above 0; more take memory. `clock`: monotonic seconds."""
        self._max_records = max_records
        self._clock = clock
        self._records: dict[str, tuple[bytes, float]] = {}
        self._claims: dict[str, tuple[float, str]] = {}
        """By origin: the end of the claim, and its owner."""

    async def load(self, origin: str) -> bytes | None:
        """Implement RobotsStore."""
        record, end = self._records.get(origin, (None, 0.0))
        return record if end > self._clock() else None

    async def claim(self, origin: str, seconds: float, *, owner: str) -> bool:
        """Implement RobotsStore."""
        now = self._clock()
        end, holder = self._claims.get(origin, (now, owner))
        if end > now and holder != owner:
            return False
        self._claims = {other: claim for other, claim in self._claims.items() if claim[0] > now}
        self._claims[origin] = now + seconds, owner
        return True

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """Implement RobotsStore."""
        self._claims.pop(origin, None)
        self._records.pop(origin, None)
        while len(self._records) >= self._max_records:
            del self._records[next(iter(self._records))]
        self._records[origin] = (record, self._clock() + ttl_seconds)

    async def release(self, origin: str) -> None:
        """Implement RobotsStore."""
        self._claims.pop(origin, None)


class FrontierRobotsStore:
    """Implements RobotsStore (fetch/robots_service.py) in the frontier: each origin's record is kept with its domain,
    for all workers."""

    def __init__(self, frontier: ValkeyFrontier) -> None:
        self._frontier = frontier

    async def load(self, origin: str) -> bytes | None:
        return await self._frontier.load_robots(_domain(origin), origin)

    async def claim(self, origin: str, seconds: float, *, owner: str) -> bool:
        return await self._frontier.claim_robots(_domain(origin), origin, owner=owner, seconds=seconds)

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        await self._frontier.save_robots(_domain(origin), origin, record, ttl_seconds=ttl_seconds)

    async def release(self, origin: str) -> None:
        await self._frontier.release_robots_claim(_domain(origin), origin)


def _domain(origin: str) -> str:
    """Return the domain that keeps an origin's record. An origin whose certificates are not checked is given as
    `insecure https://example.com`."""
    return registered_domain(host(origin.rpartition(" ")[2]))
