"""What the frontier's contract promises to the sites: budgets, scopes, blocks, on every topology.

The model (politeness.py) judges every hit; these tests pin down what is handed out when.
"""

from typing import Any

import pytest

from gossamer.errors import BadInput
from gossamer.frontier.valkey.commands import Argument
from gossamer.model.crawl import BudgetScope, DomainPolicy, Rate, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .model import ModelWorker
from .pair import Pair

PLAIN = Terms()


async def fill(pair: Pair, count: int = 30, *domains: str, name: str = "one", **options: object) -> None:
    run = await pair.open(a_crawl(name, **options))
    assert run is not None
    await pair.add(run, PLAIN, [a_batch(domain, range(count)) for domain in domains or ("a.test",)])


async def leased(pair: Pair, worker: ModelWorker) -> int:
    """How many come now; they are fetched at once."""
    leases = await pair.lease_all_due(worker)
    await pair.fetch(worker, leases)
    return len(leases)


async def over_time(pair: Pair, worker: ModelWorker, *steps: float) -> list[int]:
    """How many come now, and after each step of seconds."""
    counts = [await leased(pair, worker)]
    for step in steps:
        await pair.pass_time(step)
        counts.append(await leased(pair, worker))
    return counts


async def test_out_of_the_box_one_hit_a_second(pair: Pair) -> None:
    await fill(pair)
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await over_time(pair, worker, 0.5, 0.5, 0.25, 0.5, 0.25) == [1, 0, 1, 0, 0, 1]


async def test_a_worker_knows_whether_requests_wait_for_their_turn(pair: Pair) -> None:
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await leased(pair, worker) == 0
    assert not pair.seats[worker].has_later_work
    await fill(pair, 2)
    assert await over_time(pair, worker, 0.5) == [1, 0]
    assert pair.seats[worker].has_later_work
    assert await over_time(pair, worker, 0.5) == [0, 1]
    assert await leased(pair, worker) == 0
    assert not pair.seats[worker].has_later_work


async def test_a_worker_knows_whether_requests_wait_only_for_those_in_flight(pair: Pair) -> None:
    """By the crawl's limit or the policy's. With a site whose time is to come, they do not."""
    await pair.frontier.set_domain_policy("a.test", DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await pair.frontier.open_crawl(a_crawl(concurrency=2))
    worker = await pair.frontier.open_leaseholder(pool="shared", spiders=["link"])
    await pair.frontier.add(run, Terms(), [a_batch("a.test", range(4))])
    assert not worker.has_capped_work
    leases = [lease for _ in range(4) for lease in await worker.lease(limit=8)]
    assert (len(leases), worker.has_capped_work, worker.has_later_work) == (2, True, False)
    await pair.frontier.add(run, Terms(), [a_batch("b.test", range(2))])
    later = [lease for _ in range(4) for lease in await worker.lease(limit=8)]
    await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in [*leases, *later]])
    for _ in range(4):
        leases = await worker.lease(limit=8)
        await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    assert (worker.has_capped_work, worker.has_later_work) == (False, True)
    await worker.close()


async def test_a_window_rolls(pair: Pair) -> None:
    """Three hits in any ten seconds: the fourth comes ten seconds after the first."""
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=3, window_seconds=10.0, moderated=False, concurrency=9))
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await leased(pair, worker) == 3
    assert await over_time(pair, worker, 5, 4.75, 0.25, 5) == [0, 0, 0, 3, 0]


async def test_moderated_hits_are_spaced(pair: Pair) -> None:
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=4, window_seconds=8.0, elastic=False))
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await over_time(pair, worker, 1, 1, 1, 1, 2, 2) == [1, 0, 1, 0, 1, 1, 1]


async def test_without_elastic_nothing_is_caught_up(pair: Pair) -> None:
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=4, window_seconds=8.0, elastic=False))
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await over_time(pair, worker, 30, 0.5, 1.5) == [1, 1, 0, 1]


async def test_elastic_catches_up_within_the_window(pair: Pair) -> None:
    """After a stall more than one may come at once; the model sees that no window holds more than its hits."""
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=4, window_seconds=8.0, elastic=True, concurrency=9))
    worker = await pair.hire(pool="shared", spiders=["link"])
    counts = await over_time(pair, worker, 30, 0.5, 0.5, 0.5, 0.5, 2, 2, 2, 2)
    assert sum(counts[1:6]) <= 5


async def test_many_hits_a_window_are_kept_within_one_percent(pair: Pair) -> None:
    """Long windows of many hits are stored coarsely: never faster than asked, at most a hundredth slower."""
    await fill(pair, 700)
    await pair.set_policy("a.test", DomainPolicy(hits=200, window_seconds=20.0, moderated=False, concurrency=500))
    worker = await pair.hire(pool="shared", spiders=["link"])
    counts = await over_time(pair, worker, *[1.0] * 61)
    assert sum(counts) >= 594


async def test_scale_multiplies_and_below_one_hit_stretches(pair: Pair) -> None:
    await fill(pair, 30, "a.test", "b.test", "c.test")
    await pair.set_policy("a.test", DomainPolicy(hits=4, window_seconds=8.0, moderated=False, scale=0.5, concurrency=9))
    await pair.set_policy("b.test", DomainPolicy(hits=1, window_seconds=2.0, scale=0.25))
    await pair.set_policy("c.test", DomainPolicy(scale=0.0))
    worker = await pair.hire(pool="shared", spiders=["link"])
    by_second: list[dict[str, int]] = []
    for _ in range(9):
        leases = await pair.lease_all_due(worker)
        await pair.fetch(worker, leases)
        by_second.append({d: sum(1 for x in leases if x.domain == d) for d in ("a.test", "b.test", "c.test")})
        await pair.pass_time(1)
    assert [row["a.test"] for row in by_second] == [2, 0, 0, 0, 0, 0, 0, 0, 2]
    assert [row["b.test"] for row in by_second] == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert sum(row["c.test"] for row in by_second) == 0


async def test_a_policy_is_obeyed_from_the_next_lease(pair: Pair) -> None:
    """Faster, slower, removed; the operator's default likewise."""
    await fill(pair, 60)
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await leased(pair, worker) == 1
    await pair.set_policy("a.test", DomainPolicy(hits=5, window_seconds=1.0, moderated=False, concurrency=9))
    assert await leased(pair, worker) == 4
    await pair.set_policy("a.test", DomainPolicy(hits=1, window_seconds=20.0))
    assert await over_time(pair, worker, 10, 9.5, 0.5) == [0, 0, 0, 1]
    await pair.set_policy("a.test", None)
    assert await over_time(pair, worker, 1) == [0, 1]
    await pair.set_policy(None, DomainPolicy(hits=1, window_seconds=4.0))
    assert await over_time(pair, worker, 2, 2) == [0, 0, 1]
    await pair.set_policy(None, None)
    assert await over_time(pair, worker, 1) == [0, 1]


async def test_policies_are_told_as_they_were_set(pair: Pair) -> None:
    whole = DomainPolicy(
        hits=3,
        window_seconds=1.5,
        moderated=False,
        elastic=False,
        scale=0.25,
        scope=BudgetScope.TYPE_IP,
        concurrency=7,
        blacklisted=False,
    )
    await pair.set_policy("a.test", whole)
    await pair.set_policy("b.test", DomainPolicy(blacklisted=True))
    await pair.set_policy("c.test", DomainPolicy(hits=1))
    await pair.set_policy("c.test", None)
    await pair.set_policy(None, DomainPolicy(scale=0.5))
    assert await pair.frontier.domain_policies() == (
        DomainPolicy(scale=0.5),
        {"a.test": whole, "b.test": DomainPolicy(blacklisted=True)},
    )


@pytest.mark.parametrize("shut", [DomainPolicy(blacklisted=True), DomainPolicy(scale=0.0)], ids=["blacklist", "pause"])
async def test_a_closed_domain_keeps_its_backlog(pair: Pair, shut: DomainPolicy) -> None:
    """What waits, what is added, returned and due again: all of it is there when the domain opens."""
    await fill(pair, 5, "a.test", "b.test")
    worker = await pair.hire(pool="shared", spiders=["link"])
    (held,) = [lease for lease in await pair.lease_all_due(worker) if lease.domain == "a.test"]
    await pair.set_policy("a.test", shut)
    await pair.settle(worker, [Settlement(held, Outcome.RETURNED)])
    await pair.add(pair.model.run_of(held.run), PLAIN, [a_batch("a.test", ["more"])])
    await pair.pass_time(20)
    assert "a.test" not in {lease.domain for lease in await pair.lease_all_due(worker)}
    await pair.check()
    await pair.set_policy("a.test", None)
    assert "a.test" in {lease.domain for lease in await pair.lease_all_due(worker)}
    await pair.drain()


async def test_the_default_policy_closes_every_domain(pair: Pair) -> None:
    await fill(pair, 3, "a.test", "b.test")
    await pair.set_policy(None, DomainPolicy(scale=0.0))
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await leased(pair, worker) == 0
    await fill(pair, 3, "c.test")
    await pair.pass_time(5)
    assert await leased(pair, worker) == 0
    await pair.set_policy("b.test", DomainPolicy(scale=1.0))
    assert await leased(pair, worker) == 1
    await pair.set_policy(None, None)
    assert await leased(pair, worker) == 2


async def test_a_block_holds_for_everybody_and_is_never_shortened(pair: Pair) -> None:
    await fill(pair, 5, "a.test", "b.test")
    worker = await pair.hire(pool="shared", spiders=["link"])
    await pair.block("a.test", 10)
    await pair.block("a.test", 2)
    assert await over_time(pair, worker, 5, 4.5) == [1, 1, 1]
    await pair.pass_time(1)
    assert await leased(pair, worker) == 2


async def test_a_block_before_there_is_work_holds_too(pair: Pair) -> None:
    await pair.block("a.test", 10)
    await fill(pair, 5)
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await over_time(pair, worker, 9, 1.5) == [0, 0, 1]


async def test_crawl_delay_stretches_the_spacing(pair: Pair) -> None:
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=5, window_seconds=1.0, moderated=False, concurrency=9))
    await pair.ask_delay("a.test", 3.0)
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await over_time(pair, worker, 1, 1, 1, 2, 1) == [1, 0, 0, 1, 0, 1]


async def test_a_crawl_delay_counts_from_the_hit_that_fetched_it(pair: Pair) -> None:
    """It is known only when the first request of a domain is under way: the second keeps its distance all the same."""
    await fill(pair)
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await pair.pass_time(2)
    await pair.ask_delay("a.test", 10.0)
    await pair.fetch(worker, leases)
    assert await over_time(pair, worker, 4, 3.5, 0.5) == [0, 0, 0, 1]


async def test_a_crawl_delay_outlasts_the_last_request_of_its_domain(pair: Pair) -> None:
    """As above, when nothing else waits there and the next submission comes later."""
    await fill(pair, 1)
    await pair.open(a_crawl("two"))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await pair.pass_time(2)
    await pair.ask_delay("a.test", 10.0)
    await pair.fetch(worker, leases)
    await fill(pair, 5, name="two")
    assert await over_time(pair, worker, 4, 3.5, 0.5) == [0, 0, 0, 1]


async def test_hits_are_shared_between_crawls_pools_and_spiders(pair: Pair) -> None:
    """The default scope is the domain, whoever asks."""
    await fill(pair, 5)
    await fill(pair, 5, name="two", pool="own")
    run = pair.model.runs[a_crawl().id]
    await pair.add(run, PLAIN, [a_batch("a.test", range(5), spider="other")])
    workers = [
        await pair.hire(pool=pool, spiders=[spider], egress=egress)
        for pool, spider, egress in [("shared", "link", "x"), ("own", "link", "y"), ("shared", "other", "")]
    ]
    for _ in range(4):
        assert sum([await leased(pair, worker) for worker in workers]) == 1
        workers = workers[1:] + workers[:1]
        await pair.pass_time(1)


@pytest.mark.parametrize(
    ("scope", "at_once"),
    [(BudgetScope.DOMAIN, 1), (BudgetScope.TYPE, 2), (BudgetScope.IP, 3), (BudgetScope.TYPE_IP, 6)],
)
async def test_each_scope_has_its_budget(pair: Pair, scope: BudgetScope, at_once: int) -> None:
    """Two spiders on three egress addresses: how many hits of one domain are free at a time."""
    await fill(pair, 40)
    run = pair.model.runs[a_crawl().id]
    await pair.add(run, PLAIN, [a_batch("a.test", range(40), spider="other")])
    await pair.set_policy("a.test", DomainPolicy(hits=1, window_seconds=2.0, scope=scope))
    workers = [
        await pair.hire(pool="shared", spiders=[spider], egress=egress)
        for spider in ("link", "other")
        for egress in ("192.0.2.1", "192.0.2.2", "2001:db8::1")
    ]
    for _ in range(3):
        assert sum([await leased(pair, worker) for worker in workers]) == at_once
        assert sum([await leased(pair, worker) for worker in workers]) == 0
        await pair.pass_time(2)


async def test_a_scope_may_change_while_work_waits(pair: Pair) -> None:
    await fill(pair, 40)
    workers = [await pair.hire(pool="shared", spiders=["link"], egress=egress) for egress in ("192.0.2.1", "192.0.2.2")]
    for scope in [
        BudgetScope.IP,
        BudgetScope.TYPE_IP,
        BudgetScope.DOMAIN,
        BudgetScope.TYPE,
        BudgetScope.IP,
        BudgetScope.DOMAIN,
    ]:
        await pair.set_policy("a.test", DomainPolicy(scope=scope))
        await pair.pass_time(2)
        count = sum([await leased(pair, worker) for worker in workers])
        assert count == (2 if scope in (BudgetScope.IP, BudgetScope.TYPE_IP) else 1), scope
    await pair.check()


async def test_a_worker_with_a_new_egress_finds_the_work_that_waits(pair: Pair) -> None:
    await pair.set_policy(None, DomainPolicy(scope=BudgetScope.IP))
    await fill(pair, 5, "a.test", "b.test")
    for egress in ["192.0.2.1", "192.0.2.2", ""]:
        worker = await pair.hire(pool="shared", spiders=["link"], egress=egress)
        assert await leased(pair, worker) == 2, egress


async def test_a_worker_may_find_out_later_where_it_fetches_from(pair: Pair) -> None:
    """Its hits count for the new egress from then on, and what is due there is leased at once."""
    await pair.set_policy(None, DomainPolicy(hits=1, window_seconds=100.0, scope=BudgetScope.IP))
    await fill(pair, 5, "a.test", "b.test")
    worker = await pair.hire(pool="shared", spiders=["link"], egress="")
    assert [await leased(pair, worker), await leased(pair, worker)] == [2, 0]
    for egress, count in [("192.0.2.1", 2), ("2001:db8::1", 2), ("192.0.2.1", 0), ("", 0)]:
        pair.seats[worker].set_egress(egress)
        worker.egress = egress
        assert await leased(pair, worker) == count, egress
    with pytest.raises(BadInput):
        pair.seats[worker].set_egress("a|b")


async def test_a_crawls_wish_replaces_the_builtin_and_yields_to_the_operator(pair: Pair) -> None:
    await fill(pair, 60, "a.test", "b.test", rate=Rate(5, 1.0, moderated=False), concurrency=20)
    await pair.set_policy("b.test", DomainPolicy(hits=1, window_seconds=1.0))
    worker = await pair.hire(pool="shared", spiders=["link"])
    for _ in range(4):
        leases = await pair.lease_all_due(worker)
        await pair.fetch(worker, leases)
        assert sorted(lease.domain for lease in leases) == ["a.test"] * 5 + ["b.test"]
        await pair.pass_time(1)


async def test_a_slow_wish_does_not_hold_up_the_others(pair: Pair) -> None:
    """Hits are shared; each crawl's own wish is tested against the shared window."""
    await fill(pair, 20, name="slow", rate=Rate(1, 10.0))
    await fill(pair, 20, name="usual")
    worker = await pair.hire(pool="shared", spiders=["link"])
    names: list[str] = []
    for _ in range(12):
        leases = await pair.lease_all_due(worker)
        await pair.fetch(worker, leases)
        names += [lease.run.crawl.id.crawlid for lease in leases]
        await pair.pass_time(1)
    assert names.count("usual") >= 10


@pytest.mark.parametrize("hits", [1, 3])
async def test_a_crawl_that_must_wait_for_itself_holds_up_no_other_domain(pair: Pair, hits: int) -> None:
    """Its wish is used up and its last request still in flight: other crawls and domains are leased all the same."""
    await pair.set_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    await fill(pair, 1)
    slow = await pair.open(a_crawl("slow", rate=Rate(hits, 100.0, moderated=False)))
    assert slow is not None
    await pair.add(slow, PLAIN, [a_batch("a.test", range(9), priority=60)])
    worker, other = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(2)]
    held = [lease for _ in range(pair.shards) for lease in await pair.lease(worker, limit=1) if lease.priority == 60]
    for _ in range(hits - 1):
        await pair.fetch(worker, held)
        held = await pair.lease_all_due(worker, limit=1)
    run = pair.model.runs[a_crawl().id]
    await pair.add(run, PLAIN, [a_batch(f"d{number}.test", ["x"]) for number in range(20)])
    domains = {lease.domain for lease in await pair.lease_all_due(other)}
    assert {f"d{number}.test" for number in range(20)} <= domains
    await pair.check()


@pytest.mark.parametrize(("first", "pause"), [("link", 1), ("other", 11), ("link", 100), ("other", 100)])
async def test_a_slow_wish_comes_back_when_its_time_has_come(pair: Pair, first: str, pause: float) -> None:
    """Whoever leased from the domain meanwhile, and however long nobody did."""
    await fill(pair, 5, name="slow", rate=Rate(1, 10.0))
    await fill(pair, 3, name="usual")
    other = pair.model.runs[a_crawl("usual").id]
    await pair.add(other, PLAIN, [a_batch("a.test", range(6), spider="other")])
    workers = {spider: await pair.hire(pool="shared", spiders=[spider]) for spider in ("link", "other")}
    for _ in range(6):
        await leased(pair, workers["link"])
        await pair.pass_time(1)
    await pair.pass_time(pause)
    for spider in (first, "link", "other"):
        await leased(pair, workers[spider])
        await pair.pass_time(1)
    slow = pair.model.runs[a_crawl("slow").id]
    for _ in range(14):
        if slow.fetched() == 5:
            break
        for spider in (first, "link", "other"):
            await leased(pair, workers[spider])
        await pair.pass_time(11)
    assert slow.fetched() == 5
    await pair.check()


@pytest.mark.parametrize(
    ("policy", "at_once"),
    [
        (DomainPolicy(hits=10, window_seconds=10.0, moderated=False), 1),
        (DomainPolicy(hits=20, window_seconds=10.0, moderated=False), 4),
        (DomainPolicy(hits=100, window_seconds=2.0, moderated=False), 16),
        (DomainPolicy(hits=100, window_seconds=2.0, moderated=False, concurrency=30), 30),
        (DomainPolicy(hits=10, window_seconds=1.0, moderated=False, concurrency=1), 1),
    ],
)
async def test_requests_in_flight_are_capped(pair: Pair, policy: DomainPolicy, at_once: int) -> None:
    await fill(pair, 40)
    await pair.set_policy("a.test", policy)
    worker, other = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(2)]
    first = await pair.lease_all_due(worker)
    assert len(first) == at_once
    assert await pair.lease_all_due(other) == []
    await pair.fetch(worker, first[:1])
    await pair.pass_time(10 if policy.window_seconds == 10.0 else 2)
    assert len(await pair.lease_all_due(other)) == 1
    await pair.settle(worker, [Settlement(lease, Outcome.RETURNED) for lease in first[1:]])
    await pair.check()


async def test_a_dead_workers_place_in_flight_is_free_again(pair: Pair) -> None:
    await fill(pair, 5)
    dead, living = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(2)]
    assert len(await pair.lease_all_due(dead)) == 1
    pair.kill(dead)
    await pair.pass_time(3)
    assert await pair.lease_all_due(living) == []
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 1
    assert len(await pair.lease_all_due(living)) == 1


async def test_neither_an_empty_poll_nor_a_returned_request_costs_a_hit(pair: Pair) -> None:
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=2, window_seconds=10.0, moderated=False, concurrency=9))
    others = await pair.hire(pool="shared", spiders=["none"])
    for _ in range(5):
        assert await pair.lease(others, limit=5) == []
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    assert len(leases) == 2
    await pair.settle(worker, [Settlement(lease, Outcome.RETURNED) for lease in leases])
    again = await pair.lease_all_due(worker)
    assert len(again) == 2
    await pair.settle(worker, [Settlement(again[0], Outcome.RETURNED), Settlement(again[1], Outcome.FETCHED)])
    assert await over_time(pair, worker, 0.0, 9.5, 0.5) == [1, 0, 0, 2]


@pytest.mark.parametrize("outcome", [Outcome.DROPPED, Outcome.FAILED])
async def test_requests_that_were_refused_unsent_cost_no_hit(pair: Pair, outcome: Outcome) -> None:
    """All of a site that forbids everything end in a moment, at one request in ten seconds."""
    await fill(pair, 6)
    await pair.set_policy("a.test", DomainPolicy(hits=1, window_seconds=10.0))
    worker = await pair.hire(pool="shared", spiders=["link"])
    for unused in (True, True, True, False):
        (lease,) = await pair.lease_all_due(worker)
        await pair.settle(worker, [Settlement(lease, outcome, "robots", unused=unused)])
    assert await pair.lease_all_due(worker) == []
    await pair.check()
    await pair.pass_time(10)
    assert len(await pair.lease_all_due(worker)) == 1


async def test_a_request_returned_long_after_gives_back_no_later_hit(pair: Pair) -> None:
    """Its own hit has left the window by then; those in it were used."""
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=2, window_seconds=10.0, moderated=False, concurrency=9))
    worker = await pair.hire(pool="shared", spiders=["link"])
    held = await pair.lease_all_due(worker)
    assert len(held) == 2
    await pair.pass_time(10)
    assert await leased(pair, worker) == 2
    await pair.settle(worker, [Settlement(lease, Outcome.RETURNED) for lease in held])
    assert await over_time(pair, worker, 9.5, 0.5) == [0, 0, 2]


async def test_even_spacing_counts_from_the_hit_that_was_used(pair: Pair) -> None:
    """What was returned leaves its slot free, with catch-up or without."""
    worker = await pair.hire(pool="shared", spiders=["link"])
    await fill(pair)
    for elastic in (True, False):
        policy = DomainPolicy(hits=4, window_seconds=8.0, elastic=elastic, concurrency=9)
        await pair.set_policy("a.test", policy)
        await pair.pass_time(20)
        await pair.fetch(worker, await pair.lease_all_due(worker))
        await pair.pass_time(2)
        (lease,) = await pair.lease_all_due(worker)
        await pair.pass_time(0.5)
        await pair.settle(worker, [Settlement(lease, Outcome.RETURNED)])
        # It starts at 2.5 s in both cases. With catch-up it was due at 2 s, so the next gap is a tenth shorter.
        assert await over_time(pair, worker, 1.8, 0.2) == ([1, 1, 0] if elastic else [1, 0, 1])


async def test_a_changed_wish_counts_from_the_next_lease(pair: Pair) -> None:
    run = await pair.open(a_crawl("slow", rate=Rate(1, 10.0)))
    assert run is not None
    await pair.add(run, PLAIN, [a_batch("a.test", range(20))])
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert await leased(pair, worker) == 1
    rate = Rate(10, 10.0, moderated=False)
    joined = await pair.frontier.open_crawl(run.crawl)
    run.crawl = (await pair.frontier.set_crawl_limits(joined, rate=rate, concurrency=10)).crawl
    await pair.pass_time(10)
    assert await leased(pair, worker) == 10


async def test_an_egress_that_is_set_while_another_one_is_leased_for(pair: Pair) -> None:
    """Work that waits is listed for it, too, although the call under way was for another new egress."""
    await pair.set_policy(None, DomainPolicy(hits=1, window_seconds=100.0, scope=BudgetScope.IP))
    await fill(pair, 5, "a.test", "b.test")
    worker = await pair.hire(pool="shared", spiders=["link"], egress="192.0.2.1")
    seat: Any = pair.seats[worker]
    call = seat._commands.call

    async def set_another(shard: int, script: str, *arguments: Argument) -> Any:
        reply = await call(shard, script, *arguments)
        if script == "lease":
            seat.set_egress("192.0.2.2")
        return reply

    seat._commands.call = set_another
    assert await seat.lease(limit=1) == []  # nothing is listed yet for an egress that nobody knew
    seat._commands.call = call
    worker.egress = "192.0.2.2"
    assert await leased(pair, worker) == 2
