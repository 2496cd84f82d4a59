"""Every test of this folder runs on every bus."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from gossamer.bus.base import Bus
from gossamer.bus.streams import StreamsBus
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server, standalone

_numbers = count()


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone(options={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture
async def bus(one_server: Server) -> AsyncIterator[Bus]:
    shards = await Shards.connect(one_server.address)
    yield StreamsBus(shards, prefix=f"t{next(_numbers)}", kept=("in",), claim_seconds=0.5)
    await shards.close()
