"""How a process comes into its crawl: an unfinished one is joined, a finished one begins the next run."""

from gossamer.errors import CrawlRefused
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import Crawl, CrawlState, Run


async def join(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    """The run that this process works on, with this project's wishes. `fresh`: a finished crawl's next run has seen
    nothing. Raises CrawlRefused for a crawl that was stopped or has expired."""
    run = await _joined(frontier, crawl, fresh=fresh)
    if (run.crawl.rate, run.crawl.concurrency) != (crawl.rate, crawl.concurrency):
        run = await frontier.set_wish(run, rate=crawl.rate, concurrency=crawl.concurrency)
    return run


async def _joined(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    if not fresh:
        return await frontier.open_crawl(crawl)
    while True:
        try:
            return await frontier.open_crawl(crawl, fresh=True)
        except CrawlRefused:
            info = await frontier.crawl_info(crawl.id)
            if info is not None and info.state not in (CrawlState.RUNNING, CrawlState.FINISHED):
                raise
        # Somebody else began it, or it is not finished yet.
        if info is not None and info.state is CrawlState.RUNNING:
            return await frontier.open_crawl(crawl)
