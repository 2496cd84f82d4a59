"""Every test of this folder runs on every bus."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from gossamer.bus.base import Bus
from gossamer.bus.streams import StreamsBus
from gossamer.valkey.shards import Shards
from tests.servers.kafka import Broker, broker
from tests.servers.valkey import Server, standalone

from .prefixed import Prefixed

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
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    """An empty bus with the topics `in` (kept until acknowledged) and `pages`."""
    if request.param == "kafka":
        from gossamer.bus.kafka import KafkaBus

        prefix = f"t{next(_numbers)}."
        kafka = Prefixed(KafkaBus(request.getfixturevalue("one_broker").servers, partitions=1), prefix)
        yield kafka
        await kafka.close()
        return
    shards = await Shards.connect(request.getfixturevalue("one_server").address)
    yield StreamsBus(shards, prefix=f"t{next(_numbers)}", kept=("in",), claim_seconds=0.5)
    await shards.close()
