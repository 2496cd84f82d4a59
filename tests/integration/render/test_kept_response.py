"""What a rendered crawl keeps beside the document: the page as it was sent, and counts of what it loaded."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import gossamer as gossamer_api
from gossamer.errors import BadInput
from gossamer.fakeweb import Answer, WebSpec, html, serve
from gossamer.model.record import PageRecord
from gossamer.net.resolve import parse_override
from tests.integration.render.building import building
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

SENT = "<body><script>document.body.innerHTML = '<h1>' + 'built' + '</h1>'</script>"


async def test_an_archive_has_the_page_as_it_was_sent_and_the_record_what_was_built(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(SENT))
        run = await asyncio.to_thread(
            gossamer, "crawl", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS,
            "--depth", "0", "--render", "always", "-o", "pages.warc", "-o", "pages.jsonl", cwd=tmp_path,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    archive = (tmp_path / "pages.warc").read_bytes()
    assert SENT.encode() in archive
    assert b"<h1>built</h1>" not in archive
    (record,) = [record for record in records_of(tmp_path / "pages.jsonl") if isinstance(record, PageRecord)]
    assert "<h1>built</h1>" in record.body


async def test_what_a_page_loads_is_counted_by_host() -> None:
    loads: list[tuple[str, bool]] = []
    async with building(
        browser__quiet=0.05, on_load=lambda host, seconds: loads.append((host, seconds is None))
    ) as built:
        built.page("/", f"<script src=/own.js></script><script src=//gone.test:1/x.js></script>{SENT}")
        built.web.mount("shop.test", "/own.js", Answer(body=b"1", headers=(("Content-Type", "text/javascript"),)))
        await built.build("/")
    assert sorted(loads) == [("gone.test", True), ("shop.test", False)]


async def test_one_page_is_fetched_with_steps_and_answers(tmp_path: Path) -> None:
    page = "<button onclick=\"fetch('/api/1')\">more</button>"
    options: dict[str, Any] = {"resolve": dict([parse_override("*:127.0.0.1")]), "ignore_robots": True}
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        url = f"http://shop.test:{web.port}/"
        web.mount("shop.test", "/", html(page))
        web.mount("shop.test", "/api/1", Answer(body=b"[1]", headers=(("Content-Type", "application/json"),)))
        got = await asyncio.to_thread(
            gossamer_api.get, url, render=True, render_step="click button 1", render_capture="/api/", **options
        )
        with pytest.raises(BadInput, match="render_step: the page is not rendered"):
            await asyncio.to_thread(gossamer_api.get, url, render_step="scroll", **options)
        flags = ("--resolve", "*:127.0.0.1", "--ignore-robots", "--render-step", "click button 1")
        shown = await asyncio.to_thread(
            gossamer, "fetch", url, "--render", "--render-capture", "/api/", *flags, cwd=tmp_path
        )
    assert got.record.rendering is not None
    assert [answer.data for answer in got.record.rendering.answers] == [[1]]
    assert "steps      1 (how" in shown.stdout
    assert "/api/1   200" in shown.stdout
