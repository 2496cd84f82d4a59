"""What pages may name as hosts: whatever the URL standard lets through must not end a crawl."""

import contextlib
import string
from pathlib import Path

from gossamer.errors import BadUrl
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.policy.urls import join
from tests.servers.crawling import crawl


async def test_no_host_that_a_page_names_ends_the_crawl(tmp_path: Path) -> None:
    """Every printable character in a host. Each that makes a URL has its record, whatever that says."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        seed = f"http://a.test:{web.port}/"
        links = [f"http://a{sign}b.test:{web.port}/" for sign in string.punctuation]
        web.mount("a.test", "/", html("".join(f"<a href='{link.replace(chr(39), '&#39;')}'>x</a>" for link in links)))
        urls = {seed}
        for link in links:
            with contextlib.suppress(BadUrl):
                urls.add(join(seed, link))
        assert any("a,b.test" in url for url in urls)
        crawled = await crawl(tmp_path, [seed], ["*:127.0.0.1"], crawl__scope="any", fetch__retries=0)
        assert crawled.summary.info is not None
        assert set(crawled.by_url()) == urls
