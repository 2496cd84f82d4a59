"""Answers and events on their way out: to everybody's topic and to the application's own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.bus.base import Bus
from gossamer.bus.topics import Topics
from gossamer.errors import MessageTooLarge
from gossamer.model.messages import answers
from gossamer.sinks.blobs import BlobStore

_encoder = msgspec.json.Encoder()

_SHORT = 1000
"""Characters of a text that stays in the message when the rest of it is elsewhere."""


class Outbound:
    """Publishes messages. One without an `appid` goes to everybody's topic only, and so does a refusal whose
    application has no topic yet.

    Raises what the bus raises; repeating repeats messages."""

    def __init__(
        self, bus: Bus, topics: Topics, blobs: BlobStore, *, firehose: bool = True, per_app: bool = True
    ) -> None:
        """`blobs`: where a message goes that is larger than the bus takes. `firehose`, `per_app`: which topics are
        written."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._firehose = firehose
        self._per_app = per_app

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """All of them, durable when this returns."""
        every = list(messages)
        await self._fitting(lambda: self._send(every))

    async def bury(self, letters: Iterable[dict[str, Any]]) -> None:
        """Keep what was refused in the dead-letter topic."""
        every = list(letters)
        await self._fitting(lambda: self._bury(every))

    async def _fitting(self, put: Callable[[], Awaitable[None]]) -> None:
        """Again, when a topic turned out to allow less than was known."""
        while True:
            known = self._bus.largest
            try:
                return await put()
            except MessageTooLarge:
                if self._bus.largest >= known:
                    raise

    async def _send(self, messages: Sequence[dict[str, Any]]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        doubtful: set[str] = set()
        for message in messages:
            value = await self._encoded(message)
            if self._firehose:
                by_topic.setdefault(self._topics.outbound, []).append(value)
            appid = message.get("appid")
            if self._per_app and appid:
                topic = self._topics.outbound_to(appid)
                by_topic.setdefault(topic, []).append(value)
                if message.get("action") == answers.REJECTED:
                    doubtful.add(topic)
        if doubtful:  # a refused request may name any application: it must not make topics
            for topic in doubtful - await self._bus.existing(doubtful):
                del by_topic[topic]
        await asyncio.gather(*(self._bus.publish(topic, values) for topic, values in by_topic.items()))

    async def _bury(self, letters: Sequence[dict[str, Any]]) -> None:
        values = [await self._encoded(letter) for letter in letters]
        if values:
            await self._bus.publish(self._topics.dead_letter, values)

    async def _encoded(self, message: dict[str, Any]) -> bytes:
        """As JSON; of one that is too large the short fields, and where all of it is."""
        value = _encoder.encode(message)
        if len(value) <= self._bus.largest:
            return value
        [address] = await self._blobs.put([value])
        return _encoder.encode({name: _short(part) for name, part in message.items()} | {"whole_address": address})


def _short(part: Any) -> Any:
    match part:
        case dict() | list():
            return type(part)()
        case str() if len(part) > _SHORT:
            return ""
    return part
