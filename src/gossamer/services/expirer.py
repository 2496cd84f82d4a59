"""Ends what has passed its time."""

from gossamer.frontier.base import Frontier


class Expirer:
    """Implements Role. The frontier hands out nothing that has expired, and ends as expired what ends after its time,
    whether this role comes by or not; this role ends what would wait longer."""

    name = "expirer"

    def __init__(self, frontier: Frontier, *, pause_seconds: float = 1.0) -> None:
        """`pause_seconds`: the latest that an expired crawl is noticed."""
        self._frontier = frontier
        self.pause_seconds = pause_seconds

    async def run_once(self) -> bool:
        return await self._frontier.expire_due(limit=100) > 0

    async def close(self) -> None:
        return
