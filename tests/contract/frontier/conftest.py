"""Every test of this folder runs on every topology: one shard, several on one server, several on a cluster."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from gossamer.frontier.valkey import leaseholder
from tests.servers.program import require
from tests.servers.valkey import Cluster, Server, cluster, standalone

from .pair import Pair
from .stage import Stage

SHARDS = {"single": 1, "sharded": 5, "cluster": 8}
REDIS = "redis"
"""Topology of some tests, which name it: two shards on the system's Redis, mostly 7.0."""
_LEASE_SECONDS = 60.0
"""Longest wait of a lease call for the servers of a cluster. Only a server that hangs needs as long."""


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    """As the embedded one is run, except for power cuts: what it confirms is in its file, also if it is killed at once.
    Waiting for the disk each time would be most of the time of these tests."""
    with standalone(options={"appendfsync": "no"}) as server:
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[Cluster]:
    """A real cluster of three primaries that have met: until then, some announcements of requests are lost."""
    with cluster(primaries=3) as servers:
        servers.wait_met()
        yield servers


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """Redis of the system."""
    with standalone(program=require("redis-server")) as server:
        yield server


@pytest.fixture(params=SHARDS)
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A frontier's place, with a prefix of its own.

    A lease call waits for every server of a cluster. By default it leaves a slow server's reply to a later call, so on
    a busy machine an empty reply would not mean that nothing is due. `tests/integration/test_shard_away.py` tests the
    default.
    """
    topology: str = request.param
    if topology == REDIS:
        return Stage(request.getfixturevalue("redis_server"), 2)
    if topology == "cluster":
        monkeypatch.setattr(leaseholder, "_LATE_SECONDS", _LEASE_SECONDS)
        monkeypatch.setattr(leaseholder, "_GATHER_SECONDS", _LEASE_SECONDS)
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
