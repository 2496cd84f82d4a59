"""Base class of spiders, and the spiders that are built in. `worker/loading.py` finds and loads spiders.

`Spider`, and `Page` and `Follow` from `extract/page.py`, are used by spiders outside this project: their names,
attributes and defaults are fixed; new attributes with a default may be added. Fixed, too: the names of the built-in
spiders (in pyproject.toml) and the attribute `step`, which are Scrapy Cluster's.
"""

import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gossamer.extract.page import Follow, Page
    from gossamer.render.open_page import OpenPage
    from gossamer.session.login_client import LoginClient

__all__ = ["Follow", "LinkSpider", "Page", "Spider", "WanderingSpider"]


def __getattr__(name: str) -> Any:
    """Return `Follow` or `Page`, which are imported when they are needed: crawls without a spider of their own start
    sooner."""
    if name not in ("Follow", "Page"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gossamer.extract import page

    value = globals()[name] = getattr(page, name)
    return value


class Spider:
    """Base class of spiders. Implement `parse` in a file of its own, and start it with `--spider shop.py`:

        from gossamer import Spider

        class Shop(Spider):
            def parse(self, page):
                yield {"title": page.css("h1::text").get()}
                for link in page.links:
                    yield page.follow(link)

    A package may name its spiders in the entry point group `gossamer.spiders` instead. One object handles all pages of
    a crawl in a process; calls of `parse` overlap where it awaits something.
    """

    name: ClassVar[str] = ""
    """Name of a spider of a file, under which the crawl keeps its requests. Empty: the class name in lower case. An
    installed spider has the name of its entry point."""
    follows_all_links: ClassVar[bool] = False
    """True: every link in scope is followed and `parse` is not called, which costs no object per link."""
    ignores_maxdepth: ClassVar[bool] = False
    """True: links are followed at any depth, whatever `maxdepth` the crawl asks for."""

    def parse(self, page: "Page") -> Any:
        """Yield items, which go to the outputs, and links to follow (`page.follow`).

        An item is a mapping, or an object of a dataclass, msgspec, pydantic or attrs. May be a generator or an
        asynchronous generator, or return a list, a single item or link, or None, asynchronously or not. An exception
        fails the page.
        """
        raise NotImplementedError

    async def on_page(self, tab: "OpenPage") -> Any:
        """Use a page that is open in a browser: click, fill, read. Called for rendered pages, after the steps of the
        crawl and before the document is read. `parse` finds what this returns as `page.opened`. An exception fails the
        page."""

    async def login(self, session: "LoginClient") -> None:
        """Log in to a site, where the session file of the crawl says `login: {spider: true}`. Called before the first
        page, and when the session has ended. An exception ends the crawl."""
        raise NotImplementedError


class LinkSpider(Spider):
    """Follows every link in scope down to the depth."""

    follows_all_links: ClassVar[bool] = True


class WanderingSpider(Spider):
    """Follows one random link of each page and counts its steps in `attrs["step"]`.

    The walk may visit a page again. It ends when its crawl is stopped or expires, at a limit of pages, and at a page
    without a link in scope. `maxdepth` does not end it.
    """

    ignores_maxdepth: ClassVar[bool] = True

    async def parse(self, page: "Page") -> "AsyncIterator[Follow]":
        """Yield one link at most, at the page's own priority."""
        step = page.attrs.get("step", 0)
        page.record.attrs = {**page.attrs, "step": step}
        others = [url for url in page.links.urls if url != page.url]
        if others:
            from gossamer.extract.page import Follow

            yield Follow(
                # A page that is read again after a crash leads to the same link, so that no second walk begins.
                url=random.Random(page.record.request_id).choice(others),
                attrs={**page.attrs, "step": step + 1 if isinstance(step, int) else 1},
                priority=page.priority,
                again=True,
            )
