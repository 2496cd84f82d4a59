"""Messages, and the gaps between connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import uvloop

from gossamer.valkey.connection import Reply, ValkeyConnection, pack
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Cluster, Server, standalone, wait_until


async def test_messages_come_in_order_after_a_first_gap(shards: Shards) -> None:
    heard = shards.subscribe("wake:shared")
    assert await anext(heard) is None
    for n in range(3):
        assert await shards.command("any", "PUBLISH", "wake:shared", n) == 1
    assert [await anext(heard) for _ in range(3)] == [b"0", b"1", b"2"]
    await close(heard)


async def test_a_lost_connection_is_a_gap(shards: Shards, one_server: Server) -> None:
    heard = shards.subscribe("wake")
    await anext(heard)
    one_server.command("CLIENT", "KILL", "TYPE", "pubsub")
    assert await anext(heard) is None
    await shards.command("any", "PUBLISH", "wake", "again")
    assert await anext(heard) == b"again"
    await close(heard)


def test_asking_whether_a_connection_lives_that_has_just_ended_does_nothing(one_server: Server) -> None:
    """The end and the time for a PING may come in the same turn of the loop. Workers run on uvloop, whose ended
    connections refuse to write."""

    async def ask() -> None:
        connection, received = await listening(one_server)
        one_server.command("CLIENT", "KILL", "TYPE", "pubsub")
        assert await received.get() is None
        await connection.close()
        connection.write(pack((b"PING",)))
        await connection.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())


async def test_a_server_that_was_away_is_a_gap() -> None:
    with standalone() as server:
        shards = await Shards.connect(server.address)
        ready = asyncio.Event()
        heard = shards.subscribe("wake", ready)
        await anext(heard)
        assert ready.is_set()
        server.kill()
        gap = asyncio.ensure_future(anext(heard))
        await asyncio.to_thread(server.start)
        assert await gap is None
        await close(heard)
        await shards.close()


async def test_ready_waits_for_a_server_that_is_away() -> None:
    with standalone() as server:
        shards = await Shards.connect(server.address)
        server.kill()
        ready = asyncio.Event()
        heard = shards.subscribe("wake", ready)
        gap = asyncio.ensure_future(anext(heard))
        await asyncio.to_thread(server.start)
        await ready.wait()
        assert await gap is None
        await close(heard)
        await shards.close()


async def test_whatever_node_of_a_cluster_publishes(spread: Shards, three_nodes: Cluster) -> None:
    await nodes_hear_each_other(three_nodes)
    heard = spread.subscribe("wake")
    await anext(heard)
    for node in three_nodes.primaries:
        node.command("PUBLISH", "wake", node.port)
        assert await anext(heard) == str(node.port).encode()
    await close(heard)


async def test_who_stops_listening_is_gone_from_the_server(shards: Shards, one_server: Server) -> None:
    heard = shards.subscribe("wake")
    await anext(heard)
    await close(heard)
    await asyncio.to_thread(
        wait_until, lambda: one_server.command("PUBSUB", "NUMSUB", "wake") == [b"wake", 0], "the listener to go"
    )


async def listening(server: Server) -> tuple[ValkeyConnection, "asyncio.Queue[Reply | None]"]:
    """A connection that is subscribed to `wake`, and what it receives from then on."""
    received: asyncio.Queue[Reply | None] = asyncio.Queue()
    _, connection = await asyncio.get_running_loop().create_unix_connection(
        lambda: ValkeyConnection("listening", call_seconds=60), str(server.socket_path)
    )
    connection.subscribe(pack((b"SUBSCRIBE", "wake")), received.put_nowait)
    first = await received.get()
    assert first is not None
    assert first[0] == b"subscribe"
    return connection, received


async def nodes_hear_each_other(cluster: Cluster) -> None:
    """Wait until every node passes on what any other publishes: a young cluster loses messages for about a second."""
    for hearing in cluster.primaries:
        connection, received = await listening(hearing)
        for publishing in cluster.primaries:
            heard = None
            while heard is None or heard[2] != str(publishing.port).encode():
                publishing.command("PUBLISH", "wake", publishing.port)
                with contextlib.suppress(TimeoutError):
                    heard = await asyncio.wait_for(received.get(), 0.1)
        await connection.close()


async def close(heard: AsyncIterator[bytes | None]) -> None:
    await heard.aclose()  # type: ignore[attr-defined]
