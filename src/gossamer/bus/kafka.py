"""The bus on Kafka, through librdkafka: idempotent publishing in batches, explicit commits after the work."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from gossamer.bus.base import TopicInfo
from gossamer.bus.kafka_client import ANSWER_SECONDS, in_thread, limit_of, log, partitions_of
from gossamer.bus.kafka_consumer import KafkaConsumer, read_mark
from gossamer.bus.kafka_pending import Pending
from gossamer.bus.topics import check_topic
from gossamer.errors import MessageTooLarge

T = TypeVar("T")

_DELIVERY_SECONDS = 15.0
_FULL_SECONDS = 0.005
_BATCH_BYTES = 1_000_000
_SPARE_BYTES = 1024
"""Of a message, for its headers."""


class KafkaBus:
    """Implements Bus. One producer and one thread that drives it, whatever is published; a thread for each consumer."""

    def __init__(
        self,
        servers: str,
        *,
        options: Mapping[str, str] | None = None,
        partitions: int = 8,
        replicas: int = -1,
        largest: int = 8 * 1024 * 1024,
    ) -> None:
        """`servers`: `host:port,host:port`. `options`: further ones of librdkafka (SASL, TLS ...). A topic that is
        missing is made with so many `partitions` and `replicas` (-1: the broker's default) and messages of up to
        `largest` bytes; one that is there and allows less lowers `largest` when it is first used, and what was too
        large for it is MessageTooLarge. Nothing is connected yet."""
        self._common: dict[str, Any] = {
            "bootstrap.servers": servers,
            "logger": log,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 2000,
            **(options or {}),
        }
        self._partitions = partitions
        self._replicas = replicas
        self._largest = largest
        self._known: set[str] = set()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka-admin")
        self._admin: Any = None
        self._producer: Any = None
        self._driver: threading.Thread | None = None
        self._closing = False

    @property
    def largest(self) -> int:
        return self._largest - _SPARE_BYTES

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        if not values:
            return
        self._check(topic, values)
        await self._ensure(topic)
        self._check(topic, values)  # once more: the topic may allow less than was known
        producer = self._started()
        pending = Pending(asyncio.get_running_loop(), len(values))
        for at, value in enumerate(values):
            key = keys[at] if keys and keys[at] else None
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=pending.delivered)
                    break
                except BufferError:  # the thread makes room as the broker takes messages
                    await asyncio.sleep(_FULL_SECONDS)
                except KafkaException as error:
                    pending.failed(error.args[0])
                    break
        await pending.future

    def _check(self, topic: str, values: Sequence[bytes]) -> None:
        for value in values:
            if len(value) > self.largest:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {self.largest:,}")

    def _started(self) -> Any:
        if self._producer is None:
            self._producer = Producer(
                {
                    **self._common,
                    "acks": "all",
                    "enable.idempotence": True,
                    "compression.type": "zstd",
                    "linger.ms": 5,
                    "message.max.bytes": self._largest,
                    "batch.size": min(_BATCH_BYTES, self._largest),  # a topic's limit is of batches, too
                    "message.timeout.ms": int(_DELIVERY_SECONDS * 1000),
                    "queue.buffering.max.kbytes": 256 * 1024,
                }
            )
            self._driver = threading.Thread(target=self._drive, name="kafka-producer", daemon=True)
            self._driver.start()
        return self._producer

    def _drive(self) -> None:
        while not self._closing:
            self._producer.poll(0.1)

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _ensure(self, topic: str) -> None:
        if topic not in self._known:
            check_topic(topic)
            await self._ask(lambda admin: self._make(admin, topic))
            self._known.add(topic)

    def _make(self, admin: Any, topic: str) -> None:
        made = not partitions_of(admin, topic) and self._made(admin, topic)
        # Made, by us or by somebody else just now, is not known: a broker that has not heard of the topic would give a
        # consumer none of its partitions.
        last = time.monotonic() + ANSWER_SECONDS
        while not partitions_of(admin, topic) and time.monotonic() < last:
            time.sleep(_FULL_SECONDS)
        if not made:
            self._largest = min(self._largest, limit_of(admin, topic))

    def _made(self, admin: Any, topic: str) -> bool:
        """Make the topic; False: somebody else was quicker."""
        wanted = NewTopic(
            topic,
            num_partitions=self._partitions,
            replication_factor=self._replicas,
            config={"max.message.bytes": str(self._largest)},
        )
        try:
            admin.create_topics([wanted], operation_timeout=ANSWER_SECONDS)[topic].result(2 * ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    async def _ask(self, call: Callable[[Any], T]) -> T:
        def asked() -> T:
            if self._admin is None:
                self._admin = AdminClient(self._common)
            return call(self._admin)

        return await in_thread(self._threads, asked)

    async def topics(self) -> list[TopicInfo]:
        def ask(admin: Any) -> dict[str, int]:
            found = admin.list_topics(timeout=ANSWER_SECONDS).topics
            return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

        names = await self._ask(ask)
        reader = KafkaConsumer(self._common, group="gossamer-asking")
        try:
            return [TopicInfo(name, await reader.size(name, count)) for name, count in sorted(names.items())]
        finally:
            await reader.close()

    async def ping(self) -> None:
        await self._ask(lambda admin: admin.list_topics(timeout=ANSWER_SECONDS))

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def consume(self, topics: Sequence[str], *, group: str) -> "KafkaConsumer":
        for topic in topics:
            await self._ensure(topic)
        consumer = KafkaConsumer(self._common, group=group)
        await consumer.subscribe(topics)
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> "KafkaConsumer":
        places = read_mark(after)
        for topic in topics:
            await self._ensure(topic)
        consumer = KafkaConsumer({**self._common, "enable.partition.eof": True}, group="gossamer-reading")
        await consumer.assign(topics, from_beginning=from_beginning or bool(after), after=places)
        return consumer

    async def close(self) -> None:
        producer = self._producer
        if producer is not None:
            await asyncio.to_thread(producer.flush, _DELIVERY_SECONDS)
            self._closing = True
            if self._driver is not None:
                await asyncio.to_thread(self._driver.join)
            self._producer = None
        self._threads.shutdown(wait=False)
