"""Answers and events on their way out: to everybody's topic and to the application's own."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from gossamer.bus.base import Bus
from gossamer.bus.topics import Topics

_encoder = msgspec.json.Encoder()


class Outbound:
    """Publishes messages; one without an `appid` goes to everybody's topic only.

    Raises what the bus raises; repeating repeats messages."""

    def __init__(self, bus: Bus, topics: Topics, *, firehose: bool = True, per_app: bool = True) -> None:
        """`firehose`, `per_app`: which of the topics are written."""
        self._bus = bus
        self._topics = topics
        self._firehose = firehose
        self._per_app = per_app

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """All of them, durable when this returns."""
        by_topic: dict[str, list[bytes]] = {}
        for message in messages:
            value = _encoder.encode(message)
            if self._firehose:
                by_topic.setdefault(self._topics.outbound, []).append(value)
            appid = message.get("appid")
            if self._per_app and appid:
                by_topic.setdefault(self._topics.outbound_to(appid), []).append(value)
        await asyncio.gather(*(self._bus.publish(topic, values) for topic, values in by_topic.items()))

    async def bury(self, letters: Iterable[dict[str, Any]]) -> None:
        """Keep what was refused in the dead-letter topic."""
        values = [_encoder.encode(letter) for letter in letters]
        if values:
            await self._bus.publish(self._topics.dead_letter, values)
