"""What a bus on Valkey Streams asks of its server: plain commands and scripts, with errors under the bus's names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from gossamer.bus.base import Message
from gossamer.bus.streams_keys import StreamKeys
from gossamer.errors import BusError, BusFull, BusUnavailable, FrontierError, FrontierFull, FrontierUnavailable
from gossamer.valkey.scripts import Script, load
from gossamer.valkey.shards import Shards

T = TypeVar("T")

SCRIPTS: dict[str, Script] = load(resources.files("gossamer.bus") / "scripts")

_REMEMBERED_MS = 30 * 86400 * 1000
"""A name that nobody used, and an empty topic that was kept until acknowledged, with its groups."""
_GONE_MS = 3600 * 1000
"""A member without a sign of life for so long that holds nothing is forgotten."""
_CALL_IDS = 5000


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of a topic."""

    name: str
    unread: int | None
    """Messages it has not been given; None where the server cannot tell."""
    held: int
    """Messages it was given and has not acknowledged."""


class Store:
    """The server side of `StreamsBus`, shared by it, its consumers and its readers. All calls raise BusError."""

    def __init__(
        self, shards: Shards, keys: StreamKeys, *, kept: Sequence[str], retention_ms: int, most_bytes: int
    ) -> None:
        self.shards = shards
        self.keys = keys
        self._kept = frozenset(kept)
        self._retention_ms = retention_ms
        self._most_bytes = most_bytes

    async def command(self, key: str, *command: Any) -> Any:
        """A plain command where this key is."""
        return await _bus_errors(lambda: self.shards.command(key, *command))

    async def publish(self, topic: str, pairs: Sequence[bytes]) -> int:
        """Put value, key, value, key …; how many messages left for them that some group had not been given. Raises
        BusFull when nothing was put."""
        arguments: list[Any] = [
            topic,
            self.keys.channel,
            self._most_bytes,
            int(topic in self._kept),
            self._retention_ms,
            *pairs,
        ]
        keys = [self.keys.stream(topic), self.keys.facts(topic)]
        put, number = await _bus_errors(lambda: self.shards.call_confirmed(0, SCRIPTS["publish"], keys, arguments))
        if not put:
            raise BusFull(await self._why_full(topic, number))
        return int(number)

    async def _why_full(self, topic: str, held: int) -> str:
        """Who has to acknowledge something."""
        waiting = [f"{group.name}: {(group.unread or 0) + group.held:,}" for group in await self.groups(topic)]
        for_whom = f"messages not acknowledged by {', '.join(waiting)}" if waiting else "nobody reads it"
        return f"{topic} holds {held:,} of {self._most_bytes:,} bytes; {for_whom}"

    async def name(self, topic: str) -> None:
        """Say that the topic is used."""
        await self._call("name", [self.keys.names], [topic, _REMEMBERED_MS])

    async def names(self) -> list[str]:
        """The topics that were used in the last 30 days, in order."""
        key = self.keys.names
        return sorted(name.decode() for name in await self.command(key, "ZRANGE", key, 0, -1))

    async def join(self, topic: str, group: str) -> None:
        """Make the group where it is missing, and forget its members that are gone."""
        empty_ms = _REMEMBERED_MS if topic in self._kept else self._retention_ms
        await self._call("join", [self.keys.stream(topic)], [group, empty_ms, _GONE_MS])

    async def acknowledge(self, topic: str, group: str, places: Sequence[bytes]) -> None:
        """The group is done with these."""
        keys = [self.keys.stream(topic), self.keys.facts(topic)]
        for first in range(0, len(places), _CALL_IDS):
            part = places[first : first + _CALL_IDS]
            await self._call("acknowledge", keys, [group, int(topic in self._kept), _REMEMBERED_MS, *part])

    async def release(self, topic: str, group: str, member: str, say: bytes) -> None:
        """The member leaves; the others hear `say` when there is something to be had."""
        await self._call("release", [self.keys.stream(topic)], [group, member, say, self.keys.channel])

    async def groups(self, topic: str) -> list[Group]:
        """The topic's groups; none where there is no topic."""
        key = self.keys.stream(topic)
        try:
            rows = await self.command(key, "XINFO", "GROUPS", key)
        except BusUnavailable:
            raise
        except BusError as error:
            if "no such key" not in str(error):
                raise
            return []
        found = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        return [Group(facts[b"name"].decode(), facts[b"lag"], facts[b"pending"]) for facts in found]

    async def lengths(self, topics: Sequence[str]) -> list[int]:
        """How many messages each topic has."""
        keys = [self.keys.stream(topic) for topic in topics]
        return list(await asyncio.gather(*(self.command(key, "XLEN", key) for key in keys)))

    async def _call(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await _bus_errors(lambda: self.shards.call(0, SCRIPTS[script], keys, arguments))


def as_message(topic: str, row: Any) -> Message:
    """An entry of a stream."""
    place, fields = row
    key = fields[5] if len(fields) > 5 else b""
    return Message(topic, fields[1], key, int(place.partition(b"-")[0]) / 1000, place)


async def _bus_errors(call: Callable[[], Awaitable[T]]) -> T:
    """The same errors under the bus's names: whoever publishes need not know where the bus is kept."""
    try:
        return await call()
    except FrontierUnavailable as error:
        raise BusUnavailable(error.detail) from error
    except FrontierFull as error:
        raise BusFull(error.detail) from error
    except FrontierError as error:
        raise BusError(error.detail) from error
