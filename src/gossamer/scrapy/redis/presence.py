"""Which processes work on a crawl, so that SCHEDULER_FLUSH_ON_START never takes work away from others."""

import asyncio
import contextlib
import uuid
from importlib.resources import files

from gossamer.errors import FrontierUnavailable
from gossamer.model.crawl import CrawlId
from gossamer.scrapy.join import age_seconds
from gossamer.scrapy.redis.connection import Link
from gossamer.valkey.scripts import load

SCRIPTS = load(files("gossamer.scrapy.redis") / "scripts")

_THERE_MS = 30_000
_NUMBER_MS = 365 * 24 * 3600 * 1000
"""How long the number of flushes outlives the last process. It is part of the crawl's name: requests that wait under a
forgotten number are not found again."""


class Presence:
    """One process, from before it joins until its connection ends."""

    def __init__(self, link: Link, crawl: CrawlId) -> None:
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
        number, flushed = await shards.call(0, SCRIPTS["flush"], self._keys, arguments)
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
