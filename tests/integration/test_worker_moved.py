"""A redirect to another domain goes on there as the same request: once, and recorded once."""

from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.fakeweb import WebSpec, html, serve
from gossamer.fakeweb.answer import redirect
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.model.record import PageRecord
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from gossamer.wiring.worker import open_worker
from tests.servers import crawls
from tests.servers.crawling import records_of, settings_for


class ForgetfulShards(Shards):
    """While it `loses`, the answer to the next addition is lost."""

    loses = False

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        reply = await super().call(shard, script, *arguments, **options)
        if script.name == "add" and self.loses:
            self.loses = False
            raise FrontierUnavailable("the answer was lost")
        return reply


@pytest.mark.parametrize("lost", [False, True], ids=["", "its answer lost"])
async def test_a_redirect_to_another_domain_is_recorded_once(tmp_path: Path, lost: bool) -> None:
    """Also when it had to be said twice that it goes on: the second time, its target is known by its own doing."""
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        wire = await ForgetfulShards.connect(server.address)
        frontier = await ValkeyFrontier.from_connection(wire)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=100, window_seconds=1, moderated=False))
            async with serve(WebSpec(hosts=1, pages=1)) as web:
                url, target = f"http://here.test:{web.port}/", f"http://there.test:{web.port}/"
                web.mount("here.test", "/", redirect(target))
                web.mount("there.test", "/", html("it is here"))
                run = await crawls.open_crawl(frontier, [url], Terms(maxdepth=0))
                settings = settings_for(tmp_path, ["*.test:127.0.0.1"], allow_networks=("127.0.0.0/8",))
                wire.loses = lost
                async with open_worker(settings, frontier, pool="shared", run=run) as worker:
                    await worker.run()
                info = await crawls.info(frontier)
                assert info.state is CrawlState.FINISHED
                assert info.total().fetched == 1
                (record,) = records_of(tmp_path / "pages.jsonl")
                assert isinstance(record, PageRecord)
                assert (record.url, record.response_url, record.success) == (url, target, True)
        finally:
            await frontier.close()
