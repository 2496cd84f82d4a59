"""Ends what has passed its time."""

from gossamer.frontier.base import Frontier


class Expirer:
    """Implements Role. Nothing expired is handed out before this has seen it: that is the frontier's own doing."""

    name = "expirer"

    def __init__(self, frontier: Frontier, *, pause_seconds: float = 1.0) -> None:
        """`pause_seconds`: the latest that an expired crawl is noticed."""
        self._frontier = frontier
        self.pause_seconds = pause_seconds

    async def run_once(self) -> bool:
        return await self._frontier.expire_due(limit=100) > 0

    async def close(self) -> None:
        return
