"""Drops what is known before the spider middlewares handle it: most links of most pages."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response


@runtime_checkable
class Joined(Protocol):
    """A scheduler that knows what the crawl has seen. Scrapy's own, in its shell, does not."""

    def drops(self, request: Request) -> bool: ...


class KnownLinks:
    """A spider middleware, the nearest to the spider. A request whose fingerprint this process knows to be seen would
    be dropped by the scheduler, after every middleware has had its turn with it; here it is dropped before. Counted as
    `dupefilter/filtered` all the same. Only requests that the scheduler would filter as they are: `dont_filter` and
    what nobody knows yet pass."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "KnownLinks":
        return cls(crawler)

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        scheduler = self._scheduler()
        for one in result:
            if scheduler is None or not isinstance(one, Request) or not scheduler.drops(one):
                yield one

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = self._scheduler()
        async for one in result:
            if scheduler is None or not isinstance(one, Request) or not scheduler.drops(one):
                yield one

    def _scheduler(self) -> Joined | None:
        slot = getattr(self._crawler.engine, "_slot", None)
        scheduler = getattr(slot, "scheduler", None)
        return scheduler if isinstance(scheduler, Joined) else None
