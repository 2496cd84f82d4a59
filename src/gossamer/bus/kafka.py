"""The message bus on Kafka, through librdkafka: publishing in batches, and topics. Consumers are in `kafka_consumer`.

Timeouts, pauses and buffer sizes may be tuned as each says. `acks` and `enable.idempotence` may not: a message must be
on every in-sync replica, once and in order, when `publish` returns. librdkafka calls back from threads, which may touch
the event loop only through `call_soon_threadsafe`.
"""

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

from gossamer.bus.base import TopicInfo, check_topic_name
from gossamer.bus.kafka_consumer import (
    REPLY_SECONDS,
    KafkaConsumer,
    bus_error,
    check_options,
    in_thread,
    log,
    parse_cursor,
    partitions_of,
    topic_limit,
)
from gossamer.errors import MessageTooLarge


class PendingPublish:
    """The messages of one call of `publish`. `future` is done when the last of them is delivered or has failed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._remaining = count
        self._error: Any = None
        self._lock = threading.Lock()
        self.future: asyncio.Future[None] = loop.create_future()

    def on_delivery(self, error: Any, message: Any) -> None:
        """Delivery callback; the producer's thread calls it once for each message."""
        self.complete_one(error)

    def complete_one(self, error: Any) -> None:
        """Count one message as done. `error`: why it failed; None: it was delivered."""
        with self._lock:
            self._error = self._error or error
            self._remaining -= 1
            if self._remaining:
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing awaits the future
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        """Set the future when all messages are done, unless its caller was cancelled. Runs in the event loop."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(bus_error(self._error))


T = TypeVar("T")

_DELIVERY_SECONDS = 15.0
"""Time for the broker to take a message: `publish` fails after it, and `close` waits that long at most. May be longer;
a shorter one fails while a partition moves to another broker, which takes several seconds."""
_POLL_SECONDS = 0.005
"""Pause before the next look at a full queue or at a topic that is being created. Tuning only: shorter pauses need more
CPU, longer ones delay publishing."""
_LINGER_MS = 5
"""Time that a message waits for others of its batch. Tuning only: longer means larger batches and slower calls."""
_BUFFER_KIB = 256 * 1024
"""Memory for messages that no broker has taken yet; `publish` waits while it is full. Tuning only."""
_OVERHEAD_BYTES = 1024
"""Part of the message limit that is left for Kafka's headers, the key included. May be larger, not smaller: a message
just below the limit would be refused by the broker."""


class KafkaBus:
    """Implements Bus with one producer, one thread that drives it, and one thread for each consumer."""

    def __init__(
        self,
        servers: str,
        *,
        options: Mapping[str, str] | None = None,
        partitions: int = 8,
        replicas: int = -1,
        max_message_bytes: int = 8 * 1024 * 1024,
        prefix: str = "",
    ) -> None:
        """`servers`: `host:port,host:port`. `options`: options of librdkafka (SASL, TLS, compression ...); they
        override the bus's own, but for the reserved ones: see `check_options`, which raises BadInput.

        `partitions`, `replicas` (-1: the broker's default) and `max_message_bytes` apply to topics that the bus
        creates. An existing topic with a smaller message limit lowers `max_message_bytes` when it is first used; a
        message above the limit raises MessageTooLarge. `prefix`: `topics` lists only names that begin with it. The
        constructor opens no connection."""
        self._options = dict(options or {})
        check_options(self._options)
        self._common: dict[str, Any] = {
            "bootstrap.servers": servers,
            "logger": log,
            # librdkafka's defaults are longer; these find the next broker sooner when one has died.
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 2000,
            **self._options,
        }
        self._partitions = partitions
        self._replicas = replicas
        self._max_message_bytes = max_message_bytes
        self._prefix = prefix
        self._ready_topics: set[str] = set()
        """Topics that are known to exist."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka-admin")
        self._consumers: list[KafkaConsumer] = []
        self._admin: Any = None
        self._producer: Any = None
        self._producer_max_bytes = 0
        """Size limit of messages and batches with which the current producer was created."""
        self._producer_threads: list[threading.Thread] = []
        self._close_by = math.inf
        """Monotonic time at which the producer threads end, even if messages are still pending."""

    @property
    def max_message_bytes(self) -> int:
        return self._max_message_bytes - _OVERHEAD_BYTES

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        if not values:
            return
        self._check_sizes(topic, values)
        await self._ensure(topic)
        self._check_sizes(topic, values)  # again: `_ensure` may have lowered the limit
        pending = PendingPublish(asyncio.get_running_loop(), len(values))
        for index, value in enumerate(values):
            key = keys[index] if keys and keys[index] else None
            while True:
                try:
                    self._current_producer().produce(topic, value, key, on_delivery=pending.on_delivery)
                    break
                except BufferError:  # the queue is full; the thread empties it as the broker takes messages
                    await asyncio.sleep(_POLL_SECONDS)
                except KafkaException as error:
                    pending.complete_one(error.args[0])
                    break
        await pending.future

    def _check_sizes(self, topic: str, values: Sequence[bytes]) -> None:
        """Raise MessageTooLarge for the first message that is too large."""
        for value in values:
            if len(value) > self.max_message_bytes:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {self.max_message_bytes:,}")

    def _current_producer(self) -> Any:
        """Return the producer. A topic's limit also applies to batches, so a lowered limit needs a new producer."""
        if self._producer is None or self._producer_max_bytes > self._max_message_bytes:
            self._producer_max_bytes = self._max_message_bytes
            self._producer = Producer(
                {
                    **self._common,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": _LINGER_MS,
                    "message.max.bytes": self._max_message_bytes,
                    "message.timeout.ms": int(_DELIVERY_SECONDS * 1000),
                    "queue.buffering.max.kbytes": _BUFFER_KIB,
                    **self._options,
                }
            )
            self._producer_threads = [thread for thread in self._producer_threads if thread.is_alive()]
            self._producer_threads.append(
                threading.Thread(target=self._drive, args=(self._producer,), name="kafka-producer", daemon=True)
            )
            self._producer_threads[-1].start()
        return self._producer

    def _drive(self, producer: Any) -> None:
        """Serve a producer's delivery callbacks until it is replaced and its last message is done."""
        while (producer is self._producer or len(producer)) and time.monotonic() < self._close_by:
            producer.poll(0.1)

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _ensure(self, topic: str) -> None:
        """Make sure that the topic exists, at the first use in this process."""
        if topic not in self._ready_topics:
            check_topic_name(topic)
            await self._with_admin(lambda admin: self._prepare(admin, topic))
            self._ready_topics.add(topic)

    def _prepare(self, admin: Any, topic: str) -> None:
        """Create the topic unless it exists, wait until it is usable, and adopt its message limit."""
        created = not partitions_of(admin, topic) and self._create(admin, topic)
        # A new topic, whichever process created it, takes a moment to reach all brokers. Until then a broker would
        # assign none of its partitions to a consumer.
        deadline = time.monotonic() + REPLY_SECONDS
        while not partitions_of(admin, topic) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if not created:
            self._max_message_bytes = min(self._max_message_bytes, topic_limit(admin, topic))

    def _create(self, admin: Any, topic: str) -> bool:
        """Create the topic. Return False if another process has created it meanwhile."""
        new_topic = NewTopic(
            topic,
            num_partitions=self._partitions,
            replication_factor=self._replicas,
            config={"max.message.bytes": str(self._max_message_bytes)},
        )
        try:
            admin.create_topics([new_topic], operation_timeout=REPLY_SECONDS)[topic].result(2 * REPLY_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    async def _with_admin(self, call: Callable[[Any], T]) -> T:
        """Return the result of a blocking call with the admin client, made in a thread. Raises BusError."""

        def run() -> T:
            if self._admin is None:
                self._admin = AdminClient(self._common)
            return call(self._admin)

        return await in_thread(self._threads, run)

    async def topics(self) -> list[TopicInfo]:
        def partition_counts(admin: Any) -> dict[str, int]:
            found = admin.list_topics(timeout=REPLY_SECONDS).topics
            own = [name for name in found if name.startswith(self._prefix) and not name.startswith("__")]
            return {name: len(found[name].partitions) for name in own}

        counts = await self._with_admin(partition_counts)
        reader = KafkaConsumer(self._common, group="gossamer-asking")  # joins no group; the option is mandatory
        try:
            return [TopicInfo(name, await reader.size(name, count)) for name, count in sorted(counts.items())]
        finally:
            await reader.close()

    async def existing(self, topics: Collection[str]) -> set[str]:
        wanted = set(topics)
        if wanted <= self._ready_topics:
            return wanted
        # List all topics: a broker may create a topic when a client asks for it by name.
        return wanted.intersection(
            await self._with_admin(lambda admin: admin.list_topics(timeout=REPLY_SECONDS).topics)
        )

    async def ping(self) -> None:
        await self._with_admin(lambda admin: admin.list_topics(timeout=REPLY_SECONDS))

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def consume(self, topics: Sequence[str], *, group: str) -> KafkaConsumer:
        for topic in topics:
            await self._ensure(topic)
        consumer = self._track(KafkaConsumer(self._common, group=group))
        await consumer.subscribe(topics)
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> KafkaConsumer:
        offsets = parse_cursor(after)
        for topic in topics:
            await self._ensure(topic)
        consumer = self._track(KafkaConsumer({**self._common, "enable.partition.eof": True}, group="gossamer-reading"))
        await consumer.assign(topics, from_beginning=from_beginning or bool(after), after=offsets)
        return consumer

    def _track(self, consumer: KafkaConsumer) -> KafkaConsumer:
        self._consumers = [other for other in self._consumers if not other.closed] + [consumer]
        return consumer

    async def close(self) -> None:
        # A consumer that an error left open may have a waiting call, which would keep the process from exiting.
        for consumer in self._consumers:
            await consumer.close()
        self._close_by = time.monotonic() + _DELIVERY_SECONDS
        self._producer = None
        for thread in self._producer_threads:
            await asyncio.to_thread(thread.join)
        self._threads.shutdown(wait=False)
