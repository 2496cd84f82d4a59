"""Ends what has passed its time."""

import logging
import secrets
import time
from collections.abc import Callable

from gossamer.control import stats
from gossamer.control.stats import Counters
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import CrawlState
from gossamer.model.messages import answers
from gossamer.policy.timing import LivenessJudge
from gossamer.services.reporter import OutboundPublisher
from gossamer.services.role import EachShard
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import Metrics


class Expirer:
    """Implements Role. The frontier hands out nothing that has expired, and ends as expired what ends after its time,
    whether this role comes by or not; this role ends what would wait longer."""

    name = "expirer"

    def __init__(self, frontier: Frontier, troubles: Troubles, *, pause_seconds: float = 1.0) -> None:
        """`pause_seconds`: the latest that an expired crawl is noticed."""
        self._frontier = frontier
        self.pause_seconds = pause_seconds
        self._each_shard = EachShard(self.name, frontier.shard_count, self._expire, troubles)

    async def run_once(self) -> bool:
        return await self._each_shard.run()

    async def _expire(self, shard: int) -> bool:
        return await self._frontier.expire_due(limit=100, shard=shard) > 0

    async def close(self) -> None:
        await self._each_shard.close()


class Finisher:
    """Implements Role. An event was decided with the crawl's end, so after its last page was published; it is told at
    least once, under an `event_id` that stays the same."""

    name = "finisher"

    def __init__(
        self,
        frontier: Frontier,
        outbound: OutboundPublisher,
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
        self._each_shard = EachShard(self.name, frontier.shard_count, self._tell, troubles)

    async def run_once(self) -> bool:
        return await self._each_shard.run()

    async def _tell(self, shard: int) -> bool:
        ended = await self._frontier.finish_idle(limit=100, shard=shard)
        events = await self._frontier.pending_events(limit=100, shard=shard, publisher=self._publisher)
        if not events:
            return ended > 0
        await self._outbound.send(answers.event(event, now=self._now()) for event in events)
        await self._frontier.acknowledge_events(events)
        for event in events:
            self._metrics.events.labels(event.kind.value).inc()
        expired = sum(event.kind is CrawlState.EXPIRED for event in events)
        if expired:
            await self._counters.add(stats.ACTIONS, {"total": expired, "plugins:ExpireMonitor": expired})
        return True

    async def close(self) -> None:
        await self._each_shard.close()


log = logging.getLogger("gossamer.services.maintenance")

_BLOBS_SECONDS = 3600.0


class Reaper:
    """Implements Role."""

    name = "reaper"

    def __init__(
        self,
        frontier: Frontier,
        blobs: BlobStore,
        troubles: Troubles,
        *,
        heartbeat_seconds: float,
        blob_retention_seconds: float,
    ) -> None:
        """`heartbeat_seconds`: a round is done twice in it."""
        self._frontier = frontier
        self._blobs = blobs
        self._blob_retention_seconds = blob_retention_seconds
        self._witnesses = [LivenessJudge(heartbeat_seconds) for _ in range(frontier.shard_count)]
        self._each_shard = EachShard(self.name, frontier.shard_count, self._reclaim, troubles)
        self.pause_seconds = heartbeat_seconds / 2
        self._swept = 0.0
        self._lost_shards = frontier.lost_shards

    async def run_once(self) -> bool:
        await self._each_shard.run()
        if self._frontier.lost_shards > self._lost_shards:
            log.error(
                "%s The frontier lost its data (%d shards): its server was emptied, or restarted without them. Crawls, "
                "policies and waiting requests are gone; the service goes on with the empty frontier.",
                names.FRONTIER_LOST,
                self._frontier.lost_shards - self._lost_shards,
            )
            self._lost_shards = self._frontier.lost_shards
        if time.monotonic() - self._swept > _BLOBS_SECONDS or not self._swept:
            await self._blobs.purge(retention_seconds=self._blob_retention_seconds)
            self._swept = time.monotonic()
        return False

    async def _reclaim(self, shard: int) -> bool:
        witness = self._witnesses[shard]
        try:
            await self._frontier.maintain(declare_dead=witness.is_fair(time.monotonic()), shard=shard)
        except FrontierUnavailable:
            witness.failed()
            raise
        witness.answered(now=time.monotonic())
        return False

    async def close(self) -> None:
        await self._each_shard.close()
