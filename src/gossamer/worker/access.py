"""May this URL be fetched now? Robots.txt, asked for each hop, and what else it says about its site."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, FetchError
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.robots import RobotsService, RobotsUnavailable
from gossamer.frontier.base import Frontier
from gossamer.policy.robots import RobotsPolicy
from gossamer.policy.urls import canonical, host, origin, registered_domain
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
class AccessRefused:
    """It may not; `rule` says why."""

    rule: str


@dataclass(frozen=True, slots=True)
class AccessPostponed:
    """Nobody knows yet; ask again in so many seconds."""

    seconds: float
    reason: str


class Access:
    """Asks robots.txt; tells the frontier what it says of speed, and feeds the sitemaps it names where asked to."""

    def __init__(
        self,
        frontier: Frontier,
        robots: RobotsService,
        retrier: Retrier,
        waits: RobotsWaits,
        *,
        obedience: RobotsPolicy = RobotsPolicy.OBEY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._frontier = frontier
        self._robots = robots
        self._retrier = retrier
        self._waits = waits
        self._obedience = obedience
        self._now = now
        self._delays: dict[str, tuple[float, float]] = {}

    async def check(self, journey: Attempt, template: FetchRequest) -> AccessRefused | AccessPostponed | None:
        """None: go on. `template`: how the journey's next request will be sent. Raises the
        FetchErrors of an origin that cannot be connected to (dns, connect, tls, blocked_address, proxy)."""
        terms = journey.context.terms
        if not self._obedience.asks(terms.ignore_robots):
            if terms.sitemaps:
                await self._sitemaps(journey, template)
            return None
        verdict = await self._retrier.call_frontier(
            lambda: self._robots.check(journey.url, user_agent=journey.context.user_agent, template=template),
            shard=journey.lease.shard,
        )
        if isinstance(verdict, RobotsUnavailable):
            self._waits.begin(origin(journey.url), verdict.reason, verdict.retry_at)
            return AccessPostponed(max(1.0, verdict.retry_at - self._now()), f"robots.txt: {verdict.reason}")
        if self._waits:
            self._waits.end(origin(journey.url))
        if verdict.crawl_delay:
            await self._slow_down(journey.url, verdict.crawl_delay)
        if not verdict.allowed:
            return AccessRefused(verdict.rule)
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
        await self._retrier.call_frontier(
            lambda: self._frontier.set_crawl_delay(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
        )

    async def _sitemaps(self, journey: Attempt, template: FetchRequest) -> None:
        context = journey.context
        place = origin(journey.url)
        if context.has_sitemaps_of(place):
            return
        era = context.era
        named = await self._retrier.call_frontier(
            lambda: self._robots.sitemaps(journey.url, user_agent=context.user_agent, template=template),
            shard=journey.lease.shard,
        )
        if isinstance(named, RobotsUnavailable):
            return
        batches = sitemap_batches(context, named, priority=journey.lease.priority, depth=journey.lease.depth)
        if batches:
            lease = journey.lease
            added = await self._retrier.call_frontier(lambda: self._frontier.add(lease.run, lease.terms, batches))
            if added.rejected:
                return  # the frontier does not have them: the next page of this site offers them again
        context.got_sitemaps_of(place, since=era)


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


_MOST = 16


class HttpClients:
    """The client for each total timeout asked for; made when first needed. Belongs to one event loop."""

    def __init__(self, make: Callable[[float | None], HttpClient]) -> None:
        """`make` takes a total timeout in seconds; None: the default's."""
        self._make = make
        self._clients: dict[float | None, HttpClient] = {}

    def of(self, timeout_seconds: float | None) -> HttpClient:
        """At most 16 kinds are kept; a crawl beyond them gets the default timeout."""
        client = self._clients.get(timeout_seconds)
        if client is None:
            if len(self._clients) >= _MOST and timeout_seconds is not None:
                return self.of(None)
            client = self._clients[timeout_seconds] = self._make(timeout_seconds)
        return client

    async def fetch(
        self, exchange: FetchRequest, timeout_seconds: float | None = None, *, waits_for_room: bool = False
    ) -> FetchResponse:
        """One request, one answer, as `HttpClient.fetch`. Raises FetchError."""
        return await self.of(timeout_seconds).fetch(exchange, waits_for_room=waits_for_room)

    async def close(self) -> None:
        """Close all connections. May be repeated."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()


ANSWER_BYTES = 64 * 1024
"""As much of an answer as is looked at: an address is short, the page around it may not be."""

_EGRESS_TROUBLE = "egress"
_AGAIN_SECONDS = 5.0


class AddressService:
    """How to ask it, and how to read what it says."""

    def __init__(self, url: str, *, pattern: str, user_agent: str, proxy: str = "") -> None:
        """`pattern`: a regular expression of the address in the answer; its first group where it has groups. `proxy`:
        the one that pages are fetched through, whose address then is the egress; empty: none.
        Raises BadInput for a URL or an expression that is none."""
        try:
            self._pattern = re.compile(pattern)
        except re.error as fault:
            raise BadInput(f"fetch.egress_pattern {pattern!r}: {fault}") from None
        self.url = canonical(url)
        self.exchange = FetchRequest(
            self.url,
            headers=(("User-Agent", user_agent), ("Accept", "text/plain,*/*;q=0.5")),
            proxy=proxy or None,
        )

    def read(self, fetched: FetchResponse) -> str:
        """The first address in the answer, in its shortest form. Raises BadInput where there is none."""
        if fetched.status != 200:
            raise BadInput(f"it answered {fetched.status}")
        text = fetched.body[:ANSWER_BYTES].decode("utf-8", "replace")
        for found in self._pattern.finditer(text):
            candidate = found[1] if self._pattern.groups else found[0]
            try:
                return str(ip_address((candidate or "").strip(" .[]")))
            except ValueError:
                continue
        raise BadInput("its answer has no address in it")


class EgressMonitor:
    """Keeps a worker's egress true: what the service said last counts, and until it said something, the name that the
    operator gave. An answer that does not come is a trouble that is said, never a reason to stop."""

    def __init__(
        self,
        service: AddressService,
        fetch: Callable[[FetchRequest], Awaitable[FetchResponse]],
        troubles: Troubles,
        *,
        otherwise: str,
        refresh_seconds: float,
    ) -> None:
        """`otherwise`: the operator's name for this egress."""
        self._service = service
        self._fetch = fetch
        self._troubles = troubles
        self._refresh_seconds = refresh_seconds
        self.name = otherwise
        """Under which budgets are kept now."""

    async def ask(self) -> bool:
        """Once; whether there was an answer. `name` has it then."""
        try:
            self.name = self._service.read(await self._fetch(self._service.exchange))
        except (FetchError, BadInput) as error:
            reason = error.detail if isinstance(error, BadInput) else str(error).rstrip(".")
            self._troubles.begin(
                _EGRESS_TROUBLE,
                f"The address service {self._service.url} cannot be used: {reason}. "
                f"Until it can, budgets are kept for the egress {self.name or 'default'}.",
            )
            return False
        self._troubles.end(_EGRESS_TROUBLE, f"The address service says that requests come from {self.name}.")
        return True

    async def keep(self, changed: Callable[[str], None]) -> None:
        """For ever: ask again when it is time, sooner after a failure (5 s, doubling). `changed` is told a new name.
        To be begun after the first `ask`."""
        pause = self._next(0.0, answered=_EGRESS_TROUBLE not in self._troubles.current)
        while True:
            await asyncio.sleep(pause)
            before = self.name
            pause = self._next(pause, answered=await self.ask())
            if self.name != before:
                changed(self.name)

    def _next(self, pause: float, *, answered: bool) -> float:
        if answered:
            return self._refresh_seconds
        longer = 2 * pause if 0 < pause < self._refresh_seconds else _AGAIN_SECONDS
        return min(longer, self._refresh_seconds)
