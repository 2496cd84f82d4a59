"""Pages built in this process: the backend of rendered pages on a real browser and a practice web."""

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gossamer.fakeweb import Answer, Server, WebSpec, html, serve
from gossamer.fetch.backend import PageLoad
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.model.rendering import RenderStep, RenderTerms
from gossamer.net.resolve import parse_override
from gossamer.render.backend import BrowserBackend
from gossamer.render.browser import Browser
from gossamer.render.open_page import OpenPage
from gossamer.render.pool import BrowserPool
from gossamer.render.shared_choices import SharedChoices
from gossamer.settings import Settings, load
from gossamer.telemetry.tally import BrowserCounts
from gossamer.wiring.browser import browser_backend
from gossamer.wiring.worker import make_clients, make_resolver

__all__ = ("Builder", "building", "program_of")

NO_SANDBOX = "echo 'FATAL: No usable sandbox!' >&2"
"""Script of a browser that has no sandbox."""


def program_of(folder: Path, script: str) -> Path:
    """Write a shell script in place of a browser, which has a user of its own and may write to the folder."""
    program = folder / "browser"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    for parent in (folder, *folder.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    folder.chmod(0o777)
    return program


class Builder:
    """Builds pages of a site in one browser."""

    def __init__(self, web: Server, backend: BrowserBackend) -> None:
        self.web = web
        self.backend = backend
        self.captures: Callable[[str], bool] | None = None
        """Returns whether the answer of a URL is captured."""
        self.beside: Callable[[SharedChoices], Builder]
        """Returns another worker, which the caller closes."""

    def page(self, path: str, body: str | Answer) -> None:
        """Put a page on the site."""
        self.web.mount("shop.test", path, html(body) if isinstance(body, str) else body)

    def browsers(self) -> list[Browser]:
        """The browsers that run."""
        assert isinstance(self.backend._pool, BrowserPool)
        return list(self.backend._pool._browsers)

    async def build(self, path: str, **rules: Any) -> FetchResponse:
        """Fetch a page and build it, or, where `because` is `auto`, decide whether to. `rules`: as for `request`."""
        return await self.backend.fetch(self.request(path, **rules))

    def request(
        self,
        path: str,
        *,
        because: str = "asked",
        learns: bool = False,
        steps: tuple[RenderStep, ...] = (),
        terms: RenderTerms | None = None,
        why: str = "",
        in_lane: bool | None = None,
        on_open: Callable[[OpenPage], Awaitable[None]] | None = None,
    ) -> FetchRequest:
        """The request of a page that is to be built."""

        def request_for(url: str) -> FetchRequest:
            return FetchRequest(url, allow_private=True)

        async def allows(request: FetchRequest) -> bool:
            return True

        request = request_for(f"http://shop.test:{self.web.port}{path}")
        request.page = PageLoad(
            "crawl",
            "shop.test",
            request_for,
            allows,
            because,
            why=why,
            in_lane=because == "asked" if in_lane is None else in_lane,
            captures=self.captures,
            learns=learns,
            steps=steps,
            terms=terms,
            on_open=on_open,
        )
        return request


@asynccontextmanager
async def building(
    counts: BrowserCounts | None = None,
    *,
    shared: SharedChoices | None = None,
    on_load: Callable[[str, float | None], None] | None = None,
    **changed: Any,
) -> AsyncIterator[Builder]:
    """A browser of this process and a site. `counts`: counts its browsers. `shared`: what workers share. `on_load`:
    counts what pages load. `changed`: settings by dotted name with `__` for the dot."""
    settings = settings_of(**changed)
    clients = make_clients(settings, make_resolver(settings))
    backend = browser_backend(settings, clients, counts=counts, shared=shared, on_load=on_load)
    try:
        async with serve(WebSpec(hosts=1, pages=1)) as web:
            builder = Builder(web, backend)
            builder.beside = lambda others: Builder(web, browser_backend(settings, clients, shared=others))
            yield builder
    finally:
        await backend.close()
        await clients.close()


def settings_of(**changed: Any) -> Settings:
    """Settings of a browser on a web that is ours."""
    flags = {name.replace("__", "."): value for name, value in changed.items()}
    sandbox = os.environ.get("GOSSAMER_BROWSER__SANDBOX", "yes") == "yes"
    return load(
        {"fetch.resolve": dict([parse_override("*:127.0.0.1")]), "browser.sandbox": sandbox, **flags}, config=None
    )
