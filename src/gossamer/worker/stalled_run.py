"""A run that does not go on although requests of it are open: repaired where that helps, explained where not."""

import time
from collections.abc import Collection, Sequence

from gossamer.control.browsers import waiting_for_browsers
from gossamer.errors import FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.policy.words import browser_command, counted
from gossamer.telemetry.logs import Troubles

_TROUBLE = "stalled"
"""Name of the trouble. People see it in logs and metrics."""

# Time without a change after which a run counts as stalled, and the longest time between two repairs, which double. A
# shorter first one repairs runs that only wait for a slow page of another worker: that costs calls for nothing.
_FIRST_SECONDS = 10.0
_LONGEST_SECONDS = 600.0
_DOMAINS_SHOWN = 3
_DOMAINS_LOOKED_AT = 100


class StalledRun:
    """Watches a run while a worker has nothing to do for it, and nothing of it is due."""

    def __init__(self, frontier: ValkeyFrontier, spiders: Collection[str], troubles: Troubles) -> None:
        """`spiders`: those whose requests the worker fetches."""
        self._frontier = frontier
        self._spiders = frozenset(spiders)
        self._troubles = troubles
        self._counts = SpiderCounts()
        self._since = 0.0
        """Time of the last change, or of the last repair."""
        self._pause = _FIRST_SECONDS

    def on_leases(self) -> None:
        """Record that something was due: the run goes on."""
        self._troubles.end(_TROUBLE, "The crawl goes on.")

    async def look(self, info: CrawlInfo) -> None:
        """Compare the state of the run with the last one. Where nothing has changed for long, repair it, and tell what
        it waits for. Raises FrontierUnavailable."""
        now, counts = time.monotonic(), info.total()
        if counts != self._counts:
            self._counts, self._since, self._pause = counts, now, _FIRST_SECONDS
            self.on_leases()
        elif now - self._since >= self._pause:
            self._since, self._pause = now, min(2 * self._pause, _LONGEST_SECONDS)
            if not await self._frontier.repair(info.crawl) and not counts.leased:  # else another worker is at work
                self._troubles.begin(_TROUBLE, await self._reason(info))

    async def _reason(self, info: CrawlInfo) -> str:
        """Return what the run waits for, as a sentence."""
        found: list[str] = []
        for spider, part in info.spiders.items():
            if part.waiting and spider not in self._spiders:
                requests = counted(part.waiting, "request")
                found.append(f"{requests} of the spider {spider}, which this command does not run")
        if count := await self._waiting_for_browsers(info):
            requests = counted(count, "request")
            start = browser_command(info.pool)
            found.append(f"{requests} to be rendered, and no worker of the pool {info.pool} has a browser ({start})")
        for domain, waiting in (await self._paused_domains(info.crawl))[:_DOMAINS_SHOWN]:
            found.append(f"{counted(waiting, 'request')} on {domain}, which a policy has paused or blacklisted")
        if not found:
            found.append(f"{counted(info.total().waiting, 'request')}, none of which is due")
        return f"The crawl waits for {'; '.join(found)}."

    async def _waiting_for_browsers(self, info: CrawlInfo) -> int:
        """Return how many requests wait for a browser that no worker has."""
        try:
            return await waiting_for_browsers(self._frontier, info)
        except FrontierError:
            return 0

    async def _paused_domains(self, crawl: CrawlId) -> Sequence[tuple[str, int]]:
        """Return domains where requests wait that a policy has switched off, and the numbers of these requests."""
        try:
            default, policies = await self._frontier.domain_policies()
        except FrontierError:
            return ()
        domains, _ = await self._frontier.crawl_domains(crawl, cursor="", limit=_DOMAINS_LOOKED_AT)
        found = [(domain, policies.get(domain.domain, default)) for domain in domains]
        return [
            (domain.domain, domain.queued + domain.later)
            for domain, policy in found
            if _first(policy.scale, default.scale) == 0 or _first(policy.blacklisted, default.blacklisted)
        ]


def _first(value: float | None, default: float | None) -> float | None:
    return default if value is None else value
