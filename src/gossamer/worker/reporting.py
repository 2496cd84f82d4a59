"""A worker's part of the cluster's statistics: answers by status code, and signs of life for each of its spiders."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence

from gossamer.control.counters import Counters
from gossamer.control.stats import CRAWLER, crawled, worker_node
from gossamer.errors import FrontierError
from gossamer.telemetry.tally import Tally

_SECONDS = 5.0
_BEAT_SECONDS = 30.0


class Reporting:
    """Tells every few seconds what is new. What an outage keeps from being told is told after it."""

    def __init__(self, counters: Counters, tally: Callable[[], Tally], spiders: Sequence[str]) -> None:
        self._counters = counters
        self._tally = tally
        self._host = socket.gethostname()
        name = secrets.token_hex(6)
        self._nodes = [worker_node(self._host, spider, name) for spider in spiders]
        self._told: dict[str, int] = {}
        self._beaten = float("-inf")

    async def run(self) -> None:
        """For ever; cancel it, then `tell` once more."""
        while True:
            await self.tell()
            await asyncio.sleep(_SECONDS)

    async def tell(self) -> None:
        """What is new since the last time."""
        now = asyncio.get_running_loop().time()
        counts = {
            crawled(self._host, spider, code): count
            for spider, codes in self._tally().statuses.items()
            for code, count in codes.items()
        }
        new = {name: count - self._told.get(name, 0) for name, count in counts.items()}
        try:
            if now - self._beaten >= _BEAT_SECONDS:
                for node in self._nodes:
                    await self._counters.beat(CRAWLER, node)
                self._beaten = now
            await self._counters.add(CRAWLER, {name: count for name, count in new.items() if count})
        except FrontierError:
            return
        self._told = counts
