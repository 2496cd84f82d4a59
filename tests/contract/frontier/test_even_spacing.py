"""Even spacing is kept, and regained after any stall: a lease call hands out no burst of a moderated domain."""

from itertools import pairwise

import pytest

from gossamer.model.crawl import DomainPolicy, Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .model import ModelWorker
from .pair import Pair

PRECISION = 0.0001
"""Answers carry start times in whole microseconds."""


async def one_domain(pair: Pair, count: int, *, hits: int, elastic: bool = True) -> ModelWorker:
    run = await pair.open(a_crawl())
    assert run is not None
    await pair.set_policy("a.test", DomainPolicy(hits=hits, window_seconds=1.0, elastic=elastic))
    await pair.add(run, Terms(), [a_batch("a.test", range(count))])
    return await pair.hire(pool="shared", spiders=["link"])


async def starts_of(pair: Pair, worker: ModelWorker, seconds: float, *, every: float = 0.01) -> list[float]:
    """When each request starts that is handed out in the next seconds to a worker that asks so often."""
    starts: list[float] = []
    for _ in range(round(seconds / every)):
        leases = await pair.lease(worker, limit=50)
        starts += [pair.clock.now + lease.ahead_seconds for lease in leases]
        await pair.fetch(worker, leases)
        pair.clock.now += every
    return starts


def gaps(starts: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(starts)]


async def test_after_a_stall_the_gap_shrinks_by_a_tenth_until_the_window_is_full(pair: Pair) -> None:
    worker = await one_domain(pair, 120, hits=20)
    before = await starts_of(pair, worker, 1.0)
    assert len(before) == 20
    await pair.pass_time(4.0)
    after = await starts_of(pair, worker, 3.0)
    shrunk, even = gaps(after)[:19], gaps(after)[20:]
    assert all(abs(gap - 0.045) < PRECISION for gap in shrunk), "missed hits are made up for, one at a time"
    assert after[20] - after[0] >= 1.0 - PRECISION, "the window holds no more than its hits"
    assert all(abs(gap - 0.05) < PRECISION for gap in even), "then the rest of what was missed is lost"
    assert len(after) >= 0.95 * 60


async def test_without_elastic_missed_hits_are_lost(pair: Pair) -> None:
    worker = await one_domain(pair, 80, hits=20, elastic=False)
    await starts_of(pair, worker, 0.5)
    await pair.pass_time(4.0)
    after = await starts_of(pair, worker, 2.0)
    assert all(abs(gap - 0.05) < PRECISION for gap in gaps(after))
    assert len(after) >= 0.95 * 40


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_worker_that_asks_late_loses_nothing_and_sends_evenly(pair: Pair, elastic: bool) -> None:
    """Hits are handed out a little before they start."""
    worker = await one_domain(pair, 300, hits=200, elastic=elastic)
    starts = await starts_of(pair, worker, 1.0, every=0.012)
    assert len(starts) >= 0.95 * 200
    assert min(gaps(starts)) >= (0.0045 if elastic else 0.005) - PRECISION


async def test_what_workers_give_back_comes_in_no_burst(pair: Pair) -> None:
    """Each worker was held up until its request was too late."""
    worker = await one_domain(pair, 100, hits=20)
    await starts_of(pair, worker, 1.0)
    held = []
    for _ in range(5):
        held += await pair.lease(worker, limit=50)
        await pair.pass_time(0.05)
    assert len(held) >= 4
    await pair.settle(worker, [Settlement(lease, Outcome.RETURNED) for lease in held])
    after = await starts_of(pair, worker, 1.0)
    assert min(gaps(after)) >= 0.045 - PRECISION
    assert len(after) >= 0.95 * 20


async def test_hits_without_a_lease_come_in_no_burst(pair: Pair) -> None:
    worker = await one_domain(pair, 40, hits=20)
    await starts_of(pair, worker, 1.0)
    await pair.pass_time(4.0)
    run = pair.handles[a_crawl().id]
    granted = [await pair.seats[worker].charge_hit(run, spider="link", domain="a.test") for _ in range(10)]
    assert granted.count(0.0) == 1
