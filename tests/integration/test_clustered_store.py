"""What a chaos run learns from the nodes of its cluster."""

import asyncio
from pathlib import Path

from gossamer.valkey.topology import slot_of
from tests.chaos.clustered import ClusteredStore, clustered
from tests.chaos.tcp_proxy import Network
from tests.servers import cluster_faults
from tests.servers.valkey import cluster, wait_until


def test_the_logs_of_the_nodes_outlive_a_run(tmp_path: Path) -> None:
    async def run() -> None:
        async with clustered(tmp_path, "no") as store:
            assert store.check() == []

    asyncio.run(run())
    logs = list(tmp_path.glob("node-*.log"))
    assert len(logs) == 6
    assert all("Ready to accept connections" in log.read_text() for log in logs)


def test_a_node_that_lost_confirmed_writes_at_a_slots_move_is_named() -> None:
    """The old owner does not hear of the new one in time, confirms writes, with its replica, and loses them."""
    key = "{k}lost"
    slot = slot_of(key)
    # Half of the time for which the old owner refuses writes.
    options = {"cluster-node-timeout": "20000", "cluster-manual-failover-timeout": "1000"}
    with (
        cluster(primaries=3, replicas=1, options=options) as servers,
        Network("127.0.0.1", *(node.port for node in servers.nodes)) as network,
    ):
        store = ClusteredStore(servers, network)
        old = servers.owner(slot)
        new = next(node for node in servers.primaries if node is not old)
        with cluster_faults.deaf(old):
            assert cluster_faults.move_slot(servers, slot, new)
            wait_until(lambda: cluster_faults.primary_of(servers, slot) is new, "the slot to be over there")
            assert old.command("SET", key, "confirmed") == b"OK"
        wait_until(lambda: servers.owner(slot) is new, "the old owner to hear of the new one")
        assert new.command("GET", key) is None
        wait_until(lambda: bool(store.check()), "the old owner to say what it has lost")
        [told] = store.check()
        assert told.startswith(f"node {old.port} lost what it had confirmed")
