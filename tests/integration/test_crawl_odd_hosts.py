"""What pages may name as hosts: whatever the URL standard lets through must not end a crawl."""

import asyncio
import contextlib
import string
from pathlib import Path

from gossamer.errors import BadUrl
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.policy.urls import join
from tests.servers.crawling import FAST_FLAGS, crawl, gossamer, records_of


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


async def test_a_name_with_letters_of_any_alphabet_is_crawled_by_every_option(tmp_path: Path) -> None:
    """No name is looked up: the fake web is the only server that --resolve leaves."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for host in ("xn--bcher-kva.test", "xn--strae-oqa.test", "xn--nxasmm1c.test"):
            web.mount(host, "/", html(f"<a href='http://βόλος.test:{web.port}/'>x</a><a href='/2'>x</a>"))
            web.mount(host, "/2", html("two"))
        options = ["--resolve", "straße.test:127.0.0.1", "--resolve", "*.bücher.test:127.0.0.1"]
        options += ["--resolve", "bücher.test:127.0.0.1", "--resolve", "ΒΌΛΟς.test:127.0.0.1"]
        options += ["--allow-domain", "βόλος.test", *FAST_FLAGS, "--retries", "0", "-o", "pages.jsonl"]
        urls = [f"http://{name}.test:{web.port}/" for name in ("Bücher", "straße")]
        run = await asyncio.to_thread(gossamer, "crawl", *urls, *options, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    pages = records_of(tmp_path / "pages.jsonl")
    assert {page.status_code for page in pages} == {200}
    assert len(pages) == 6
