"""May this URL be fetched now? Robots.txt, asked for each hop, and what else it says about its site."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.commit.patience import Patience
from gossamer.fetch.exchange import Exchange
from gossamer.fetch.robots import RobotsService, RobotsUnavailable
from gossamer.frontier.base import Frontier
from gossamer.policy.robots import Obedience
from gossamer.policy.urls import host, origin, registered_domain
from gossamer.worker.journey import Journey
from gossamer.worker.sitemaps import sitemap_batches
from gossamer.worker.waits import Waits

_DELAY_LIFE_SECONDS = 12 * 3600.0
"""The frontier forgets a crawl delay after a day; it is told again well before."""
_DELAYS_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Refused:
    """It may not; `rule` says why."""

    rule: str


@dataclass(frozen=True, slots=True)
class NotNow:
    """Nobody knows yet; ask again in so many seconds."""

    seconds: float
    reason: str


class Access:
    """Asks robots.txt; tells the frontier what it says of speed, and feeds the sitemaps it names where asked to."""

    def __init__(
        self,
        frontier: Frontier,
        robots: RobotsService,
        patience: Patience,
        waits: Waits,
        *,
        obedience: Obedience = Obedience.OBEY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._frontier = frontier
        self._robots = robots
        self._patience = patience
        self._waits = waits
        self._obedience = obedience
        self._now = now
        self._delays: dict[str, tuple[float, float]] = {}

    async def check(self, journey: Journey, template: Exchange) -> Refused | NotNow | None:
        """None: go on. `template`: how the journey's next request will be sent. Raises the
        FetchErrors of an origin that cannot be connected to (dns, connect, tls, blocked_address, proxy)."""
        terms = journey.context.terms
        if not self._obedience.asks(terms.ignore_robots):
            if terms.sitemaps:
                await self._sitemaps(journey, template)
            return None
        verdict = await self._patience.frontier(
            lambda: self._robots.check(journey.url, user_agent=journey.context.user_agent, template=template),
            shard=journey.lease.shard,
        )
        if isinstance(verdict, RobotsUnavailable):
            self._waits.begin(origin(journey.url), verdict.reason, verdict.retry_at)
            return NotNow(max(1.0, verdict.retry_at - self._now()), f"robots.txt: {verdict.reason}")
        if self._waits:
            self._waits.end(origin(journey.url))
        if verdict.crawl_delay:
            await self._slow_down(journey.url, verdict.crawl_delay)
        if not verdict.allowed:
            return Refused(verdict.rule)
        if terms.sitemaps:
            await self._sitemaps(journey, template)
        return None

    async def _slow_down(self, url: str, seconds: float) -> None:
        domain = registered_domain(host(url))
        said, at = self._delays.get(domain, (0.0, 0.0))
        if said == seconds and self._now() - at < _DELAY_LIFE_SECONDS:
            return
        if len(self._delays) >= _DELAYS_KEPT:
            self._delays.clear()
        self._delays[domain] = (seconds, self._now())
        await self._patience.frontier(
            lambda: self._frontier.set_crawl_delay(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
        )

    async def _sitemaps(self, journey: Journey, template: Exchange) -> None:
        context = journey.context
        place = origin(journey.url)
        if context.has_sitemaps_of(place):
            return
        era = context.era
        named = await self._patience.frontier(
            lambda: self._robots.sitemaps(journey.url, user_agent=context.user_agent, template=template),
            shard=journey.lease.shard,
        )
        if isinstance(named, RobotsUnavailable):
            return
        batches = sitemap_batches(context, named, priority=journey.lease.priority, depth=journey.lease.depth)
        if batches:
            lease = journey.lease
            added = await self._patience.frontier(lambda: self._frontier.add(lease.run, lease.terms, batches))
            if added.rejected:
                return  # the frontier does not have them: the next page of this site offers them again
        context.got_sitemaps_of(place, since=era)
