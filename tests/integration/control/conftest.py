"""One real server for the tests of this folder."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server, standalone


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone() as server:
        yield server


@pytest.fixture
async def shards(one_server: Server) -> AsyncIterator[Shards]:
    one_server.command("FLUSHALL")
    connected = await Shards.connect(one_server.address)
    yield connected
    await connected.close()
