"""A reader of a Kafka topic from its newest message to its oldest.

Kafka reads forwards only. So the reader takes a span of each partition at a time, the last one first, and merges the
partitions by the times of their messages. Fixed: the form of cursors, which clients keep.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition

from gossamer.bus.base import Message
from gossamer.bus.kafka_consumer import REPLY_SECONDS, in_thread, partitions_of, to_message
from gossamer.errors import BusError, BusUnavailable

_LEAST_SPAN: Final = 8
"""Messages of a partition that are read at once, at least. Each span costs a request to a broker."""
_POLL_SECONDS: Final = 0.1


class KafkaBackReader:
    """Implements Reader. Created by `KafkaBus.read_back`, which calls `start`."""

    def __init__(self, common: Mapping[str, Any], topic: str) -> None:
        """`common`: options of librdkafka for all clients of the bus."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "fetch.wait.max.ms": 50,
                "allow.auto.create.topics": False,
                "queued.max.messages.kbytes": 8192,  # what follows a span is fetched in vain
                **common,
                "group.id": "gossamer-reading",  # joins no group; the option is mandatory
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-back-reader")
        self._first: dict[int, int] = {}
        """Oldest offset of each partition."""
        self._unread: dict[int, int] = {}
        """Offset behind the messages of each partition that were not read."""
        self._spans: dict[int, list[Message]] = {}
        """Messages that were read and not taken, by partition, the newest last."""
        self._before: dict[int, int] = {}
        """Offset of each partition behind the messages that were not acknowledged: the cursor."""

    async def start(self, *, before: Mapping[int, int]) -> None:
        """Find the ends of the partitions. `before`: offset of each at which an earlier reader stopped."""

        def find() -> None:
            for number in partitions_of(self._consumer, self._topic):
                partition = TopicPartition(self._topic, number)
                low, high = self._consumer.get_watermark_offsets(partition, timeout=REPLY_SECONDS)
                end = min(high, before.get(number, high))
                self._first[number], self._unread[number], self._before[number] = low, end, end
                self._spans[number] = []

        await in_thread(self._thread, find)

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        return await in_thread(self._thread, lambda: self._take(at_most))

    def _take(self, at_most: int) -> list[Message]:
        """Return the newest messages that were not taken; runs in the thread."""
        taken: list[Message] = []
        while len(taken) < at_most:
            lacking = [number for number, span in self._spans.items() if not span and self._has_unread(number)]
            if lacking:
                self._read(lacking, max(_LEAST_SPAN, (at_most - len(taken)) // len(self._spans) + 1))
                continue
            spans = [span for span in self._spans.values() if span]
            if not spans:
                break
            taken.append(max(spans, key=lambda span: span[-1].published).pop())
        return taken

    def _has_unread(self, number: int) -> bool:
        return self._unread[number] > self._first[number]

    def _read(self, numbers: Sequence[int], length: int) -> None:
        """Read the last `length` offsets that were not read of each of these partitions. Some have no message."""
        starts = {number: max(self._first[number], self._unread[number] - length) for number in numbers}
        self._consumer.assign([TopicPartition(self._topic, number, start) for number, start in starts.items()])
        missing, found = set(numbers), {number: list[Message]() for number in numbers}
        deadline = monotonic() + REPLY_SECONDS
        while missing:
            events: list[Any] = self._consumer.consume(length * len(numbers), _POLL_SECONDS)
            for event in events:
                number, error = event.partition(), event.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        missing.discard(number)
                elif number in missing and event.offset() < self._unread[number]:
                    found[number].append(to_message(event))
                if error is None and event.offset() >= self._unread[number] - 1:
                    missing.discard(number)
            if missing and monotonic() > deadline:
                raise BusUnavailable(f"Kafka: {self._topic} was not read within {REPLY_SECONDS:g} s")
        for number, start in starts.items():
            self._spans[number], self._unread[number] = found[number], start

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            _, number, offset = message.position
            self._before[number] = offset

    def is_at_end(self) -> bool:
        return not any(self._spans[number] or self._has_unread(number) for number in self._spans)

    def cursor(self) -> str:
        return msgspec.json.encode({self._topic: self._before}).decode()

    async def lag(self) -> int:
        return 0  # as of every reader

    async def close(self) -> None:
        try:
            await in_thread(self._thread, self._consumer.close)
        except BusError:
            return
        finally:
            self._thread.shutdown(wait=False)
