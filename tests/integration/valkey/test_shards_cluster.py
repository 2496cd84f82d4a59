"""Calls on a real cluster of three, with slots that move, and on one that has a replica."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gossamer.errors import FrontierForgot, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.connection import retrying
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from gossamer.valkey.topology import slot_of
from tests.servers import cluster_faults
from tests.servers.cluster_faults import paused
from tests.servers.valkey import Cluster, Server, cluster, wait_until

COUNT = Script("count", "return redis.call('INCRBY', KEYS[1] .. 'n', ARGV[1])")
COUNT_KEY = Script("count_key", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
READ = Script("read", "return redis.call('GET', KEYS[1] .. 'n')")


async def test_every_shard_is_on_its_node(spread: Shards, three_nodes: Cluster) -> None:
    answers = await asyncio.gather(*(spread.call(n, COUNT, [f"g:{{{n}}}:"], [n]) for n in range(64)))
    assert answers == list(range(64))
    sizes = [int(size) for size in await spread.everywhere("DBSIZE")]
    assert sum(sizes) == 64
    assert all(sizes)
    for n in range(64):
        assert three_nodes.owner(slot_of(f"{{{n}}}")).command("EXISTS", f"g:{{{n}}}:n") == 1


async def test_scripts_that_all_nodes_forgot(spread: Shards) -> None:
    await spread.everywhere("SCRIPT", "FLUSH")
    assert [await spread.call(n, COUNT, [f"{{{n}}}:"], [1]) for n in range(9)] == [1] * 9


async def test_a_node_of_a_cluster_is_not_taken_for_a_single_server(three_nodes: Cluster) -> None:
    with pytest.raises(ServerUnsuitable, match=r"write redis\+cluster"):
        await Shards.connect(three_nodes.nodes[0].address)


async def test_one_node_that_answers_is_enough_to_find_the_others(three_nodes: Cluster) -> None:
    port = three_nodes.nodes[1].port
    shards = await Shards.connect(f"redis+cluster://127.0.0.1:1,127.0.0.1:{port}")
    assert [await shards.command(f"{{{n}}}", "EXISTS", f"{{{n}}}none") for n in range(9)] == [0] * 9
    await shards.close()


async def test_a_slot_that_is_moving_and_has_moved(spread: Shards, three_nodes: Cluster) -> None:
    """ASK while it moves: the key is asked for where it goes to. MOVED afterwards: the map is corrected."""
    key, other = "{moving}n", "{moving}m"
    slot = slot_of(key)
    source = three_nodes.owner(slot)
    target = next(node for node in three_nodes.primaries if node is not source)
    assert await spread.call(0, COUNT_KEY, [key], [1]) == 1

    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
    source.command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    assert await spread.call(0, COUNT_KEY, [key], [1]) == 2, "ASK, and the script is not known there"
    assert await spread.call(0, COUNT_KEY, [other], [1], confirmed=True) == 1
    assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 2

    for node in (target, source):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", target.command("CLUSTER", "MYID"))
    answers = await asyncio.gather(*(spread.call(0, COUNT_KEY, [key], [1]) for _ in range(5)))
    assert answers == [3, 4, 5, 6, 7]
    assert source.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0


async def test_a_script_is_not_run_again_where_only_its_confirmation_was_refused() -> None:
    """While a slot is moved, its node runs scripts on keys that are still there and sends new keys elsewhere."""
    with cluster(primaries=2, replicas=1) as nodes:
        shards = await Shards.connect(nodes.address)
        key = "{half}n"
        slot = slot_of(key)
        assert await shards.call(0, COUNT_KEY, [key], [1], confirmed=True) == 1
        source = nodes.owner(slot)
        target = next(node for node in nodes.primaries if node is not source)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
        with pytest.raises(FrontierUnavailable, match="before the call could be confirmed"):
            await shards.call(0, COUNT_KEY, [key], [1], confirmed=True)
        assert source.command("GET", key) == b"2"
        assert target.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        await shards.close()


async def test_without_a_replica_it_goes_on_and_says_so_once(spread: Shards, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(3):
        assert await spread.call(n, COUNT, [f"{{{n}}}:"], [1], confirmed=True) == 1
    assert spread.unconfirmed == 3
    assert caplog.text.count("has no replica") == 1


async def test_what_is_confirmed_is_on_the_replica(mirrored: Cluster) -> None:
    shards = await Shards.connect(mirrored.address)
    assert await shards.call(0, COUNT, ["{c}:"], [7], confirmed=True) == 7
    replica = mirrored.replicas[0]
    assert b"{c}:n" in replica.command("CLUSTER", "GETKEYSINSLOT", slot_of("{c}"), 10)
    assert shards.unconfirmed == 0
    await shards.close()


async def test_a_replica_that_hangs_confirms_nothing_not_even_a_repeat(mirrored: Cluster) -> None:
    first = await Shards.connect(mirrored.address, confirm_ms=100)
    again = await Shards.connect(mirrored.address, confirm_ms=100)
    assert await first.call(0, COUNT, ["{h}:"], [1], confirmed=True) == 1
    with stopped(mirrored.replicas[0]):
        with pytest.raises(FrontierUnavailable, match=r"no replica of .* confirmed it"):
            await first.call(0, COUNT, ["{h}:"], [1], confirmed=True)
        # A repeat finds its work done and writes nothing, on a connection that has written nothing yet.
        with pytest.raises(FrontierUnavailable, match=r"no replica of .* confirmed it"):
            await again.call(0, READ, ["{h}:"], [], confirmed=True)
        assert await first.call(0, COUNT, ["{h}:"], [1]) == 3, "others are not held up"
    assert await retrying(lambda: again.call(0, READ, ["{h}:"], [], confirmed=True)) == b"3"
    await first.close()
    await again.close()


async def test_a_replica_that_took_over_has_what_was_confirmed() -> None:
    with cluster(primaries=1, replicas=1) as nodes:
        shards = await Shards.connect(nodes.address)
        await shards.call(0, COUNT, ["{t}:"], [41], confirmed=True)
        replica = nodes.replicas[0]
        replica.command("CLUSTER", "FAILOVER")
        wait_until(lambda: replica.info("replication")["role"] == "master", "the replica to take over")
        assert await shards.call(0, COUNT, ["{t}:"], [1]) == 42
        nodes.primaries[0].kill()
        assert await shards.call(0, COUNT, ["{t}:"], [1]) == 43
        await shards.close()


async def test_a_node_that_is_away_is_unavailable_and_the_others_go_on() -> None:
    with cluster(options={"cluster-require-full-coverage": "no"}) as nodes:
        shards = await Shards.connect(nodes.address)
        away = nodes.owner(slot_of("{0}"))
        here = next(n for n in range(1, 99) if nodes.owner(slot_of(f"{{{n}}}")) is not away)
        away.kill()
        with pytest.raises(FrontierUnavailable):
            await shards.call(0, COUNT, ["{0}:"], [1])
        assert await shards.call(here, COUNT, [f"{{{here}}}:"], [1]) == 1
        with pytest.raises(FrontierUnavailable):
            await shards.call(0, COUNT, ["{0}:"], [1])
        away.start()
        nodes.wait_ok()
        assert await retrying(lambda: shards.call(0, COUNT, ["{0}:"], [1])) == 1
        await shards.close()


async def test_a_node_that_hangs_is_given_up_and_then_refused_at_once() -> None:
    """Nobody waits longer for it than it takes to give it up, and whoever asks then does not wait at all."""
    with cluster(options={"cluster-require-full-coverage": "no"}) as nodes:
        shards = await Shards.connect(nodes.address)
        node = nodes.owner(slot_of("{0}"))
        assert await shards.call(0, COUNT, ["{0}:"], [1]) == 1
        data_epoch = shards.epoch.number
        with paused(node):
            calls = [asyncio.create_task(shards.call(0, COUNT, ["{0}:"], [1])) for _ in range(3)]
            first = (await asyncio.gather(*calls, return_exceptions=True))[0]
            assert isinstance(first, FrontierUnavailable)
            for _ in range(1000):
                with pytest.raises(FrontierUnavailable):
                    await shards.call(0, COUNT, ["{0}:"], [1])
        # Those that nobody waited for were carried out all the same.
        assert await retrying(lambda: shards.call(0, COUNT, ["{0}:"], [1])) == 5
        assert shards.epoch.number == data_epoch, "the connection is the same"
        await shards.close()


async def test_an_era_begins_with_a_new_connection_not_with_the_end_of_the_old_one() -> None:
    with cluster(options={"cluster-require-full-coverage": "no"}) as nodes:
        shards = await Shards.connect(nodes.address)
        node = nodes.owner(slot_of("{0}"))
        await shards.call(0, COUNT, ["{0}:"], [1])
        data_epoch = shards.epoch.number
        node.kill()
        for _ in range(5):
            with pytest.raises(FrontierUnavailable):
                await shards.call(0, COUNT, ["{0}:"], [1])
        assert shards.epoch.number == data_epoch
        node.start()
        nodes.wait_ok()
        await retrying(lambda: shards.call(0, COUNT, ["{0}:"], [1]))
        assert shards.epoch.number > data_epoch
        await shards.close()


async def test_slots_that_moved_are_a_gap_for_listeners(spread: Shards, three_nodes: Cluster) -> None:
    """What the old owner said last may have reached nobody."""
    heard = spread.subscribe("news")
    assert await anext(heard) is None, "the subscription"
    key = "{gap}n"
    slot = slot_of(key)
    await spread.call(0, COUNT_KEY, [key], [1])
    source = three_nodes.owner(slot)
    target = next(node for node in three_nodes.primaries if node is not source)
    assert cluster_faults.move_slot(three_nodes, slot, target)
    await asyncio.to_thread(
        wait_until, lambda: cluster_faults.primary_of(three_nodes, slot) is target, "the slot to be over there"
    )
    assert await retrying(lambda: spread.call(0, COUNT_KEY, [key], [1])) == 2
    async with asyncio.timeout(60):
        assert await anext(heard) is None
    await heard.aclose()  # type: ignore[attr-defined]


async def test_a_primary_that_was_replaced_confirms_nothing_though_it_has_no_replica() -> None:
    """It hung, and came back; most of the others know better."""
    with cluster(primaries=3, replicas=1, options={"cluster-node-timeout": "3000"}) as nodes:
        shards = await Shards.connect(nodes.address)
        key = "{r}:"
        slot = slot_of(key)
        await shards.call(0, COUNT, [key], [1], confirmed=True)
        old = nodes.owner(slot)
        old_client = await shards._topology.client_of(key)
        assert await shards._topology.is_confirmed_primary(key, old_client)
        with stopped(old):
            new = await asyncio.to_thread(cluster_faults.wait_replaced, nodes, old, slot)
        assert not await shards._topology.is_confirmed_primary(key, shards._topology.client(old_client.endpoint))
        counted = await retrying(lambda: shards.call(0, COUNT, [key], [1], confirmed=True))
        assert counted >= 2  # more where a replica was slow to confirm it, and it was asked again
        assert int(new.command("GET", "{r}:n")) == counted
        await shards.close()


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """SIGSTOP for a while."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_calls_that_wait_for_the_slots_do_not_each_read_them_again(three_nodes: Cluster) -> None:
    """With a slow way to the servers, a heartbeat behind a row of such reads would come too late."""
    shards = await Shards.connect(f"redis+cluster://127.0.0.1:{three_nodes.nodes[0].port}")
    topology = shards._topology
    reads = 0
    apply_slots = topology._apply_slots

    async def apply_and_mark(*arguments: Any) -> None:
        nonlocal reads
        reads += 1
        await apply_slots(*arguments)
        topology.mark_stale()  # as calls that fail all the time do

    try:
        topology._apply_slots = apply_and_mark  # type: ignore[method-assign]
        topology.mark_stale()
        await asyncio.gather(*(topology.client_of(f"k{number}") for number in range(50)))
        assert reads <= 2
    finally:
        await shards.close()


async def test_a_call_of_an_earlier_data_epoch_tells_nothing_about_the_slots(mirrored: Cluster) -> None:
    shards = await Shards.connect(f"redis+cluster://127.0.0.1:{mirrored.nodes[0].port}")
    try:
        script = Script("reading", "return redis.call('GET', KEYS[1])")
        assert await shards.call(0, script, ["{k}"], [], confirmed=True) is None
        assert not shards._topology._stale
        with pytest.raises(FrontierForgot):
            await shards.call(0, script, ["{k}"], [], since=shards.epoch.number - 1, confirmed=True)
        assert not shards._topology._stale
    finally:
        await shards.close()


def test_nodes_have_not_met_while_one_of_them_does_not_answer() -> None:
    """The bench of service times begins when they have met: else their messages would count as time of idle nodes."""
    with cluster(primaries=3) as servers:
        servers.wait_met()
        silent = servers.nodes[-1]
        with paused(silent):
            others = Cluster(servers.nodes[:-1], 2)
            wait_until(lambda: not others.has_met(), "a node to ask the silent one")
        servers.wait_met()
