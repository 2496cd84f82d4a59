"""Finds the crawl that a URL belongs to, for `gossamer why`, and lists crawls for a person, the running ones first.

It looks in the frontier, which holds the requests of all crawls, and in the notes that commands leave in the data
directory when they start a crawl. Nothing here changes either. Safe to change: the order in which crawls are tried, as
described in `find_crawl`. Fixed: how a URL's fingerprint is computed, because the frontier has stored such
fingerprints.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
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

_MAX_CRAWLS = 500
"""Crawls of the frontier that are searched where no name is given. May be changed freely: for each, a few calls collect
what is known of it (for all crawls at the same time), and a few more look the URL up (crawl after crawl)."""
_NAMES_A_PAGE = 1000
"""Crawls whose names one call reads, where a crawl is searched by its name. May be changed freely: more make a call
longer, fewer make more calls."""
_SCRAPY_POOL = "scrapy-"
"""First part of the pool (the group of workers that do a crawl) of a Scrapy project, unless its settings name another.
Must be that of scrapy/options.py and control/scrapy_redis.py."""
_CRAWLS_NAMED = 5
"""Crawls that the message names if the wanted one is not found, the latest. May be changed freely."""


@dataclass(slots=True)
class KnownCrawl:
    """A crawl as the frontier and this data directory know it."""

    id: CrawlId
    info: CrawlInfo | None
    """None: the frontier does not know the crawl, or not any more."""
    run: Run | None
    """The latest life of the crawl, from its first request to its end. None: not known."""
    terms: list[Terms]
    """Options that the crawl's requests carry, once for each submission. Empty: they are not known."""
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
    """Return a crawl, and the state of the URL in it; None instead of the state: the frontier does not know the crawl.

    Candidates are the crawls that were started with this data directory, the latest first, then those of the frontier,
    running ones first. The result is the first one that has queued or seen the URL, else the first with a record of
    the URL, else the first. Raises BadInput where there is none.
    """
    crawls = [crawl async for crawl in _candidates(frontier, data_dir, appid=appid, crawl_id=crawl_id)]
    if not crawls:
        raise BadInput(_no_crawl(data_dir, appid, crawl_id))
    url_in_first: UrlInfo | None = None
    for crawl in crawls:
        url_info = await _find(frontier, crawl, url)
        if url_info is not None and url_info.seen:
            return crawl, url_info
        if crawl is crawls[0]:
            url_in_first = url_info
    if len(crawls) > 1:  # a single crawl is the result in any case, so its records need not be read
        for crawl in crawls:
            if crawl.note is not None and last_record(crawl.note, url) is not None:
                return crawl, await _find(frontier, crawl, url)
    return crawls[0], url_in_first


def last_record(note: CrawlNote, url: str) -> PageRecord | None:
    """Return the last record of this URL in those outputs of the crawl that can be read. None: there is none.

    A record is of this URL if the URL was requested, redirected to another, or gave the response."""
    last: PageRecord | None = None
    for record in _records(note):
        if url in (record.url, record.response_url) or any(hop.url == url for hop in record.redirects):
            last = record
    return last


def _records(note: CrawlNote) -> Iterator[PageRecord]:
    """Yield the crawl's pages from those of its outputs that are local JSON Lines files; others are skipped."""
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
    """Yield the crawls of this application and of this name (None: any), in the order that `find_crawl` describes.

    With a name and an application: that crawl only.
    With a name only: the crawl of the command line (the application APPID), then those of other applications.
    With an application only, or with neither: the crawls started here, all of which belong to APPID, if that is the
    application that is asked for; then the others that the frontier lists.
    """
    if crawl_id is not None:
        first = [CrawlId(appid or APPID, crawl_id)]
    elif appid in (None, APPID):
        first = [CrawlId(APPID, name) for name in reversed(known_crawls(data_dir))]
    else:
        first = []
    for crawl in first:
        if (known := await _known_crawl(frontier, data_dir, crawl)) is not None:
            yield known
    if crawl_id is not None and appid is not None:
        return
    if crawl_id is not None:
        listed = await _crawls_named(frontier, crawl_id)
    else:
        infos, _ = await list_running_first(frontier, appid=appid, limit=_MAX_CRAWLS)
        listed = [info.crawl for info in infos]
    others = [crawl for crawl in listed if crawl not in first]
    found = await asyncio.gather(*(_known_crawl(frontier, data_dir, crawl) for crawl in others))
    for known in sorted(filter(None, found), key=_running_first):
        yield known


async def _crawls_named(frontier: ValkeyFrontier, crawl_id: str) -> list[CrawlId]:
    """Return the crawls of all applications that have this name, however many crawls the frontier has."""
    found: dict[CrawlId, None] = {}  # each once: a page may repeat crawls of an earlier one
    cursor = ""
    while True:
        page, cursor = await frontier.list_crawl_ids(cursor=cursor, limit=_NAMES_A_PAGE)
        found |= dict.fromkeys(crawl for crawl in page if crawl.crawlid == crawl_id)
        if not cursor:
            return list(found)


async def list_running_first(
    frontier: ValkeyFrontier, *, appid: str | None = None, limit: int
) -> tuple[list[CrawlInfo], bool]:
    """Return at most `limit` crawls of an application (None: of all), and whether there may be more.

    Running crawls come first, so that finished ones, however many there are, take no room from them."""
    found: dict[CrawlId, CrawlInfo] = {}
    for state in (CrawlState.RUNNING, None):  # None: in any state, so the running ones are listed again
        cursor = ""
        while True:
            page, cursor = await frontier.list_crawls(appid=appid, state=state, cursor=cursor, limit=limit)
            found |= {info.crawl: info for info in page if info.crawl not in found}
            all_listed = state is None and not cursor
            if len(found) > limit or (len(found) == limit and not all_listed):
                return list(found.values())[:limit], True
            if not cursor:
                break
    return list(found.values()), False


def _running_first(crawl: KnownCrawl) -> tuple[bool, float]:
    """Return the sort key for running crawls first, then the latest first."""
    assert crawl.info is not None  # the frontier listed the crawl
    return crawl.info.state is not CrawlState.RUNNING, -crawl.info.started


async def _known_crawl(frontier: ValkeyFrontier, data_dir: Path, crawl: CrawlId) -> KnownCrawl | None:
    """Return what the frontier and the note hold of a crawl. None: neither knows it."""
    note = read_note(data_dir, crawl.crawlid) if crawl.appid == APPID else None
    info = await frontier.crawl_info(crawl)
    if info is None and note is None:
        return None
    run = await frontier.latest_run(crawl) if info is not None else None
    spiders = list(info.spiders) if info is not None else []
    if note is None:
        return KnownCrawl(crawl, info, run, await frontier.crawl_terms(crawl), spiders, None)
    spiders = list(dict.fromkeys([note.spider, *spiders]))
    return KnownCrawl(crawl, info, run or note.run, [note.terms], spiders, note)


async def _find(frontier: ValkeyFrontier, crawl: KnownCrawl, url: str) -> UrlInfo | None:
    """Return the state of the URL in a crawl: of the first spider that has seen it, else of the first spider."""
    if crawl.info is None or crawl.run is None:
        return None
    domain = registered_domain(host(url))
    await frontier.spiders.refresh(crawl.spiders)
    unseen: UrlInfo | None = None
    any_order = any(terms.query_order is QueryOrder.IGNORED for terms in crawl.terms)
    for spider in crawl.spiders:
        seed = spider_seed(frontier.secret, spider)
        # The fingerprint under which a URL is stored depends on which kind of worker runs the spider, and possibly none
        # runs now. So all are tried.
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
            unseen = unseen or found
    return unseen


def _no_crawl(data_dir: Path, appid: str | None, crawl_id: str | None) -> str:
    """Return the message where there is no crawl of this application and name (None: any)."""
    names = known_crawls(data_dir)
    here = f". Crawls started here: {', '.join(names[-_CRAWLS_NAMED:])}" if names else ""
    if crawl_id is not None:
        return f"there is no crawl {crawl_id}{f' of {appid}' if appid else ''}{here}"
    if appid is not None:
        return f"there is no crawl of {appid}{here}"
    return no_crawl_with(data_dir)


def no_crawl_with(data_dir: Path) -> str:
    """Return the message where no crawl was started with the data directory."""
    return f"no crawl was started with {data_dir}. Name one with --crawl-id, --data-dir or --frontier."
