"""The cases that break frontiers, each by name, on every topology."""

import asyncio

import pytest

from gossamer.errors import CrawlRefused, FrontierIncompatible, FrontierUnavailable, LeaseLost
from gossamer.frontier.base import RedirectPermit
from gossamer.model.crawl import BudgetScope, Crawl, CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, a_crawl, fetched_count, fingerprint, of_living
from .pair import Pair
from .stage import Stage

PLAIN = Terms()
ONE = CrawlId("app", "one")
PATIENCE_SECONDS = 20.0


async def submit(pair: Pair, *batches: object, name: str = "one", terms: Terms = PLAIN, **options: object) -> None:
    run = await pair.open(a_crawl(name, **options))
    assert run is not None
    await pair.add(run, terms, batches)  # type: ignore[arg-type]


def paths(leases: list[Lease]) -> list[str]:
    return [lease.url.rpartition("/")[2] for lease in leases]


# --- replies lost on the wire -----------------------------------------------------------------------------------------


async def test_a_lost_lease_is_answered_again(pair: Pair) -> None:
    """The same requests and no others: none is stranded with a living worker."""
    await submit(pair, *[a_batch(f"d{number}.test", range(2)) for number in range(8)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    for _ in range(12):
        pair.lose_reply(0)
        await pair.lease(worker, limit=3)
        assert pair.lost or pair.shards > 1  # else other shards answer
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(worker.held) < 8:  # a call does not wait for a shard that is slower than the others
            await pair.lease(worker, limit=3)
    assert len(worker.held) == 8
    await pair.check()


async def test_a_lost_lease_of_a_worker_that_dies_is_taken_back(pair: Pair) -> None:
    await submit(pair, a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    seat = pair.seats[worker]
    pair.lose_reply(0)
    if pair.shards == 1:
        with pytest.raises(FrontierUnavailable):
            await seat.lease(limit=8)
    else:  # the other shards answer
        assert len(await seat.lease(limit=8)) <= 1
    pair.clock.now += 5 * pair.model.dead_after_seconds
    await pair.frontier.maintain()
    heir = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    (lease,) = await heir.lease(limit=8)
    assert lease.attempt <= 1
    await heir.close()


@pytest.mark.parametrize("nth", range(4))
async def test_a_lost_add_has_happened_once(pair: Pair, nth: int) -> None:
    """Filtered or not, whichever of its replies was lost."""
    run = await pair.open(a_crawl())
    assert run is not None
    for unfiltered in (False, True):
        pair.lose_reply(nth)
        batches = [a_batch(f"d{number}.test", range(3), unfiltered=unfiltered) for number in range(6)]
        await pair.add(run, PLAIN, batches)
        pair.lose_reply(None)
    await pair.check()
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    assert info.total().added == 36


async def test_a_lost_settle_has_happened_once(pair: Pair) -> None:
    await submit(pair, *[a_batch(f"d{number}.test", range(1)) for number in range(8)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    pair.lose_reply(0)
    await pair.settle(worker, [Settlement(lease, Outcome.FAILED, "dns", drops={"depth": 2}) for lease in leases])
    assert pair.lost
    await pair.check()
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    assert (info.total().failed, info.total().links_dropped["depth"]) == ({"dns": 8}, 16)


async def test_a_lost_hop_is_answered_again(pair: Pair) -> None:
    """One hit, and its own mark is not taken for another's."""
    await submit(pair, a_batch("a.test", ["x"]))
    await pair.set_policy("a.test", DomainPolicy(hits=3, window_seconds=30.0, moderated=False))
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    for target, answer in [("1", RedirectPermit.GRANTED), ("2", RedirectPermit.GRANTED), ("3", RedirectPermit.WAIT)]:
        pair.lose_reply(0)
        mark = fingerprint("link", f"https://a.test/{target}")
        assert await pair.hop(worker, lease, fingerprint=mark, payload=target.encode()) is answer
        assert pair.lost
    await pair.check()


async def test_a_fresh_open_may_be_repeated(pair: Pair) -> None:
    """Whoever lost the reply does not meet a run that he himself began as somebody else's."""
    pair.lose_reply(0)
    new = Crawl(id=CrawlId("other", "new"))  # of an application that the model does not count
    assert (await pair.frontier_again(lambda: pair.frontier.open_crawl(new, fresh=True))).number == 1
    await submit(pair, a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    await pair.fetch(worker, await pair.lease_all_due(worker))
    await pair.check()
    pair.lose_reply(0)
    assert (await pair.frontier_again(lambda: pair.frontier.open_crawl(a_crawl(), fresh=True))).number == 2


async def test_stop_and_steering_may_be_repeated(pair: Pair) -> None:
    await submit(pair, a_batch("a.test", range(4)), a_batch("b.test", range(4)))
    for nth in range(6):
        pair.lose_reply(nth)
        await pair.set_policy("a.test", DomainPolicy(hits=nth + 1))
        await pair.set_policy(None, DomainPolicy(hits=nth + 1))
        await pair.block("b.test", 5)
        await pair.ask_delay("b.test", 2)
        await pair.stop(ONE, spider="other")
        await pair.reclaim()
        pair.lose_reply(None)
        await pair.check()
    pair.lose_reply(1)
    await pair.stop(ONE)
    await pair.check()


# --- workers that die -------------------------------------------------------------------------------------------------


async def test_what_a_dead_worker_held_is_leased_again(pair: Pair) -> None:
    """In front of its queue, as an attempt, under the same request id."""
    await submit(pair, *[a_batch(f"d{number}.test", ["x", "y"]) for number in range(6)])
    dead, heir = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(2)]
    before = {lease.url: lease.request_id for lease in await pair.lease_all_due(dead)}
    pair.kill(dead)
    await pair.pass_time(0.9 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 0
    await pair.pass_time(pair.model.dead_after_seconds)
    assert await pair.reclaim() == 6
    await pair.check()
    again = await pair.lease_all_due(heir)
    assert {lease.url: lease.request_id for lease in again} == before
    assert {lease.attempt for lease in again} == {1}


async def test_a_worker_that_was_paused_is_told_so_and_starts_afresh(pair: Pair) -> None:
    """Its settlements are stale, its outlinks may still be added, nothing of its old name counts any more."""
    await submit(pair, a_batch("a.test", ["x"]))
    paused, other = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(2)]
    (lease,) = await pair.lease_all_due(paused)
    seat = pair.seats[paused]
    pair.kill(paused)
    await pair.pass_time(3 * pair.model.dead_after_seconds)
    await pair.reclaim()
    await seat.settle([Settlement(lease, Outcome.FETCHED)])
    assert await fetched_count(pair.frontier, lease.run) == 0
    assert of_living(seat, [lease]) == []
    with pytest.raises(LeaseLost):
        await seat.request_redirect(lease, fingerprint=1, payload=b"")
    assert not seat.holds(lease)
    pair.model.spoke_again.add(paused)
    run = pair.model.run_of(lease.run)
    assert (await pair.add(run, PLAIN, [a_batch("b.test", ["child"], depth=1)])).added == 1
    (again,) = [found for found in await pair.lease_all_due(other) if found.domain == "a.test"]
    fresh = await pair.wake(paused)
    assert fresh is not paused
    await pair.fetch(other, [again])
    await pair.check()
    await pair.pass_time(5)
    assert paths(await pair.lease_all_due(fresh)) in ([], ["child"])
    await pair.check()


async def test_a_worker_that_was_silent_but_not_reclaimed_goes_on(pair: Pair) -> None:
    """Late is not dead until somebody looked."""
    await submit(pair, a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    pair.clock.now += 3 * pair.model.dead_after_seconds
    await pair.fetch(worker, leases)
    await pair.check()


async def test_settling_twice_changes_nothing(pair: Pair) -> None:
    await submit(pair, a_batch("a.test", ["x", "y"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await pair.fetch(worker, leases)
    for outcome in Outcome:
        before = await pair.frontier.crawl_info(ONE)
        assert await pair.settle(worker, [Settlement(leases[0], outcome, "again", drops={"depth": 1})]) == [False]
        assert await pair.frontier.crawl_info(ONE) == before
    await pair.check()


async def test_one_call_settles_each_lease_once_whatever_its_outcome(pair: Pair) -> None:
    """Answers and dropped links belong to their settlements, though requests that were fetched are settled first."""
    await submit(pair, *(a_batch(f"{name}.test", ["x"]) for name in "abcdef"))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await pair.settle(worker, [Settlement(leases[1], Outcome.FETCHED), Settlement(leases[2], Outcome.FAILED, "dns")])
    outcomes = [Outcome.FAILED, Outcome.FETCHED, Outcome.FETCHED, Outcome.FETCHED, Outcome.RETURNED, Outcome.DROPPED]
    settlements = [
        Settlement(lease, outcome, drops={"offsite": 10**place, "depth": 1})
        for place, (lease, outcome) in enumerate(zip(leases, outcomes, strict=True))
    ]
    ended = await pair.settle(worker, [*settlements, settlements[3], settlements[5]])
    assert ended == [True, False, False, True, True, True, False, False]
    await pair.check()


async def test_a_crawl_ends_though_its_last_workers_died(pair: Pair) -> None:
    """Stopped meanwhile: what the dead held is dropped, and counted, by the reclaim."""
    await submit(pair, *[a_batch(f"d{number}.test", ["x"]) for number in range(4)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert len(await pair.lease_all_due(worker)) == 4
    pair.kill(worker)
    await pair.stop(ONE)
    await pair.check()
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 0
    await pair.check()
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    assert info.total().dropped == {"stopped": 4}


# --- size -------------------------------------------------------------------------------------------------------------


async def test_a_large_crawl_does_not_hold_up_an_urgent_request(pair: Pair) -> None:
    """A crawl with very many requests on a domain, then one of priority 90 for it: that is the next one there."""
    run = await pair.frontier.open_crawl(a_crawl("large"))
    await pair.frontier.add(run, PLAIN, [a_batch("a.test", range(6000))])
    urgent = await pair.frontier.open_crawl(a_crawl("urgent"))
    await pair.frontier.add(urgent, PLAIN, [a_batch("a.test", ["now"], priority=90)])
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert paths(await seat.lease(limit=8)) == ["now"]
    await seat.close()


async def test_many_overdue_domains_do_not_hold_up_an_urgent_one(pair: Pair) -> None:
    """It comes within one batch, whatever else is due."""
    run = await pair.frontier.open_crawl(a_crawl("large"))
    await pair.frontier.add(run, PLAIN, [a_batch(f"d{number}.test", ["x"]) for number in range(3000)])
    pair.clock.now += 1000
    await pair.frontier.add(run, PLAIN, [a_batch("urgent.test", ["x"], priority=90)])
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert "urgent.test" in {lease.domain for lease in await seat.lease(limit=64)}
    await seat.close()


async def test_a_batch_of_any_size_is_taken(pair: Pair) -> None:
    """The client splits what would keep a server busy for long."""
    run = await pair.frontier.open_crawl(a_crawl())
    batches = [a_batch("a.test", range(10_000)), *[a_batch(f"d{number}.test", range(2)) for number in range(2000)]]
    answer = await pair.frontier.add(run, PLAIN, batches)
    assert (answer.added, answer.duplicates) == (14_000, 0)
    assert (await pair.frontier.add(run, PLAIN, batches)).duplicates == 14_000
    seat = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=2001)
    while more := await seat.lease(limit=2001):
        leases += more
    assert len(leases) == 2001
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    assert await fetched_count(pair.frontier, run) == len(leases)
    await seat.close()


async def test_small_crawls_end_and_leave_nothing(pair: Pair, stage: Stage) -> None:
    """Crawls of one URL: gone after the retention, every key of them."""
    before = {key for key, ttl in (await stage.keys()).items() if ttl == -1}
    worker = await pair.hire(pool="shared", spiders=["link"])
    for number in range(40):
        await submit(pair, a_batch(f"d{number}.test", ["x"]), name=f"small{number}")
    await pair.fetch(worker, await pair.lease_all_due(worker))
    await pair.check()
    await stage.check_nothing_stays(pair)
    after = {key for key, ttl in (await stage.keys()).items() if ttl == -1}
    assert {key.split("}:")[1] for key in after - before} <= {"n", "policy", "egresses"}
    for number in range(40):
        assert await pair.frontier.crawl_info(CrawlId("app", f"small{number}")) is None
    assert await pair.frontier.crawl_domains(CrawlId("app", "small0")) == ([], "")


async def test_what_a_large_crawl_has_seen_goes_too(pair: Pair, stage: Stage) -> None:
    """Thousands of buckets, of two generations; afterwards the name is free for a first run."""
    run = await pair.open(a_crawl(max_pages=1))
    assert run is not None
    await pair.add(run, PLAIN, [a_batch(f"d{number}.test", range(600)) for number in range(8)])
    await pair.drain()
    fresh = await pair.open(a_crawl(), fresh=True)
    assert fresh is not None
    await pair.add(fresh, PLAIN, [a_batch("a.test", ["x"])])
    await pair.drain()
    await stage.check_nothing_stays(pair)
    pair.model.runs.clear()
    pair.generations.clear()
    again = await pair.open(a_crawl())
    assert again is not None
    assert (await pair.add(again, PLAIN, [a_batch("d1.test", ["1"])])).added == 1


async def test_a_stopped_mark_outlives_its_crawl_and_ends(pair: Pair) -> None:
    await submit(pair, a_batch("a.test", ["x"]))
    await pair.stop(ONE)
    pair.clock.now += 20 * 86400
    await pair.frontier.maintain()
    with pytest.raises(CrawlRefused):
        await pair.frontier.open_crawl(a_crawl())
    pair.clock.now += 11 * 86400
    await pair.frontier.maintain()
    assert (await pair.frontier.open_crawl(a_crawl())).number == 1


async def test_keys_end_by_the_servers_clock_too(stage: Stage) -> None:
    """With a short retention and no clock of the test's: what a crawl leaves is swept."""
    frontier = await stage.frontier(retention_seconds=0.05)
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch("a.test", ["x"])])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=8)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    assert len(leases) == 1
    assert not seat.holds(leases[0])
    async with asyncio.timeout(60):
        while [key for key in await stage.keys() if ONE.token in key]:  # each shard by its own clock
            await frontier.maintain()
            await asyncio.sleep(0.02)
    await seat.close()
    assert await frontier.crawl_info(ONE) is None
    await stage.leave()


# --- redirects, submissions, scopes -----------------------------------------------------------------------------------


async def test_a_redirect_to_another_domain_goes_on_there(pair: Pair) -> None:
    """The same request, depth and chain, under the other domain's budget; its target is seen from then on."""
    await submit(pair, a_batch("a.test", ["x"], depth=2, priority=7))
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    moved = a_batch("b.test", ["y"], depth=2, priority=7, payloads=[b"chain"])
    run = pair.model.run_of(lease.run)
    assert (await pair.add(run, lease.terms, [moved])).added == 1
    await pair.settle(worker, [Settlement(lease, Outcome.DROPPED, "moved")])
    (found,) = await pair.lease_all_due(worker)
    assert (found.domain, found.depth, found.priority, found.payload) == ("b.test", 2, 7, b"chain")
    assert (await pair.add(run, lease.terms, [a_batch("b.test", ["y"])])).duplicates == 1
    await pair.check()


async def test_a_submission_joins_restarts_or_is_refused(pair: Pair) -> None:
    """Running, finished, stopped, expired; other terms; the same URL again; another spider."""
    await submit(pair, a_batch("a.test", ["x"]))
    await submit(pair, a_batch("a.test", ["x", "y"]), terms=Terms(maxdepth=1))
    await submit(pair, a_batch("a.test", ["x"], spider="other"))
    run = pair.model.runs[ONE]
    assert (run.number, len(run.entries)) == (1, 3)
    await pair.drain()
    await submit(pair, a_batch("a.test", ["x", "z"]))
    assert (pair.model.runs[ONE].number, len(pair.model.runs[ONE].entries)) == (2, 1)
    await pair.drain()
    for state in (CrawlState.STOPPED, CrawlState.EXPIRED):
        await submit(pair, a_batch("a.test", ["x"]), name=state.value)
        await pair.stop(CrawlId("app", state.value), state=state)
        with pytest.raises(CrawlRefused, match=state.value):
            await pair.frontier.open_crawl(a_crawl(state.value))
    await pair.check()


async def test_two_pools_share_budgets_and_nothing_else(pair: Pair) -> None:
    await submit(pair, a_batch("a.test", range(3)), a_batch("b.test", range(3)))
    await submit(pair, a_batch("a.test", range(3)), a_batch("c.test", range(3)), name="mine", pool="mine")
    shared = await pair.hire(pool="shared", spiders=["link"])
    mine = await pair.hire(pool="mine", spiders=["link"])
    assert {lease.domain for lease in await pair.lease_all_due(shared)} == {"a.test", "b.test"}
    assert {lease.domain for lease in await pair.lease_all_due(mine)} == {"c.test"}
    await pair.check()


async def test_many_egress_addresses_and_all_scopes_at_once(pair: Pair) -> None:
    await submit(pair, *[a_batch(f"{scope.name.lower()}.test".replace("_", "-"), range(60)) for scope in BudgetScope])
    for scope in BudgetScope:
        domain = f"{scope.name.lower()}.test".replace("_", "-")
        await pair.set_policy(domain, DomainPolicy(hits=1, window_seconds=5.0, scope=scope))
    workers = [await pair.hire(pool="shared", spiders=["link"], egress=f"192.0.2.{n}") for n in range(9)]
    for _ in range(3):
        found: list[str] = []
        for worker in workers:
            leases = await pair.lease_all_due(worker)
            await pair.fetch(worker, leases)
            found += [lease.domain for lease in leases]
        assert {domain: found.count(domain) for domain in set(found)} == {
            "domain.test": 1,
            "type.test": 1,
            "ip.test": 9,
            "type-ip.test": 9,
        }
        await pair.pass_time(5)
    await pair.check()


# --- servers ----------------------------------------------------------------------------------------------------------


async def test_scripts_that_the_server_forgot_are_told_again(pair: Pair, stage: Stage) -> None:
    await submit(pair, a_batch("a.test", range(3)))
    worker = await pair.hire(pool="shared", spiders=["link"])
    await stage.flush_scripts()
    leases = await pair.lease_all_due(worker)
    await stage.flush_scripts()
    await pair.fetch(worker, leases)
    await stage.flush_scripts()
    await pair.check()
    await pair.drain()


@pytest.mark.parametrize("stage", ["single", "sharded"], indirect=True)
async def test_a_killed_server_forgets_nothing_that_it_confirmed(pair: Pair, stage: Stage) -> None:
    """SIGKILL, and a start from the append-only file: workers go on with what they hold."""
    await submit(pair, *[a_batch(f"d{number}.test", range(3)) for number in range(8)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await stage.kill_server()
    await pair.check()
    await pair.fetch(worker, leases[:4])
    await stage.kill_server()
    await pair.fetch(worker, leases[4:])
    await pair.drain()
    assert pair.model.runs[ONE].fetched() == 24


async def test_a_frontier_of_another_make_is_recognised(pair: Pair, stage: Stage) -> None:
    """Another number of shards, another format: said before anything is written."""
    with pytest.raises(FrontierIncompatible, match="shards"):
        await stage.frontier(shards=stage.shards + 1)
    unsaid = await stage.frontier(shards=None)
    assert unsaid.secret == pair.frontier.secret
    key = f"{stage.prefix}:{{0}}:meta"
    await stage.connections[0].command(key, "HSET", key, "format", "999")
    before = await stage.keys()
    with pytest.raises(FrontierIncompatible, match="999"):
        await stage.frontier()
    assert (await stage.keys()).keys() == before.keys()
