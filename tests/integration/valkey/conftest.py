"""Real servers, one of each kind for the whole session; a test that breaks one starts its own."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.valkey.shards import Shards
from tests.servers.valkey import Cluster, Server, cluster, standalone


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone() as server:
        yield server


@pytest.fixture(scope="session")
def guarded_server() -> Iterator[Server]:
    """On TCP, with a password."""
    with standalone(tcp=True, password="open sesame/1") as server:
        yield server


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    with cluster() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def mirrored() -> Iterator[Cluster]:
    """One primary and its replica."""
    with cluster(primaries=1, replicas=1) as nodes:
        yield nodes


@pytest.fixture
async def shards(one_server: Server) -> AsyncIterator[Shards]:
    one_server.command("FLUSHALL")
    connected = await Shards.connect(one_server.address)
    yield connected
    await connected.close()


@pytest.fixture
async def spread(three_nodes: Cluster) -> AsyncIterator[Shards]:
    for node in three_nodes.primaries:
        node.command("FLUSHALL")
    connected = await Shards.connect(three_nodes.address)
    yield connected
    await connected.close()
