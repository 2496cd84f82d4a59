"""Topics that were there before us, and allow less than the settings say: Scrapy Cluster made them with the default."""

import os
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gossamer.bus.base import Topics
from gossamer.bus.kafka import KafkaBus
from gossamer.errors import MessageTooLarge
from gossamer.services.outbound import OutboundPublisher
from gossamer.sinks.bus import BusSink
from gossamer.sinks.remote import BlobStore, read_blob
from gossamer.telemetry.logs import Troubles
from tests.integration.service.test_bus_sink import a_page
from tests.servers.kafka import Broker, broker

LIMIT = 1_048_588
"""Kafka's default."""
TOPICS = ("demo.crawled_firehose", "demo.outbound_firehose", "demo.dead_letter", "demo.plain")


@pytest.fixture(scope="module")
def old_broker() -> Iterator[Broker]:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.servers})
        made = [NewTopic(name, 1, 1, config={"max.message.bytes": str(LIMIT)}) for name in TOPICS]
        for done in admin.create_topics(made).values():
            done.result(20)
        yield running


@pytest.fixture
async def kafka(old_broker: Broker) -> AsyncIterator[KafkaBus]:
    bus = KafkaBus(old_broker.servers, partitions=1)
    yield bus
    await bus.close()


async def taken(bus: KafkaBus, topic: str) -> list[bytes]:
    reader = await bus.read([topic], from_beginning=True)
    found = await reader.take(at_most=10, wait_seconds=60.0)
    await reader.close()
    return [message.value for message in found]


async def test_a_topic_that_allows_less_has_its_own_limit_and_others_keep_theirs(kafka: KafkaBus) -> None:
    with pytest.raises(MessageTooLarge):
        await kafka.publish("demo.plain", [os.urandom(2 * LIMIT)])
    limit = await kafka.message_limit("demo.plain")
    assert limit < LIMIT
    await kafka.publish("demo.plain", [os.urandom(limit)])
    await kafka.publish("demo.ours", [os.urandom(2 * LIMIT)])


async def test_a_large_page_goes_to_the_blob_store(kafka: KafkaBus, blobs: BlobStore) -> None:
    body = os.urandom(2 * LIMIT)
    await BusSink(kafka, Topics(), blobs).write([a_page(body=body, body_encoding="base64")])
    page = msgspec.json.decode((await taken(kafka, "demo.crawled_firehose"))[0])
    assert (page["body"], page["body_bytes"]) == ("", len(body))
    assert await read_blob(page["body_address"]) == body


async def test_a_large_answer_and_a_large_letter_go_there_too(kafka: KafkaBus, blobs: BlobStore) -> None:
    outbound = OutboundPublisher(kafka, Topics(), blobs, Troubles())
    text = os.urandom(LIMIT).hex()
    await outbound.send([{"appid": "app", "uuid": "u", "text": text}])
    await outbound.bury([{"topic": "demo.incoming", "message": text}])
    for topic in ("demo.outbound_firehose", "demo.dead_letter"):
        [told] = [msgspec.json.decode(value) for value in await taken(kafka, topic)]
        whole = msgspec.json.decode(await read_blob(told["whole_address"]))
        assert text in whole.values()


async def test_many_small_messages_fit_into_a_topic_with_a_low_limit(old_broker: Broker) -> None:
    low = AdminClient({"bootstrap.servers": old_broker.servers})
    made = low.create_topics([NewTopic("demo.low", 1, 1, config={"max.message.bytes": "20000"})])
    made["demo.low"].result(20)
    bus = KafkaBus(old_broker.servers, partitions=1)
    await bus.publish("demo.plain", [b"the producer knows nothing of the low limit yet"])
    values = [os.urandom(1000) for _ in range(500)]
    await bus.publish("demo.low", values)
    reader = await bus.read(["demo.low"], from_beginning=True)
    found: list[bytes] = []
    while len(found) < len(values):
        found += [message.value for message in await reader.take(at_most=1000, wait_seconds=60.0)]
    assert found == values
    await reader.close()
    await bus.close()
