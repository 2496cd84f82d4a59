"""A synthetic web in one process, deterministic from a seed, whose access log is the oracle of crawls.

with FakeWeb.start(WebSpec(hosts=5, pages=1000)) as web:   # a process of its own
    ...crawl web.seeds() with web.resolve_overrides()...
    assert set(fetches(web.log())) == fetched(web.expected())

async with serve(WebSpec(), mounts={("a.test", "/"): html("<a href=/b>b</a>")}) as web:   # in this event loop
    ...
"""

from gossamer.fakeweb.answer import Answer, Ending, Mounts, html, plain, redirect
from gossamer.fakeweb.expected import Ends, Expected, expected, fetched, graph
from gossamer.fakeweb.log import How, Record, fetches, max_concurrency, max_in_any_window, repeated
from gossamer.fakeweb.process import FakeWeb
from gossamer.fakeweb.server import Server, serve
from gossamer.fakeweb.site import Fate, Page, Site
from gossamer.fakeweb.spec import Robots, Sitemap, WebSpec

__all__ = [
    "Answer",
    "Ending",
    "Ends",
    "Expected",
    "FakeWeb",
    "Fate",
    "How",
    "Mounts",
    "Page",
    "Record",
    "Robots",
    "Server",
    "Site",
    "Sitemap",
    "WebSpec",
    "expected",
    "fetched",
    "fetches",
    "graph",
    "html",
    "max_concurrency",
    "max_in_any_window",
    "plain",
    "redirect",
    "repeated",
    "serve",
]
