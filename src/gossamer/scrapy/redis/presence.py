"""Which processes work on a crawl, so that SCHEDULER_FLUSH_ON_START never takes work away from others."""

import asyncio
import base64
import contextlib
import time
import uuid
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import msgspec
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider

from gossamer.errors import BadInput, FrontierError, FrontierUnavailable
from gossamer.model.crawl import CrawlId
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.redis.connection import RedisLink
from gossamer.scrapy.scheduler import age_seconds
from gossamer.valkey.client import load_scripts

SCRIPTS = load_scripts(files("gossamer.scrapy.redis") / "scripts")

_THERE_MS = 30_000
_NUMBER_MS = 365 * 24 * 3600 * 1000
"""How long the number of flushes outlives the last process. It is part of the crawl's name: requests that wait under a
forgotten number are not found again."""


class ProcessPresence:
    """One process, from before it joins until its connection ends."""

    def __init__(self, link: RedisLink, crawl: CrawlId) -> None:
        self._link = link
        self._keys = [f"gossamer:{{{crawl.token}}}:{what}" for what in ("flushes", "there", "flushed")]
        self._name = uuid.uuid4().hex
        self._task: asyncio.Task[None] | None = None

    async def come(self, *, flush: bool) -> tuple[int, bool]:
        """How often the crawl was flushed, and whether it was so now. Raises FrontierUnavailable."""
        answer = await self._say(flush)
        self._task = asyncio.ensure_future(self._stay())
        self._link.at_the_end.append(self._go)
        return answer

    async def _say(self, flush: bool) -> tuple[int, bool]:
        shards = await self._link.shards()
        arguments: list[int | str] = [int(flush), self._name, _THERE_MS, int(age_seconds() * 1000), _NUMBER_MS]
        number, flushed = await shards.call(0, SCRIPTS["join_crawl"], self._keys, arguments)
        return int(number), bool(flushed)

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(_THERE_MS / 3000)
            with contextlib.suppress(FrontierUnavailable):
                await self._say(False)

    async def _go(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await (await self._link.shards()).command(self._keys[1], "ZREM", self._keys[1], self._name)


class IdleWaiter:
    """`wait` on every `spider_idle`; `over` when there was something to do."""

    def __init__(self, crawler: Crawler, seconds: float) -> None:
        self._engine = EngineDoor(crawler.engine)
        self._seconds = seconds
        self._since: float | None = None

    def over(self) -> None:
        """There was work: whatever was waited does not count."""
        self._since = None

    def wait(self) -> None:
        """Raises DontCloseSpider until it has been idle for so long; the engine is woken then, and not 5 s later."""
        if not self._seconds:
            return
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._engine.wake)
            raise DontCloseSpider


LEASE_SECONDS = 30.0
"""What a process took and neither finished nor kept, the next that asks after so long takes."""
DEAD_SECONDS = 7 * 86400


class TakenMessage(NamedTuple):
    """A message on its way."""

    entry: bytes
    message: bytes

    @classmethod
    def read(cls, entry: bytes) -> "TakenMessage":
        return cls(entry, entry.partition(b"|")[2])


class StartKey:
    """One key. Its messages are in it, in `<key>:processing`, or done; bad ones go to `<key>:dead` for a week.

    Calls raise FrontierUnavailable and may be repeated."""

    def __init__(self, link: RedisLink, key: str, *, kind: str) -> None:
        """`kind`: list, set or zset, for messages that go back to a key that is empty by now."""
        self._link = link
        self.key = key
        self._kind = kind
        self._processing = link.beside(key, "processing")
        self.dead = link.beside(key, "dead")

    async def take(self, most: int) -> list[TakenMessage]:
        """At most so many messages; a set's in no order, a list's oldest first, a sorted set's highest first.

        Raises BadInput where the key is none of them."""
        keys = [self.key, self._processing]
        arguments: list[int | str | bytes] = [most, int(LEASE_SECONDS * 1000), uuid.uuid4().hex]
        try:
            entries = await self._call("take", keys, arguments)
        except FrontierUnavailable:
            raise
        except FrontierError as error:
            if "WRONGTYPE" in str(error):
                raise BadInput(f"{self.key} is no list, set or sorted set") from None
            raise
        return [TakenMessage.read(entry) for entry in entries]

    async def keep(self, taken: Sequence[TakenMessage]) -> None:
        """They take longer: nobody else is to take them yet."""
        await self._call("extend_lease", [self._processing], [int(LEASE_SECONDS * 1000), *(one.entry for one in taken)])

    async def done(self, taken: Sequence[TakenMessage]) -> None:
        """What came of them is in the frontier."""
        if taken:
            shards = await self._link.shards()
            await shards.command(self._processing, "ZREM", self._processing, *(one.entry for one in taken))

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        """As if they had not been taken."""
        rows = [part for one in taken for part in (one.entry, _score(one.entry), one.message)]
        await self._call("put_back", [self.key, self._processing], [self._kind, *rows])

    async def bury(self, one: TakenMessage, reason: str) -> None:
        """It can never be used: keep it with the reason, a JSON object, among the dead letters."""
        letter: dict[str, object] = {"reason": reason, "at": time.time()}
        try:
            letter["message"] = one.message.decode()
        except UnicodeDecodeError:
            letter["message_base64"] = base64.b64encode(one.message).decode()
        arguments: list[int | str | bytes] = [DEAD_SECONDS, one.entry, msgspec.json.encode(letter)]
        await self._call("dead_letter", [self.dead, self._processing], arguments)

    async def _call(self, name: str, keys: list[str], arguments: Sequence[int | str | bytes]) -> list[bytes]:
        shards = await self._link.shards()
        answer = await shards.call(0, SCRIPTS[name], keys, list(arguments))
        return answer if isinstance(answer, list) else []


def _score(entry: bytes) -> bytes:
    return entry.partition(b"|")[0].split(b":")[2]
