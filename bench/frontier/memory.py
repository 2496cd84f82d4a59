"""Bytes of the server's memory for each URL: waiting, and remembered."""

from bench.frontier.load import URL_BYTES, Load, calls
from bench.frontier.stage import stage
from bench.progress import say
from bench.results import Figure
from gossamer.model.crawl import Crawl, CrawlId, Terms

_DOMAINS = 100
"""Number of domains, so small that their own memory does not show."""


async def measure_memory(*, urls: int) -> list[Figure]:
    """Measure the memory of one crawl's URLs."""
    say(f"frontier: memory of {urls:,} URLs")
    async with stage() as it:
        load = Load(it.frontier.secret)
        crawl = Crawl(id=CrawlId("bench", "memory"))
        run = await it.frontier.open_crawl(crawl)
        empty = await it.memory_bytes()
        batches = (load.batch(number % _DOMAINS, range(number, number + 20)) for number in range(0, urls, 20))
        for call in calls(batches):
            await it.frontier.add(run, Terms(), call)
        full = await it.memory_bytes()
        # Of a stopped crawl the queues go and the seen-set stays.
        await it.frontier.stop_crawl(crawl.id)
        seen = (await it.memory_bytes() - empty) / urls
    return [
        Figure(f"a seen URL, of {urls:,}", seen, "bytes", "11"),
        Figure(f"a queued URL of {URL_BYTES} bytes", (full - empty) / urls - seen, "bytes", f"{URL_BYTES + 16}"),
    ]
