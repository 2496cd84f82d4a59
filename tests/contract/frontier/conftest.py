"""Every test of this folder runs on every topology: one shard, several on one server, several on a cluster."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.servers.valkey import Cluster, Server, cluster, standalone

from .pair import Pair
from .stage import Stage

SHARDS = {"single": 1, "sharded": 5, "cluster": 8}


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    """As the embedded one is run: what it confirms is on the disk."""
    with standalone(options={"appendfsync": "always"}) as server:
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[Cluster]:
    """A real cluster of three primaries."""
    with cluster(primaries=3) as servers:
        yield servers


@pytest.fixture(params=SHARDS)
def stage(request: pytest.FixtureRequest) -> Stage:
    """A frontier's place, with a prefix of its own."""
    topology: str = request.param
    server = request.getfixturevalue("three_servers" if topology == "cluster" else "one_server")
    return Stage(server, SHARDS[topology])


@pytest.fixture
def stage_of(one_server: Server) -> Callable[[int], Stage]:
    """Makes places with so many shards on the one server."""
    return lambda shards: Stage(one_server, shards)


@pytest.fixture
async def pair(stage: Stage) -> AsyncIterator[Pair]:
    """A frontier beside its model."""
    pair = await stage.pair()
    yield pair
    await stage.leave(pair)
