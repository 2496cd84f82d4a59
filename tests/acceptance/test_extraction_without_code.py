"""What extraction rules must show: the estate agent's items without code, and a documentation site as a table."""

import csv
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from lxml import html as lxml_html

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.acceptance.test_properties import PROJECT
from tests.servers.crawling import gossamer
from tests.servers.nursery import SCRAPY, Reared

INDEXES = 3
PAGE_FIELDS = ("title", "price", "description", "address", "image_urls", "url")
"""Fields of the Scrapy items that come from the page. The others are about the run: project, spider, server, date."""
DETAIL = {
    "title": "[itemprop=name] @text:title",
    "price": "[itemprop=price] @number",
    "description": "[itemprop=description]",
    "address": '[itemtype="http://schema.org/Place"]',
    "image_urls": "[itemprop=image]@src @url @list",
}


@pytest.fixture(scope="module")
def estate() -> Iterator[str]:
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=INDEXES)) as web:
        yield f"http://localhost:{web.port}"


def scrapy_items(folder: Path, site: str, spider: str) -> list[dict[str, Any]]:
    """The items of the example project's spider, by stock Scrapy."""
    environment = {
        "PIPELINES_OFF": "all",  # they change prices, say
        "PATH": "/usr/bin:/bin", "ESTATE_URL": site, "SCRAPY_SETTINGS_MODULE": "properties.settings",
        "PYTHONPATH": str(PROJECT),
    }  # fmt: skip
    arguments = ["crawl", spider, "-O", str(folder / "scrapy.json")]
    log = folder / "scrapy.log"
    with Reared(SCRAPY, arguments, environment=environment, log=log, folder=PROJECT) as process:
        assert process.wait(100) == 0, log.read_text()[-3000:]
    found = json.loads((folder / "scrapy.json").read_text())
    return sorted(({name: item.get(name) for name in PAGE_FIELDS} for item in found), key=lambda item: item["url"])


def extracted(folder: Path, site: str, rules: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a crawl from the first index page."""
    (folder / "fields.json").write_text(json.dumps(rules))
    flags = ["--allow-private", "--ignore-robots", "--rate", "1000/1", "--extract", "fields.json", "-o", "items.json"]
    done = gossamer("crawl", f"{site}/properties/index_00000.html", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return list(json.loads((folder / "items.json").read_text()))


@pytest.mark.parametrize("spider", ["easy", "manual"])
def test_details_equal_the_items_of_the_scrapy_spiders(spider: str, estate: str, tmp_path: Path) -> None:
    items = extracted(tmp_path, estate, {"urls": ["/property_"], "fields": DETAIL})
    for item in items:
        item["url"] = item.pop("page_url")
    theirs = scrapy_items(tmp_path, estate, spider)
    assert len(theirs) == 30 * INDEXES
    assert sorted(items, key=lambda item: item["url"]) == theirs


def test_entries_of_index_pages_equal_the_items_of_the_fast_spider(estate: str, tmp_path: Path) -> None:
    rules = {
        "urls": ["/index_"],
        "each": '[itemtype="http://schema.org/Product"]',
        "fields": {**DETAIL, "url": "[itemprop=url]@href @url"},
    }
    items = extracted(tmp_path, estate, rules)
    assert {item.pop("page_url") for item in items} == {
        f"{estate}/properties/index_{number:05d}.html" for number in range(INDEXES)
    }
    theirs = scrapy_items(tmp_path, estate, "fast")
    assert len(theirs) == 30 * INDEXES
    assert sorted(items, key=lambda item: item["url"]) == theirs


# --- a documentation site ---------------------------------------------------------------------------------------------

DOCUMENTATION = Path("/usr/share/doc/python3.11-doc/html")
"""Of the Debian package python3.11-doc."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def documentation() -> Iterator[str]:
    if not (DOCUMENTATION / "index.html").exists():
        pytest.skip("python3.11-doc is not installed")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(DOCUMENTATION)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.timeout(600)
def test_a_documentation_site_becomes_a_table_that_is_right_for_every_page(documentation: str, tmp_path: Path) -> None:
    """An independent reading of the same files, with another parser, decides what is right."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gossamer", "crawl", f"{documentation}/index.html", "--allow-private"),
            *("--rate", "1000/1", "--field", "title=h1", "--field", "first=[role=main] p"),
            *("--field", "code_blocks=pre @count", "-o", "docs.csv", "-o", "pages.jsonl"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "docs.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = {row.pop("page_url"): row for row in csv.DictReader(stream)}
    pages = set()
    with (tmp_path / "pages.jsonl").open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if record["type"] == "page" and record["status_code"] == 200 and "html" in record["content_type"]:
                pages.add(record["response_url"])
                is_long = len(record["body"]) > 2 * 2**20  # whose fields are those of the first part
                assert record["extract_error"] == ("cut" if is_long else "")
    assert len(pages) > 500
    expected = {url: _read_independently(url.removeprefix(f"{documentation}/")) for url in pages}
    empty = {"title": "", "first": "", "code_blocks": "0"}  # such a page has no item
    assert rows == {url: row for url, row in expected.items() if row != empty}


def _read_independently(name: str) -> dict[str, str]:
    path = DOCUMENTATION / name
    tree = lxml_html.document_fromstring((path / "index.html" if path.is_dir() else path).read_bytes())
    titles = [_words(found) for found in tree.xpath("//h1")]
    paragraphs = [_words(found) for found in tree.xpath("//*[@role='main']//p")]
    return {
        "title": next(filter(None, titles), ""),
        "first": next(filter(None, paragraphs), ""),
        "code_blocks": str(int(tree.xpath("count(//pre)"))),
    }


def _words(element: Any) -> str:
    return " ".join(element.text_content().split())
