"""A worker that is taken for dead and begins anew while it asks many shards for work."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gossamer.fakeweb import WebSpec, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.request import MAX_DEATHS
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from gossamer.wiring.worker import open_worker
from tests.servers import crawls
from tests.servers.crawling import settings_for

SHARDS = 16
HOSTS = 40
HEARTBEAT_SECONDS = 1.0


class InterruptedShards(Shards):
    """Something else happens before a lease call, once, when so many are `left` until it."""

    left = SHARDS // 2 + 1
    event: Callable[[], Awaitable[Any]]

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        if script.name == "lease":
            self.left -= 1
            if self.left == 0:
                await self.event()
        return await super().call(shard, script, *arguments, **options)


async def test_what_it_gets_under_its_new_name_it_fetches(tmp_path: Path) -> None:
    """Some shards have answered to its old name, the others answer to the new one, in one and the same question."""
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        wire = await InterruptedShards.connect(server.address)
        frontier = await ValkeyFrontier.from_connection(wire, shards=SHARDS, dead_after_seconds=HEARTBEAT_SECONDS)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=10_000, window_seconds=1, moderated=False))
            async with serve(WebSpec(hosts=HOSTS, pages=1)) as web:
                urls = [f"http://site{number}.test:{web.port}/" for number in range(HOSTS)]
                run = await crawls.open_crawl(frontier, urls, Terms(maxdepth=0))
                settings = settings_for(
                    tmp_path, ["*.test:127.0.0.1"], allow_networks=("127.0.0.0/8",), worker__heartbeat=HEARTBEAT_SECONDS
                )
                async with open_worker(settings, frontier, pool="shared", run=run) as worker:
                    wire.event = lambda: taken_for_dead(frontier, worker._holder)
                    await asyncio.wait_for(worker.run(), 60)
                info = await crawls.info(frontier)
                assert info.state is CrawlState.FINISHED
                assert info.total().fetched == HOSTS
        finally:
            await frontier.close()


async def taken_for_dead(frontier: ValkeyFrontier, holder: ValkeyLeaseholder) -> None:
    """Every shard forgets it; its next heartbeats tell it so."""
    for shard in range(SHARDS):
        name = holder.session_name(shard)
        await frontier._commands.call(
            shard, "reclaim", int(HEARTBEAT_SECONDS * 1000), 3_600_000, 200, name, 0, MAX_DEATHS
        )
        await holder.heartbeat(shard)
