"""A member of a consumer group on Valkey Streams."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from gossamer.bus.base import Message
from gossamer.bus.streams_store import Store, as_message
from gossamer.bus.streams_wake import Wake, released
from gossamer.errors import BusError, BusUnavailable

_CALL_IDS = 1000


class StreamsConsumer:
    """Implements Consumer. Made by `StreamsBus.consume`.

    What it took is its own for `claim_seconds`, and a task says again and again that it is being worked on; when that
    task dies with its process, another member claims it.
    """

    def __init__(self, store: Store, topics: Sequence[str], *, group: str, claim_seconds: float) -> None:
        self._store = store
        self._topics = deque(topics)
        self._group = group
        self._claim_seconds = claim_seconds
        self._member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._wake = Wake(store, topics)
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
