"""Housekeeping: dead workers' leases, what has outlived its retention, old bodies."""

import time

from gossamer.frontier.base import Frontier
from gossamer.sinks.blobs import BlobStore

_BLOBS_SECONDS = 3600.0


class Reaper:
    """Implements Role."""

    name = "reaper"

    def __init__(
        self, frontier: Frontier, blobs: BlobStore, *, pause_seconds: float, blob_retention_seconds: float
    ) -> None:
        """`pause_seconds`: between two rounds; half a heartbeat suits."""
        self._frontier = frontier
        self._blobs = blobs
        self._blob_retention_seconds = blob_retention_seconds
        self.pause_seconds = pause_seconds
        self._swept = 0.0

    async def run_once(self) -> bool:
        await self._frontier.reclaim()
        if time.monotonic() - self._swept > _BLOBS_SECONDS or not self._swept:
            await self._blobs.sweep(retention_seconds=self._blob_retention_seconds)
            self._swept = time.monotonic()
        return False

    async def close(self) -> None:
        return
