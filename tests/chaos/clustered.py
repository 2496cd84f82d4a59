"""The frontier on a cluster: three primaries with a replica each, which fail over and pass slots on."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gossamer.valkey.topology import slot_of
from tests.chaos.schedule import Fault, Kind
from tests.chaos.tcp_proxy import Link, Network
from tests.servers import cluster_faults
from tests.servers.valkey import Cluster, Server, cluster, wait_until

SHARDS = 16
_NODE_TIMEOUT_SECONDS = 1.0
_MOVED = 3
"""Slots that move at a time."""
_LOST = "Write loss risk!"
"""Logged by a slot's old owner that did not hear in time that another node has the slot, and goes on serving it."""


class ClusteredStore:
    """Each worker reaches all nodes by a link of its own."""

    kinds = frozenset({Kind.KILL_PRIMARY, Kind.FREEZE_PRIMARY, Kind.MOVE_SLOT, Kind.RESTART_NODE})

    def __init__(self, servers: Cluster, network: Network) -> None:
        self._servers = servers
        self._network = network
        self._returning: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return self._servers.address

    def way(self) -> tuple[str, Link]:
        link = self._network.link()
        seeds = ",".join(f"{link.host}:{node.port}" for node in self._servers.primaries)
        return f"redis+cluster://{seeds}", link

    async def recovered(self) -> None:
        if self._returning:
            await asyncio.gather(*self._returning)
        await asyncio.to_thread(cluster_faults.wait_mirrored, self._servers)

    async def inflict(self, fault: Fault) -> None:
        slot = slot_of(f"{{{int(fault.whom * SHARDS)}}}")
        node = await asyncio.to_thread(cluster_faults.primary_of, self._servers, slot)
        match fault.kind:
            case Kind.KILL_PRIMARY:
                node.kill()
                await asyncio.to_thread(cluster_faults.wait_replaced, self._servers, node, slot)
                self._later(fault.seconds, node.start)
            case Kind.FREEZE_PRIMARY:
                await asyncio.to_thread(cluster_faults.freeze, node)
                if fault.seconds > _NODE_TIMEOUT_SECONDS:
                    await asyncio.to_thread(cluster_faults.wait_replaced, self._servers, node, slot)
                    self._later(fault.seconds, lambda: os.kill(node.pid, signal.SIGCONT))
                else:
                    await asyncio.sleep(fault.seconds)
                    os.kill(node.pid, signal.SIGCONT)
            case Kind.RESTART_NODE:
                node = self._servers.nodes[int(fault.whom * len(self._servers.nodes))]
                node.kill()
                await asyncio.to_thread(node.start)
                await asyncio.to_thread(cluster_faults.wait_whole, self._servers)
            case Kind.MOVE_SLOT:
                for number in range(_MOVED):
                    shard = (int(fault.whom * SHARDS) + number * 5) % SHARDS
                    await asyncio.to_thread(self._move, slot_of(f"{{{shard}}}"), number)
            case _:
                raise ValueError(fault.kind)

    def _move(self, slot: int, number: int) -> None:
        source = cluster_faults.primary_of(self._servers, slot)
        others: list[Server] = [node for node in cluster_faults.primaries(self._servers) if node is not source]
        target = others[number % len(others)]
        assert cluster_faults.move_slot(self._servers, slot, target), "a migration was refused"
        wait_until(lambda: cluster_faults.primary_of(self._servers, slot) is target, "a slot to be over there")

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        async def come_back() -> None:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(then)

        task = asyncio.create_task(come_back())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    def check(self) -> list[str]:
        """What nodes say of writes that they confirmed and lost themselves, at a slot's move."""
        return [
            f"node {node.port} lost what it had confirmed: {line}"
            for node in self._servers.nodes
            for line in (node.folder / "log").read_text(errors="replace").splitlines()
            if _LOST in line
        ]

    async def close(self) -> None:
        """Everybody back, so that they can be stopped."""
        await asyncio.gather(*self._returning, return_exceptions=True)


@contextlib.asynccontextmanager
async def clustered(folder: Path, fsync: str) -> AsyncIterator[ClusteredStore]:
    """Its nodes' data are gone afterwards; their logs stay in the folder, one by each node's port."""
    options = {
        "appendfsync": fsync,
        "cluster-node-timeout": str(int(_NODE_TIMEOUT_SECONDS * 1000)),
        "cluster-preferred-endpoint-type": "unknown-endpoint",  # the others are where this one was found
    }
    with (
        cluster(primaries=3, replicas=1, options=options) as servers,
        Network("127.0.0.1", *(node.port for node in servers.nodes)) as network,
    ):
        store = ClusteredStore(servers, network)
        try:
            yield store
        finally:
            await store.close()
            for node in servers.nodes:
                shutil.copy(node.folder / "log", folder / f"node-{node.port}.log")
