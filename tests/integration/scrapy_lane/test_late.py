"""A hit is meant for when it was charged: what Scrapy itself held up asks for another one."""

import asyncio
from pathlib import Path

from gossamer.control import domains
from gossamer.fakeweb import Answer, FakeWeb
from gossamer.fakeweb.answer import plain
from gossamer.model.crawl import DomainPolicy
from gossamer_fakeweb.log import is_page, max_in_any_window
from tests.servers.valkey import Server

from .lane import HOST, asking, at, page, scraper

HITS, WINDOW_SECONDS = 6, 1.0
ROBOTS_MS = 1500.0
"""Longer than the window: the hits of those that wait for it are free again, and handed out again."""
BLUR_SECONDS = 0.4


async def test_what_waited_for_a_robots_txt_does_not_go_all_at_once(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    paths = [f"/{number}" for number in range(14)]
    for path in paths:
        web.mount(HOST, path, page())
    allowed = plain("User-agent: *\nAllow: /\n")
    web.mount(HOST, "/robots.txt", Answer(headers=allowed.headers, body=allowed.body, delay_ms=ROBOTS_MS))
    async with asking(tmp_path, server) as frontier:
        policy = DomainPolicy(hits=HITS, window_seconds=WINDOW_SECONDS, moderated=False)
        await domains.replace_policy(frontier, None, policy)
    seeds = [at(web, path) for path in paths]
    with scraper(tmp_path, server, "links", seeds, ROBOTSTXT_OBEY="true", CONCURRENT_REQUESTS_PER_DOMAIN="16") as one:
        await asyncio.to_thread(one.finish)
    asked = [record for record in web.log() if is_page(record)]
    assert len(asked) == len(paths)
    assert max_in_any_window(asked, HOST, WINDOW_SECONDS - BLUR_SECONDS) <= HITS
