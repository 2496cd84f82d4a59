"""Reading streams without a group."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gossamer.bus.base import Message
from gossamer.bus.streams_store import Store, as_message
from gossamer.bus.streams_wake import Wake
from gossamer.errors import BadInput, BusError

_Place = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


class StreamsReader:
    """Implements Reader. Made by `StreamsBus.read`."""

    def __init__(self, store: Store, topics: Sequence[str], *, after: dict[str, str]) -> None:
        self._store = store
        self._after = {topic: after.get(topic, "0-0").encode() for topic in topics}
        self._done = {topic: place for topic, place in after.items() if topic in self._after}
        self._wake = Wake(store, topics)

    async def start(self, *, from_beginning: bool) -> None:
        """Find the places to begin at."""
        await self._wake.start()
        if not from_beginning and not self._done:
            for topic in self._after:
                key = self._store.keys.stream(topic)
                newest = await self._store.command(key, "XREVRANGE", key, "+", "-", "COUNT", 1)
                if newest:
                    self._after[topic] = newest[0][0]

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        loop = asyncio.get_running_loop()
        last = loop.time() + wait_seconds
        while True:
            messages = await self._take(at_most)
            left = last - loop.time()
            if messages or left <= 0:
                return messages
            await self._wake.wait(left)

    async def _take(self, at_most: int) -> list[Message]:
        before = dict(self._after)
        messages: list[Message] = []
        try:
            for topic in list(self._wake.fresh):
                if len(messages) < at_most:
                    messages += await self._take_from(topic, at_most - len(messages))
        except BusError:
            if not messages:
                raise
        except BaseException:  # cancelled: the next call has them
            self._after = before
            self._wake.fresh |= set(before)
            raise
        return messages

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        key = self._store.keys.stream(topic)
        self._wake.fresh.discard(topic)
        try:
            answer = await self._store.command(key, "XREAD", "COUNT", at_most, "STREAMS", key, self._after[topic])
        except BusError:
            self._wake.fresh.add(topic)
            raise
        rows = answer[0][1] if answer else []
        if rows:
            self._after[topic] = rows[-1][0]
        if len(rows) >= at_most:
            self._wake.fresh.add(topic)
        return [as_message(topic, row) for row in rows]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._done[message.topic] = message.place.decode()

    def is_at_end(self) -> bool:
        return not self._wake.fresh

    def mark(self) -> str:
        return msgspec.json.encode(self._done).decode()

    async def lag(self) -> int:
        return 0

    async def close(self) -> None:
        await self._wake.stop()


def read_mark(mark: str) -> dict[str, str]:
    """Where a reader stood, by topic. Raises BadInput."""
    if not mark:
        return {}
    try:
        return msgspec.json.decode(mark, type=dict[str, _Place])
    except msgspec.DecodeError:
        raise BadInput("this is no mark of a reader on streams") from None
