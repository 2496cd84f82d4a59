"""Kafka in particular: the operator's options, what a plain client can read, and the list of topics."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from gossamer.bus.base import TopicInfo, Topics
from gossamer.bus.kafka import KafkaBus
from gossamer.errors import BadInput
from gossamer.sinks.bus import BusSink
from gossamer.sinks.remote import BlobStore
from gossamer.valkey.shards import Shards
from gossamer.wiring.service import open_bus
from tests.servers.kafka import Broker, broker

from .test_bus_sink import a_page

_PLAIN_CLIENT = """
import sys
codecs = ("zstandard", "lz4", "lz4.block", "lz4.frame", "lz4f", "lz4framed", "snappy", "cramjam")
sys.modules.update(dict.fromkeys(codecs, None))  # kafka-python takes those that it finds; a plain one finds none
from kafka import KafkaConsumer, KafkaProducer
servers, asked, *answered = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=servers)
producer.send(asked, b"from kafka-python").get(30)
producer.close()
consumer = KafkaConsumer(
    *answered, bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=30000
)
for _ in answered:
    print(next(consumer).value.decode())
consumer.close()
"""


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


def plain_client(one_broker: Broker, asked: str, answered: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """kafka-python without optional packages: it sends one message to `asked`, prints one of each of `answered`."""
    command = [sys.executable, "-c", _PLAIN_CLIENT, one_broker.servers, asked, *answered]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


async def test_a_plain_kafka_python_reads_what_is_published_and_is_read(one_broker: Broker, blobs: BlobStore) -> None:
    bus, topics = KafkaBus(one_broker.servers, partitions=1), Topics("plain")
    body = b"the same again and again " * 1000
    await BusSink(bus, topics, blobs).write([a_page(body=body)])
    requests = await bus.consume([topics.incoming], group="g")
    ran = plain_client(one_broker, topics.incoming, [topics.crawled, topics.crawled_by("app")])
    assert ran.returncode == 0, ran.stderr
    assert [msgspec.json.decode(line)["body"].encode() for line in ran.stdout.splitlines()] == [body, body]
    [asked] = await requests.take(at_most=10, wait_seconds=30.0)
    assert asked.value == b"from kafka-python"
    await requests.close()
    await bus.close()


async def test_closing_the_bus_ends_a_take_that_waits(one_broker: Broker) -> None:
    """Else a process, or a test, that failed meanwhile could not end before the wait does."""
    bus = KafkaBus(one_broker.servers, partitions=1)
    consumer = await bus.consume(["closed.pages"], group="g")
    taking = asyncio.create_task(consumer.take(at_most=1, wait_seconds=3600.0))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await bus.close()
        assert await taking == []


class _Late:
    """A consumer of librdkafka whose next commit comes during a rebalance that leaves it its partitions."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._is_late = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def commit(self, **arguments: Any) -> Any:
        if self._is_late:
            self._is_late = False
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self._consumer.commit(**arguments)


async def test_a_commit_that_a_rebalance_refuses_is_repeated(one_broker: Broker) -> None:
    """Although no other message comes."""
    bus = KafkaBus(one_broker.servers, partitions=1)
    consumer = await bus.consume(["late.pages"], group="g")
    await bus.publish("late.pages", [b"1", b"2"])
    messages = [*await consumer.take(at_most=1, wait_seconds=30.0), *await consumer.take(at_most=1, wait_seconds=30.0)]
    consumer._consumer = cast(Any, _Late(consumer._consumer))
    await consumer.acknowledge(messages)
    assert await consumer.lag() == 2
    assert await consumer.take(at_most=1, wait_seconds=0.1) == []
    assert await consumer.lag() == 0
    await bus.close()


async def test_the_operators_options_win(one_broker: Broker) -> None:
    bus = KafkaBus(one_broker.servers, partitions=1, options={"compression.type": "zstd"})
    await bus.publish("packed.pages", [b"the same again and again " * 1000])
    ran = plain_client(one_broker, "packed.pages", ["packed.pages"])
    assert "UnsupportedCodec" in ran.stderr
    await bus.close()


async def test_the_list_of_topics_has_the_clusters_own_with_all_their_partitions(one_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": one_broker.servers})
    names = ("listed.pages", "listed.empty", "listedtoo.pages", "unlisted.pages")
    for made in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        made.result(20)
    all_topics = KafkaBus(one_broker.servers)
    for name in ("listed.pages", "listedtoo.pages", "unlisted.pages"):
        await all_topics.publish(name, [b"1"] * 20, keys=[b"%d" % number for number in range(20)])
    bus = open_bus(
        f"kafka://{one_broker.servers}", cast(Shards, None), Topics("listed"), prefix="g", retention_seconds=1,
        max_topic_bytes=1, kafka={}, partitions=1, replicas=1, max_message_bytes=100_000,
    )  # fmt: skip
    assert await bus.topics() == [TopicInfo("listed.empty", 0), TopicInfo("listed.pages", 20)]
    assert not [topic.name for topic in await all_topics.topics() if topic.name.startswith("__")]
    await bus.close()
    await all_topics.close()


@pytest.mark.parametrize(
    "option",
    [
        "acks", "request.required.acks", "enable.idempotence", "enable.auto.commit", "enable.auto.offset.store",
        "auto.offset.reset", "group.id", "enable.partition.eof", "bootstrap.servers", "metadata.broker.list",
        "message.max.bytes", "transactional.id", "delivery.report.only.error",
    ],
)  # fmt: skip
def test_an_option_that_promises_rest_on_is_refused_by_name(option: str) -> None:
    with pytest.raises(BadInput, match=f"kafka.options: {option} cannot be set; "):
        KafkaBus("127.0.0.1:1", options={option: "1"})


@pytest.mark.parametrize(
    ("option", "value"),
    [("compression.typ", "zstd"), ("compression.type", "zip"), ("max.in.flight", "9"), ("error_cb", "x")],
)
def test_an_option_that_librdkafka_does_not_take_is_refused(option: str, value: str) -> None:
    with pytest.raises(BadInput, match=r"kafka\.options"):
        KafkaBus("127.0.0.1:1", options={option: value})
