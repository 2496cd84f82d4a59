"""What the frontier holds: crawls and what each was opened with, workers, and what waits for them."""

import re
from collections.abc import AsyncIterator

import pytest

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, CrawlState, DomainPolicy, Rate, Run, Terms
from gossamer.model.info import AppInfo, Backlog
from gossamer.model.request import Outcome, Settlement

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
    await frontier.add(run, PLAIN, [a_batch(f"{pool}.test", [crawlid])], seeds=True)
    return run


async def all_crawls(frontier: ValkeyFrontier, *, appid: str | None = None, limit: int = 100) -> list[CrawlId]:
    found, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page, cursor = await frontier.list_crawl_ids(appid=appid, cursor=cursor, limit=limit)
        found += page
        pages += 1
        assert pages < 1000
    return found


async def crawls_of(frontier: ValkeyFrontier, state: CrawlState | None, *, appid: str | None, limit: int) -> list[str]:
    """The names of all crawls in this state, by page; they are checked to be in it."""
    found, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page, cursor = await frontier.list_crawls(appid=appid, state=state, cursor=cursor, limit=limit)
        assert state is None or {info.state for info in page} <= {state}
        found += [info.crawl.crawlid for info in page]
        pages += 1
        assert pages < 1000
    return sorted(set(found))


async def work_off(frontier: ValkeyFrontier, clock: Clock, spider: str) -> None:
    """Fetch all that waits for a spider."""
    seat = await frontier.open_leaseholder(pool="shared", spiders=[spider])
    for _ in range(20):
        leases = await seat.lease(limit=1000)
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        clock.now += 10
    await seat.close()
    await frontier.maintain()


async def scripts_run(frontier: ValkeyFrontier) -> int:
    """How many scripts the servers have run."""
    replies = await frontier.connection.everywhere("INFO", "commandstats")
    return sum(int(calls) for reply in replies for calls in re.findall(rb"cmdstat_eval\w*:calls=(\d+)", bytes(reply)))


@pytest.mark.parametrize("limit", [1, 5, 1000])
async def test_crawls_are_listed_by_state(frontier: ValkeyFrontier, clock: Clock, limit: int) -> None:
    for app in ("a", "b"):
        for number in range(8):
            run = await frontier.open_crawl(Crawl(id=CrawlId(app, f"{app}{number}"), pool="shared"))
            spider = "other" if number < 2 else "link"
            await frontier.add(run, PLAIN, [a_batch(f"{app}{number}.test", ["x"], spider=spider)], seeds=True)
    await work_off(frontier, clock, "other")
    await frontier.stop_crawl(CrawlId("a", "a2"))
    await frontier.stop_crawl(CrawlId("a", "a3"), state=CrawlState.EXPIRED)
    named = {
        CrawlState.FINISHED: ["a0", "a1"],
        CrawlState.STOPPED: ["a2"],
        CrawlState.EXPIRED: ["a3"],
        CrawlState.RUNNING: ["a4", "a5", "a6", "a7"],
    }
    for state, expected in named.items():
        assert await crawls_of(frontier, state, appid="a", limit=limit) == expected
    both = await crawls_of(frontier, CrawlState.RUNNING, appid=None, limit=limit)
    assert both == [*named[CrawlState.RUNNING], *(f"b{number}" for number in range(2, 8))]
    assert len(await crawls_of(frontier, None, appid="b", limit=limit)) == 8
    run = await frontier.open_crawl(Crawl(id=CrawlId("a", "a0"), pool="shared"))
    await frontier.add(run, PLAIN, [a_batch("a0.test", ["again"])], seeds=True)
    assert "a0" in await crawls_of(frontier, CrawlState.RUNNING, appid="a", limit=limit)


async def test_a_page_of_crawls_does_not_ask_for_each(frontier: ValkeyFrontier) -> None:
    for number in range(150):
        await open_one(frontier, "a", str(number))
    before = await scripts_run(frontier)
    page, _ = await frontier.list_crawls(appid="a", state=CrawlState.RUNNING, limit=1000)
    names = [info.crawl for info in page]
    assert len(await frontier.first_domains(names, limit=5)) == len(page) == 150
    assert {info.total().queued for info in page} == {1}
    assert await scripts_run(frontier) - before <= 30


async def test_an_applications_totals_cost_the_same_whatever_its_crawls(frontier: ValkeyFrontier, clock: Clock) -> None:
    async def opened(number: int) -> None:
        crawl = Crawl(id=CrawlId("a", str(number)), pool="shared")
        run = await frontier.open_crawl(crawl, expires={"link": 0})
        await frontier.add(run, PLAIN, [a_batch(f"d{number % 10}.test", [f"{number}", f"{number}b"])], seeds=True)

    async def asked(spider: str) -> tuple[AppInfo, int]:
        before = await scripts_run(frontier)
        return await frontier.app_info("a", spider=spider), await scripts_run(frontier) - before

    await opened(0)
    assert await frontier.app_info("a", spider="link") == AppInfo(waiting=2, crawls=1, domains=1)
    _, cost = await asked("link")
    for number in range(1, 100):
        await opened(number)
    assert await asked("link") == (AppInfo(waiting=200, crawls=100, domains=10), cost)
    assert await frontier.app_info("a") == AppInfo(waiting=200, crawls=100, domains=10)
    assert await frontier.app_info("a", spider="other") == AppInfo(waiting=0, crawls=0, domains=0)
    await frontier.stop_crawl(CrawlId("a", "1"), spider="link")
    await frontier.stop_crawl(CrawlId("a", "2"))
    assert await frontier.app_info("a", spider="link") == AppInfo(waiting=196, crawls=98, domains=10)
    for number in range(11, 100, 10):
        await frontier.stop_crawl(CrawlId("a", str(number)))
    assert await frontier.app_info("a", spider="link") == AppInfo(waiting=178, crawls=89, domains=9)


async def test_every_crawl_is_found_page_by_page(frontier: ValkeyFrontier) -> None:
    assert await frontier.list_crawl_ids() == ([], "")
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


async def test_crawls_of_every_pool_are_listed(frontier: ValkeyFrontier) -> None:
    """Whoever began them: a service, a command line, a Scrapy project."""
    await open_one(frontier, "app", "one", pool="mine")
    await open_one(frontier, "app", "two")
    assert {crawl.crawlid for crawl in await all_crawls(frontier, appid="app")} == {"one", "two"}
    await frontier.stop_crawl(CrawlId("app", "one"))
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"one", "two"}


async def test_a_crawl_is_listed_as_long_as_it_is_known(frontier: ValkeyFrontier, clock: Clock, stage: Stage) -> None:
    for name in ("running", "stopped", "finished"):
        await open_one(frontier, "app", name)
    await frontier.stop_crawl(CrawlId("app", "stopped"))
    await frontier.stop_crawl(CrawlId("app", "finished"), state=CrawlState.FINISHED)
    clock.now += 86400 - 1
    await frontier.maintain()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running", "stopped", "finished"}
    clock.now += 2
    await frontier.maintain()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running", "stopped"}
    clock.now += 30 * 86400
    await frontier.maintain()
    assert {crawl.crawlid for crawl in await all_crawls(frontier)} == {"running"}
    await frontier.stop_crawl(CrawlId("app", "running"), state=CrawlState.FINISHED)
    clock.now += 86400 + 1
    await frontier.maintain()
    endless = {key for key, ttl in (await stage.keys()).items() if ttl == -1}
    assert {key.split("}:")[1] for key in endless} <= {"meta", "n", "groups"}


@pytest.mark.parametrize("cursor", ["x", "99:", "-1:0|a", ":", "²:0|a"])
async def test_a_cursor_that_is_none_is_refused(frontier: ValkeyFrontier, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        await frontier.list_crawl_ids(cursor=cursor)
    with pytest.raises(BadInput, match="cursor"):
        await frontier.crawl_domains(CrawlId("app", "one"), cursor=cursor)


async def test_the_newest_run_is_found_with_what_it_was_opened_with(frontier: ValkeyFrontier) -> None:
    crawl = a_crawl(max_pages=7, rate=Rate(3, 5.0), concurrency=2)
    assert await frontier.latest_run(crawl.id) is None
    run = await frontier.open_crawl(crawl)
    assert await frontier.latest_run(crawl.id) == run
    wished = await frontier.set_crawl_limits(run, rate=None, concurrency=1)
    assert await frontier.latest_run(crawl.id) == wished
    await frontier.stop_crawl(crawl.id, state=CrawlState.FINISHED)
    assert await frontier.latest_run(crawl.id) == wished
    again = await frontier.open_crawl(crawl, fresh=True)
    assert (again.number, await frontier.latest_run(crawl.id)) == (2, again)


async def test_the_terms_of_a_crawls_submissions(frontier: ValkeyFrontier) -> None:
    assert await frontier.crawl_terms(CrawlId("app", "one")) == []
    run = await frontier.open_crawl(a_crawl())
    assert await frontier.crawl_terms(run.crawl.id) == []
    asked = [Terms(maxdepth=number, domain_max_pages=number or None, attrs={"n": number}) for number in range(30)]
    for terms in asked:
        for domain in ("d0.test", "d1.test"):
            await frontier.add(run, terms, [a_batch(domain, [terms.maxdepth])], seeds=True)
    assert sorted(await frontier.crawl_terms(run.crawl.id), key=lambda terms: terms.maxdepth or 0) == asked
    for number in range(200):
        await frontier.add(run, Terms(cookie=str(number)), [a_batch(f"{number}.test", ["x"])], seeds=True)
    assert len({repr(terms) for terms in await frontier.crawl_terms(run.crawl.id)}) == 100


async def test_workers_are_listed_while_they_live(frontier: ValkeyFrontier, clock: Clock) -> None:
    assert await frontier.workers() == []
    await open_one(frontier, "app", "one")
    await open_one(frontier, "app", "two", pool="mine")
    one = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    two = await frontier.open_leaseholder(pool="mine", spiders=["link"])
    assert len(await one.lease(limit=5)) == 1
    clock.now += 2
    assert len(await two.lease(limit=5)) == 1
    clock.now += 3
    found = {worker.name: worker for worker in await frontier.workers()}
    assert {name: worker.leased for name, worker in found.items()} == {one.worker: 1, two.worker: 1}
    assert [round(found[seat.worker].silent_seconds, 3) for seat in (one, two)] == [5, 3]
    clock.now += 6
    await two.heartbeat()
    assert [(worker.name, worker.silent_seconds) for worker in await frontier.workers()] == [(two.worker, 0)]
    await one.close()
    await two.close()
    assert await frontier.workers() == []


async def all_domains(frontier: ValkeyFrontier, spider: str, *, limit: int) -> dict[str, int]:
    """A domain that waits in two pools may be on two pages."""
    found: dict[str, int] = {}
    cursor, pages = "", 0
    while pages == 0 or cursor:
        page, cursor = await frontier.backlog_domains(spider, cursor=cursor, limit=limit)
        assert len({domain for domain, _ in page}) == len(page)
        for domain, count in page:
            found[domain] = found.get(domain, 0) + count
        pages += 1
        assert pages < 1000
    return found


async def test_the_backlog_of_each_spider(frontier: ValkeyFrontier, clock: Clock) -> None:
    assert await frontier.backlog() == []
    assert await frontier.backlog_domains("link") == ([], "")
    domains = [f"d{number}.test" for number in range(40)]
    await frontier.set_domain_policy("d0.test", DomainPolicy(blacklisted=True))
    await frontier.set_domain_policy("d1.test", DomainPolicy(scope=BudgetScope.IP))
    for name, pool, spiders in [
        ("one", "shared", ["link", "other"]),
        ("two", "shared", ["link"]),
        ("x", "own", ["link"]),
    ]:
        run = await frontier.open_crawl(a_crawl(name, pool=pool))
        batches = [
            a_batch(domain, range(3), spider=spider, priority=number % 90)
            for spider in spiders
            for number, domain in enumerate(domains if spider == "link" else domains[:2])
        ]
        await frontier.add(run, PLAIN, batches, seeds=True)
    assert await frontier.backlog() == [Backlog("link", 360, 80), Backlog("other", 6, 2)]
    for limit in (1, 7, 1000):
        assert await all_domains(frontier, "link", limit=limit) == dict.fromkeys(domains, 9)
        assert await all_domains(frontier, "other", limit=limit) == {"d0.test": 3, "d1.test": 3}
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=500)
    leases += await seat.lease(limit=500)  # those with a budget per address, which is known by now
    assert len(leases) == 39
    assert await frontier.backlog() == [Backlog("link", 321, 80), Backlog("other", 6, 2)]
    await seat.settle([Settlement(lease, Outcome.RETURNED) for lease in leases[:9]])
    await seat.settle([Settlement(lease, Outcome.RETRY, delay_seconds=500) for lease in leases[9:]])
    assert await frontier.backlog() == [Backlog("link", 330, 80), Backlog("other", 6, 2)]
    await seat.close()
    await frontier.stop_crawl(CrawlId("app", "one"), spider="other")
    await frontier.stop_crawl(CrawlId("app", "two"))
    await frontier.stop_crawl(CrawlId("app", "x"))
    left = await all_domains(frontier, "link", limit=10)
    assert await frontier.backlog() == [Backlog("link", sum(left.values()), len(left))]
    await frontier.stop_crawl(CrawlId("app", "one"))
    assert await frontier.backlog() == []
    assert await frontier.backlog_domains("link") == ([], "")
