"""The CPU budget of a page: every stage exists, and timers count each moment once."""

import asyncio
import time
from importlib import import_module
from operator import attrgetter

from bench.budget import STAGES, Clock, budget, timed


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_every_function_of_a_stage_exists() -> None:
    for places in STAGES.values():
        for module, path in places:
            assert callable(attrgetter(path)(import_module(module))), (module, path)


def test_a_stage_does_not_count_what_a_stage_within_counts() -> None:
    clock = Clock()
    inner = timed(_work, clock, "inner")

    def outer() -> None:
        _work(0.01)
        inner(0.03)

    timed(outer, clock, "outer")()
    assert clock.stages["inner"] >= 0.03e9
    assert clock.stages["outer"] >= 0.01e9
    assert clock.stages["outer"] < clock.stages["inner"]
    assert clock.entries == {"outer": 1, "inner": 1}


async def test_a_stage_does_not_count_what_runs_while_it_waits() -> None:
    clock = Clock()

    async def waiting() -> str:
        await asyncio.sleep(0)
        return "result"

    task = asyncio.create_task(timed(waiting, clock, "waiting")())
    await asyncio.sleep(0)
    _work(0.03)
    assert await task == "result"
    assert clock.stages["waiting"] < 0.02e9
    assert clock.entries == {"waiting": 2}


def test_the_table_adds_up() -> None:
    figures = {"used": 1.0, "timer": 0.0, "stages": {"links": [0.25, 1000], "record": [0.25, 1000]}}
    rows = {name: microseconds for name, microseconds, _ in budget(figures, 1000)}
    assert rows["links"] == rows["record"] == 250.0
    assert rows["rest"] == 500.0
    assert rows["all"] == 1000.0
