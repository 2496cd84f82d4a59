"""A worker that is taken for dead with a page again and again, and lives."""

import asyncio
from pathlib import Path

import msgspec

from gossamer.fakeweb import FakeWeb, WebSpec, html
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Terms
from gossamer.model.request import MAX_DEATHS
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.valkey import standalone, wait_until

HEARTBEAT_SECONDS = 1.0
PATIENCE_SECONDS = 60.0


async def test_a_page_whose_worker_stands_still_three_times_is_fetched(tmp_path: Path) -> None:
    """Each time for so long that it is taken for dead while it waits for the page."""
    with (
        standalone(tcp=True) as server,
        FakeWeb.start(WebSpec(hosts=1, pages=1)) as web,
        Fleet(
            tmp_path,
            resolve=web.resolve_overrides(),
            environment={"GOSSAMER_WORKER__HEARTBEAT": str(HEARTBEAT_SECONDS)},
        ) as fleet,
    ):
        web.mount("site0.test", "/", msgspec.structs.replace(html("it took a while"), delay_ms=1000.0))
        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=HEARTBEAT_SECONDS)
        await crawls.open_crawl(frontier, web.seeds(), Terms(maxdepth=0))
        worker = fleet.start(frontier=server.address)

        def asked() -> int:
            return sum(record.path == "/" for record in web.log())

        async with asyncio.timeout(PATIENCE_SECONDS):
            for times in range(1, MAX_DEATHS + 1):
                await asyncio.to_thread(wait_until, lambda times=times: asked() >= times, "the page to be asked for")
                worker.freeze()
                await reclaimed(frontier)
                worker.thaw()
            info = await crawls.until_over(frontier)
        assert (info.state, info.total().fetched, info.total().failed) == (CrawlState.FINISHED, 1, {})
        await frontier.close()


async def reclaimed(frontier: ValkeyFrontier) -> None:
    """Return when the worker was taken for dead."""
    while True:
        if await frontier.maintain():
            return
        await asyncio.sleep(0.05)
