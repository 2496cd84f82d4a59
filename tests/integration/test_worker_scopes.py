"""A worker that asks one domain for several scopes uses the budget of each."""

import asyncio
from pathlib import Path

from gossamer.fakeweb import WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import BudgetScope, DomainPolicy, Terms
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.wiring.worker import open_worker
from tests.servers import crawls
from tests.servers.crawling import settings_for

SPIDERS = ("link", "wandering")


async def test_one_spider_does_not_wait_for_the_even_gap_of_another(tmp_path: Path) -> None:
    """Each has a budget of its own, a hit an hour, and one request: if one waited for the other, this would not end."""
    async with (
        EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server,
        serve(WebSpec(hosts=1)) as web,
    ):
        frontier = await ValkeyFrontier.connect(server.address)
        try:
            policy = DomainPolicy(hits=1, window_seconds=3600, moderated=True, scope=BudgetScope.TYPE)
            await frontier.set_domain_policy("a.test", policy)
            for spider in SPIDERS:
                web.mount("a.test", f"/{spider}", html("no links"))
                await crawls.open_crawl(frontier, [f"http://a.test:{web.port}/{spider}"], Terms(), spider=spider)
            async with open_worker(settings_for(tmp_path, ["*.test:127.0.0.1"]), frontier, pool="shared") as worker:
                running = asyncio.create_task(worker.run())
                async with asyncio.timeout(30):
                    await crawls.until_over(frontier)
                worker.stop()
                await asyncio.wait_for(running, 30)
            assert (await crawls.info(frontier)).total().fetched == len(SPIDERS)
        finally:
            await frontier.close()
