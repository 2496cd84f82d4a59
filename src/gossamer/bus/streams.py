"""The message bus on Valkey Streams, in the server of the frontier (the store of waiting requests).

Fixed: the form of cursors, which clients keep, and the order of steps around an awaited call, which loses no message
when the call is cancelled or its reply is lost. What is stored in the server is decided in `streams_store.py` and in
the scripts.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections import deque
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import msgspec

from gossamer.bus.base import Message, TopicInfo, check_topic_name
from gossamer.bus.streams_store import StreamKeys, StreamsStore, WakeSignal, to_message
from gossamer.errors import BadInput, BusError, BusUnavailable, MessageTooLarge
from gossamer.valkey.shards import Shards

# A call that publishes is sent as soon as it has this many messages or bytes. Larger calls are fewer, and block the
# server for longer.
_MESSAGES_PER_CALL = 500
_BYTES_PER_CALL = 1024 * 1024
_RECORD_USE_SECONDS = 3600.0
"""Interval at which a process renews the names of its topics. Must stay far below the 30 days that the server keeps
them (`_UNUSED_TOPIC_MS` in `streams_store.py`)."""


class StreamsBus:
    """Implements Bus.

    A topic in `keep_until_acknowledged` holds every message until each of its groups has acknowledged it; when it is
    full, publishing raises BusFull. Every other topic drops messages older than `retention_seconds`, and its oldest
    ones when it is full, read or not (counted in `trimmed`). A topic is full at `max_topic_bytes`, counted exactly:
    values, keys, and 32 bytes for each message.

    When the server's memory is full, a topic makes room for new messages with those that are over their time or that
    every group has acknowledged, and one in `copies` without a group with its older half: other topics have the same
    messages. If there are none, publishing raises BusFull.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        prefix: str = "gossamer",
        keep_until_acknowledged: Sequence[str] = (),
        copies: Sequence[str] = (),
        retention_seconds: float = 86400.0,
        max_topic_bytes: int = 256 * 1024 * 1024,
        max_message_bytes: int = 1024 * 1024,
        claim_seconds: float = 30.0,
    ) -> None:
        """`shards`: connections to the server; the caller closes them. `prefix`: prefix of every key.
        `claim_seconds`: time without a sign of life after which a member's messages go to another member of its
        group."""
        self.shards = shards
        self.prefix = prefix
        self._store = StreamsStore(
            shards,
            StreamKeys(prefix),
            keep_until_acknowledged=keep_until_acknowledged,
            copies=copies,
            retention_ms=int(retention_seconds * 1000),
            max_topic_bytes=max_topic_bytes,
        )
        self._max_message_bytes = max_message_bytes
        self._claim_seconds = claim_seconds
        self.trimmed: dict[str, int] = {}
        """Messages that publishing here pushed out before some group had read them, by topic."""
        self._recorded: dict[str, float] = {}
        """Time on the loop's clock when the name of each topic was last renewed."""

    async def message_limit(self, topic: str) -> int:
        check_topic_name(topic)
        return self._max_message_bytes

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        for value in values:
            if len(value) > self._max_message_bytes:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {self._max_message_bytes:,}")
        await self._record_use(topic)
        pairs: list[bytes] = []
        size = 0
        for at, value in enumerate(values):
            pairs += (value, keys[at] if keys else b"")
            size += len(value)
            if size >= _BYTES_PER_CALL or len(pairs) >= 2 * _MESSAGES_PER_CALL:
                await self._publish(topic, pairs)
                pairs, size = [], 0
        if pairs:
            await self._publish(topic, pairs)

    async def _publish(self, topic: str, pairs: Sequence[bytes]) -> None:
        """Publish messages in one call: `pairs` has value, key, value, key …"""
        trimmed = await self._store.publish(topic, pairs)
        if trimmed:
            self.trimmed[topic] = self.trimmed.get(topic, 0) + trimmed

    async def _record_use(self, topic: str) -> None:
        """Renew the name of the topic on the server, unless this process did so recently."""
        now = asyncio.get_running_loop().time()
        if now - self._recorded.get(topic, float("-inf")) >= _RECORD_USE_SECONDS:
            check_topic_name(topic)
            await self._store.record_use(topic)
            self._recorded[topic] = now

    async def consume(self, topics: Sequence[str], *, group: str) -> "StreamsConsumer":
        for topic in topics:
            await self._record_use(topic)
        consumer = StreamsConsumer(self._store, topics, group=group, claim_seconds=self._claim_seconds)
        await consumer.start()
        return consumer

    async def read(
        self, topics: Sequence[str], *, from_beginning: bool, after: str = "", since: float = 0.0
    ) -> "StreamsReader":
        for topic in topics:
            await self._record_use(topic)
        reader = StreamsReader(self._store, topics, after=_parse_cursor(after), since=since)
        try:
            await reader.start(from_beginning=from_beginning)
        except BaseException:
            await reader.close()
            raise
        return reader

    async def read_back(self, topic: str, *, before: str = "") -> "StreamsBackReader":
        await self._record_use(topic)
        return StreamsBackReader(self._store, topic, before=_parse_cursor(before).get(topic, ""))

    async def topics(self, *, after: str = "", limit: int | None = None) -> list[TopicInfo]:
        names = [name for name in await self._store.names() if name > after][:limit]
        return [TopicInfo(*row) for row in zip(names, await self._store.lengths(names), strict=True)]

    async def existing(self, topics: Collection[str]) -> set[str]:
        return set(topics).intersection(await self._store.names())

    async def ping(self) -> None:
        key = self._store.keys.names
        await self._store.command(key, "EXISTS", key)

    async def check_room(self) -> None:
        await self._store.check_memory()

    async def close(self) -> None:
        return


_RENEWED_PER_CALL = 1000
"""Messages whose claims are renewed in one call. Larger calls are fewer, and block the server for longer."""
_RENEWALS_PER_CLAIM = 3
"""Renewals of a member's messages in `claim_seconds`. Must be more than 1, or other members process the messages, too;
with 3, one renewal may fail."""
_LOOKS_PER_CLAIM = 2
"""Looks for messages of dead members in `claim_seconds`. Fewer looks delay these messages."""


class StreamsConsumer:
    """Implements Consumer. Created by `StreamsBus.consume`.

    A message that was taken belongs to this member for `claim_seconds`; a background task renews that while the member
    lives. When the task dies with its process, another member claims the message.
    """

    def __init__(self, store: StreamsStore, topics: Sequence[str], *, group: str, claim_seconds: float) -> None:
        self._store = store
        self._topics = deque(topics)  # rotated by each `take`
        self._group = group
        self._claim_seconds = claim_seconds
        self._member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._wake = WakeSignal(store, topics)
        self._held: dict[str, set[bytes]] = {topic: set() for topic in topics}
        """Ids of messages that were taken and not acknowledged, by topic."""
        self._claimed: dict[str, set[bytes]] = {topic: set() for topic in topics}
        """Ids of messages that other members had taken, by topic, until they are returned here."""
        self._lost_replies: set[str] = set()
        """Topics for which the server may have delivered messages in a reply that never arrived."""
        self._claimed_at: dict[str, float] = dict.fromkeys(topics, float("-inf"))
        """Time when messages of other members were last looked for, by topic. Minus infinity: look again at once."""
        self._renewer: asyncio.Task[None] | None = None
        self._time = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Join the group."""
        for topic in self._topics:
            await self._store.join(topic, self._group)
        await self._wake.start()
        self._renewer = asyncio.create_task(self._renew())

    # --- taking -------------------------------------------------------------------------------------------------------

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        deadline = self._time() + wait_seconds
        while True:
            messages = await self._take(at_most)
            left = deadline - self._time()
            if messages or left <= 0:
                return messages
            await self._wake.wait(min(left, self._claim_seconds / _LOOKS_PER_CLAIM))

    async def _take(self, at_most: int) -> list[Message]:
        """Take what is there now, from the topics that may have something."""
        messages: list[Message] = []
        # Every topic is first in its turn, so that none starves behind one that never runs empty.
        self._topics.rotate(-1)
        try:
            for topic in self._topics:
                if len(messages) < at_most and (topic in self._wake.to_read or self._is_claim_due(topic)):
                    messages += await self._take_from(topic, at_most - len(messages))
        except BusError:  # messages that were taken before the error are returned; the next call meets it again
            if not messages:
                raise
        except BaseException:  # cancelled: the caller gets none of these, so the next call has to find them again
            for message in messages:
                self._held[message.topic].discard(message.position)
                self._lost_replies.add(message.topic)
                self._wake.to_read.add(message.topic)
            raise
        return messages

    def _is_claim_due(self, topic: str) -> bool:
        """Return whether to look for messages that other members have left behind."""
        since_last = self._time() - self._claimed_at[topic]
        return topic in self._wake.to_claim or since_last >= self._claim_seconds / _LOOKS_PER_CLAIM

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        """Take messages of one topic: first those of a lost reply, then those of dead members, then new ones.

        After an error or a cancellation the next call looks for what the server may have delivered meanwhile."""
        # Removed first, so that a notification that comes meanwhile is not lost.
        self._wake.to_read.discard(topic)
        entries: list[Any] = []
        claimed = self._claimed[topic]
        try:
            if topic in self._lost_replies:
                entries = await self._take_lost(topic, at_most)
            if len(entries) < at_most and self._is_claim_due(topic):
                abandoned = await self._claim_abandoned(topic, at_most - len(entries))
                claimed.update(entry_id for entry_id, _ in abandoned)
                entries += abandoned
            if len(entries) < at_most:
                entries += await self._read_new(topic, at_most - len(entries))
        except BaseException as error:
            self._wake.to_read.add(topic)
            self._lost_replies.add(topic)
            group_is_gone = (
                isinstance(error, BusError) and not isinstance(error, BusUnavailable) and "NOGROUP" in str(error)
            )
            if not group_is_gone:
                raise
            await self._store.join(topic, self._group)  # the topic had expired, or the server lost its data
            return []
        if len(entries) >= at_most:  # there may be more
            self._wake.to_read.add(topic)
        self._held[topic].update(entry_id for entry_id, _ in entries)
        messages = [to_message(topic, entry, redelivered=entry[0] in claimed) for entry in entries]
        claimed.difference_update(entry_id for entry_id, _ in entries)
        return messages

    async def _read_new(self, topic: str, at_most: int) -> list[Any]:
        """Take messages that were not delivered to any member of the group."""
        key = self._store.keys.stream(topic)
        reply = await self._store.command(
            key, "XREADGROUP", "GROUP", self._group, self._member, "COUNT", at_most, "STREAMS", key, ">"
        )
        return _entries_of(reply)

    async def _take_lost(self, topic: str, at_most: int) -> list[Any]:
        """Take messages that were delivered to this member in a reply that never arrived: the server counts them as its
        own, but it does not hold them."""
        held = self._held[topic]
        # So many that at least `at_most` of them are not held, if there are that many.
        pending = await self._pending(topic, len(held) + at_most, member=self._member)
        ids = [entry_id for entry_id in pending if entry_id not in held]
        entries = await self._claim(topic, ids[:at_most], idle_ms=0)
        if len(ids) < at_most:
            self._lost_replies.discard(topic)
        return entries

    async def _claim_abandoned(self, topic: str, at_most: int) -> list[Any]:
        """Take messages that are held by members which have died or left."""
        idle_ms = int(self._claim_seconds * 1000)
        self._wake.to_claim.discard(topic)  # first, so that a notification that comes meanwhile is not lost
        began = self._time()
        all_claimed = False
        try:
            ids = await self._pending(topic, at_most, idle_ms=idle_ms)
            entries = await self._claim(topic, ids, idle_ms=idle_ms)
            all_claimed = len(ids) < at_most
        finally:
            self._claimed_at[topic] = began if all_claimed else float("-inf")
        return entries

    async def _pending(
        self, topic: str, at_most: int, *, member: str | None = None, idle_ms: int | None = None
    ) -> list[bytes]:
        """Return ids of messages that were delivered and not acknowledged, oldest first: those of one member, or those
        idle for `idle_ms`."""
        key = self._store.keys.stream(topic)
        idle = () if idle_ms is None else ("IDLE", idle_ms)
        of_member = () if member is None else (member,)
        rows = await self._store.command(key, "XPENDING", key, self._group, *idle, "-", "+", at_most, *of_member)
        return [entry_id for entry_id, *_ in rows]

    async def _claim(self, topic: str, ids: Sequence[bytes], *, idle_ms: int) -> list[Any]:
        """Move messages to this member, and return those of them that still exist and are still idle that long."""
        if not ids:
            return []
        key = self._store.keys.stream(topic)
        entries = await self._store.command(key, "XCLAIM", key, self._group, self._member, idle_ms, *ids)
        return [entry for entry in entries if entry is not None]

    async def _renew(self) -> None:
        """Keep the held messages from becoming idle, which would give them to another member."""
        while True:
            await asyncio.sleep(self._claim_seconds / _RENEWALS_PER_CLAIM)
            with contextlib.suppress(BusError):
                for topic, held in self._held.items():
                    key, ids = self._store.keys.stream(topic), sorted(held)
                    for first in range(0, len(ids), _RENEWED_PER_CALL):
                        part = ids[first : first + _RENEWED_PER_CALL]
                        renewed = await self._store.command(
                            key, "XCLAIM", key, self._group, self._member, 0, *part, "JUSTID"
                        )
                        # The others were acknowledged by another member, or trimmed.
                        held.difference_update(set(part).difference(renewed))

    # --- acknowledging, lag, and the end ------------------------------------------------------------------------------

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message.position)
        for topic, ids in by_topic.items():
            await self._store.acknowledge(topic, self._group, ids)
            self._held[topic].difference_update(ids)

    async def lag(self) -> int:
        total = 0
        for topic in self._topics:
            for group in await self._store.groups(topic):
                if group.name == self._group:
                    unread = group.unread
                    if unread is None:  # the server does not know: count all messages of the topic
                        [unread] = await self._store.lengths([topic])
                    total += unread + group.held
        return total

    async def close(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewer
        await self._wake.stop()
        for topic in self._topics:
            with contextlib.suppress(BusError):
                await self._store.release(topic, self._group, self._member)


class StreamsReader:
    """Implements Reader: reads topics by itself, without a group. Created by `StreamsBus.read`."""

    def __init__(self, store: StreamsStore, topics: Sequence[str], *, after: dict[str, str], since: float) -> None:
        """`after`: id of the last message that was read earlier, by topic; empty: none. `since`: epoch seconds of the
        oldest message of a topic without such an id."""
        self._store = store
        first = f"{max(0, int(since * 1000) - 1)}-0"  # an id begins with milliseconds
        self._taken = {topic: after.get(topic, first).encode() for topic in topics}
        """Id of the last message that was taken, by topic."""
        self._acknowledged = {topic: entry_id for topic, entry_id in after.items() if topic in self._taken}
        """Id of the last message that was acknowledged, by topic: the cursor."""
        self._wake = WakeSignal(store, topics)

    async def start(self, *, from_beginning: bool) -> None:
        """Subscribe, and skip existing messages unless the reader begins with them."""
        await self._wake.start()
        if not from_beginning and not self._acknowledged:
            for topic in self._taken:
                key = self._store.keys.stream(topic)
                newest = await self._store.command(key, "XREVRANGE", key, "+", "-", "COUNT", 1)
                for entry_id, _ in newest:  # one, or none in an empty topic
                    self._taken[topic] = entry_id

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            messages = await self._take(at_most)
            left = deadline - loop.time()
            if messages or left <= 0:
                return messages
            await self._wake.wait(left)

    async def _take(self, at_most: int) -> list[Message]:
        """Take what is there now, from the topics that may have something."""
        before = dict(self._taken)
        messages: list[Message] = []
        try:
            for topic in list(self._wake.to_read):
                if len(messages) < at_most:
                    messages += await self._take_from(topic, at_most - len(messages))
        except BusError:  # messages that were taken before the error are returned; the next call meets it again
            if not messages:
                raise
        except BaseException:  # cancelled: the next call returns these messages
            self._taken = before
            self._wake.to_read |= set(before)
            raise
        return messages

    async def _take_from(self, topic: str, at_most: int) -> list[Message]:
        """Take messages of one topic after the last one that was taken."""
        key = self._store.keys.stream(topic)
        self._wake.to_read.discard(topic)
        try:
            reply = await self._store.command(key, "XREAD", "COUNT", at_most, "STREAMS", key, self._taken[topic])
        except BusError:
            self._wake.to_read.add(topic)
            raise
        entries = _entries_of(reply)
        if entries:
            self._taken[topic], _ = entries[-1]
        if len(entries) >= at_most:  # there may be more
            self._wake.to_read.add(topic)
        return [to_message(topic, entry) for entry in entries]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._acknowledged[message.topic] = message.position.decode()

    def is_at_end(self) -> bool:
        return not self._wake.to_read

    def cursor(self) -> str:
        return msgspec.json.encode(self._acknowledged).decode()

    async def lag(self) -> int:
        return 0  # a reader has no group, and only a group's lag is measured

    async def close(self) -> None:
        await self._wake.stop()


class StreamsBackReader:
    """Implements Reader: reads a topic from its newest message to its oldest. Created by `StreamsBus.read_back`."""

    def __init__(self, store: StreamsStore, topic: str, *, before: str) -> None:
        """`before`: id of the last message that was read earlier; empty: none."""
        self._store = store
        self._topic = topic
        self._taken = self._acknowledged = before
        self._is_at_end = False

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        key = self._store.keys.stream(self._topic)
        newest = f"({self._taken}" if self._taken else "+"
        entries = await self._store.command(key, "XREVRANGE", key, newest, "-", "COUNT", at_most)
        self._is_at_end = len(entries) < at_most
        if entries:
            self._taken = entries[-1][0].decode()
        return [to_message(self._topic, entry) for entry in entries]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if messages:
            self._acknowledged = messages[-1].position.decode()

    def is_at_end(self) -> bool:
        return self._is_at_end

    def cursor(self) -> str:
        return msgspec.json.encode({self._topic: self._acknowledged}).decode() if self._acknowledged else ""

    async def lag(self) -> int:
        return 0  # as of every reader

    async def close(self) -> None:
        return


def _entries_of(reply: Any) -> list[Any]:
    """Return the entries, each its id and its fields, in the reply of a command that reads a single stream."""
    if not reply:
        return []
    [(_, entries)] = reply  # the stream's name, and what was read of it
    return list(entries)


_EntryId = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]


def _parse_cursor(cursor: str) -> dict[str, str]:
    """Return the id of the last acknowledged message by topic from a reader's cursor. Raises BadInput."""
    if not cursor:
        return {}
    try:
        return msgspec.json.decode(cursor, type=dict[str, _EntryId])
    except msgspec.DecodeError:
        raise BadInput("not a cursor of a reader of this Streams bus") from None
