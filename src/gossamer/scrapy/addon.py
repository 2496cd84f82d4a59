"""One line that puts a Scrapy project on the frontier and makes it fast: `ADDONS = {"gossamer.scrapy.Addon": 0}`.

Every setting has the priority of an add-on: what the project sets itself, it keeps.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.reactor import is_reactor_installed


@runtime_checkable
class SharedScheduler(Protocol):
    """A scheduler that knows what the crawl has seen. Scrapy's own, in its shell, does not."""

    def drops(self, request: Request) -> bool: ...


class DupefilterView(BaseDupeFilter):
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

    def _scheduler(self) -> SharedScheduler | None:
        slot = getattr(self._crawler.engine, "_slot", None)
        scheduler = getattr(slot, "scheduler", None)
        return scheduler if isinstance(scheduler, SharedScheduler) else None


DEFAULTS: dict[str, tuple[Any, str]] = {
    "SCHEDULER": ("gossamer.scrapy.Scheduler", "The shared frontier"),
    "REQUEST_FINGERPRINTER_CLASS": (
        "gossamer.scrapy.RequestFingerprinter",
        "The same fingerprints as Scrapy's own, in a fraction of the time",
    ),
    "CONCURRENT_ITEMS": (
        8,
        "Scrapy starts as many tasks for each page as this says, 100, however little there is to do. Set it back where "
        "one page has many items and a slow pipeline",
    ),
    "TELNETCONSOLE_ENABLED": (False, "A console that runs code"),
    "REMOTE_CONTROL_ENABLED": (False, "An HTTP server that runs code"),
}
"""Name: (value, why)."""

LOOP = ("ASYNCIO_EVENT_LOOP", "uvloop.Loop", "A faster event loop, where it is installed and no other is running yet")

_NEAREST_TO_THE_SPIDER = 1000


class Addon:
    """Scrapy's add-on interface. It changes nothing but settings."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """What has to be known before the first crawler is made."""
        name, value, _ = LOOP
        if find_spec("uvloop") is not None and not is_reactor_installed():
            settings.set(name, value, priority="addon")

    def update_settings(self, settings: BaseSettings) -> None:
        """The rest."""
        for name, (value, _) in DEFAULTS.items():
            settings.set(name, value, priority="addon")
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", KnownLinks, _NEAREST_TO_THE_SPIDER)
