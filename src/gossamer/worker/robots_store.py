"""What workers know of robots.txt files, shared through the frontier."""

from gossamer.frontier.base import Frontier
from gossamer.policy.urls import host, registered_domain


class FrontierRobotsStore:
    """A RobotsStore whose records live beside their domain in the frontier."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier

    async def load(self, origin: str) -> bytes | None:
        return await self._frontier.load_robots(_domain(origin), origin)

    async def claim(self, origin: str, seconds: float) -> bool:
        return await self._frontier.claim_robots(_domain(origin), origin, seconds=seconds)

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        await self._frontier.save_robots(_domain(origin), origin, record, ttl_seconds=ttl_seconds)

    async def release(self, origin: str) -> None:
        await self._frontier.release_robots(_domain(origin), origin)


def _domain(origin: str) -> str:
    # An origin that is reached without checking certificates has a word before it; the URL is the last.
    return registered_domain(host(origin.rpartition(" ")[2]))
