"""What one process does once in a crawl."""

from collections.abc import AsyncIterator

import pytest

from gossamer.frontier.base import MOST_COOKIES, ClaimResult
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from tests.servers.valkey import Server

from .asking import a_crawl
from .pair import Clock


@pytest.fixture
def clock(one_server: Server) -> Clock:
    one_server.command("FLUSHALL")
    return Clock()


@pytest.fixture(params=[1, 3])
async def frontier(one_server: Server, clock: Clock, request: pytest.FixtureRequest) -> AsyncIterator[ValkeyFrontier]:
    frontier = await ValkeyFrontier.connect(one_server.address, shards=request.param, clock=clock)
    yield frontier
    await frontier.close()


async def test_one_process_gets_it_and_the_others_wait_until_it_is_done(frontier: ValkeyFrontier) -> None:
    run = await frontier.open_crawl(a_crawl())
    assert await frontier.claim(run, ["x", "y"], owner="one") == [ClaimResult.GRANTED, ClaimResult.GRANTED]
    assert await frontier.claim(run, ["x", "z"], owner="two") == [ClaimResult.HELD_BY_OTHER, ClaimResult.GRANTED]
    assert await frontier.claim(run, ["x"], owner="one") == [ClaimResult.GRANTED], "a lost answer is asked for again"
    await frontier.claim(run, ["x"], owner="")
    assert await frontier.claim(run, ["x", "y"], owner="two") == [ClaimResult.DONE, ClaimResult.HELD_BY_OTHER]
    assert await frontier.claim(run, ["x"], owner="one") == [ClaimResult.DONE]


async def test_what_a_dead_process_claimed_is_free_again(frontier: ValkeyFrontier, clock: Clock) -> None:
    run = await frontier.open_crawl(a_crawl())
    await frontier.claim(run, ["x", "y"], owner="one")
    clock.now += 15
    await frontier.claim(run, ["y"], owner="one")
    clock.now += 15
    assert await frontier.claim(run, ["x", "y"], owner="two") == [ClaimResult.GRANTED, ClaimResult.HELD_BY_OTHER]


async def test_a_crawl_that_begins_with_nothing_seen_does_all_of_it_again(frontier: ValkeyFrontier) -> None:
    run = await frontier.open_crawl(a_crawl())
    await frontier.claim(run, ["x"], owner="")
    following = Run(run.crawl, run.number + 1, run.generation + 1)
    assert await frontier.claim(following, ["x"], owner="one") == [ClaimResult.GRANTED]
    assert await frontier.claim(Run(run.crawl, run.number + 1, run.generation), ["x"], owner="one") == [
        ClaimResult.DONE
    ]


async def test_a_key_of_an_item_belongs_to_the_first_request_that_has_it(
    frontier: ValkeyFrontier, clock: Clock
) -> None:
    """However long ago that was, for as long as it may be repeated; a fresh run begins with no keys."""
    run = await frontier.open_crawl(a_crawl())
    assert await frontier.claim_keys(run, ["x", "y"], owner="one") == [True, True]
    clock.now += 24 * 3600
    assert await frontier.claim_keys(run, ["y", "z"], owner="two") == [False, True]
    assert await frontier.claim_keys(run, ["x", "y", "z"], owner="one") == [True, True, False]
    assert await frontier.claim(run, ["x"], owner="process") == [ClaimResult.GRANTED], "tasks have names of their own"
    following = Run(run.crawl, run.number + 1, run.generation + 1)
    assert await frontier.claim_keys(following, ["x"], owner="two") == [True]
    other = await frontier.open_crawl(a_crawl("other"))
    assert await frontier.claim_keys(other, ["x"], owner="two") == [True]


async def test_a_process_gives_up_its_own_claims_and_no_others(frontier: ValkeyFrontier, clock: Clock) -> None:
    run = await frontier.open_crawl(a_crawl())
    await frontier.claim(run, ["x", "y"], owner="one", seconds=3)
    await frontier.claim(run, ["z"], owner="two", seconds=3)
    await frontier.claim(run, ["done"], owner="")
    await frontier.release_claims(run, ["x", "z", "done", "unknown"], owner="one")
    assert await frontier.claim(run, ["x", "y", "z", "done"], owner="three", seconds=3) == [
        ClaimResult.GRANTED, ClaimResult.HELD_BY_OTHER, ClaimResult.HELD_BY_OTHER, ClaimResult.DONE,
    ]  # fmt: skip
    clock.now += 4
    assert await frontier.claim(run, ["y"], owner="three", seconds=3) == [ClaimResult.GRANTED]


async def test_cookies_are_kept_by_crawl_account_and_site_within_their_bound(frontier: ValkeyFrontier) -> None:
    run = await frontier.open_crawl(a_crawl())
    await frontier.save_cookies(run, "alice", "a.test", {b"1": b"one", b"2": b"two"}, seconds=60)
    await frontier.save_cookies(run, "alice", "a.test", {b"1": b"", b"3": b"three"}, seconds=60)
    assert await frontier.read_cookies(run, "alice", "a.test") == {b"2": b"two", b"3": b"three"}
    following = Run(run.crawl, run.number + 1, run.generation + 1)
    for other, account, site in ((run, "bob", "a.test"), (run, "alice", "b.test"), (following, "alice", "a.test")):
        assert await frontier.read_cookies(other, account, site) == {}
    many = {str(number).encode(): b"x" for number in range(2 * MOST_COOKIES)}
    await frontier.save_cookies(run, "alice", "a.test", many, seconds=60)
    assert len(await frontier.read_cookies(run, "alice", "a.test")) == MOST_COOKIES
    await frontier.save_cookies(run, "alice", "a.test", {b"2": b"new"}, seconds=60)
    assert (await frontier.read_cookies(run, "alice", "a.test"))[b"2"] == b"new"
