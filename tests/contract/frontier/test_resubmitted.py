"""A finished crawl is asked for again: duplicates begin no run, wider terms and `fresh` one that has seen nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.errors import CrawlRefused, FrontierUnavailable
from gossamer.frontier.base import Submission, SubmissionResult
from gossamer.model.crawl import CrawlId, CrawlState, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Batch, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Pair
from .stage import Stage

ONE = CrawlId("app", "one")
SHALLOW = Terms(maxdepth=1)
DEEP = Terms(maxdepth=2)
LINKS = {"seed": ["a", "b"], "a": ["seed", "c"], "b": ["a", "d"], "c": ["e"], "d": [], "e": []}
"""A site: the pages that each page links to. Each page is on a domain of its own."""


def at(path: str, *, depth: int = 0) -> Batch:
    return a_batch(f"{path}.test", [path], depth=depth)


async def submit(pair: Pair, *paths: str, terms: Terms = SHALLOW, **options: Any) -> SubmissionResult:
    [answer] = await pair.frontier.submit([Submission(a_crawl(), terms, [at(path) for path in paths], **options)])
    assert isinstance(answer, SubmissionResult), answer
    return answer


async def work(pair: Pair) -> list[str]:
    """Crawl the site as far as the terms want; the pages in order."""
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    fetched: list[str] = []
    while True:
        pair.clock.now += 2
        if not (leases := await seat.lease(limit=10)):
            break
        for lease in leases:
            page = lease.url.rpartition("/")[2]
            fetched.append(page)
            if lease.terms.maxdepth is None or lease.depth < lease.terms.maxdepth:
                batches = [at(path, depth=lease.depth + 1) for path in LINKS[page]]
                await pair.frontier.add(lease.run, lease.terms, batches)
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await seat.close()
    await pair.frontier.maintain()
    return fetched


async def info_of(pair: Pair) -> CrawlInfo:
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    return info


async def runs_told(pair: Pair) -> list[int]:
    return [event.run for event in await pair.frontier.pending_events()]


async def test_what_was_seen_begins_no_run_and_leaves_no_event(pair: Pair) -> None:
    await submit(pair, "seed")
    assert sorted(await work(pair)) == ["a", "b", "seed"]
    before = await info_of(pair)
    for terms in (SHALLOW, Terms(maxdepth=0), Terms(maxdepth=1, attrs={"ticket": 7})):
        answer = await submit(pair, "seed", "a", terms=terms)
        assert (answer.run.number, answer.added.duplicates, answer.exceeds_earlier_terms) == (1, 2, False)
        assert sorted(answer.added.duplicate_positions) == [(0, 0), (1, 0)]
    await pair.frontier.maintain()
    assert await info_of(pair) == before
    assert await runs_told(pair) == [1]


async def test_what_is_new_begins_the_next_run_and_what_was_seen_stays_seen(pair: Pair) -> None:
    await submit(pair, "seed")
    await work(pair)
    answer = await submit(pair, "seed", "c", terms=SHALLOW)
    assert (answer.run.number, answer.added.added, answer.added.duplicates) == (2, 1, 1)
    assert sorted(await work(pair)) == ["c", "e"]
    assert await runs_told(pair) == [1, 2]


async def test_a_larger_maxdepth_fetches_everything_on_the_way_again_each_page_once(pair: Pair) -> None:
    await submit(pair, "seed")
    await work(pair)
    answer = await submit(pair, "seed", terms=DEEP)
    assert (answer.run.number, answer.added.added) == (2, 1)
    assert sorted(await work(pair)) == ["a", "b", "c", "d", "seed"]
    answer = await submit(pair, "seed", terms=DEEP)
    assert (answer.run.number, answer.added.duplicates) == (2, 1)
    assert await runs_told(pair) == [1, 2]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (Terms(maxdepth=1, allowed_domains=("a.test",)), Terms(maxdepth=1, allowed_domains=("a.test", "b.test"))),
        (Terms(maxdepth=1, allowed_domains=("a.test",)), SHALLOW),
        (Terms(maxdepth=1, deny_regex=("x", "y")), Terms(maxdepth=1, deny_regex=("x",))),
    ],
)
async def test_a_wider_scope_begins_anew_and_a_narrower_one_does_not(pair: Pair, narrow: Terms, wide: Terms) -> None:
    await submit(pair, "seed", terms=narrow)
    await work(pair)
    assert (await submit(pair, "seed", terms=wide)).run.number == 2
    await work(pair)
    assert (await submit(pair, "seed", terms=narrow)).added.duplicates == 1
    assert (await info_of(pair)).run == 2


async def test_the_terms_of_a_fresh_run_are_those_that_count(pair: Pair) -> None:
    await submit(pair, "seed", terms=DEEP)
    await work(pair)
    answer = await submit(pair, "seed", terms=Terms(maxdepth=0), fresh=True)
    assert (answer.run.number, answer.added.added, answer.joined_running) == (2, 1, False)
    assert await work(pair) == ["seed"]
    assert (await submit(pair, "seed", terms=SHALLOW)).run.number == 3
    assert sorted(await work(pair)) == ["a", "b", "seed"]


async def test_a_fresh_request_begins_a_run_that_has_seen_nothing(pair: Pair) -> None:
    assert (await submit(pair, "seed", fresh=True)).run.number == 1
    await work(pair)
    answer = await submit(pair, "seed", fresh=True)
    assert (answer.run.number, answer.added.added, answer.joined_running) == (2, 1, False)
    assert sorted(await work(pair)) == ["a", "b", "seed"]


async def test_a_fresh_request_joins_a_run_that_is_running(pair: Pair) -> None:
    await submit(pair, "seed")
    answer = await submit(pair, "c", fresh=True)
    assert (answer.run.number, answer.added.added, answer.joined_running) == (1, 1, True)
    answer = await submit(pair, "seed", fresh=True)
    assert (answer.run.number, answer.added.duplicates, answer.joined_running) == (1, 1, True)


async def test_a_fresh_request_that_is_repeated_after_its_run_begins_no_other(pair: Pair) -> None:
    await submit(pair, "seed")
    await work(pair)
    assert (await submit(pair, "seed", fresh=True, idempotency_key="first")).run.number == 2
    assert (await submit(pair, "c", fresh=True, idempotency_key="second", terms=DEEP)).joined_running
    assert (await submit(pair, "a", fresh=True, idempotency_key="third", terms=DEEP)).joined_running
    await work(pair)
    for path, name in (("seed", "first"), ("c", "second"), ("a", "third")):
        answer = await submit(pair, path, fresh=True, idempotency_key=name, terms=DEEP)
        assert (answer.run.number, answer.added.duplicates) == (2, 1)
    await pair.frontier.maintain()
    assert await runs_told(pair) == [1, 2]
    answer = await submit(pair, "seed", fresh=True, idempotency_key="another")
    assert (answer.run.number, answer.added.added) == (3, 1)


async def test_a_fresh_request_that_came_to_nothing_is_taken_when_it_is_repeated(pair: Pair) -> None:
    """Its sender died when the run had begun and nothing was added."""
    await submit(pair, "seed")
    await work(pair)
    await pair.frontier.open_crawl(a_crawl(), fresh=True, idempotency_key="first")
    await pair.frontier.stop_crawl(ONE, state=CrawlState.FINISHED)
    answer = await submit(pair, "seed", fresh=True, idempotency_key="first")
    assert answer.added.added == 1
    assert sorted(await work(pair)) == ["a", "b", "seed"]


async def test_seeds_that_are_fresh_together_are_one_run(pair: Pair) -> None:
    await submit(pair, "seed")
    await work(pair)
    asked = [Submission(a_crawl(), Terms(maxdepth=0), [at(path)], fresh=True) for path in LINKS]
    answers = await pair.frontier.submit(asked)
    assert [isinstance(answer, SubmissionResult) and answer.run.number for answer in answers] == [2] * len(LINKS)
    assert sorted(await work(pair)) == sorted(LINKS)


async def test_a_stopped_crawl_is_not_taken_up_again(pair: Pair) -> None:
    await submit(pair, "seed", expires=0.0)
    await pair.frontier.stop_crawl(ONE, spider="link")
    await pair.frontier.maintain()
    for fresh, terms in ((True, SHALLOW), (False, DEEP)):
        [answer] = await pair.frontier.submit([Submission(a_crawl(), terms, [at("seed")], 0.0, fresh)])
        assert isinstance(answer, CrawlRefused)
    info = await info_of(pair)
    assert (info.state, info.run) == (CrawlState.STOPPED, 1)


async def test_a_running_run_says_that_a_seen_url_is_asked_for_with_wider_terms(pair: Pair) -> None:
    await submit(pair, "seed", "a", terms=SHALLOW)
    for wider, terms in ((True, DEEP), (True, Terms()), (False, SHALLOW), (False, Terms(maxdepth=0, links=True))):
        answer = await submit(pair, "seed", terms=terms)
        assert (answer.added.duplicates, answer.exceeds_earlier_terms) == (1, wider)
    await work(pair)  # none of these terms was crawled
    assert (await submit(pair, "seed", terms=DEEP)).run.number == 2


async def test_a_wider_request_whose_reply_was_lost_is_repeated_once(pair: Pair) -> None:
    for step in range(12):
        crawl = a_crawl(str(step))
        first = Submission(crawl, SHALLOW, [at("seed"), at("c")])
        await pair.frontier.submit([first])
        await work(pair)
        pair.lose_reply(step)
        wide = [Submission(crawl, DEEP, [at("seed"), at("c")])]
        [answer] = await pair.frontier_again(lambda wide=wide: pair.frontier.submit(wide))  # type: ignore[misc]
        pair.lose_reply(None)
        assert isinstance(answer, SubmissionResult)
        assert answer.run.number == 2
        assert sorted(await work(pair)) == sorted(LINKS)


async def test_a_repeated_lease_shows_nothing_of_a_run_that_was_given_up(stage_of: Callable[[int], Stage]) -> None:
    stage = stage_of(1)
    pair = await stage.pair()
    await submit(pair, "seed")
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    pair.lose_reply(0)
    with pytest.raises(FrontierUnavailable):
        await seat.lease(limit=5)
    await pair.frontier.stop_crawl(ONE, state=CrawlState.FINISHED)
    await submit(pair, "c", terms=DEEP, fresh=True)
    leases = [*await seat.lease(limit=5), *await seat.lease(limit=5)]
    assert [(lease.run.number, lease.url, lease.terms) for lease in leases] == [(2, "https://c.test/c", DEEP)]
    await seat.close()
    await stage.leave()
