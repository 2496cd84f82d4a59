"""Consumers of the Kafka bus, in a group or alone, and what producer and consumers share: options, errors, threads.

Fixed: the form of cursors, which clients keep; the options that KafkaConsumer sets itself and an operator cannot,
because offsets are committed here, after the work; and that all calls of a consumer run in its one thread, because
librdkafka's consumer must not be used by two threads at once.
"""

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic
from typing import Annotated, Any, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from gossamer.bus.base import Message
from gossamer.errors import BadInput, BusError, BusUnavailable, MessageTooLarge

T = TypeVar("T")

log = logging.getLogger("gossamer.bus.kafka")
# Producers, consumers and the admin client get the same options. Each warns about those meant for another: drop that.
log.addFilter(lambda record: "property and will be ignored by this" not in record.getMessage())

REPLY_SECONDS = 5.0
"""Timeout of one call to a broker. May be longer for distant brokers; a shorter one fails while a broker is busy."""
_MAY_NOT_ASK = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
"""Errors where the broker forbids this client to ask. `topic_limit` then goes on without an answer."""

_DURABLE = "a page counts as done when every in-sync replica has it, once and in order"
_COMMITTED = "a message is committed after its work is done, not before"
_GROUPS = "gossamer chooses where each of its consumers reads"
_RESERVED = {
    "bootstrap.servers": "the setting bus names the brokers",
    "metadata.broker.list": "the setting bus names the brokers",
    "message.max.bytes": "the setting kafka.max_message sets it",
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
"""Options of librdkafka, aliases included, that the bus needs to keep its promises, and why an operator cannot set
them. None may be removed: `check_options` would let an operator set it, and KafkaBus applies an
operator's options last."""


def check_options(options: Mapping[str, str]) -> None:
    """Raise BadInput for an option that is reserved, unknown to librdkafka, or has an invalid value."""
    for name in options:
        if name in _RESERVED:
            raise BadInput(f"kafka.options: {name} cannot be set; {_RESERVED[name]}")
    try:
        # A producer without brokers connects to nothing, but checks each option and their combination.
        Producer({"enable.idempotence": True, **options, "logger": log})
    except KafkaException as error:
        raise BadInput(f"kafka.options: {error.args[0].str()}") from None
    except (TypeError, AttributeError):  # options for callbacks and loggers
        raise BadInput(f"kafka.options: one of {', '.join(options)} cannot be set to a string") from None


def partitions_of(client: Any, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions; empty while the broker does not know the topic."""
    found = client.list_topics(topic, timeout=REPLY_SECONDS).topics.get(topic)
    return sorted(found.partitions) if found is not None and found.error is None else []


def topic_limit(admin: Any, topic: str) -> int:
    """Return the largest message in bytes that an existing topic allows; no limit if asking for it is forbidden."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        config = admin.describe_configs([resource], request_timeout=REPLY_SECONDS)[resource].result(2 * REPLY_SECONDS)
        return int(config["max.message.bytes"].value)
    except KafkaException as error:
        if error.args[0].code() not in _MAY_NOT_ASK:
            raise
        return sys.maxsize


async def in_thread(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """Return the result of a blocking call, run in this thread instead of the event loop. Raises BusError."""
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    except KafkaException as error:
        raise bus_error(error.args[0]) from error


def bus_error(error: Any) -> BusError:
    """Return the BusError for an error of librdkafka."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return MessageTooLarge(f"{error.str()}; raise the topic's max.message.bytes, or lower kafka.max_message")
    if error.fatal():
        return BusError(error.str())
    return BusUnavailable(f"Kafka: {error.str()}")


_CLOSE_CHECK_SECONDS = 1.0
"""Interval at which a waiting `take` checks whether its consumer is being closed; so `close` may take that long."""
_DELETED_SECONDS = 10.0
"""Time in which all brokers learn that a topic was deleted."""
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Offset in a cursor. It comes from a client, so it must fit into librdkafka's 64 bits with room for one more."""
_REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
}
"""Errors of a commit that came after a rebalance: Kafka had assigned the partitions to the group's members anew."""


class KafkaConsumer:
    """Implements Consumer, and Reader after `assign`. Created by `KafkaBus`.

    Calls of librdkafka's consumer block, so each consumer has a thread of its own for them."""

    def __init__(
        self, common: Mapping[str, Any], *, group: str, create: Callable[[str], Awaitable[object]] | None = None
    ) -> None:
        """`common`: options of librdkafka for all clients of the bus, with those of the operator. For a reader it must
        also set `enable.partition.eof`, by which `is_at_end` learns of the end of each partition. `create`: creates a
        topic that was deleted while it is consumed; None: nothing does."""
        self._create = create
        self._consumer = Consumer(
            {
                # Defaults, which an operator may override in `common`.
                "session.timeout.ms": 10_000,  # a dead member's messages wait that long
                # A member learns of a rebalance with its next heartbeat, so this bounds how long a new member waits.
                "heartbeat.interval.ms": 1000,  # at most a third of the session timeout
                "partition.assignment.strategy": "cooperative-sticky",  # all members of a group need the same one
                "max.poll.interval.ms": 600_000,  # a member whose work takes longer loses its partitions
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,  # until a new topic is noticed
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": 65_536,  # memory for messages fetched ahead, for each partition
                **common,
                # From here on fixed: `check_options` refuses them in `common`.
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-consumer")
        self.closed = False
        self._uncommitted: dict[tuple[str, int], deque[int]] = {}
        """Offsets that were taken and not committed, in order, by topic and partition."""
        self._acknowledged: dict[tuple[str, int], set[int]] = {}
        """Those of `_uncommitted` that were acknowledged, but follow an older offset that was not."""
        self._begun: dict[tuple[str, int], int] = {}
        """Offset behind the last message that any member has taken, by topic and partition. The group's commits have it
        as their metadata, so that it outlives this process."""
        self._owed: dict[tuple[str, int], int] = {}
        """Next offset to process by topic and partition, as far as a commit has not succeeded yet."""
        self._lost: set[tuple[str, int]] = set()
        """Partitions that this member has lost since the first message of the present read."""
        self._untold: list[Message] = []
        """Messages that were read, but not returned, because `_begun` could not be committed."""
        self._taking: asyncio.Future[list[Message]] | None = None
        """A call of `_take` in the thread whose messages no `take` has returned yet. None: there is none."""
        self._deleted: dict[str, float] = {}
        """Topics that a broker does not know, and the monotonic time until which each `take` makes sure that they are
        there: another broker may know them a moment longer, and librdkafka reports each deletion once."""
        self._in_group = False
        """True after `subscribe`, False after `assign`."""
        self._unfinished: set[tuple[str, int]] = set()
        """A reader's partitions whose end it has not reached."""
        self._next_offsets: dict[str, dict[int, int]] = {}
        """A reader's offset behind the last acknowledged message, by topic and partition."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join the consumer group for these topics."""
        self._in_group = True
        await in_thread(
            self._thread, lambda: self._consumer.subscribe(list(topics), on_revoke=self._on_lost, on_lost=self._on_lost)
        )

    async def assign(
        self,
        topics: Sequence[str],
        *,
        from_beginning: bool,
        after: dict[str, dict[int, int]] | None = None,
        since: float = 0.0,
    ) -> None:
        """Read all partitions without a group: from the beginning, or the first message since that time, but those in
        `after` from the offset given there; with `from_beginning` False, from the end that each has now."""

        def assign() -> None:
            assigned = []
            for topic in topics:
                numbers = partitions_of(self._consumer, topic)
                first = self._first_since(topic, numbers, since) if since else {}
                for number in numbers:
                    start = (after or {}).get(topic, {}).get(number, first.get(number, OFFSET_BEGINNING))
                    if not from_beginning:  # the end as of this call, not as of the first fetch
                        _, start = self._consumer.get_watermark_offsets(
                            TopicPartition(topic, number), timeout=REPLY_SECONDS
                        )
                    assigned.append(TopicPartition(topic, number, start))
            self._unfinished = {(partition.topic, partition.partition) for partition in assigned}
            self._consumer.assign(assigned)

        self._next_offsets = {topic: dict(offsets) for topic, offsets in (after or {}).items() if topic in topics}
        await in_thread(self._thread, assign)

    def _first_since(self, topic: str, numbers: Sequence[int], since: float) -> dict[int, int]:
        """Return the offset of the first message since a time, by partition; that of the end where there is none."""
        asked = [TopicPartition(topic, number, int(since * 1000)) for number in numbers]
        return {each.partition: each.offset for each in self._consumer.offsets_for_times(asked, timeout=REPLY_SECONDS)}

    def _on_lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Forget partitions that went to other members. Their new owners get every message that was not committed."""
        for lost in partitions:
            key = (lost.topic, lost.partition)
            self._lost.add(key)
            self._uncommitted.pop(key, None)
            self._acknowledged.pop(key, None)
            self._begun.pop(key, None)
            self._owed.pop(key, None)
            self._untold = [message for message in self._untold if message.position[:2] != key]

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        # When this task is cancelled, the call in the thread goes on. The next `take` returns the messages of that
        # call, under the limits that the cancelled `take` gave, so that no message is lost.
        if self._create is not None:
            for topic, last in list(self._deleted.items()):
                await self._create(topic)
                if monotonic() > last:
                    del self._deleted[topic]
        if self._taking is None:
            self._taking = asyncio.ensure_future(in_thread(self._thread, lambda: self._take(at_most, wait_seconds)))
        try:
            taken = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            raise  # and keep `_taking` for the next `take`
        except BaseException:
            self._taking = None
            raise
        self._taking = None
        return taken

    def _take(self, at_most: int, wait_seconds: float) -> list[Message]:
        """Return messages; runs in the thread. Of a group, only after the commits say that they were taken."""
        if not self._untold:
            self._untold = self._read(at_most, wait_seconds)
        if self._in_group:
            self._commit_begun()
        messages, self._untold = self._untold, []
        return messages

    def _read(self, at_most: int, wait_seconds: float) -> list[Message]:
        """Read messages from librdkafka.

        librdkafka also reports events as messages with an error: the end of a partition, or trouble. They are noted or
        logged here, and not returned."""
        first = self._poll(wait_seconds)
        if first is None:
            return []
        self._lost.clear()
        events: list[Any] = [first, *(self._consumer.consume(at_most - 1, 0) if at_most > 1 else [])]
        messages = []
        for event in events:
            partition = (event.topic(), event.partition())
            error = event.error()
            if error is None:
                if partition in self._lost:
                    # `consume` may call `_on_lost` after it has read messages of the partition. Committed now, they
                    # would take earlier messages along that are still in hand. (It does not come back within one
                    # `consume`.) An error is noted in any case: that of a deleted topic names its partition 0.
                    continue
                messages.append(to_message(event))
                if self._in_group:
                    self._uncommitted.setdefault(partition, deque()).append(event.offset())
                else:
                    self._unfinished.add(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unfinished.discard(partition)
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and event.topic():
                self._deleted[event.topic()] = monotonic() + _DELETED_SECONDS
            else:
                log.warning("%s", error)
        return messages

    def _commit_begun(self) -> None:
        """Mark what other members have taken before, then commit that this member has taken the rest."""
        unknown = {message.position[:2] for message in self._untold} - self._begun.keys()
        if unknown:
            asked = [TopicPartition(topic, partition) for topic, partition in unknown]
            for found in self._consumer.committed(asked, timeout=REPLY_SECONDS):
                begun = found.metadata or ""
                self._begun[found.topic, found.partition] = int(begun) if begun.isdecimal() else 0
        ends: dict[tuple[str, int], int] = {}
        for at, message in enumerate(self._untold):
            topic, partition, offset = message.position
            if offset < self._begun[topic, partition]:
                self._untold[at] = replace(message, redelivered=True)
            else:
                ends[topic, partition] = offset + 1
        begun_before = self._begun
        self._begun = begun_before | ends
        try:
            # Messages that came again may be acknowledged already, when they were in hand from the first time.
            self._commit({key: next(iter(self._uncommitted[key]), end) for key, end in ends.items()})
        except BaseException:
            self._begun = begun_before
            raise

    def _commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the next offset to process of each partition, with those that an earlier commit owes. None: no effect.

        A broker answers a member's commit after its request to join. So during a rebalance this waits until all other
        members have joined."""
        self._owed.update(offsets)
        if not self._owed:
            return
        commits = [
            TopicPartition(topic, partition, offset, str(self._begun.get((topic, partition), 0)))
            for (topic, partition), offset in self._owed.items()
        ]
        try:
            self._consumer.commit(offsets=commits, asynchronous=False)
        except KafkaException as error:
            # A rebalance came first. Partitions that it leaves to this member stay owed. Those that it moves to another
            # are forgotten (`_on_lost`); that member processes the messages again.
            if error.args[0].code() not in _REBALANCED:
                raise
        else:
            self._owed.clear()

    def _poll(self, wait_seconds: float) -> Any:
        """Return the first message or error; None if none comes. The end of a partition counts as neither."""
        deadline = monotonic() + wait_seconds
        while not self.closed:
            left = max(0.0, deadline - monotonic())
            first = self._consumer.poll(min(left, _CLOSE_CHECK_SECONDS))
            if first is None:
                if left <= _CLOSE_CHECK_SECONDS:
                    return None
                continue
            error = first.error()
            if error is None or error.code() != KafkaError._PARTITION_EOF:
                return first
            self._unfinished.discard((first.topic(), first.partition()))
        return None

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        positions = [message.position for message in messages]
        if not self._in_group:
            for topic, partition, offset in positions:
                self._next_offsets.setdefault(topic, {})[partition] = offset + 1
        elif positions:
            await in_thread(self._thread, lambda: self._acknowledge(positions))

    def is_at_end(self) -> bool:
        return not self._unfinished

    def cursor(self) -> str:
        return msgspec.json.encode(self._next_offsets).decode()

    def _acknowledge(self, positions: Sequence[tuple[str, int, int]]) -> None:
        """Commit each partition up to its first message that was not acknowledged: Kafka keeps one offset for each."""
        for topic, partition, offset in positions:
            uncommitted = self._uncommitted.get((topic, partition))
            if uncommitted and offset >= uncommitted[0]:  # else the partition went to another, or this is a repetition
                self._acknowledged.setdefault((topic, partition), set()).add(offset)
        commits: dict[tuple[str, int], int] = {}
        for (topic, partition), acknowledged in self._acknowledged.items():
            uncommitted = self._uncommitted[topic, partition]
            last = None
            while uncommitted and uncommitted[0] in acknowledged:
                last = uncommitted.popleft()
                acknowledged.discard(last)
            if last is not None:
                commits[topic, partition] = last + 1
        self._commit(commits)

    async def lag(self) -> int:
        """Return the number of messages in this member's partitions that are not committed yet."""

        def count() -> int:
            total = 0
            for partition in self._consumer.committed(self._consumer.assignment(), timeout=REPLY_SECONDS):
                # The last fetch cached the offsets; a partition that was never fetched has none, so ask the broker.
                low, high = self._consumer.get_watermark_offsets(partition, cached=True)
                if high < 0:
                    low, high = self._consumer.get_watermark_offsets(partition, timeout=REPLY_SECONDS)
                total += max(0, high - (partition.offset if partition.offset >= 0 else low))
            return total

        return await in_thread(self._thread, count)

    async def close(self) -> None:
        """Leave the group. A `take` that waits in another task returns no messages."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(BusError):
            await in_thread(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)


def parse_cursor(cursor: str) -> dict[str, dict[int, int]]:
    """Return the next offset by topic and partition from a reader's cursor; empty for an empty one. Raises BadInput."""
    if not cursor:
        return {}
    try:
        return msgspec.json.decode(cursor, type=dict[str, dict[int, _Offset]])
    except msgspec.DecodeError:
        raise BadInput("not a cursor of a reader of this Kafka bus") from None


def to_message(taken: Any) -> Message:
    """Return a message of librdkafka as a Message of the bus."""
    _, milliseconds = taken.timestamp()
    return Message(
        taken.topic(),
        taken.value() or b"",
        taken.key() or b"",
        milliseconds / 1000,
        (taken.topic(), taken.partition(), taken.offset()),
    )
