"""Counts of browsers: what metrics, `gossamer top` and `gossamer diagnose` are made of."""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from gossamer.errors import BrowserCrashed
from gossamer.fakeweb import WebSpec, serve
from gossamer.telemetry.tally import BrowserCounts
from tests.integration.render.building import building
from tests.servers.crawling import FAST_FLAGS, gossamer

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)


async def test_pages_requests_and_ends_of_browsers_are_counted() -> None:
    counts = BrowserCounts()
    async with building(counts, browser__tabs=2) as builder:
        builder.page("/data", "1")
        builder.page("/page", "<h1>page</h1><script>fetch('/data'); new Image().src = '/image'</script>")
        builder.page("/loop", "<script>while (true);</script>")
        await asyncio.gather(*(builder.build("/page") for _ in range(3)))
        assert (counts.pages, counts.running, counts.waiting, counts.building) == (3, 1, 0, 0)
        assert counts.requests == {"sent": 3, "cached": 0, "refused": 3}
        assert counts.seconds > 0
        (browser,) = builder.browsers()
        endless = asyncio.ensure_future(builder.build("/loop"))
        while not counts.building:  # noqa: ASYNC110 (the pool begins in its own task)
            await asyncio.sleep(0)
        os.killpg(browser.process.pid, signal.SIGKILL)
        with pytest.raises(BrowserCrashed):
            await endless
        await builder.build("/page")
        assert (counts.pages, counts.ended) == (4, {"crashed": 1})
    assert (counts.running, counts.tabs, counts.memory) == (0, 0, 0)


async def test_browsers_that_are_replaced_are_counted() -> None:
    counts = BrowserCounts()
    async with building(counts, browser__retire_pages=1) as builder:
        builder.page("/page", "<h1>page</h1>")
        for _ in range(3):
            await builder.build("/page")
    assert counts.ended.keys() == {"retired"}


async def test_a_crawl_that_waits_for_tabs_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text("[browser]\ntabs = 1\n")
    async with serve(WebSpec(hosts=1, pages=1, scripted=28)) as web:
        options = ("--resolve", "*:127.0.0.1", *FAST_FLAGS, "--render", "always", "-o", "pages.jsonl")
        url = f"http://scripted.test:{web.port}/"
        run = await asyncio.to_thread(gossamer, "crawl", url, *options, "--data-dir", "data", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    found = await asyncio.to_thread(gossamer, "diagnose", "--data-dir", "data", "--json", cwd=tmp_path)
    finding = json.loads(found.stdout)
    assert "browser" in json.dumps(finding), found.stdout
