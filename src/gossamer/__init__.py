"""Gossamer, a crawling cluster: any number of crawlers share one frontier of URLs.

    import gossamer

    for page in gossamer.crawl("https://example.com", max_pages=100):
        print(page.url, page.status_code)

The names in `__all__` are the Python API: fixed, because programs use them. They are loaded on first use, so that
`import gossamer` costs nothing; nothing else may be imported here. A new name goes into `__all__` and `_MODULES`.
"""

TYPE_CHECKING = False  # not from typing, which takes as long to load as all else before Ctrl-C works
if TYPE_CHECKING:
    from typing import Any

    from gossamer.crawling.python import Crawler, Result, crawl, get
    from gossamer.errors import GossamerError
    from gossamer.extract.page import Follow, Page
    from gossamer.render.open_page import OpenPage
    from gossamer.worker.spider import Spider

__version__ = "0.1.0"

__all__ = ["Crawler", "Follow", "GossamerError", "OpenPage", "Page", "Result", "Spider", "crawl", "get"]

_MODULES = {
    "Crawler": "gossamer.crawling.python",
    "Follow": "gossamer.extract.page",
    "GossamerError": "gossamer.errors",
    "OpenPage": "gossamer.render.open_page",
    "Page": "gossamer.extract.page",
    "Result": "gossamer.crawling.python",
    "Spider": "gossamer.worker.spider",
    "crawl": "gossamer.crawling.python",
    "get": "gossamer.crawling.python",
}
"""Module of each name of the Python API. Must have the names of `__all__`."""


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
