"""Who is alive hears from when on another counts as dead, and takes over then; no later."""

import asyncio
from collections.abc import Callable

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.model.crawl import Terms
from gossamer.telemetry.logs import Troubles

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
