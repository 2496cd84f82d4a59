"""Lanes: requests that are to be rendered go only to workers with a browser, all others to any."""

from collections import Counter

import pytest

from gossamer.model.crawl import BudgetScope, CrawlState, DomainPolicy, Terms
from gossamer.model.info import SpiderCounts, UrlInfo
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl, fingerprint
from .conftest import REDIS, SHARDS
from .pair import Clock, Pair
from .stage import Stage

TERMS = Terms()

pytestmark = pytest.mark.parametrize("stage", [*SHARDS, REDIS], indirect=True)


async def test_only_a_worker_with_a_browser_gets_what_is_to_be_rendered(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["plain"]), a_batch("b.test", ["rendered"], render=True)], seeds=True)
    plain = await pair.hire(pool="shared", spiders=["link"])
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    (one,) = await pair.lease_all_due(plain)
    (two,) = await pair.lease_all_due(browser)
    assert (one.url, one.render) == ("https://a.test/plain", False)
    assert (two.url, two.render) == ("https://b.test/rendered", True)
    await pair.fetch(plain, [one])
    await pair.settle(browser, [Settlement(two, Outcome.FETCHED)])
    await pair.check()
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.state, info.total().fetched, info.rendering.fetched) == ("finished", 2, 1)


async def test_a_request_keeps_what_it_is_in_the_other_lane(pair: Pair) -> None:
    """There and back: its id, depth, priority, attempts and payload; its hit is not given back."""
    await pair.set_policy(None, DomainPolicy(hits=1, window_seconds=10.0))
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["page", "next"], priority=60, depth=3, payloads=[b"its own"] * 2)])
    plain = await pair.hire(pool="shared", spiders=["link"])
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    (lease,) = await pair.lease_all_due(plain)
    await pair.settle(plain, [Settlement(lease, Outcome.RETRY)])
    await pair.pass_time(20)
    (other,) = await pair.lease_all_due(plain)
    await pair.fetch(plain, [other])
    await pair.pass_time(20)
    (before,) = await pair.lease_all_due(plain)
    await pair.settle(plain, [Settlement(before, Outcome.SWITCHED, payload=b"found empty")])
    assert await pair.lease_all_due(browser) == [], "the hit was used"
    await pair.pass_time(20)
    assert await pair.lease_all_due(plain) == []
    (after,) = await pair.lease_all_due(browser)
    kept = ("request_id", "url", "depth", "priority", "attempt", "spider", "identity", "terms", "run")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (before.attempt, before.priority, after.payload, after.render) == (1, 50, b"found empty", True)
    await pair.settle(browser, [Settlement(after, Outcome.SWITCHED)])
    await pair.pass_time(20)
    assert await pair.lease_all_due(browser) == []
    (again,) = await pair.lease_all_due(plain)
    assert (again.request_id, again.payload, again.render) == (before.request_id, b"found empty", False)
    await pair.fetch(plain, [again])
    await pair.check()
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.state, info.spiders["link"].added, info.rendering) == ("finished", 2, SpiderCounts())


async def test_the_hit_of_a_request_that_was_not_sent_is_free_for_the_other_lane(pair: Pair) -> None:
    await pair.set_policy(None, DomainPolicy(hits=1, window_seconds=100.0))
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["page"])])
    plain = await pair.hire(pool="shared", spiders=["link"])
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    (lease,) = await pair.lease_all_due(plain)
    await pair.settle(plain, [Settlement(lease, Outcome.SWITCHED, unused=True)])
    (again,) = await pair.lease_all_due(browser)
    assert again.request_id == lease.request_id
    await pair.fetch(browser, [again])
    await pair.check()


async def test_a_url_is_one_request_in_both_lanes(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["page"])])
    answer = await pair.add(run, TERMS, [a_batch("a.test", ["page", "more"], render=True)], seeds=True)
    assert (answer.added, answer.duplicates) == (1, 1)
    await pair.check()


@pytest.mark.parametrize("scope", list(BudgetScope))
async def test_both_lanes_of_a_domain_share_its_budget(pair: Pair, scope: BudgetScope) -> None:
    await pair.set_policy(None, DomainPolicy(hits=2, window_seconds=10.0, moderated=False, scope=scope))
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", range(6)), a_batch("a.test", range(6, 12), render=True)])
    plain = await pair.hire(pool="shared", spiders=["link"])
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    leased = {False: 0, True: 0}
    for _ in range(6):
        for worker in (plain, browser):
            leases = await pair.lease_all_due(worker)  # the model compares the hits with the budget
            leased[worker is browser] += len(leases)
            await pair.fetch(worker, leases)
        await pair.pass_time(11)
    assert leased == {False: 6, True: 6}
    await pair.check()


@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.EXPIRED])
@pytest.mark.parametrize("spider", ["link", None])
async def test_a_spider_ends_in_both_lanes(pair: Pair, spider: str | None, state: CrawlState) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    batches = [a_batch("a.test", range(3)), a_batch("b.test", range(4), render=True)]
    other = a_batch("c.test", range(2), spider="other", render=True)
    await pair.add(run, TERMS, [*batches, other])
    browser = await pair.hire(pool="shared", spiders=["link"], browser=True)
    held = await pair.lease_all_due(browser, limit=2)
    await pair.stop(run.crawl.id, spider=spider, state=state)
    await pair.settle(browser, [Settlement(lease, Outcome.SWITCHED) for lease in held])
    answer = await pair.add(run, TERMS, [a_batch("d.test", [1], render=True)])
    assert (answer.added, set(answer.rejected)) == (0, {(0, 0)})
    await pair.check()
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.spiders["link"].dropped == {str(state): 7}
    assert info.spiders["other"].queued == (2 if spider else 0)
    if spider:
        await pair.drain()
        events = await pair.frontier.pending_events()
        assert {(event.spider, event.purged) for event in events if event.spider} == {("link", 7 - len(held))}


async def test_budgets_of_pages_hold_for_both_lanes(pair: Pair) -> None:
    run = await pair.open(a_crawl(max_pages=5))
    assert run is not None
    terms = Terms(domain_max_pages=3)
    domains = ["a.test", "b.test"]
    await pair.add(
        run, terms, [a_batch(d, range(3)) for d in domains] + [a_batch(d, range(3, 6), render=True) for d in domains]
    )
    worker = await pair.hire(pool="shared", spiders=["link"], browser=True)
    for number in range(12):
        leases = await pair.lease_all_due(worker)
        outcome = Outcome.SWITCHED if number % 3 == 0 else Outcome.FETCHED
        await pair.settle(worker, [Settlement(lease, outcome) for lease in leases])
        await pair.pass_time(3)
        await pair.reclaim()
    await pair.check()
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.state, info.total().fetched) == ("finished", 5)


async def test_what_a_dead_worker_held_stays_in_its_lane(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["one"]), a_batch("b.test", ["two"], render=True)])
    dead = await pair.hire(pool="shared", spiders=["link"], browser=True)
    assert len(await pair.lease_all_due(dead)) == 2
    pair.kill(dead)
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 2
    plain = await pair.hire(pool="shared", spiders=["link"])
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    assert [lease.url for lease in await pair.lease_all_due(plain)] == ["https://a.test/one"]
    assert [lease.url for lease in await pair.lease_all_due(browser)] == ["https://b.test/two"]
    await pair.check()


async def test_why_knows_the_lane(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", ["plain"]), a_batch("a.test", ["page"], render=True)])
    url, handle = "https://a.test/page", pair.handles[run.crawl.id]
    mark = fingerprint("link", url)

    async def find() -> UrlInfo:
        return await pair.frontier.find_url(handle, spider="link", domain="a.test", url=url, fingerprint=mark)

    info = await find()
    assert (info.place, info.render, info.position) == ("queued", True, 0)
    browser = await pair.hire(pool="shared", spiders=["link"], plain=False, browser=True)
    (lease,) = await pair.lease_all_due(browser)
    info = await find()
    assert (info.place, info.render) == ("leased", True)
    await pair.settle(browser, [Settlement(lease, Outcome.RETRY, delay_seconds=30)])
    info = await find()
    assert (info.place, info.render, info.failed_attempts) == ("later", True, 1)
    await pair.pass_time(31)
    (lease,) = await pair.lease_all_due(browser)
    await pair.settle(browser, [Settlement(lease, Outcome.SWITCHED)])
    info = await find()
    assert (info.place, info.render) == ("queued", False)


async def test_a_listing_of_domains_has_both_lanes(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, TERMS, [a_batch("a.test", range(2)), a_batch("a.test", range(2, 5), render=True)])
    await pair.add(run, TERMS, [a_batch("b.test", range(4), render=True)])
    found: Counter[str] = Counter()
    cursor = ""
    while True:
        page, cursor = await pair.frontier.backlog_domains("link", cursor=cursor, limit=1)
        found.update(dict(page))
        if not cursor:
            break
    assert found == {"a.test": 5, "b.test": 4}
    (backlog,) = await pair.frontier.backlog()
    assert (backlog.spider, backlog.queued, backlog.rendering) == ("link", 9, 7)


async def test_a_failed_request_that_is_kept_is_retried_in_its_lane(stage: Stage) -> None:
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    run = await frontier.open_crawl(a_crawl(keep_failed=True))
    await frontier.add(run, TERMS, [a_batch("a.test", ["page"], render=True)])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"], plain=False, browser=True)
    (lease,) = await seat.lease(limit=1)
    await seat.settle([Settlement(lease, Outcome.FAILED, "dns", unanswered=True)])
    run = await frontier.open_crawl(a_crawl(keep_failed=True))
    run, count = await frontier.retry_failed(run, TERMS)
    assert count == 1
    clock.now += 5
    (again,) = await seat.lease(limit=1)
    assert (again.url, again.render) == (lease.url, True)
    await seat.close()
    await stage.leave()


async def test_a_worker_with_a_browser_is_known_until_its_announcement_ends(stage: Stage) -> None:
    clock = Clock()
    frontier = await stage.frontier(clock=clock, dead_after_seconds=1000)
    seats = [
        await frontier.open_leaseholder(pool=pool, spiders=["link"], browser=browser)
        for pool, browser in [("shared", True), ("shared", False), ("own", True)]
    ]
    one, plain, own = (seat.worker for seat in seats)
    for seat in seats:
        await seat.lease(limit=1)
    assert await frontier.browser_workers() == {}
    await frontier.announce_browser(pool="shared", worker=one, seconds=10)
    await frontier.announce_browser(pool="own", worker=own, seconds=30)
    assert await frontier.browser_workers() == {"shared": {one}, "own": {own}}
    assert {worker.name: worker.browser for worker in await frontier.workers()} == {one: True, plain: False, own: True}
    clock.now += 9
    await frontier.announce_browser(pool="shared", worker=one, seconds=10)
    clock.now += 9
    assert await frontier.browser_workers() == {"shared": {one}, "own": {own}}
    clock.now += 2
    assert await frontier.browser_workers() == {"own": {own}}
    await frontier.announce_browser(pool="own", worker=own, seconds=0)
    assert await frontier.browser_workers() == {}
    assert not any(key.endswith("browsers") for key in await stage.keys())
    await frontier.announce_browser(pool="own", worker=own, seconds=30)
    (life,) = [life for key, life in (await stage.keys()).items() if key.endswith("browsers")]
    assert 0 < life <= 30_000
    for seat in seats:
        await seat.close()
    await stage.leave()
