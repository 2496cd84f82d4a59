"""The bus on Valkey Streams, in the frontier's own server: nothing more to run."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import resources
from typing import Annotated, Any, TypeVar

import msgspec

from gossamer.bus.base import Message, TopicInfo
from gossamer.errors import (
    BadInput,
    BusError,
    BusFull,
    BusUnavailable,
    FrontierError,
    FrontierFull,
    FrontierUnavailable,
    MessageTooLarge,
)
from gossamer.valkey.scripts import Script, load
from gossamer.valkey.shards import Shards

T = TypeVar("T")

_SCRIPTS: dict[str, Script] = load(resources.files("gossamer.bus") / "scripts")

_CALL_MESSAGES = 500
_CALL_BYTES = 1024 * 1024
_EMPTY_MS = 30 * 86400 * 1000
"""An empty topic that was kept until acknowledged is remembered for so long, with its groups."""
_SAY_SECONDS = 3600.0
"""How often a process names the topics it uses, so that their list outlives none of them by more than 30 days."""
_LOOK_SECONDS = 5.0
"""A consumer looks after so long even if nothing woke it."""
_NO_GROUP = "NOGROUP"
_Place = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


class StreamsBus:
    """Implements Bus.

    Keys: `{prefix:bus:topic}`, a stream, and `{prefix:bus:topic}:facts`, for each topic; `{prefix:bus}:topics`, the
    topics' names, for 30 days. Topics in `kept` hold every message until each of their groups has
    acknowledged it, and refuse more than `most_bytes` (BusFull); when empty they end after 30 days. The others lose
    what is older than `retention_seconds`, and the oldest beyond `most_bytes`, read or not (counted in `trimmed`); they
    end `retention_seconds` after their last message. Bytes are an estimate: messages times their mean size.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        prefix: str = "gossamer",
        kept: Sequence[str] = (),
        retention_seconds: float = 86400.0,
        most_bytes: int = 256 * 1024 * 1024,
        largest: int = 1024 * 1024,
        claim_seconds: float = 30.0,
    ) -> None:
        """`shards`: connections, closed by whoever made them. `claim_seconds`: a message that a silent member of a
        group has held for so long goes to another."""
        self.shards = shards
        self._prefix = prefix
        self._kept = frozenset(kept)
        self._retention_ms = int(retention_seconds * 1000)
        self._most_bytes = most_bytes
        self._largest = largest
        self.claim_seconds = claim_seconds
        self.trimmed: dict[str, int] = {}
        """Messages that left unread, by topic, as far as this process has asked (`topics`)."""
        self._known: dict[str, float] = {}

    @property
    def largest(self) -> int:
        return self._largest

    @property
    def channel(self) -> str:
        """Where consumers hear of messages."""
        return f"{{{self._prefix}:bus}}:wake"

    def key(self, topic: str) -> str:
        """The topic's stream."""
        return f"{{{self._prefix}:bus:{topic}}}"

    @property
    def _index(self) -> str:
        return f"{{{self._prefix}:bus}}:topics"

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        for value in values:
            if len(value) > self._largest:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {self._largest:,}")
        await self._know(topic)
        arguments: list[Any] = []
        size = 0
        for at, value in enumerate(values):
            arguments += (value, keys[at] if keys else b"")
            size += len(value)
            if size >= _CALL_BYTES or len(arguments) >= 2 * _CALL_MESSAGES:
                await self._publish(topic, arguments)
                arguments, size = [], 0
        if arguments:
            await self._publish(topic, arguments)

    async def _publish(self, topic: str, arguments: Sequence[Any]) -> None:
        keep = int(topic in self._kept)
        put = await _bus_errors(
            lambda: self.shards.call_confirmed(
                0,
                _SCRIPTS["publish"],
                [self.key(topic)],
                [topic, self.channel, self._most_bytes, keep, self._retention_ms, *arguments],
            )
        )
        if not put:
            raise BusFull(f"{topic} holds about {self._most_bytes:,} bytes that nobody has acknowledged")

    async def _know(self, topic: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._known.get(topic, -_SAY_SECONDS) >= _SAY_SECONDS:
            await self.command(self._index, "SADD", self._index, topic)
            await self.command(self._index, "PEXPIRE", self._index, _EMPTY_MS)
            self._known[topic] = now

    async def consume(self, topics: Sequence[str], *, group: str) -> "StreamsConsumer":
        for topic in topics:
            await self._know(topic)
        consumer = StreamsConsumer(self, topics, group=group)
        await consumer.start()
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> "StreamsReader":
        reader = StreamsReader(self, topics, after=_places(after))
        await reader.start(from_beginning=from_beginning)
        return reader

    async def topics(self) -> list[TopicInfo]:
        names = await _bus_errors(lambda: self.shards.command(self._index, "SMEMBERS", self._index))
        found = []
        for name in sorted(topic.decode() for topic in names):
            key = self.key(name)
            length = await self.command(key, "XLEN", key)
            trimmed = await self.command(key, "HGET", f"{key}:facts", "trimmed")
            if trimmed:
                self.trimmed[name] = int(trimmed)
            found.append(TopicInfo(name, length))
        return found

    async def ping(self) -> None:
        await self.command(self._index, "EXISTS", self._index)

    async def close(self) -> None:
        return

    async def command(self, key: str, *command: Any) -> Any:
        """A plain command where this key is. Raises BusError."""
        return await _bus_errors(lambda: self.shards.command(key, *command))

    async def acknowledge(self, topic: str, group: str, ids: Sequence[bytes]) -> None:
        """A group is done with these."""
        keep = int(topic in self._kept)
        for first in range(0, len(ids), 5000):
            part = ids[first : first + 5000]
            await _bus_errors(
                lambda part=part: self.shards.call(  # type: ignore[misc]
                    0, _SCRIPTS["acknowledge"], [self.key(topic)], [group, keep, _EMPTY_MS, *part]
                )
            )

    async def release(self, topic: str, group: str, member: str) -> None:
        """A member leaves."""
        await _bus_errors(
            lambda: self.shards.call(0, _SCRIPTS["release"], [self.key(topic)], [group, member, topic, self.channel])
        )


class _Woken:
    """Hears which topics have something new."""

    def __init__(self, bus: StreamsBus, topics: Sequence[str]) -> None:
        self._bus = bus
        self._topics = list(topics)
        self.fresh = set(topics)
        """Topics that may have something."""
        self._event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.Event()
        messages = self._bus.shards.subscribe(self._bus.channel, ready)
        self._task = asyncio.create_task(self._listen(messages))
        await ready.wait()

    async def _listen(self, messages: AsyncIterator[bytes | None]) -> None:
        async for message in messages:
            if message is None:  # anything may have been said meanwhile
                self.fresh |= set(self._topics)
            elif (topic := message.decode()) in self._topics:
                self.fresh.add(topic)
            else:
                continue
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
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


class StreamsConsumer:
    """Implements Consumer. Made by `StreamsBus.consume`."""

    def __init__(self, bus: StreamsBus, topics: Sequence[str], *, group: str) -> None:
        self._bus = bus
        self._topics = list(topics)
        self._group = group
        self._member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._woken = _Woken(bus, topics)
        self._held: dict[str, set[bytes]] = {topic: set() for topic in topics}
        self._claimed: dict[str, float] = dict.fromkeys(topics, 0.0)
        self._holding: asyncio.Task[None] | None = None
        self._time = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Join the group."""
        for topic in self._topics:
            await self._join(topic)
        await self._woken.start()
        self._holding = asyncio.create_task(self._hold())

    async def _join(self, topic: str) -> None:
        key = self._bus.key(topic)
        try:
            await self._bus.command(key, "XGROUP", "CREATE", key, self._group, "0", "MKSTREAM")
        except BusUnavailable:
            raise
        except BusError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        last = self._time() + wait_seconds
        while True:
            messages: list[Message] = []
            for topic in self._topics:
                if len(messages) < at_most and (topic in self._woken.fresh or self._is_claim_due(topic)):
                    messages += await self._take_from(topic, at_most - len(messages))
            left = last - self._time()
            if messages or left <= 0:
                return messages
            await self._woken.wait(min(left, _LOOK_SECONDS, self._bus.claim_seconds / 2))

    def _is_claim_due(self, topic: str) -> bool:
        return self._time() - self._claimed[topic] >= self._bus.claim_seconds / 2

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        key = self._bus.key(topic)
        self._woken.fresh.discard(topic)
        try:
            claimed = await self._claim(topic, at_most)
            rows: Any = None
            if len(claimed) < at_most:
                rows = await self._bus.command(
                    key, "XREADGROUP", "GROUP", self._group, self._member, "COUNT", at_most - len(claimed),
                    "STREAMS", key, ">",
                )  # fmt: skip
        except BusUnavailable:
            self._woken.fresh.add(topic)
            raise
        except BusError as error:
            if _NO_GROUP not in str(error):
                raise
            await self._join(topic)
            self._woken.fresh.add(topic)
            return []
        found = claimed + (rows[0][1] if rows else [])
        if len(found) >= at_most:
            self._woken.fresh.add(topic)
        self._held[topic].update(row[0] for row in found)
        return [_message(topic, row) for row in found]

    async def _claim(self, topic: str, at_most: int) -> list[Any]:
        """What members held that are dead or have left."""
        key = self._bus.key(topic)
        self._claimed[topic] = self._time()
        _, rows, *_ = await self._bus.command(
            key, "XAUTOCLAIM", key, self._group, self._member, int(self._bus.claim_seconds * 1000), "0",
            "COUNT", at_most,
        )  # fmt: skip
        return [row for row in rows if row is not None]

    async def _hold(self) -> None:
        """Say of what is being worked on that it is: else it would be given to another."""
        while True:
            await asyncio.sleep(self._bus.claim_seconds / 3)
            with contextlib.suppress(BusError):
                for topic, held in self._held.items():
                    key, ids = self._bus.key(topic), sorted(held)
                    for first in range(0, len(ids), 1000):
                        part = ids[first : first + 1000]
                        await self._bus.command(key, "XCLAIM", key, self._group, self._member, 0, *part, "JUSTID")

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message.place)
        for topic, ids in by_topic.items():
            await self._bus.acknowledge(topic, self._group, ids)
            self._held[topic].difference_update(ids)

    async def lag(self) -> int:
        total = 0
        for topic in self._topics:
            key = self._bus.key(topic)
            for row in await self._bus.command(key, "XINFO", "GROUPS", key):
                facts = dict(zip(row[::2], row[1::2], strict=True))
                if facts[b"name"] == self._group.encode():
                    unread = facts[b"lag"]
                    if unread is None:
                        unread = await self._bus.command(key, "XLEN", key)
                    total += int(unread) + int(facts[b"pending"])
        return total

    async def close(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._holding
        await self._woken.stop()
        for topic in self._topics:
            with contextlib.suppress(BusError):
                await self._bus.release(topic, self._group, self._member)


class StreamsReader:
    """Implements Reader. Made by `StreamsBus.read`."""

    def __init__(self, bus: StreamsBus, topics: Sequence[str], *, after: dict[str, str]) -> None:
        self._bus = bus
        self._after = {topic: after.get(topic, "0-0").encode() for topic in topics}
        self._done = {topic: place for topic, place in after.items() if topic in self._after}
        self._woken = _Woken(bus, topics)

    async def start(self, *, from_beginning: bool) -> None:
        """Find the places to begin at."""
        await self._woken.start()
        if not from_beginning and not self._done:
            for topic in self._after:
                key = self._bus.key(topic)
                newest = await self._bus.command(key, "XREVRANGE", key, "+", "-", "COUNT", 1)
                if newest:
                    self._after[topic] = newest[0][0]

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        loop = asyncio.get_running_loop()
        last = loop.time() + wait_seconds
        while True:
            messages: list[Message] = []
            for topic in list(self._woken.fresh):
                if len(messages) < at_most:
                    messages += await self._take_from(topic, at_most - len(messages))
            left = last - loop.time()
            if messages or left <= 0:
                return messages
            await self._woken.wait(left)

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        key = self._bus.key(topic)
        self._woken.fresh.discard(topic)
        try:
            rows = await self._bus.command(key, "XREAD", "COUNT", at_most, "STREAMS", key, self._after[topic])
        except BusUnavailable:
            self._woken.fresh.add(topic)
            raise
        found = rows[0][1] if rows else []
        if found:
            self._after[topic] = found[-1][0]
        if len(found) >= at_most:
            self._woken.fresh.add(topic)
        return [_message(topic, row) for row in found]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._done[message.topic] = message.place.decode()

    def is_at_end(self) -> bool:
        return not self._woken.fresh

    def mark(self) -> str:
        return msgspec.json.encode(self._done).decode()

    async def lag(self) -> int:
        return 0

    async def close(self) -> None:
        await self._woken.stop()


def _places(mark: str) -> dict[str, str]:
    """Where a reader stood, by topic."""
    if not mark:
        return {}
    try:
        return msgspec.json.decode(mark, type=dict[str, _Place])
    except msgspec.DecodeError:
        raise BadInput("this is no mark of a reader on streams") from None


def _message(topic: str, row: Any) -> Message:
    place, fields = row
    value, key = fields[1], fields[3] if len(fields) > 3 else b""
    return Message(topic, value, key, int(place.partition(b"-")[0]) / 1000, place)


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
