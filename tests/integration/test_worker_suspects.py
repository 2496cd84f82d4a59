"""Requests on their last chance: a worker fetches one of them at a time."""

import asyncio
from itertools import pairwise
from pathlib import Path

import msgspec

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.request import MAX_DEATHS
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.worker import open_worker
from gossamer_fakeweb.log import is_page
from tests.servers import crawls
from tests.servers.crawling import settings_for

HOSTS = 3


async def test_what_died_beside_a_deadly_page_is_not_fetched_beside_it_again(tmp_path: Path) -> None:
    """Else one page that kills its workers would take all those with it for good that were under way beside it."""
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        frontier = await ValkeyFrontier.connect(server.address)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1, moderated=False))
            async with serve(WebSpec(hosts=HOSTS, pages=1)) as web:
                for number in range(HOSTS):
                    page = msgspec.structs.replace(html("it took a while"), delay_ms=300.0)
                    web.mount(f"site{number}.test", "/", page)
                urls = [f"http://site{number}.test:{web.port}/" for number in range(HOSTS)]
                run = await crawls.open_crawl(frontier, urls, Terms(maxdepth=0))
                for _ in range(MAX_DEATHS - 1):
                    await crawls.die_with_leases(server.address, HOSTS)
                settings = settings_for(tmp_path, ["*.test:127.0.0.1"], allow_networks=("127.0.0.0/8",))
                async with open_worker(settings, frontier, pool="shared", run=run) as worker:
                    await asyncio.wait_for(worker.run(), 60)
                info = await crawls.info(frontier)
                assert (info.state, info.total().fetched) == (CrawlState.FINISHED, HOSTS)
                asked = sorted((r for r in web.log() if is_page(r)), key=lambda record: record.started)
                assert len(asked) == HOSTS
                for earlier, later in pairwise(asked):
                    assert earlier.ended is not None
                    assert earlier.ended <= later.started
        finally:
            await frontier.close()
