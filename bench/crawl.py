"""The first table: every crawler on the same site, one after the other."""

import dataclasses
from collections.abc import Sequence

from bench import measure
from bench.crawlers import Crawler, Job, Store
from bench.errors import BenchFailed
from bench.output import complaint
from bench.progress import say
from bench.results import CrawlRow, SiteResult, middle
from bench.store import disk_folder, running
from bench.webserver import ADDRESS, Served, lonely_url, serve, site_of
from bench.websites import Website

_SHORT_SECONDS = 15.0
"""A crawl that is over so soon is measured several times."""
_TIMEOUT_SECONDS = 900.0
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": ""}
"""Some machines set these: then a checkout is compiled anew at each start, which an installed package never is."""


def measure_site(
    website: Website,
    crawlers: Sequence[Crawler],
    sites: list[SiteResult],
    *,
    slow_share: float,
    repeats: int,
    startup: dict[str, float],
) -> None:
    """Crawl a site with each crawler. The result goes to `sites` at once and gets its rows one by one, so that an
    interrupted run keeps them.

    `slow_share`: share of the pages that slow crawlers get. `repeats`: of short crawls. `startup`: CPU seconds by
    crawler, filled where it is not yet. A crawler that fails leaves a row that says why.
    """
    say(f"site {website.name}: {website.describe()}")
    result = SiteResult(website.name, website.describe(), "", [])
    sites.append(result)
    for is_slow, crawled in ((False, website), (True, website.share(slow_share))):
        chosen = [crawler for crawler in crawlers if crawler.is_slow is is_slow]
        if chosen:
            with serve(crawled) as served:
                result.server = served.software
                for crawler in chosen:
                    result.rows.append(_row(crawled, served, crawler, repeats, startup))
    names = [crawler.name for crawler in crawlers]
    result.rows.sort(key=lambda row: names.index(row.crawler))


def _row(website: Website, served: Served, crawler: Crawler, repeats: int, startup: dict[str, float]) -> CrawlRow:
    if crawler.missing:
        return CrawlRow(crawler=crawler.name, title=crawler.title, note=f"left out: {crawler.missing}", left_out=True)
    try:
        if crawler.name not in startup:
            startup[crawler.name] = min(
                crawl(website, served, crawler, [lonely_url(website, served)]).all_cpu_seconds for _ in range(repeats)
            )
        crawls: list[CrawlRow] = []
        while not crawls or (len(crawls) < repeats and crawls[-1].wall_seconds < _SHORT_SECONDS):
            crawls.append(crawl(website, served, crawler))
            say(f"  {crawler.title}: {crawls[-1].pages_per_cpu_second:,.0f} pages per CPU-second {crawls[-1].note}")
    except BenchFailed as failure:
        say(f"  {crawler.title}: {failure}")
        return CrawlRow(crawler=crawler.name, title=crawler.title, note=str(failure))
    return dataclasses.replace(
        middle(crawls),
        crawls=len(crawls),
        startup_cpu_seconds=startup[crawler.name],
        rival=crawler.rival,
        note=next((crawl.note for crawl in crawls if crawl.note), ""),
    )


def crawl(
    website: Website, served: Served, crawler: Crawler, only: list[str] | None = None, *, store: Store | None = None
) -> CrawlRow:
    """One crawl: of the whole site, or of these pages, which must not link anywhere.

    `store`: another one than the crawler has by default. Raises BenchFailed.
    """
    site = site_of(website, served)
    with disk_folder() as folder, running(store or crawler.store) as valkey:
        (folder / "seeds").write_text("".join(f"{url}\n" for url in only or site.seeds()))
        (folder / "own").mkdir()
        job = Job(folder / "seeds", folder / "pages.jsonl", f"{ADDRESS}:{served.port}", folder / "own", valkey.address)
        web_before = measure.cpu_seconds(served.pid)
        store_before = measure.cpu_seconds(valkey.pid) if valkey.pid else 0.0
        usage = measure.run(
            crawler.command(job), environment=ENVIRONMENT, log=folder / "said", timeout_seconds=_TIMEOUT_SECONDS
        )
        store_after = measure.cpu_seconds(valkey.pid) if valkey.pid else 0.0
        if only:
            pages, least = set(only), 1
        else:
            pages = {site.url(host, page) for host in range(site.spec.hosts) for page in range(site.spec.pages)}
            least = site.spec.page_bytes * 9 // 10  # characters; some of the text is not ASCII
        if not crawler.writes_bodies:
            least = 0
        return CrawlRow(
            crawler=crawler.name,
            title=crawler.title,
            pages=len(pages),
            crawls=1,
            wall_seconds=usage.wall_seconds,
            cpu_seconds=usage.cpu_seconds,
            web_cpu_seconds=measure.cpu_seconds(served.pid) - web_before,
            store_cpu_seconds=store_after - store_before,
            peak_bytes=usage.peak_bytes,
            note=complaint(job.output, pages, least_body=least),
        )
