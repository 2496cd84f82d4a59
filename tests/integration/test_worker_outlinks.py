"""Every link of a page is counted once, however often the frontier has to be told of it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from gossamer.errors import FrontierUnavailable
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from gossamer.valkey.topology import Topology
from gossamer.wiring.worker import open_worker
from tests.servers import crawls
from tests.servers.crawling import settings_for

HOSTS, PAGES = 4, 30
"""Every page links to all pages. Each host has one page in flight at most (`ONE_AT_A_TIME`): a `settle` settles no
more than `HOSTS` pages, so the pages take at least `PAGES` calls, however fast the machine is."""
ONE_AT_A_TIME = DomainPolicy(hits=10_000, window_seconds=1, moderated=False, concurrency=1)
LOST, EVERY = 10, 3
assert LOST * EVERY <= PAGES


class BrokenShards(Shards):
    """Loses the first answer to an `add` or a `settle`, then every third, and all connections with each of them.

    The first call adds links that are new; each loss begins a new data epoch.
    """

    left = 0
    calls = 0

    def __init__(self, topology: Topology, *, confirm_ms: int) -> None:
        super().__init__(topology, confirm_ms=confirm_ms)
        self.losing = asyncio.Lock()

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        answer = await super().call(shard, script, *arguments, **options)
        if self.left and script.name in ("add", "settle"):
            self.calls += 1
            if self.calls % EVERY == 1:
                self.left -= 1
                await self.lose_connections()
                raise FrontierUnavailable("the answer was lost")
        return answer

    async def lose_connections(self) -> None:
        """End all connections; return when their loss is noticed, so that each loss begins a data epoch."""
        async with self.losing:
            data_epoch = self.epoch.number
            with contextlib.suppress(FrontierUnavailable):
                await self.everywhere("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
            while True:
                await asyncio.sleep(0)
                if self.epoch.number != data_epoch:
                    return


async def test_outages_do_not_inflate_the_counts_of_links(tmp_path: Path) -> None:
    """Links that a repeated call had added itself are no duplicates, nor are those offered in a new data epoch."""
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
        frontier = await ValkeyFrontier.from_connection(wire, shards=3)
        try:
            await frontier.set_domain_policy(None, ONE_AT_A_TIME)
            run = await crawls.open_crawl(frontier, urls[:1], Terms())
            wire.left = LOST
            async with open_worker(
                settings_for(tmp_path, ["*.test:127.0.0.1"]), frontier, pool="shared", run=run
            ) as worker:
                await asyncio.wait_for(worker.run(), 60)
            info = await crawls.info(frontier)
        finally:
            await frontier.close()
    assert wire.left == 0
    assert wire.epoch.number >= LOST
    total, links = info.total(), len(urls) ** 2
    assert (info.state, total.added, total.fetched) == (CrawlState.FINISHED, len(urls), len(urls))
    assert total.links_dropped == {"duplicate": links - (len(urls) - 1)}
