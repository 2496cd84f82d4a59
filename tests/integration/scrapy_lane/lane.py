"""What the tests of the lane ask again and again."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gossamer.fakeweb import Answer, FakeWeb
from gossamer.fakeweb.answer import html
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.info import SpiderCounts
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server

HOST = "site0.test"


def prefix(folder: Path) -> str:
    """Keys of this test alone."""
    return "t" + hashlib.blake2b(str(folder).encode(), digest_size=6).hexdigest()


def scraper(
    folder: Path,
    server: Server,
    spider: str,
    seeds: list[str],
    *,
    name: str = "one",
    arguments: dict[str, str] | None = None,
    **settings: Any,
) -> Scraper:
    own = {"GOSSAMER_PREFIX": prefix(folder), "GOSSAMER_WORKER__HEARTBEAT": "1"}
    return Scraper(
        folder,
        spider,
        frontier=server.address,
        name=name,
        settings=own | settings,
        arguments={"seeds": ",".join(seeds)} | (arguments or {}),
    )


@asynccontextmanager
async def asking(folder: Path, server: Server) -> AsyncIterator[ValkeyFrontier]:
    """The frontier that the processes share."""
    frontier = await ValkeyFrontier.connect(server.address, prefix=prefix(folder))
    try:
        yield frontier
    finally:
        await frontier.close()


async def counts(folder: Path, server: Server, spider: str) -> SpiderCounts:
    """Where the spider's crawl stands."""
    async with asking(folder, server) as frontier:
        info = await frontier.crawl_info(CrawlId("scrapybot", spider))
        assert info is not None
        return info.total()


def page(*links: str) -> Answer:
    return html("<html><body>" + "".join(f'<a href="{link}">{link}</a>' for link in links) + "</body></html>")


def at(web: FakeWeb, path: str) -> str:
    """The address of a mounted page."""
    return f"http://{HOST}:{web.port}{path}"
