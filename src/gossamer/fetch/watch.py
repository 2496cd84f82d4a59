"""The clock of all connections: one timer for all of them, instead of several for each request."""

import asyncio
import time
from collections.abc import Callable

from gossamer.errors import FirstByteTimeout, IdleTimeout, TotalTimeout
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.connection import Connection
from gossamer.fetch.limits import Timeouts

STALL_SECONDS = 1.0
"""A leader of the budget that brings nothing for so long lets another lead."""


class Watch:
    """Ends exchanges that take too long. Its timer runs only while there is something to watch."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        budget: ByteBudget,
        expire_idle: Callable[[float], bool],
    ) -> None:
        """`expire_idle` is told the time, closes what was idle for too long, and says whether any idle one is left."""
        self._loop = loop
        self._timeouts = timeouts
        self._budget = budget
        self._expire_idle = expire_idle
        shortest = min(timeouts.first_byte, timeouts.idle, timeouts.total)
        self._tick_seconds = min(max(shortest / 8, 0.005), 0.25)
        self._timer: asyncio.TimerHandle | None = None
        self.busy: set[Connection] = set()
        """Connections with an exchange under way."""

    def start(self) -> None:
        """See to it that the timer runs. Costs nothing when it does."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def stop(self) -> None:
        """Watch no more. May be repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        for connection in list(self.busy):
            self._check(connection, now)
        if self._expire_idle(now) or self.busy:
            self.start()

    def _check(self, connection: Connection, now: float) -> None:
        timeouts = self._timeouts
        silent = now - connection.heard_at
        if now >= connection.deadline:
            connection.fail(TotalTimeout(f"{timeouts.total:g} s"))
        elif connection.paused:
            return
        elif not connection.first_byte_at:
            if silent >= timeouts.first_byte:
                connection.fail(FirstByteTimeout(f"{timeouts.first_byte:g} s"))
        elif silent >= timeouts.idle:
            connection.fail(IdleTimeout(f"nothing for {timeouts.idle:g} s"))
        elif silent >= STALL_SECONDS:
            self._budget.pass_on(connection)
