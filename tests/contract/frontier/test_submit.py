"""Many submissions at once come to what each would come to by itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gossamer.errors import BadInput, CrawlRefused, FrontierUnavailable
from gossamer.frontier.base import AddResult, Submission, SubmissionResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import shard_of
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Rate, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage
from .test_cases_crashes import DOMAINS, ONE, Scene, Scenes, every_death
from .test_cases_crashes import scenes as scenes

PLAIN = Terms()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def frontier(stage: Stage, clock: Clock) -> AsyncIterator[ValkeyFrontier]:
    yield await stage.frontier(clock=clock)
    await stage.leave()


def asked(name: str, *batches: Batch, terms: Terms = PLAIN, expires: float | None = None, **options: Any) -> Submission:
    return Submission(a_crawl(name, **options), terms, batches, expires)


async def all_there_is(frontier: ValkeyFrontier, clock: Clock, *spiders: str) -> list[Lease]:
    """Fetched."""
    seat = await frontier.open_leaseholder(pool="shared", spiders=list(spiders or ("link",)))
    found: list[Lease] = []
    idle = 0
    while idle < 3:
        clock.now += 2
        leases = await seat.lease(limit=500)
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        found += leases
        idle = 0 if leases else idle + 1
    await seat.close()
    await frontier.maintain()
    return found


def added(answers: list[Any]) -> list[AddResult]:
    assert all(isinstance(answer, SubmissionResult) for answer in answers), answers
    return [answer.added for answer in answers]


async def test_each_submission_is_a_crawl_of_its_own(frontier: ValkeyFrontier, clock: Clock) -> None:
    assert await frontier.submit([]) == []
    submissions = [
        asked(
            str(number),
            a_batch(f"d{number % 70}.test", [number], payloads=[f"payload {number}".encode()]),
            terms=Terms(attrs={"n": number}, cookie="c" * (number % 90)),
        )
        for number in range(450)
    ]
    answers = await frontier.submit(submissions)
    assert added(answers) == [AddResult(added=1)] * 450
    for number in (0, 99, 100, 449):
        answer = answers[number]
        assert isinstance(answer, SubmissionResult)
        assert await frontier.latest_run(submissions[number].crawl.id) == answer.run
    assert added(await frontier.submit(submissions)) == [AddResult(duplicates=1, duplicate_positions=[(0, 0)])] * 450
    leases = await all_there_is(frontier, clock)
    told = {int(lease.url.rpartition("/")[2]): lease for lease in leases}
    assert (len(leases), len(told)) == (450, 450)
    for number, lease in told.items():
        assert lease.payload == f"payload {number}".encode()
        assert lease.terms == submissions[number].terms
        assert lease.run.crawl.id.crawlid == str(number)
    events = await frontier.pending_events(limit=1000)
    assert sorted(int(event.crawl.crawlid) for event in events) == list(range(450))


async def test_many_submissions_to_one_crawl(frontier: ValkeyFrontier, clock: Clock) -> None:
    short, long = Terms(maxdepth=1), Terms(cookie="c" * 100)
    submissions = [
        asked("one", a_batch(f"d{number % 7}.test", [number // 2]), terms=long if number % 3 else short)
        for number in range(140)
    ]
    answers = added(await frontier.submit(submissions))
    # Of each page of a domain the first submission counts.
    expected = [
        AddResult(added=1)
        if (number % 7, number // 2) not in {(n % 7, n // 2) for n in range(number)}
        else AddResult(duplicates=1, duplicate_positions=[(0, 0)])
        for number in range(140)
    ]
    assert answers == expected
    leases = await all_there_is(frontier, clock)
    assert len(leases) == sum(answer.added for answer in answers)
    assert {lease.terms.maxdepth for lease in leases} == {1, None}
    assert sorted(map(repr, await frontier.crawl_terms(ONE))) == sorted(map(repr, (short, long)))
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert (info.run, info.state) == (1, CrawlState.FINISHED)


async def test_what_is_refused_does_not_hold_up_the_others(frontier: ValkeyFrontier) -> None:
    for name, state in [("stopped", CrawlState.STOPPED), ("expired", CrawlState.EXPIRED)]:
        await frontier.submit([asked(name, a_batch("a.test", ["x"]))])
        await frontier.stop_crawl(CrawlId("app", name), state=state)
    answers = await frontier.submit(
        [
            asked("good", a_batch("a.test", ["1"])),
            asked("stopped", a_batch("a.test", ["2"])),
            asked("bad", a_batch("a|b", ["3"])),
            asked("expired", a_batch("a.test", ["4"])),
            asked("large", a_batch("a.test", ["5"], payloads=[bytes(2 << 20)])),
            asked("pool", a_batch("a.test", ["6"]), pool="a,b"),
            asked("good", a_batch("a.test", ["7"])),
        ]
    )
    assert [type(answer) for answer in answers] == [
        SubmissionResult,
        CrawlRefused,
        BadInput,
        CrawlRefused,
        BadInput,
        BadInput,
        SubmissionResult,
    ]
    assert str(answers[1]).endswith("app/stopped is stopped")
    assert str(answers[3]).endswith("app/expired is expired")
    info = await frontier.crawl_info(CrawlId("app", "good"))
    assert info is not None
    assert info.total().queued == 2


async def test_what_does_not_fit_into_one_call_is_taken_all_the_same(frontier: ValkeyFrontier) -> None:
    wide = [a_batch(domain, range(3)) for domain in DOMAINS]
    twice = a_batch("a.test", ["x"], unfiltered=True)
    answers = await frontier.submit(
        [
            asked("wide", *wide),
            asked("deep", a_batch("a.test", range(3000))),
            asked("again", twice),
            asked("again", a_batch("a.test", ["x"], unfiltered=True)),
            asked("again", a_batch("a.test", ["x"], unfiltered=True)),
            asked("nothing"),
        ]
    )
    assert [answer.added for answer in added(answers)] == [24, 3000, 1, 1, 1, 0]


async def test_a_cap_rejects_by_position(frontier: ValkeyFrontier) -> None:
    submission = asked(
        "one", a_batch("a.test", [1]), a_batch("a.test", [1, 2, 3, 4]), terms=Terms(domain_max_pending=2)
    )
    assert added(await frontier.submit([submission])) == [
        AddResult(added=2, duplicates=1, rejected={(1, 2): "budget", (1, 3): "budget"}, duplicate_positions=[(1, 0)])
    ]


async def test_a_finished_crawl_begins_its_next_run(frontier: ValkeyFrontier, clock: Clock) -> None:
    first = asked("one", a_batch("a.test", ["x"]), rate=Rate(5, 1.0))
    await frontier.submit([first])
    await all_there_is(frontier, clock)
    # The first and the second begin runs that hold nothing new and are over at once.
    answers = await frontier.submit([first, first, asked("one", a_batch("a.test", ["y"]))])
    assert [(a.added, a.duplicates) for a in added(answers)] == [(0, 1), (0, 1), (1, 0)]
    assert [lease.url for lease in await all_there_is(frontier, clock)] == ["https://a.test/y"]
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert info.state is CrawlState.FINISHED
    events = await frontier.pending_events()
    assert [event.run for event in events] == [1, info.run]


async def test_a_running_crawls_own_options_count(frontier: ValkeyFrontier) -> None:
    await frontier.submit([asked("one", a_batch("a.test", ["x"]), max_pages=3)])
    answers = await frontier.submit([asked("one", a_batch("a.test", ["y"]), max_pages=9)])
    assert isinstance(answers[0], SubmissionResult)
    assert answers[0].run.crawl.max_pages == 3


async def test_expiries_come_with_the_submissions(frontier: ValkeyFrontier, clock: Clock) -> None:
    start = clock.now
    ends = {
        "early": (10.0,),
        "late": (10.0, 20.0),
        "never": (10.0, 0.0),
        "silent": (None,),
        "later": (20.0, None, 10.0),
    }
    await frontier.submit(
        [
            asked(name, a_batch("a.test", [number]), expires=None if at is None else at and start + at)
            for name, times in ends.items()
            for number, at in enumerate(times)
        ]
    )
    found: dict[str, float] = {}
    for seconds in (9.9, 10.1, 20.1, 1e9):
        clock.now = start + seconds
        await frontier.expire_due()
        events = await frontier.pending_events()
        found |= {event.crawl.crawlid: seconds for event in events}
        await frontier.acknowledge_events(events)
    assert found == {"early": 10.1, "late": 20.1, "later": 20.1}


async def test_an_expiry_may_be_put_off_later(frontier: ValkeyFrontier, clock: Clock) -> None:
    await frontier.submit([asked("one", a_batch("a.test", ["x"]), expires=clock.now + 10)])
    await frontier.submit([asked("one", a_batch("a.test", ["y"]), expires=clock.now + 20)])
    clock.now += 15
    assert await frontier.expire_due() == 0
    clock.now += 6
    assert await frontier.expire_due() == 1


async def test_several_at_it_at_once(frontier: ValkeyFrontier, stage: Stage, clock: Clock) -> None:
    other = await stage.frontier(clock=clock)
    submissions = [asked(str(number % 50), a_batch(f"d{number}.test", ["x"])) for number in range(200)]
    rounds = await asyncio.gather(*(who.submit(submissions) for who in (frontier, other, frontier, other)))
    assert sum(answer.added for answers in rounds for answer in added(answers)) == 200
    assert len(await all_there_is(frontier, clock)) == 200


@pytest.mark.parametrize("nth", range(8))
async def test_a_lost_reply_is_no_loss(frontier: ValkeyFrontier, stage: Stage, clock: Clock, nth: int) -> None:
    submissions = [asked(str(number), a_batch(f"d{number}.test", ["x"]), expires=0.0) for number in range(120)]
    stage.connections[0].countdown = nth
    try:
        await frontier.submit(submissions)
    except FrontierUnavailable:
        answers = added(await frontier.submit(submissions))
        assert all(answer.added + answer.duplicates == 1 for answer in answers)
    stage.connections[0].countdown = None
    leases = await all_there_is(frontier, clock)
    assert (len(leases), len({lease.url for lease in leases})) == (120, 120)
    events = await frontier.pending_events(limit=1000)
    assert len({event.crawl for event in events}) == len(events) == 120


async def test_whoever_dies_at_it_leaves_nothing_half_done(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        submissions = [Submission(a_crawl(), PLAIN, [a_batch(domain, ["x"])]) for domain in DOMAINS]
        return lambda: scene.mortal.submit(submissions)

    async for scene in every_death(scenes, prepare):
        await scene.living.maintain()
        await scene.living.submit([Submission(a_crawl(), PLAIN, [a_batch(domain, ["x"])]) for domain in DOMAINS])
        leases = await scene.drain()
        assert len({lease.url for lease in leases}) == len(leases) == len(DOMAINS)
        assert (await scene.info()).state is CrawlState.FINISHED
        await scene.nothing_stays()


async def test_an_earlier_run_that_was_given_up_is_no_obstacle(frontier: ValkeyFrontier, clock: Clock) -> None:
    crawls = [Crawl(id=CrawlId("app", str(number))) for number in range(20)]
    await frontier.submit([Submission(c, PLAIN, [a_batch("a.test", range(5))]) for c in crawls])
    await asyncio.gather(*(frontier.stop_crawl(c.id, state=CrawlState.FINISHED) for c in crawls))
    answers = await frontier.submit([Submission(c, PLAIN, [a_batch("a.test", ["new"])]) for c in crawls])
    assert added(answers) == [AddResult(added=1)] * 20
    assert {lease.url for lease in await all_there_is(frontier, clock)} == {"https://a.test/new"}


def test_the_domains_here_are_on_several_shards() -> None:
    assert len({shard_of(domain, 5) for domain in DOMAINS}) > 1
