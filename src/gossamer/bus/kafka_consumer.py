"""Taking from Kafka: in a group with explicit commits after the work, or alone."""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Annotated, Any, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from gossamer.bus.base import Message
from gossamer.errors import BadInput, BusError, BusUnavailable, MessageTooLarge

T = TypeVar("T")

log = logging.getLogger("gossamer.bus.kafka")
# The same options go to producers, consumers and the admin client; each warns of those meant for another.
log.addFilter(lambda record: "property and will be ignored by this" not in record.getMessage())

ANSWER_SECONDS = 5.0
"""A broker that is there answers within so long."""
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}

_DURABLE = "a page counts as done when every in-sync replica has it, once and in order"
_COMMITTED = "a message is committed after its work is done, not before"
_GROUPS = "gossamer chooses where each of its consumers reads"
_RESERVED = {
    "bootstrap.servers": "the setting bus names the brokers",
    "metadata.broker.list": "the setting bus names the brokers",
    "message.max.bytes": "the setting kafka.largest says it",
    "acks": _DURABLE,
    "request.required.acks": _DURABLE,
    "enable.idempotence": _DURABLE,
    "transactional.id": _DURABLE,
    "delivery.report.only.error": "publishing waits for the report of each delivery",
    "enable.auto.commit": _COMMITTED,
    "enable.auto.offset.store": _COMMITTED,
    "group.id": _GROUPS,
    "auto.offset.reset": _GROUPS,
    "enable.partition.eof": _GROUPS,
}
"""Options of librdkafka, with their aliases, on which the bus's promises rest, and why each cannot be set."""


def check_options(options: Mapping[str, str]) -> None:
    """Raises BadInput for an option that is reserved, unknown to librdkafka, or has an impossible value."""
    for name in options:
        if name in _RESERVED:
            raise BadInput(f"kafka.options: {name} cannot be set; {_RESERVED[name]}")
    try:
        # Without brokers it connects to nothing, and checks each option and how they go together.
        Producer({"enable.idempotence": True, **options, "logger": log})
    except KafkaException as error:
        raise BadInput(f"kafka.options: {error.args[0].str()}") from None
    except (TypeError, AttributeError):  # callbacks and loggers, which a text cannot be
        raise BadInput(f"kafka.options: one of {', '.join(options)} cannot be a text") from None


def partitions_of(client: Any, topic: str) -> list[int]:
    """Their numbers; none while the topic is not known where the client asks."""
    found = client.list_topics(topic, timeout=ANSWER_SECONDS).topics.get(topic)
    return sorted(found.partitions) if found is not None and found.error is None else []


def limit_of(admin: Any, topic: str) -> int:
    """Bytes that a topic which is there allows for a message; where that may not be asked, any."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        facts = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource].result(2 * ANSWER_SECONDS)
        return int(facts["max.message.bytes"].value)
    except KafkaException as error:
        if error.args[0].code() not in _FORBIDDEN:
            raise
        return sys.maxsize


async def in_thread(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """What a blocking call gives, off the event loop. Raises BusError."""
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise translated(error.args[0]) from error


def translated(error: Any) -> BusError:
    """librdkafka's error as the bus's."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(f"{error.str()}; raise the topic's max.message.bytes, or lower kafka.largest")
    if error.fatal():
        return BusError(error.str())
    return BusUnavailable(f"Kafka: {error.str()}")


_LOOK_SECONDS = 1.0
"""How often a call that waits for a message looks whether its consumer is being closed."""
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
}


class KafkaConsumer:
    """Implements Consumer, and Reader where it was made by `read`. Made by `KafkaBus`."""

    def __init__(self, common: Mapping[str, Any], *, group: str) -> None:
        self._consumer = Consumer(
            {
                "session.timeout.ms": 10_000,
                # With one is it told that a member has come or gone: nobody waits longer for its share.
                "heartbeat.interval.ms": 1000,
                "partition.assignment.strategy": "cooperative-sticky",
                "max.poll.interval.ms": 600_000,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": 65_536,
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-consumer")
        self.closed = False
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
        await in_thread(
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
                for number in partitions_of(self._consumer, topic):
                    start = (after or {}).get(topic, {}).get(number, offset)
                    if not from_beginning:  # the end as it is now, not as it is when the first fetch comes to it
                        _, start = self._consumer.get_watermark_offsets(
                            TopicPartition(topic, number), timeout=ANSWER_SECONDS
                        )
                    places.append(TopicPartition(topic, number, start))
            self._open = {(place.topic, place.partition) for place in places}
            self._consumer.assign(places)

        self._next = {topic: dict(places) for topic, places in (after or {}).items() if topic in topics}
        await in_thread(self._thread, assigned)

    def _forget(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Others have these now. What was acknowledged is committed; the rest they get."""
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._taken.pop(place, None)
            self._done.pop(place, None)

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        # What the thread takes after we were cancelled must not get lost: the next call has it.
        if self._taking is None:
            self._taking = asyncio.ensure_future(in_thread(self._thread, lambda: self._take(at_most, wait_seconds)))
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
        while not self.closed:
            left = max(0.0, last - monotonic())
            first = self._consumer.poll(min(left, _LOOK_SECONDS))
            if first is None:
                if left <= _LOOK_SECONDS:
                    return None
                continue
            error = first.error()
            if error is None or error.code() != KafkaError._PARTITION_EOF:
                return first
            self._open.discard((first.topic(), first.partition()))
        return None

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        places = [message.place for message in messages]
        if not self._grouped:
            for topic, partition, offset in places:
                self._next.setdefault(topic, {})[partition] = offset + 1
        elif places:
            await in_thread(self._thread, lambda: self._acknowledge(places))

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
            for place in self._consumer.committed(self._consumer.assignment(), timeout=ANSWER_SECONDS):
                # As the last fetch told them; what was never fetched has to be asked for.
                low, high = self._consumer.get_watermark_offsets(place, cached=True)
                if high < 0:
                    low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
                total += max(0, high - (place.offset if place.offset >= 0 else low))
            return total

        return await in_thread(self._thread, count)

    async def size(self, topic: str, partitions: int) -> int:
        """Messages that the topic keeps now."""

        def count() -> int:
            total = 0
            for number in range(partitions):
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_SECONDS)
                total += high - low
            return total

        return await in_thread(self._thread, count)

    async def close(self) -> None:
        """Leave the group. A `take` that waits in another task returns nothing."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(BusError):
            await in_thread(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)


def read_mark(mark: str) -> dict[str, dict[int, int]]:
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
