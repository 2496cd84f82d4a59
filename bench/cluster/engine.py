"""Discrete-event simulation: a clock, a heap of events, and a processor with a queue."""

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class Simulation:
    """Runs events in the order of their times; events of the same time in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        """Simulated seconds since the start."""
        self._events: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, action: Action, *arguments: Any) -> None:
        """Run an action at this time, which must not be in the past."""
        self._count += 1
        heapq.heappush(self._events, (time, self._count, action, arguments))

    def after(self, seconds: float, action: Action, *arguments: Any) -> None:
        """Run an action so many seconds from now."""
        self.at(self.now + seconds, action, *arguments)

    def run(self, until: float) -> None:
        """Run all events up to this time."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        self.now = until


class Core:
    """One processor that does its work in the order of arrival, without interruption."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._free_at = 0.0
        self.used_seconds = 0.0
        """Processor time of all work so far, work that waits included."""

    @property
    def is_idle(self) -> bool:
        """True if no work is left."""
        return self._free_at <= self._simulation.now

    @property
    def rest_seconds(self) -> float:
        """Time since the last work was done; 0 while there is work."""
        return max(0.0, self._simulation.now - self._free_at)

    def work(self, seconds: float, then: Action, *arguments: Any) -> None:
        """Queue so many seconds of work, and run an action when it is done."""
        self._simulation.at(self.use(seconds), then, *arguments)

    def use(self, seconds: float) -> float:
        """Queue so many seconds of work. Returns the time at which it is done."""
        self._free_at = max(self._free_at, self._simulation.now) + seconds
        self.used_seconds += seconds
        return self._free_at
