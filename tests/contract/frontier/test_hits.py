"""Hits for requests that no queue holds count in the same windows as all others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import DomainPolicy, Rate, Run, Terms

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

DOMAIN = "a.test"
EARLY = 0.01
"""So long before a hit is free it is worth asking for it: the caller then waits until it starts."""


class Here:
    """One worker of one crawl, with 50 requests waiting."""

    def __init__(self, clock: Clock, frontier: ValkeyFrontier, run: Run, holder: ValkeyLeaseholder) -> None:
        self.clock, self.frontier, self.run, self.holder = clock, frontier, run, holder

    async def hit(self, domain: str = DOMAIN) -> float | None:
        return await self.holder.charge_hit(self.run, spider="link", domain=domain)

    async def leased(self) -> int:
        return len(await self.holder.lease(limit=50))


@asynccontextmanager
async def here(stage: Stage, **crawl: Any) -> AsyncIterator[Here]:
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    run = await frontier.open_crawl(a_crawl("one", **crawl))
    await frontier.add(run, Terms(), [a_batch(DOMAIN, range(50))])
    holder = await frontier.open_leaseholder(pool=run.crawl.pool, spiders=["link"])
    try:
        yield Here(clock, frontier, run, holder)
    finally:
        await holder.close()
        for opened in stage.frontiers:
            await opened.close()


async def test_a_lease_waits_for_a_hit_and_a_hit_for_a_lease(stage: Stage) -> None:
    async with here(stage) as one:
        assert await one.hit() == 0.0
        assert await one.leased() == 0
        one.clock.now += 0.4
        assert await one.hit() == pytest.approx(0.6 - EARLY)
        one.clock.now += 0.6
        assert await one.leased() == 1
        assert await one.hit() == 1.0 - EARLY
        one.clock.now += 1.0 - EARLY
        assert await one.hit() == 0.0


async def test_the_crawls_own_wish_holds_on_a_domain_it_never_queued_for(stage: Stage) -> None:
    async with here(stage, rate=Rate(3, 10.0, moderated=False)) as one:
        assert [await one.hit("elsewhere.test") for _ in range(4)] == [0.0, 0.0, 0.0, 10.0 - EARLY]


async def test_the_operators_policy_caps_it(stage: Stage) -> None:
    async with here(stage, rate=Rate(100, 1.0, moderated=False)) as one:
        await one.frontier.set_domain_policy("slow.test", DomainPolicy(hits=1, window_seconds=30.0))
        assert [await one.hit("slow.test") for _ in range(2)] == [0.0, 30.0 - EARLY]
        await one.frontier.set_domain_policy("slow.test", DomainPolicy(blacklisted=True))
        assert await one.hit("slow.test") is None


async def test_a_blocked_domain_gets_none(stage: Stage) -> None:
    async with here(stage) as one:
        await one.frontier.block_domain(DOMAIN, seconds=7.0)
        assert await one.hit() == 7.0
        one.clock.now += 7.0
        assert await one.hit() == 0.0


async def test_robots_delay_spaces_them(stage: Stage) -> None:
    async with here(stage, rate=Rate(100, 1.0, moderated=False)) as one:
        await one.frontier.set_crawl_delay(DOMAIN, seconds=5.0)
        assert [await one.hit() for _ in range(2)] == [0.0, 5.0 - EARLY]
