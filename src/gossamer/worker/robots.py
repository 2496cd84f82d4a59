"""May this URL be fetched now? Robots.txt, asked for each hop, and what else it says about its site."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.commit.retrier import Retrier
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.frontier.base import Frontier
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.urls import host, origin, registered_domain
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import OriginWait, Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.page import sitemap_batches

_TROUBLE = "robots"
_KEPT = 10_000
_SHOWN = 20
_GRACE_SECONDS = 60.0
"""An origin that was not heard of for so long after it was due is another worker's by now, or nobody's."""


class RobotsWaits:
    """Origins whose robots.txt is waited for, as far as this worker met them. Bounded."""

    def __init__(self, troubles: Troubles, *, now: Callable[[], float] = time.time) -> None:
        self._troubles = troubles
        self._now = now
        self._by_origin: dict[str, OriginWait] = {}

    def __bool__(self) -> bool:
        return bool(self._by_origin)

    def begin(self, origin: str, reason: str, until: float) -> None:
        """It could not be had; `until`: epoch seconds when it is asked again. May be repeated."""
        if origin in self._by_origin or len(self._by_origin) < _KEPT:
            self._by_origin[origin] = OriginWait(reason, until)
        self._troubles.begin(
            _TROUBLE,
            f"The robots.txt of {origin} cannot be had ({reason}). "
            "Until it can, the site's pages wait; after a day they are dropped.",
        )

    def end(self, origin: str) -> None:
        """It was had, or is given up."""
        if self._by_origin.pop(origin, None) is not None and not self._by_origin:
            self._over()

    def show(self, tally: Tally) -> None:
        """Put the first of them into the tally, the next to be asked at the front."""
        tally.waits = {}
        if not self._by_origin:
            return
        gone = self._now() - _GRACE_SECONDS
        self._by_origin = {origin: wait for origin, wait in self._by_origin.items() if wait.until > gone}
        if not self._by_origin:
            self._over()
        first = sorted(self._by_origin.items(), key=lambda pair: pair[1].until)[:_SHOWN]
        tally.waits = dict(first)

    def _over(self) -> None:
        self._troubles.end(_TROUBLE, "No robots.txt is waited for any more.")


_DELAY_LIFE_SECONDS = 12 * 3600.0
"""The frontier forgets a crawl delay after a day; it is told again well before."""
_DELAYS_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class RobotsRefused:
    """It may not; `rule` says why."""

    rule: str


@dataclass(frozen=True, slots=True)
class RobotsPostponed:
    """Nobody knows yet; ask again in so many seconds."""

    seconds: float
    reason: str


class RobotsChecker:
    """Asks robots.txt; tells the frontier what it says of speed, and feeds the sitemaps it names where asked to."""

    def __init__(
        self,
        frontier: Frontier,
        robots: RobotsService,
        retrier: Retrier,
        waits: RobotsWaits,
        *,
        robots_policy: RobotsPolicy = RobotsPolicy.OBEY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._frontier = frontier
        self._robots = robots
        self._retrier = retrier
        self._waits = waits
        self._robots_policy = robots_policy
        self._now = now
        self._delays: dict[str, tuple[float, float]] = {}

    async def check(self, attempt: Attempt, template: FetchRequest) -> RobotsRefused | RobotsPostponed | None:
        """None: go on. `template`: how the attempt's next request will be sent. Raises the
        FetchErrors of an origin that cannot be connected to (dns, connect, tls, blocked_address, proxy)."""
        terms = attempt.context.terms
        if not self._robots_policy.asks(terms.ignore_robots):
            if terms.sitemaps:
                await self._sitemaps(attempt, template)
            return None
        verdict = await self._retrier.call_frontier(
            lambda: self._robots.check(attempt.url, user_agent=attempt.context.user_agent, template=template),
            shard=attempt.lease.shard,
        )
        if isinstance(verdict, RobotsUnavailable):
            self._waits.begin(origin(attempt.url), verdict.reason, verdict.retry_at)
            return RobotsPostponed(max(1.0, verdict.retry_at - self._now()), f"robots.txt: {verdict.reason}")
        if self._waits:
            self._waits.end(origin(attempt.url))
        if verdict.crawl_delay:
            await self._slow_down(attempt.url, verdict.crawl_delay)
        if not verdict.allowed:
            return RobotsRefused(verdict.rule)
        if terms.sitemaps:
            await self._sitemaps(attempt, template)
        return None

    async def _slow_down(self, url: str, seconds: float) -> None:
        domain = registered_domain(host(url))
        said, at = self._delays.get(domain, (0.0, 0.0))
        if said == seconds and self._now() - at < _DELAY_LIFE_SECONDS:
            return
        if len(self._delays) >= _DELAYS_KEPT:
            self._delays.clear()
        self._delays[domain] = (seconds, self._now())
        await self._retrier.call_frontier(
            lambda: self._frontier.set_crawl_delay(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
        )

    async def _sitemaps(self, attempt: Attempt, template: FetchRequest) -> None:
        context = attempt.context
        place = origin(attempt.url)
        if context.has_sitemaps_of(place):
            return
        era = context.era
        named = await self._retrier.call_frontier(
            lambda: self._robots.sitemaps(attempt.url, user_agent=context.user_agent, template=template),
            shard=attempt.lease.shard,
        )
        if isinstance(named, RobotsUnavailable):
            return
        batches = sitemap_batches(context, named, priority=attempt.lease.priority, depth=attempt.lease.depth)
        if batches:
            lease = attempt.lease
            added = await self._retrier.call_frontier(lambda: self._frontier.add(lease.run, lease.terms, batches))
            if added.rejected:
                return  # the frontier does not have them: the next page of this site offers them again
        context.confirm_sitemaps_of(place, since=era)


class FrontierRobotsStore:
    """A RobotsStore whose records live beside their domain in the frontier."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier

    async def load(self, origin: str) -> bytes | None:
        return await self._frontier.load_robots(_domain(origin), origin)

    async def claim(self, origin: str, seconds: float) -> bool:
        return await self._frontier.claim_robots(_domain(origin), origin, seconds=seconds)

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        await self._frontier.save_robots(_domain(origin), origin, record, ttl_seconds=ttl_seconds)

    async def release(self, origin: str) -> None:
        await self._frontier.release_robots_claim(_domain(origin), origin)


def _domain(origin: str) -> str:
    # An origin that is reached without checking certificates has a word before it; the URL is the last.
    return registered_domain(host(origin.rpartition(" ")[2]))
