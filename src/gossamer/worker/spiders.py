"""The spiders that come with Gossamer, and how those of others are found."""

import random
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar

from gossamer.errors import BadSpider
from gossamer.worker.spider import Follow, Page, Spider

GROUP = "gossamer.spiders"


class LinkSpider(Spider):
    """Follows every link in scope down to the depth."""

    follows_all_links: ClassVar[bool] = True


class WanderingSpider(Spider):
    """Follows one random link of each page and counts its steps in `attrs["step"]`.

    A walk ends where a page has no link in scope, or where the link it takes was seen before.
    """

    def __init__(self, choose: random.Random | None = None) -> None:
        """`choose`: whose choices; None: unpredictable ones."""
        self._choose = choose or random.SystemRandom()

    async def parse(self, page: Page) -> AsyncIterator[Mapping[str, Any] | Follow]:
        """One link at most, at the page's own priority."""
        step = page.attrs.get("step", 0)
        page.record.attrs = {**page.attrs, "step": step}
        others = [url for url in page.links.urls if url != page.url] if page.links else []
        if others:
            yield Follow(
                url=self._choose.choice(others),
                attrs={**page.attrs, "step": step + 1 if isinstance(step, int) else 1},
            )


def known_spiders() -> list[str]:
    """The names of all spiders that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load_spider(name: str) -> Spider:
    """A new object of that spider. Raises BadSpider where none of that name is installed or its code does not load."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                spider = entry.load()()
            except Exception as error:
                raise BadSpider(f"the spider {name} does not load: {type(error).__name__}: {error}") from error
            if not isinstance(spider, Spider):
                raise BadSpider(f"the spider {name} ({entry.value}) is no gossamer.worker.spider.Spider")
            return spider
    raise BadSpider(f"there is no spider {name}; installed are {', '.join(known_spiders())}")
