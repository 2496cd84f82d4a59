"""What the frontier's contract promises of requests and crawls, on every topology."""

import asyncio

import pytest

from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId, CrawlState, Order, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Pair
from .stage import Stage

PLAIN = Terms()


def paths(leases: list[Lease]) -> list[str]:
    return [lease.url.rpartition("/")[2] for lease in leases]


async def submit(pair: Pair, name: str, *batches: Batch, terms: Terms = PLAIN, **options: object) -> None:
    run = await pair.open(a_crawl(name, **options))
    assert run is not None
    await pair.add(run, terms, batches)


async def one_by_one(pair: Pair, worker: object, count: int, *, seconds: float = 1.0) -> list[Lease]:
    """Lease one, settle it, wait until the next may come."""
    found: list[Lease] = []
    for _ in range(count):
        leases = await pair.lease_all_due(worker, limit=1)  # type: ignore[arg-type]
        await pair.fetch(worker, leases)  # type: ignore[arg-type]
        found += leases
        await pair.pass_time(seconds)
    return found


# --- one entry, one place ---------------------------------------------------------------------------------------------


async def test_a_leased_request_is_not_leased_twice(pair: Pair) -> None:
    """Two workers never hold the same request while its holder lives."""
    await submit(pair, "one", a_batch("a.test", ["x"]))
    first = await pair.hire(pool="shared", spiders=["link"])
    second = await pair.hire(pool="shared", spiders=["link"])
    assert paths(await pair.lease_all_due(first)) == ["x"]
    await pair.pass_time(5)
    assert await pair.lease_all_due(second) == []
    await pair.check()


async def test_many_at_once_take_each_request_once(pair: Pair) -> None:
    """Ten workers that lease at the same moment share the work without an overlap."""
    await submit(pair, "one", *[a_batch(f"d{number}.test", range(3)) for number in range(40)])
    seats = [await pair.frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(10)]
    leases = [lease for found in await asyncio.gather(*[seat.lease(limit=10) for seat in seats]) for lease in found]
    urls = [lease.url for lease in leases]
    assert len(urls) == len(set(urls))
    assert len({lease.domain for lease in leases}) == len(leases), "one hit a second a domain"
    for seat in seats:
        await seat.close()


async def test_the_same_url_from_many_at_once_is_one_entry(pair: Pair) -> None:
    """Dedupe and enqueue are one step."""
    run = await pair.frontier.open_crawl(a_crawl())
    answers = await asyncio.gather(*[pair.frontier.add(run, PLAIN, [a_batch("a.test", range(20))]) for _ in range(8)])
    assert sum(answer.added for answer in answers) == 20
    assert sum(answer.duplicates for answer in answers) == 7 * 20
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.seen, info.total().queued) == (20, 20)


async def test_a_url_twice_in_one_call_is_one_entry(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x", "y", "x"]), a_batch("a.test", ["y", "z"], priority=5))
    await pair.check()


async def test_a_page_that_links_to_its_seed_adds_nothing(pair: Pair) -> None:
    """A seed is no exception, whether it waits, is held or is done."""
    await submit(pair, "one", a_batch("a.test", ["seed"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    run = pair.model.run_of(leases[0].run)
    assert (await pair.add(run, PLAIN, [a_batch("a.test", ["seed", "next"], depth=1)])).duplicates == 1
    await pair.fetch(worker, leases)
    assert (await pair.add(run, PLAIN, [a_batch("a.test", ["seed"], depth=2)])).duplicates == 1
    await pair.check()


async def test_another_spider_is_another_request(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]), a_batch("a.test", ["x"], spider="other"))
    link = await pair.hire(pool="shared", spiders=["link"])
    other = await pair.hire(pool="shared", spiders=["other"])
    mine = await pair.lease_all_due(link)
    await pair.fetch(link, mine)
    await pair.pass_time(1)
    theirs = await pair.lease_all_due(other)
    assert [lease.spider for lease in mine + theirs] == ["link", "other"]
    assert mine[0].request_id != theirs[0].request_id
    await pair.check()


async def test_two_crawls_do_not_share_what_they_have_seen(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]))
    await submit(pair, "two", a_batch("a.test", ["x"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    found = await one_by_one(pair, worker, 2)
    assert {lease.run.crawl.id.crawlid for lease in found} == {"one", "two"}
    assert len({lease.request_id for lease in found}) == 2


async def test_unfiltered_requests_are_added_again(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"]), a_batch("a.test", ["x", "x"], unfiltered=True))
    worker = await pair.hire(pool="shared", spiders=["link"])
    found = await one_by_one(pair, worker, 3)
    assert paths(found) == ["x", "x", "x"]
    assert len({lease.request_id for lease in found}) == 3
    await pair.check()


@pytest.mark.parametrize("count", [1, 511, 513, 5000])
async def test_what_was_seen_stays_seen_however_many(pair: Pair, count: int) -> None:
    """The seen-set grows bucket by bucket; no step of its growth forgets or invents a fingerprint."""
    run = await pair.frontier.open_crawl(a_crawl())
    for start in range(0, count, 700):
        batch = a_batch("a.test", range(start, min(start + 700, count)))
        assert (await pair.frontier.add(run, PLAIN, [batch])).added == len(batch.urls)
    again = await pair.frontier.add(run, PLAIN, [a_batch("a.test", range(count + 100))])
    assert (again.added, again.duplicates) == (100, count)
    info = await pair.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.seen == count + 100


@pytest.mark.parametrize("known", [0, 1, 2, 300])
async def test_one_call_adds_a_url_once_and_rejects_what_has_no_room(pair: Pair, known: int) -> None:
    """However many were seen before: URLs are looked up one by one, or together."""
    run = await pair.frontier.open_crawl(a_crawl())
    if known:
        assert (await pair.frontier.add(run, PLAIN, [a_batch("a.test", range(known))])).added == known
    twice = [*range(known), *range(1000, 1010), *range(1000, 1010)]
    result = await pair.frontier.add(run, Terms(domain_max_pending=known + 5), [a_batch("a.test", twice)])
    assert (result.added, result.duplicates) == (5, known + 5)
    places = [known + place for place in (5, 6, 7, 8, 9, 15, 16, 17, 18, 19)]
    assert result.rejected == {(0, place): "budget" for place in places}
    again = await pair.frontier.add(run, PLAIN, [a_batch("a.test", twice)])
    assert (again.added, again.duplicates) == (5, known + 15)


@pytest.mark.parametrize("value", [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
async def test_every_fingerprint_counts_in_full(pair: Pair, value: int) -> None:
    """Lua's numbers hold 53 bits, fingerprints 64: neighbours must not meet."""
    run = await pair.frontier.open_crawl(a_crawl())
    prints = sorted({value, max(value - 1, -(2**63)), min(value + 1, 2**63 - 1)})
    urls = [f"https://a.test/{number}" for number in range(len(prints))]
    batch = Batch("link", "a.test", 0, 0, urls, prints)
    assert (await pair.frontier.add(run, PLAIN, [batch])).added == len(prints)
    assert (await pair.frontier.add(run, PLAIN, [batch])).duplicates == len(prints)


# --- order ------------------------------------------------------------------------------------------------------------


async def test_higher_priority_first_then_first_in_first_out(pair: Pair) -> None:
    await submit(
        pair,
        "one",
        a_batch("a.test", ["l1", "l2"], priority=-10),
        a_batch("a.test", ["m1", "m2"]),
        a_batch("a.test", ["h1"], priority=9),
    )
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert paths(await one_by_one(pair, worker, 5)) == ["h1", "m1", "m2", "l1", "l2"]


async def test_last_in_first_out_where_the_crawl_says_so(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["1", "2", "3"]), order=Order.LIFO)
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert paths(await one_by_one(pair, worker, 3)) == ["3", "2", "1"]


async def test_crawls_of_one_priority_take_turns(pair: Pair) -> None:
    """A crawl of many requests does not starve a crawl of one."""
    await submit(pair, "large", a_batch("a.test", range(30)))
    await submit(pair, "small", a_batch("a.test", ["x", "y"]))
    await submit(pair, "third", a_batch("a.test", ["x", "y"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    turns = [lease.run.crawl.id.crawlid for lease in await one_by_one(pair, worker, 6)]
    assert sorted(turns[:3]) == sorted(turns[3:]) == ["large", "small", "third"]


async def test_domains_do_not_wait_for_each_other(pair: Pair) -> None:
    await submit(pair, "one", *[a_batch(f"d{number}.test", range(2)) for number in range(25)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert len(await pair.lease_all_due(worker)) == 25
    await pair.check()


async def test_a_limit_is_a_limit(pair: Pair) -> None:
    await submit(pair, "one", *[a_batch(f"d{number}.test", range(2)) for number in range(12)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    counts = [len(await pair.lease(worker, limit=5)) for _ in range(20)]
    assert sum(counts) == 12
    assert max(counts) <= 5


# --- what travels with a request --------------------------------------------------------------------------------------


async def test_everything_submitted_comes_back(pair: Pair) -> None:
    """URL, payload, terms, depth, priority and run, byte for byte."""
    payloads = [None, b"\0\xff\r\n" * 9, "größe".encode(), b"x" * 70_000]
    terms = Terms(maxdepth=3, attrs={"a": [1, {"b": None}]}, headers={"X": "ü"}, deny_extensions=("zip",))
    batch = a_batch("a.test", ["x?q=%C3%BC", "|y|", "{z}", "long" * 500], payloads=payloads, depth=7, priority=-40)
    await submit(pair, "one", batch, terms=terms)
    worker = await pair.hire(pool="shared", spiders=["link"])
    found = await one_by_one(pair, worker, 4)
    assert [lease.url for lease in found] == batch.urls
    assert [lease.payload for lease in found] == payloads
    assert all(lease.terms == terms for lease in found)
    assert {(lease.depth, lease.priority, lease.attempt) for lease in found} == {(7, -40, 0)}


async def test_a_payload_of_a_megabyte_travels_and_a_larger_one_is_refused_by_name(pair: Pair) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.add(run, PLAIN, [a_batch("a.test", ["big"], payloads=[b"p" * 1_000_000])])
    with pytest.raises(BadInput, match="payload"):
        await pair.frontier.add(
            pair.handles[run.crawl.id], PLAIN, [a_batch("a.test", ["huge"], payloads=[b"p" * 9_000_000])]
        )
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert [len(lease.payload or b"") for lease in await pair.lease_all_due(worker)] == [1_000_000]
    await pair.check()


@pytest.mark.parametrize("name", ["a|b", "a,b", "a\nb"])
async def test_names_that_cannot_be_kept_apart_are_refused(pair: Pair, name: str) -> None:
    """The same names for those who submit as for those who work."""
    for pool, spider in [(name, "link"), ("shared", name)]:
        with pytest.raises(BadInput):
            await pair.frontier.open_leaseholder(pool=pool, spiders=[spider])
        with pytest.raises(BadInput):
            await submit(pair, f"{pool}{spider}", a_batch("a.test", ["x"], spider=spider), pool=pool)


async def test_each_submission_keeps_its_own_terms(pair: Pair) -> None:
    for number in range(5):
        await submit(pair, "one", a_batch(f"d{number}.test", ["x"]), terms=Terms(attrs={"n": number}))
    worker = await pair.hire(pool="shared", spiders=["link"])
    found = await pair.lease_all_due(worker)
    assert {lease.domain: lease.terms.attrs for lease in found} == {f"d{n}.test": {"n": n} for n in range(5)}


async def test_odd_names_stay_apart(pair: Pair) -> None:
    """Separators, spaces and letters of every alphabet in the names of pools and spiders."""
    names = ["a", "a:b", "b", "a b", "ü{1}", "x:y", "%s", "*", "a/b"]
    for name in names:
        await submit(pair, name, a_batch("a.test", ["x"], spider=f"s{name}"), pool=f"p{name}")
    for name in names:
        worker = await pair.hire(pool=f"p{name}", spiders=[f"s{name}"])
        await pair.pass_time(1)
        leases = await pair.lease_all_due(worker)
        assert [lease.run.crawl.id.crawlid for lease in leases] == [name]
        await pair.fetch(worker, leases)
    await pair.check()


# --- settling ---------------------------------------------------------------------------------------------------------


async def test_a_retry_waits_and_comes_back_with_lower_priority(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x"], priority=5))
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    await pair.settle(worker, [Settlement(lease, Outcome.RETRY, delay_seconds=30)])
    await pair.check()
    await pair.pass_time(29)
    assert await pair.lease_all_due(worker) == []
    await pair.pass_time(1.5)
    (again,) = await pair.lease_all_due(worker)
    assert (again.attempt, again.priority, again.request_id) == (1, -5, lease.request_id)
    await pair.check()


async def test_what_is_returned_comes_first_again(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x", "y", "z"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    await pair.settle(worker, [Settlement(lease, Outcome.RETURNED) for lease in leases])
    await pair.check()
    await pair.pass_time(1)
    found = await one_by_one(pair, worker, 3)
    assert paths(found) == ["x", "y", "z"]
    assert {lease.attempt for lease in found} == {0}


async def test_what_is_forwarded_comes_first_with_its_new_payload(pair: Pair) -> None:
    await submit(pair, "one", a_batch("a.test", ["x", "y"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    await pair.settle(worker, [Settlement(lease, Outcome.FORWARDED, payload=b"chain")])
    await pair.pass_time(1)
    found = await one_by_one(pair, worker, 2)
    assert [(lease.url, lease.payload) for lease in found] == [
        ("https://a.test/x", b"chain"),
        ("https://a.test/y", None),
    ]
    assert found[0].request_id == lease.request_id


async def test_outcomes_are_counted_by_reason(pair: Pair) -> None:
    await submit(pair, "one", *[a_batch(f"d{number}.test", ["x"]) for number in range(6)])
    worker = await pair.hire(pool="shared", spiders=["link"])
    leases = await pair.lease_all_due(worker)
    endings = [
        (Outcome.FETCHED, ""),
        (Outcome.FETCHED, ""),
        (Outcome.FAILED, "dns"),
        (Outcome.FAILED, "http_404"),
        (Outcome.FAILED, "dns"),
        (Outcome.DROPPED, "robots"),
    ]
    await pair.settle(
        worker,
        [
            Settlement(lease, outcome, reason, drops={"offsite": 2, "duplicate": 3})
            for lease, (outcome, reason) in zip(leases, endings, strict=True)
        ],
    )
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    total = info.total()
    assert (total.fetched, total.failed, total.dropped) == (2, {"dns": 2, "http_404": 1}, {"robots": 1})
    assert total.links_dropped["offsite"] == 12
    await pair.check()


async def test_a_worker_that_leaves_gives_everything_back(pair: Pair) -> None:
    """In front, at once, and not as an attempt."""
    await submit(pair, "one", a_batch("a.test", ["x", "y"]), a_batch("b.test", ["x", "y"]))
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert len(await pair.lease_all_due(worker)) == 2
    await pair.close(worker)
    await pair.check()
    await pair.pass_time(1)
    second = await pair.hire(pool="shared", spiders=["link"])
    assert {(lease.url[-1], lease.attempt) for lease in await pair.lease_all_due(second)} == {("x", 0)}


# --- budgets ----------------------------------------------------------------------------------------------------------


async def test_max_pages_is_never_exceeded(pair: Pair) -> None:
    """Only what is fetched counts; what else happens to a lease gives its allowance back."""
    await submit(pair, "one", *[a_batch(f"d{number}.test", range(3)) for number in range(20)], max_pages=7)
    workers = [await pair.hire(pool="shared", spiders=["link"]) for _ in range(3)]
    for endings in ([Outcome.FAILED, Outcome.RETURNED, Outcome.FETCHED], [Outcome.RETRY, Outcome.FETCHED]):
        for worker in workers:
            held = await pair.lease_all_due(worker)
            turns = [endings[n % len(endings)] for n in range(len(held))]
            await pair.settle(worker, [Settlement(a, b, "dns") for a, b in zip(held, turns, strict=True)])
            await pair.check()
        await pair.pass_time(2)
    await pair.drain()
    info = await pair.frontier.crawl_info(CrawlId("app", "one"))
    assert info is not None
    assert info.total().fetched == 7
    assert info.total().dropped["budget"] > 0
    assert info.state is CrawlState.FINISHED


@pytest.mark.parametrize("pages", [1, 2])
async def test_a_small_budget_of_pages_is_used_in_full(pair: Pair, pages: int) -> None:
    await submit(pair, "one", *[a_batch(f"d{number}.test", range(2)) for number in range(9)], max_pages=pages)
    await pair.drain()
    assert pair.model.runs[CrawlId("app", "one")].fetched() == pages


async def test_domain_max_pages_bounds_every_domain(pair: Pair) -> None:
    terms = Terms(domain_max_pages=2)
    await submit(
        pair, "one", a_batch("a.test", range(9)), a_batch("b.test", range(3)), a_batch("c.test", [1]), terms=terms
    )
    await pair.drain()
    run = pair.model.runs[CrawlId("app", "one")]
    assert [run.fetched(domain) for domain in ("a.test", "b.test", "c.test")] == [2, 2, 1]


async def test_domain_max_pending_bounds_an_endless_site_and_nothing_else(pair: Pair) -> None:
    """What the cap drops is counted and not seen: found again when there is room, it is taken."""
    terms = Terms(domain_max_pending=4)
    run = await pair.open(a_crawl())
    assert run is not None
    answer = await pair.add(run, terms, [a_batch("endless.test", range(50)), a_batch("small.test", range(3))])
    assert (answer.added, answer.rejected_by_reason) == (7, {"budget": 46})
    assert list(answer.rejected) == [(0, position) for position in range(4, 50)]
    await pair.check()
    worker = await pair.hire(pool="shared", spiders=["link"])
    assert len(await pair.lease_all_due(worker)) == 2
    again = await pair.add(run, terms, [a_batch("endless.test", range(50), depth=1)])
    assert (again.added, again.duplicates, next(iter(again.rejected))) == (1, 4, (0, 5))
    await pair.check()


async def test_a_repeated_add_has_the_answer_of_a_single_one(pair: Pair) -> None:
    """What the first attempt added is no duplicate, however many calls it took and whichever answer was lost."""
    run = await pair.open(a_crawl())
    assert run is not None
    for lost in range(4):
        first = lost * 1000
        long = a_batch("long.test", range(first, first + 1300))  # more than one call takes
        short = [a_batch(f"d{number}.test", range(first, first + 3)) for number in range(5)]
        pair.lose_reply(lost)
        answer = await pair.add(run, PLAIN, [long, *short], seeds=True)
        assert (answer.added, answer.duplicates) == ((1315, 0) if lost == 0 else (1015, 300))


async def test_answers_to_additions_are_not_kept_for_every_one(pair: Pair, stage: Stage) -> None:
    run = await pair.open(a_crawl())
    assert run is not None
    for number in range(30):
        await pair.add(run, PLAIN, [a_batch("a.test", [number])])
    kept = [key for key in await stage.keys() if "}:call:" in key]
    assert len(kept) == 1
