"""The spiders that come with Gossamer, and how those of others are found."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar

from gossamer.errors import BadSpider
from gossamer.model.crawl import CrawlId
from gossamer.worker.spider import Follow, Page, Spider

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
        """Yield one link at most, at the page's own priority."""
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


class Spiders:
    """The spider objects of one worker: one for each crawl and name, which serves all its pages in this process."""

    def __init__(self, *, most: int = 1000) -> None:
        """`most`: objects kept; beyond it, the one that was made first is forgotten."""
        self._most = most
        self._objects: dict[tuple[CrawlId, str], Spider] = {}
        self._factories: dict[str, Callable[[], object]] = {}

    def of(self, crawl: CrawlId, name: str) -> Spider:
        """Raises BadSpider as `load_spider` does."""
        found = self._objects.get((crawl, name))
        if found is None:
            factory = self._factories.get(name)
            if factory is None:
                factory = self._factories[name] = _factory(name)
            found = self._objects[crawl, name] = _made(name, factory)
            if len(self._objects) > self._most:
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
