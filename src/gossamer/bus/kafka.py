"""The bus on Kafka, through librdkafka: idempotent publishing in batches, explicit commits after the work."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Annotated, Any, TypeVar

import msgspec

from gossamer.bus.base import Message, TopicInfo
from gossamer.bus.topics import check_topic
from gossamer.errors import BadInput, BusError, BusUnavailable, MessageTooLarge

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]
except ImportError as exc:  # the extra `kafka`
    raise BadInput("a Kafka bus needs more than the core; pip install gossamer-crawl[kafka]") from exc

T = TypeVar("T")

log = logging.getLogger("gossamer.bus.kafka")

_ANSWER_SECONDS = 5.0
_DELIVERY_SECONDS = 15.0
_FULL_SECONDS = 0.005
_BATCH_BYTES = 1_000_000
_SPARE_BYTES = 1024
"""Of a message, for its headers."""
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


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
        pending = _Pending(asyncio.get_running_loop(), len(values))
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
        made = not _partitions(admin, topic) and self._made(admin, topic)
        # Made, by us or by somebody else just now, is not known: a broker that has not heard of the topic would give a
        # consumer none of its partitions.
        last = time.monotonic() + _ANSWER_SECONDS
        while not _partitions(admin, topic) and time.monotonic() < last:
            time.sleep(_FULL_SECONDS)
        if not made:
            self._largest = min(self._largest, _limit(admin, topic))

    def _made(self, admin: Any, topic: str) -> bool:
        """Make the topic; False: somebody else was quicker."""
        wanted = NewTopic(
            topic,
            num_partitions=self._partitions,
            replication_factor=self._replicas,
            config={"max.message.bytes": str(self._largest)},
        )
        try:
            admin.create_topics([wanted], operation_timeout=_ANSWER_SECONDS)[topic].result(2 * _ANSWER_SECONDS)
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

        return await _in_thread(self._threads, asked)

    async def topics(self) -> list[TopicInfo]:
        def ask(admin: Any) -> dict[str, int]:
            found = admin.list_topics(timeout=_ANSWER_SECONDS).topics
            return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

        names = await self._ask(ask)
        reader = KafkaConsumer(self._common, group="gossamer-asking")
        try:
            return [TopicInfo(name, await reader.size(name, count)) for name, count in sorted(names.items())]
        finally:
            await reader.close()

    async def ping(self) -> None:
        await self._ask(lambda admin: admin.list_topics(timeout=_ANSWER_SECONDS))

    # --- consuming ----------------------------------------------------------------------------------------------------

    async def consume(self, topics: Sequence[str], *, group: str) -> "KafkaConsumer":
        for topic in topics:
            await self._ensure(topic)
        consumer = KafkaConsumer(self._common, group=group)
        await consumer.subscribe(topics)
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> "KafkaConsumer":
        places = _places(after)
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


class _Pending:
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
            self.future.set_exception(_translated(self._error))


class KafkaConsumer:
    """Implements Consumer, and Reader where it was made by `read`. Made by `KafkaBus`."""

    def __init__(self, common: Mapping[str, Any], *, group: str) -> None:
        self._consumer = Consumer(
            {
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "max.poll.interval.ms": 600_000,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": 65_536,
            }
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-consumer")
        self._taken: dict[tuple[str, int], deque[int]] = {}
        """Offsets that were taken and not committed, in order."""
        self._done: dict[tuple[str, int], set[int]] = {}
        self._taking: asyncio.Future[list[Any]] | None = None
        self._grouped = False
        self._open: set[tuple[str, int]] = set()
        """Of a reader: partitions whose end it has not seen."""
        self._next: dict[str, dict[int, int]] = {}
        """Of a reader: the offset behind what it acknowledged, by topic and partition."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics."""
        self._grouped = True
        await _in_thread(
            self._thread, lambda: self._consumer.subscribe(list(topics), on_revoke=self._forget, on_lost=self._forget)
        )

    async def assign(
        self, topics: Sequence[str], *, from_beginning: bool, after: dict[str, dict[int, int]] | None = None
    ) -> None:
        """Read all partitions, in no group; those in `after` from that offset."""
        offset = OFFSET_BEGINNING if from_beginning else OFFSET_END

        def assigned() -> None:
            places = []
            for topic in topics:
                for number in _partitions(self._consumer, topic):
                    start = (after or {}).get(topic, {}).get(number, offset)
                    if not from_beginning:  # the end as it is now, not as it is when the first fetch comes to it
                        _, start = self._consumer.get_watermark_offsets(
                            TopicPartition(topic, number), timeout=_ANSWER_SECONDS
                        )
                    places.append(TopicPartition(topic, number, start))
            self._open = {(place.topic, place.partition) for place in places}
            self._consumer.assign(places)

        self._next = {topic: dict(places) for topic, places in (after or {}).items() if topic in topics}
        await _in_thread(self._thread, assigned)

    def _forget(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Others have these now. What was acknowledged is committed; the rest they get."""
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._taken.pop(place, None)
            self._done.pop(place, None)

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        # What the thread takes after we were cancelled must not get lost: the next call has it.
        if self._taking is None:
            self._taking = asyncio.ensure_future(_in_thread(self._thread, lambda: self._take(at_most, wait_seconds)))
        try:
            rows = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._taking = None
            raise
        self._taking = None
        return [_message(row) for row in rows]

    def _take(self, at_most: int, wait_seconds: float) -> list[Any]:
        first = self._first(wait_seconds)
        if first is None:
            return []
        rows: list[Any] = [first, *(self._consumer.consume(at_most - 1, 0) if at_most > 1 else [])]
        good = []
        for row in rows:
            error = row.error()
            if error is None:
                good.append(row)
                if self._grouped:
                    self._taken.setdefault((row.topic(), row.partition()), deque()).append(row.offset())
                else:
                    self._open.add((row.topic(), row.partition()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._open.discard((row.topic(), row.partition()))
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                log.warning("%s", error)
        return good

    def _first(self, wait_seconds: float) -> Any:
        """What comes first; the end of a partition is no news while others may have some."""
        last = monotonic() + wait_seconds
        while True:
            first = self._consumer.poll(max(0.0, last - monotonic()))
            error = None if first is None else first.error()
            if first is None or error is None or error.code() != KafkaError._PARTITION_EOF:
                return first
            self._open.discard((first.topic(), first.partition()))

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        places = [message.place for message in messages]
        if not self._grouped:
            for topic, partition, offset in places:
                self._next.setdefault(topic, {})[partition] = offset + 1
        elif places:
            await _in_thread(self._thread, lambda: self._acknowledge(places))

    def is_at_end(self) -> bool:
        return not self._open

    def mark(self) -> str:
        return msgspec.json.encode(self._next).decode()

    def _acknowledge(self, places: Sequence[tuple[str, int, int]]) -> None:
        for topic, partition, offset in places:
            if (topic, partition) in self._taken:  # else it is another's by now
                self._done.setdefault((topic, partition), set()).add(offset)
        commits = []
        for place, done in self._done.items():
            taken = self._taken[place]
            last = -1
            while taken and taken[0] in done:
                last = taken.popleft()
                done.discard(last)
            if last >= 0:
                commits.append(TopicPartition(*place, last + 1))
        if commits:
            try:
                self._consumer.commit(offsets=commits, asynchronous=False)
            except KafkaException as error:
                # A rebalance took them from us: the work is done and will be done again, which is allowed.
                if error.args[0].code() not in _REBALANCED:
                    raise

    async def lag(self) -> int:
        def count() -> int:
            total = 0
            for place in self._consumer.committed(self._consumer.assignment(), timeout=_ANSWER_SECONDS):
                # As the last fetch told them; what was never fetched has to be asked for.
                low, high = self._consumer.get_watermark_offsets(place, cached=True)
                if high < 0:
                    low, high = self._consumer.get_watermark_offsets(place, timeout=_ANSWER_SECONDS)
                total += max(0, high - (place.offset if place.offset >= 0 else low))
            return total

        return await _in_thread(self._thread, count)

    async def size(self, topic: str, partitions: int) -> int:
        """Messages that the topic keeps now."""

        def count() -> int:
            total = 0
            for number in range(partitions):
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ANSWER_SECONDS)
                total += high - low
            return total

        return await _in_thread(self._thread, count)

    async def close(self) -> None:
        with contextlib.suppress(BusError):
            await _in_thread(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)


def _partitions(client: Any, topic: str) -> list[int]:
    """Their numbers; none while the topic is not known where the client asks."""
    found = client.list_topics(topic, timeout=_ANSWER_SECONDS).topics.get(topic)
    return sorted(found.partitions) if found is not None and found.error is None else []


def _limit(admin: Any, topic: str) -> int:
    """Bytes that a topic which is there allows for a message; where that may not be asked, any."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        facts = admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource].result(
            2 * _ANSWER_SECONDS
        )
        return int(facts["max.message.bytes"].value)
    except KafkaException as error:
        if error.args[0].code() not in _FORBIDDEN:
            raise
        return sys.maxsize


_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
}


def _places(mark: str) -> dict[str, dict[int, int]]:
    """Where a reader stood: the next offset by topic and partition."""
    if not mark:
        return {}
    try:
        return msgspec.json.decode(mark, type=dict[str, dict[int, _Offset]])
    except msgspec.DecodeError:
        raise BadInput("this is no mark of a reader on Kafka") from None


def _message(row: Any) -> Message:
    _, stamp = row.timestamp()
    return Message(
        row.topic(),
        row.value() or b"",
        row.key() or b"",
        stamp / 1000,
        (row.topic(), row.partition(), row.offset()),
    )


async def _in_thread(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise _translated(error.args[0]) from error


def _translated(error: Any) -> BusError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(f"{error.str()}; raise the topic's max.message.bytes, or lower kafka.largest")
    if error.fatal():
        return BusError(error.str())
    return BusUnavailable(f"Kafka: {error.str()}")
