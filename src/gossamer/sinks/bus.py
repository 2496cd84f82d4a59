"""Sink that publishes pages and items on the bus: to a topic of all applications (the firehose) and to each one's own.

Fixed: the fields of a message. Consumers read them, the schemas `page`, `page_1_0` and `item` describe them, and most
are Scrapy Cluster's. Safe to change: which bodies go to the blob store, because consumers must handle both.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.errors import BusError, BusFull, MessageTooLarge, SinkError, SinkFull
from gossamer.model.messages.answers import page_1_0, without_zone
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.jsonl import encode_value
from gossamer.sinks.remote import BlobStore

_SPARE_BYTES = 4096
"""Bytes of the largest message that are left to the bus for the key and headers that it adds. May be raised, which
sends a few more bodies to the blob store; with too low a value, the bus would refuse some messages for good."""


class BusSink:
    """Sink that publishes each record as a message of a bus. Implements Sink (sinks/base.py).

    A body that is longer than `max_inline_bytes`, or that makes the message larger than the bus accepts, goes to the
    blob store (files that are read by address). Its message has an empty `body`, and names the address and the length
    in `body_address` and `body_bytes`. A record that is too large even without its body goes to the blob store as a
    whole (`record_address`). Nothing is truncated or left out.
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
        `max_inline_bytes`: longer bodies go to the blob store; None: only bodies that the bus cannot take.
        `base64_bodies`: send every body as base64 of its bytes. `wire`: version of Scrapy Cluster's message format,
        `1.2` or `1.0`."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._firehose = firehose
        self._per_app = per_app
        self._max_inline_bytes = max_inline_bytes
        self._base64 = base64_bodies
        self._wire_1_0 = wire == "1.0"

    @property
    def _max_value_bytes(self) -> int:
        """Size of the largest message that this sink makes. The bus may lower its limit at any time."""
        return self._bus.max_message_bytes - _SPARE_BYTES

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        limit_before = self._max_value_bytes
        try:
            await self._write(outputs)
        except MessageTooLarge as exc:
            # A topic allows less than the bus assumed. The bus has lowered its limit, so the batch is built again.
            if self._max_value_bytes >= limit_before:
                raise SinkError(str(exc)) from exc
            await self.write(outputs)

    async def _write(self, outputs: Sequence[Output]) -> None:
        """Publish the batch to its topics. Every error of the bus but MessageTooLarge becomes an error of a sink."""
        values = await self._values(outputs)
        by_topic: dict[str, list[bytes]] = {}
        for output, value in zip(outputs, values, strict=True):
            if self._firehose:
                by_topic.setdefault(self._topics.crawled, []).append(value)
            if self._per_app:
                by_topic.setdefault(self._topics.crawled_by(output.record.appid), []).append(value)
        try:
            await asyncio.gather(*(self._bus.publish(topic, group) for topic, group in by_topic.items()))
        except BusFull as exc:
            raise SinkFull(str(exc)) from exc
        except MessageTooLarge:
            raise
        except BusError as exc:
            raise SinkError(str(exc)) from exc

    async def close(self) -> None:
        self._blobs.close()

    async def _values(self, outputs: Sequence[Output]) -> list[bytes]:
        """Return a message for each output. Bodies that it refers to must be in the blob store before it is
        published."""
        values: list[bytes] = [b""] * len(outputs)
        too_large: list[int] = []  # indexes of the outputs whose bodies go to the blob store
        for at, output in enumerate(outputs):
            if self._max_inline_bytes is not None and len(output.body) > self._max_inline_bytes:
                too_large.append(at)
            else:
                values[at] = encode_value(self._message(output))
                if len(values[at]) > self._max_value_bytes:
                    too_large.append(at)
        if too_large:
            # An item has no body: what is stored for it is empty, and `_without_body` does not use the address.
            addresses = await self._blobs.put([outputs[at].body for at in too_large])
            for at, address in zip(too_large, addresses, strict=True):
                values[at] = await self._without_body(outputs[at], address)
        return values

    async def _without_body(self, output: Output, address: str) -> bytes:
        """Return the message of an output whose body is in the blob store at `address`."""
        fields = msgspec.structs.asdict(_as_scrapy_cluster(output.record))
        if isinstance(output.record, PageRecord):
            fields |= {"body": "", "body_address": address, "body_bytes": len(output.body)}
        value = encode_value(self._in_wire_version(fields))
        if len(value) <= self._max_value_bytes:
            return value
        # Still too large: the message keeps only fields of limited length, and the address of the whole record.
        [whole_address] = await self._blobs.put([value])
        if isinstance(output.record, ItemRecord):
            fields |= {"item": {}, "attrs": None}
        else:
            fields |= {"links": [], "response_headers": {}, "redirects": [], "attrs": None, "content": None}
        return encode_value(self._in_wire_version({**fields, "record_address": whole_address}))

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


def _as_scrapy_cluster(record: PageRecord | ItemRecord) -> PageRecord | ItemRecord:
    """Return the record with the timestamp format that Scrapy Cluster's consumers expect; other sinks keep the zone."""
    return msgspec.structs.replace(record, timestamp=without_zone(record.timestamp))
