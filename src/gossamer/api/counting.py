"""Requests that came over HTTP, counted as those that come by the bus are."""

import asyncio
import contextlib
from collections import Counter

from gossamer.api.parts import Parts
from gossamer.control import stats
from gossamer.errors import FrontierError

_PAUSE_SECONDS = 1.0
_GOODBYE_SECONDS = 1.0


class Fed:
    """Counts in memory, and puts it together with the others' once a second. What is not there yet when the process
    dies is not counted."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counts: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    def count(self, kind: str, result: str) -> None:
        """`result`: accepted, duplicate or rejected."""
        self._parts.metrics.requests.labels(kind, result).inc()
        self._counts["total"] += 1
        self._counts["fail" if result == "rejected" else stats.counted_as(kind)] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._soon())

    async def close(self) -> None:
        """Count the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._flush()

    async def _soon(self) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        counts, self._counts = self._counts, Counter()
        with contextlib.suppress(FrontierError):  # repeated it might count twice
            await self._parts.counters.add(stats.INTAKE, counts)
