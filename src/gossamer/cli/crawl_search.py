"""Finds the crawl that a URL belongs to, for `gossamer why`."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, QueryOrder, Run, Terms
from gossamer.model.info import CrawlInfo, UrlInfo
from gossamer.model.record import PageRecord
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query
from gossamer.sinks.jsonl import read_records
from gossamer.wiring.frontier import CrawlNote, known_crawls, read_note
from gossamer.wiring.plan import APPID

MOST_CRAWLS = 500
"""Crawls that are searched where none is named."""
_SCRAPY_POOL = "scrapy-"


@dataclass(slots=True)
class KnownCrawl:
    """A crawl as the frontier and this data directory know it."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl, or not any more."""
    run: Run | None
    terms: list[Terms]
    """Terms of every submission. Empty: they are not known."""
    spiders: list[str]
    note: CrawlNote | None
    """Note of the command that started the crawl. None: it was not started with this data directory."""

    @property
    def is_scrapy_project(self) -> bool:
        """True: processes of a Scrapy project do the crawl, with the project's own settings."""
        return self.info is not None and self.info.pool.startswith(_SCRAPY_POOL)


async def find_crawl(
    frontier: ValkeyFrontier, data_dir: Path, url: str, *, appid: str | None, crawl_id: str | None
) -> tuple[KnownCrawl, UrlInfo | None]:
    """Return a crawl, and the state of the URL in its frontier; None where the frontier does not know the crawl.

    Candidates are the crawls that were started with this data directory, the latest first, then those of the frontier,
    running ones first. The result is the first one that has queued or seen the URL, else the first with a record of
    the URL, else the first. Raises BadInput where there is none.
    """
    crawls = [crawl async for crawl in _candidates(frontier, data_dir, appid=appid, crawl_id=crawl_id)]
    if not crawls:
        raise BadInput(_no_crawl(data_dir, appid, crawl_id))
    first: UrlInfo | None = None
    for crawl in crawls:
        known = await _find(frontier, crawl, url)
        if known is not None and known.seen:
            return crawl, known
        if crawl is crawls[0]:
            first = known
    for crawl in crawls if len(crawls) > 1 else ():
        if crawl.note is not None and last_record(crawl.note, url) is not None:
            return crawl, await _find(frontier, crawl, url)
    return crawls[0], first


def last_record(note: CrawlNote, url: str) -> PageRecord | None:
    """Return the last record of this URL in those outputs of the crawl that can be read. None: there is none."""
    last: PageRecord | None = None
    for record in _records(note):
        if url in (record.url, record.response_url) or any(hop.url == url for hop in record.redirects):
            last = record
    return last


def _records(note: CrawlNote) -> Iterator[PageRecord]:
    for output in note.outputs:
        path = Path(output)
        if ".jsonl" not in path.name or not path.is_file():
            continue
        try:
            for record in read_records(path):
                if isinstance(record, PageRecord) and record.crawlid == note.run.crawl.id.crawlid:
                    yield record
        except BadInput:
            continue


async def _candidates(
    frontier: ValkeyFrontier, data_dir: Path, *, appid: str | None, crawl_id: str | None
) -> AsyncIterator[KnownCrawl]:
    here = [CrawlId(APPID, name) for name in reversed(known_crawls(data_dir))]
    if crawl_id is not None:
        named = [CrawlId(appid or APPID, crawl_id)]
    else:
        named = [crawl for crawl in here if appid in (None, APPID)]
    seen: set[CrawlId] = set()
    for crawl in named:
        seen.add(crawl)
        if (known := await _known_crawl(frontier, data_dir, crawl)) is not None:
            yield known
    if crawl_id is not None and appid is not None:
        return
    others = [crawl for crawl in await _listed(frontier, appid) if crawl not in seen]
    found = await asyncio.gather(
        *(_known_crawl(frontier, data_dir, crawl) for crawl in others if crawl_id in (None, crawl.crawlid))
    )
    for known in sorted((one for one in found if one is not None), key=_running_first):
        yield known


async def _listed(frontier: ValkeyFrontier, appid: str | None) -> Sequence[CrawlId]:
    found: list[CrawlId] = []
    cursor = ""
    while True:
        page, cursor = await frontier.list_crawl_ids(appid=appid, cursor=cursor, limit=MOST_CRAWLS)
        found += page
        if not cursor or len(found) >= MOST_CRAWLS:
            return found[:MOST_CRAWLS]


def _running_first(crawl: KnownCrawl) -> tuple[bool, float]:
    assert crawl.info is not None
    return crawl.info.state is not CrawlState.RUNNING, -crawl.info.started


async def _known_crawl(frontier: ValkeyFrontier, data_dir: Path, crawl: CrawlId) -> KnownCrawl | None:
    note = read_note(data_dir, crawl.crawlid) if crawl.appid == APPID else None
    info = await frontier.crawl_info(crawl)
    if info is None and note is None:
        return None
    run = await frontier.latest_run(crawl) if info is not None else None
    terms = [note.terms] if note is not None else await frontier.crawl_terms(crawl)
    spiders = dict.fromkeys([*([note.spider] if note is not None else []), *(info.spiders if info is not None else [])])
    return KnownCrawl(crawl, info, run or (note.run if note is not None else None), terms, list(spiders), note)


async def _find(frontier: ValkeyFrontier, crawl: KnownCrawl, url: str) -> UrlInfo | None:
    if crawl.info is None or crawl.run is None:
        return None
    domain = registered_domain(host(url))
    await frontier.spiders.refresh(crawl.spiders)
    known: UrlInfo | None = None
    any_order = any(terms.query_order is QueryOrder.IGNORED for terms in crawl.terms)
    for spider in crawl.spiders:
        seed = spider_seed(frontier.secret, spider)
        # The fingerprint depends on which kind of worker runs the spider, and possibly none runs now.
        fingerprints = (
            frontier.spiders.fingerprint(spider, url),
            fingerprint(url, seed=seed),
            fingerprint(scrapy_fingerprint(url), seed=seed),
            *([fingerprint(with_sorted_query(url), seed=seed)] if any_order else []),
        )
        for candidate in dict.fromkeys(fingerprints):
            found = await frontier.find_url(crawl.run, spider=spider, domain=domain, url=url, fingerprint=candidate)
            if found.seen:
                return found
            known = known or found
    return known


def _no_crawl(data_dir: Path, appid: str | None, crawl_id: str | None) -> str:
    names = known_crawls(data_dir)
    here = f". Crawls started here: {', '.join(names[-5:])}" if names else ""
    if crawl_id is not None:
        return f"there is no crawl {crawl_id}{f' of {appid}' if appid else ''}{here}"
    if appid is not None:
        return f"there is no crawl of {appid}{here}"
    return no_crawl_with(data_dir)


def no_crawl_with(data_dir: Path) -> str:
    """Return the message where no crawl was started with the data directory."""
    return f"no crawl was started with {data_dir}. Name one with --crawl-id, --data-dir or --frontier."
