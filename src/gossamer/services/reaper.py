"""Housekeeping: dead workers' leases, what has outlived its retention, old bodies; and whether the data are there."""

import logging
import time

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Frontier
from gossamer.policy.witness import Witness
from gossamer.services.each_shard import EachShard
from gossamer.sinks.blobs import BlobStore
from gossamer.telemetry import names
from gossamer.telemetry.troubles import Troubles

log = logging.getLogger("gossamer.services.reaper")

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
        self._witnesses = [Witness(heartbeat_seconds) for _ in range(frontier.shards)]
        self._each_shard = EachShard(self.name, frontier.shards, self._reclaim, troubles)
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
            await self._blobs.sweep(retention_seconds=self._blob_retention_seconds)
            self._swept = time.monotonic()
        return False

    async def _reclaim(self, shard: int) -> bool:
        witness = self._witnesses[shard]
        try:
            await self._frontier.reclaim(judge=witness.is_fair(time.monotonic()), shard=shard)
        except FrontierUnavailable:
            witness.failed()
            raise
        witness.answered(now=time.monotonic())
        return False

    async def close(self) -> None:
        await self._each_shard.close()
