"""Housekeeping: dead workers' leases, what has outlived its retention, old bodies; and whether the data are there."""

import logging
import time

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import Frontier
from gossamer.policy.witness import Witness
from gossamer.sinks.blobs import BlobStore
from gossamer.telemetry import names

log = logging.getLogger("gossamer.services.reaper")

_BLOBS_SECONDS = 3600.0


class Reaper:
    """Implements Role."""

    name = "reaper"

    def __init__(
        self, frontier: Frontier, blobs: BlobStore, *, heartbeat_seconds: float, blob_retention_seconds: float
    ) -> None:
        """`heartbeat_seconds`: a round is done twice in it."""
        self._frontier = frontier
        self._blobs = blobs
        self._blob_retention_seconds = blob_retention_seconds
        self._witness = Witness(heartbeat_seconds)
        self.pause_seconds = heartbeat_seconds / 2
        self._swept = 0.0
        self._lost_shards = frontier.lost_shards

    async def run_once(self) -> bool:
        try:
            await self._frontier.reclaim(judge=self._witness.is_fair(time.monotonic()))
        except FrontierUnavailable:
            self._witness.failed()
            raise
        self._witness.answered(now=time.monotonic())
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

    async def close(self) -> None:
        return
