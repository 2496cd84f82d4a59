"""A hit is spent when the page is asked for, not while its robots.txt is awaited."""

from pathlib import Path

from gossamer.fakeweb import FakeWeb, Robots, WebSpec
from gossamer_fakeweb import max_in_any_window
from gossamer_fakeweb.log import is_page
from tests.politeness.stalls import bursts
from tests.servers.crawling import crawl

SLOW = WebSpec(hosts=1, pages=20, page_bytes=500, robots=(Robots.SLOW,), robots_slow_ms=700)


async def test_what_waited_together_for_robots_does_not_go_together(tmp_path: Path) -> None:
    with FakeWeb.start(SLOW) as web:
        urls = [web.site.url(0, number) for number in range(1, 13)]
        crawled = await crawl(
            tmp_path, urls, web.resolve_overrides(), crawl__rate="2/1", crawl__domain_concurrency=12, crawl__depth=0
        )
        assert len(crawled.by_url()) == 12
        assert all(page.success for page in crawled.pages)
        assert max_in_any_window(web.log(), "site0.test", 0.8) <= 2


async def test_what_waited_together_for_robots_is_evenly_spaced(tmp_path: Path) -> None:
    with FakeWeb.start(SLOW) as web:
        urls = [web.site.url(0, number) for number in range(1, 20)]
        crawled = await crawl(tmp_path, urls, web.resolve_overrides(), crawl__rate="20/1", crawl__depth=0)
        assert len(crawled.by_url()) == 19
        starts = sorted(record.started for record in web.log() if is_page(record))
        # A machine that has much else to do may bring a few together, but not all that waited.
        assert all(len(row) <= 5 for row in bursts(starts))
