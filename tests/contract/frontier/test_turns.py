"""Crawls that share a domain take turns: none of them starves, however much another one asks for.

The model (politeness.py) judges every hit: together, crawls stay within the limits of the one that asks for most.
"""

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

import pytest

from gossamer.model.crawl import Crawl, DomainPolicy, Rate, Terms
from gossamer.model.request import Lease

from .asking import a_batch, a_crawl
from .model import ModelWorker
from .pair import Pair
from .stage import Stage

DOMAIN = "a.test"
STEP_SECONDS = 0.0125
MANY = 500
UNSPACED = Rate(1_000_000, 0.001, moderated=False)


@pytest.fixture
async def pair(stage_of: Callable[[int], Stage]) -> AsyncIterator[Pair]:
    """On one shard: a domain is on one anyway."""
    stage = stage_of(1)
    pair = await stage.pair()
    yield pair
    await stage.leave(pair)


class Sites:
    """Workers that lease in the same order each time, the first one always first, and whose requests take a while."""

    def __init__(self, pair: Pair, *, latency_seconds: float = 0.0) -> None:
        self.pair = pair
        self.latency_seconds = latency_seconds
        self.workers: list[ModelWorker] = []
        self.got: Counter[str] = Counter()
        """Hits by crawl."""
        self._flying: dict[ModelWorker, deque[tuple[float, Lease]]] = {}

    async def worker(self, pool: str) -> ModelWorker:
        worker = await self.pair.hire(pool=pool, spiders=["link"])
        self.workers.append(worker)
        self._flying[worker] = deque()
        return worker

    async def crawl(self, name: str, *, pool: str | None = None, priority: int = 0, **limits: object) -> Crawl:
        """A crawl with many requests on the domain. It has a pool and a worker of its own, unless one is named."""
        crawl = a_crawl(name, pool=pool or name, **limits)
        run = await self.pair.open(crawl)
        assert run is not None
        urls = [f"{name}/{number}" for number in range(MANY)]
        await self.pair.add(run, Terms(), [a_batch(DOMAIN, urls, priority=priority)])
        if pool is None:
            await self.worker(name)
        return crawl

    async def go_on(self, seconds: float) -> Counter[str]:
        """Let time pass. Returns the hits of each crawl meanwhile."""
        before = self.got.copy()
        for _ in range(round(seconds / STEP_SECONDS)):
            for worker in self.workers:
                self.pair.clock.now += STEP_SECONDS / len(self.workers)
                await self._turn(worker)
        await self.pair.beat()
        return self.got - before

    async def _turn(self, worker: ModelWorker) -> None:
        """Settle what is done, as a worker that is quick, and lease at once."""
        now, flying = self.pair.clock.now, self._flying[worker]
        done = []
        while flying and flying[0][0] <= now:
            done.append(flying.popleft()[1])
        if done:
            await self.pair.fetch(worker, done)
        while leases := await self.pair.lease(worker, limit=50):
            self.got.update(lease.run.crawl.id.crawlid for lease in leases)
            flying.extend((now + self.latency_seconds, lease) for lease in leases)
            if not self.latency_seconds:
                await self.pair.fetch(worker, [flying.popleft()[1] for _ in range(len(flying))])


@pytest.mark.parametrize(
    ("fast", "policy", "slow_first", "own_pools"),
    [
        (UNSPACED, None, True, True),
        (UNSPACED, None, False, False),
        (Rate(20, 1.0), None, True, False),
        (Rate(20, 1.0), None, False, True),
        (UNSPACED, DomainPolicy(hits=20, window_seconds=1.0, concurrency=4), True, True),
        (UNSPACED, DomainPolicy(hits=20, window_seconds=1.0, concurrency=4), False, False),
        (None, DomainPolicy(hits=20, window_seconds=1.0, concurrency=4), True, False),
        (None, DomainPolicy(hits=20, window_seconds=1.0, concurrency=4), False, True),
    ],
)
async def test_a_slow_crawl_gets_its_rate_beside_a_fast_one(
    pair: Pair, fast: Rate | None, policy: DomainPolicy | None, slow_first: bool, own_pools: bool
) -> None:
    await pair.set_policy(DOMAIN, policy)
    sites = Sites(pair, latency_seconds=0.06)
    pool = None if own_pools else "shared"
    if pool:
        await sites.worker(pool)
    for name in ("slow", "fast") if slow_first else ("fast", "slow"):
        if name == "slow":
            await sites.crawl("slow", pool=pool, rate=Rate(1, 0.5))
        else:
            await sites.crawl("fast", pool=pool, rate=fast, concurrency=4)
    await sites.go_on(1)
    got = await sites.go_on(4)
    assert got["slow"] >= 7, got
    assert got["fast"] >= (160 if fast is UNSPACED and policy is None else 60), got


@pytest.mark.parametrize("rate", [Rate(5, 1.0), Rate(10, 1.0, moderated=False), None])
@pytest.mark.parametrize("latency", [0.0, 0.15])
async def test_equal_crawls_get_equal_parts(pair: Pair, rate: Rate | None, latency: float) -> None:
    """Their own rate, or where they have none the operator's."""
    await pair.set_policy(DOMAIN, DomainPolicy(hits=5, window_seconds=1.0) if rate is None else None)
    sites = Sites(pair, latency_seconds=latency)
    for name in "abc":
        await sites.crawl(name, rate=rate)
    await sites.go_on(1)
    got = await sites.go_on(8)
    most = 5 if rate is None else rate.hits
    assert sum(got.values()) >= 0.9 * 8 * most
    assert max(got.values()) <= 1.6 * min(got.values()), got


@pytest.mark.parametrize("concurrency", [1, 2, 8])
async def test_equal_crawls_share_the_requests_in_flight(pair: Pair, concurrency: int) -> None:
    sites = Sites(pair, latency_seconds=0.1)
    for name in "ab":
        await sites.crawl(name, rate=UNSPACED, concurrency=concurrency)
    await sites.go_on(1)
    got = await sites.go_on(3)
    assert sum(got.values()) >= 0.8 * concurrency * 30, got
    assert max(got.values()) <= 1.5 * min(got.values()), got


@pytest.mark.parametrize("own_pools", [True, False], ids=["own pools", "one pool"])
async def test_a_crawl_that_asks_for_few_requests_in_flight_gets_them(pair: Pair, own_pools: bool) -> None:
    sites = Sites(pair, latency_seconds=0.1)
    pool = None if own_pools else "shared"
    if pool:
        await sites.worker(pool)
    await sites.crawl("many", pool=pool, rate=UNSPACED, concurrency=8)
    await sites.crawl("few", pool=pool, rate=UNSPACED, concurrency=1)
    await sites.go_on(1)
    got = await sites.go_on(3)
    assert got["few"] >= 14, got
    assert got["many"] >= 150, got


async def test_a_crawl_whose_worker_is_gone_holds_up_no_other(pair: Pair) -> None:
    sites = Sites(pair, latency_seconds=0.05)
    for name in "ab":
        await sites.crawl(name, rate=Rate(20, 1.0), concurrency=2)
    await sites.go_on(2)
    gone = sites.workers.pop(0)
    pair.kill(gone)
    await sites.go_on(1)
    assert (await sites.go_on(5))["b"] >= 85
    await pair.pass_time(2 * pair.model.dead_after_seconds)
    await pair.reclaim()
    assert (await sites.go_on(5))["b"] >= 95


async def test_a_crawl_that_ends_leaves_its_part_to_the_others(pair: Pair) -> None:
    sites = Sites(pair, latency_seconds=0.05)
    ends, stays = [await sites.crawl(name, rate=Rate(20, 1.0)) for name in ("ends", "stays")]
    await sites.go_on(2)
    await pair.stop(ends.id)
    await sites.go_on(1)
    assert (await sites.go_on(5))[stays.id.crawlid] >= 95
    await pair.check()


async def test_three_rates_together_stay_within_the_fastest(pair: Pair) -> None:
    """The model sees that they do."""
    sites = Sites(pair, latency_seconds=0.02)
    for name, rate in (("fast", Rate(10, 1.0)), ("middle", Rate(2, 1.0)), ("slow", Rate(1, 1.0))):
        await sites.crawl(name, rate=rate)
    await sites.go_on(3)
    got = await sites.go_on(10)
    assert got["slow"] >= 6, got
    assert got["middle"] >= 9, got  # of its rate, the slow one's hits count
    assert got["fast"] >= 70, got
    sites.workers.pop(0)
    await sites.go_on(3)
    got = await sites.go_on(10)
    assert sum(got.values()) <= 21, got
