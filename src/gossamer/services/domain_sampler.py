"""Samples of the use of domains' limits for the history.

A few domains are looked at every few seconds: those that a policy names, and those where most requests wait. The cost
is bounded: so many calls to the frontier, and rows a minute, whatever the number of domains.
"""

import asyncio
import heapq
import math
import time
from collections.abc import Callable

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.domain_uses import DomainUse
from gossamer.history.store import HistoryStore
from gossamer.model.info import DomainLoad

_SAMPLE_SECONDS = 10.0
"""Time between two samples. A shorter one costs the frontier more calls."""
_CHOICE_SECONDS = 60.0
"""Time between two choices of the domains."""
_NAMED = 30
"""Domains that a policy names, the first by name."""
_BUSIEST = 20
"""Domains where most requests wait."""
_SPIDERS = 3
"""Spiders with most requests, whose domains are compared."""
_DOMAINS_READ = 100
"""Domains of a spider that are compared."""


class DomainSampler:
    """Copies the use of limits from the frontier to the history. Samples of a minute are in memory until it is over."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        history: HistoryStore,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: returns epoch seconds."""
        self._frontier = frontier
        self._history = history
        self._now = now
        self._monotonic = monotonic
        self._version = -1
        """Version of the policies whose names are known."""
        self._named: list[str] = []
        self._domains: list[str] = []
        self._due_at = self._chosen_at = float("-inf")
        self._minute = 0
        self._samples: dict[str, list[DomainLoad]] = {}
        """Samples of this minute, by domain."""

    async def sample(self) -> None:
        """Sample the domains, if it is due. May be repeated. Raises errors of the frontier, and HistoryUnavailable."""
        if self._monotonic() < self._due_at:
            return
        self._due_at = self._monotonic() + _SAMPLE_SECONDS
        if self._monotonic() >= self._chosen_at + _CHOICE_SECONDS:
            self._domains = await self._choose()
            self._chosen_at = self._monotonic()
        loads = await asyncio.gather(*(self._frontier.domain_load(domain) for domain in self._domains))
        minute = int(self._now() // 60)
        if minute != self._minute:
            await self._write()
            self._minute, self._samples = minute, {}
        for domain, load in zip(self._domains, loads, strict=True):
            self._samples.setdefault(domain, []).append(load)

    async def _choose(self) -> list[str]:
        """Return the domains to look at."""
        version = await self._frontier.policies_version()
        if version != self._version:
            _, policies = await self._frontier.domain_policies()
            self._named, self._version = heapq.nsmallest(_NAMED, policies), version
        waiting: dict[str, int] = {}
        backlogs = heapq.nlargest(_SPIDERS, await self._frontier.backlog(), key=lambda backlog: backlog.queued)
        for backlog in backlogs:
            found, _ = await self._frontier.backlog_domains(backlog.spider, limit=_DOMAINS_READ)
            for domain, count in found:
                waiting[domain] = waiting.get(domain, 0) + count
        busiest = heapq.nlargest(_BUSIEST, waiting, key=waiting.__getitem__)
        return list(dict.fromkeys([*self._named, *busiest]))

    async def _write(self) -> None:
        """Record the minute that is over."""
        await self._history.record_domain_uses(
            [_row(domain, self._minute, loads) for domain, loads in self._samples.items()]
        )


def _row(domain: str, minute: int, loads: list[DomainLoad]) -> DomainUse:
    used = [load.narrowest.used for load in loads]
    last = loads[-1].narrowest
    window = last.window_seconds if math.isfinite(last.window_seconds) else 0.0
    return DomainUse(
        domain=domain, minute=minute, used=sum(used) / len(used), most=max(used), hits=last.hits, window=window
    )
