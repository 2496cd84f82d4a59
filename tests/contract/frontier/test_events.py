"""The end of a run, or of a spider's part of it, is told: once decided, kept until somebody says that it was told."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlEvent, CrawlId, CrawlState, Run, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage
from .test_cases_crashes import DOMAINS, Scene, Scenes, every_death
from .test_cases_crashes import scenes as scenes

PLAIN = Terms()
ONE = CrawlId("app", "one")
BOTH = ("link", "other")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def frontier(stage: Stage, clock: Clock) -> AsyncIterator[ValkeyFrontier]:
    yield await stage.frontier(clock=clock)
    await stage.leave()


async def submit(
    frontier: ValkeyFrontier, *, spiders: Sequence[str] = ("link",), paths: int = 2, **options: Any
) -> Run:
    """So many pages of each domain for each spider."""
    run = await frontier.open_crawl(a_crawl(**options))
    batches = [a_batch(domain, range(paths), spider=spider) for domain in DOMAINS for spider in spiders]
    await frontier.add(run, PLAIN, batches, seeds=True)
    return run


async def drain(frontier: ValkeyFrontier, clock: Clock, *, pool: str = "shared", spiders: Sequence[str] = BOTH) -> int:
    """Fetch all there is."""
    seat = await frontier.open_leaseholder(pool=pool, spiders=list(spiders))
    fetched = 0
    for _ in range(8):
        clock.now += 2
        while leases := await seat.lease(limit=100):
            await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            fetched += len(leases)
    await seat.close()
    await frontier.maintain()
    return fetched


def words(events: Sequence[CrawlEvent]) -> list[tuple[str, int, str, str, int]]:
    return [(str(e.crawl), e.run, e.kind.value, e.spider, e.purged) for e in events]


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_the_end_of_a_run_is_told_until_it_is_confirmed(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    assert await frontier.pending_events() == []
    assert await drain(frontier, clock) == 16
    events = await frontier.pending_events()
    assert words(events) == [("app/one", 1, "finished", "", 0)]
    assert len(events[0].event_id) == 32
    assert int(events[0].event_id, 16)
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert info.ended is not None
    assert abs(events[0].at - info.ended) < 0.01
    await frontier.maintain()
    assert await frontier.pending_events() == events
    await frontier.acknowledge_events(events)
    assert await frontier.pending_events() == []
    await frontier.acknowledge_events(events)
    await frontier.maintain()
    assert await frontier.pending_events() == []


async def test_one_publisher_at_a_time_gets_events(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    assert await frontier.pending_events(publisher="second") == []
    await drain(frontier, clock)
    first = await frontier.pending_events(publisher="first")
    assert words(first) == [("app/one", 1, "finished", "", 0)]
    clock.now += 4.9
    assert await frontier.pending_events(publisher="second") == []
    assert await frontier.pending_events(publisher="first") == first
    clock.now += 4.9
    assert await frontier.pending_events(publisher="second") == []
    clock.now += 0.1  # the first one died
    assert await frontier.pending_events(publisher="second") == first == await frontier.pending_events()
    assert await frontier.pending_events(publisher="first") == []


async def test_each_run_that_had_requests_is_told_of(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    await drain(frontier, clock)
    await submit(frontier)  # nothing in it is new
    await frontier.maintain()
    await submit(frontier, paths=3)
    await drain(frontier, clock)
    events = await frontier.pending_events()
    assert words(events) == [("app/one", number, "finished", "", 0) for number in (1, 3)]
    assert len({event.event_id for event in events}) == 2


@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.EXPIRED, CrawlState.FINISHED])
async def test_a_run_that_ends_early_is_told_of_once(frontier: ValkeyFrontier, clock: Clock, state: CrawlState) -> None:
    await submit(frontier)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=100)
    assert await frontier.stop_crawl(ONE, state=state) == 16 - len(leases)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await seat.close()
    assert await frontier.stop_crawl(ONE, state=state) == 0
    await frontier.maintain()
    assert words(await frontier.pending_events()) == [("app/one", 1, state.value, "", 16 - len(leases))]


async def test_what_is_stopped_after_its_end_has_no_second_one(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    await drain(frontier, clock)
    await frontier.stop_crawl(ONE)
    await frontier.stop_crawl(ONE, spider="link")
    assert words(await frontier.pending_events()) == [("app/one", 1, "finished", "", 0)]


async def test_a_part_and_then_the_rest(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier, spiders=BOTH)
    await frontier.stop_crawl(ONE, spider="other")
    clock.now += 1
    await frontier.stop_crawl(ONE, spider="other", state=CrawlState.EXPIRED)
    await frontier.stop_crawl(ONE, spider="nobody's")
    clock.now += 1
    await frontier.stop_crawl(ONE)
    assert sorted(words(await frontier.pending_events())) == [
        ("app/one", 1, "stopped", "", 16),
        ("app/one", 1, "stopped", "nobody's", 0),
        ("app/one", 1, "stopped", "other", 16),
    ]


async def test_a_run_finishes_without_the_part_that_was_stopped(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier, spiders=BOTH)
    await frontier.stop_crawl(ONE, spider="other")
    assert await drain(frontier, clock) == 16
    assert words(await frontier.pending_events()) == [
        ("app/one", 1, "stopped", "other", 16),
        ("app/one", 1, "finished", "", 0),
    ]


async def test_a_run_of_which_every_part_ended_is_no_further_news(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier, spiders=BOTH)
    for spider in BOTH:
        await frontier.stop_crawl(ONE, spider=spider)
        clock.now += 1
    await frontier.maintain()
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert info.state is CrawlState.STOPPED
    assert words(await frontier.pending_events()) == [("app/one", 1, "stopped", spider, 16) for spider in BOTH]


@pytest.mark.parametrize("pool", ["mine", "login"])  # that of a login has a colon behind this word
async def test_other_pools_are_told_of_to_nobody(frontier: ValkeyFrontier, clock: Clock, pool: str) -> None:
    await submit(frontier, pool=pool)
    assert await drain(frontier, clock, pool=pool) == 16
    await submit(frontier, name="two", pool=pool)
    await frontier.stop_crawl(CrawlId("app", "two"))
    assert await frontier.pending_events() == []


async def test_the_oldest_come_first(frontier: ValkeyFrontier, clock: Clock) -> None:
    for number in range(12):
        await submit(frontier, name=str(number))
        await frontier.stop_crawl(CrawlId("app", str(number)))
        clock.now += 1
    events = await frontier.pending_events()
    assert [event.crawl.crawlid for event in events] == [str(number) for number in range(12)]
    assert await frontier.pending_events(limit=5) == events[:5]
    await frontier.acknowledge_events(events[:5])
    assert await frontier.pending_events(limit=5) == events[5:10]


async def test_what_nobody_hears_is_given_up_with_the_retention_and_logged(
    frontier: ValkeyFrontier, clock: Clock, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(frontier)
    await frontier.stop_crawl(ONE)
    clock.now += 86400 - 1
    await frontier.maintain()
    assert len(await frontier.pending_events()) == 1
    assert "events_lost" not in caplog.text
    clock.now += 2
    await frontier.maintain()
    assert await frontier.pending_events() == []
    assert "events_lost ends of crawls that will not be published: 1." in caplog.text
    clock.now += 31 * 86400
    await frontier.maintain()
    stays = {key.split("}:")[1] for key, ttl in (await stage.keys()).items() if ttl == -1}
    assert stays <= {"meta", "n"}


# --- expiry -----------------------------------------------------------------------------------------------------------


async def test_a_part_expires_when_its_time_has_come(frontier: ValkeyFrontier, clock: Clock) -> None:
    run = await submit(frontier, spiders=BOTH)
    await frontier.open_crawl(a_crawl(), expires={"other": clock.now + 10})
    clock.now += 9.9
    assert await frontier.expire_due() == 0
    clock.now += 0.2
    assert await frontier.expire_due() == 1
    assert await frontier.expire_due() == 0
    assert words(await frontier.pending_events()) == [("app/one", 1, "expired", "other", 16)]
    added = await frontier.add(run, PLAIN, [a_batch("d0.test", ["new"], spider=s) for s in BOTH], seeds=True)
    assert (added.added, added.rejected_by_reason) == (1, {"expired": 1})
    assert await drain(frontier, clock) == 17
    assert words(await frontier.pending_events())[1:] == [("app/one", 1, "finished", "", 0)]


async def test_the_only_part_expires(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    await frontier.open_crawl(a_crawl(), expires={"link": clock.now + 10})
    clock.now += 11
    assert await frontier.expire_due() == 1
    await frontier.maintain()
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert info.state is CrawlState.EXPIRED
    assert info.total().dropped == {"expired": 16}
    assert words(await frontier.pending_events()) == [("app/one", 1, "expired", "link", 16)]


@pytest.mark.parametrize(
    ("asked", "expected"), [((10, 20), 20), ((20, 10), 20), ((10, 0), None), ((0, 10), None), ((5, 5), 5)]
)
async def test_the_latest_time_counts(
    frontier: ValkeyFrontier, clock: Clock, asked: tuple[int, int], expected: int | None
) -> None:
    await submit(frontier)
    start = clock.now
    for seconds in asked:
        await frontier.open_crawl(a_crawl(), expires={"link": start + seconds if seconds else 0})
    passed = []
    for seconds in (5, 10, 20, 1_000):
        clock.now = start + seconds + 0.1
        if await frontier.expire_due():
            passed.append(seconds)
    assert passed == ([] if expected is None else [expected])


async def test_of_a_run_that_is_over_nothing_expires(frontier: ValkeyFrontier, clock: Clock) -> None:
    await submit(frontier)
    await frontier.open_crawl(a_crawl(), expires={"link": clock.now + 100})
    await drain(frontier, clock)
    await submit(frontier, paths=3)  # the next run, whose submission asks for no time
    clock.now += 300
    assert await frontier.expire_due() == 0
    assert await drain(frontier, clock) == 8


async def test_many_expire_together(frontier: ValkeyFrontier, clock: Clock) -> None:
    for number in range(30):
        run = await frontier.open_crawl(a_crawl(str(number)), expires={"link": clock.now + 10})
        await frontier.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
    clock.now += 11
    counts = [await frontier.expire_due(limit=7) for _ in range(6)]
    assert max(counts) <= 7
    assert sum(counts) == 30
    assert await frontier.expire_due() == 0
    events = await frontier.pending_events()
    assert sorted(words(events)) == sorted((f"app/{n}", 1, "expired", "link", 1) for n in range(30))


async def test_far_expiries_end_with_their_crawl(frontier: ValkeyFrontier, clock: Clock, stage: Stage) -> None:
    await submit(frontier)
    await frontier.open_crawl(a_crawl(), expires={"link": clock.now + 1e10})
    await drain(frontier, clock)
    clock.now += 86401
    await frontier.maintain()
    assert {key.split("}:")[1] for key, ttl in (await stage.keys()).items() if ttl == -1} <= {
        "meta",
        "n",
        "groups",
        "egresses",
    }


# --- whoever dies -----------------------------------------------------------------------------------------------------


async def told(scene: Scene) -> list[tuple[str, int, str, str, int]]:
    """After housekeeping, twice: an event does not come again."""
    await scene.living.maintain()
    events = await scene.living.pending_events()
    await scene.living.acknowledge_events(events)
    await scene.living.maintain()
    assert await scene.living.pending_events() == []
    return sorted(words(events))


async def test_a_stop_is_told_of_whoever_dies(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(*[a_batch(d, range(2), spider=s) for d in DOMAINS for s in BOTH])

        async def stop() -> None:
            await scene.mortal.stop_crawl(ONE, spider="other")
            await scene.mortal.stop_crawl(ONE)

        return stop

    async for scene in every_death(scenes, prepare):
        await scene.living.stop_crawl(ONE, spider="other")
        await scene.living.stop_crawl(ONE)
        assert await told(scene) == [("app/one", 1, "stopped", spider, 16) for spider in ("", "other")]
        await scene.nothing_stays()


async def test_an_expiry_is_told_of_whoever_dies(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit()
        await scene.living.open_crawl(a_crawl(), expires={"link": scene.clock.now + 1})
        scene.clock.now += 2
        return scene.mortal.expire_due

    async for scene in every_death(scenes, prepare):
        await scene.living.expire_due()
        assert await told(scene) == [("app/one", 1, "expired", "link", 16)]
        await scene.nothing_stays()


async def test_a_finish_is_told_of_whoever_dies(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(*[a_batch(d, ["x"]) for d in DOMAINS])
        seat = await scene.mortal.open_leaseholder(pool="shared", spiders=["link"])
        leases = await seat.lease(limit=50)

        async def settle() -> None:
            try:
                await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            finally:
                seat._joined = list  # type: ignore[method-assign]  # the dead do not say good-bye
                await seat.close()

        return settle

    async for scene in every_death(scenes, prepare):
        await scene.drain()
        assert await told(scene) == [("app/one", 1, "finished", "", 0)]
        await scene.living.stop_crawl(ONE)  # nothing is left to stop, and nothing is told twice
        assert await told(scene) == []
        await scene.nothing_stays()
