"""The bus on Kafka, through librdkafka: idempotent publishing in batches, explicit commits after the work."""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from gossamer.bus.base import TopicInfo, check_topic
from gossamer.bus.kafka_consumer import (
    ANSWER_SECONDS,
    KafkaConsumer,
    check_options,
    in_thread,
    limit_of,
    log,
    partitions_of,
    read_mark,
    translated,
)
from gossamer.errors import MessageTooLarge


class PendingPublish:
    """One call of `publish`: its future is done when the last of its messages is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._left = count
        self._error: Any = None
        self._lock = threading.Lock()
        self.future: asyncio.Future[None] = loop.create_future()

    def delivered(self, error: Any, message: Any) -> None:
        """Called by the producer's thread for every message."""
        self.failed(error)

    def failed(self, error: Any) -> None:
        """One is done with, and how; None: well."""
        with self._lock:
            self._error = self._error or error
            self._left -= 1
            if self._left:
                return
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(translated(self._error))


T = TypeVar("T")

_DELIVERY_SECONDS = 15.0
_FULL_SECONDS = 0.005
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
        prefix: str = "",
    ) -> None:
        """`servers`: `host:port,host:port`. `options`: librdkafka's (SASL, TLS, compression ...); they win over the
        bus's own. Raises BadInput for one that cannot be set (`check_options`). A topic that is missing is made with so
        many `partitions` and `replicas` (-1: the broker's default) and messages of up to `largest` bytes; one that is
        there and allows less lowers `largest` when it is first used, and what was too large for it is MessageTooLarge.
        `prefix`: of the names that `topics` lists; others may use the broker, too. Nothing is connected yet."""
        self._options = dict(options or {})
        check_options(self._options)
        self._common: dict[str, Any] = {
            "bootstrap.servers": servers,
            "logger": log,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 2000,
            **self._options,
        }
        self._partitions = partitions
        self._replicas = replicas
        self._largest = largest
        self._prefix = prefix
        self._known: set[str] = set()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka-admin")
        self._consumers: list[KafkaConsumer] = []
        self._admin: Any = None
        self._producer: Any = None
        self._producer_largest = 0
        """Bytes of the largest message and batch that the producer makes."""
        self._drivers: list[threading.Thread] = []
        self._close_by = math.inf
        """When driving ends whatever is under way, by the monotonic clock."""

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
        pending = PendingPublish(asyncio.get_running_loop(), len(values))
        for at, value in enumerate(values):
            key = keys[at] if keys and keys[at] else None
            while True:
                try:
                    self._started().produce(topic, value, key, on_delivery=pending.delivered)
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
        """The producer. A topic's limit holds for batches too, so a lower one needs a new producer."""
        if self._producer is None or self._producer_largest > self._largest:
            self._producer_largest = self._largest
            self._producer = Producer(
                {
                    **self._common,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.max.bytes": self._largest,
                    "message.timeout.ms": int(_DELIVERY_SECONDS * 1000),
                    "queue.buffering.max.kbytes": 256 * 1024,
                    **self._options,
                }
            )
            self._drivers = [driver for driver in self._drivers if driver.is_alive()]
            self._drivers.append(
                threading.Thread(target=self._drive, args=(self._producer,), name="kafka-producer", daemon=True)
            )
            self._drivers[-1].start()
        return self._producer

    def _drive(self, producer: Any) -> None:
        """Report this producer's deliveries, the last ones too when another has taken its place."""
        while (producer is self._producer or len(producer)) and time.monotonic() < self._close_by:
            producer.poll(0.1)

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
            own = [name for name in found if name.startswith(self._prefix) and not name.startswith("__")]
            return {name: len(found[name].partitions) for name in own}

        names = await self._ask(ask)
        reader = KafkaConsumer(self._common, group="gossamer-asking")
        try:
            return [TopicInfo(name, await reader.size(name, count)) for name, count in sorted(names.items())]
        finally:
            await reader.close()

    async def existing(self, topics: Collection[str]) -> set[str]:
        wanted = set(topics)
        if wanted <= self._known:
            return wanted
        # All names: asked for one by name, a broker may make it.
        return wanted.intersection(await self._ask(lambda admin: admin.list_topics(timeout=ANSWER_SECONDS).topics))

    async def ping(self) -> None:
        await self._ask(lambda admin: admin.list_topics(timeout=ANSWER_SECONDS))

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def consume(self, topics: Sequence[str], *, group: str) -> "KafkaConsumer":
        for topic in topics:
            await self._ensure(topic)
        consumer = self._opened(KafkaConsumer(self._common, group=group))
        await consumer.subscribe(topics)
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> "KafkaConsumer":
        places = read_mark(after)
        for topic in topics:
            await self._ensure(topic)
        consumer = self._opened(KafkaConsumer({**self._common, "enable.partition.eof": True}, group="gossamer-reading"))
        await consumer.assign(topics, from_beginning=from_beginning or bool(after), after=places)
        return consumer

    def _opened(self, consumer: KafkaConsumer) -> KafkaConsumer:
        self._consumers = [other for other in self._consumers if not other.closed] + [consumer]
        return consumer

    async def close(self) -> None:
        # A consumer that an error left open, with a call that waits, would keep the process from ending.
        for consumer in self._consumers:
            await consumer.close()
        self._close_by = time.monotonic() + _DELIVERY_SECONDS
        self._producer = None
        for driver in self._drivers:
            await asyncio.to_thread(driver.join)
        self._threads.shutdown(wait=False)
