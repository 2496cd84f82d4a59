"""Hearing which topics have something new: no consumer asks in vain, none polls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from gossamer.bus.streams_store import Store
from gossamer.errors import BusUnavailable

_READY_SECONDS = 5.0
_RELEASED = b"!"
"""Before a topic's name: a member left, and what it held is to be claimed."""


class Wake:
    """What a consumer has to look at. `start` first, `stop` last."""

    def __init__(self, store: Store, topics: Sequence[str]) -> None:
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
