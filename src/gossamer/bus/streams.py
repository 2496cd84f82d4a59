"""The bus on Valkey Streams, in the frontier's own server: nothing more to run."""

import asyncio
from collections.abc import Collection, Sequence

from gossamer.bus.base import TopicInfo, check_topic
from gossamer.bus.streams_consumer import StreamKeys, StreamsConsumer, StreamsReader, StreamsStore, read_mark
from gossamer.errors import MessageTooLarge
from gossamer.valkey.shards import Shards

_CALL_MESSAGES = 500
_CALL_BYTES = 1024 * 1024
_SAY_SECONDS = 3600.0
"""How often a process names the topics it uses, so that their list outlives none of them by more than 30 days."""


class StreamsBus:
    """Implements Bus.

    Topics in `kept` hold every message until each of their groups has acknowledged it, and refuse what does not fit
    into `most_bytes` beside that (BusFull). The others lose what is older than `retention_seconds`, and the oldest
    beyond `most_bytes`, read or not (counted in `trimmed`). Bytes are counted exactly: values, keys and 32 a message.
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
        self.prefix = prefix
        self._store = StreamsStore(
            shards, StreamKeys(prefix), kept=kept, retention_ms=int(retention_seconds * 1000), most_bytes=most_bytes
        )
        self._largest = largest
        self._claim_seconds = claim_seconds
        self.trimmed: dict[str, int] = {}
        """By topic: messages that had to leave for those that were published here, and that a group had not read."""
        self._named: dict[str, float] = {}

    @property
    def largest(self) -> int:
        return self._largest

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        for value in values:
            if len(value) > self._largest:
                raise MessageTooLarge(f"{topic}: {len(value):,} bytes, at most {self._largest:,}")
        await self._name(topic)
        pairs: list[bytes] = []
        size = 0
        for at, value in enumerate(values):
            pairs += (value, keys[at] if keys else b"")
            size += len(value)
            if size >= _CALL_BYTES or len(pairs) >= 2 * _CALL_MESSAGES:
                await self._publish(topic, pairs)
                pairs, size = [], 0
        if pairs:
            await self._publish(topic, pairs)

    async def _publish(self, topic: str, pairs: Sequence[bytes]) -> None:
        missed = await self._store.publish(topic, pairs)
        if missed:
            self.trimmed[topic] = self.trimmed.get(topic, 0) + missed

    async def _name(self, topic: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._named.get(topic, float("-inf")) >= _SAY_SECONDS:
            check_topic(topic)
            await self._store.name(topic)
            self._named[topic] = now

    async def consume(self, topics: Sequence[str], *, group: str) -> StreamsConsumer:
        for topic in topics:
            await self._name(topic)
        consumer = StreamsConsumer(self._store, topics, group=group, claim_seconds=self._claim_seconds)
        await consumer.start()
        return consumer

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> StreamsReader:
        for topic in topics:
            await self._name(topic)
        reader = StreamsReader(self._store, topics, after=read_mark(after))
        try:
            await reader.start(from_beginning=from_beginning)
        except BaseException:
            await reader.close()
            raise
        return reader

    async def topics(self) -> list[TopicInfo]:
        names = await self._store.names()
        return [TopicInfo(*row) for row in zip(names, await self._store.lengths(names), strict=True)]

    async def existing(self, topics: Collection[str]) -> set[str]:
        return set(topics).intersection(await self._store.names())

    async def ping(self) -> None:
        key = self._store.keys.names
        await self._store.command(key, "EXISTS", key)

    async def close(self) -> None:
        return
