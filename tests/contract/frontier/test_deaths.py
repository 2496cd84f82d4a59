"""A request is given up when workers died with it, and only then: a worker that was merely late has not died."""

import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.base import ClaimResult
from gossamer.model.crawl import CrawlId, CrawlState, Terms
from gossamer.model.request import MAX_DEATHS, Lease, Outcome, Settlement

from .asking import a_batch, a_crawl, fingerprint
from .model import DOUBT_HEARTBEATS, MOST_SILENT, ModelWorker
from .pair import Clock, Pair
from .stage import Stage

PLAIN = Terms()
ONE = CrawlId("app", "one")
URL = "https://a.test/page"


async def submit(pair: Pair) -> None:
    run = await pair.open(a_crawl("one"))
    assert run is not None
    await pair.add(run, PLAIN, [a_batch("a.test", ["page"])])


async def hire(pair: Pair) -> ModelWorker:
    return await pair.hire(pool="shared", spiders=["link"])


async def fall_silent(pair: Pair) -> tuple[ModelWorker, Lease]:
    """A new worker leases the request, says nothing more and is taken for dead."""
    worker = await hire(pair)
    (lease,) = await pair.lease_all_due(worker)
    pair.kill(worker)
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 1
    await pair.check()
    return worker, lease


async def doubt_ends(pair: Pair) -> None:
    await pair.pass_time(DOUBT_HEARTBEATS * pair.model.dead_after_seconds + 1)


async def give_up(pair: Pair) -> None:
    """The request comes as one that is not to be touched."""
    warned = await hire(pair)
    (lease,) = await pair.lease_all_due(warned)
    assert lease.deaths == MAX_DEATHS
    await pair.settle(warned, [Settlement(lease, Outcome.FAILED, "worker_died")])
    await pair.check()
    info = await pair.frontier.crawl_info(ONE)
    assert info is not None
    assert (info.state, info.total().failed) == (CrawlState.FINISHED, {"worker_died": 1})


async def test_a_page_that_kills_its_worker_is_given_up_after_three(pair: Pair) -> None:
    """The worker that gets it then fails it without touching it; it cannot kill them all."""
    await submit(pair)
    for death in range(MAX_DEATHS):
        _, lease = await fall_silent(pair)
        assert (lease.deaths, lease.attempt) == (death, death)
    assert await pair.lease_all_due(await hire(pair)) == []  # its last worker may still speak again
    await doubt_ends(pair)
    await give_up(pair)


@pytest.mark.parametrize("at_once", [True, False], ids=["soon", "when all three were taken for dead"])
async def test_a_page_whose_workers_were_only_late_is_not_given_up(pair: Pair, at_once: bool) -> None:
    await submit(pair)
    late = []
    for _ in range(MAX_DEATHS):
        worker, _ = await fall_silent(pair)
        if at_once:
            pair.kill(await pair.wake(worker))
        else:
            late.append(worker)
    for worker in late:
        pair.kill(await pair.wake(worker))
    await doubt_ends(pair)
    living = await hire(pair)
    (lease,) = await pair.lease_all_due(living)
    assert (lease.deaths, lease.attempt) == (0, MAX_DEATHS)
    await pair.fetch(living, [lease])
    await pair.check()


@pytest.mark.parametrize("nth", range(MAX_DEATHS))
async def test_one_late_worker_of_three_saves_the_page(pair: Pair, nth: int) -> None:
    """Whichever of them it was: two deaths are not enough."""
    await submit(pair)
    silent = [(await fall_silent(pair))[0] for _ in range(MAX_DEATHS)]
    pair.kill(await pair.wake(silent[nth]))
    await doubt_ends(pair)
    living = await hire(pair)
    (lease,) = await pair.lease_all_due(living)
    assert lease.deaths == MAX_DEATHS - 1
    await pair.fetch(living, [lease])
    await pair.check()


@pytest.mark.parametrize("call", ["heartbeat", "lease", "hop", "settle", "close"])
async def test_whatever_a_late_worker_says_it_has_not_died(pair: Pair, call: str) -> None:
    await submit(pair)
    worker, lease = await fall_silent(pair)
    seat = pair.seats[worker]
    match call:
        case "heartbeat":
            await seat.heartbeat()
        case "lease":
            assert await seat.lease(limit=1) == []
        case "hop":
            with pytest.raises(LeaseLost):
                await seat.request_redirect(lease, fingerprint=1, payload=b"")
        case "settle":
            await seat.settle([Settlement(lease, Outcome.FETCHED)])
        case "close":
            await pair.seats.pop(worker).close()
    pair.model.spoke_again.add(worker)
    (again,) = await pair.lease_all_due(await hire(pair))
    assert again.deaths == 0


async def test_a_page_that_silences_ten_workers_is_given_up(pair: Pair) -> None:
    """They live, but would never get anywhere: each is taken for dead before the page is done."""
    await submit(pair)
    for _ in range(MOST_SILENT):
        worker, lease = await fall_silent(pair)
        assert lease.deaths == 0
        pair.kill(await pair.wake(worker))
    await give_up(pair)


async def test_deaths_stay_with_a_request_that_is_put_off(pair: Pair) -> None:
    """However its payload changes meanwhile, it is found by its URL and its workers are remembered."""
    await submit(pair)
    await fall_silent(pair)
    worker = await hire(pair)
    for outcome in (Outcome.FORWARDED, Outcome.RETRY, Outcome.RETURNED):
        (lease,) = await pair.lease_all_due(worker)
        assert (lease.deaths, lease.url) == (1, URL)
        payload = None if outcome is Outcome.RETURNED else outcome.value.encode()
        await pair.settle(worker, [Settlement(lease, outcome, payload=payload)])
        await pair.check()
        mark = fingerprint("link", URL)
        found = await pair.frontier.find_url(
            pair.handles[ONE], spider="link", domain="a.test", url=URL, fingerprint=mark
        )
        assert found.place in ("queued", "later")
        await pair.pass_time(1)
    (lease,) = await pair.lease_all_due(worker)
    await pair.hop(worker, lease, fingerprint=1, payload=b"hop")
    pair.kill(worker)
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    assert await pair.reclaim() == 1
    (lease,) = await pair.lease_all_due(await hire(pair))
    assert (lease.deaths, lease.url, lease.payload) == (2, URL, b"hop")


async def test_what_is_known_of_deaths_has_an_end(pair: Pair, stage: Stage) -> None:
    await submit(pair)
    await fall_silent(pair)
    lives = [ttl for key, ttl in (await stage.keys()).items() if key.endswith(":deaths")]
    assert lives
    assert all(0 < life <= 7 * 86_400_000 for life in lives)


async def test_a_command_that_has_the_server_for_itself_waits_for_no_sign_of_life(stage: Stage) -> None:
    """Four kills of the whole command within one heartbeat: its next start has all requests back at once, and gives up
    the one with which each of its workers died."""
    clock = Clock()
    frontier = await stage.frontier(dead_after_seconds=3600.0, clock=clock)
    run = await frontier.open_crawl(a_crawl("one"))
    await frontier.add(run, PLAIN, [a_batch("a.test", ["page"])], seeds=True)
    workers = []
    for death in range(MAX_DEATHS):
        workers.append(await frontier.open_leaseholder(pool="shared", spiders=["link"]))
        (lease,) = await workers[-1].lease(limit=10)
        assert lease.deaths == death
        assert await frontier.reclaim_all() == 1
        clock.now += 10  # the site's rate
    workers.append(await frontier.open_leaseholder(pool="shared", spiders=["link"]))
    (lease,) = await workers[-1].lease(limit=10)
    assert lease.deaths == MAX_DEATHS
    for worker in workers:
        await worker.close()
    await stage.leave()


async def test_a_patient_worker_is_dead_for_no_process_before_its_own_time(stage: Stage) -> None:
    """Processes may have other settings; neither what it has in hand nor its account goes to another."""
    clock = Clock()
    patient = await stage.frontier(dead_after_seconds=60.0, clock=clock)
    hasty = await stage.frontier(dead_after_seconds=10.0, clock=clock)
    run = await patient.open_crawl(a_crawl("one"))
    await patient.add(run, PLAIN, [a_batch("a.test", ["page"])], seeds=True)
    worker = await patient.open_leaseholder(pool="shared", spiders=["link"])
    assert len(await worker.lease(limit=10)) == 1
    await worker.heartbeat()
    other = await hasty.open_leaseholder(pool="shared", spiders=["link"])
    await other.heartbeat()
    assert await patient.claim(run, ["account"], owner="patient", seconds=90.0) == [ClaimResult.GRANTED]
    clock.now += 59.0
    await other.heartbeat()
    assert await hasty.maintain() == 0
    assert await hasty.claim(run, ["account"], owner="hasty", seconds=15.0) == [ClaimResult.HELD_BY_OTHER]
    clock.now += 2.0
    assert await hasty.maintain() == 1
    clock.now += 30.0
    assert await hasty.claim(run, ["account"], owner="hasty", seconds=15.0) == [ClaimResult.GRANTED]
    for seat in (worker, other):
        await seat.close()
    await stage.leave()
