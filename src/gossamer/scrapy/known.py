"""What this process knows to be seen: dropped before the spider middlewares handle it, and told to extensions."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response


@runtime_checkable
class Joined(Protocol):
    """A scheduler that knows what the crawl has seen. Scrapy's own, in its shell, does not."""

    def drops(self, request: Request) -> bool: ...


class Known(BaseDupeFilter):
    """What `scheduler.df` is to extensions that read it. It marks nothing: the frontier does the dedupe."""

    def __init__(self, crawler: Crawler, is_known: Callable[[Request], bool]) -> None:
        self._crawler = crawler
        self._is_known = is_known

    def request_seen(self, request: Request) -> bool:
        """Return whether this process knows that the crawl has seen the request. False: it may have, all the same."""
        return self._is_known(request)

    def request_fingerprint(self, request: Request) -> str:
        """Return what the project's fingerprinter says, in hexadecimal digits."""
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        return fingerprinter.fingerprint(request).hex()


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
