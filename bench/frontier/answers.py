"""Measures how long the frontier takes to report the state of a large crawl."""

import time
from collections.abc import Iterator

from bench.frontier.load import Load, calls
from bench.frontier.stage import stage
from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.request import Batch

_PRIORITIES = 5
_ASKED = 200


async def measure_answers(*, domains: int, urls: int) -> list[Figure]:
    """Measure it for one crawl with so many requests queued, over so many domains and five priorities."""
    say(f"frontier: information about a crawl with {urls:,} queued")
    async with stage() as it:
        load = Load(it.frontier.secret)
        crawl = Crawl(id=CrawlId("bench", "large"))
        run = await it.frontier.open_crawl(crawl)
        for call in calls(_batches(load, domains, urls)):
            await it.frontier.add(run, Terms(), call)
        infos, pages = [], []
        cursor = ""
        for _ in range(_ASKED):
            began = time.perf_counter()
            await it.frontier.crawl_info(crawl.id)
            between = time.perf_counter()
            _, cursor = await it.frontier.crawl_domains(crawl.id, cursor=cursor, limit=100)
            infos.append(between - began)
            pages.append(time.perf_counter() - between)
    where = f"{urls:,} queued on {domains:,} domains"
    return [
        Figure(f"crawl_info, {where}: median", quantile(infos, 0.5) * 1000, "ms", "5"),
        Figure(f"crawl_info, {where}: p99", quantile(infos, 0.99) * 1000, "ms", "5"),
        Figure("a page of 100 of its domains: median", quantile(pages, 0.5) * 1000, "ms", "5"),
    ]


def _batches(load: Load, domains: int, urls: int) -> Iterator[Batch]:
    each = urls // domains // _PRIORITIES
    for priority in range(_PRIORITIES):
        for domain in range(domains):
            yield load.batch(domain, range(priority * each, (priority + 1) * each), priority=-10 * priority)
