"""A crawl of a site to which connecting takes several times the even gap."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb.log import is_page
from tests.chaos.tcp_proxy import Network
from tests.servers.crawling import crawl

HITS = 20
PAGES = 120
WAY_SECONDS = 0.2
"""One way. TLS goes there and back before the request is sent: about eight requests are connecting at once."""
STALL_AFTER_SECONDS, STALL_SECONDS = 4.0, 2.0


async def test_after_a_stall_requests_that_were_connecting_do_not_go_together(tmp_path: Path) -> None:
    stalls: list[tuple[float, float]] = []

    def stall() -> None:
        begin = time.monotonic()
        time.sleep(STALL_SECONDS)
        stalls.append((begin, time.monotonic()))

    spec = WebSpec(hosts=1, pages=PAGES, out_degree=30, page_bytes=2000, keep_alive=False)
    with FakeWeb.start(spec, tls=True) as web, Network("127.0.0.1", web.port) as network:
        link = network.link()
        link.slow(WAY_SECONDS)
        asyncio.get_running_loop().call_later(STALL_AFTER_SECONDS, stall)
        crawled = await crawl(
            tmp_path, [f"https://site0.test:{link.port}/"], ["*:127.0.0.1"],
            crawl__rate=f"{HITS}/1", crawl__insecure=True, crawl__max_pages=PAGES, fetch__timeout=20.0,
        )  # fmt: skip
        log = [record for record in web.log() if is_page(record)]
    assert all(page.success for page in crawled.pages)
    ((begin, end),) = stalls
    times = sorted(record.started for record in log)
    before = [at for at in times if begin - 1.0 < at < begin]
    assert len(before) > HITS / 2, "it was fetched at its rate, although connecting takes long"
    close = [after - at < 1 / HITS / 3 for at, after in pairwise(at for at in times if at > end)]
    assert not any(one and two for one, two in pairwise(close)), "more than two came together"
