"""One Valkey for the tests of this folder, with a bus and a blob store."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.sinks.remote import BlobStore
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server, standalone

_numbers = count()


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone(options={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture
async def bus(one_server: Server) -> AsyncIterator[StreamsBus]:
    shards = await Shards.connect(one_server.address)
    yield StreamsBus(
        shards, prefix=f"t{next(_numbers)}", keep_until_acknowledged=Topics().requests, max_message_bytes=100_000
    )
    await shards.close()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "blobs"))
