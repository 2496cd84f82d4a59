"""Screenshots of rendered pages: whole pages and elements, as files in the folder of the assets."""

import asyncio
import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from gossamer.fakeweb import Answer, WebSpec, html, serve
from gossamer.model.record import PageRecord
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)


def size_of(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


@pytest.mark.parametrize(("place", "size"), [("page", (1280, 3000)), ("#box", (300, 200))])
async def test_screenshots_become_assets(tmp_path: Path, place: str, size: tuple[int, int]) -> None:
    page = (
        "<body style='margin: 0; height: 3000px'><img src=/image.svg><script>"
        "const box = document.createElement('div'); box.id = 'box';"
        "box.style = 'position: absolute; top: 2000px; width: 300px; height: 200px; background: red';"
        "if (location.pathname === '/') document.body.append(box)</script><a href=/none>none</a>"
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for path in ("/", "/none"):
            web.mount("shop.test", path, html(page))
        web.mount("shop.test", "/image.svg", Answer(headers=(("Content-Type", "image/svg+xml"),), body=b"<svg/>"))
        options = ("--resolve", "*:127.0.0.1", *FAST_FLAGS, "--render", "always", "-o", "pages.jsonl")
        run = await asyncio.to_thread(
            gossamer, "crawl", f"http://shop.test:{web.port}/", *options, "--render-screenshot", place, cwd=tmp_path
        )
        asked = {record.path for record in web.log()}
    assert run.returncode == 0, run.stderr
    records = records_of(tmp_path / "pages.jsonl")
    results = {
        r.url.rpartition("/")[2]: r.rendering.screenshot for r in records if isinstance(r, PageRecord) and r.rendering
    }
    assert results == {"": "taken", "none": "taken" if place == "page" else "missing"}
    lines = [json.loads(line) for line in (tmp_path / "assets/manifest.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"screenshots"}
    shots = {line["url"].rpartition("/")[2]: line["file"] for line in lines}
    assert shots.keys() == {name for name, result in results.items() if result == "taken"}
    assert size_of((tmp_path / "assets" / shots[""]).read_bytes()) == size
    assert "/image.svg" in asked
