"""What the frontier's contract promises of failed requests that a crawl keeps, to be retried when it is begun again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.base import FailureFilter
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlState, Rate, Run, Terms
from gossamer.model.info import CrawlInfo, UrlInfo
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, a_crawl, fingerprint
from .pair import Clock
from .stage import Stage

OLD, NEW = Terms(useragent="old"), Terms(useragent="new", insecure=True)
FAST = {"rate": Rate(1000, 1.0), "concurrency": 1000}
DOMAINS = [f"d{number}.test" for number in range(6)]


class Crawled:
    """A crawl that keeps what fails, and a worker for it."""

    def __init__(self, frontier: ValkeyFrontier, clock: Clock, worker: ValkeyLeaseholder, crawl: Crawl) -> None:
        self.frontier, self.clock, self.worker, self.crawl = frontier, clock, worker, crawl

    async def start(self, terms: Terms, paths: Sequence[object] = ("x",), *, fresh: bool = False) -> tuple[Run, int]:
        """As a command does: the run, and the number of requests that are retried."""
        run, retried = await self.frontier.open_crawl(self.crawl, fresh=fresh), 0
        if not fresh:
            run, retried = await self.frontier.retry_failed(run, terms)
        await self.frontier.add(run, terms, [a_batch(domain, paths) for domain in DOMAINS], seeds=True)
        return run, retried

    async def lease_all(self) -> list[Lease]:
        leases: list[Lease] = []
        for _ in range(40):
            self.clock.now += 1
            leases += await self.worker.lease(limit=100)
        return leases

    async def settle(self, leases: Collection[Lease], outcome: Outcome, *, unanswered: bool = False) -> None:
        reason = "" if outcome is Outcome.FETCHED else "dns"
        await self.worker.settle([Settlement(lease, outcome, reason, unanswered=unanswered) for lease in leases])

    async def info(self) -> CrawlInfo:
        info = await self.frontier.crawl_info(self.crawl.id)
        assert info is not None
        total = info.total()
        assert total.added == total.queued + total.later + total.leased + total.done
        return info


@pytest.fixture
async def crawled(stage: Stage) -> AsyncIterator[Crawled]:
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    yield Crawled(frontier, clock, worker, a_crawl(keep_failed=True, **FAST))
    await worker.close()
    await stage.leave()


async def test_they_are_leased_once_more_under_the_new_terms_and_the_counts_are_those_of_all_runs(
    crawled: Crawled,
) -> None:
    await crawled.start(OLD, ["good", "bad"])
    leases = await crawled.lease_all()
    bad = [lease for lease in leases if lease.url.endswith("bad")]
    await crawled.settle([lease for lease in leases if lease not in bad], Outcome.FETCHED)
    await crawled.settle(bad, Outcome.FAILED, unanswered=True)
    info = await crawled.info()
    assert (info.state, info.run, info.kept_failed) == (CrawlState.FINISHED, 1, 6)
    assert (info.total().fetched, info.total().failed) == (6, {"dns": 6})

    run, retried = await crawled.start(NEW, ["good", "bad"])
    assert (run.number, retried) == (2, 6)
    info = await crawled.info()
    assert (info.state, info.kept_failed, info.total().fetched, info.total().failed) == (CrawlState.RUNNING, 0, 6, {})
    again = await crawled.lease_all()
    assert sorted(lease.url for lease in again) == sorted(lease.url for lease in bad)
    assert {(lease.attempt, lease.terms) for lease in again} == {(0, NEW)}
    assert not {lease.request_id for lease in again} & {lease.request_id for lease in bad}
    await crawled.settle(again[1:], Outcome.FETCHED)
    await crawled.settle(again[:1], Outcome.FAILED, unanswered=True)
    info = await crawled.info()
    assert (info.state, info.kept_failed) == (CrawlState.FINISHED, 1)
    assert (info.total().fetched, info.total().failed) == (11, {"dns": 1})


async def test_the_reason_of_a_failure_is_told_until_the_request_is_retried(crawled: Crawled) -> None:
    run, _ = await crawled.start(OLD, ["bad"])
    await crawled.settle(await crawled.lease_all(), Outcome.RETRY)
    lease = (leases := await crawled.lease_all())[0]
    assert lease.attempt == 1
    await crawled.settle(leases, Outcome.FAILED, unanswered=True)

    async def find(run: Run) -> UrlInfo:
        mark = fingerprint("link", lease.url)
        return await crawled.frontier.find_url(run, spider="link", domain=lease.domain, url=lease.url, fingerprint=mark)

    assert ((found := await find(run)).place, found.failure, found.failed_attempts) == ("done", "dns", None)
    run, _ = await crawled.start(NEW, ["bad"])
    assert ((found := await find(run)).place, found.failure, found.failed_attempts) == ("queued", "", 0)


async def test_those_of_a_reason_may_stay_for_a_later_start(crawled: Crawled) -> None:
    run, _ = await crawled.start(OLD, range(300))  # more than one call retries
    leases = await crawled.lease_all()
    refused = {lease.url for lease in leases if lease.url.endswith("7")}
    await crawled.worker.settle(
        [
            Settlement(lease, Outcome.DROPPED, "blocked_address", unanswered=True)
            if lease.url in refused
            else Settlement(lease, Outcome.FAILED, "dns", unanswered=True)
            for lease in leases
        ]
    )
    for _ in range(2):  # the second finds only those that stay
        run, retried = await crawled.frontier.retry_failed(run, NEW, keep_reason="blocked_address")
        assert retried == len(leases) - len(refused)
        info = await crawled.info()
        assert (info.kept_failed, info.total().dropped) == (len(refused), {"blocked_address": len(refused)})
        again = await crawled.lease_all()
        assert not {lease.url for lease in again} & refused
        await crawled.settle(again, Outcome.FAILED, unanswered=True)
    _, retried = await crawled.frontier.retry_failed(run, NEW)
    assert retried == len(leases)
    assert (await crawled.info()).kept_failed == 0


async def test_an_answer_is_not_kept_and_a_crawl_that_does_not_ask_keeps_nothing(crawled: Crawled) -> None:
    await crawled.start(OLD)
    await crawled.settle(await crawled.lease_all(), Outcome.FAILED)
    assert (await crawled.info()).kept_failed == 0
    crawled.crawl = a_crawl("two", **FAST)
    await crawled.start(OLD)
    await crawled.settle(await crawled.lease_all(), Outcome.FAILED, unanswered=True)
    assert (await crawled.info()).kept_failed == 0


async def test_a_running_crawl_retries_them_and_its_queued_requests_get_the_new_terms(crawled: Crawled) -> None:
    await crawled.start(OLD, ["first", "second"])
    leases = await crawled.lease_all()
    await crawled.settle(leases[:3], Outcome.FAILED, unanswered=True)
    await crawled.settle(leases[3:], Outcome.RETRY)
    run, retried = await crawled.start(NEW, ["first", "second"])
    assert (run.number, retried) == (1, 3)
    again = await crawled.lease_all()
    assert sorted(lease.url for lease in again) == sorted(lease.url for lease in leases)
    assert {lease.terms for lease in again} == {NEW}
    known = {lease.request_id for lease in leases}
    assert len([lease for lease in again if lease.request_id not in known]) == 3  # the retried ones are new requests
    await crawled.settle(again, Outcome.FETCHED)
    assert (await crawled.info()).state is CrawlState.FINISHED


async def test_a_fresh_run_begins_without_them(crawled: Crawled) -> None:
    await crawled.start(OLD)
    await crawled.settle(await crawled.lease_all(), Outcome.FAILED, unanswered=True)
    await crawled.start(OLD, fresh=True)
    info = await crawled.info()
    assert (info.kept_failed, info.total().failed, info.total().queued) == (0, {}, 6)


async def test_a_lost_reply_and_two_commands_at_once_lose_and_double_none(crawled: Crawled, stage: Stage) -> None:
    await crawled.start(OLD, range(20))
    failed = await crawled.lease_all()
    assert len(failed) == 120
    await crawled.settle(failed, Outcome.FAILED, unanswered=True)
    for countdown in range(4):
        stage.connections[0].countdown = countdown
        with contextlib.suppress(FrontierUnavailable):
            await crawled.frontier.retry_failed(await crawled.frontier.open_crawl(crawled.crawl), NEW)
    stage.connections[0].countdown = None
    other = await stage.frontier(clock=crawled.clock)
    run = await other.open_crawl(crawled.crawl)
    await asyncio.gather(crawled.start(NEW, range(20)), other.retry_failed(run, NEW))
    again = await crawled.lease_all()
    assert sorted(lease.url for lease in again) == sorted(lease.url for lease in failed)
    await crawled.settle(again, Outcome.FETCHED)
    info = await crawled.info()
    assert (info.state, info.kept_failed, info.total().fetched) == (CrawlState.FINISHED, 0, 120)


async def test_the_page_budget_goes_on_with_what_was_fetched_before(crawled: Crawled) -> None:
    crawled.crawl = a_crawl(keep_failed=True, **FAST, max_pages=8)
    await crawled.start(OLD)
    leases = await crawled.lease_all()
    await crawled.settle(leases[:4], Outcome.FAILED, unanswered=True)
    await crawled.settle(leases[4:], Outcome.FETCHED)
    await crawled.start(OLD, ["x", "y"])
    for _ in range(20):
        await crawled.settle(await crawled.lease_all(), Outcome.FETCHED)
        await crawled.frontier.maintain()
    info = await crawled.info()
    assert (info.state, info.total().fetched) == (CrawlState.FINISHED, 8)
    assert info.total().dropped == {"budget": 4}


async def test_a_crawl_with_too_many_of_them_counts_those_that_it_cannot_keep(crawled: Crawled) -> None:
    """Payloads of half a megabyte, so that few requests fill the list of a shard."""
    run = await crawled.frontier.open_crawl(crawled.crawl)
    paths = range(80)
    batch = a_batch("a.test", paths, payloads=[bytes(500_000) for _ in paths])
    await crawled.frontier.add(run, OLD, [batch], seeds=True)
    while leases := await crawled.lease_all():
        await crawled.settle(leases, Outcome.FAILED, unanswered=True)
    info = await crawled.info()
    assert info.kept_failed + info.forgotten_failed == 80
    assert 60 < info.kept_failed < 70
    _, retried = await crawled.frontier.retry_failed(await crawled.frontier.open_crawl(crawled.crawl), NEW)
    assert retried == info.kept_failed


async def test_a_crawl_of_a_service_keeps_all_that_fails_until_a_run_with_new_counters(crawled: Crawled) -> None:
    """Any answer is kept; a choice of reason or URL retries no other; terms stay; a retry goes on with the counters."""
    crawled.crawl = a_crawl(keep_all_failed=True, **FAST)
    run = await crawled.frontier.open_crawl(crawled.crawl)
    payloads = [b"kept", None, None]
    batch = a_batch("a.test", ["post", "gone", "busy"], payloads=payloads)
    await crawled.frontier.add(run, OLD, [batch], seeds=True)
    await crawled.frontier.add(run, NEW, [a_batch("b.test", ["good", "late"])], seeds=True)
    reasons = {"post": "http_500", "gone": "http_404", "busy": "http_500", "late": "http_404"}
    leases = await crawled.lease_all()

    async def settle(leases: Collection[Lease]) -> None:
        await crawled.worker.settle(
            [
                Settlement(lease, Outcome.FAILED if name in reasons else Outcome.FETCHED, reasons.get(name, ""))
                for lease in leases
                for name in [lease.url.rpartition("/")[2]]
            ]
        )

    await settle(leases)
    info = await crawled.info()
    assert (info.state, info.kept_failed, info.total().fetched) == (CrawlState.FINISHED, 4, 1)
    goes_on = a_crawl(keep_all_failed=True, keep_failed=True, **FAST)
    run = await crawled.frontier.open_crawl(goes_on)
    run, retried = await crawled.frontier.retry_failed(run, None, only=FailureFilter(reason="http_500"))
    assert (run.number, retried) == (2, 2)
    again = {lease.url.rpartition("/")[2]: lease for lease in await crawled.lease_all()}
    assert set(again) == {"post", "busy"}
    assert (again["post"].payload, again["post"].terms, again["post"].attempt) == (b"kept", OLD, 0)
    await settle(again.values())
    assert (await crawled.info()).total().failed == {"http_500": 2, "http_404": 2}
    run = await crawled.frontier.open_crawl(goes_on)
    only = FailureFilter(url="https://b.test/late")
    assert (await crawled.frontier.retry_failed(run, None, only=FailureFilter(url="https://b.test/lat")))[1] == 0
    assert (await crawled.frontier.retry_failed(run, None, only=only))[1] == 1
    [late] = await crawled.lease_all()
    assert (late.url, late.terms) == ("https://b.test/late", NEW)
    await crawled.worker.settle([Settlement(late, Outcome.FETCHED)])
    info = await crawled.info()
    assert (info.kept_failed, info.total().fetched, info.total().failed) == (3, 2, {"http_500": 2, "http_404": 1})
    # Another submission begins a run with counters of its own: what failed before belongs to an earlier run.
    run = await crawled.frontier.open_crawl(crawled.crawl)
    await crawled.frontier.add(run, OLD, [a_batch("a.test", ["new"])], seeds=True)
    info = await crawled.info()
    assert (info.kept_failed, info.total().failed, info.total().queued) == (0, {}, 1)
    assert (await crawled.frontier.retry_failed(run, None))[1] == 0
