"""When a Scrapy process leases no more requests: too many of those that it has fetched are not settled yet."""

import asyncio
from types import SimpleNamespace
from typing import Any

from gossamer.scrapy import lease_runner
from gossamer.scrapy.lease_runner import LeaseRunner

_CONCURRENCY = 16


def _runner() -> LeaseRunner:
    """A runner that has sent nothing, with as much of its surroundings as leasing looks at."""
    runner: Any = LeaseRunner.__new__(LeaseRunner)
    runner._is_closing, runner._suspect, runner._ready, runner._tasks = False, None, (), set()
    runner._engine = SimpleNamespace(is_full=False, download_count=0)
    runner._rate = SimpleNamespace(lead=lambda limit: 0)
    runner._committer = SimpleNamespace(pending=0)
    runner.options = SimpleNamespace(concurrency=_CONCURRENCY)
    return runner  # type: ignore[no-any-return]


async def test_requests_that_wait_for_a_feed_on_a_full_disk_count_as_unsettled() -> None:
    runner, has_room = _runner(), asyncio.Event()

    async def write_feed() -> None:
        await has_room.wait()

    for _ in range(lease_runner._MAX_UNSETTLED - 1):
        runner._start_task(write_feed())
    assert runner._free_slots() == _CONCURRENCY
    runner._start_task(write_feed())
    assert runner._free_slots() == 0
    has_room.set()
    await asyncio.gather(*runner._tasks)
    assert runner._free_slots() == _CONCURRENCY
