"""Ends what has passed its time."""

from gossamer.frontier.base import Frontier
from gossamer.services.each_shard import EachShard
from gossamer.telemetry.troubles import Troubles


class Expirer:
    """Implements Role. The frontier hands out nothing that has expired, and ends as expired what ends after its time,
    whether this role comes by or not; this role ends what would wait longer."""

    name = "expirer"

    def __init__(self, frontier: Frontier, troubles: Troubles, *, pause_seconds: float = 1.0) -> None:
        """`pause_seconds`: the latest that an expired crawl is noticed."""
        self._frontier = frontier
        self.pause_seconds = pause_seconds
        self._each_shard = EachShard(self.name, frontier.shards, self._expire, troubles)

    async def run_once(self) -> bool:
        return await self._each_shard.run()

    async def _expire(self, shard: int) -> bool:
        return await self._frontier.expire_due(limit=100, shard=shard) > 0

    async def close(self) -> None:
        await self._each_shard.close()
