"""A broker shared by tests: each has its topics under a prefix of its own."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from gossamer.bus.base import Bus, Consumer, Message, Reader, TopicInfo


class Prefixed:
    """Implements Bus over another."""

    def __init__(self, bus: Bus, prefix: str) -> None:
        self._bus = bus
        self._prefix = prefix

    async def message_limit(self, topic: str) -> int:
        return await self._bus.message_limit(self._prefix + topic)

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        await self._bus.publish(self._prefix + topic, values, keys=keys)

    async def consume(self, topics: Sequence[str], *, group: str) -> Consumer:
        there = await self._bus.consume([self._prefix + topic for topic in topics], group=self._prefix + group)
        return _Stripped(there, self._prefix)

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "", since: float = 0.0) -> Reader:
        names = [self._prefix + topic for topic in topics]
        there = await self._bus.read(names, from_beginning=from_beginning, after=after, since=since)
        return _StrippedReader(there, self._prefix)

    async def read_back(self, topic: str, *, before: str = "") -> Reader:
        return _StrippedReader(await self._bus.read_back(self._prefix + topic, before=before), self._prefix)

    async def topics(self, *, after: str = "", limit: int | None = None) -> list[TopicInfo]:
        found = await self._bus.topics(after=self._prefix + after if after else "", limit=limit)
        return [replace(topic, name=topic.name.removeprefix(self._prefix)) for topic in found]

    async def existing(self, topics: Collection[str]) -> set[str]:
        there = await self._bus.existing([self._prefix + topic for topic in topics])
        return {topic.removeprefix(self._prefix) for topic in there}

    async def ping(self) -> None:
        await self._bus.ping()

    async def check_room(self) -> None:
        await self._bus.check_room()

    async def close(self) -> None:
        await self._bus.close()


class _Stripped:
    def __init__(self, consumer: Consumer, prefix: str) -> None:
        self._consumer = consumer
        self._prefix = prefix

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        return [
            replace(message, topic=message.topic.removeprefix(self._prefix))
            for message in await self._consumer.take(at_most=at_most, wait_seconds=wait_seconds)
        ]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        await self._consumer.acknowledge([replace(message, topic=self._prefix + message.topic) for message in messages])

    async def lag(self) -> int:
        return await self._consumer.lag()

    async def close(self) -> None:
        await self._consumer.close()


class _StrippedReader(_Stripped):
    def __init__(self, reader: Reader, prefix: str) -> None:
        super().__init__(reader, prefix)
        self._reader = reader

    def is_at_end(self) -> bool:
        return self._reader.is_at_end()

    def cursor(self) -> str:
        return self._reader.cursor()
