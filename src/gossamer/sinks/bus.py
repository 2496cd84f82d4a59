"""Sink that publishes pages and items on the bus: to a topic of all applications (the firehose) and to each one's own.

Fixed: the fields of a message. Consumers read them, the schemas `page`, `page_1_0` and `item` describe them, and most
are Scrapy Cluster's.
"""

import asyncio
import base64
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.errors import BusError, BusFull, MessageTooLarge, SinkError, SinkFull
from gossamer.model.json_codec import encode_value
from gossamer.model.messages.answers import dead_letter, page_1_0, without_zone
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.base import SplitWrite, WriteCall, WriteTogether
from gossamer.sinks.history import HistoryTopic
from gossamer.sinks.remote import BlobStore

log = logging.getLogger("gossamer.sinks.bus")


class BusSink:
    """Sink that publishes each record as a message of a bus. Implements SplitSink (sinks/base.py).

    A body that is longer than `max_inline_bytes`, or that makes the message larger than the topic accepts, goes to the
    blob store (files that are read by address). Its message has an empty `body`, and names the address and the length
    in `body_address` and `body_bytes`. A record that is too large even without its body goes to the blob store as a
    whole (`record_address`). Nothing is truncated or left out. A topic that does not accept even the message with this
    address gets none: the reason is in `Output.refused` then, and the message on the topic of dead letters.
    """

    wants_wire = False  # no raw bytes of the HTTP exchange, which only archives need
    wants_text = True

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        blobs: BlobStore,
        *,
        firehose: bool = True,
        per_app: bool = True,
        max_inline_bytes: int | None = None,
        base64_bodies: bool = False,
        wire: str = "1.2",
    ) -> None:
        """`firehose`, `per_app`: whether to write to the firehose topic and to the applications' topics.
        `max_inline_bytes`: longer bodies go to the blob store; None: only bodies that a topic cannot take.
        `base64_bodies`: send every body as base64 of its bytes. `wire`: version of Scrapy Cluster's message format,
        `1.2` or `1.0`."""
        self.bus = bus
        self.topics = topics
        self.blobs = blobs
        self.max_inline_bytes = max_inline_bytes
        self._firehose = firehose
        self._per_app = per_app
        self._base64 = base64_bodies
        self._wire_1_0 = wire == "1.0"
        self.history: HistoryTopic | None = None
        """Topic that gets examples of failed requests. None: nothing does."""

    def split(self, outputs: Sequence[Output]) -> SplitWrite:
        messages = [_Message(self, output) for output in outputs]
        building = asyncio.Lock()
        shared: WriteCall = _TopicWrite(self, self.topics.crawled, messages if self._firehose else (), building)
        if self.history is not None and (examples := self.history.examples(outputs)):
            shared = WriteTogether([shared, partial(self.history.publish_examples, examples)])
        by_app: dict[str, list[_Message]] = {}
        if self._per_app:
            for message in messages:
                by_app.setdefault(message.output.record.appid, []).append(message)
        return SplitWrite(
            shared,
            {
                appid: _TopicWrite(self, self.topics.crawled_by(appid), theirs, building)
                for appid, theirs in by_app.items()
            },
        )

    async def write(self, outputs: Sequence[Output]) -> None:
        parts = self.split(outputs)
        await asyncio.gather(parts.shared(), *(call() for call in parts.own.values()))

    async def check(self) -> None:
        try:
            await self.bus.ping()
            await self.bus.check_room()
        except BusFull as exc:
            raise SinkFull(str(exc)) from exc
        except BusError as exc:
            raise SinkError(str(exc)) from exc

    async def close(self) -> None:
        self.blobs.close()

    def in_full(self, output: Output) -> bytes:
        """Return the whole message of an output."""
        return encode_value(self._message(output))

    def without_body(self, output: Output, address: str) -> bytes:
        """Return the message of an output whose body is in the blob store at `address`. An item has no body."""
        return encode_value(self._in_wire_version(_fields_without_body(output, address)))

    def with_address_only(self, output: Output, address: str, record_address: str) -> bytes:
        """Return the message with only the fields of limited length, and with the address of the whole record."""
        fields = _fields_without_body(output, address)
        if isinstance(output.record, ItemRecord):
            fields |= {"item": {}, "attrs": None}
        else:
            fields |= {"links": [], "response_headers": {}, "request_headers": {}, "redirects": [], "attrs": None}
            fields |= {"content": None}
        return encode_value(self._in_wire_version({**fields, "record_address": record_address}))

    def _message(self, output: Output) -> Any:
        """Return the whole message of an output, before it is encoded. The record already has the body as text, except
        for that of an asset (a file that a page embeds or links)."""
        record = _as_scrapy_cluster(output.record)
        as_base64 = self._base64 or output.asset is not None
        if not self._wire_1_0 and not as_base64:
            return record
        fields = msgspec.structs.asdict(record)
        if as_base64 and isinstance(record, PageRecord):
            fields |= {"body": base64.b64encode(output.body).decode(), "body_encoding": "base64"}
        return self._in_wire_version(fields)

    def _in_wire_version(self, fields: dict[str, Any]) -> dict[str, Any]:
        # Converts items, too; `body_address` and `record_address` stay as they are.
        return page_1_0(fields) if self._wire_1_0 else fields


def _fields_without_body(output: Output, address: str) -> dict[str, Any]:
    """Return the fields of an output's message, with the address of its body in place of the body."""
    fields = msgspec.structs.asdict(_as_scrapy_cluster(output.record))
    if isinstance(output.record, PageRecord):
        fields |= {"body": "", "body_address": address, "body_bytes": len(output.body)}
    return fields


def _as_scrapy_cluster(record: PageRecord | ItemRecord) -> PageRecord | ItemRecord:
    """Return the record with the timestamp format that Scrapy Cluster's consumers expect; other sinks keep the zone."""
    return msgspec.structs.replace(record, timestamp=without_zone(record.timestamp))


class _Message:
    """Message of one output. Its sizes are made when a topic needs them, from the largest to the smallest."""

    __slots__ = ("_full", "_sink", "_smaller", "_smallest", "address", "output", "record_address")

    def __init__(self, sink: BusSink, output: Output) -> None:
        self._sink = sink
        self.output = output
        self.address: str | None = None
        """Address of the body in the blob store. None: it is not there."""
        self.record_address: str | None = None
        """Address of the whole record in the blob store. None: it is not there."""
        self._full = self._smaller = self._smallest = b""  # empty: not made yet

    def fits(self, limit: int) -> bool:
        """Return whether a topic with this limit takes the message with its body."""
        longest = self._sink.max_inline_bytes
        return (longest is None or len(self.output.body) <= longest) and len(self.full) <= limit

    def within(self, limit: int) -> bytes:
        """Return the message in the largest size that is within the limit; if there is none, in the smallest."""
        if self.fits(limit):
            return self.full
        return self.smaller if len(self.smaller) <= limit else self.smallest

    @property
    def full(self) -> bytes:
        """The message with everything."""
        self._full = self._full or self._sink.in_full(self.output)
        return self._full

    @property
    def smaller(self) -> bytes:
        """The message with the address of the body."""
        assert self.address is not None
        self._smaller = self._smaller or self._sink.without_body(self.output, self.address)
        return self._smaller

    @property
    def smallest(self) -> bytes:
        """The message with the address of the whole record."""
        assert self.address is not None
        assert self.record_address is not None
        self._smallest = self._smallest or self._sink.with_address_only(self.output, self.address, self.record_address)
        return self._smallest


class _TopicWrite:
    """Publication of messages on one topic. Implements WriteCall: called again, it continues where it stopped."""

    def __init__(self, sink: BusSink, topic: str, messages: Sequence[_Message], building: asyncio.Lock) -> None:
        """`building`: held while blobs are stored, because several topics publish the same messages."""
        self._bus, self._blobs, self._topics = sink.bus, sink.blobs, sink.topics
        self._topic = topic
        self._messages = messages
        self._building = building

    async def __call__(self) -> None:
        if not self._messages:
            return
        try:
            await self._publish()
        except BusFull as exc:
            raise SinkFull(str(exc)) from exc
        except BusError as exc:
            raise SinkError(str(exc)) from exc

    async def _publish(self) -> None:
        """Publish the messages in the sizes that the topic takes, and dead letters of those that it does not take."""
        while True:
            limit = await self._bus.message_limit(self._topic)
            values = await self._fitting(limit)
            try:
                await self._bus.publish(self._topic, [value for value in values if len(value) <= limit])
                break
            except MessageTooLarge:  # the topic's limit has been lowered since
                if await self._bus.message_limit(self._topic) >= limit:
                    raise
        # Only these are left for a repetition of this call.
        self._messages = [message for message, value in zip(self._messages, values, strict=True) if len(value) > limit]
        while self._messages:
            await self._refuse(self._messages[0], limit)
            self._messages = self._messages[1:]

    async def _fitting(self, limit: int) -> list[bytes]:
        """Return each message in the largest size that is within the limit; if there is none, in the smallest.

        Whatever a message refers to is in the blob store before the message is published."""
        async with self._building:
            large = [message for message in self._messages if not message.fits(limit)]
            missing = [message for message in large if message.address is None]
            if missing:
                addresses = await self._blobs.put([message.output.body for message in missing])
                for message, address in zip(missing, addresses, strict=True):
                    message.address = address
            for message in large:
                if len(message.smaller) > limit and message.record_address is None:
                    [message.record_address] = await self._blobs.put([message.smaller])
        return [message.within(limit) for message in self._messages]

    async def _refuse(self, message: _Message, limit: int) -> None:
        """Note that the topic cannot take a message, and publish a dead letter."""
        value = message.smallest
        reason = (
            f"{self._topic} takes messages of up to {max(0, limit):,} bytes; this one has {len(value):,} even without "
            "its body and its long fields. Raise the topic's max.message.bytes"
        )
        letter = dead_letter(self._topic, value.decode(), "text", field="", reason=reason, now=time.time())
        try:
            await self._bus.publish(self._topics.dead_letter, [encode_value(letter)])
        except MessageTooLarge as error:
            log.error("a record is on no topic: %s; and there is no dead letter: %s", reason, error)
        message.output.refused = reason
