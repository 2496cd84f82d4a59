"""Nobody polls: an idle worker sleeps until there is something for it, and is woken by whatever brings that about."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import DomainPolicy, Rate, Terms
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

PLAIN = Terms()
LONG_SECONDS = 300.0
PATIENCE_SECONDS = 20.0


@pytest.fixture
async def frontier(stage: Stage) -> AsyncIterator[ValkeyFrontier]:
    """On the servers' own clock."""
    yield await stage.frontier()
    await stage.leave()


async def settled(seat: ValkeyLeaseholder) -> None:
    """Until it knows that nothing is due, on any shard."""
    for _ in range(3):
        assert await seat.lease(limit=10) == []


async def submit(frontier: ValkeyFrontier, name: str, *domains: str, count: int = 1, **options: Any) -> None:
    run = await frontier.open_crawl(a_crawl(name, **options))
    await frontier.add(run, PLAIN, [a_batch(domain, range(count)) for domain in domains], seeds=True)


async def woken_by(seat: ValkeyLeaseholder, event: Callable[[], Awaitable[Any]]) -> list[Lease]:
    """What it leases after it slept until this happened."""
    asleep = asyncio.create_task(seat.wait_for_work(timeout_seconds=LONG_SECONDS))
    done, _ = await asyncio.wait([asleep], timeout=0)
    assert not done
    await event()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asleep
        while not (leases := await seat.lease(limit=10)):  # another shard's news may have come first
            await seat.wait_for_work(timeout_seconds=LONG_SECONDS)
    return leases


async def test_a_message_that_was_lost_is_not_waited_for(stage_of: Callable[[int], Stage]) -> None:
    """Between the nodes of a cluster it may be. On many shards only those are asked that may have something."""
    stage = stage_of(16)
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await settled(seat)
    seat._listener.cancel()  # type: ignore[attr-defined]
    await submit(frontier, "one", "d1.test")
    assert await seat.lease(limit=10) == []
    clock.now += 31.0
    assert len(await seat.lease(limit=10)) == 1
    await stage.leave()


async def test_by_an_addition(frontier: ValkeyFrontier) -> None:
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    for number in range(4):
        await settled(seat)
        leases = await woken_by(seat, lambda n=number: submit(frontier, f"{n}", f"d{n}.test"))
        assert len(leases) == 1
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await seat.close()


async def test_a_lease_wakes_no_worker_that_waits_for_something_else(frontier: ValkeyFrontier, stage: Stage) -> None:
    """It moves its domain to a later time: what other workers wait for does not become due sooner."""
    await submit(frontier, "one", "d1.test", count=2)
    other = await frontier.open_leaseholder(pool="shared", spiders=["other"])
    await settled(other)

    async def waiting() -> set[tuple[str, bytes]]:
        keys, command = await stage.keys(), stage.connections[0].command
        waits = [key for key in keys if key.endswith("}:wait:shared")]
        return {(key, name) for key in waits for name in await command(key, "ZRANGE", key, "0", "-1")}

    before = await waiting()
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert len(await seat.lease(limit=1)) == 1
    assert before
    assert await waiting() >= before
    await other.close()
    await seat.close()


async def test_by_a_place_in_flight_that_another_worker_gave_up(frontier: ValkeyFrontier) -> None:
    await frontier.set_domain_policy(
        "a.test", DomainPolicy(hits=1000, window_seconds=1.0, moderated=False, concurrency=1)
    )
    await submit(frontier, "one", "a.test", count=5)
    busy, idle = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    held = []
    while not held:
        held = await busy.lease(limit=1)
    await settled(idle)
    leases = await woken_by(idle, lambda: busy.settle([Settlement(held[0], Outcome.FETCHED)]))
    assert [lease.domain for lease in leases] == ["a.test"]
    for seat in (busy, idle):
        await seat.close()


@pytest.mark.parametrize("domain", ["a.test", None])
async def test_by_a_policy(frontier: ValkeyFrontier, domain: str | None) -> None:
    await frontier.set_domain_policy(domain, DomainPolicy(blacklisted=True))
    await submit(frontier, "one", "a.test")
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await settled(seat)
    assert len(await woken_by(seat, lambda: frontier.set_domain_policy(domain, None))) == 1
    await seat.close()


async def test_by_a_retry_that_is_due(frontier: ValkeyFrontier) -> None:
    await submit(frontier, "one", "a.test", rate=Rate(1000, 1.0, moderated=False))
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    (lease,) = await seat.lease(limit=1) or await seat.lease(limit=1)
    await settled(seat)
    leases = await woken_by(seat, lambda: seat.settle([Settlement(lease, Outcome.RETRY, delay_seconds=0.3)]))
    assert leases[0].attempt == 1
    await seat.close()


async def test_by_the_end_of_a_block(frontier: ValkeyFrontier) -> None:
    """Nothing happens then but time: the worker knew when."""
    await frontier.block_domain("a.test", seconds=0.5)
    await submit(frontier, "one", "a.test")
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await settled(seat)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await seat.lease(limit=1):
            await seat.wait_for_work(timeout_seconds=LONG_SECONDS)
    await seat.close()


async def test_by_what_a_dead_worker_held(frontier: ValkeyFrontier, stage: Stage) -> None:
    impatient = await stage.frontier(dead_after_seconds=0.5)
    await submit(frontier, "one", "a.test", rate=Rate(1000, 1.0, moderated=False))
    dead, idle = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    assert await dead.lease(limit=1) or await dead.lease(limit=1)
    await settled(idle)

    async def bury() -> None:
        while not await impatient.maintain():
            await idle.heartbeat()  # this one lives

    leases = await woken_by(idle, bury)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not leases:  # the first wake-up may have been for something else
            await idle.wait_for_work(timeout_seconds=LONG_SECONDS)
            leases = await idle.lease(limit=1)
    assert [lease.deaths for lease in leases] == [1]
    for seat in (dead, idle):
        await seat.close()


async def test_by_a_lost_connection(frontier: ValkeyFrontier, stage: Stage) -> None:
    """What was said meanwhile is missed: it looks for itself."""
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await settled(seat)
    asleep = asyncio.create_task(seat.wait_for_work(timeout_seconds=LONG_SECONDS))
    for connection in stage.connections:
        await connection.everywhere("CLIENT", "KILL", "TYPE", "pubsub")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asleep
    await seat.close()


async def test_not_by_its_own_lease(stage_of: Callable[[int], Stage]) -> None:
    """Who takes a request knows when the domain's next is due, and needs no message about it."""
    stage = stage_of(1)
    frontier = await stage.frontier()
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await settled(seat)
    await submit(frontier, "one", *[f"d{number}.test" for number in range(30)], count=2)

    def published() -> int:
        assert hasattr(stage.server, "info")
        told = stage.server.info("commandstats").get("cmdstat_publish", "calls=0,")
        return int(told.split(",")[0].partition("=")[2])

    before = published()
    for _ in range(31):
        leases = await seat.lease(limit=3)
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    assert published() - before <= 3
    await seat.close()
    await stage.leave()
