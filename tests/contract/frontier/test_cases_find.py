"""What is told of one URL: that one, of that crawl and spider, and no other that looks like it."""

import pytest

from gossamer.frontier.valkey import ValkeyFrontier, queries
from gossamer.model.crawl import Run, Terms
from gossamer.model.info import UrlInfo
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl, fingerprint
from .pair import Pair

PLAIN = Terms()
SHORT, LONG = "https://a.test/x", "https://a.test/xy"


async def find(frontier: ValkeyFrontier, run: Run, url: str, *, spider: str = "link") -> UrlInfo:
    mark = fingerprint(spider, url)
    return await frontier.find_url(run, spider=spider, domain="a.test", url=url, fingerprint=mark)


@pytest.mark.parametrize("payload", [None, b"chain"])
async def test_a_longer_url_is_another(pair: Pair, payload: bytes | None) -> None:
    """The shorter one is done while the longer one waits, is held, is to be retried; with a payload or without."""
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["x"]), a_batch("b.test", ["goes-on"])])
    leases = [*await seat.lease(limit=10), *await seat.lease(limit=10)]
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases if lease.domain == "a.test"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["xy"], payloads=[payload])])
    assert [(await find(frontier, run, url)).place for url in (SHORT, LONG)] == ["done", "queued"]
    pair.clock.now += 1
    [lease] = await seat.lease(limit=1)
    assert [(await find(frontier, run, url)).place for url in (SHORT, LONG)] == ["done", "leased"]
    await seat.settle([Settlement(lease, Outcome.RETRY, delay_seconds=30, payload=payload)])
    assert [(await find(frontier, run, url)).place for url in (SHORT, LONG)] == ["done", "later"]
    await seat.close()


async def test_failed_attempts_are_counted_wherever_the_request_is(pair: Pair) -> None:
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["x"])])
    assert (await find(frontier, run, SHORT)).failed_attempts == 0
    for failed in (1, 2):
        [lease] = await seat.lease(limit=1)
        assert (await find(frontier, run, SHORT)).failed_attempts == failed - 1
        await seat.settle([Settlement(lease, Outcome.RETRY, delay_seconds=30)])
        found = await find(frontier, run, SHORT)
        assert (found.place, found.failed_attempts) == ("later", failed)
        pair.clock.now += 31
        await seat.heartbeat(0)
    [lease] = await seat.lease(limit=1)
    await seat.settle([Settlement(lease, Outcome.FETCHED)])
    found = await find(frontier, run, SHORT)
    assert (found.place, found.failed_attempts, found.failure) == ("done", None, "")
    await seat.close()


async def test_the_first_retry_of_a_crawl_is_found_with_its_domain_and_time(pair: Pair) -> None:
    """A retry of another crawl, which is due before, is none of it."""
    frontier = pair.frontier
    runs = {name: await frontier.open_crawl(a_crawl(name)) for name in ("one", "other")}
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    for run, domain in ((runs["one"], "a.test"), (runs["one"], "b.test"), (runs["other"], "c.test")):
        await frontier.add(run, PLAIN, [a_batch(domain, ["x"])])
    assert await frontier.next_retry(runs["one"].crawl.id) is None
    delays = {"a.test": 60.0, "b.test": 30.0, "c.test": 10.0}
    while leases := await seat.lease(limit=10):
        settled = [Settlement(each, Outcome.RETRY, delay_seconds=delays[each.domain]) for each in leases]
        await seat.settle(settled)
    first, other = [await frontier.next_retry(run.crawl.id) for run in runs.values()]
    assert first is not None
    assert other is not None
    assert (first.domain, other.domain) == ("b.test", "c.test")
    assert first.due - other.due == pytest.approx(20.0, abs=1.0)
    await seat.close()


async def test_the_reason_of_a_failed_request_that_its_crawl_keeps_is_found(pair: Pair) -> None:
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl(keep_failed=True))
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link", "other"])
    batches = [a_batch("a.test", ["x"]), a_batch("a.test", ["xy"]), a_batch("a.test", ["x"], spider="other")]
    await frontier.add(run, PLAIN, batches)
    reasons = {("link", SHORT): "connect", ("link", LONG): "http_503", ("other", SHORT): ""}
    while leases := await seat.lease(limit=10):
        for lease in leases:
            reason = reasons[lease.spider, lease.url]
            outcome = Outcome.FAILED if reason else Outcome.FETCHED
            await seat.settle([Settlement(lease, outcome, reason, unanswered=bool(reason))])
        pair.clock.now += 1
    for (spider, url), reason in reasons.items():
        found = await find(frontier, run, url, spider=spider)
        assert (found.place, found.failure) == ("done", reason)
    await seat.close()


async def test_what_is_held_after_a_hop_is_found(pair: Pair) -> None:
    """Its entry carries the chain from then on, and who holds it is told though it was taken for dead."""
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["xy"])])
    [lease] = await seat.lease(limit=1)
    await seat.request_redirect(lease, fingerprint=fingerprint("link", "https://a.test/z"), payload=b"chain")
    found = await find(frontier, run, LONG)
    assert (found.place, found.held_by) == ("leased", seat.worker)
    await seat.close()


async def test_another_spiders_request_is_another(pair: Pair) -> None:
    """The same URL, the same crawl: one spider's is done, the other's is held, then waits for its retry."""
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    link = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    other = await frontier.open_leaseholder(pool="shared", spiders=["other"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["x"]), a_batch("a.test", ["x"], spider="other")])
    [mine] = await link.lease(limit=1)
    await link.settle([Settlement(mine, Outcome.FETCHED)])
    pair.clock.now += 1
    [theirs] = await other.lease(limit=1)
    assert (await find(frontier, run, SHORT)).place == "done"
    assert (await find(frontier, run, SHORT, spider="other")).place == "leased"
    await other.settle([Settlement(theirs, Outcome.RETRY, delay_seconds=30)])
    assert (await find(frontier, run, SHORT)).place == "done"
    assert (await find(frontier, run, SHORT, spider="other")).place == "later"
    await link.close()
    await other.close()


async def test_a_queue_longer_than_the_search_leaves_it_open(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_ENTRIES_LOOKED_AT", 4)
    monkeypatch.setattr(queries, "_ENTRIES_A_CALL", 2)
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch("a.test", range(5))])
    places = [(await find(frontier, run, f"https://a.test/{number}")).place for number in range(6)]
    assert places == ["queued"] * 4 + ["unknown"] * 2
    assert (await find(frontier, run, "https://a.test/4")).seen


async def test_a_request_has_the_terms_of_its_submission(pair: Pair) -> None:
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl())
    for depth, path in ((7, "x"), (8, "xy")):
        await frontier.add(run, Terms(maxdepth=depth), [a_batch("a.test", [path])])
    assert [(await find(frontier, run, url)).terms for url in (SHORT, LONG)] == [Terms(maxdepth=7), Terms(maxdepth=8)]
    await frontier.stop_crawl(run.crawl.id)
    assert [(await find(frontier, run, url)).place for url in (SHORT, LONG)] == ["done", "done"]


async def test_what_a_page_budget_drops_is_done_though_its_entry_is_still_there(pair: Pair) -> None:
    frontier = pair.frontier
    run = await frontier.open_crawl(a_crawl(max_pages=1))
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await frontier.add(run, PLAIN, [a_batch("a.test", ["x", "xy"])])
    while not (leases := await seat.lease(limit=1)):  # the shard asks for its share of the budget first
        pair.clock.now += 1
    [lease] = leases
    [other] = {SHORT, LONG} - {lease.url}
    assert (await find(frontier, run, other)).place == "queued"
    await seat.settle([Settlement(lease, Outcome.FETCHED)])
    found = await find(frontier, run, other)
    assert (found.place, found.dropped, found.terms) == ("done", "budget", PLAIN)
    assert (await find(frontier, run, lease.url)).place == "done"
    await seat.close()
