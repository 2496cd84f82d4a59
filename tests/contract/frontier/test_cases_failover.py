"""Primaries of a cluster that die or hang in the middle of a crawl, and replicas that take their place."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import home_shard
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.valkey.topology import slot_of
from tests.servers.cluster_faults import answers, paused, primary_of, wait_mirrored, wait_replaced
from tests.servers.valkey import Cluster, cluster

from .asking import a_batch, a_crawl
from .crawler import Crawler
from .graph import reachable, url
from .stage import Stage

SHARDS = 8
CRAWL = CrawlId("app", "falling")
HEARTBEAT_SECONDS = 1.5
"""Shorter than a failover takes: behind it everybody has been silent for too long."""


@pytest.fixture(scope="module")
def six_servers() -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    with cluster(primaries=3, replicas=1, options={"cluster-node-timeout": "1000"}) as servers:
        yield servers


@pytest.fixture
async def stage(six_servers: Cluster) -> AsyncIterator[Stage]:
    """With every node up and every primary mirrored."""
    for node in six_servers.nodes:
        if not answers(node):
            node.start()
    await asyncio.to_thread(wait_mirrored, six_servers)
    stage = Stage(six_servers, SHARDS)
    yield stage
    await stage.leave()


class Crawl:
    """The little web, crawled by two workers."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.expected = reachable(0)
        self._progress = asyncio.Event()
        self._crawlers: list[Crawler] = []

    async def through(self, *faults: Callable[[], Awaitable[None]]) -> None:
        """To its end, a fault each time another share of it is done: nothing is lost, and little done twice."""
        frontier = await self._frontier()
        await frontier.set_domain_policy(None, DomainPolicy(hits=100_000, window_seconds=1.0, moderated=False))
        run = await frontier.open_crawl(a_crawl(CRAWL.crawlid))
        domain, path = url(0)
        await frontier.add(run, Terms(), [a_batch(domain, [path])], seeds=True)
        self._crawlers = [
            Crawler(await self._frontier(), CRAWL, self._progress, dead_after_seconds=HEARTBEAT_SECONDS)
            for _ in range(2)
        ]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for crawler in self._crawlers:
                group.create_task(crawler.run())
            for number, fault in enumerate(faults):
                await self.more(self.done, len(self.expected) * (number + 1) // (len(faults) + 2))
                await fault()
        recorded = sum((crawler.recorded for crawler in self._crawlers), Counter())
        assert recorded.keys() == self.expected, "nothing is lost"
        assert sum(recorded.values()) <= len(self.expected) * 1.02, "little is done twice"
        info = await frontier.crawl_info(CRAWL)
        assert info is not None
        assert (info.state, info.total().leased) == (CrawlState.FINISHED, 0)
        assert info.total().fetched == len(self.expected)

    def done(self) -> int:
        return sum(len(crawler.settled) for crawler in self._crawlers)

    async def more(self, count: Callable[[], int], than: int) -> None:
        """Until so much is done."""
        while count() < than:
            self._progress.clear()
            await self._progress.wait()

    async def _frontier(self) -> ValkeyFrontier:
        return await self.stage.frontier(dead_after_seconds=HEARTBEAT_SECONDS)


def home_slot() -> int:
    return slot_of(f"{{{home_shard(CRAWL.token, SHARDS)}}}")


async def test_primaries_die_and_their_replicas_go_on(stage: Stage, six_servers: Cluster) -> None:
    """First the one that knows which run the crawl is in, then the one that was promoted, once it is mirrored again."""

    async def kill() -> None:
        old = primary_of(six_servers, home_slot())
        old.kill()
        await asyncio.to_thread(wait_replaced, six_servers, old, home_slot())
        await asyncio.to_thread(old.start)
        await asyncio.to_thread(wait_mirrored, six_servers)

    await Crawl(stage).through(kill, kill)


async def test_a_primary_hangs_and_the_crawl_goes_on_with_its_replica(stage: Stage, six_servers: Cluster) -> None:
    """Nobody waits until it answers; and when it comes back, nobody believes it."""
    crawl = Crawl(stage)

    async def hang() -> None:
        old = primary_of(six_servers, home_slot())
        with paused(old):
            await asyncio.to_thread(wait_replaced, six_servers, old, home_slot())
            await crawl.more(crawl.done, crawl.done() + 100)
        await asyncio.to_thread(wait_mirrored, six_servers)

    await crawl.through(hang, hang)
