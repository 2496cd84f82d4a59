"""Backend of rendered pages: what it says of a page for which there is no browser."""

from pathlib import Path

import pytest

from gossamer.errors import BrowserMissing
from gossamer.fetch.backend import PageLoad
from gossamer.fetch.exchange import FetchRequest, FetchResponse, Timings
from gossamer.render.backend import BrowserBackend
from gossamer.render.browser import LaunchOptions
from gossamer.render.pool import BrowserLimits, BrowserPool
from gossamer.render.requests import LoadLimits, PageLoader
from gossamer.render.tab import WaitLimits


class Http:
    """Answers with a page."""

    async def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> FetchResponse:
        lines, body = [("Content-Type", "text/html")], b"<h1>page</h1>"
        return FetchResponse(
            request.url, 200, "OK", "1.1", lines, b"", b"", body, None, False, "127.0.0.1", 80, False, Timings(), 0
        )


async def allows(request: FetchRequest) -> bool:
    return True


def backend(folder: Path, script: str) -> BrowserBackend:
    """A backend whose browser is a shell script."""
    program = folder / "browser"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    http = Http()
    pool = BrowserPool(LaunchOptions(str(program)), BrowserLimits(), PageLoader(http, LoadLimits()), WaitLimits())
    return BrowserBackend(http, pool)


def page(because: str) -> FetchRequest:
    load = PageLoad("crawl", "shop.test", FetchRequest, allows, because)
    return FetchRequest("http://shop.test/", page=load)


async def test_a_page_whose_browser_turns_out_to_have_no_sandbox_was_requested(tmp_path: Path) -> None:
    """Its hit is spent, and the next worker knows why it is rendered."""
    rendering = backend(tmp_path, "echo 'FATAL: No usable sandbox!' >&2")
    with pytest.raises(BrowserMissing, match="cannot use its sandbox") as raised:
        await rendering.fetch(page("match"))
    await rendering.close()
    assert (raised.value.was_sent, raised.value.why) == (True, "match")
