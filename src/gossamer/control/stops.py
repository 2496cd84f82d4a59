"""Stops crawls of a service: their requests, and the visits of one that is kept up to date."""

import asyncio
from typing import NamedTuple, Protocol

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState


class KeptCrawls(Protocol):
    """Crawls of a service that are kept up to date."""

    def end_visits(self, crawl: CrawlId, *, spider: str | None = None) -> bool:
        """End the visits of a crawl, with `spider` only if this spider does them. Return False if there are none.
        Blocking."""
        ...


class CrawlStop(NamedTuple):
    """Result of a stop."""

    purged: int
    """Waiting requests that were dropped."""
    state: CrawlState | None
    """State of the crawl now. None: there is no such crawl."""
    ended_visits: bool
    """True: the crawl had finished, and its pages would have been visited again."""


async def stop_crawl(
    frontier: ValkeyFrontier, kept: KeptCrawls | None, crawl: CrawlId, *, spider: str | None = None
) -> CrawlStop:
    """Stop a crawl or one spider's part of it, see `ValkeyFrontier.stop_crawl`. `kept`: None: the service
    keeps no crawl up to date. Raises SinkError where an index cannot be written."""
    purged = await frontier.stop_crawl(crawl, spider=spider)
    info = await frontier.crawl_info(crawl)
    state = info.state if info is not None else None
    # Between two rounds, the crawl has finished, or is forgotten. The recrawler ends the visits of others itself.
    ended = False
    if kept is not None and state in (None, CrawlState.FINISHED):
        ended = await asyncio.to_thread(kept.end_visits, crawl, spider=spider)
    return CrawlStop(purged, CrawlState.FINISHED if ended else state, ended)
