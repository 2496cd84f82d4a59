"""A bus of either kind by its address, as the tests and the processes they start open it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gossamer.bus.base import Bus
from gossamer.bus.streams import StreamsBus
from gossamer.valkey.shards import Shards

from .prefixed import Prefixed


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bus is."""

    kind: str
    """`streams` or `kafka`"""
    address: str
    prefix: str


@asynccontextmanager
async def opened(place: Place, *, partitions: int = 1, soon_missed: bool = False) -> AsyncIterator[Bus]:
    """The bus; its topic `in` is kept until acknowledged. `soon_missed`: a member that dies is missed after 2 s."""
    if place.kind == "kafka":
        from gossamer.bus.kafka import KafkaBus

        options = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "500"} if soon_missed else {}
        bus = KafkaBus(place.address, partitions=partitions, options=options, prefix=place.prefix)
        kafka = Prefixed(bus, place.prefix)
        try:
            yield kafka
        finally:
            await kafka.close()
        return
    shards = await Shards.connect(place.address)
    try:
        yield StreamsBus(shards, prefix=place.prefix, keep_until_acknowledged=("in",), claim_seconds=0.5)
    finally:
        await shards.close()
