"""A synthetic web in one process, deterministic from a seed, with an access log: to practise on, and to test crawlers.

with FakeWeb.start(WebSpec(hosts=5, pages=1000)) as web:   # a process of its own
    ...crawl web.seeds() with web.resolve_overrides()...

async with serve(WebSpec(), mounts={("a.test", "/"): html("<a href=/b>b</a>")}) as web:   # in this event loop
    ...

The package gossamer-fakeweb adds hostile hosts, an estate agent's site, and functions that judge a crawl.

What is exported here is the interface, which that package, people's tests and docs/howto/fakeweb.md use: names may be
added, none removed.
"""

from gossamer.fakeweb.answer import Answer, Ending, Mounts, html, plain, redirect
from gossamer.fakeweb.journal import How, Record
from gossamer.fakeweb.process import FakeWeb
from gossamer.fakeweb.server import Server
from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.site import Fate, Site, SitePage
from gossamer.fakeweb.spec import Robots, Sitemap, WebSpec

__all__ = [
    "Answer",
    "Ending",
    "FakeWeb",
    "Fate",
    "How",
    "Mounts",
    "Record",
    "Robots",
    "Server",
    "Site",
    "SitePage",
    "Sitemap",
    "WebSpec",
    "html",
    "plain",
    "redirect",
    "serve",
]
