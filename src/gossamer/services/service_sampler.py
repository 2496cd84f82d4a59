"""Samples of the speed of the whole service for the history: one row a minute, whatever runs."""

import time
from collections.abc import Callable

from gossamer.control.process_facts import read_facts
from gossamer.control.stats import Counters
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.service_rates import ServiceRate
from gossamer.history.store import HistoryStore

_SAMPLE_SECONDS = 10.0
"""Time between two samples. Workers report their speed no oftener."""


class ServiceSampler:
    """Copies the speed of all workers, and what waits for them, to the history. Samples of a minute are in memory until
    it is over."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        counters: Counters,
        history: HistoryStore,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: returns epoch seconds."""
        self._frontier = frontier
        self._counters = counters
        self._history = history
        self._now = now
        self._monotonic = monotonic
        self._due_at = float("-inf")
        self._minute = 0
        self._rates: list[float] = []
        """Pages a second of the samples of this minute."""
        self._waiting = 0

    async def sample(self) -> None:
        """Sample, if it is due. May be repeated. Raises errors of the frontier, and HistoryUnavailable."""
        if self._monotonic() < self._due_at:
            return
        self._due_at = self._monotonic() + _SAMPLE_SECONDS
        facts = map(read_facts, (await self._counters.facts()).values())
        rate = sum(each.pages_per_second for each in facts if each is not None)
        waiting = sum(backlog.queued for backlog in await self._frontier.backlog())
        minute = int(self._now() // 60)
        if minute != self._minute:
            if self._rates:
                mean = sum(self._rates) / len(self._rates)
                await self._history.record_service_rate(ServiceRate(self._minute, mean, self._waiting))
            self._minute, self._rates = minute, []
        self._rates.append(rate)
        self._waiting = waiting
