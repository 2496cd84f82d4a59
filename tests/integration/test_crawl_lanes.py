"""Links of a spider that are to be rendered: the crawl waits for a worker with a browser, and says so."""

import asyncio
import os
import subprocess
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.request import Lease, Outcome, Settlement
from tests.servers.crawling import command, resolving
from tests.servers.valkey import Server, standalone, wait_until

SPIDER = """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        for number, link in enumerate(page.links):
            yield page.follow(link, render=number % 2 == 0)
"""


async def render(server: Server, crawl: CrawlId) -> list[Lease]:
    """Fetch what is to be rendered, as a worker with a browser does; without one."""
    frontier = await ValkeyFrontier.connect(server.address)
    info = await frontier.crawl_info(crawl)
    assert info is not None
    seat = await frontier.open_leaseholder(pool=info.pool, spiders=["shop"], plain=False, browser=True)
    leases: list[Lease] = []
    while len(leases) < info.rendering.waiting:
        found = await seat.lease(limit=10)
        await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in found])
        leases += found
        await seat.wait_for_work(timeout_seconds=5)
    await seat.close()
    await frontier.close()
    return leases


def test_a_crawl_tells_that_it_waits_for_a_browser(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPIDER)
    with (
        standalone(tcp=True) as server,
        FakeWeb.start(WebSpec(hosts=1, pages=30)) as web,
        (tmp_path / "said").open("w") as said,
    ):
        crawl = subprocess.Popen(
            command(
                "crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--spider", "shop.py", "--depth", "1",
                "--rate", "100/1", "--crawl-id", "lanes", "--frontier", server.address,
            ),
            cwd=tmp_path,
            env=os.environ | {"GOSSAMER_BROWSER__PROGRAM": "no-such"},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )  # fmt: skip
        try:
            told = "to be rendered, and no worker of the pool"
            wait_until(lambda: told in (tmp_path / "said").read_text(), "the crawl to tell")
            leases = asyncio.run(render(server, CrawlId("cli", "lanes")))
            out, _ = crawl.communicate(timeout=90)
        finally:
            crawl.kill()
            crawl.communicate()
    assert leases
    assert all(lease.render and lease.depth == 1 for lease in leases)
    assert (crawl.returncode, "is finished" in out) == (0, True), out
