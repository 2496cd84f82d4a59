"""How processes share what they know of robots.txt files: the contract, and the form that lives in one process."""

import time
from collections.abc import Callable
from typing import Protocol


class RobotsStore(Protocol):
    """Records by origin (`https://host:port`), with an end of life. A record is opaque bytes."""

    async def load(self, origin: str) -> bytes | None:
        """The record that was saved last and has not ended; None: nobody knows yet."""

    async def claim(self, origin: str, seconds: float) -> bool:
        """True: the caller is the one to fetch it, for that long. False: somebody else is at it."""

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """Keep the record in place of an earlier one. It may end the claim on the origin. May be repeated."""

    async def release(self, origin: str) -> None:
        """End the caller's claim without a record: it could not ask. May be repeated."""


class MemoryRobotsStore:
    """A store for one process: a single fetch, or a test. Bounded; the oldest record makes room."""

    def __init__(self, *, max_records: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds, never going back."""
        self._max_records = max_records
        self._clock = clock
        self._records: dict[str, tuple[bytes, float]] = {}
        self._claims: dict[str, float] = {}

    async def load(self, origin: str) -> bytes | None:
        """See RobotsStore."""
        record, end = self._records.get(origin, (None, 0.0))
        return record if end > self._clock() else None

    async def claim(self, origin: str, seconds: float) -> bool:
        """See RobotsStore."""
        now = self._clock()
        if self._claims.get(origin, now) > now:
            return False
        self._claims = {other: end for other, end in self._claims.items() if end > now}
        self._claims[origin] = now + seconds
        return True

    async def save(self, origin: str, record: bytes, ttl_seconds: float) -> None:
        """See RobotsStore."""
        self._claims.pop(origin, None)
        self._records.pop(origin, None)
        while len(self._records) >= self._max_records:
            del self._records[next(iter(self._records))]
        self._records[origin] = (record, self._clock() + ttl_seconds)

    async def release(self, origin: str) -> None:
        """See RobotsStore."""
        self._claims.pop(origin, None)
