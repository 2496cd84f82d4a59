"""A website being served on a local port: by nginx from files where there is one, else by the fake web."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from bench.nginx import LONELY, LONELY_PAGE, serve_with_nginx
from bench.places import program
from bench.websites import Website
from gossamer.fakeweb import FakeWeb, html
from gossamer.fakeweb.site import Site

ADDRESS = "127.0.0.1"


class Served(Protocol):
    """A server with one website on it."""

    software: str
    port: int

    @property
    def pid(self) -> int:
        """Process id of the server's first process."""


@contextlib.contextmanager
def serve(website: Website) -> Iterator[Served]:
    """Serve it until the block ends, however it ends."""
    nginx = program("nginx")
    if nginx is not None:
        with serve_with_nginx(nginx, website) as served:
            yield served
    else:
        lonely = {(Site(website.spec).host(0), LONELY): html(LONELY_PAGE.decode())}
        with FakeWeb.start(website.spec, tls=website.tls, mounts=lonely) as web:
            yield _Fake(web.pid, web.port)


class _Fake:
    software = "gossamer.fakeweb"

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port


def site_of(website: Website, served: Served) -> Site:
    """The URLs that the website has on this server."""
    return Site(website.spec, scheme="https" if website.tls else "http", port=served.port)


def lonely_url(website: Website, served: Served) -> str:
    """A page that links to nothing."""
    return site_of(website, served).base(0) + LONELY
