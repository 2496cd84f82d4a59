"""What a spider is to the worker: it gets pages and yields items and links."""

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
    """A link that a spider wants crawled, under the same terms as the page; the crawl's filters apply to it."""

    url: str
    """Joined to the page's own URL where it is relative."""
    _: KW_ONLY
    spider: str | None = None
    """Which spider gets the page; None: this one. In a crawl from the command line a link to one that is not installed
    is dropped; in a service it waits for a worker that has it."""
    attrs: Mapping[str, Any] | None = None
    """In place of the page's attrs; None: those go on."""
    priority: int | None = None
    """None: the page's minus 10, as for every discovered link."""
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    again: bool = False
    """Fetch it even when this crawl has seen it. Beware of loops: nothing else ends them."""


class Page:
    """A fetched page, as a spider sees it."""

    def __init__(
        self, record: PageRecord, body: bytes, text: str, extract: "Links | None", *, priority: int = 0
    ) -> None:
        self.record = record
        """Everything the page's record says; what a spider changes there is what the outputs get."""
        self.body = body
        """Decoded from its content encoding, at max_objects the body limit."""
        self.text = text
        """The body as text, by the encoding it declares; what cannot be decoded became U+FFFD. Empty if binary."""
        self.links = extract
        """The links in scope, canonical. None where the page is no HTML."""
        self.priority = priority
        """Of the page's request."""

    @property
    def url(self) -> str:
        """Where the page was in the end, after redirects."""
        return self.record.response_url

    @property
    def status(self) -> int:
        return self.record.status_code

    @property
    def depth(self) -> int:
        return self.record.depth

    @property
    def attrs(self) -> dict[str, Any]:
        """What the submission (or the link that led here) said; never None."""
        return self.record.attrs or {}

    @cached_property
    def headers(self) -> dict[str, list[str]]:
        """By lower-case name."""
        lower: dict[str, list[str]] = {}
        for name, values in self.record.response_headers.items():
            lower.setdefault(name.lower(), []).extend(values)
        return lower


class Spider:
    """Subclass it, implement `parse`, and name it in the entry point group `gossamer.spiders`:

    [project.entry-points."gossamer.spiders"]
    prices = "shop.spiders:PriceSpider"

    One object serves all pages of a crawl in a process; `parse` calls overlap.
    """

    follows_all_links: ClassVar[bool] = False
    """True: every link in scope is followed without `parse` being asked, which costs no object per link."""
    ignores_maxdepth: ClassVar[bool] = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl asks for."""

    def parse(self, page: Page) -> AsyncIterator[Mapping[str, Any] | Follow]:
        """Yield items (mappings, which go to the outputs) and links (`Follow`). An exception fails the page."""
        raise NotImplementedError


GROUP = "gossamer.spiders"


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
        """Yield one link at max_objects, at the page's own priority."""
        step = page.attrs.get("step", 0)
        page.record.attrs = {**page.attrs, "step": step}
        others = [url for url in page.links.urls if url != page.url] if page.links else []
        if others:
            yield Follow(
                # A page that is read again after a crash leads to the same link, and not to a second walk.
                url=random.Random(page.record.request_id).choice(others),
                attrs={**page.attrs, "step": step + 1 if isinstance(step, int) else 1},
                priority=page.priority,
                again=True,
            )


def known_spiders() -> list[str]:
    """The names of all spiders that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


class SpiderSet:
    """The spider objects of one worker: one for each crawl and name, which serves all its pages in this process."""

    def __init__(self, *, max_objects: int = 1000) -> None:
        """`max_objects`: objects kept; beyond it, the one that was made first is forgotten."""
        self._max_objects = max_objects
        self._objects: dict[tuple[CrawlId, str], Spider] = {}
        self._factories: dict[str, Callable[[], object]] = {}

    def get(self, crawl: CrawlId, name: str) -> Spider:
        """Raises BadSpider as `load_spider` does."""
        found = self._objects.get((crawl, name))
        if found is None:
            factory = self._factories.get(name)
            if factory is None:
                factory = self._factories[name] = _factory(name)
            found = self._objects[crawl, name] = _made(name, factory)
            if len(self._objects) > self._max_objects:
                del self._objects[next(iter(self._objects))]
        return found


def load_spider(name: str) -> Spider:
    """A new object of that spider. Raises BadSpider where none of that name is installed or its code does not load."""
    return _made(name, _factory(name))


def _factory(name: str) -> Callable[[], object]:
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                factory: Callable[[], object] = entry.load()
            except Exception as error:
                raise BadSpider(f"the spider {name} does not load: {type(error).__name__}: {error}") from error
            return factory
    raise BadSpider(f"there is no spider {name}; installed are {', '.join(known_spiders())}")


def _made(name: str, factory: Callable[[], object]) -> Spider:
    try:
        spider = factory()
    except Exception as error:
        raise BadSpider(f"the spider {name} does not load: {type(error).__name__}: {error}") from error
    if not isinstance(spider, Spider):
        raise BadSpider(f"the spider {name} ({factory!r}) is no gossamer.worker.spider.Spider")
    return spider
