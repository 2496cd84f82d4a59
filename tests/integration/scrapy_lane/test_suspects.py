"""A request that every process before died with runs alone in a Scrapy process, for as long as its lease lasts."""

import asyncio
from pathlib import Path

from gossamer.control import domains
from gossamer.fakeweb import Answer, FakeWeb
from gossamer.fakeweb.answer import redirect
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.request import MAX_DEATHS
from gossamer_fakeweb.log import is_page
from tests.servers import crawls
from tests.servers.valkey import Server

from .lane import HOST, asking, at, page, prefix, scraper

CRAWL = CrawlId("scrapybot", "links")
POOL = f"scrapy-{CRAWL.token}"
BESIDE = 15
"""Requests to another site, a fifth of a second apart: some are due whenever another one is under way for a second."""


async def test_a_suspect_runs_alone_through_its_redirects(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    slow = Answer(headers=page().headers, body=page().body, delay_ms=1000.0)
    web.mount(HOST, "/suspect", redirect("/middle"))
    web.mount(HOST, "/middle", redirect("/end"))
    web.mount(HOST, "/end", slow)
    others = [f"http://site1.test:{web.port}/beside/{number}" for number in range(BESIDE)]
    async with asking(tmp_path, server) as frontier:
        await domains.change_policy(frontier, None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        await domains.change_policy(frontier, "site1.test", DomainPolicy(hits=5, window_seconds=1.0, moderated=True))
        crawl = Crawl(id=CRAWL, pool=POOL)
        await crawls.open_crawl(frontier, [at(web, "/suspect")], Terms(), crawl=crawl, spider="links")
        for _ in range(MAX_DEATHS - 1):
            await crawls.die_with_leases(server.address, 1, pool=POOL, spider="links", prefix=prefix(tmp_path))
        await crawls.open_crawl(frontier, others, Terms(), crawl=crawl, spider="links")
    with scraper(tmp_path, server, "links", []) as running:
        done = await asyncio.to_thread(running.finish)
    assert done.exit_code == 0, done.log
    asked = [record for record in web.log() if is_page(record)]
    alone = [record for record in asked if record.host == HOST]
    assert [record.path for record in alone] == ["/suspect", "/middle", "/end"]
    assert alone[-1].ended is not None
    beside = [record for record in asked if record.host != HOST]
    assert len(beside) == BESIDE
    for record in beside:
        assert record.ended is not None
        assert record.ended <= alone[0].started or record.started >= alone[-1].ended, record
