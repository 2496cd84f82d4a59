"""Every test of this folder runs on every bus."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from gossamer.bus.base import Bus
from tests.servers.kafka import Broker, broker
from tests.servers.valkey import Server, standalone

from .opened import Place, opened

_numbers = count()


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    with standalone(options={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture(scope="session")
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture(params=["streams", "kafka"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where an empty bus is."""
    if request.param == "kafka":
        return Place("kafka", request.getfixturevalue("one_broker").servers, f"t{next(_numbers)}.")
    return Place("streams", request.getfixturevalue("one_server").address, f"t{next(_numbers)}")


@pytest.fixture
async def bus(place: Place) -> AsyncIterator[Bus]:
    """An empty bus with the topics `in` (kept until acknowledged) and `pages`."""
    async with opened(place) as empty:
        yield empty
