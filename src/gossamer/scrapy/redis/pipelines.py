"""Items into a Redis list."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Self

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.utils.misc import load_object
from scrapy.utils.serialize import ScrapyJSONEncoder

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, BadSetting
from gossamer.scrapy.live import refuse
from gossamer.scrapy.redis.connection import RedisLink, get_redis_from_settings, link
from gossamer.scrapy.redis.settings import ITEMS_KEY, check
from gossamer.telemetry.logs import Troubles

log = logging.getLogger(__name__)

_MOST = 1000
"""Items of one write."""

default_serialize = ScrapyJSONEncoder().encode


class RedisPipeline:
    """Appends each item to `<spider>:items`. An item is through when Redis has it: what is lost on the way there with
    its process is fetched again. Items that come while one write is under way go together in the next."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Raises BadInput, with the setting's name."""
        settings = crawler.settings
        try:
            check(settings)
            path = settings.get("REDIS_ITEMS_SERIALIZER")
            try:
                serialize = load_object(path) if path else default_serialize
            except (ImportError, NameError, ValueError, TypeError) as fault:
                raise BadSetting(f"REDIS_ITEMS_SERIALIZER: {fault}") from None
            return cls(crawler, link(crawler), settings.get("REDIS_ITEMS_KEY") or ITEMS_KEY, serialize)
        except BadInput as error:
            refuse(error)

    def __init__(self, crawler: Crawler, where: RedisLink, key: str, serialize: Callable[[Any], str | bytes]) -> None:
        self.crawler = crawler
        self.key = key
        self.serialize = serialize
        self._link = where
        self._retrier = Retrier(Troubles())
        self._waiting: list[tuple[str, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Future[None] | None = None
        self._server: Any = None

    @property
    def server(self) -> Any:
        """A redis-py client, made when it is first asked for; it blocks."""
        if self._server is None:
            self._server = get_redis_from_settings(self.crawler.settings)
        return self._server

    def item_key(self, item: Any, spider: Spider) -> str:
        """The item's list; override it for another."""
        return self.key % {"spider": spider.name}

    async def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        """Return when Redis has it. A server that is away is waited for."""
        spider = spider or self.crawler.spider
        assert spider is not None
        data = self.serialize(item)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = self.item_key(item, spider)
        self._waiting.append((key, data.encode() if isinstance(data, str) else data, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())
        await written
        return item

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            lists: dict[str, list[tuple[bytes, asyncio.Future[None]]]] = {}
            for key, data, written in batch:
                lists.setdefault(key, []).append((data, written))
            for key, rows in lists.items():
                fault: Exception | None = None
                try:
                    await self._retrier.call_frontier(lambda key=key, rows=rows: self._push(key, rows))  # type: ignore[misc]
                except Exception as error:
                    fault = error
                for _, written in rows:
                    if not written.done():
                        written.set_result(None) if fault is None else written.set_exception(fault)

    async def _push(self, key: str, rows: list[tuple[bytes, "asyncio.Future[None]"]]) -> None:
        shards = await self._link.shards()
        await shards.command(key, "RPUSH", key, *(data for data, _ in rows))
