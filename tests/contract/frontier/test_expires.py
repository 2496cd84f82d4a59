"""When a spider's part of a crawl expires: at the latest time that was asked for, if all that was asked expires. It is
told as expired, whoever notices first."""

import random
from collections.abc import Sequence

import pytest

from gossamer.errors import CrawlRefused
from gossamer.frontier.base import Submission, SubmissionResult
from gossamer.model.crawl import CrawlEvent, CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Pair

CRAWLS = 60
LIFE = 4.0
"""Seconds until a crawl expires."""


@pytest.mark.parametrize(
    ("asked", "ends"),
    [((100.0,), 100.0), ((100.0, 200.0), 200.0), ((200.0, 100.0), 200.0), ((100.0, 0.0), None), ((0.0, 100.0), None)],
)
async def test_a_part_expires_with_the_last_of_its_submissions(
    pair: Pair, asked: tuple[float, ...], ends: float | None
) -> None:
    crawl = a_crawl("other")
    for seconds in asked:
        await pair.frontier.open_crawl(crawl, expires={"link": pair.clock.now + seconds if seconds else 0.0})
    pair.clock.now += 99
    assert await pair.frontier.expire_due() == 0
    pair.clock.now += 102
    assert await pair.frontier.expire_due() == (0 if ends is None else 1)


async def submit(pair: Pair, name: str, domains: Sequence[str], pages: int, *, seconds: float = LIFE) -> Run:
    """A crawl of so many pages of each domain that expires in so many seconds."""
    expires = pair.clock.now + seconds
    batches = [a_batch(domain, range(pages)) for domain in domains]
    [answer] = await pair.frontier.submit([Submission(a_crawl(name), Terms(expires=expires), batches, expires)])
    assert isinstance(answer, SubmissionResult)
    assert answer.added.added == pages * len(domains)
    return answer.run


def told(events: Sequence[CrawlEvent]) -> list[tuple[str, str, str, int]]:
    return [(e.crawl.crawlid, e.kind.value, e.spider, e.purged) for e in events]


@pytest.mark.parametrize("first", ["lease", "expirer", "housekeeping"])
async def test_a_crawl_that_runs_out_of_time_has_expired_whoever_notices_first(pair: Pair, first: str) -> None:
    await submit(pair, "one", ["a.test", "b.test", "c.test"], 5)
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=20)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    pair.clock.now += LIFE
    if first == "expirer":
        assert await pair.frontier.expire_due() == 1
    elif first == "housekeeping":
        await pair.frontier.maintain()
    for _ in range(3):
        assert await seat.lease(limit=20) == []
    await pair.frontier.maintain()
    await pair.frontier.expire_due()
    assert told(await pair.frontier.pending_events()) == [("one", "expired", "link", 15 - len(leases))]
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    assert (info.state, info.total().dropped) == (CrawlState.EXPIRED, {"expired": 15 - len(leases)})
    await seat.close()


@pytest.mark.parametrize("expirer", ["before", "after", "away"])
async def test_a_domain_is_leased_at_the_moment_its_crawl_expires(pair: Pair, expirer: str) -> None:
    run = await submit(pair, "one", ["a.test"], 1)
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await seat.lease(limit=20)
    pair.clock.now += LIFE
    if expirer == "before":
        await pair.frontier.expire_due()
    added = await pair.frontier.add(run, lease.terms, [a_batch("a.test", ["late"])])
    assert added.rejected_by_reason == {"expired": 1}
    await seat.settle([Settlement(lease, Outcome.FETCHED)])
    if expirer == "after":
        await pair.frontier.expire_due()
    await pair.frontier.maintain()
    assert told(await pair.frontier.pending_events()) == [("one", "expired", "link", 0)]
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    assert (info.state, info.total().fetched) == (CrawlState.EXPIRED, 1)
    await seat.close()


async def test_what_leases_dropped_before_the_expirer_came_is_counted(pair: Pair) -> None:
    await submit(pair, "one", ["a.test"], 9)
    await submit(pair, "one", ["b.test"], 3, seconds=LIFE + 1)
    pair.clock.now += LIFE
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=20)
    assert [lease.domain for lease in leases] == ["b.test"]
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    pair.clock.now += 1
    assert await pair.frontier.expire_due() == 1
    assert told(await pair.frontier.pending_events()) == [("one", "expired", "link", 11)]
    await seat.close()


async def test_a_crawl_that_ends_before_its_time_is_finished(pair: Pair) -> None:
    await submit(pair, "one", ["a.test"], 9)
    await submit(pair, "one", ["b.test"], 1, seconds=LIFE + 100)
    pair.clock.now += LIFE + 1
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=20)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await pair.frontier.maintain()
    assert told(await pair.frontier.pending_events()) == [("one", "finished", "", 0)]
    await seat.close()


async def test_an_expired_part_takes_nothing_and_begins_no_run(pair: Pair) -> None:
    await submit(pair, "one", ["a.test"], 1)
    pair.clock.now += LIFE
    await pair.frontier.expire_due()
    await pair.frontier.maintain()
    events = await pair.frontier.pending_events()
    [answer] = await pair.frontier.submit([Submission(a_crawl("one"), Terms(), [a_batch("a.test", ["new"])], 0.0)])
    assert isinstance(answer, CrawlRefused)
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    assert (info.run, info.state) == (1, CrawlState.EXPIRED)
    assert await pair.frontier.pending_events() == events
    other = Submission(a_crawl("one"), Terms(), [a_batch("a.test", ["new"], spider="other")], 0.0)
    [answer] = await pair.frontier.submit([other])
    assert isinstance(answer, SubmissionResult)
    assert answer.run.number == 2


async def test_a_fresh_run_begins_what_has_expired_anew_but_not_what_was_stopped(pair: Pair) -> None:
    await submit(pair, "one", ["a.test"], 1)
    await submit(pair, "two", ["a.test"], 1)
    pair.clock.now += LIFE
    await pair.frontier.stop_crawl(CrawlId("app", "two"), spider="link")
    await pair.frontier.expire_due()
    await pair.frontier.maintain()
    run = await pair.frontier.open_crawl(a_crawl("one"), fresh=True, expires={"link": 0.0})
    added = await pair.frontier.add(run, Terms(), [a_batch("a.test", range(1))], seeds=True)
    assert (run.number, added.added) == (2, 1)
    with pytest.raises(CrawlRefused):
        await pair.frontier.open_crawl(a_crawl("two"), fresh=True, expires={"link": 0.0})


@pytest.mark.parametrize("hits", [1, 5, 100])
async def test_every_crawl_that_expires_while_it_is_worked_on_is_told_as_expired(pair: Pair, hits: int) -> None:
    chance = random.Random(hits)
    frontier, clock = pair.frontier, pair.clock
    await frontier.set_domain_policy(None, DomainPolicy(hits=hits, window_seconds=1.0, concurrency=4))
    pages = min(hits, 20) * int(LIFE) + 5  # more than can be fetched: 4 at once, each of which takes 0.2 s
    for number in range(CRAWLS):
        await submit(pair, str(number), [f"d{number}.test"], pages, seconds=LIFE * chance.random())
    seats = [await frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    held: list[list[Settlement]] = [[], []]
    ends = clock.now + LIFE + 1
    while clock.now < ends:
        for number, seat in enumerate(seats):
            await seat.settle(held[number])
            held[number] = [Settlement(lease, Outcome.FETCHED) for lease in await seat.lease(limit=100)]
        if chance.random() < 0.1:
            await frontier.expire_due(limit=20)
        clock.now += 0.2
    for number, seat in enumerate(seats):
        await seat.settle(held[number])
        await seat.close()
    await frontier.maintain()
    while await frontier.expire_due():
        pass
    events = await frontier.pending_events(limit=2 * CRAWLS)
    assert len({event.crawl for event in events}) == len(events) == CRAWLS
    assert {event.kind for event in events} == {CrawlState.EXPIRED}
    for event in events:
        info = await frontier.crawl_info(event.crawl)
        assert info is not None
        assert info.total().dropped == {"expired": event.purged}
