"""From an address to a bus."""

from collections.abc import Mapping

from gossamer.bus.base import Bus
from gossamer.bus.streams import StreamsBus
from gossamer.bus.topics import Topics
from gossamer.errors import BadInput
from gossamer.valkey.shards import Shards

STREAMS = "streams"
_KAFKA = "kafka://"
STREAMS_BODY_BYTES = 4096
"""A longer body does not belong into a stream: it is memory."""


def check_bus(address: str) -> None:
    """Raises BadInput for what is no bus."""
    if address != STREAMS and not (address.startswith(_KAFKA) and len(address) > len(_KAFKA)):
        raise BadInput(f"{address!r} is no bus; write streams, or kafka://host:port,host:port")


def open_bus(
    address: str,
    shards: Shards,
    topics: Topics,
    *,
    prefix: str,
    retention_seconds: float,
    most_bytes: int,
    kafka: Mapping[str, str],
    partitions: int,
    replicas: int,
    largest: int,
) -> Bus:
    """`streams`: in the server of `shards`, under `prefix`; `retention_seconds` and `most_bytes` bound a topic.
    `kafka://host:port,…`: with librdkafka's options `kafka`; topics that are missing get so many partitions and
    replicas (-1: the broker's default) and messages up to `largest` bytes. Raises BadInput for another address."""
    check_bus(address)
    if address == STREAMS:
        return StreamsBus(
            shards, prefix=prefix, kept=topics.requests, retention_seconds=retention_seconds, most_bytes=most_bytes
        )
    try:
        from gossamer.bus.kafka import KafkaBus  # an extra: who does not use it need not have it
    except ImportError as exc:
        raise BadInput("a Kafka bus needs more than the core; pip install gossamer-crawl[kafka]") from exc

    servers = address.removeprefix(_KAFKA).rstrip("/")
    return KafkaBus(
        servers, options=kafka, partitions=partitions, replicas=replicas, largest=largest, prefix=f"{topics.prefix}."
    )
