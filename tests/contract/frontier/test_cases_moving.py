"""Slots that move from server to server in the middle of a crawl, all keys at once (Valkey 9) or key by key."""

import asyncio
from collections.abc import Sequence

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import shard_of
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.valkey.connection import retrying
from gossamer.valkey.topology import slot_of
from tests.servers.valkey import Cluster, Server, wait_until

from .asking import a_batch, a_crawl, of_living
from .graph import links, reachable, url
from .stage import Stage

SHARDS = 8
KEYS_A_STEP = 20
CRAWL = CrawlId("app", "moving")


def atomically(source: Server, target: Server, slot: int) -> None:
    """One command, and from one moment to the next the slot is over there."""
    name = target.command("CLUSTER", "MYID")
    source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
    wait_until(lambda: source.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0, "the slot to be over there")
    assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) > 0


def begin_key_by_key(source: Server, target: Server, slot: int) -> None:
    """From here on the source sends everybody on who asks for a key that is not there."""
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))


def some_keys(source: Server, target: Server, slot: int) -> int:
    """Take some over; how many."""
    keys: Sequence[bytes] = source.command("CLUSTER", "GETKEYSINSLOT", slot, KEYS_A_STEP)
    if keys:
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    return len(keys)


def end_key_by_key(servers: Cluster, target: Server, slot: int) -> None:
    name = target.command("CLUSTER", "MYID")
    for node in (target, *(other for other in servers.primaries if other is not target)):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", name)


class Worker:
    """Crawls as a worker does, repeating what was not answered."""

    def __init__(self, frontier: ValkeyFrontier, progress: asyncio.Event) -> None:
        self._frontier = frontier
        self._progress = progress
        self.settled: list[int] = []

    async def run(self) -> None:
        """Until the crawl has finished."""
        seat = await self._frontier.open_leaseholder(pool="shared", spiders=["link"])
        while (info := await retrying(lambda: self._frontier.crawl_info(CRAWL))) and info.state is CrawlState.RUNNING:
            leases = await retrying(lambda: seat.lease(limit=8))
            for lease in leases:
                await retrying(lambda lease=lease: self._follow(lease))  # type: ignore[misc]
            done = [Settlement(lease, Outcome.FETCHED) for lease in leases]
            await retrying(lambda done=done: seat.settle(done))  # type: ignore[misc]
            assert of_living(seat, leases) == leases
            for lease in leases:
                self.settled.append(int(lease.url.rpartition("/")[2]))
            self._progress.set()
            if not leases:
                await retrying(self._frontier.maintain)
                await seat.wait_for_work(timeout_seconds=0.05)
        await seat.close()

    async def _follow(self, lease: Lease) -> None:
        found = [url(page) for page in links(int(lease.url.rpartition("/")[2]))]
        await self._frontier.add(lease.run, lease.terms, [a_batch(domain, [path]) for domain, path in found])


@pytest.mark.parametrize("at_once", [True, False], ids=["all-at-once", "key-by-key"])
async def test_slots_move_while_a_crawl_goes_on(three_servers: Cluster, at_once: bool) -> None:
    """Every page is settled once; a shard whose keys are in two places waits until they are together again."""
    stage = Stage(three_servers, SHARDS)
    frontier = await stage.frontier(dead_after_seconds=60.0)
    await frontier.set_domain_policy(None, DomainPolicy(hits=100_000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl("moving"))
    domain, path = url(0)
    await frontier.add(run, Terms(), [a_batch(domain, [path])], seeds=True)
    expected = reachable(0)
    progress = asyncio.Event()
    workers = [Worker(await stage.frontier(dead_after_seconds=60.0), progress) for _ in range(2)]

    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run())
        for shard in range(SHARDS):
            while sum(len(worker.settled) for worker in workers) < len(expected) * (shard + 1) // (2 * SHARDS):
                progress.clear()
                await progress.wait()
            slot = slot_of(f"{{{shard}}}")
            source = three_servers.owner(slot)
            target = next(node for node in three_servers.primaries if node is not source)
            if at_once:
                await asyncio.to_thread(atomically, source, target, slot)
                continue
            begin_key_by_key(source, target, slot)
            while await asyncio.to_thread(some_keys, source, target, slot):
                with pytest.raises(FrontierUnavailable, match="migrated"):
                    await frontier.block_domain(next(d for d in _domains(shard)), seconds=0)
            end_key_by_key(three_servers, target, slot)
            assert three_servers.owner(slot) is target
    assert sorted(page for worker in workers for page in worker.settled) == sorted(expected)
    info = await frontier.crawl_info(CRAWL)
    assert info is not None
    assert (info.state, info.total().fetched) == (CrawlState.FINISHED, len(expected))
    await stage.leave()


def _domains(shard: int) -> list[str]:
    """Some that live on this shard."""
    return [name for name in (f"e{number}.test" for number in range(200)) if shard_of(name, SHARDS) == shard]
