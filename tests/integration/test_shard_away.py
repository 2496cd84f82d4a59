"""One of several servers of a frontier stands still: what lives on the others goes on, and the rest waits."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gossamer.commit.committer import CommitLimits, Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement
from gossamer.services.role import PerShardRunner
from gossamer.sinks.base import Fanout
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.connection import retrying
from gossamer.valkey.topology import slot_of
from tests.servers import crawls
from tests.servers.cluster_faults import paused
from tests.servers.valkey import Server, cluster

SHARDS = 8
DOMAINS = [f"d{number}.test" for number in range(24)]
HEARTBEAT_SECONDS = 2.0
LONG_SECONDS = 60.0
"""Nothing here takes so long unless it waits for the server that stands still."""


@dataclass
class Scene:
    frontier: ValkeyFrontier
    node: Server
    """It will stand still."""
    away: list[int]
    """Its shards."""

    def stands(self, domain: str) -> bool:
        """Whether a domain lives on the server that will stand still."""
        return shard_of(domain, SHARDS) in self.away

    def crawl(self, *, home_away: bool) -> Crawl:
        """A crawl whose home is there, or elsewhere."""
        names = (CrawlId("app", f"c{number}") for number in range(100))
        return Crawl(id=next(name for name in names if (home_shard(name.token, SHARDS) in self.away) is home_away))

    async def begin(self, crawl: Crawl, paths: int = 1) -> Run:
        """A crawl with pages of every domain."""
        return await crawls.open_crawl(
            self.frontier, [f"https://{d}/{n}" for d in DOMAINS for n in range(paths)], Terms(), crawl=crawl
        )


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    with cluster(options={"cluster-require-full-coverage": "no"}) as servers:
        frontier = await ValkeyFrontier.connect(servers.address, shards=SHARDS, dead_after_seconds=HEARTBEAT_SECONDS)
        await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        node = servers.owner(slot_of("{0}"))
        away = [shard for shard in range(SHARDS) if servers.owner(slot_of(f"{{{shard}}}")) is node]
        yield Scene(frontier, node, away)
        await frontier.close()


async def lease_until(holder: object, wanted: set[str]) -> list[Lease]:
    """Lease until a page of each of these domains is there."""
    found: list[Lease] = []
    async with asyncio.timeout(LONG_SECONDS):
        while not wanted <= {lease.domain for lease in found}:
            if not (more := await holder.lease(limit=100)):  # type: ignore[attr-defined]
                await holder.wait_for_work(timeout_seconds=0.5)  # type: ignore[attr-defined]
            found += more
    return found


def fetched(leases: list[Lease]) -> list[Settlement]:
    return [Settlement(lease, Outcome.FETCHED) for lease in leases]


async def test_leases_and_settlements_of_the_other_shards_go_on(scene: Scene) -> None:
    run = await scene.begin(scene.crawl(home_away=False), paths=2)
    holder = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    first = await holder.lease(limit=6)
    here = {domain for domain in DOMAINS if not scene.stands(domain)}
    with paused(scene.node):
        leases = first + await holder.lease(limit=4)
        assert len(leases) > len(first)
        assert any(holder._sessions[shard].lease_task for shard in scene.away), "its answer was waited for"
        leases += await lease_until(holder, here - {lease.domain for lease in leases})
        mine = [lease for lease in leases if not scene.stands(lease.domain)]
        async with asyncio.timeout(LONG_SECONDS):
            await holder.settle(fetched(mine))
        assert not any(holder.holds(lease) for lease in mine)
        assert all(holder.session_name(lease.shard) == lease.worker for lease in mine)
    theirs = [lease for lease in leases if scene.stands(lease.domain)]
    left = await lease_until(holder, set(DOMAINS) - {lease.domain for lease in leases})
    assert all(holder.holds(lease) for lease in theirs)
    await retrying(lambda: holder.settle(fetched([*theirs, *left])))
    info = await scene.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.total().fetched == len(mine) + len(theirs) + len(left)
    await holder.close()


async def test_nobody_is_taken_for_dead_on_any_shard(scene: Scene) -> None:
    """However long it takes: a server that stood still heard nobody, and the others hear everybody all the time."""
    run = await scene.begin(scene.crawl(home_away=True))
    holders = [await scene.frontier.open_leaseholder(pool="shared", spiders=["link"]) for _ in range(2)]
    seats = [
        WorkerSession(scene.frontier, h, Retrier(Troubles()), dead_after_seconds=HEARTBEAT_SECONDS) for h in holders
    ]
    keeping = [asyncio.create_task(seat.run()) for seat in seats]
    held = [(holder, lease) for holder in holders for lease in await holder.lease(limit=12)]
    names = [[holder.session_name(shard) for shard in range(SHARDS)] for holder in holders]
    with paused(scene.node):
        await asyncio.sleep(3 * HEARTBEAT_SECONDS)
    await asyncio.sleep(2 * HEARTBEAT_SECONDS)
    assert [[holder.session_name(shard) for shard in range(SHARDS)] for holder in holders] == names
    assert all(holder.holds(lease) for holder, lease in held)
    for task in keeping:
        task.cancel()
    await asyncio.gather(*keeping, return_exceptions=True)
    for holder, lease in held:
        await retrying(lambda h=holder, one=lease: h.settle(fetched([one])))  # type: ignore[misc]
    info = await scene.frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert info.total().fetched == len(held)
    for holder in holders:
        await holder.close()


async def test_only_pages_with_links_to_that_shard_wait(scene: Scene) -> None:
    """Also of one batch. They are settled when it is back, and their links are there."""
    run = await scene.begin(scene.crawl(home_away=True))
    holder = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await lease_until(holder, set(DOMAINS))
    here = [lease for lease in leases if not scene.stands(lease.domain)]
    there = [lease for lease in leases if scene.stands(lease.domain)]
    committer = Committer(scene.frontier, holder, Fanout([]), Retrier(Troubles()), CommitLimits(batch_pages=4))
    settled: list[str] = []
    arrived = asyncio.Event()

    def committed(pages: object) -> None:
        settled.extend(page.settlement.lease.domain for page in pages)  # type: ignore[attr-defined]
        arrived.set()

    def page(lease: Lease, number: int, target: str) -> FinishedLease:
        url = f"https://{target}/found/{number}"
        mark = scene.frontier.spiders.fingerprint("link", url)
        return FinishedLease(Settlement(lease, Outcome.FETCHED), batches=[Batch("link", target, 0, 1, [url], [mark])])

    committer.on_committed = committed
    running = asyncio.create_task(committer.run())
    waiting = {here[0].domain, *(lease.domain for lease in there)}
    with paused(scene.node):
        # One that only has a link there, those that live there, and all the others: in batches of four, mixed.
        pages = [page(here[0], 0, there[0].domain)]
        pages += [page(lease, number, lease.domain) for number, lease in enumerate([*there, *here[1:]], 1)]
        for finished in pages:
            await committer.put(finished)
        committer.stop_lingering()
        async with asyncio.timeout(LONG_SECONDS):
            while len(settled) < len(pages) - len(waiting):
                arrived.clear()
                await arrived.wait()
        assert waiting.isdisjoint(settled)
        assert committer.pending == len(waiting)
    async with asyncio.timeout(LONG_SECONDS):
        await committer.wait_until_drained()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(settled) == sorted(DOMAINS)
    info = await retrying(lambda: scene.frontier.crawl_info(run.crawl.id))
    assert info is not None
    assert (info.total().fetched, info.total().queued) == (len(DOMAINS), len(DOMAINS))
    await holder.close()


async def test_other_crawls_end_while_a_home_is_away(scene: Scene) -> None:
    """A crawl whose home stands still goes on, too, and ends when it is back."""
    homeless, other = scene.crawl(home_away=True), scene.crawl(home_away=False)
    here = [domain for domain in DOMAINS if not scene.stands(domain)]
    for crawl in (homeless, other):
        await crawls.open_crawl(scene.frontier, [f"https://{d}/{crawl.id.crawlid}" for d in here], Terms(), crawl=crawl)
    holder = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    with paused(scene.node):
        left = 2 * len(here)
        async with asyncio.timeout(LONG_SECONDS):
            while left:
                if not (leases := await holder.lease(limit=10)):
                    await holder.wait_for_work(timeout_seconds=0.5)
                    continue
                await holder.settle(fetched(leases))
                left -= len(leases)
            for shard in set(range(SHARDS)) - set(scene.away):
                await scene.frontier.maintain(shard=shard)
            info = await scene.frontier.crawl_info(other.id)
        assert info is not None
        assert info.state is CrawlState.FINISHED
        assert info.total().fetched == len(here)
    async with asyncio.timeout(LONG_SECONDS):
        while (info := await retrying(lambda: scene.frontier.crawl_info(homeless.id))) is None or (
            info.state is CrawlState.RUNNING
        ):
            await retrying(scene.frontier.maintain)
    assert info.total().fetched == len(here)
    await holder.close()


async def test_a_services_step_is_done_on_the_other_shards(scene: Scene) -> None:
    """Round after round; on the one that stands still again when it is back."""
    done: list[int] = []

    async def step(shard: int) -> bool:
        await scene.frontier.expire_due(shard=shard)
        done.append(shard)
        return False

    each = PerShardRunner("test", SHARDS, step, Troubles())
    with paused(scene.node):
        async with asyncio.timeout(LONG_SECONDS):
            for _ in range(3):
                await each.run()
        assert set(range(SHARDS)) - set(done) == set(scene.away)
        assert min(done.count(shard) for shard in set(done)) == 3
    async with asyncio.timeout(LONG_SECONDS):
        while not set(scene.away) <= set(done):
            await each.run()
    await each.close()


async def test_a_worker_whose_loop_is_blocked_is_vouched_for_on_the_other_shards(scene: Scene) -> None:
    await scene.begin(scene.crawl(home_away=False))
    holder = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await lease_until(holder, set(DOMAINS))
    with paused(scene.node):
        twin = scene.frontier.clone()
        async with asyncio.timeout(LONG_SECONDS):
            for shard in {lease.shard for lease in leases} - set(scene.away):
                await retrying(lambda s=shard: twin.heartbeat_for(s, holder.session_name(s)))  # type: ignore[misc]
        await twin.close()
    await retrying(lambda: holder.settle(fetched(leases)))
    await holder.close()
