"""Counts of submissions reach the cluster's counters, also those that come while others are being added."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gossamer.api import submit
from gossamer.api.context import ApiContext
from gossamer.telemetry.metrics import ServiceMetrics


class SlowCounters:
    """Adds counts only when allowed."""

    def __init__(self) -> None:
        self.added: Counter[str] = Counter()
        self.called = asyncio.Event()
        self.allowed = asyncio.Event()
        self.complete = asyncio.Event()

    async def add(self, group: str, counts: Mapping[str, int]) -> None:
        self.called.set()
        await self.allowed.wait()
        self.added.update(counts)
        if self.added["total"] == 2:
            self.complete.set()


async def test_counts_that_come_during_a_flush_are_added_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_FLUSH_SECONDS", 0.001)
    counters = SlowCounters()
    context: Any = SimpleNamespace(metrics=ServiceMetrics(), counters=counters)
    counter = submit.SubmissionCounter(cast(ApiContext, context))
    counter.count("crawl", "accepted")
    async with asyncio.timeout(30):
        await counters.called.wait()
        counter.count("crawl", "duplicate")
        counters.allowed.set()
        await counters.complete.wait()
    await counter.close()
    assert counters.added["total"] == 2
