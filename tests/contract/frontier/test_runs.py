"""What the frontier's contract promises of runs: how they begin, finish, stop and expire, on every topology."""

import asyncio
import contextlib

import pytest

from gossamer.errors import CrawlRefused
from gossamer.model.crawl import CrawlId, CrawlState, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Pair
from .test_promises import PLAIN, one_by_one, paths, submit

# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_crawl_finishes_when_all_it_added_is_done_and_not_before(pair: Pair) -> None:
    await submit(pair, "one", *[a_batch(f"d{number}.test", ["x"]) for number in range(9)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    for lease in leases:
        info = await pair.frontier.crawl_info(lease.run.crawl.id)
        assert info is not None
        assert (info.state, info.ended) == (CrawlState.RUNNING, None)
        await pair.fetch(worker, [lease])
    await pair.check()
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    assert (info.state, info.run) == (CrawlState.FINISHED, 1)
    assert info.ended == pair.clock.now


async def test_while_it_runs_every_submission_joins_the_run(pair: Pair) -> None:
    """Of a running crawl the first submission's options count, also when two open it at once."""
    opened = await asyncio.gather(
        *[pair.frontier.open_crawl(a_crawl("one", max_pages=pages)) for pages in (5, 6, 7, 8)]
    )
    assert len(set(map(str, opened))) == 1


async def test_the_next_run_goes_on_with_what_was_seen(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    await one_by_one(pair, worker, 1)
    await pair.check()
    run = await pair.open(a_crawl())
    assert run is not None
    assert run.number == 2
    answer = await pair.add(run, PLAIN, [a_batch("a.test", ["x", "y"])])
    assert (answer.added, answer.duplicates) == (1, 1)
    assert paths(await one_by_one(pair, worker, 2)) == ["y"]
    await pair.check()


async def test_a_fresh_run_has_seen_nothing(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    await one_by_one(pair, worker, 1)
    await pair.check()
    run = await pair.open(a_crawl(), fresh=True)
    assert run is not None
    assert (await pair.add(run, PLAIN, [a_batch("a.test", ["x"])])).added == 1
    assert paths(await one_by_one(pair, worker, 2)) == ["x"]
    await pair.check()


async def test_a_submission_that_comes_after_its_run_ended_is_not_stranded(pair: Pair) -> None:
    """It named the run while that was running: whatever it is answered, nothing waits in a finished crawl."""
    await submit(pair, "one", a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    old = pair.handles[CrawlId("app", "one")]
    await one_by_one(pair, worker, 1)
    await pair.check()
    try:
        answer = await pair.frontier.add(old, PLAIN, [a_batch("a.test", ["late"])])
    except CrawlRefused:
        return
    info = await pair.frontier.crawl_info(old.crawl.id)
    assert info is not None
    assert answer.added == 0 or info.state is CrawlState.RUNNING


async def test_unknown_crawls_have_no_info_and_nothing_to_stop(pair: Pair) -> None:
    nobody = CrawlId("app", "nobody")
    assert await pair.frontier.crawl_info(nobody) is None
    assert await pair.frontier.stop_crawl(nobody) == 0
    assert await pair.frontier.crawl_domains(nobody) == ([], "")


async def test_domains_are_listed_page_by_page(pair: Pair) -> None:
    await submit(pair, "one", *[a_batch(f"d{n}.test", range(1 + n % 3), priority=n % 2) for n in range(130)])
    cursor, found = "", {}
    while True:
        page, cursor = await pair.frontier.crawl_domains(CrawlId("app", "one"), cursor=cursor, limit=20)
        for domain in page:
            assert domain.domain not in found
            found[domain.domain] = (domain.queued, domain.by_priority)
        if not cursor:
            break
    assert found == {f"d{n}.test": (1 + n % 3, {n % 2: 1 + n % 3}) for n in range(130)}


async def test_requests_that_wait_for_a_retry_are_part_of_their_domain(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"], priority=20), a_batch("b.test", ["z"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    crawl = CrawlId("app", "one")
    for lease in leases:
        await pair.settle(worker, [Settlement(lease, Outcome.RETRY, delay_seconds=60)])
    assert await domains_of(pair, crawl) == {"a.test": (0, 1, {10: 1}), "b.test": (0, 1, {-10: 1})}
    info = await pair.frontier.crawl_info(crawl)
    assert info is not None
    assert info.domains == 2
    await pair.check()
    pair.clock.now += 60
    assert len(await pair.lease_all_due(worker)) == 2
    assert await domains_of(pair, crawl) == {}
    await pair.check()


async def test_a_stop_forgets_the_domains_of_requests_that_wait_for_a_retry(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    [lease] = await pair.lease_all_due(worker)
    await pair.settle(worker, [Settlement(lease, Outcome.RETRY, delay_seconds=60)])
    await pair.stop(CrawlId("app", "one"))
    assert await domains_of(pair, CrawlId("app", "one")) == {}
    await pair.check()


async def domains_of(pair: Pair, crawl: CrawlId) -> dict[str, tuple[int, int, dict[int, int]]]:
    """Of each domain: requests in queues, requests that wait for a retry, and all of them by priority."""
    found, _ = await pair.frontier.crawl_domains(crawl)
    return {domain.domain: (domain.queued, domain.later, domain.by_priority) for domain in found}


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.EXPIRED])
async def test_stop_is_exact_and_obeyed_by_the_next_lease(pair: Pair, state: CrawlState) -> None:
    """What waits is purged and counted, what is held may be settled, what comes late is dropped and counted."""
    await submit(pair, "one", *[a_batch(f"d{n}.test", range(7)) for n in range(6)])
    await submit(pair, "two", a_batch("d1.test", ["mine"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    held = [lease for lease in leases if lease.run.crawl.id.crawlid == "one"]
    await pair.settle(worker, [Settlement(held[0], Outcome.RETRY, delay_seconds=60)])
    crawl = CrawlId("app", "one")
    assert await pair.frontier.stop_crawl(crawl, state=state) == 42 - len(held) + 1
    pair.model.stop(crawl, None, state, pair.clock.now)
    assert await pair.frontier.stop_crawl(crawl, state=state) == 0
    await pair.check()
    await pair.pass_time(90)
    assert [lease.run.crawl.id.crawlid for lease in await pair.lease_all_due(worker)] in ([], ["two"])
    late = await pair.add(pair.model.run_of(held[1].run), PLAIN, [a_batch("d9.test", range(3), depth=1)])
    assert late.rejected_by_reason == {state.value: 3}
    endings = [Outcome.FETCHED, Outcome.RETURNED, Outcome.RETRY, Outcome.FAILED]
    await pair.settle(worker, [Settlement(a, b, "dns") for a, b in zip(held[1:], endings, strict=False)])
    await pair.check()
    assert await pair.open(a_crawl()) is None
    info = await pair.frontier.crawl_info(crawl)
    assert info is not None
    assert info.state is state


@pytest.mark.parametrize("spider", [None, "link"])
@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.EXPIRED])
async def test_a_run_that_has_finished_is_not_ended_again(pair: Pair, state: CrawlState, spider: str | None) -> None:
    """Its end was published. It refuses nothing afterwards."""
    crawl = CrawlId("app", "one")
    await submit(pair, "one", a_batch("a.test", range(3)))
    await pair.drain()
    await pair.stop(crawl, spider=spider, state=state)
    await pair.check()
    info = await pair.frontier.crawl_info(crawl)
    assert info is not None
    assert (info.state, info.run) == (CrawlState.FINISHED, 1)
    assert [event.kind for event in await pair.frontier.pending_events()] == [CrawlState.FINISHED]
    await submit(pair, "one", a_batch("b.test", range(3)))
    assert pair.model.runs[crawl].number == 2
    await pair.drain()
    await pair.check()


@pytest.mark.parametrize("spider", [None, "link"])
@pytest.mark.parametrize("own_worker", ["waits", "left"])
async def test_a_finished_run_is_stopped_only_while_workers_of_its_own_wait_for_more(
    pair: Pair, own_worker: str, spider: str | None
) -> None:
    """So a stop ends spiders that stay open. Workers of other pools wait for the requests of others."""
    crawl = a_crawl("one", pool="own")
    await submit(pair, "one", a_batch("a.test", range(3)), pool="own")
    for pool in ("shared", "other"):
        await pair.lease_all_due(await pair.hire(pool=pool, spiders=["link"]))
    worker = await pair.hire(pool="own", spiders=["link"])
    await one_by_one(pair, worker, 3)
    assert await pair.lease_all_due(worker) == []
    await pair.check()
    if own_worker == "left":
        await pair.close(worker)
    assert await pair.frontier.stop_crawl(crawl.id, spider=spider) == 0
    info = await pair.frontier.crawl_info(crawl.id)
    assert info is not None
    is_stopped = own_worker == "waits"
    assert info.state is (CrawlState.STOPPED if is_stopped else CrawlState.FINISHED)
    with pytest.raises(CrawlRefused) if is_stopped else contextlib.nullcontext():
        run = await pair.frontier.open_crawl(crawl, expires={"link": 0})
        assert run.number == 2


async def test_one_spiders_part_can_be_stopped(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", range(5)), a_batch("b.test", range(5), spider="other"))
    crawl = CrawlId("app", "one")
    await pair.stop(crawl, spider="other")
    await pair.check()
    late = await pair.add(
        pair.model.runs[crawl], PLAIN, [a_batch("c.test", "x"), a_batch("c.test", "x", spider="other")]
    )
    assert (late.added, late.rejected_by_reason) == (1, {"stopped": 1})
    worker = await pair.hire(pool="shared", spiders=["link", "other"])
    assert {lease.spider for lease in await pair.lease_all_due(worker)} == {"link"}
    await pair.check()
    await pair.drain()


async def test_a_stop_after_the_stop_of_a_part_tells_what_it_purged(pair: Pair) -> None:
    """Its own count: what the first one purged is not in it, all of the rest is."""
    await submit(pair, "one", *[a_batch(f"d{n}.test", range(3), spider=("link", "other")[n % 2]) for n in range(8)])
    crawl = CrawlId("app", "one")
    assert await pair.frontier.stop_crawl(crawl, spider="other") == 12
    assert await pair.frontier.stop_crawl(crawl) == 12
    assert await pair.frontier.stop_crawl(crawl) == 0


async def test_a_robots_txt_is_fetched_by_one_at_a_time(pair: Pair) -> None:
    """Until who claimed it has shared what it is, or gives it up; a record that is there outlives both."""
    place = ("a.test", "https://a.test")
    frontier = pair.frontier

    async def claims(*owners: str) -> list[bool]:
        return [await frontier.claim_robots(*place, owner=owner, seconds=60) for owner in owners]

    assert await claims("one", "two", "one") == [True, False, True], "a lost answer is asked for again"
    await frontier.release_robots_claim(*place)
    await frontier.release_robots_claim(*place)
    assert await frontier.load_robots(*place) is None
    assert await claims("two", "one", "two") == [True, False, True]
    await frontier.save_robots(*place, b"record", ttl_seconds=60)
    assert await claims("one") == [True]
    await frontier.release_robots_claim(*place)
    assert await frontier.load_robots(*place) == b"record"


async def test_the_robots_txts_of_hosts_made_up_without_end_make_room(pair: Pair) -> None:
    """At 8 MiB a domain, the oldest first; small ones are kept by the thousand, and other domains' are theirs."""
    frontier = pair.frontier
    await frontier.save_robots("b.test", "https://b.test", b"b", ttl_seconds=60)
    large = b"x" * 500 * 1024
    for number in [*range(30), 25]:
        await frontier.save_robots("a.test", f"https://{number}.a.test", large, ttl_seconds=60)
    kept = [n for n in range(30) if await frontier.load_robots("a.test", f"https://{n}.a.test")]
    assert 14 <= len(kept) <= 16
    assert kept == list(range(30 - len(kept), 30))
    for number in range(100):
        await frontier.save_robots("a.test", f"http://{number}.a.test", b"y", ttl_seconds=60)
    assert await frontier.load_robots("a.test", "http://0.a.test") == b"y"
    assert await frontier.load_robots("b.test", "https://b.test") == b"b"


@pytest.mark.parametrize("first", ["", "x" * 100])
async def test_every_request_travels_under_its_own_terms(pair: Pair, first: str) -> None:
    """However many sets a crawl has, however long they are, and in whichever run."""
    asked = [Terms(useragent=name) for name in (first, "b", "c" * 100, "b", first, "d")]
    wanted: dict[str, str | None] = {}
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    for number in (1, 2, 3):
        run = await pair.frontier.open_crawl(a_crawl(), fresh=number == 3)
        assert run.number == number
        for index, terms in enumerate(asked):
            url = f"https://d{index}.test/{number}"
            wanted[url] = terms.useragent
            await pair.frontier.add(run, terms, [a_batch(f"d{index}.test", [number])], seeds=True)
        pair.clock.now += 10
        found = [lease for _ in range(3) for lease in await seat.lease(limit=50)]
        assert {lease.url: lease.terms.useragent for lease in found} == {
            url: name for url, name in wanted.items() if url.endswith(f"/{number}")
        }
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in found])
        await pair.frontier.maintain()
    await seat.close()


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_seen_set_of_one_is_remembered(pair: Pair, fresh: bool) -> None:
    """By the next run, too, unless that one starts afresh; and it grows."""
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    run = await pair.frontier.open_crawl(a_crawl())
    for expected in (1, 0):
        answer = await pair.frontier.add(run, PLAIN, [a_batch("a.test", ["x"])], seeds=True)
        assert (answer.added, answer.duplicates) == (expected, 1 - expected)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in await seat.lease(limit=50)])
    await pair.frontier.maintain()
    run = await pair.frontier.open_crawl(a_crawl(), fresh=fresh)
    assert run.number == 2
    answer = await pair.frontier.add(run, PLAIN, [a_batch("a.test", ["y", "x", "y", "z"])], seeds=True)
    assert (answer.added, answer.duplicates) == ((3, 1) if fresh else (2, 2))
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.seen == 3
    await seat.close()


async def test_a_submissions_requests_expire(pair: Pair) -> None:
    """Only its own, and from that moment on."""
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, Terms(expires=pair.clock.now + 5), [a_batch("a.test", ["1", "2"]), a_batch("b.test", ["1"])])
    await pair.add(run, PLAIN, [a_batch("a.test", ["mine"])])
    worker = await pair.hire(pool="shared", spiders=["link"])
    await pair.fetch(worker, [lease for lease in await pair.lease_all_due(worker) if lease.domain == "a.test"])
    await pair.pass_time(6)
    late = await pair.add(run, Terms(expires=pair.clock.now - 1), [a_batch("c.test", ["x"])])
    assert late.rejected == {(0, 0): "expired"}
    await pair.close(worker)
    await pair.check()
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert paths(await one_by_one(pair, worker, 3)) == ["mine"]
    await pair.check()
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.total().dropped == {"expired": 2}
    assert info.state is CrawlState.FINISHED
