"""Stalls of this process's event loop, told apart from servers that take long to answer."""

import asyncio
import time
from types import TracebackType

_TICK_SECONDS = 0.025
"""Time between two looks at the clock. Longer ones notice short stalls less often, shorter ones cost CPU time while
answers are awaited."""
_LEAST_SECONDS = 0.02
"""Delay of a look from which on it counts as a stall: a busy event loop is not more punctual. A longer one takes short
stalls for slow servers, a shorter one the work of a busy process for stalls."""


class StallClock:
    """Clock of the seconds for which the event loop has stood still: its process was stopped, got no CPU, or computed.

    It runs only while there are users (`with clock:`), and costs a timer every 25 ms then. The event loop may handle
    what arrived during a stall before the timers that are late by it, so that `seconds` counts a timer that is overdue.
    """

    def __init__(self) -> None:
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        """Monotonic time at which the timer is due."""
        self._seconds = 0.0

    def __enter__(self) -> None:
        self._users += 1
        if self._timer is None:
            self._start(time.monotonic())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1

    def seconds(self, now: float) -> float:
        """Return the seconds of all stalls until `now`, on the monotonic clock. For users only."""
        late = now - self._due
        return self._seconds + late if late >= _LEAST_SECONDS else self._seconds

    def stop(self) -> None:
        """Stop the timer. May be repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, now: float) -> None:
        self._due = now + _TICK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        self._seconds = self.seconds(now)
        if self._users:
            self._start(now)
