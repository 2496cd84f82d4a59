"""What the frontier promises of assets, the files that pages embed or link: they do not count in limits of pages."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import CrawlId, CrawlState, Rate, Run, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Batch, Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

DOMAINS = [f"d{number}.test" for number in range(6)]
FAST = {"rate": Rate(1000, 1.0), "concurrency": 1000}


class Scene:
    """A frontier, and a worker that fetches pages and assets."""

    def __init__(self, frontier: ValkeyFrontier, clock: Clock, worker: ValkeyLeaseholder) -> None:
        self.frontier, self.clock, self.worker = frontier, clock, worker

    async def lease_all(self) -> list[Lease]:
        leases: list[Lease] = []
        for _ in range(20):
            self.clock.now += 1
            leases += await self.worker.lease(limit=100)
        return leases

    async def settle(self, leases: list[Lease], outcome: Outcome = Outcome.FETCHED) -> None:
        await self.worker.settle([Settlement(lease, outcome) for lease in leases])

    async def info(self) -> CrawlInfo:
        info = await self.frontier.crawl_info(CrawlId("app", "one"))
        assert info is not None
        return info

    async def finish(self) -> CrawlInfo:
        for _ in range(20):
            await self.settle(await self.lease_all())
            await self.frontier.maintain()
        return await self.info()


@pytest.fixture
async def scene(stage: Stage) -> AsyncIterator[Scene]:
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link", ASSET_SPIDER])
    yield Scene(frontier, clock, worker)
    await worker.close()
    await stage.leave()


def files(domain: str, count: int) -> Batch:
    return a_batch(domain, [f"{number}.png" for number in range(count)], spider=ASSET_SPIDER)


async def add(scene: Scene, run: Run, terms: Terms, batches: list[Batch]) -> int:
    return (await scene.frontier.add(run, terms, batches)).added


async def test_the_assets_of_the_last_page_are_fetched_after_the_budget_of_pages_is_used_up(scene: Scene) -> None:
    run, terms = await scene.frontier.open_crawl(a_crawl(**FAST, max_pages=3)), Terms()
    await scene.frontier.add(run, terms, [a_batch(domain, range(2)) for domain in DOMAINS], seeds=True)
    pages = await scene.lease_all()
    assert len(pages) == 3
    assert await add(scene, run, terms, [files(domain, 5) for domain in DOMAINS]) == 30
    assets = await scene.lease_all()
    assert {lease.spider for lease in assets} == {ASSET_SPIDER}
    assert len(assets) == 30
    await scene.settle(assets[:10])
    await scene.settle(assets[10:20], Outcome.RETURNED)
    await scene.settle(pages)  # from now on, no page may be fetched any more
    assert (await scene.info()).state is CrawlState.RUNNING
    assert await add(scene, run, terms, [files("late.test", 2), a_batch("late.test", range(2))]) in (2, 4)
    await scene.settle(assets[20:])
    info = await scene.finish()
    assert (info.state, info.pages.fetched, info.assets.fetched) == (CrawlState.FINISHED, 3, 32)
    assert info.assets.dropped == {}


async def test_a_limit_of_pages_of_a_domain_does_not_concern_them(scene: Scene) -> None:
    run, terms = await scene.frontier.open_crawl(a_crawl(**FAST)), Terms(domain_max_pages=1)
    await scene.frontier.add(run, terms, [a_batch("a.test", range(4))], seeds=True)
    await add(scene, run, terms, [files("a.test", 7)])
    info = await scene.finish()
    assert (info.pages.fetched, info.assets.fetched) == (1, 7)
    assert info.pages.dropped == {"budget": 3}


async def test_their_own_limit_counts_those_of_all_calls(scene: Scene) -> None:
    run, terms = await scene.frontier.open_crawl(a_crawl(**FAST)), Terms(max_assets=5)
    await scene.frontier.add(run, terms, [a_batch("a.test", [0])], seeds=True)
    assert await add(scene, run, terms, [files("a.test", 2)]) == 2
    assert await add(scene, run, terms, [files("a.test", 4)]) == 2
    result = await scene.frontier.add(run, terms, [files("a.test", 9)])
    assert (result.added, result.duplicates, dict(result.rejected_by_reason)) == (1, 4, {"budget": 4})
    assert (await scene.finish()).assets.fetched == 5


async def test_they_end_with_the_part_of_a_spider(scene: Scene) -> None:
    run, terms = await scene.frontier.open_crawl(a_crawl(**FAST)), Terms()
    await scene.frontier.add(run, terms, [a_batch("a.test", range(3))], seeds=True)
    await asyncio.gather(*(add(scene, run, terms, [files(domain, 3)]) for domain in DOMAINS))
    await scene.frontier.stop_crawl(CrawlId("app", "one"), spider="link")
    info = await scene.finish()
    assert info.pages.dropped == {"stopped": 3}
    assert info.assets.dropped == {"stopped": 18}
