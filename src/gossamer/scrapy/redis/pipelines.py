"""Item pipeline that appends items to a Redis list, as scrapy-redis's did.

Fixed: the names of the class, its methods and attributes, which projects override or read; the default key and format
of items, which consumers of the lists rely on; and that `process_item` returns only after Redis has the item, because
the item's page is reported as done after that.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn, Self

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object
from scrapy.utils.serialize import ScrapyJSONEncoder

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, BadSetting
from gossamer.scrapy.options import abort
from gossamer.scrapy.redis.connection import RedisConnection, connection_of, get_redis_from_settings
from gossamer.scrapy.redis.replacements import refuse
from gossamer.scrapy.redis.settings import ITEMS_KEY, check
from gossamer.telemetry.logs import Troubles

_MAX_WRITE_ITEMS = 1000
"""Maximum number of items in one write. More make longer calls, fewer make more of them."""

default_serialize = ScrapyJSONEncoder().encode
"""Serializer without REDIS_ITEMS_SERIALIZER. Its name and output must not change: projects and consumers of the lists
rely on them, as with scrapy-redis."""


class RedisPipeline:
    """Appends each item to the list `<spider>:items`, or to that of the setting REDIS_ITEMS_KEY.

    `process_item` returns an item after Redis has stored it. If the process dies before that, the item's page is
    fetched again. Items that arrive during a write are written together in the next one. An item may be written twice:
    a write whose reply was lost is repeated.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline. An invalid setting stops the crawler's start, with a message that names the setting."""
        settings = crawler.settings
        try:
            check(settings)
            path = settings.get("REDIS_ITEMS_SERIALIZER")
            try:
                serialize = load_object(path) if path else default_serialize
            except (ImportError, NameError, ValueError, TypeError) as fault:
                raise BadSetting(f"REDIS_ITEMS_SERIALIZER: {fault}") from None
            return cls(crawler, connection_of(crawler), settings.get("REDIS_ITEMS_KEY") or ITEMS_KEY, serialize)
        except BadInput as error:
            abort(error)

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return a new object. Raises BadSetting for scrapy-redis's parameters `server`, `key` and `serialize_func`."""
        if not args or not isinstance(args[0], Crawler):
            refuse("RedisPipeline(server)", "pipeline")
        return super().__new__(cls)

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> NoReturn:
        """Refuse scrapy-redis's way to make one. Raises BadSetting."""
        refuse("RedisPipeline.from_settings", "pipeline")

    def __init__(
        self, crawler: Crawler, connection: RedisConnection, key: str, serialize: Callable[[Any], str | bytes]
    ) -> None:
        self.crawler = crawler
        self.key = key
        self.serialize = serialize
        self._connection = connection
        self._retrier = Retrier(Troubles())
        self._waiting: list[tuple[str, bytes, asyncio.Future[None]]] = []
        """Key of the list, serialized item, and the future that is done when the item is written or has failed."""
        self._writing: asyncio.Future[None] | None = None
        """Task that writes the waiting items, one batch after the other."""
        self._server: Any = None

    @property
    def server(self) -> Any:
        """A redis-py client, created at its first use. It blocks."""
        if self._server is None:
            self._server = get_redis_from_settings(self.crawler.settings)
        return self._server

    def item_key(self, item: Any, spider: Spider) -> str:
        """Return the key of the item's list. Override it to use another list."""
        return self.key % {"spider": spider.name}

    async def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        """Return the item after Redis has stored it. Retries, without a limit, while the server does not answer."""
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
        """Write the waiting items in their order until none is left."""
        while self._waiting:
            batch, self._waiting = self._waiting[:_MAX_WRITE_ITEMS], self._waiting[_MAX_WRITE_ITEMS:]
            lists: dict[str, list[tuple[bytes, asyncio.Future[None]]]] = {}
            for key, data, written in batch:
                lists.setdefault(key, []).append((data, written))
            for key, rows in lists.items():
                # An error concerns the items of one list only; each of their calls of `process_item` raises it.
                fault: Exception | None = None
                try:
                    # Despite the method's name it retries any call to a server, here one RPUSH of several items.
                    await self._retrier.call_frontier(lambda key=key, rows=rows: self._push(key, rows))  # type: ignore[misc]
                except Exception as error:
                    fault = error
                for _, written in rows:
                    if not written.done():
                        written.set_result(None) if fault is None else written.set_exception(fault)

    async def _push(self, key: str, rows: list[tuple[bytes, "asyncio.Future[None]"]]) -> None:
        """Append the rows to a list, with one command."""
        shards = await self._connection.shards()
        await shards.command(key, "RPUSH", key, *(data for data, _ in rows))
