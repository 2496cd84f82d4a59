"""Sitemaps as sites have them: none of their URLs is lost without a word, and none of them floods the queue."""

import gzip
import json
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import brotli
import pytest

from gossamer.fakeweb import Answer, WebSpec, html, plain, redirect, serve
from gossamer.fakeweb.server import Server as Web
from tests.servers.crawling import Crawled, crawl

NONE = WebSpec(hosts=1, pages=1)
MIB = 1024 * 1024


def urlset(urls: Iterable[str]) -> str:
    listed = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>'


def index(urls: Iterable[str]) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def asked(web: Web) -> list[str]:
    """Host and path of the requests, in their order."""
    return [f"{record.host}{record.path}" for record in web.log() if record.path != "/robots.txt"]


def told(crawled: Crawled) -> dict[str, dict[str, int]]:
    """Counts of the summary: links that were dropped, and pages that were not read whole."""
    summary = json.loads(crawled.summary.as_json())
    return {"dropped": summary["links_dropped"], "unread": summary["unread"]}


async def crawl_site(folder: Path, web: Web, *seeds: str, **options: object) -> Crawled:
    urls = [f"http://a.test:{web.port}{seed}" for seed in seeds or ("/",)]
    return await crawl(folder, urls, ["*:127.0.0.1"], crawl__sitemaps=True, **options)


PAGES = ("/1?a=1&b=2", "/2", "/3")
SITEMAPS = {
    "a bare ampersand": urlset(["{site}/1?a=1&b=2", "{site}/2", "{site}/3"]),
    "a blank line before the declaration": "\n" + urlset(["{site}/1?a=1&amp;b=2", "{site}/2", "{site}/3"]),
    "relative addresses": urlset(["/1?a=1&amp;b=2", "2", "//a.test:{port}/3"]),
    "RSS": "<?xml version='1.0'?><rss version='2.0'><channel><link>{site}/no</link>"
    "<item><link>{site}/1?a=1&amp;b=2</link></item><item><link>/2</link></item><item><guid>{site}/3</guid></item>"
    "</channel></rss>",
    "Atom": "<feed xmlns='http://www.w3.org/2005/Atom'><link href='{site}/no'/>"
    "<entry><link href='{site}/1?a=1&amp;b=2'/></entry><entry><link href='/2'/><link rel='self' href='/no'/></entry>"
    "<entry><link rel='alternate' href='/3'/></entry></feed>",
    "lines": "{site}/1?a=1&b=2\n{site}/2\n/3\n",
}


@pytest.mark.parametrize("kind", SITEMAPS)
@pytest.mark.parametrize("form", ["plain", "gzip file", "gzip", "br", "gzip file in gzip"])
async def test_every_kind_of_sitemap_is_read(kind: str, form: str, tmp_path: Path) -> None:
    """Where robots.txt names it, and as a seed."""
    async with serve(NONE) as web:
        site = f"http://a.test:{web.port}"
        body = SITEMAPS[kind].replace("{site}", site).replace("{port}", str(web.port)).encode()
        headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/xml"),)
        if "gzip file" in form:
            body = gzip.compress(body)
            headers = (("Content-Type", "application/x-gzip"),)
        if form in ("gzip", "gzip file in gzip"):
            body, headers = gzip.compress(body), (*headers, ("Content-Encoding", "gzip"))
        elif form == "br":
            body, headers = brotli.compress(body), (*headers, ("Content-Encoding", "br"))
        web.mount("a.test", "/map.xml.gz", Answer(body=body, headers=headers))
        for path in ("/", *PAGES):
            web.mount("a.test", path, html("x"))
        await crawl_site(tmp_path / "seed", web, "/map.xml.gz")
        assert sorted(asked(web)) == sorted(["a.test/map.xml.gz", *(f"a.test{path}" for path in PAGES)])
        web.mount("a.test", "/robots.txt", plain("Sitemap: /map.xml.gz"))
        before = len(asked(web))
        crawled = await crawl_site(tmp_path / "named", web)
        assert sorted(asked(web)[before:]) == sorted(f"a.test{path}" for path in ("/", "/map.xml.gz", *PAGES))
        assert told(crawled) == {"dropped": {}, "unread": {}}


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_the_largest_sitemap_is_read_whole(encoding: str, tmp_path: Path) -> None:
    """Its URLs are those of another site, so that none is fetched. Its record has the part that a record may have."""
    choices = random.Random(1)
    urls = [f"http://b.test/{number:06}/{choices.randbytes(490).hex()}" for number in range(50_000)]
    body = urlset(urls).encode()
    assert 48 * MIB < len(body) <= 50 * MIB
    sent = gzip.compress(body, 1) if encoding else body
    headers = (("Content-Encoding", encoding),) if encoding else ()
    async with serve(NONE) as web:
        web.mount("a.test", "/robots.txt", plain("Sitemap: /map.xml"))
        web.mount("a.test", "/map.xml", Answer(body=sent, headers=headers))
        web.mount("a.test", "/", html("x"))
        crawled = await crawl_site(tmp_path / "named", web, fetch__timeout=60.0)
        assert told(crawled) == {"dropped": {"offsite": 50_000}, "unread": {}}
        record = crawled.by_url()[f"http://a.test:{web.port}/map.xml"]
        assert record.truncated
        assert len(record.body) == 5 * MIB
        crawled = await crawl_site(tmp_path / "seed", web, "/map.xml", fetch__timeout=60.0)
        assert told(crawled) == {"dropped": {"offsite": 50_000}, "unread": {}}
        assert len(crawled.pages) == 1


async def test_what_is_missing_of_a_sitemap_is_told(tmp_path: Path) -> None:
    async with serve(NONE) as web:
        site = f"http://a.test:{web.port}"
        maps = {
            "/early.xml": urlset([f"{site}/1"]).removesuffix("</urlset>").encode(),
            "/torn.xml.gz": gzip.compress(urlset([f"{site}/2"]).encode())[:-20],
            "/many.xml": urlset(f"http://b.test/{number}" for number in range(50_007)).encode(),
            "/long.xml": b"<urlset>" + b"<!-- -->" * (7 * MIB) + b"</urlset>",
            "/page.xml": b"<html><body>Sorry.</body></html>",
            "/bad.xml": urlset(["ftp://a.test/", "http://[", f"{site}/3"]).encode(),
        }
        named = "".join(f"Sitemap: {path}\n" for path in maps)
        web.mount("a.test", "/robots.txt", plain(f"{named}Sitemap: ftp://a.test/map.xml\nSitemap: /denied.xml"))
        for path, body in maps.items():
            web.mount("a.test", path, Answer(body=body))
        for path in ("/", "/1", "/2", "/3"):
            web.mount("a.test", path, html("x"))
        crawled = await crawl_site(tmp_path, web, fetch__timeout=60.0, crawl__deny=("denied",))
        assert {"a.test/1", "a.test/3"} <= set(asked(web))
        assert "a.test/denied.xml" not in asked(web)
        counts = told(crawled)
        assert counts["unread"] == {
            "sitemap_broken": 2, "sitemap_too_long": 2, "no_sitemap": 1, "sitemap_refused": 2,
        }  # fmt: skip
        assert counts["dropped"] == {"bad_url": 2, "offsite": 50_000, "sitemap_limit": 7}
        text = crawled.summary.as_text()
        assert "pages whose links were not all read:" in text
        assert "The sitemap ends early or is damaged: 2, for example http://a.test" in text


async def test_a_sitemap_may_be_on_another_host(tmp_path: Path) -> None:
    """Where robots.txt names it, and below an index there; whatever the filters of pages say. The pages are filtered,
    and sitemaps that only an index of the site names elsewhere are not fetched."""
    async with serve(NONE) as web:
        site, maps, other = (f"http://{name}.test:{web.port}" for name in ("a", "maps", "other"))
        web.mount(
            "a.test", "/robots.txt", plain(f"Sitemap: {maps}/index.xml\nSitemap: {site}/own.xml\nSitemap: /moved")
        )
        web.mount("maps.test", "/robots.txt", plain(f"Sitemap: {maps}/unwanted.xml"))
        web.mount("maps.test", "/index.xml", Answer(body=index([f"{maps}/1.xml.gz", f"{other}/2.xml"]).encode()))
        listed = [f"{site}/d/1", f"{site}/up", f"{maps}/page"]
        web.mount("maps.test", "/1.xml.gz", Answer(body=gzip.compress(urlset(listed).encode())))
        web.mount("a.test", "/own.xml", Answer(body=index([f"{other}/3.xml", "/below.xml"]).encode()))
        web.mount("a.test", "/below.xml", Answer(body=urlset([f"{site}/d/2"]).encode()))
        web.mount("a.test", "/moved", redirect(f"{maps}/target.xml"))
        web.mount("maps.test", "/target.xml", Answer(body=urlset([f"{site}/d/3"]).encode()))
        for path in ("/d/", "/d/1", "/d/2", "/d/3"):
            web.mount("a.test", path, html("x"))
        crawled = await crawl_site(tmp_path, web, "/d/", crawl__scope="path", crawl__allow=(r"/d/\d",))
        assert sorted(asked(web)) == [
            "a.test/below.xml", "a.test/d/", "a.test/d/1", "a.test/d/2", "a.test/d/3", "a.test/moved", "a.test/own.xml",
            "maps.test/1.xml.gz", "maps.test/index.xml", "maps.test/target.xml",
        ]  # fmt: skip
        assert told(crawled) == {"dropped": {"offsite": 4}, "unread": {}}


async def test_a_sitemap_leads_to_sitemaps_once(tmp_path: Path) -> None:
    """An index names sitemaps, but no index; and nothing that a sitemap lists as a page leads on as a sitemap for ever,
    at whatever depth the crawl ends."""
    for depth in (None, 0, 3):
        async with serve(NONE) as web:
            site = f"http://a.test:{web.port}"
            web.mount("a.test", "/robots.txt", plain("Sitemap: /i0.xml\nSitemap: /u0.xml"))
            for level in range(8):
                web.mount("a.test", f"/i{level}.xml", Answer(body=index([f"{site}/i{level + 1}.xml"]).encode()))
                as_page = urlset([f"{site}/u{level + 1}.xml", f"{site}/p{level}"])
                web.mount("a.test", f"/u{level}.xml", Answer(body=as_page.encode()))
                # Each kind leads to the other: a sitemap lists an index, whose sitemap lists one.
                web.mount("a.test", f"/m{level}.xml", Answer(body=index([f"{site}/n{level}.xml"]).encode()))
                web.mount("a.test", f"/n{level}.xml", Answer(body=urlset([f"{site}/m{level + 1}.xml"]).encode()))
                web.mount("a.test", f"/p{level}", html("x"))
            web.mount("a.test", "/", html("x"))
            folder = tmp_path / str(depth)
            crawled = await crawl_site(folder, web, "/", "/m0.xml", crawl__depth=depth)
            fetched = set(asked(web))
            assert {"a.test/i1.xml", "a.test/u1.xml", "a.test/p0", "a.test/n0.xml"} <= fetched
            assert not fetched & {f"a.test/{kind}{level}.xml" for kind in "iumn" for level in range(3, 9)}
            assert told(crawled)["unread"] == {"sitemap_nested": 1}
            assert told(crawled)["dropped"]["sitemap_limit"] == 1


async def test_sitemaps_wait_for_the_pages_of_those_before(tmp_path: Path) -> None:
    async with serve(NONE) as web:
        site = f"http://a.test:{web.port}"
        web.mount("a.test", "/robots.txt", plain("Sitemap: /index.xml"))
        web.mount("a.test", "/index.xml", Answer(body=index(f"{site}/map{n}.xml" for n in range(4)).encode()))
        for n in range(4):
            web.mount("a.test", f"/map{n}.xml", Answer(body=urlset(f"{site}/{n}/{m}" for m in range(10)).encode()))
            for m in range(10):
                web.mount("a.test", f"/{n}/{m}", html(f"<a href=/linked{n}>x</a>"))
            web.mount("a.test", f"/linked{n}", html("x"))
        web.mount("a.test", "/", html("x"))
        await crawl_site(tmp_path, web, crawl__domain_concurrency=1)
        order = asked(web)
        maps = [order.index(f"a.test/map{n}.xml") for n in range(4)]
        assert maps == sorted(maps)
        assert [after - before for before, after in pairwise(maps)] == [11, 11, 11]
        assert order.index("a.test/linked0") > maps[-1]
        for n in range(4):
            slow = urlset([f"{site}/{n}/0"]).encode()
            web.mount("a.test", f"/map{n}.xml", Answer(body=slow, delay_ms=300))
        await crawl_site(tmp_path / "2", web, crawl__domain_concurrency=16)
        # An index says nothing about the size of its sitemaps: the first of them is read alone.
        first, second, *_ = [record for record in web.log() if record.path.startswith("/map")][4:]
        assert first.ended <= second.started


async def test_no_more_is_queued_than_a_limit_of_pages_can_use(tmp_path: Path) -> None:
    async with serve(NONE) as web:
        site = f"http://a.test:{web.port}"
        web.mount("a.test", "/robots.txt", plain("Sitemap: /index.xml"))
        web.mount("a.test", "/index.xml", Answer(body=index(f"{site}/map{n}.xml" for n in range(3000)).encode()))
        for n in range(3000):
            web.mount("a.test", f"/map{n}.xml", Answer(body=urlset(f"{site}/{n}/{m}" for m in range(3000)).encode()))
        web.mount("a.test", "/", html("x"))
        for m in range(60):
            web.mount("a.test", f"/0/{m}", html("x"))
        for options in ({"crawl__max_pages": 20}, {"crawl__domain_max_pages": 20}):
            crawled = await crawl_site(tmp_path / next(iter(options)), web, crawl__domain_concurrency=1, **options)
            info = crawled.summary.info
            assert info is not None
            assert info.pages.fetched == 20
            assert info.pages.added < 1000
            assert told(crawled)["dropped"]["budget"] > 3000
