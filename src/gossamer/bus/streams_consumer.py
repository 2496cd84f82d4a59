"""A member of a consumer group on Valkey Streams."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, TypeVar

import msgspec

from gossamer.bus.base import Message
from gossamer.errors import (
    BadInput,
    BusError,
    BusFull,
    BusUnavailable,
    FrontierError,
    FrontierFull,
    FrontierUnavailable,
)
from gossamer.valkey.client import Script, load
from gossamer.valkey.shards import Shards


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """The braces keep what belongs to a topic in one cluster slot, and spread the topics over the cluster."""

    prefix: str

    def stream(self, topic: str) -> str:
        """A stream: fields v (the value), c (bytes put before it) and k (the key, where there is one).

        Ends: kept until acknowledged, 30 days after it became empty; the others, a retention after the last message."""
        return f"{{{self.prefix}:bus:{topic}}}"

    def facts(self, topic: str) -> str:
        """A hash: put (bytes ever put), gone (bytes that have left, as far as anybody had to know). Ends with the
        stream."""
        return f"{self.stream(topic)}:facts"

    @property
    def names(self) -> str:
        """A sorted set: the topics' names by when somebody last used them; one leaves 30 days after."""
        return f"{{{self.prefix}:bus}}:names"

    @property
    def channel(self) -> str:
        """A channel, no key: consumers hear of messages here."""
        return f"{{{self.prefix}:bus}}:wake"


T = TypeVar("T")

SCRIPTS: dict[str, Script] = load(resources.files("gossamer.bus") / "scripts")

_REMEMBERED_MS = 30 * 86400 * 1000
"""A name that nobody used, and an empty topic that was kept until acknowledged, with its groups."""
_GONE_MS = 3600 * 1000
"""A member without a sign of life for so long that holds nothing is forgotten."""
_STREAMS_STORE_CALL_IDS = 5000


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group of a topic."""

    name: str
    unread: int | None
    """Messages it has not been given; None where the server cannot tell."""
    held: int
    """Messages it was given and has not acknowledged."""


class StreamsStore:
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
        for first in range(0, len(places), _STREAMS_STORE_CALL_IDS):
            part = places[first : first + _STREAMS_STORE_CALL_IDS]
            await self._call("acknowledge", keys, [group, int(topic in self._kept), _REMEMBERED_MS, *part])

    async def release(self, topic: str, group: str, member: str, say: bytes) -> None:
        """The member leaves; the others hear `say` when there is something to be had."""
        await self._call("release", [self.keys.stream(topic)], [group, member, say, self.keys.channel])

    async def groups(self, topic: str) -> list[ConsumerGroup]:
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
        return [ConsumerGroup(facts[b"name"].decode(), facts[b"lag"], facts[b"pending"]) for facts in found]

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


_READY_SECONDS = 5.0
_RELEASED = b"!"
"""Before a topic's name: a member left, and what it held is to be claimed."""


class WakeSignal:
    """What a consumer has to look at. `start` first, `stop` last."""

    def __init__(self, store: StreamsStore, topics: Sequence[str]) -> None:
        self._store = store
        self._topics = frozenset(topics)
        self.fresh = set(topics)
        """Topics that may have something."""
        self.released = set(topics)
        """Topics in which a member may have left something behind."""
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when nothing that is published from now on is missed."""
        ready = asyncio.Event()
        messages = self._store.shards.subscribe(self._store.keys.channel, ready)
        self._task = asyncio.create_task(self._listen(messages))
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await ready.wait()
        except TimeoutError:
            await self.stop()
            raise BusUnavailable(f"no subscription within {_READY_SECONDS:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def _listen(self, messages: AsyncIterator[bytes | None]) -> None:
        async for message in messages:
            if message is None:  # anything may have been said meanwhile
                self.fresh |= self._topics
                self.released |= self._topics
                self._event.set()
                continue
            topic = message.removeprefix(_RELEASED).decode()
            if topic in self._topics:
                self.fresh.add(topic)
                if message.startswith(_RELEASED):
                    self.released.add(topic)
                self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until a topic has something, at most so long."""
        self._event.clear()
        if self.fresh:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()

    async def stop(self) -> None:
        """May be repeated."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


def released(topic: str) -> bytes:
    """What the others of a group hear when a member leaves."""
    return _RELEASED + topic.encode()


_CALL_IDS = 1000


class StreamsConsumer:
    """Implements Consumer. Made by `StreamsBus.consume`.

    What it took is its own for `claim_seconds`, and a task says again and again that it is being worked on; when that
    task dies with its process, another member claims it.
    """

    def __init__(self, store: StreamsStore, topics: Sequence[str], *, group: str, claim_seconds: float) -> None:
        self._store = store
        self._topics = deque(topics)
        self._group = group
        self._claim_seconds = claim_seconds
        self._member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._wake = WakeSignal(store, topics)
        self._held: dict[str, set[bytes]] = {topic: set() for topic in topics}
        self._lost: set[str] = set()
        """Topics in which we may have been given something without hearing of it."""
        self._claimed: dict[str, float] = dict.fromkeys(topics, float("-inf"))
        self._holding: asyncio.Task[None] | None = None
        self._time = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Join the group."""
        for topic in self._topics:
            await self._store.join(topic, self._group)
        await self._wake.start()
        self._holding = asyncio.create_task(self._hold())

    # --- taking -------------------------------------------------------------------------------------------------------

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        last = self._time() + wait_seconds
        while True:
            messages = await self._take(at_most)
            left = last - self._time()
            if messages or left <= 0:
                return messages
            await self._wake.wait(min(left, self._claim_seconds / 2))

    async def _take(self, at_most: int) -> list[Message]:
        messages: list[Message] = []
        # Every topic comes first in its turn: none waits behind another that is never empty.
        self._topics.rotate(-1)
        try:
            for topic in self._topics:
                if len(messages) < at_most and (topic in self._wake.fresh or self._is_claim_due(topic)):
                    messages += await self._take_from(topic, at_most - len(messages))
        except BusError:
            if not messages:
                raise
        except BaseException:  # cancelled: nobody gets these, so they are not held
            for message in messages:
                self._held[message.topic].discard(message.place)
                self._lost.add(message.topic)
                self._wake.fresh.add(message.topic)
            raise
        return messages

    def _is_claim_due(self, topic: str) -> bool:
        return topic in self._wake.released or self._time() - self._claimed[topic] >= self._claim_seconds / 2

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        self._wake.fresh.discard(topic)
        rows: list[Any] = []
        try:
            if topic in self._lost:
                rows = await self._found_again(topic, at_most)
            if len(rows) < at_most and self._is_claim_due(topic):
                rows += await self._claim(topic, at_most - len(rows))
            if len(rows) < at_most:
                rows += await self._read(topic, at_most - len(rows))
        except BaseException as error:
            self._wake.fresh.add(topic)
            self._lost.add(topic)
            if not isinstance(error, BusError) or isinstance(error, BusUnavailable) or "NOGROUP" not in str(error):
                raise
            await self._store.join(topic, self._group)  # the topic had ended, or the server lost it
            return []
        if len(rows) >= at_most:
            self._wake.fresh.add(topic)
        self._held[topic].update(row[0] for row in rows)
        return [as_message(topic, row) for row in rows]

    async def _read(self, topic: str, at_most: int) -> list[Any]:
        """What nobody of the group was given."""
        key = self._store.keys.stream(topic)
        answer = await self._store.command(
            key, "XREADGROUP", "GROUP", self._group, self._member, "COUNT", at_most, "STREAMS", key, ">"
        )
        return list(answer[0][1]) if answer else []

    async def _found_again(self, topic: str, at_most: int) -> list[Any]:
        """What we were given in an answer that never came."""
        held = self._held[topic]
        ids = [place for place in await self._pending(topic, len(held) + at_most, self._member) if place not in held]
        rows = await self._claim_these(topic, ids[:at_most], idle_ms=0)
        if len(ids) < at_most:
            self._lost.discard(topic)
        return rows

    async def _claim(self, topic: str, at_most: int) -> list[Any]:
        """What members held that are dead or have left."""
        idle_ms = int(self._claim_seconds * 1000)
        self._wake.released.discard(topic)  # before we look: what is said meanwhile counts
        began = self._time()
        all_claimed = False
        try:
            ids = await self._pending(topic, at_most, "IDLE", idle_ms)
            rows = await self._claim_these(topic, ids, idle_ms=idle_ms)
            all_claimed = len(ids) < at_most
        finally:
            self._claimed[topic] = began if all_claimed else float("-inf")
        return rows

    async def _pending(self, topic: str, at_most: int, *whose: str | int) -> list[bytes]:
        """Ids that were given and not acknowledged, oldest first: a member's, or those idle for so many ms."""
        key = self._store.keys.stream(topic)
        idle, member = (whose, ()) if whose[0] == "IDLE" else ((), whose)
        rows = await self._store.command(key, "XPENDING", key, self._group, *idle, "-", "+", at_most, *member)
        return [row[0] for row in rows]

    async def _claim_these(self, topic: str, ids: Sequence[bytes], *, idle_ms: int) -> list[Any]:
        """Those of them that are still there and still idle for so long, as ours."""
        if not ids:
            return []
        key = self._store.keys.stream(topic)
        rows = await self._store.command(key, "XCLAIM", key, self._group, self._member, idle_ms, *ids)
        return [row for row in rows if row is not None]

    async def _hold(self) -> None:
        """Say of what is being worked on that it is: else it would be given to another."""
        while True:
            await asyncio.sleep(self._claim_seconds / 3)
            with contextlib.suppress(BusError):
                for topic, held in self._held.items():
                    key, ids = self._store.keys.stream(topic), sorted(held)
                    for first in range(0, len(ids), _CALL_IDS):
                        part = ids[first : first + _CALL_IDS]
                        ours = await self._store.command(
                            key, "XCLAIM", key, self._group, self._member, 0, *part, "JUSTID"
                        )
                        held.difference_update(set(part).difference(ours))  # done with by another, or trimmed

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message.place)
        for topic, ids in by_topic.items():
            await self._store.acknowledge(topic, self._group, ids)
            self._held[topic].difference_update(ids)

    async def lag(self) -> int:
        total = 0
        for topic in self._topics:
            for group in await self._store.groups(topic):
                if group.name == self._group:
                    [length] = await self._store.lengths([topic]) if group.unread is None else [group.unread]
                    total += length + group.held
        return total

    async def close(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._holding
        await self._wake.stop()
        for topic in self._topics:
            with contextlib.suppress(BusError):
                await self._store.release(topic, self._group, self._member, released(topic))


_Place = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


class StreamsReader:
    """Implements Reader. Made by `StreamsBus.read`."""

    def __init__(self, store: StreamsStore, topics: Sequence[str], *, after: dict[str, str]) -> None:
        self._store = store
        self._after = {topic: after.get(topic, "0-0").encode() for topic in topics}
        self._done = {topic: place for topic, place in after.items() if topic in self._after}
        self._wake = WakeSignal(store, topics)

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
