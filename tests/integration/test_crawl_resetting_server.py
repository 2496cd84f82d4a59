"""A crawl of a server that resets every connection that is used a second time."""

from pathlib import Path

from tests.servers.crawling import crawl
from tests.servers.resetting import resetting_server

PAGES = 30
HITS = 10


async def test_a_server_that_resets_reused_connections_gets_no_more_than_its_budget(tmp_path: Path) -> None:
    """Each repeated request takes another hit, and after two resets each request has its own connection."""
    async with resetting_server(PAGES) as server:
        seed = f"http://resets.test:{server.port}/"
        crawled = await crawl(
            tmp_path, [seed], ["*:127.0.0.1"], crawl__rate=f"{HITS}/1", fetch__retry_base=60.0, fetch__timeout=10.0
        )
    pages = crawled.by_url()
    assert len(pages) == PAGES + 1
    assert all(page.success and page.attempt == 0 for page in pages.values())
    times = server.times
    assert len(times) == PAGES + 1 + server.resets
    assert all(times[at + HITS] - times[at] > 0.8 for at in range(len(times) - HITS))
    assert server.resets == server.reused == 2
