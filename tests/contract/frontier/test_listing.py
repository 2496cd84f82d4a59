"""Which crawls there are, and what each was opened with."""

from collections.abc import AsyncIterator

import pytest

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Rate, Run, Terms

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

PLAIN = Terms()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def frontier(stage: Stage, clock: Clock) -> AsyncIterator[ValkeyFrontier]:
    yield await stage.frontier(clock=clock)
    await stage.leave()


async def open_one(frontier: ValkeyFrontier, appid: str, crawlid: str, *, pool: str = "shared") -> Run:
    run = await frontier.open_crawl(Crawl(id=CrawlId(appid, crawlid), pool=pool))
    await frontier.add(run, PLAIN, [a_batch("d0.test", [crawlid])], seeds=True)
    return run


async def all_crawls(frontier: ValkeyFrontier, *, appid: str | None = None, limit: int = 100) -> list[CrawlId]:
    found, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page, cursor = await frontier.crawls(appid=appid, cursor=cursor, limit=limit)
        found += page
        pages += 1
        assert pages < 1000
    return found


async def test_every_crawl_is_found_page_by_page(frontier: ValkeyFrontier) -> None:
    assert await frontier.crawls() == ([], "")
    apps = ["a", "b|0", "ü:\n", "a0"]
    crawls = [CrawlId(app, f"crawl {number}") for app in apps for number in range(40)]
    for crawl in crawls:
        await open_one(frontier, crawl.appid, crawl.crawlid)
    for limit in (1, 7, 1000):
        assert sorted(await all_crawls(frontier, limit=limit)) == sorted(crawls)
        for app in apps:
            assert sorted(await all_crawls(frontier, appid=app, limit=limit)) == [
                c for c in sorted(crawls) if c.appid == app
            ]
    assert await all_crawls(frontier, appid="nobody") == []


async def test_crawls_of_other_pools_are_nobodys_business(frontier: ValkeyFrontier) -> None:
    await open_one(frontier, "app", "one", pool="mine")
    assert await all_crawls(frontier) == []


async def test_a_crawl_is_listed_as_long_as_it_is_known(frontier: ValkeyFrontier, clock: Clock, stage: Stage) -> None:
    for name in ("running", "stopped", "finished"):
        await open_one(frontier, "app", name)
    await frontier.stop_crawl(CrawlId("app", "stopped"))
    await frontier.stop_crawl(CrawlId("app", "finished"), state=CrawlState.FINISHED)
    clock.now += 86400 - 1
    await frontier.reclaim()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running", "stopped", "finished"}
    clock.now += 2
    await frontier.reclaim()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running", "stopped"}
    clock.now += 30 * 86400
    await frontier.reclaim()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running"}
    await frontier.stop_crawl(CrawlId("app", "running"), state=CrawlState.FINISHED)
    clock.now += 86400 + 1
    await frontier.reclaim()
    assert {key.split("}:")[1] for key in await stage.keys()} <= {"meta", "n", "homes"}


@pytest.mark.parametrize("cursor", ["x", "99:", "-1:0|a", ":", "²:0|a"])
async def test_a_cursor_that_is_none_is_refused(frontier: ValkeyFrontier, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        await frontier.crawls(cursor=cursor)
    with pytest.raises(BadInput, match="cursor"):
        await frontier.crawl_domains(CrawlId("app", "one"), cursor=cursor)


async def test_the_newest_run_is_found_with_what_it_was_opened_with(frontier: ValkeyFrontier) -> None:
    crawl = a_crawl(max_pages=7, rate=Rate(3, 5.0), concurrency=2)
    assert await frontier.run_of(crawl.id) is None
    run = await frontier.open_crawl(crawl)
    assert await frontier.run_of(crawl.id) == run
    wished = await frontier.set_wish(run, rate=None, concurrency=1)
    assert await frontier.run_of(crawl.id) == wished
    await frontier.stop_crawl(crawl.id, state=CrawlState.FINISHED)
    assert await frontier.run_of(crawl.id) == wished
    again = await frontier.open_crawl(crawl, fresh=True)
    assert (again.number, await frontier.run_of(crawl.id)) == (2, again)
