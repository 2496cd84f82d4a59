"""Endpoints that list, describe and stop crawls.

A crawl has runs, one after the other: a run lasts from a first request until nothing is left to do. Each spider, a
program that reads fetched pages, has its own part of a crawl. The frontier, the cluster's queue of requests, keeps the
counts that stand here. Clients read the fields, so none may be renamed or removed; fields may be added.
docs/reference/openapi.json contains fields and texts: after a change, regenerate it (`python -m tools.reference`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import Field

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.problems import bad_request, not_found
from gossamer.control import stops
from gossamer.control.browsers import waiting_for_browsers
from gossamer.control.logins import login_trouble
from gossamer.control.resubmission import request_of
from gossamer.control.retries import retry_failed
from gossamer.errors import BadInput, FrontierUnavailable, HistoryUnavailable
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Terms
from gossamer.model.info import CrawlInfo
from gossamer.telemetry.patterns import growth_sentence, leading_patterns
from gossamer.telemetry.refusals import refused_by_sites
from gossamer.web.audit import audit_of
from gossamer.web.problems import Problem

if TYPE_CHECKING:
    from gossamer.history.crawls import PastCrawl

router = APIRouter(prefix="/v1/crawls", tags=["crawls"])
crawl_router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


T = TypeVar("T")

FRONTIER_SECONDS = 2.0
"""Time after which the frontier counts as away where the history knows something, too. A frontier that is only slow
answers later than that under load alone."""
_RETRIED = ("running", "finished")
"""States of crawls whose failed requests can be retried."""
LOST = "lost"
"""State of a crawl that the frontier forgot before its end was recorded. That of `history/crawls.py`."""
NO_HISTORY = "set history.database"
"""Advice where a service keeps no history."""


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
    retried: dict[str, int]
    """Attempts after which the request waited for another one, by reason"""


class CrawlSummary(ResponseModel):
    """State and counts of a crawl."""

    appid: str
    crawlid: str
    state: str = Field(examples=["running"])
    """`running`, `finished`, `stopped` or `expired`. `lost`: the history remembers the crawl, but the frontier forgot
    it before its end was recorded, because its data were lost or no service ran"""
    run: int
    """Number of the run, from 1"""
    started: float
    """Epoch seconds at which that run started"""
    first_started: float
    """Epoch seconds at which the first run of those that it continues started, such as the one whose failures are
    retried; `started` if it continues none"""
    ended: float | None
    """Epoch seconds; null while the crawl is running"""
    domains: int
    """Domains with waiting requests, queued or to be queued later"""
    repairs: int = 0
    """Repairs of wrong counts, because the frontier's server had lost a part of its writes; not 0: pages may be
    missing"""
    paused: bool = False
    """True: `gossamer crawls pause` has paused it, so none of its requests is handed out"""
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


class GrowingPattern(ResponseModel):
    """Pages of a crawl that may have no end, such as those of a calendar."""

    pattern: str
    """Their URLs: N stands for a number, * for a value, … for any characters"""
    pages: int
    """Fetched pages, as far as they were counted"""
    depth: int
    """Most links between the start of the crawl and one of them"""
    example: str
    """URL of one of them"""
    advice: str
    """Sentence on what grows, and on the fields of a request that bound it"""


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
    kept_failed: int = 0
    """Failed requests that `retry` can queue again"""
    forgotten_failed: int = 0
    """Failed requests that are not kept for a retry, because there were too many"""
    refused: dict[str, int] = Field(default_factory=dict)
    """Pages that sites have refused, by kind. Each also failed"""
    growing: list[GrowingPattern] = Field(default_factory=list)
    """Patterns of URLs whose pages may have no end"""
    to_render: int = 0
    """Waiting requests that are to be rendered in a browser"""
    without_browser: int = 0
    """Those requests, if no worker with a browser is announced: they wait until one is. Else 0"""
    login_trouble: str = ""
    """Accounts of the crawl's login that have failed, or why no worker uses it, and what to do. Empty: all is well, or
    it needs no login"""
    frontier_error: str = ""
    """Only while the frontier is away: the reason. The crawl is as the history remembers it"""
    queued_by_domain: DomainPage | None = None
    """Only if the query has `domains`"""


class CrawlPage(ResponseModel):
    """A page of crawls."""

    items: list[CrawlSummary]
    cursor: str
    """Start of the next page; empty if this is the last one"""
    remembered: bool
    """True: the crawls that started last come first, and those of the past are among them, as long as the history keeps
    them. False: the service keeps no history (the setting history.database), or it is away; the crawls are those that
    the frontier knows, in no order"""
    history_error: str = ""
    """Reason why the history is away; empty: it is not"""
    frontier_error: str = ""
    """Reason why the frontier is away; empty: it is not. Until it is back, crawls that run are as they were"""


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


class CrawlTemplate(ResponseModel):
    """A crawl request without its URL, made of the options that the frontier keeps."""

    request: dict[str, object]
    """Fields of a crawl request"""
    left_out: list[str]
    """Fields that the submission has, and the request has not: `cookie`, secret `headers`, `proxy`, `extract`,
    `recrawl`"""
    submissions: int
    """Submissions with different options. The request has those of one of them"""


class RetriedCrawl(ResponseModel):
    """Result of retrying failed requests."""

    appid: str
    crawlid: str
    run: int
    """Number of the run in which they wait"""
    retried: int
    """Requests that wait again"""
    kept: int
    """Failed requests that are kept, and may be retried later"""
    forgotten: int
    """Failed requests that are not kept, because there were too many. Submit them again under another crawlid"""


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
        Literal["running", "finished", "stopped", "expired", "lost"] | None,
        Query(description="Only crawls in this state"),
    ] = None,
    text: Annotated[
        str | None,
        Query(description="Only crawls with this text in `appid/crawlid`. Needs a history", max_length=200),
    ] = None,
    domain: Annotated[
        str | None,
        Query(
            description="Only crawls of which requests were seen waiting on this domain: up to 100 of a crawl's "
            "domains are remembered, and one that ends within seconds may have none. Needs a history",
            max_length=255,
        ),
    ] = None,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> CrawlPage:
    """With a history (the setting history.database), lists all crawls that it remembers, those that started last first;
    a new crawl is there after some seconds. A page with `state` may be short.

    Without, lists running crawls; finished crawls, until the time of the setting retention has passed since their end;
    and stopped and expired crawls, until that of stopped_retention has. A crawl may be on two pages. With `state`, a
    page may be short or even empty although there is a next one. While the history's database is away, answers are the
    same, and `history_error` says why; what only the history knows (`text`, `domain`, the state `lost`, its cursors)
    has status 503."""
    if context.history is not None:
        try:
            rows, next_cursor = await context.history.crawls(
                appid=appid or "", state=state or "", text=text or "", domain=domain or "", cursor=cursor, limit=limit
            )
        except HistoryUnavailable as error:
            if text or domain or state == LOST:
                raise
            return await _without_history(context, (appid, state, cursor, limit), away=error)
        current, frontier_error = await _current(context, rows)
        summaries = [item for item in current if state in (None, item["state"])]
        return CrawlPage(
            items=[CrawlSummary(**item) for item in summaries],
            cursor=next_cursor,
            remembered=True,
            frontier_error=frontier_error,
        )
    for name, value in (("text", text), ("domain", domain)):
        if value:
            raise bad_request(f"needs a history, which this service does not keep: {NO_HISTORY}", where=name)
    if state == LOST:
        return CrawlPage(items=[], cursor="", remembered=False)
    return await _without_history(context, (appid, state, cursor, limit))


async def _without_history(
    context: ApiContext, chosen: tuple[str | None, str | None, str, int], *, away: HistoryUnavailable | None = None
) -> CrawlPage:
    """Return the crawls that the frontier knows: of an application, in a state, from a cursor on, and so many. `away`:
    why there is no history at present; it is raised if the cursor is the history's."""
    appid, state, cursor, limit = chosen
    wanted = CrawlState(state) if state else None
    try:
        infos, next_cursor = await context.frontier.list_crawls(appid=appid, state=wanted, cursor=cursor, limit=limit)
        if next_cursor:
            following = await context.frontier.list_crawls(appid=appid, state=wanted, cursor=next_cursor, limit=limit)
            next_cursor = next_cursor if any(following) else ""  # nothing follows
    except BadInput:
        if away is not None:
            raise away from None
        raise
    return CrawlPage(
        items=[CrawlSummary(**_summary(info)) for info in infos],
        cursor=next_cursor,
        remembered=False,
        history_error=str(away or ""),
    )


async def _current(context: ApiContext, crawls: Sequence["PastCrawl"]) -> tuple[list[dict[str, Any]], str]:
    """Return the summaries of remembered crawls. Of those that run, the frontier knows more; while it is away, they are
    as they were, and the second value is the reason."""
    running = [past.info.crawl for past in crawls if past.info.state is CrawlState.RUNNING]
    infos, away = await if_there(context.frontier.crawl_infos(running)) if running else ([], "")
    current = {info.crawl: info for info in infos or () if info is not None}
    summaries = [
        _summary(current[past.info.crawl]) if past.info.crawl in current else _remembered(past) for past in crawls
    ]
    return summaries, away


async def if_there(call: Awaitable[T]) -> tuple[T | None, str]:
    """Return the answer of the frontier. None: it does not answer in time, and the second value is the reason."""
    try:
        async with asyncio.timeout(FRONTIER_SECONDS):
            return await call, ""
    except FrontierUnavailable as error:
        return None, str(error)
    except TimeoutError:
        return None, f"no answer within {FRONTIER_SECONDS:g} seconds"


async def info_or_memory(context: ApiContext, crawl: CrawlId) -> tuple[CrawlInfo | None, str]:
    """Return a crawl as the frontier knows it; None: it does not, or is away, for which the second value is the reason.
    Without a history, raises FrontierUnavailable in place of that."""
    if context.history is None:
        return await context.frontier.crawl_info(crawl), ""
    return await if_there(context.frontier.crawl_info(crawl))


def _remembered(past: "PastCrawl") -> dict[str, Any]:
    """Return the fields of CrawlSummary of a crawl in the history."""
    return _summary(past.info) | {"state": past.state}


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
    """Reads only counters, so it is as fast for a million queued requests as for one. A crawl that the frontier has
    forgotten is as the history remembers it."""
    (info, away), page = await asyncio.gather(info_or_memory(context, crawl), _domains(context, crawl, domains, limit))
    without_browser, trouble = 0, ""
    if info is not None:
        summary, without_browser = _summary(info), await waiting_for_browsers(context.frontier, info)
        trouble = await login_trouble(context.frontier, info)
    else:
        past = None if context.history is None else await context.history.crawl(crawl)
        if past is None:
            raise FrontierUnavailable(away) if away else unknown_crawl(crawl)
        info, summary = past.info, _remembered(past)
    details = CrawlDetails(
        **summary,
        seen=info.seen,
        queued_by_priority=info.queued_by_priority,
        spiders={spider: RequestCounts.of(counts) for spider, counts in info.spiders.items()},
        kept_failed=info.kept_failed if summary["state"] in _RETRIED else 0,
        forgotten_failed=info.forgotten_failed,
        refused=refused_by_sites(info.pages.failed),
        growing=[
            GrowingPattern(
                pattern=pattern,
                pages=count.pages,
                depth=count.depth,
                example=count.example,
                advice=growth_sentence(pattern, count, pool=info.pool),
            )
            for pattern, count in leading_patterns(info.growing).items()
        ],
        to_render=info.rendering.waiting,
        without_browser=without_browser,
        login_trouble=trouble,
        **_options(info.options or Crawl(id=crawl)),
    )
    if away:
        details.frontier_error = away
    if page is not None:
        details.queued_by_domain = page  # otherwise never set, so response_model_exclude_unset leaves it out
    return details


async def first_started(context: ApiContext, crawl: CrawlId) -> float:
    """Return when the first run of those that a crawl's latest one continues started. Raises Problem for an unknown
    crawl."""
    info = await context.frontier.crawl_info(crawl)
    if info is None and context.history is not None and (past := await context.history.crawl(crawl)) is not None:
        info = past.info
    if info is None:
        raise unknown_crawl(crawl)
    return info.first_started or info.started


async def check_known(context: ApiContext, crawl: CrawlId) -> None:
    """Raise Problem for a crawl that neither the frontier nor the history knows. While the history is away, any crawl
    may be known."""
    if await context.frontier.latest_run(crawl) is not None:
        return
    with contextlib.suppress(HistoryUnavailable):
        if context.history is None or await context.history.crawl(crawl) is None:
            raise unknown_crawl(crawl)


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
    request: Request,
    spiderid: Annotated[
        str | None, Query(description="Stop only this spider's part", min_length=1, max_length=1000)
    ] = None,
) -> StoppedCrawl:
    """Drops waiting requests; requests in progress are completed. The crawl accepts no more requests until the time of
    the setting stopped_retention has passed. A crawl that has finished stays as it is, unless a Scrapy process waits
    for more of it: that closes. The pages of one that is kept up to date are not visited any more, until a request with
    `recrawl` asks for it again."""
    found = await stops.stop_crawl(context.frontier, context.indexes, crawl, spider=spiderid)
    audit_of(request).note(purged=found.purged)
    if found.state is None:
        raise unknown_crawl(crawl)
    return StoppedCrawl(
        appid=crawl.appid, crawlid=crawl.crawlid, spiderid=spiderid, purged=found.purged, state=found.state.value
    )


@crawl_router.get(
    "/request",
    operation_id="crawl_request",
    summary="Return a request that would submit a crawl again",
    response_model=CrawlTemplate,
    responses=refusals(404, 503),
)
async def crawl_request(context: Context, crawl: PathCrawl) -> CrawlTemplate:
    """Has no URL: the frontier does not remember which requests were submitted. Add one, and `fresh` to fetch all pages
    of a finished crawl again, or a larger `maxdepth` to go further."""
    run = await context.frontier.latest_run(crawl)
    if run is None:
        raise unknown_crawl(crawl)
    terms, info = await asyncio.gather(context.frontier.crawl_terms(crawl), context.frontier.crawl_info(crawl))
    spiders = [name for name in (info.spiders if info else {}) if name != ASSET_SPIDER]
    made = request_of(run.crawl, terms[0] if terms else Terms(), spider=spiders[0] if spiders else "link")
    return CrawlTemplate(request=made.request, left_out=made.left_out, submissions=len(terms))


@crawl_router.post(
    "/retry",
    operation_id="retry_crawl",
    summary="Retry failed requests of a crawl",
    response_model=RetriedCrawl,
    responses=refusals(400, 404, 409, 503),
)
async def retry_crawl(
    context: Context,
    crawl: PathCrawl,
    request: Request,
    reason: Annotated[
        str, Query(description="Only requests that failed for this reason, such as `http_503`", max_length=200)
    ] = "",
    url: Annotated[str, Query(description="Only this URL, as a person writes it", max_length=65_536)] = "",
) -> RetriedCrawl:
    """Queues again, with their options and their depths, all requests that have failed; or those of one reason, or one
    URL. Each is a new request with an attempt number of 0. A finished crawl goes on: its counts continue, and what is
    retried counts as failed no longer.

    The frontier keeps up to about 15,000 failed requests of a crawl on each of its shards, until the crawl is
    forgotten, or another submission begins its next run."""
    result = await retry_failed(context.frontier, crawl, reason=reason, url=url)
    if result is None:
        raise unknown_crawl(crawl)
    audit_of(request).note(retried=result.retried)
    return RetriedCrawl(appid=crawl.appid, crawlid=crawl.crawlid, **result._asdict())


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
            DomainShare.of(
                share, by_spider={spider: sum(counts.values()) for spider, counts in share.by_spider.items()}
            )
            for share in shares
        ],
        cursor=next_cursor,
    )


_LARGEST_CURSOR = 2**64 - 1
"""The limit of Valkey's own cursors: fixed."""


def _is_cursor(cursor: str) -> bool:
    """Return whether the text has the form of a cursor of `crawl_domains`, SHARD:POSITION. Valkey answers any
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
        "first_started": info.first_started or info.started,
        "ended": info.ended,
        "domains": info.domains,
        "repairs": info.repairs,
        "paused": info.is_paused and info.state is CrawlState.RUNNING,
        "total": RequestCounts.of(info.total()),
    }


def summary_json(info: CrawlInfo) -> bytes:
    """Return a crawl's summary as JSON. Event streams send it."""
    return CrawlSummary(**_summary(info)).model_dump_json().encode()


def _options(crawl: Crawl) -> dict[str, Any]:
    """Return the options with which a run was opened, as fields of CrawlDetails."""
    return {
        "max_pages": crawl.max_pages,
        "order": crawl.order.value,
        "rate": f"{crawl.rate.hits}/{crawl.rate.window_seconds:g}" if crawl.rate else None,
        "domain_concurrency": crawl.concurrency,
    }
