"""Who is alive hears from when on another counts as dead, and takes over then; no later."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.model.crawl import CrawlState, Terms
from gossamer.model.request import Outcome, Settlement
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.scripts import Script

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

HEARTBEAT = 30.0
PLAIN = Terms()


async def test_the_most_silent_worker_is_told_of(stage_of: Callable[[int], Stage]) -> None:
    stage, clock = stage_of(3), Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=HEARTBEAT)
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch(f"d{n}.test", range(3)) for n in range(20)], seeds=True)
    living, dying = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    assert await living.heartbeat() == HEARTBEAT  # nobody has leased anything
    assert await living.lease(limit=9)
    lost = await dying.lease(limit=9)
    clock.now += 10
    assert await living.heartbeat() == HEARTBEAT - 10
    await dying.heartbeat()
    clock.now += 10
    assert await living.heartbeat() == HEARTBEAT - 10
    clock.now += 20.001
    assert await living.heartbeat() == 0
    assert await frontier.maintain() == len(lost)
    assert await living.heartbeat() == HEARTBEAT
    await dying.heartbeat()
    assert not any(dying.holds(lease) for lease in lost)
    await living.close()
    await dying.close()
    await stage.leave()


async def test_the_time_of_a_busy_worker_is_written_ten_times_a_second(stage_of: Callable[[int], Stage]) -> None:
    stage = stage_of(1)
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    run = await frontier.open_crawl(a_crawl("one"))
    await frontier.add(run, PLAIN, [a_batch(f"d{number}.test", [0]) for number in range(5)])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    key = f"{stage.prefix}:{{0}}:workers"
    written = []
    for seconds in (0.0, 0.06, 0.06, 0.06, 0.06):
        clock.now += seconds
        assert len(await seat.lease(limit=1)) == 1
        [_, time_ms] = await stage.connections[0].command(key, "ZRANGE", key, "0", "-1", "WITHSCORES")
        written.append(round(float(time_ms) - 1000 * clock.now))
    assert written == [0, -60, 0, -60, 0]
    await stage.leave()


async def test_the_dead_are_followed_when_their_time_is_over(stage_of: Callable[[int], Stage]) -> None:
    """Not at the next round of housekeeping, which comes once in a heartbeat: half a minute here."""
    stage, clock = stage_of(1), Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=HEARTBEAT)
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch("d.test", range(9))], seeds=True)
    living, dead = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    (lost,) = await dead.lease(limit=1)
    clock.now += HEARTBEAT + 0.001
    await living.lease(limit=1)
    seat = WorkerSession(frontier, living, Retrier(Troubles()), dead_after_seconds=HEARTBEAT)
    # As if the seat had been kept for a heartbeat: a new one declares nobody dead.
    seat._shard_sessions[0]._judge.on_reply(now=asyncio.get_running_loop().time() - HEARTBEAT)
    keeping = asyncio.create_task(seat.run())
    async with asyncio.timeout(HEARTBEAT / 2):
        await seat.progress.wait()
    await dead.heartbeat()
    assert not dead.holds(lost)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await living.close()
    await dead.close()
    await stage.leave()


async def test_maintenance_asks_for_dead_workers_and_idle_runs_only_where_there_are_some(
    stage_of: Callable[[int], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand workers, each of which maintains every shard, most rounds find nothing."""
    stage, clock = stage_of(1), Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=HEARTBEAT)
    run = await frontier.open_crawl(a_crawl(idle_seconds=50.0))
    await frontier.add(run, PLAIN, [a_batch("d.test", range(1))], seeds=True)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await worker.lease(limit=1)
    called: list[str] = []
    monkeypatch.setattr(stage.connections[0], "call", _noting(stage.connections[0].call, called))

    async def scripts_of_a_round() -> list[str]:
        called.clear()
        await frontier.maintain()
        return list(called)

    clock.now += HEARTBEAT - 0.001
    assert await scripts_of_a_round() == ["pending_work", "sweep"]
    clock.now += 0.002
    assert "reclaim" in await scripts_of_a_round()
    (again,) = await (other := await frontier.open_leaseholder(pool="shared", spiders=["link"])).lease(limit=1)
    await other.settle([Settlement(again, Outcome.FETCHED)])
    assert "finish_idle" not in await scripts_of_a_round()
    clock.now += 20
    await other.heartbeat()
    clock.now += 20
    await other.heartbeat()
    clock.now += 10.001
    assert "finish_idle" in await scripts_of_a_round()
    info = await frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.state is CrawlState.FINISHED
    assert await scripts_of_a_round() == ["pending_work", "sweep"]
    await worker.close()
    await other.close()
    await stage.leave()


def _noting(call: Callable[..., Awaitable[Any]], called: list[str]) -> Callable[..., Awaitable[Any]]:
    """The same call, which also notes the name of its script."""

    async def noting(shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        called.append(script.name)
        return await call(shard, script, *arguments, **options)

    return noting
