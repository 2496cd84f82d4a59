"""The server side of the bus on Valkey Streams: its keys, its calls, and the notifications that wake consumers.

Fixed: names of keys, fields of a stream in their order, and the form of notifications, because messages outlive the
process that published them, and processes of two versions may share a bus.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gossamer.bus.base import Message
from gossamer.errors import BusError, BusFull, BusUnavailable, FrontierError, FrontierFull, FrontierUnavailable
from gossamer.pauses import happens_within
from gossamer.valkey.client import read_info
from gossamer.valkey.scripts import Scripts
from gossamer.valkey.shards import Shards

T = TypeVar("T")

SCRIPTS = Scripts(Path(__file__).with_name("scripts"))

_UNUSED_TOPIC_MS = 30 * 86400 * 1000
"""Lifetime of the name of an unused topic, and of an empty topic of requests with its groups. Texts
below say 30 days."""
_DEAD_MEMBER_MS = 3600 * 1000
"""Idle time after which a member without messages is removed. If it lives after all, its next read adds it again."""
_ACKNOWLEDGED_PER_CALL = 5000
"""Messages acknowledged in one call. Larger calls are fewer, and block the server for longer."""
_SUBSCRIBE_SECONDS = 5.0
"""Time for the server to confirm a subscription. A shorter one fails while the server is busy."""
_RELEASED = b"!"
"""Prefix of a topic's name in a notification that a member has left messages behind: fixed. No topic name begins with
it."""
_VALUE, _KEY = 1, 5
"""Places of a message's value and key in the flat list of an entry's fields, which the script `publish` writes in this
order: v, value, c, bytes before it, k, key."""


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """Key names: fixed, because existing topics have them. The braces keep a topic's keys in one cluster slot, and
    spread the topics over the cluster."""

    prefix: str

    def stream(self, topic: str) -> str:
        """A stream with the fields v (the value), c (bytes published before it) and k (the key, if there is one).

        Expires: a topic of requests 30 days after it became empty; the others a retention after the last message."""
        return f"{{{self.prefix}:bus:{topic}}}"

    def facts(self, topic: str) -> str:
        """A hash: put (bytes ever published) and gone (bytes that were deleted, brought up to date only when the topic
        seems full). Expires with the stream."""
        return f"{self.stream(topic)}:facts"

    @property
    def names(self) -> str:
        """A sorted set: the topics' names by time of last use. A name is removed 30 days after that time."""
        return f"{{{self.prefix}:bus}}:names"

    @property
    def channel(self) -> str:
        """A channel (no key) on which consumers are notified of messages."""
        return f"{{{self.prefix}:bus}}:wake"


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """State of a topic's consumer group."""

    name: str
    unread: int | None
    """Messages that were not delivered to the group; None if the server does not know."""
    held: int
    """Messages that were delivered and not acknowledged."""


class StreamsStore:
    """Calls to the server, shared by a `StreamsBus`, its consumers and its readers. All of them raise BusError."""

    def __init__(
        self,
        shards: Shards,
        keys: StreamKeys,
        *,
        keep_until_acknowledged: Sequence[str],
        copies: Sequence[str],
        retention_ms: int,
        max_topic_bytes: int,
    ) -> None:
        self.shards = shards
        self.keys = keys
        self._keep_until_acknowledged = frozenset(keep_until_acknowledged)
        self._copies = frozenset(copies)
        self._retention_ms = retention_ms
        self._max_topic_bytes = max_topic_bytes

    async def command(self, key: str, *command: Any) -> Any:
        """Return the reply to a command, sent to the server of this key."""
        return await _with_bus_errors(lambda: self.shards.command(key, *command))

    async def publish(self, topic: str, pairs: Sequence[bytes]) -> int:
        """Append messages, given as value, key, value, key … Return how many older messages were trimmed for them
        before some group had read them. Raises BusFull if there is no room; then nothing was appended."""
        # In the order in which the script reads them.
        arguments: list[Any] = [
            topic,
            self.keys.channel,
            self._max_topic_bytes,
            int(topic in self._keep_until_acknowledged),
            self._retention_ms,
            *pairs,
        ]
        keys = [self.keys.stream(topic), self.keys.facts(topic)]

        async def publish() -> tuple[int, int]:
            # Confirmed: `Bus.publish` promises that the messages are durable.
            appended, count = await _with_bus_errors(
                lambda: self.shards.call(0, SCRIPTS["publish"], keys, arguments, confirmed=True)
            )
            return appended, count

        try:
            appended, trimmed_or_held_bytes = await publish()
        except BusFull:
            if not await self._make_room(topic):
                raise
            appended, trimmed_or_held_bytes = await publish()
        if not appended:
            raise BusFull(await self._full_reason(topic, trimmed_or_held_bytes))
        return int(trimmed_or_held_bytes)

    async def _make_room(self, topic: str) -> int:
        """Delete messages that are not needed any more, because the server's memory is full. Return how many."""
        if topic in self._keep_until_acknowledged:
            return 0  # acknowledging has deleted them
        arguments = [self._retention_ms, int(topic in self._copies)]
        return int(await self._call("make_room", [self.keys.stream(topic)], arguments))

    async def check_memory(self) -> None:
        """Raise BusFull if the memory of a server is full."""
        for reply in await _with_bus_errors(lambda: self.shards.everywhere("INFO", "memory")):
            told = read_info(reply)
            if 0 < int(told.get("maxmemory", 0)) <= int(told.get("used_memory", 0)):
                used, most = told["used_memory_human"], told["maxmemory_human"]
                raise BusFull(f"a server uses {used} of {most}; raise maxmemory, or stop a crawl")

    async def _full_reason(self, topic: str, held_bytes: int) -> str:
        """Return a sentence that names the groups which have to acknowledge messages."""
        waiting = [f"{group.name}: {(group.unread or 0) + group.held:,}" for group in await self.groups(topic)]
        cause = f"messages not acknowledged by {', '.join(waiting)}" if waiting else "no consumer reads it"
        return f"{topic} holds {held_bytes:,} of {self._max_topic_bytes:,} bytes; {cause}"

    async def record_use(self, topic: str) -> None:
        """Add the topic to the list of names, or renew it there."""
        await self._call("register_topic", [self.keys.names], [topic, _UNUSED_TOPIC_MS])

    async def names(self) -> list[str]:
        """Return the topics that were used in the last 30 days, sorted."""
        key = self.keys.names
        return sorted(name.decode() for name in await self.command(key, "ZRANGE", key, 0, -1))

    async def join(self, topic: str, group: str) -> None:
        """Create the group if it does not exist, and remove its dead members."""
        empty_ms = _UNUSED_TOPIC_MS if topic in self._keep_until_acknowledged else self._retention_ms
        await self._call("join_group", [self.keys.stream(topic)], [group, empty_ms, _DEAD_MEMBER_MS])

    async def acknowledge(self, topic: str, group: str, ids: Sequence[bytes]) -> None:
        """Acknowledge messages for the group."""
        keys = [self.keys.stream(topic), self.keys.facts(topic)]
        for first in range(0, len(ids), _ACKNOWLEDGED_PER_CALL):
            part = ids[first : first + _ACKNOWLEDGED_PER_CALL]
            await self._call(
                "acknowledge", keys, [group, int(topic in self._keep_until_acknowledged), _UNUSED_TOPIC_MS, *part]
            )

    async def release(self, topic: str, group: str, member: str) -> None:
        """Remove a member from the group, and notify the others if it leaves messages behind."""
        notification = _RELEASED + topic.encode()
        await self._call("leave_group", [self.keys.stream(topic)], [group, member, notification, self.keys.channel])

    async def groups(self, topic: str) -> list[ConsumerGroup]:
        """Return the topic's groups; empty if the topic does not exist."""
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
        """Return the number of messages in each topic, in order."""
        keys = [self.keys.stream(topic) for topic in topics]
        return list(await asyncio.gather(*(self.command(key, "XLEN", key) for key in keys)))

    async def _call(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await _with_bus_errors(lambda: self.shards.call(0, SCRIPTS[script], keys, arguments))


class WakeSignal:
    """Topics that a consumer has to look at, known from the server's notifications. Call `start` first, `stop` last."""

    def __init__(self, store: StreamsStore, topics: Sequence[str]) -> None:
        self._store = store
        self._topics = frozenset(topics)
        self.to_read = set(topics)
        """Topics that may have messages. The consumer removes a topic before it reads there."""
        self.to_claim = set(topics)
        """Topics in which a member that left may have held messages. The consumer removes a topic before it looks."""
        self._event = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Subscribe. Return when every later notification is sure to arrive. Raises BusUnavailable."""
        ready = asyncio.Event()
        messages = self._store.shards.subscribe(self._store.keys.channel, ready)
        self._listener = asyncio.create_task(self._listen(messages))
        try:
            async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                await ready.wait()
        except TimeoutError:
            await self.stop()
            raise BusUnavailable(f"no subscription within {_SUBSCRIBE_SECONDS:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def _listen(self, messages: AsyncIterator[bytes | None]) -> None:
        """Note the topic of each notification, and wake the consumer."""
        async for message in messages:
            if message is None:  # the connection was lost and is back: notifications may have been missed
                self.to_read |= self._topics
                self.to_claim |= self._topics
                self._event.set()
                continue
            topic = message.removeprefix(_RELEASED).decode()
            if topic in self._topics:
                self.to_read.add(topic)
                if message.startswith(_RELEASED):
                    self.to_claim.add(topic)
                self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until a topic may have messages, up to this long."""
        self._event.clear()
        if self.to_read:
            return
        await happens_within(self._event, seconds)

    async def stop(self) -> None:
        """Unsubscribe. May be repeated."""
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener


def to_message(topic: str, entry: Any, *, redelivered: bool = False) -> Message:
    """Return the message for an entry of a stream. An entry's id begins with the milliseconds when it was appended."""
    entry_id, fields = entry
    key = fields[_KEY] if len(fields) > _KEY else b""
    return Message(topic, fields[_VALUE], key, int(entry_id.partition(b"-")[0]) / 1000, entry_id, redelivered)


async def _with_bus_errors(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call, with the frontier's errors raised as the bus's: users of the bus need not know that
    both share a server."""
    try:
        return await call()
    except FrontierUnavailable as error:
        raise BusUnavailable(error.detail) from error
    except FrontierFull as error:
        raise BusFull(error.detail) from error
    except FrontierError as error:
        raise BusError(error.detail) from error
