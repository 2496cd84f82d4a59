"""The practice site that scripts build: every page and every item is found with a browser, and one page without."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, serve
from gossamer.model.record import ItemRecord, PageRecord
from gossamer_fakeweb.scripted import STEPS, Scripted
from tests.servers.crawling import FAST_FLAGS, gossamer, records_of

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

PAGES = int(os.environ.get("GOSSAMER_SCRIPTED_PAGES", "28"))


async def crawl(folder: Path, *options: str, failure: str = "") -> tuple[set[str], dict[str, tuple[str, int]]]:
    """Paths of the pages of a crawl, and its items by path. `failure`: what the crawl says that fails; empty: it does
    not."""
    async with serve(WebSpec(hosts=1, pages=1, scripted=PAGES)) as web:
        arguments = (f"http://scripted.test:{web.port}/", "--resolve", "*:127.0.0.1", *FAST_FLAGS, "-o", "pages.jsonl")
        fields = ("--field", "name=h1", "--field", "price=.price")
        run = await asyncio.to_thread(gossamer, "crawl", *arguments, *fields, *options, cwd=folder)
    assert (run.returncode == 1) is bool(failure), run.stderr
    assert failure in run.stderr
    records = records_of(folder / "pages.jsonl")
    items = {
        "/" + record.url.split("/", 3)[3]: (record.item["name"], int(record.item["price"]))
        for record in records
        if isinstance(record, ItemRecord) and record.item["name"]
    }
    pages = ["/" + record.url.split("/", 3)[3] for record in records if isinstance(record, PageRecord)]
    assert len(pages) == len(set(pages))
    return set(pages), items


@pytest.mark.parametrize("mode", ["always", "auto"])
async def test_all_pages_and_items_are_found(tmp_path: Path, mode: str) -> None:
    (tmp_path / "gossamer.toml").write_text("[browser]\nquiet = 0.1\n")
    steps = [part for step in STEPS for part in ("--render-step", step)]
    pages, items = await crawl(tmp_path, "--render", mode, *steps)
    truth = Scripted(PAGES)
    assert pages == truth.paths
    assert items == truth.items


async def test_a_plain_crawl_finds_one_page_that_is_empty_and_says_what_builds_it(tmp_path: Path) -> None:
    assert await crawl(tmp_path, failure="--render auto lets a browser build such pages") == ({"/"}, {})
