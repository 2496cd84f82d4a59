"""The audit of a crawl service, in the history's database.

A change is made although its entry cannot be written: the service takes requests while the history is away, and an
operator must be able to stop a crawl then. The log has the entry instead.
"""

import asyncio
import itertools
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
        self._late: dict[int, asyncio.Future[int]] = {}
        """Entries that a thread may still write, by negative numbers, and the futures that get their numbers."""
        self._late_numbers = itertools.count(-1, -1)
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks that complete such entries."""

    async def begin(self, change: AuditedChange) -> int:
        """Add an entry before the change is made, and return its number; 0: it is in the log instead; negative: it is
        in the log, and may come later."""
        return await self._written(AuditWrite(change))

    async def end(self, number: int, change: AuditedChange, outcome: AuditOutcome) -> None:
        """Complete an entry."""
        if number > 0:
            await self._written(AuditWrite(change, number, outcome))
        elif (late := self._late.pop(number, None)) is not None:
            task = asyncio.create_task(self._end_late(late, change, outcome))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end_late(self, late: asyncio.Future[int], change: AuditedChange, outcome: AuditOutcome) -> None:
        """Complete an entry once it is there: otherwise it would look as if the process had been killed meanwhile."""
        if number := await late:
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
            numbers = await self._write([one for one, _ in batch])
            for (_, written), number in zip(batch, numbers, strict=True):
                if not written.done():  # its client may be gone
                    written.set_result(number)

    async def _write(self, batch: Sequence[AuditWrite]) -> list[int]:
        """Write a batch, or log it. Where the database takes too long, a thread goes on with it."""
        writing: asyncio.Task[list[int]] | None = None
        try:
            if self._monotonic() < self._away_until:
                raise HistoryUnavailable("it was away a moment ago")
            writing = asyncio.create_task(self._history.write_audit(batch))
            async with asyncio.timeout(_WAIT_SECONDS):
                return await asyncio.shield(writing)
        except Exception as error:
            if not isinstance(error, (GossamerError, TimeoutError)):
                log.exception("%s an entry cannot be written", logs.AUDIT_INCOMPLETE)
            elif self._monotonic() >= self._away_until:
                self._away_until = self._monotonic() + _AWAY_SECONDS
            for one in batch:
                outcome = f", with the outcome {one.outcome.status}" if one.outcome else ""
                reason = str(error) or f"no answer within {_WAIT_SECONDS:g} seconds"
                log.warning("%s %s%s: %s", logs.AUDIT_INCOMPLETE, one.change.line, outcome, reason)
            return [0] * len(batch) if writing is None or writing.done() else self._expect(writing, batch)

    def _expect(self, writing: "asyncio.Task[list[int]]", batch: Sequence[AuditWrite]) -> list[int]:
        """Return negative numbers for the new entries of a batch that is still being written; 0 for the others."""
        numbers = [0 if one.number else next(self._late_numbers) for one in batch]
        late: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in batch]
        self._late |= {number: future for number, future in zip(numbers, late, strict=True) if number}

        def note(done: "asyncio.Task[list[int]]") -> None:
            is_written = not done.cancelled() and done.exception() is None
            if is_written:
                self._away_until = float("-inf")
            for future, number in zip(late, done.result() if is_written else [0] * len(late), strict=True):
                future.set_result(number)

        writing.add_done_callback(note)
        return numbers
