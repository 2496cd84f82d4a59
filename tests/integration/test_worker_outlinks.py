"""Every link of a page is counted once, however often the frontier has to be told of it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from gossamer.errors import FrontierUnavailable
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, Terms
from gossamer.model.domain import DomainPolicy
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from gossamer.wiring.parts import working
from tests.servers import crawls
from tests.servers.crawling import settings_for

HOSTS, PAGES = 4, 30
"""Every page links to all pages."""
LOST = 10


class BrokenShards(Shards):
    """Loses every fifth answer to an `add` or a `settle`, and all connections with it: a new era begins."""

    left = 0
    calls = 0

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        answer = await super().call(shard, script, *arguments, **options)
        if self.left and script.name in ("add", "settle"):
            self.calls += 1
            if self.calls % 5 == 0:
                self.left -= 1
                with contextlib.suppress(FrontierUnavailable):
                    await self.everywhere("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
                raise FrontierUnavailable("the answer was lost")
        return answer


async def test_outages_do_not_inflate_the_counts_of_links(tmp_path: Path) -> None:
    """Links that a repeated call had added itself are no duplicates, nor are those offered again in a new era."""
    async with (
        EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server,
        serve(WebSpec(hosts=1)) as web,
    ):
        urls = [f"http://site{number}.test:{web.port}/{page}" for number in range(HOSTS) for page in range(PAGES)]
        everything = html("".join(f'<a href="{url}">{url}</a>' for url in urls))
        for number in range(HOSTS):
            for page in range(PAGES):
                web.mount(f"site{number}.test", f"/{page}", everything)
        wire = await BrokenShards.connect(server.address)
        frontier = await ValkeyFrontier.over(wire, shards=3)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=10_000, window_seconds=1, moderated=False))
            run = await crawls.open_crawl(frontier, urls[:1], Terms())
            wire.left = LOST
            async with working(
                settings_for(tmp_path, ["*.test:127.0.0.1"]), frontier, pool="shared", run=run
            ) as worker:
                await asyncio.wait_for(worker.run(), 60)
            info = await crawls.info(frontier)
        finally:
            await frontier.close()
    assert wire.left == 0
    assert wire.era >= LOST
    total, links = info.total(), len(urls) ** 2
    assert (info.state, total.added, total.fetched) == (CrawlState.FINISHED, len(urls), len(urls))
    assert total.links_dropped == {"duplicate": links - (len(urls) - 1)}
