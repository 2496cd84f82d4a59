"""A run that has nothing to do for a moment is not finished: it ends when it was idle for as long as its crawl says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gossamer.frontier.base import Submission, SubmissionResult
from gossamer.model.crawl import CrawlId, CrawlState, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Pair
from .test_cases_crashes import DOMAINS, Scene, Scenes, every_death
from .test_cases_crashes import scenes as scenes

ONE = CrawlId("app", "one")
IDLE = 5.0


async def feed(pair: Pair, *paths: object, domain: str = "a.test", expires: float = 0.0) -> SubmissionResult:
    crawl = a_crawl(idle_seconds=IDLE)
    terms = Terms(expires=expires)
    [answer] = await pair.frontier.submit([Submission(crawl, terms, [a_batch(domain, paths)], expires)])
    assert isinstance(answer, SubmissionResult)
    return answer


async def work(pair: Pair, *, looks: int = 1) -> int:
    """Fetch what there is, until so many looks in a row find nothing; how many pages."""
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    fetched = empty = 0
    while empty < looks:
        leases = await seat.lease(limit=10)
        empty = 0 if leases else empty + 1
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        fetched += len(leases)
    await seat.close()
    return fetched


async def told(pair: Pair) -> list[tuple[int, str]]:
    return [(event.run, event.kind.value) for event in await pair.frontier.pending_events()]


async def state(pair: Pair) -> CrawlState:
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    return info.state


async def test_seeds_that_are_fed_one_by_one_are_one_run(pair: Pair) -> None:
    for number in range(6):
        answer = await feed(pair, number, domain=f"d{number}.test")
        assert (answer.run.number, answer.added.added) == (1, 1)
        assert await work(pair) == 1
        pair.clock.now += IDLE - 0.1
        await pair.frontier.finish_idle()
        await pair.frontier.maintain()
        assert await state(pair) is CrawlState.RUNNING
    pair.clock.now += 0.1
    await pair.frontier.finish_idle()
    assert await state(pair) is CrawlState.FINISHED
    assert await told(pair) == [(1, "finished")]
    await pair.frontier.finish_idle()
    assert await told(pair) == [(1, "finished")]


async def test_what_every_shard_did_last_counts(pair: Pair) -> None:
    await feed(pair, 1, domain="a.test")
    await work(pair)
    pair.clock.now += IDLE - 1
    await feed(pair, 1, domain="b.test")
    await work(pair)
    pair.clock.now += 2
    await pair.frontier.finish_idle()
    assert await state(pair) is CrawlState.RUNNING
    pair.clock.now += IDLE - 2
    await pair.frontier.finish_idle()
    assert await state(pair) is CrawlState.FINISHED


async def test_requests_that_add_nothing_do_not_keep_a_run_alive(pair: Pair) -> None:
    await feed(pair, 1)
    await work(pair)
    for _ in range(5):
        pair.clock.now += 1
        assert (await feed(pair, 1)).added.duplicates == 1
    await pair.frontier.finish_idle()
    assert await told(pair) == [(1, "finished")]


async def test_housekeeping_ends_an_idle_run_where_nobody_else_does(pair: Pair) -> None:
    await feed(pair, 1)
    await work(pair)
    pair.clock.now += IDLE
    await pair.frontier.maintain()
    assert await told(pair) == [(1, "finished")]


async def test_several_who_look_at_once_end_a_run_once(pair: Pair) -> None:
    for domain in DOMAINS:
        await feed(pair, 1, domain=domain)
    await work(pair)
    pair.clock.now += IDLE
    await asyncio.gather(*(pair.frontier.finish_idle() for _ in range(8)))
    assert await told(pair) == [(1, "finished")]


@pytest.mark.parametrize("spider", [None, "link"])
async def test_a_stop_ends_a_run_at_once(pair: Pair, spider: str | None) -> None:
    await feed(pair, 1, 2, 3)
    await feed(pair, 1, domain="b.test")
    await pair.frontier.stop_crawl(ONE, spider=spider)
    assert await told(pair) == [(1, "stopped")]
    assert await state(pair) is CrawlState.STOPPED


async def test_an_expiry_ends_a_run_at_once(pair: Pair) -> None:
    await feed(pair, 1, 2, 3, expires=pair.clock.now + 10)
    pair.clock.now += 10
    await pair.frontier.expire_due()
    assert await told(pair) == [(1, "expired")]
    assert await state(pair) is CrawlState.EXPIRED


async def test_a_spent_budget_ends_a_run_at_once(pair: Pair) -> None:
    crawl = a_crawl(idle_seconds=IDLE, max_pages=1)
    await pair.frontier.submit([Submission(crawl, Terms(), [a_batch("a.test", range(3))])])
    assert await work(pair, looks=5) == 1  # on several shards the first looks bring the budget there
    await pair.frontier.maintain()
    assert await told(pair) == [(1, "finished")]


async def test_an_idle_run_ends_whoever_dies(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(*[a_batch(d, ["x"]) for d in DOMAINS], idle_seconds=IDLE)
        seat = await scene.living.open_leaseholder(pool="shared", spiders=["link"])
        while leases := await seat.lease(limit=50):
            await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        await seat.close()
        assert (await scene.info()).state is CrawlState.RUNNING
        scene.clock.now += IDLE
        return scene.mortal.finish_idle

    async for scene in every_death(scenes, prepare):
        await scene.living.maintain()
        events = await scene.living.pending_events()
        assert [(event.run, event.kind.value) for event in events] == [(1, "finished")]
        await scene.nothing_stays()
