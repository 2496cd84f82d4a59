"""Spiders of one's own: found by entry point, yielding items and links to themselves and to others."""

from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.fetch.request import OWNED
from tests.servers.crawling import Crawled, crawl

SHOP = """
from gossamer.worker.spider import Follow, Spider

class ListSpider(Spider):
    async def parse(self, page):
        if page.url.endswith("/broken"):
            raise RuntimeError("no such shelf")
        for url in page.links.urls:
            yield Follow(url=url, spider="goods", attrs={**page.attrs, "from": page.url})
        yield Follow(url="/search", method="POST", body=b"q=x", headers={"Content-Type": "text/plain"})
        yield Follow(url="http://elsewhere.test/")
        yield Follow(url="javascript:void(0)")

class LargeSpider(Spider):
    async def parse(self, page):
        yield Follow(url="/1", method="POST", body=b"x" * (2 << 20))

class LostSpider(Spider):
    async def parse(self, page):
        yield Follow(url="/1", spider="nobody")
        yield Follow(url="/2", spider="nobody")
        yield Follow(url="/2", spider="goods")

class GoodsSpider(Spider):
    async def parse(self, page):
        yield {"name": page.text, "status": page.status, "type": page.headers["content-type"][0]}

class HeaderSpider(Spider):
    async def parse(self, page):
        yield Follow("/1", headers={page.attrs["header"]: "x"})

class MethodSpider(Spider):
    async def parse(self, page):
        yield Follow("/1", method="CONNECT")

class NoSpider:
    pass
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with spiders, installed for this test."""
    folder = tmp_path / "installed"
    (folder / "shop_spiders-1.0.dist-info").mkdir(parents=True)
    (folder / "shop_spiders-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: shop-spiders\nVersion: 1.0\n"
    )
    names = (
        f"{name.lower()} = shop_spiders:{name}Spider" for name in ("List", "Goods", "Lost", "Large", "Header", "Method")
    )
    entries = ["[gossamer.spiders]", "none = shop_spiders:NoSpider", *names]
    (folder / "shop_spiders-1.0.dist-info" / "entry_points.txt").write_text("\n".join(entries))
    (folder / "shop_spiders.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(folder))


async def crawl_shop(tmp_path: Path, **options: Any) -> Crawled:
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html('<a href="/1">one</a><a href="/2">two</a>'))
        web.mount("shop.test", "/1", html("first"))
        web.mount("shop.test", "/2", html("second"))
        web.mount("shop.test", "/search", html(""))
        web.mount("shop.test", "/broken", html('<a href="/1">one</a>'))
        seed = f"http://shop.test:{web.port}"
        urls = [f"{seed}/broken"] if options.pop("broken", False) else [f"{seed}/"]
        crawled = await crawl(tmp_path, urls, ["*:127.0.0.1"], **options)
        crawled.asked = [(record.method, record.path) for record in web.log()]  # type: ignore[attr-defined]
        return crawled


@pytest.mark.usefixtures("shop")
async def test_items_and_links_to_another_spider(tmp_path: Path) -> None:
    crawled = await crawl_shop(tmp_path, crawl__spider="list", crawl__attrs={"n": 1})
    assert sorted((item.item["name"], item.spiderid) for item in crawled.items) == [
        ("first", "goods"),
        ("second", "goods"),
    ]
    assert all(item.item["status"] == 200 and item.attrs["n"] == 1 and "from" in item.attrs for item in crawled.items)  # type: ignore[index]
    ids = {page.request_id for page in crawled.pages}
    assert {item.request_id for item in crawled.items} <= ids
    assert ("POST", "/search") in crawled.asked  # type: ignore[attr-defined]
    assert crawled.summary.info is not None
    assert crawled.summary.info.spiders["list"].links_dropped == {"offsite": 2, "scheme": 2, "duplicate": 1}


@pytest.mark.usefixtures("shop")
async def test_a_spider_that_raises_fails_its_page_only(tmp_path: Path) -> None:
    crawled = await crawl_shop(tmp_path, crawl__spider="list", broken=True)
    (record,) = crawled.pages
    assert (record.success, record.reason) == (False, "spider_error")
    assert record.exception == "RuntimeError: no such shelf (shop_spiders.py, line 7, in parse)"
    assert crawled.summary.finished


@pytest.mark.usefixtures("shop")
async def test_a_link_that_is_too_large_fails_its_page_only(tmp_path: Path) -> None:
    """Not the worker, and each one after it that gets the page."""
    crawled = await crawl_shop(tmp_path, crawl__spider="large", broken=True)
    (record,) = crawled.pages
    assert (record.success, record.reason) == (False, "spider_error")
    assert "at most 1,032,192 are stored" in record.exception
    assert crawled.summary.finished


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("header", [*sorted(OWNED), "Te", "no token"])
async def test_a_link_with_an_impossible_header_fails_its_page_and_says_which(tmp_path: Path, header: str) -> None:
    crawled = await crawl_shop(tmp_path, crawl__spider="header", crawl__attrs={"header": header})
    (record,) = crawled.pages
    assert (record.success, record.reason) == (False, "spider_error")
    assert (
        f"/1: header {header!r} is set" in record.exception
        or f"/1: {header!r} is not a valid header name" in record.exception
    )


@pytest.mark.usefixtures("shop")
async def test_a_link_that_is_no_http_request_fails_and_says_why(tmp_path: Path) -> None:
    crawled = await crawl_shop(tmp_path, crawl__spider="method")
    failed = next(page for page in crawled.pages if not page.success)
    assert failed.reason == "bad_request"
    assert "'CONNECT' is not a valid method" in failed.exception


@pytest.mark.usefixtures("shop")
async def test_what_is_no_spider_is_refused_at_the_start(tmp_path: Path) -> None:
    from gossamer.errors import BadInput

    with pytest.raises(BadInput, match="is not a"):
        await crawl_shop(tmp_path, crawl__spider="none")


@pytest.mark.usefixtures("shop")
async def test_links_to_a_spider_that_is_not_installed_are_dropped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would wait for it for ever, and the crawl with them."""
    crawled = await crawl_shop(tmp_path, crawl__spider="lost")
    assert crawled.summary.finished
    assert sorted(page.spiderid for page in crawled.pages) == ["goods", "lost"]
    assert crawled.summary.info is not None
    assert crawled.summary.info.spiders["lost"].links_dropped == {"unknown_spider": 2}
    assert capsys.readouterr().err.count("sends links to a spider nobody, which is not installed") == 1
