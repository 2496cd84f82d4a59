"""Pages and items on the bus: each to the firehose and to the topic of its application."""

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
"""Of a message, for what the bus adds to it."""


class BusSink:
    """Implements Sink over a Bus.

    A body longer than `body_bytes`, or one with which the message would be larger than the bus takes, goes to the blob
    store, and the message has `body_address` and `body_bytes` in its place. A record that is too large without its
    body goes there whole (`record_address`). Nothing is cut and nothing is left out.
    """

    wants_wire = False

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        blobs: BlobStore,
        *,
        firehose: bool = True,
        per_app: bool = True,
        body_bytes: int | None = None,
        base64_bodies: bool = False,
        wire: str = "1.2",
    ) -> None:
        """`firehose`, `per_app`: which topics are written. `body_bytes`: longer bodies go to the blob store; None: only
        what the bus cannot take. `base64_bodies`: every body as base64 of its bytes. `wire`: the form of the messages,
        Scrapy Cluster's `1.2` or `1.0`."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._firehose = firehose
        self._per_app = per_app
        self._body_bytes = body_bytes
        self._base64 = base64_bodies
        self._old = wire == "1.0"

    @property
    def _largest(self) -> int:
        return self._bus.max_message_bytes - _SPARE_BYTES

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        known = self._largest
        try:
            await self._write(outputs)
        except MessageTooLarge as exc:
            # A topic turned out to allow less than was known; now it is known.
            if self._largest >= known:
                raise SinkError(str(exc)) from exc
            await self.write(outputs)

    async def _write(self, outputs: Sequence[Output]) -> None:
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
        values: list[bytes] = [b""] * len(outputs)
        away: list[int] = []
        for at, output in enumerate(outputs):
            if self._body_bytes is not None and len(output.body) > self._body_bytes:
                away.append(at)
            else:
                values[at] = encode_value(self._shaped(output))
                if len(values[at]) > self._largest:
                    away.append(at)
        if away:
            addresses = await self._blobs.put([outputs[at].body for at in away])
            for at, address in zip(away, addresses, strict=True):
                values[at] = await self._without_body(outputs[at], address)
        return values

    async def _without_body(self, output: Output, address: str) -> bytes:
        fields = msgspec.structs.asdict(_as_there(output.record))
        if isinstance(output.record, PageRecord):
            fields |= {"body": "", "body_address": address, "body_bytes": len(output.body)}
        value = encode_value(self._in_form(fields))
        if len(value) <= self._largest:
            return value
        [whole] = await self._blobs.put([value])
        if isinstance(output.record, ItemRecord):
            fields |= {"item": {}, "attrs": None}
        else:
            fields |= {"links": [], "response_headers": {}, "redirects": [], "attrs": None}
        return encode_value(self._in_form({**fields, "record_address": whole}))

    def _shaped(self, output: Output) -> Any:
        record = _as_there(output.record)
        if not self._old and not self._base64:
            return record
        fields = msgspec.structs.asdict(record)
        if self._base64 and isinstance(record, PageRecord):
            fields |= {"body": base64.b64encode(output.body).decode(), "body_encoding": "base64"}
        return self._in_form(fields)

    def _in_form(self, fields: dict[str, Any]) -> dict[str, Any]:
        return page_1_0(fields) if self._old else fields


def _as_there(record: PageRecord | ItemRecord) -> PageRecord | ItemRecord:
    """The record as Scrapy Cluster's consumers read it; other sinks get it as it was."""
    return msgspec.structs.replace(record, timestamp=without_zone(record.timestamp))
