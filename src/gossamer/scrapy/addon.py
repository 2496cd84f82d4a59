"""Scrapy add-on that puts a project on the shared frontier and makes it fast: `ADDONS = {"gossamer.scrapy.Addon": 0}`.

It sets every setting with the priority of an add-on, so the values of the project win, and those of add-ons before it;
only of two schedulers the later one wins, as in Scrapy. It makes link extractors fast. The frontier is the queue,
and the memory of seen requests, that all processes of a crawl share.

Fixed: the name of Addon, which projects write into their settings, and of `drops_known`, `request_seen` and
`request_fingerprint`, which schedulers have and extensions call.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from importlib.util import find_spec
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.reactor import is_reactor_installed

from gossamer.compiled import warn_of_unusable_extension
from gossamer.scrapy import download_handler, feeds, links, proxies
from gossamer.scrapy.shortcuts.notices import Signals
from gossamer.scrapy.shortcuts.parts import is_scrapys

_log = logging.getLogger(__name__)


@runtime_checkable
class SharedScheduler(Protocol):
    """A scheduler that knows what the crawl has seen. Scrapy's own scheduler, used by `scrapy shell`, does not."""

    def drops_known(self, request: Request) -> bool:
        """Return whether the scheduler would drop this link as seen; if so, count it as dropped."""
        ...


class DupefilterView(BaseDupeFilter):
    """Read-only dupefilter for extensions that use `scheduler.df`. The frontier does the deduplication."""

    def __init__(self, crawler: Crawler, is_known: Callable[[Request], bool]) -> None:
        self._crawler = crawler
        self._is_known = is_known

    def request_seen(self, request: Request) -> bool:
        """Return whether this process knows that the crawl has seen the request. False: it may have, all the same."""
        return self._is_known(request)

    def request_fingerprint(self, request: Request) -> str:
        """Return the hexadecimal digits of the project's fingerprint."""
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        return fingerprinter.fingerprint(request).hex()


class KnownLinks:
    """Spider middleware that drops links which this process knows as seen, before all other middlewares handle them.

    The scheduler would drop these links later. Both ways count as `dupefilter/filtered`. Requests with `dont_filter`,
    and requests that may be new, pass. All requests pass while the project has receivers of the signals that a link
    sends which the scheduler drops.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._receivers = Signals(crawler.signals.sender).receivers
        self._last_receivers: list[Any] = []
        """Receivers of `request_scheduled` that were checked last, and whether all of them are Scrapy's."""
        self._are_scrapys = True
        self._last: Any = None
        """The scheduler that was checked last."""
        self._shared: SharedScheduler | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "KnownLinks":
        return cls(crawler)

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        scheduler = self._scheduler()
        for one in result:  # requests and items
            if scheduler is None or not isinstance(one, Request) or not scheduler.drops_known(one):
                yield one

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = self._scheduler()
        async for one in result:
            if scheduler is None or not isinstance(one, Request) or not scheduler.drops_known(one):
                yield one

    def page_filter(self, *, survives_await: bool = False) -> Callable[[Request], bool] | None:
        """Return a function that returns whether a request of this page is dropped. None: none is. Without
        `survives_await`, it is valid until the next await only."""
        scheduler = self._scheduler()
        make: Any = getattr(scheduler, "known_filter", None)
        if make is not None:
            return make(survives_await=survives_await)  # type: ignore[no-any-return]
        return None if scheduler is None else scheduler.drops_known

    def _scheduler(self) -> SharedScheduler | None:
        """Return the crawl's scheduler. None: no link is dropped here, because it is another one, the crawl is over, or
        the project has receivers of the signals."""
        slot = getattr(self._crawler.engine, "_slot", None)
        scheduler = getattr(slot, "scheduler", None)
        if scheduler is not self._last:  # the check takes as long as that of several links
            self._last = scheduler
            self._shared = scheduler if isinstance(scheduler, SharedScheduler) else None
        return None if self._shared is None or self._has_receivers() else self._shared

    def _has_receivers(self) -> bool:
        """Return whether a link that the scheduler drops would call code of the project."""
        if self._receivers(signals.request_dropped):
            return True
        receivers = self._receivers(signals.request_scheduled)
        if receivers != self._last_receivers:
            functions = [getattr(one, "__func__", one) for one in receivers]
            self._last_receivers = receivers
            self._are_scrapys = all(isinstance(one, FunctionType) and is_scrapys(one) for one in functions)
        return not self._are_scrapys


ADDON_SETTINGS: dict[str, tuple[Any, str]] = {
    "SCHEDULER": ("gossamer.scrapy.Scheduler", "Uses the shared frontier"),
    "REQUEST_FINGERPRINTER_CLASS": (
        "gossamer.scrapy.RequestFingerprinter",
        "Returns the same fingerprints as Scrapy's own class in a fraction of the time",
    ),
    "CONCURRENT_ITEMS": (
        8,
        "Scrapy starts this many tasks for every page (100 by default), even for a page without items. A project "
        "without `ITEM_PIPELINES` gets 2. Raise it where one page has many items and a pipeline is slow",
    ),
    "TELNETCONSOLE_ENABLED": (False, "Turns off a console that runs code"),
    "REMOTE_CONTROL_ENABLED": (False, "Turns off an HTTP server that runs code"),
}
"""Value and reason by name. SCHEDULER must stay: it is the add-on's purpose. The others may be removed; the crawl is
then slower, or runs services that it does not need."""

_ITEMS_WITHOUT_PIPELINES = 2
"""Value of CONCURRENT_ITEMS where nothing waits for an item. Must be at least 1; each task more costs CPU for every
page."""

EVENT_LOOP = (
    "ASYNCIO_EVENT_LOOP",
    "uvloop.Loop",
    "A faster event loop. Set only where uvloop is installed and no event loop is running yet",
)
"""Name, value and reason of a setting that Scrapy reads before all others. May be removed; the crawl is then slower."""

HANDLER = "gossamer.scrapy.download_handler.DownloadHandler"
"""Handler of http and https in DOWNLOAD_HANDLERS. Projects may name it, so it must stay."""

_CLOSEST_TO_THE_SPIDER = 1000
"""Position of KnownLinks among the spider middlewares. It must stay larger than all of Scrapy's (at most 900): the
earlier a link is dropped, the less work the others do. The reference page's generator repeats the number."""


class Addon:
    """Scrapy's add-on interface. It changes settings, makes link extractors fast and hides passwords in the log."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set what Scrapy reads before it creates the first crawler: the event loop."""
        name, value, _ = EVENT_LOOP
        if find_spec("uvloop") is not None and not is_reactor_installed():
            _set_default(settings, name, value)

    def update_settings(self, settings: BaseSettings) -> None:
        """Set all other settings."""
        given = {name: value for name, (value, _) in ADDON_SETTINGS.items()}
        settings.set("SCHEDULER", given.pop("SCHEDULER"), priority="addon")
        if not settings.getdict("ITEM_PIPELINES"):
            given["CONCURRENT_ITEMS"] = _ITEMS_WITHOUT_PIPELINES
        for name, value in given.items():
            _set_default(settings, name, value)
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", KnownLinks, _CLOSEST_TO_THE_SPIDER)
        if proxies.setting(settings, "GOSSAMER_PROXIES"):
            settings.setdefault_in_component_priority_dict(
                "DOWNLOADER_MIDDLEWARES", proxies.ProxyPoolMiddleware, proxies.POSITION
            )
        if str(proxies.setting(settings, "GOSSAMER_SHARED_COOKIES")).lower() in ("1", "true", "yes"):
            from gossamer.scrapy.cookies import POSITION, SharedCookiesMiddleware  # most projects share no cookies

            own = settings.getdict("DOWNLOADER_MIDDLEWARES")
            shared = {CookiesMiddleware: None, SharedCookiesMiddleware: POSITION}
            priority = max(settings.getpriority("DOWNLOADER_MIDDLEWARES") or 0, SETTINGS_PRIORITIES["addon"])
            settings.set("DOWNLOADER_MIDDLEWARES", {**shared, **own}, priority)
        if download_handler.is_supported(settings):
            for scheme in download_handler.SCHEMES:
                _set_default_handler(settings, scheme)
        feeds.hide_feed_passwords()
        links.install(wanted=_is_wanted(settings, "GOSSAMER_FAST_LINKS"))
        warn_of_unusable_extension(_log.warning)
        settings.set("GOSSAMER_FAST_ENGINE", _is_wanted(settings, "GOSSAMER_FAST_ENGINE"), priority="addon")


def _set_default(settings: BaseSettings, name: str, value: Any) -> None:
    """Set a setting, unless the project or another add-on has set it."""
    if (settings.getpriority(name) or 0) < SETTINGS_PRIORITIES["addon"]:
        settings.set(name, value, priority="addon")


def _set_default_handler(settings: BaseSettings, scheme: str) -> None:
    """Let Gossamer download the requests of a scheme, unless the project names a handler of its own for them."""
    own = settings.getdict("DOWNLOAD_HANDLERS")
    if scheme not in own and not settings.getpriority("DOWNLOAD_HANDLERS_BASE"):
        priority = max(settings.getpriority("DOWNLOAD_HANDLERS") or 0, SETTINGS_PRIORITIES["addon"])
        settings.set("DOWNLOAD_HANDLERS", {**own, scheme: HANDLER}, priority)


def _is_wanted(settings: BaseSettings, name: str) -> bool:
    """Return the value of a setting of the project that is True by default; the environment may have it, too."""
    value = settings.get(name, os.environ.get(name, True))
    return value is True or str(value).strip().lower() in ("1", "true", "yes")
