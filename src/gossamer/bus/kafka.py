"""The message bus on Kafka, through librdkafka: publishing in batches, and topics. Consumers are in `kafka_consumer`.

Fixed: the options `acks` and `enable.idempotence`. A message must be on every in-sync replica, once and in order, when
`publish` returns. librdkafka calls back from threads, which may touch the event loop only through
`call_soon_threadsafe`.
"""

import asyncio
import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from gossamer.bus.base import TopicInfo, check_topic_name
from gossamer.bus.kafka_back_reader import KafkaBackReader
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
from gossamer.errors import BusError, MessageTooLarge


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
"""Pause before the next look at a full queue or at a topic that is being created. Shorter pauses need more CPU, longer
ones delay publishing."""
_LINGER_MS = 5
"""Time that a message waits for others of its batch. Longer means larger batches and slower calls."""
_BUFFER_KIB = 256 * 1024
"""Memory for messages that no broker has taken yet; `publish` waits while it is full."""
_OVERHEAD_BYTES = 1024
"""Part of the message limit that is left for Kafka's headers, the key included. May be larger, not smaller: a message
just below the limit would be refused by the broker."""
_LOOK_SECONDS = 1.0
"""Interval at which the bus checks, while messages wait for a broker, whether their topic still exists."""
_LIMIT_SECONDS = 60.0
"""Age at which a limit that is below `max_message_bytes` is read again, because an operator may have raised it."""
_LEAST_MESSAGE_BYTES = 1000
"""Smallest `message.max.bytes` that librdkafka accepts."""


@dataclass(frozen=True, slots=True)
class _TopicLimit:
    """Largest message or batch that a topic takes, Kafka's headers included."""

    bytes: int
    read_at: float
    """Monotonic time."""


class KafkaBus:
    """Implements Bus with one thread for each producer and each consumer.

    There is one producer for topics that take `max_message_bytes`, and further ones for topics with smaller limits,
    because a producer's limit holds for its batches, too. A smaller limit is rounded down to a power of two, so that
    there are few producers.
    """

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
        creates. An existing topic keeps its own message limit, if that is smaller. `prefix`: `topics` lists only names
        that begin with it. The constructor opens no connection."""
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
        self._limits: dict[str, _TopicLimit] = {}
        """Limits of the topics that are known to exist."""
        self._look = asyncio.Lock()
        """Held by the publishing call that looks whether its topic exists: one at a time, because the thread for it is
        shared with all other calls about topics."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka-admin")
        self._consumers: list[KafkaConsumer] = []
        self._admin: Any = None
        self._published: dict[str, Any] = {}
        """Producer that knows each topic."""
        self._producers: dict[int, Any] = {}
        """Producers by the size limit of their messages and batches."""
        self._producer_threads: list[threading.Thread] = []
        self._close_by = math.inf
        """Monotonic time at which the producer threads end, even if messages are still pending. Infinite: `close` was
        not called."""

    async def message_limit(self, topic: str) -> int:
        return await self._ensure(topic) - _OVERHEAD_BYTES

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        if not values:
            return
        limit = await self._ensure(topic)
        for value in values:
            if len(value) > limit - _OVERHEAD_BYTES:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {limit - _OVERHEAD_BYTES:,}")
        producer = self._producer(limit)
        if self._published.get(topic) is not producer:
            # A producer that has seen the topic deleted refuses its messages until it has asked for it again.
            await self._with_admin(lambda admin: producer.list_topics(topic, timeout=REPLY_SECONDS))
            self._published[topic] = producer
        pending = PendingPublish(asyncio.get_running_loop(), len(values))
        for index, value in enumerate(values):
            key = keys[index] if keys and keys[index] else None
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=pending.on_delivery)
                    break
                except BufferError:  # the queue is full; the thread empties it as the broker takes messages
                    await asyncio.sleep(_POLL_SECONDS)
                except KafkaException as error:
                    pending.complete_one(error.args[0])
                    break
        await self._delivered(topic, producer, pending.future)

    async def _delivered(self, topic: str, producer: Any, future: "asyncio.Future[None]") -> None:
        """Return when the messages are delivered. Meanwhile look whether the topic was deleted, and create it again."""
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_LOOK_SECONDS)
                if not future.done() and not self._look.locked():
                    async with self._look:
                        with contextlib.suppress(BusError):  # the messages fail with a reason of their own
                            await self._with_admin(lambda admin: self._create_again(admin, topic, producer))
            future.result()
        except BusError:
            # Look at the topic before its next message: it may be gone, or its limit may be lower.
            self._limits.pop(topic, None)
            self._published.pop(topic, None)
            raise
        finally:
            future.cancel()  # no effect unless this call was cancelled: nothing awaits the future then

    def _producer(self, limit: int) -> Any:
        """Return the producer for topics with this limit."""
        producer = self._producers.get(limit)
        if producer is None:
            producer = self._producers[limit] = Producer(
                {
                    **self._common,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": _LINGER_MS,
                    "message.max.bytes": limit,
                    "message.timeout.ms": int(_DELIVERY_SECONDS * 1000),
                    "queue.buffering.max.kbytes": _BUFFER_KIB,
                    **self._options,
                }
            )
            thread = threading.Thread(target=self._drive, args=(producer,), name="kafka-producer", daemon=True)
            self._producer_threads.append(thread)
            thread.start()
        return producer

    def _drive(self, producer: Any) -> None:
        """Serve a producer's delivery callbacks until the bus is closed and the last message is done."""
        while self._close_by == math.inf or (len(producer) and time.monotonic() < self._close_by):
            producer.poll(0.1)

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _ensure(self, topic: str) -> int:
        """Make sure that the topic exists, at its first use in this process and after a failure. Return its limit for
        messages and batches."""
        known = self._limits.get(topic)
        if known is not None and (
            known.bytes >= self._max_message_bytes or time.monotonic() - known.read_at < _LIMIT_SECONDS
        ):
            return known.bytes
        check_topic_name(topic)
        limit = await self._with_admin(lambda admin: self._prepare(admin, topic))
        self._limits[topic] = _TopicLimit(limit, time.monotonic())
        return limit

    async def _ensure_again(self, topic: str) -> None:
        """Make sure that a topic exists which a consumer has lost."""
        self._limits.pop(topic, None)
        await self._ensure(topic)

    def _prepare(self, admin: Any, topic: str) -> int:
        """Create the topic unless it exists, wait until it is usable, and return its limit."""
        created = not partitions_of(admin, topic) and self._create(admin, topic)
        # A new topic, whichever process created it, takes a moment to reach all brokers. Until then a broker would
        # assign none of its partitions to a consumer.
        deadline = time.monotonic() + REPLY_SECONDS
        while not partitions_of(admin, topic) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        limit = sys.maxsize if created else topic_limit(admin, topic)
        if limit >= self._max_message_bytes:
            return self._max_message_bytes
        return max(_LEAST_MESSAGE_BYTES, 1 << (limit.bit_length() - 1))

    def _create_again(self, admin: Any, topic: str, producer: Any) -> None:
        """Create the topic if it is gone, and let the producer know: it sends what waits for the topic then."""
        if not partitions_of(admin, topic):
            self._prepare(admin, topic)
            producer.list_topics(topic, timeout=REPLY_SECONDS)

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

    async def topics(self, *, after: str = "", limit: int | None = None) -> list[TopicInfo]:
        def page(admin: Any) -> list[TopicInfo]:
            found = admin.list_topics(timeout=REPLY_SECONDS).topics
            own = sorted(name for name in found if name.startswith(self._prefix) and not name.startswith("__"))
            names = [name for name in own if name > after][:limit]
            partitions = [TopicPartition(name, number) for name in names for number in found[name].partitions]
            return [TopicInfo(name, size) for name, size in _sizes(admin, names, partitions).items()]

        return await self._with_admin(page)

    async def existing(self, topics: Collection[str]) -> set[str]:
        wanted = set(topics)
        if wanted <= self._limits.keys():
            return wanted
        # List all topics: a broker may create a topic when a client asks for it by name.
        return wanted.intersection(
            await self._with_admin(lambda admin: admin.list_topics(timeout=REPLY_SECONDS).topics)
        )

    async def ping(self) -> None:
        await self._with_admin(lambda admin: admin.list_topics(timeout=REPLY_SECONDS))

    async def check_room(self) -> None:
        return  # a broker with a full disk does not answer

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def consume(self, topics: Sequence[str], *, group: str) -> KafkaConsumer:
        for topic in topics:
            await self._ensure(topic)
        consumer = self._track(KafkaConsumer(self._common, group=group, create=self._ensure_again))
        await consumer.subscribe(topics)
        return consumer

    async def read(
        self, topics: Sequence[str], *, from_beginning: bool, after: str = "", since: float = 0.0
    ) -> KafkaConsumer:
        offsets = parse_cursor(after)
        for topic in topics:
            await self._ensure(topic)
        options = {**self._common, "enable.partition.eof": True}
        consumer = self._track(KafkaConsumer(options, group="gossamer-reading", create=self._ensure_again))
        await consumer.assign(topics, from_beginning=from_beginning or bool(after), after=offsets, since=since)
        return consumer

    async def read_back(self, topic: str, *, before: str = "") -> KafkaBackReader:
        offsets = parse_cursor(before)
        await self._ensure(topic)
        reader = KafkaBackReader(self._common, topic)
        try:
            await reader.start(before=offsets.get(topic, {}))
        except BaseException:
            await reader.close()
            raise
        return reader

    def _track(self, consumer: KafkaConsumer) -> KafkaConsumer:
        self._consumers = [other for other in self._consumers if not other.closed] + [consumer]
        return consumer

    async def close(self) -> None:
        # A consumer that an error left open may have a waiting call, which would keep the process from exiting.
        for consumer in self._consumers:
            await consumer.close()
        self._close_by = time.monotonic() + _DELIVERY_SECONDS
        for thread in self._producer_threads:
            await asyncio.to_thread(thread.join)
        self._threads.shutdown(wait=False)


def _sizes(admin: Any, names: Sequence[str], partitions: Sequence[Any]) -> dict[str, int]:
    """Return the number of messages in each topic. Two calls ask for all of these partitions together."""
    sizes = dict.fromkeys(names, 0)
    if partitions:
        specs: Any = OffsetSpec
        for spec, sign in ((specs.latest(), 1), (specs.earliest(), -1)):
            asked = admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=REPLY_SECONDS)
            for partition, offset in asked.items():
                sizes[partition.topic] += sign * offset.result(2 * REPLY_SECONDS).offset
    return sizes
