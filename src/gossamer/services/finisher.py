"""Ends runs that have been idle for long enough, and publishes the ends of crawls: finished, stopped, expired."""

import secrets
from collections.abc import Callable

from gossamer.control import stats
from gossamer.control.counters import Counters
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlState
from gossamer.model.messages import answers
from gossamer.services.each_shard import EachShard
from gossamer.services.outbound import Outbound
from gossamer.telemetry.metrics import Metrics
from gossamer.telemetry.troubles import Troubles


class Finisher:
    """Implements Role. An event was decided with the crawl's end, so after its last page was published; it is told at
    least once, under an `event_id` that stays the same."""

    name = "finisher"

    def __init__(
        self,
        frontier: Frontier,
        outbound: Outbound,
        counters: Counters,
        metrics: Metrics,
        troubles: Troubles,
        *,
        now: Callable[[], float],
        pause_seconds: float = 0.5,
    ) -> None:
        """`pause_seconds`: how late an event may be told."""
        self._frontier = frontier
        self._outbound = outbound
        self._counters = counters
        self._metrics = metrics
        self._now = now
        self._publisher = secrets.token_hex(8)
        self.pause_seconds = pause_seconds
        self._each_shard = EachShard(self.name, frontier.shards, self._tell, troubles)

    async def run_once(self) -> bool:
        return await self._each_shard.run()

    async def _tell(self, shard: int) -> bool:
        ended = await self._frontier.finish_idle(limit=100, shard=shard)
        events = await self._frontier.events(limit=100, shard=shard, publisher=self._publisher)
        if not events:
            return ended > 0
        await self._outbound.send(answers.event(event, now=self._now()) for event in events)
        await self._frontier.forget_events(events)
        for event in events:
            self._metrics.events.labels(event.kind.value).inc()
        expired = sum(event.kind is CrawlState.EXPIRED for event in events)
        if expired:
            await self._counters.add(stats.ACTIONS, {"total": expired, "plugins:ExpireMonitor": expired})
        return True

    async def close(self) -> None:
        await self._each_shard.close()
