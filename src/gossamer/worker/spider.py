"""Spiders: the interface between the worker and the code that handles pages, and the spiders that are built in.

`Spider`, `Page` and `Follow` are used by spiders outside this project: their names, attributes and defaults are fixed;
new attributes with a default may be added. Fixed, too: the names of the built-in spiders (in pyproject.toml) and the
attribute `step`, which are Scrapy Cluster's. Safe to change: how spiders are loaded and kept.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, ClassVar

from gossamer.errors import BadSpider
from gossamer.extract.links import Links
from gossamer.model.crawl import CrawlId
from gossamer.model.record import PageRecord


@dataclass(frozen=True, slots=True)
class Follow:
    """Link that a spider wants crawled, with the options of its page's crawl and through the crawl's filters."""

    url: str
    """Absolute, or relative to the page's URL."""
    _: KW_ONLY
    spider: str | None = None
    """Spider that handles the linked page; None: this one. In a crawl of the command line, a link to a spider that is
    not installed is dropped; in a service it waits for a worker that has the spider."""
    attrs: Mapping[str, Any] | None = None
    """Attributes of the request; None: those of the page."""
    priority: int | None = None
    """Priority of the request; higher ones are fetched first. None: the page's minus 10, as for every discovered
    link."""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    again: bool = False
    """True: fetch the link even if the crawl has seen it. The spider must then prevent endless loops itself."""


class Page:
    """Fetched page as a spider gets it."""

    def __init__(self, record: PageRecord, body: bytes, text: str, links: Links | None, *, priority: int = 0) -> None:
        self.record = record
        """The page's record. Changes that a spider makes go to the outputs."""
        self.body = body
        """Body without content encoding, at most the body limit."""
        self.text = text
        """Body as text, in the encoding that it declares; bytes that cannot be decoded became U+FFFD. Empty if
        binary."""
        self.links = links
        """Links in scope, canonical. None: the page is not HTML."""
        self.priority = priority
        """Priority of the page's request."""

    @property
    def url(self) -> str:
        """URL of the page after redirects."""
        return self.record.response_url

    @property
    def status(self) -> int:
        return self.record.status_code

    @property
    def depth(self) -> int:
        return self.record.depth

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the submission, or of the link that led here; never None."""
        return self.record.attrs or {}

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """Response headers by lower-case name."""
        lower: dict[str, list[str]] = {}
        for name, values in self.record.response_headers.items():
            lower.setdefault(name.lower(), []).extend(values)
        return lower


class Spider:
    """Base class of spiders. Implement `parse`, and name the class in the entry point group `gossamer.spiders`:

        [project.entry-points."gossamer.spiders"]
        prices = "shop.spiders:PriceSpider"

    One object handles all pages of a crawl in a process; calls of `parse` overlap.
    """

    follows_all_links: ClassVar[bool] = False
    """True: every link in scope is followed and `parse` is not called, which costs no object per link."""
    ignores_maxdepth: ClassVar[bool] = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl asks for."""

    def parse(self, page: Page) -> AsyncIterator[Mapping[str, Any] | Follow]:
        """Yield items (mappings, which go to the outputs) and links (`Follow`). An exception fails the page."""
        raise NotImplementedError


GROUP = "gossamer.spiders"
"""Entry point group of spiders. Fixed: installed spiders name it."""


class LinkSpider(Spider):
    """Follows every link in scope down to the depth."""

    follows_all_links: ClassVar[bool] = True


class WanderingSpider(Spider):
    """Follows one random link of each page and counts its steps in `attrs["step"]`.

    The walk may visit a page again. It ends when its crawl is stopped or expires, at a limit of pages, and at a page
    without a link in scope. `maxdepth` does not end it.
    """

    ignores_maxdepth: ClassVar[bool] = True

    async def parse(self, page: Page) -> AsyncIterator[Mapping[str, Any] | Follow]:
        """Yield one link at most, at the page's own priority."""
        step = page.attrs.get("step", 0)
        page.record.attrs = {**page.attrs, "step": step}
        others = [url for url in page.links.urls if url != page.url] if page.links else []
        if others:
            yield Follow(
                # A page that is read again after a crash leads to the same link, so that no second walk begins.
                url=random.Random(page.record.request_id).choice(others),
                attrs={**page.attrs, "step": step + 1 if isinstance(step, int) else 1},
                priority=page.priority,
                again=True,
            )


def known_spiders() -> list[str]:
    """Return the names of all installed spiders."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


_MAX_OBJECTS = 1000
"""Spider objects that a worker keeps; beyond it the oldest is dropped, and its crawl gets a new object, which has lost
what the old one remembered. May be raised, at the cost of memory."""


class SpiderSet:
    """Spider objects of one worker: one for each crawl and name, which handles all pages of that crawl here."""

    def __init__(self) -> None:
        self._objects: dict[tuple[CrawlId, str], Spider] = {}
        self._factories: dict[str, Callable[[], object]] = {}

    def get(self, crawl: CrawlId, name: str) -> Spider:
        """Return the spider of this crawl and name. Raises BadSpider as `load_spider` does."""
        spider = self._objects.get((crawl, name))
        if spider is None:
            factory = self._factories.get(name)
            if factory is None:
                factory = self._factories[name] = _factory(name)
            spider = self._objects[crawl, name] = _make(name, factory)
            if len(self._objects) > _MAX_OBJECTS:
                del self._objects[next(iter(self._objects))]
        return spider


def load_spider(name: str) -> Spider:
    """Return a new spider object. Raises BadSpider if no spider of that name is installed or its code does not load."""
    return _make(name, _factory(name))


def _factory(name: str) -> Callable[[], object]:
    """Import the class (or function) that makes spiders of this name. Raises as `load_spider` does."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                factory: Callable[[], object] = entry.load()
            except Exception as error:
                raise BadSpider(f"the spider {name} does not load: {type(error).__name__}: {error}") from error
            return factory
    raise BadSpider(f"there is no spider {name}; installed are {', '.join(known_spiders())}")


def _make(name: str, factory: Callable[[], object]) -> Spider:
    """Make a spider object. Raises as `load_spider` does."""
    try:
        spider = factory()
    except Exception as error:
        raise BadSpider(f"the spider {name} does not load: {type(error).__name__}: {error}") from error
    if not isinstance(spider, Spider):
        raise BadSpider(f"the spider {name} ({factory!r}) is not a gossamer.worker.spider.Spider")
    return spider
