"""Says that a worker lives while its event loop cannot: a callback that blocks is no death."""

import asyncio
import contextlib
import threading
import time

from gossamer.errors import GossamerError
from gossamer.frontier.base import Frontier, Leaseholder

MOST_SECONDS = 600.0
"""A loop that has not turned for so long will not turn again: then it is taken for dead like any other."""


class Pulse:
    """A thread with a connection of its own, which is made when it is first needed. Between `start` and `stop` whoever
    beats calls `turned`; when that is missed for half a heartbeat, the thread vouches for the worker."""

    def __init__(self, frontier: Frontier, holder: Leaseholder, *, heartbeat_seconds: float) -> None:
        self._frontier = frontier
        self._holder = holder
        self._heartbeat_seconds = heartbeat_seconds
        self._turned = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gossamer-pulse", daemon=True)

    def start(self) -> None:
        """Once."""
        self._turned = time.monotonic()
        self._thread.start()

    def turned(self) -> None:
        """The event loop goes round."""
        self._turned = time.monotonic()

    def stop(self) -> None:
        """The thread ends by itself soon after. May be repeated."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._heartbeat_seconds / 6):
            if self._is_late():
                asyncio.run(self._vouch())

    def _is_late(self) -> bool:
        return self._heartbeat_seconds / 2 < time.monotonic() - self._turned < MOST_SECONDS

    async def _vouch(self) -> None:
        """Until the loop turns again."""
        frontier = self._frontier.twin()
        try:
            await asyncio.gather(*(self._vouch_on(frontier, shard) for shard in range(frontier.shards)))
        finally:
            await frontier.close()

    async def _vouch_on(self, frontier: Frontier, shard: int) -> None:
        while self._is_late() and not self._over.is_set():
            with contextlib.suppress(GossamerError):  # where the shard is away, nobody can be heard there
                await frontier.vouch(shard, self._holder.name_on(shard))
            await asyncio.sleep(self._heartbeat_seconds / 6)
