"""A process that starts during an outage of the frontier, or right after it, does not take living workers for dead."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Terms
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.services.maintenance import Reaper
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.connection import retrying
from tests.contract.frontier.pair import Clock
from tests.servers import crawls
from tests.servers.valkey import Server, standalone

HEARTBEAT_SECONDS = 30.0
DOMAINS = [f"d{number}.test" for number in range(6)]
LONG_SECONDS = 60.0


class WatchedFrontier(ValkeyFrontier):
    """Tells when housekeeping was done with it."""

    kept: asyncio.Event

    async def maintain(self, *, may_declare_dead: Callable[[], bool] | None = None, shard: int | None = None) -> int:
        found = await super().maintain(may_declare_dead=may_declare_dead, shard=shard)
        self.kept.set()
        return found


@dataclass
class Scene:
    """A worker with leases, which hears of an outage only later than the newcomer."""

    server: Server
    clock: Clock
    worker: ValkeyLeaseholder
    leases: list[Lease]

    async def connect(self) -> WatchedFrontier:
        frontier = await WatchedFrontier.connect(
            self.server.address, dead_after_seconds=HEARTBEAT_SECONDS, clock=self.clock
        )
        frontier.kept = asyncio.Event()
        return frontier

    async def arrive_in_an_outage(self) -> WatchedFrontier:
        """Connect as a process does that is started while the server is away, for longer than a heartbeat."""
        refused = asyncio.Event()
        self.server.kill()
        arriving = asyncio.create_task(retrying(self.connect, on_trouble=lambda *_: refused.set()))
        await refused.wait()
        self.clock.now += HEARTBEAT_SECONDS + 1.0
        self.server.start()
        return await arriving

    async def arrive_after_an_outage(self) -> WatchedFrontier:
        """Connect at the first attempt, before the worker has reconnected."""
        self.server.kill()
        self.clock.now += HEARTBEAT_SECONDS + 1.0
        self.server.start()
        return await self.connect()

    async def check(self, newcomer: WatchedFrontier) -> None:
        """The worker keeps its leases, and the requests are handed out only once."""
        assert newcomer.reclaimed == 0
        await retrying(lambda: self.worker.heartbeat())
        assert all(self.worker.holds(lease) for lease in self.leases)
        settlements = [Settlement(lease, Outcome.FETCHED) for lease in self.leases]
        await self.worker.settle(settlements)
        total = (await crawls.info(newcomer)).total()
        assert (total.added, total.fetched) == (len(DOMAINS), len(self.leases))


@pytest.fixture
def server() -> Iterator[Server]:
    with standalone(options={"appendfsync": "always"}) as server:
        yield server


@pytest.fixture
async def scene(server: Server) -> AsyncIterator[Scene]:
    clock = Clock()
    frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=HEARTBEAT_SECONDS, clock=clock)
    await crawls.open_crawl(frontier, [f"https://{domain}/" for domain in DOMAINS], Terms())
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    yield Scene(server, clock, worker, await worker.lease(limit=len(DOMAINS) - 1))
    await worker.close()
    await frontier.close()


Arrive = Callable[[Scene], Awaitable[WatchedFrontier]]
ARRIVALS = pytest.mark.parametrize("arrive", [Scene.arrive_in_an_outage, Scene.arrive_after_an_outage])


@ARRIVALS
async def test_a_service_that_starts_in_an_outage_leaves_living_workers_their_leases(
    scene: Scene, arrive: Arrive, tmp_path: Path
) -> None:
    async with asyncio.timeout(LONG_SECONDS):
        frontier = await arrive(scene)
    blobs = BlobStore(str(tmp_path))
    reaper = Reaper(frontier, blobs, Troubles(), dead_after_seconds=HEARTBEAT_SECONDS, blob_retention_seconds=3600.0)
    async with asyncio.timeout(LONG_SECONDS):
        await reaper.run_once()
        await frontier.kept.wait()
        await scene.check(frontier)
    await reaper.close()
    blobs.close()
    await frontier.close()


@ARRIVALS
async def test_a_worker_that_starts_in_an_outage_leaves_living_workers_their_leases(
    scene: Scene, arrive: Arrive
) -> None:
    async with asyncio.timeout(LONG_SECONDS):
        frontier = await arrive(scene)
        newcomer = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        mine = await newcomer.lease(limit=len(DOMAINS))
    seat = WorkerSession(frontier, newcomer, Retrier(Troubles()), dead_after_seconds=HEARTBEAT_SECONDS)
    keeping = asyncio.create_task(seat.run())
    async with asyncio.timeout(LONG_SECONDS):
        await frontier.kept.wait()  # at once: its first beat says that somebody is silent
        mine += await newcomer.lease(limit=len(DOMAINS))
        await scene.check(frontier)
    assert [lease.domain for lease in mine] == list(set(DOMAINS) - {lease.domain for lease in scene.leases})
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await newcomer.close()
    await frontier.close()


async def test_a_worker_that_has_leased_nothing_yet_notices_an_outage(server: Server) -> None:
    frontier = await ValkeyFrontier.connect(server.address)
    holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    await holder.heartbeat()
    server.kill()
    with pytest.raises(FrontierUnavailable):
        await holder.heartbeat()
    server.start()
    await retrying(lambda: holder.heartbeat())
    await holder.close()
    await frontier.close()


async def test_a_process_that_notices_an_outage_during_its_maintenance_declares_nobody_dead(scene: Scene) -> None:
    """A stall of the network ends with the reply to the first call of the round: the worker's heartbeat may be behind
    it."""
    frontier = await scene.connect()
    scene.clock.now += HEARTBEAT_SECONDS + 1.0
    connected = True
    maintenance = asyncio.create_task(frontier.maintain(may_declare_dead=lambda: connected))
    await asyncio.sleep(0)  # its first call is sent, and no reply can have been read yet
    connected = False
    await maintenance
    await scene.check(frontier)
    await frontier.close()
