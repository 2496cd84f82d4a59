"""Endpoints that list, describe and stop crawls.

A crawl has runs, one after the other: a run lasts from a first request until nothing is left to do. Each spider, a
program that reads fetched pages, has its own part of a crawl. The frontier, the cluster's queue of requests, keeps the
counts that stand here. Clients read the fields, so none may be renamed or removed; fields may be added.
docs/reference/openapi.json contains fields and texts: after a change, regenerate it (`python -m tools.reference`).
"""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.problems import not_found
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId, CrawlState, Run
from gossamer.model.info import CrawlInfo, SpiderCounts
from gossamer.web.problems import Problem

router = APIRouter(prefix="/v1/crawls", tags=["crawls"])
crawl_router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class RequestCounts(ResponseModel):
    """Counts of requests: added = queued + later + leased + fetched + failed + dropped."""

    added: int
    queued: int
    later: int
    """Retries that are not yet due"""
    leased: int
    """Requests in progress"""
    fetched: int
    failed: dict[str, int]
    """Counts by reason"""
    dropped: dict[str, int]
    """Counts by reason"""
    links_dropped: dict[str, int]
    """Links that did not become requests, by reason"""


class CrawlSummary(ResponseModel):
    """State and counts of a crawl."""

    appid: str
    crawlid: str
    state: str = Field(examples=["running"])
    """`running`, `finished`, `stopped` or `expired`"""
    run: int
    """Number of the run, from 1"""
    started: float
    """Epoch seconds"""
    ended: float | None
    """Epoch seconds; null while the crawl is running"""
    domains: int
    """Domains with waiting requests, queued or to be queued later"""
    total: RequestCounts


class DomainShare(ResponseModel):
    """Waiting requests of a crawl on one domain."""

    domain: str
    queued: int
    later: int
    """Requests that wait for a retry"""
    by_priority: dict[int, int]
    """Queued requests and retries, by priority"""
    by_spider: dict[str, int]
    """Queued requests and retries, by spider"""


class DomainPage(ResponseModel):
    """A page of domains."""

    items: list[DomainShare]
    cursor: str
    """Start of the next page; empty if this is the last one"""


class CrawlDetails(CrawlSummary):
    """State and counts of a crawl, also by spider and priority."""

    seen: int
    """Distinct requests that were ever added, also by earlier runs that this one continues. None is added again"""
    queued_by_priority: dict[int, int]
    spiders: dict[str, RequestCounts]
    max_pages: int | None
    order: str
    rate: str | None
    """Rate that the crawl requests for each domain, as HITS/SECONDS"""
    domain_concurrency: int | None
    queued_by_domain: DomainPage | None = None
    """Only if the query has `domains`"""


class CrawlPage(ResponseModel):
    """A page of crawls, in no particular order."""

    items: list[CrawlSummary]
    cursor: str
    """Start of the next page; empty if this is the last one"""


class StoppedCrawl(ResponseModel):
    """Result of stopping a crawl."""

    appid: str
    crawlid: str
    spiderid: str | None
    """The spider whose part was stopped; null: the whole crawl"""
    purged: int
    """Waiting requests that were dropped. A repeated call drops none"""
    state: str
    """State of the crawl now: `finished` if it had finished before, and nothing was left to stop"""


@router.get(
    "",
    operation_id="list_crawls",
    summary="List crawls",
    response_model=CrawlPage,
    responses=refusals(400, 503),
)
async def list_crawls(
    context: Context,
    appid: Annotated[str | None, Query(description="Only crawls of this application", max_length=1000)] = None,
    state: Annotated[
        Literal["running", "finished", "stopped", "expired"] | None, Query(description="Only crawls in this state")
    ] = None,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> CrawlPage:
    """Lists running crawls; finished crawls, until the time of the setting retention has passed since their end; and
    stopped and expired crawls, until that of stopped_retention has. A crawl may be on two pages. With `state`, a page
    may be short or even empty although there is a next one."""
    infos, next_cursor = await context.frontier.list_crawls(
        appid=appid, state=CrawlState(state) if state else None, cursor=cursor, limit=limit
    )
    return CrawlPage(items=[CrawlSummary(**_summary(info)) for info in infos], cursor=next_cursor)


@crawl_router.get(
    "",
    operation_id="show_crawl",
    summary="Return the state of a crawl",
    response_model=CrawlDetails,
    response_model_exclude_unset=True,
    responses=refusals(400, 404, 503),
)
async def show_crawl(
    context: Context,
    crawl: PathCrawl,
    domains: Annotated[
        str | None,
        Query(
            description="Also return a page of its domains: the cursor of the page, empty for the first",
            max_length=4096,
        ),
    ] = None,
    limit: Limit = 100,
) -> CrawlDetails:
    """Reads only counters, so it is as fast for a million queued requests as for one."""
    info, run, page = await asyncio.gather(
        context.frontier.crawl_info(crawl), context.frontier.latest_run(crawl), _domains(context, crawl, domains, limit)
    )
    if info is None or run is None:
        raise unknown_crawl(crawl)
    details = CrawlDetails(
        **_summary(info),
        seen=info.seen,
        queued_by_priority=info.queued_by_priority,
        spiders={spider: _counts(counts) for spider, counts in info.spiders.items()},
        **_options(run),
    )
    if page is not None:
        details.queued_by_domain = page  # otherwise never set, so response_model_exclude_unset leaves it out
    return details


@crawl_router.delete(
    "",
    operation_id="stop_crawl",
    summary="Stop a crawl, or one spider's part of it",
    response_model=StoppedCrawl,
    responses=refusals(400, 404, 503),
)
async def stop_crawl(
    context: Context,
    crawl: PathCrawl,
    spiderid: Annotated[
        str | None, Query(description="Stop only this spider's part", min_length=1, max_length=1000)
    ] = None,
) -> StoppedCrawl:
    """Drops waiting requests; requests in progress are completed. The crawl accepts no more requests until the time of
    the setting stopped_retention has passed. A crawl that has finished stays as it is, unless a Scrapy process waits
    for more of it: that closes."""
    purged = await context.frontier.stop_crawl(crawl, spider=spiderid)
    info = await context.frontier.crawl_info(crawl)
    if info is None:
        raise unknown_crawl(crawl)
    return StoppedCrawl(
        appid=crawl.appid, crawlid=crawl.crawlid, spiderid=spiderid, purged=purged, state=info.state.value
    )


def unknown_crawl(crawl: CrawlId) -> Problem:
    """Return the problem for a crawl that does not exist."""
    return not_found(f"there is no crawl {crawl}")


async def _domains(context: ApiContext, crawl: CrawlId, cursor: str | None, limit: int) -> DomainPage | None:
    """Return a page of the crawl's domains; None if the query does not ask for any."""
    if cursor is None:
        return None
    if cursor and not _is_cursor(cursor):
        raise BadInput("domains: not a cursor of this endpoint")
    shares, next_cursor = await context.frontier.crawl_domains(crawl, cursor=cursor, limit=limit)
    return DomainPage(
        items=[
            DomainShare(
                domain=share.domain,
                queued=share.queued,
                later=share.later,
                by_priority=share.by_priority,
                by_spider={spider: sum(counts.values()) for spider, counts in share.by_spider.items()},
            )
            for share in shares
        ],
        cursor=next_cursor,
    )


_LARGEST_CURSOR = 2**64 - 1
"""The limit of Valkey's own cursors: fixed."""


def _is_cursor(cursor: str) -> bool:
    """Return whether the text has the form of a cursor of `Frontier.crawl_domains`, SHARD:POSITION. Valkey answers any
    other position with an error, which would look like an outage. A shard may be any number: the frontier returns an
    empty page for one that it does not have."""
    shard, _, position = cursor.partition(":")
    return all(part.isascii() and part.isdecimal() and int(part) <= _LARGEST_CURSOR for part in (shard, position))


def _summary(info: CrawlInfo) -> dict[str, Any]:
    """Return the fields of CrawlSummary, which CrawlDetails has as well."""
    return {
        "appid": info.crawl.appid,
        "crawlid": info.crawl.crawlid,
        "state": info.state.value,
        "run": info.run,
        "started": info.started,
        "ended": info.ended,
        "domains": info.domains,
        "total": _counts(info.total()),
    }


def summary_json(info: CrawlInfo) -> bytes:
    """Return a crawl's summary as JSON. Event streams send it."""
    return CrawlSummary(**_summary(info)).model_dump_json().encode()


def _counts(counts: SpiderCounts) -> RequestCounts:
    """Return the counts of a spider, or of all, as a response has them."""
    return RequestCounts(
        added=counts.added,
        queued=counts.queued,
        later=counts.later,
        leased=counts.leased,
        fetched=counts.fetched,
        failed=counts.failed,
        dropped=counts.dropped,
        links_dropped=counts.links_dropped,
    )


def _options(run: Run) -> dict[str, Any]:
    """Return the options with which the run was opened, as fields of CrawlDetails."""
    crawl = run.crawl
    return {
        "max_pages": crawl.max_pages,
        "order": crawl.order.value,
        "rate": f"{crawl.rate.hits}/{crawl.rate.window_seconds:g}" if crawl.rate else None,
        "domain_concurrency": crawl.concurrency,
    }
