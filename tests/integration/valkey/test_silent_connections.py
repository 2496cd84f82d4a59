"""A connection that is open here and forgotten there is noticed long before an answer's time is over."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.valkey.shards import Shards
from tests.chaos.tcp_proxy import Link, Network
from tests.servers.valkey import standalone

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
