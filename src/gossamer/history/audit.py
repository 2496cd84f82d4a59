"""The audit of a crawl service, in the history's database.

A change is made although its entry cannot be written: the service takes requests while the history is away, and an
operator must be able to stop a crawl then. The log has the entry instead.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from gossamer.errors import GossamerError, HistoryUnavailable
from gossamer.history.store import HistoryStore
from gossamer.storage.audit import AuditedChange, AuditOutcome, AuditWrite
from gossamer.telemetry import logs

log = logging.getLogger("gossamer.history")

_WAIT_SECONDS: Final = 5.0
"""Longest time that a change waits for its entry."""
_AWAY_SECONDS: Final = 10.0
"""Time after a failure for which no entry is tried. Otherwise each change would wait while the database is away."""


class HistoryAudit:
    """Implements AuditTrail. Entries that come at once are written in one transaction: each takes a flush to disk."""

    def __init__(self, history: HistoryStore, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._history = history
        self._monotonic = monotonic
        self._waiting: list[tuple[AuditWrite, asyncio.Future[int]]] = []
        """Writes that are to come, and the futures that get their numbers; 0: it was not written."""
        self._task: asyncio.Task[None] | None = None
        self._away_until = float("-inf")

    async def begin(self, change: AuditedChange) -> int:
        """Add an entry before the change is made, and return its number; 0: it is in the log instead."""
        return await self._written(AuditWrite(change))

    async def end(self, number: int, change: AuditedChange, outcome: AuditOutcome) -> None:
        """Complete an entry."""
        if number:
            await self._written(AuditWrite(change, number, outcome))

    async def _written(self, one: AuditWrite) -> int:
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, written))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_waiting())
        return await written

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                numbers = await self._write([one for one, _ in batch])
            except BaseException as error:
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
                raise
            for (_, written), number in zip(batch, numbers, strict=True):
                if not written.done():  # its client may be gone
                    written.set_result(number)

    async def _write(self, batch: Sequence[AuditWrite]) -> list[int]:
        """Write a batch, or log it."""
        try:
            if self._monotonic() < self._away_until:
                raise HistoryUnavailable("it was away a moment ago")
            async with asyncio.timeout(_WAIT_SECONDS):  # the thread goes on: the entry may be written later
                return await self._history.write_audit(batch)
        except (GossamerError, TimeoutError) as error:
            if self._monotonic() >= self._away_until:
                self._away_until = self._monotonic() + _AWAY_SECONDS
            for one in batch:
                outcome = f", with the outcome {one.outcome.status}" if one.outcome else ""
                reason = str(error) or f"no answer within {_WAIT_SECONDS:g} seconds"
                log.warning("%s %s%s: %s", logs.AUDIT_INCOMPLETE, one.change.line, outcome, reason)
            return [0] * len(batch)
