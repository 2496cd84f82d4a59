"""Crawls: list, look, stop."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from gossamer.api.context import ApiContext, Given
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.problems import Problem, not_found
from gossamer.api.reading import CRAWL, TheCrawl
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId, CrawlState, Run
from gossamer.model.info import CrawlInfo, SpiderCounts

router = APIRouter(prefix="/v1/crawls", tags=["crawls"])
one = APIRouter(prefix=CRAWL, tags=["crawls"])


class RequestCounts(ResponseModel):
    """added = queued + later + leased + fetched + failed + dropped."""

    added: int
    queued: int
    later: int
    """Retries that are not due yet"""
    leased: int
    """Being fetched"""
    fetched: int
    failed: dict[str, int]
    """By reason"""
    dropped: dict[str, int]
    """By reason"""
    links_dropped: dict[str, int]
    """Links that never became requests, by reason"""


class CrawlSummary(ResponseModel):
    """Where a crawl stands."""

    appid: str
    crawlid: str
    state: str = Field(examples=["running"])
    """`running`, `finished`, `stopped` or `expired`"""
    run: int
    """1 for the first"""
    started: float
    """Epoch seconds"""
    ended: float | None
    domains: int
    """With requests that wait"""
    total: RequestCounts


class DomainShare(ResponseModel):
    """What of a crawl waits on one domain."""

    domain: str
    queued: int
    later: int
    """Waiting for a retry"""
    by_priority: dict[int, int]
    """All that waits, for a retry too"""
    by_spider: dict[str, int]
    """The same"""


class DomainPage(ResponseModel):
    """Some of the domains."""

    items: list[DomainShare]
    cursor: str
    """Where the next page begins; empty at the end"""


class CrawlShape(CrawlSummary):
    """Where a crawl stands, by spider and priority."""

    seen: int
    """Distinct requests ever added"""
    queued_by_priority: dict[int, int]
    spiders: dict[str, RequestCounts]
    max_pages: int | None
    order: str
    rate: str | None
    """HITS/SECONDS, its own wish"""
    domain_concurrency: int | None
    queued_by_domain: DomainPage | None = None
    """With `domains` in the query only"""


class CrawlPage(ResponseModel):
    """Some of the crawls, in no order."""

    items: list[CrawlSummary]
    cursor: str
    """Where the next page begins; empty at the end"""


class StoppedCrawl(ResponseModel):
    """What stopping did."""

    appid: str
    crawlid: str
    spiderid: str | None
    purged: int
    """Waiting requests that were dropped; repeating it purges none"""


@router.get(
    "",
    operation_id="list_crawls",
    summary="The crawls that are known",
    response_model=CrawlPage,
    responses=refusals(400, 503),
)
async def crawls(
    parts: Given,
    appid: Annotated[str | None, Query(description="Of this application only", max_length=1000)] = None,
    state: Annotated[
        Literal["running", "finished", "stopped", "expired"] | None, Query(description="Only those in this state")
    ] = None,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> CrawlPage:
    """Running ones, those that ended within the retention, and those that are marked as stopped or expired. One may be
    on two pages. With `state` a page may be short, or empty and have a next one."""
    infos, following = await parts.frontier.list_crawls(
        appid=appid, state=CrawlState(state) if state else None, cursor=cursor, limit=limit
    )
    return CrawlPage(items=[CrawlSummary(**_summary(info)) for info in infos], cursor=following)


@one.get(
    "",
    operation_id="show_crawl",
    summary="Where a crawl stands",
    response_model=CrawlShape,
    response_model_exclude_unset=True,
    responses=refusals(400, 404, 503),
)
async def crawl(
    parts: Given,
    crawl: TheCrawl,
    domains: Annotated[
        str | None,
        Query(description="Also a page of its domains: the cursor, empty for the first page", max_length=4096),
    ] = None,
    limit: Limit = 100,
) -> CrawlShape:
    """From counters: as fast for a million queued requests as for one."""
    info, run, page = await asyncio.gather(
        parts.frontier.crawl_info(crawl), parts.frontier.latest_run(crawl), _domains(parts, crawl, domains, limit)
    )
    if info is None or run is None:
        raise unknown(crawl)
    found = CrawlShape(
        **_summary(info),
        seen=info.seen,
        queued_by_priority=info.queued_by_priority,
        spiders={spider: _counts(counts) for spider, counts in info.spiders.items()},
        **_wishes(run),
    )
    if page is not None:
        found.queued_by_domain = page
    return found


@one.delete(
    "",
    operation_id="stop_crawl",
    summary="Stop a crawl, or one spider's part of it",
    response_model=StoppedCrawl,
    responses=refusals(400, 404, 503),
)
async def stop(
    parts: Given,
    crawl: TheCrawl,
    spiderid: Annotated[str | None, Query(description="Only this spider's part", min_length=1, max_length=1000)] = None,
) -> StoppedCrawl:
    """What waits is dropped, what is being fetched is finished. The crawl takes no more requests while its mark is kept
    (the setting stopped_retention)."""
    if await parts.frontier.crawl_info(crawl) is None:
        raise unknown(crawl)
    purged = await parts.frontier.stop_crawl(crawl, spider=spiderid)
    return StoppedCrawl(appid=crawl.appid, crawlid=crawl.crawlid, spiderid=spiderid, purged=purged)


def unknown(crawl: CrawlId) -> Problem:
    """404."""
    return not_found(f"no crawl {crawl} is known")


async def _domains(parts: ApiContext, crawl: CrawlId, cursor: str | None, limit: int) -> DomainPage | None:
    if cursor is None:
        return None
    if cursor and not _is_cursor(cursor):
        raise BadInput("domains: this is no cursor")
    found, following = await parts.frontier.crawl_domains(crawl, cursor=cursor, limit=limit)
    return DomainPage(
        items=[
            DomainShare(
                domain=share.domain,
                queued=share.queued,
                later=share.later,
                by_priority=share.by_priority,
                by_spider={spider: sum(counts.values()) for spider, counts in share.by_spider.items()},
            )
            for share in found
        ],
        cursor=following,
    )


def _is_cursor(cursor: str) -> bool:
    shard, _, inner = cursor.partition(":")
    return all(part.isascii() and part.isdecimal() and len(part) <= 20 for part in (shard, inner))


def _summary(info: CrawlInfo) -> dict[str, Any]:
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


def progress(info: CrawlInfo) -> bytes:
    """Where a crawl stands, as JSON."""
    return CrawlSummary(**_summary(info)).model_dump_json().encode()


def _counts(counts: SpiderCounts) -> RequestCounts:
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


def _wishes(run: Run) -> dict[str, Any]:
    crawl = run.crawl
    return {
        "max_pages": crawl.max_pages,
        "order": crawl.order.value,
        "rate": f"{crawl.rate.hits}/{crawl.rate.window_seconds:g}" if crawl.rate else None,
        "domain_concurrency": crawl.concurrency,
    }
