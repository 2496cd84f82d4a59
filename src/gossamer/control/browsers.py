"""Requests that are to be rendered in a browser, and whether any worker has one."""

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, workers_of
from gossamer.model.info import CrawlInfo, UrlInfo
from gossamer.policy.words import browser_command


async def waiting_for_browsers(frontier: ValkeyFrontier, info: CrawlInfo) -> int:
    """Return how many requests of a crawl wait for a worker with a browser while none is announced in its pool (the
    workers that work for it). 0: none waits, or there is such a worker. Raises FrontierUnavailable.

    Costs a call only where requests are to be rendered."""
    waiting = info.rendering.waiting
    return waiting if waiting and workers_of(info.pool) not in await frontier.browser_workers() else 0


async def browser_to_start(frontier: ValkeyFrontier, info: CrawlInfo, found: UrlInfo) -> str:
    """Return the command that starts what a request of a crawl waits for: a worker with a browser. Empty: it waits for
    none, or there is one. Raises FrontierUnavailable."""
    if not found.render or not found.waits or workers_of(info.pool) in await frontier.browser_workers():
        return ""
    return browser_command(info.pool)


_MOST_CRAWLS = 1000
"""Running crawls that are looked at. More take longer."""


async def crawls_without_browsers(frontier: ValkeyFrontier) -> list[tuple[CrawlInfo, int]]:
    """Return the running crawls of which requests wait as for `waiting_for_browsers`, and how many. Raises
    FrontierUnavailable."""
    crawls, _ = await frontier.list_crawls(state=CrawlState.RUNNING, limit=_MOST_CRAWLS)
    if not any(info.rendering.waiting for info in crawls):
        return []
    pools = await frontier.browser_workers()
    waiting = [(info, info.rendering.waiting) for info in crawls if info.rendering.waiting]
    return [(info, count) for info, count in waiting if workers_of(info.pool) not in pools]
