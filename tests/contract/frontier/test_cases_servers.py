"""What the servers themselves go through while a crawl is on: full memory, forgotten scripts."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from gossamer.errors import FrontierFull
from gossamer.frontier.base import Submission
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, DomainPolicy, Terms
from gossamer.model.request import Outcome, Settlement
from tests.servers.valkey import standalone

from .asking import a_batch, a_crawl, fetched_count
from .pair import Clock
from .stage import Stage

PLAIN = Terms()


async def test_full_memory_refuses_additions_and_nothing_else(stage_of: Callable[[int], Stage]) -> None:
    stage, clock = stage_of(3), Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=10.0)
    domains = [f"d{number}.test" for number in range(6)]
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch(d, range(3)) for d in domains], seeds=True)
    living, dead = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    leases = await living.lease(limit=3)
    lost = await dead.lease(limit=2)
    await stage.connections[0].everywhere("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(FrontierFull, match="maxmemory"):
            await frontier.add(run, PLAIN, [a_batch("d0.test", ["more"])])
        await frontier.block_domain("d0.test", seconds=5)
        await frontier.set_domain_policy("d1.test", DomainPolicy(scale=0.5))
        await living.settle([Settlement(lease, Outcome.RETRY, delay_seconds=1) for lease in leases])
        clock.now += 8
        await living.heartbeat()
        clock.now += 8
        assert await frontier.maintain() == len(lost)
        assert await living.lease(limit=5) != []
        assert await frontier.stop_crawl(CrawlId("app", "one")) > 0
    finally:
        await stage.connections[0].everywhere("CONFIG", "SET", "maxmemory", "0")
    await living.close()
    await dead.close()
    await stage.leave()


async def test_full_memory_names_the_largest_crawl(stage_of: Callable[[int], Stage]) -> None:
    """Among small ones, so that a person knows which one to stop; its own pool is no way to hide."""
    stage = stage_of(1)
    frontier = await stage.frontier()
    for number in range(5):
        run = await frontier.open_crawl(a_crawl(f"small-{number}"))
        await frontier.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
    run = await frontier.open_crawl(a_crawl("large", pool="own"))
    await frontier.add(run, PLAIN, [a_batch(f"d{number}.test", range(3)) for number in range(500)], seeds=True)
    await stage.connections[0].everywhere("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(FrontierFull, match=r"stop a crawl; the largest seems to be app/large \(1,500 URLs wait"):
            await frontier.add(run, PLAIN, [a_batch("d0.test", ["more"])])
        with pytest.raises(FrontierFull, match=r"stop a crawl; the largest seems to be app/large \(1,500 URLs wait"):
            await frontier.submit([Submission(a_crawl("new"), PLAIN, [a_batch("d0.test", ["more"])])])
    finally:
        await stage.connections[0].everywhere("CONFIG", "SET", "maxmemory", "0")
    await stage.leave()


async def test_forgotten_scripts_are_sent_again(stage: Stage) -> None:
    """After a restart or a failover no server knows any script; every verb goes on."""
    frontier = await stage.frontier()
    run = await frontier.open_crawl(a_crawl())
    await stage.flush_scripts()
    await frontier.add(run, PLAIN, [a_batch(f"d{n}.test", range(3)) for n in range(6)], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await stage.flush_scripts()
    leases = await seat.lease(limit=20)
    await stage.flush_scripts()
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await stage.flush_scripts()
    await frontier.maintain()
    await seat.heartbeat()
    await stage.flush_scripts()
    assert await frontier.stop_crawl(run.crawl.id) == 18 - len(leases)
    await seat.close()
    await stage.leave()


async def test_who_was_cut_off_itself_takes_nobody_for_dead(stage: Stage) -> None:
    clock = Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=10.0)
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=1)
    clock.now += 60
    assert await frontier.maintain(may_declare_dead=lambda: False) == 0
    await seat.heartbeat()
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    assert await fetched_count(frontier, run) == 1
    await seat.close()
    await stage.leave()


async def test_a_server_that_stood_still_takes_nobody_for_dead() -> None:
    """The judgement was asked for before it stood still, and it is the first thing that it finds afterwards."""
    with standalone() as server:
        judge = await ValkeyFrontier.connect(server.address, dead_after_seconds=0.5)
        run = await judge.open_crawl(a_crawl())
        await judge.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
        other = await ValkeyFrontier.connect(server.address, dead_after_seconds=0.5)
        seat = await other.open_leaseholder(pool="shared", spiders=["link"])
        leases = await seat.lease(limit=1)
        assert await judge.maintain() == 0
        os.kill(server.pid, signal.SIGSTOP)
        try:
            late = asyncio.create_task(judge.maintain())
            await asyncio.sleep(0.6)
            assert not late.done()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert await late == 0
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        assert await fetched_count(other, run) == 1
        await seat.close()
        for frontier in (judge, other):
            await frontier.close()
