"""A connection that is open here and forgotten there is noticed long before an answer's time is over."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.valkey.connection import ValkeyConnection, pack, retrying
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from tests.chaos.tcp_proxy import Link, Network
from tests.servers.valkey import cluster, standalone

LONG_SECONDS = 600.0
SOON_SECONDS = 60.0


@pytest.fixture
def link() -> Iterator[Link]:
    with standalone(tcp=True) as server, Network("127.0.0.1", server.port) as network:
        yield network.link()


@pytest.fixture
async def shards(link: Link) -> AsyncIterator[Shards]:
    connected = await Shards.connect(f"redis://127.0.0.1:{link.port}", call_seconds=LONG_SECONDS)
    yield connected
    link.resume()
    await connected.close()


async def test_what_was_asked_on_a_forgotten_one_fails_soon_and_the_next_works(shards: Shards, link: Link) -> None:
    assert await shards.command("k", "SET", "k", "1") == b"OK"
    link.half_open()
    async with asyncio.timeout(SOON_SECONDS):
        with pytest.raises(FrontierUnavailable):
            await shards.command("k", "GET", "k")
    assert await shards.command("k", "GET", "k") == b"1"


async def test_a_server_that_is_busy_is_waited_for(shards: Shards) -> None:
    """It answers on no other connection either."""
    assert await shards.command("k", "SET", "k", "2") == b"OK"
    connection = shards._topology._seeds[0].ready_connection
    sleeping = asyncio.create_task(shards.command("k", "DEBUG", "SLEEP", "3"))
    assert await shards.command("k", "GET", "k") == b"2"
    assert await sleeping == b"OK"
    assert shards._topology._seeds[0].ready_connection is connection


async def test_a_stalled_way_is_waited_for(shards: Shards, link: Link) -> None:
    assert await shards.command("k", "SET", "k", "3") == b"OK"
    link.stall()
    asking = asyncio.create_task(shards.command("k", "GET", "k"))
    done, _ = await asyncio.wait([asking], timeout=5.0)
    assert not done
    link.resume()
    assert await asking == b"3"


async def test_every_forgotten_connection_to_a_cluster_is_replaced_soon() -> None:
    """All servers are cut off at once, so none of them can say anything about another; each has two connections."""
    with (
        cluster(primaries=3, replicas=1, options={"cluster-preferred-endpoint-type": "unknown-endpoint"}) as servers,
        Network("127.0.0.1", *(node.port for node in servers.nodes)) as network,
    ):
        link = network.link()
        shards = await Shards.connect(f"redis+cluster://{link.host}:{link.port}", call_seconds=LONG_SECONDS)
        keys = [f"{{{letter}}}" for letter in "abcdefgh"]
        writing = Script("writing", "return redis.call('SET', KEYS[1], ARGV[1])")

        async def write(value: str) -> None:
            for key in keys:
                await retrying(partial(shards.call, 0, writing, [key], [value]))
                await retrying(partial(shards.call, 0, writing, [key], [value], confirmed=True))

        try:
            await write("before")
            link.half_open()
            async with asyncio.timeout(SOON_SECONDS):
                await write("after")
        finally:
            await shards.close()


@contextlib.asynccontextmanager
async def connected_to_silence(
    *, call_seconds: float, fail_fast_seconds: float | None = None
) -> AsyncIterator[ValkeyConnection]:
    """A connection to a server that reads and never answers."""
    disconnected = asyncio.Event()

    async def read_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await disconnected.wait()
        writer.close()

    async with await asyncio.start_server(read_only, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: ValkeyConnection("silent", call_seconds=call_seconds, fail_fast_seconds=fail_fast_seconds),
            "127.0.0.1",
            port,
        )
        try:
            yield connection
        finally:
            await connection.close()
            disconnected.set()


async def test_a_silent_server_fails_calls_early_also_without_a_callback_for_late_replies() -> None:
    async with connected_to_silence(call_seconds=LONG_SECONDS, fail_fast_seconds=0.1) as connection:
        async with asyncio.timeout(SOON_SECONDS):
            with pytest.raises(FrontierUnavailable, match=r"no answer within 0\.1 s"):
                await connection.send(pack(("PING",)))
        assert connection.alive
        assert connection.unresponsive


async def test_the_error_of_a_call_that_may_block_names_all_of_its_time() -> None:
    async with connected_to_silence(call_seconds=0.25) as connection:
        with pytest.raises(FrontierUnavailable, match=r"no answer within 0\.75 s"):
            await connection.send_all([pack(("WAIT", 1, 500))], extra_seconds=0.5)
        assert not connection.alive
