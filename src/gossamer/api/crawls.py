"""Crawls: submit, list, look, stop."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from gossamer.api import describe
from gossamer.api.bodies import NDJSON, decoded, is_lines, lines
from gossamer.api.counting import Fed
from gossamer.api.describe import Cursor, Limit, Shape, refusals
from gossamer.api.parts import Given, Parts
from gossamer.api.paths import CRAWL, TheCrawl, encoded
from gossamer.api.problems import Problem, bad_request, not_found
from gossamer.control.desk import CRAWL as CRAWL_KIND
from gossamer.control.submit import DUPLICATE, Submission, Submitted
from gossamer.errors import BadInput, RequestRejected
from gossamer.model.crawl import CrawlId, Run
from gossamer.model.info import CrawlInfo, SpiderCounts

MOST_ITEMS = 10_000
"""Requests in one batch."""

router = APIRouter(prefix="/v1/crawls", tags=["crawls"])
one = APIRouter(prefix=CRAWL, tags=["crawls"])

_encode = msgspec.json.Encoder().encode


class Counts(Shape):
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


class CrawlSummary(Shape):
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
    """With queued requests"""
    total: Counts


class DomainShare(Shape):
    """What of a crawl waits on one domain."""

    domain: str
    queued: int
    by_priority: dict[int, int]
    by_spider: dict[str, int]


class DomainPage(Shape):
    """Some of the domains."""

    items: list[DomainShare]
    cursor: str
    """Where the next page begins; empty at the end"""


class CrawlShape(CrawlSummary):
    """Where a crawl stands, by spider and priority."""

    seen: int
    """Distinct requests ever added"""
    queued_by_priority: dict[int, int]
    spiders: dict[str, Counts]
    max_pages: int | None
    order: str
    rate: str | None
    """HITS/SECONDS, its own wish"""
    domain_concurrency: int | None
    queued_by_domain: DomainPage | None = None
    """With `domains` in the query only"""


class CrawlPage(Shape):
    """Some of the crawls, in no order."""

    items: list[CrawlSummary]
    cursor: str
    """Where the next page begins; empty at the end"""


class Stopped(Shape):
    """What stopping did."""

    appid: str
    crawlid: str
    spiderid: str | None
    purged: int
    """Waiting requests that were dropped; repeating it purges none"""


class Taken(Shape):
    """What became of one request."""

    added: bool
    reason: str = ""
    """`duplicate`: its URL was seen in this run of the crawl; else why it was refused"""
    field: str = ""
    """The faulty field, where it is not valid"""
    status: int
    """201 added, 200 duplicate, 400 not valid, 409 the crawl takes no more"""


class TakenOne(Taken):
    """The same of a request that was sent alone."""

    appid: str
    crawlid: str
    spiderid: str
    url: str
    """As it will be fetched"""


class TakenBatch(Shape):
    """What became of each request of a batch, in order."""

    added: int
    duplicates: int
    refused: int
    items: list[Taken]


# --- submitting -------------------------------------------------------------------------------------------------------

_REQUEST = {"$ref": f"{describe.SCHEMAS}CrawlRequest"}
_EXAMPLE = {"appid": "shop", "crawlid": "prices", "url": "https://example.com", "maxdepth": 2}


@router.post(
    "",
    operation_id="submit",
    summary="Submit one request, or a batch",
    status_code=201,
    openapi_extra=describe.body(
        {
            "application/json": {
                "schema": {"oneOf": [_REQUEST, {"type": "array", "items": _REQUEST, "maxItems": MOST_ITEMS}]},
                "examples": {"one": {"value": _EXAMPLE}, "batch": {"value": [_EXAMPLE]}},
            },
            NDJSON: {
                "schema": {"type": "string"},
                "example": '{"appid": "shop", "crawlid": "prices", "url": "a.test"}',
            },
        },
        "A crawl request, an array of them, or one a line",
    ),
    responses={
        201: {"description": "Added", "model": TakenOne},
        200: {"description": "Seen in this run of the crawl already: nothing was added", "model": TakenOne},
        207: {"description": "A batch: each has its own status", "model": TakenBatch},
        **refusals(400, 408, 409, 413, 503),
    },
)
async def submit(parts: Given, request: Request) -> Response:
    """Requests join the crawl they name, each under its own terms; a crawl that is not there begins.

    May be repeated after a 503: what was added before is then a duplicate."""
    fed: Fed = request.app.state.fed
    body = await request.body()
    if is_lines(request):
        return await _submit_batch(parts, fed, lines(body))
    given = decoded(body)
    if isinstance(given, list):
        return await _submit_batch(parts, fed, given)
    if not isinstance(given, dict):
        raise bad_request("this is JSON, but neither an object nor an array")
    return await _submit_one(parts, fed, given)


async def _submit_one(parts: Parts, fed: Fed, given: dict[str, Any]) -> Response:
    try:
        submission = _read(parts, given)
    except RequestRejected:
        fed.count(CRAWL_KIND, "rejected")
        raise
    [submitted] = await parts.desk.submit([submission])
    taken = _taken(fed, submitted)
    if taken.status == 409:
        raise Problem(409, "Crawl refused", taken.reason)
    crawl = submission.crawl.id
    found = TakenOne(
        **taken.model_dump(), appid=crawl.appid, crawlid=crawl.crawlid, spiderid=submission.spider, url=submission.url
    )
    headers = {"Location": f"/v1/crawls/{encoded(crawl.appid, crawl.crawlid)}"}
    return Response(found.model_dump_json(), taken.status, headers, "application/json")


async def _submit_batch(parts: Parts, fed: Fed, values: Sequence[Any]) -> Response:
    if len(values) > MOST_ITEMS:
        raise bad_request(f"a batch may have {MOST_ITEMS:,} requests, not {len(values):,}")
    taken: list[Taken | None] = [None] * len(values)
    sound: list[int] = []
    submissions: list[Submission] = []
    for at, value in enumerate(values):
        try:
            submissions.append(_read(parts, value))
            sound.append(at)
        except RequestRejected as fault:
            fed.count(CRAWL_KIND, "rejected")
            taken[at] = Taken(added=False, reason=fault.reason, field=fault.field, status=400)
    for at, submitted in zip(sound, await parts.desk.submit(submissions), strict=True):
        taken[at] = _taken(fed, submitted)
    items = [item for item in taken if item is not None]
    found = TakenBatch(
        added=sum(item.status == 201 for item in items),
        duplicates=sum(item.status == 200 for item in items),
        refused=sum(item.status >= 400 for item in items),
        items=items,
    )
    return Response(found.model_dump_json(), 207, media_type="application/json")


def _read(parts: Parts, value: Any) -> Submission:
    if not isinstance(value, bytes | dict):
        raise RequestRejected("this is JSON, but no object")
    kind, request = parts.desk.read(value)
    if kind != CRAWL_KIND:
        raise RequestRejected(f"this is a request of the kind {kind}, not crawl; send it to /feed")
    found: Submission = request
    return found


def _taken(fed: Fed, submitted: Submitted) -> Taken:
    if submitted.added:
        result, status = "accepted", 201
    elif submitted.reason == DUPLICATE:
        result, status = "duplicate", 200
    else:
        result, status = "rejected", 409
    fed.count(CRAWL_KIND, result)
    return Taken(added=submitted.added, reason=submitted.reason, status=status)


# --- looking ----------------------------------------------------------------------------------------------------------


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
    cursor: Cursor = "",
    limit: Limit = 100,
) -> CrawlPage:
    """Running ones, those that ended within the retention, and those that are marked as stopped or expired. One may be
    on two pages."""
    found, following = await parts.frontier.crawls(appid=appid, cursor=cursor, limit=limit)
    infos = await asyncio.gather(*(parts.frontier.crawl_info(crawl) for crawl in found))
    return CrawlPage(items=[CrawlSummary(**_summary(info)) for info in infos if info is not None], cursor=following)


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
        parts.frontier.crawl_info(crawl), parts.frontier.run_of(crawl), _domains(parts, crawl, domains, limit)
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
    response_model=Stopped,
    responses=refusals(400, 404, 503),
)
async def stop(
    parts: Given,
    crawl: TheCrawl,
    spiderid: Annotated[str | None, Query(description="Only this spider's part", min_length=1, max_length=1000)] = None,
) -> Stopped:
    """What waits is dropped, what is being fetched is finished. The crawl takes no more requests while its mark is kept
    (the setting marks)."""
    if await parts.frontier.crawl_info(crawl) is None:
        raise unknown(crawl)
    purged = await parts.frontier.stop_crawl(crawl, spider=spiderid)
    return Stopped(appid=crawl.appid, crawlid=crawl.crawlid, spiderid=spiderid, purged=purged)


def unknown(crawl: CrawlId) -> Problem:
    """404."""
    return not_found(f"no crawl {crawl} is known")


async def _domains(parts: Parts, crawl: CrawlId, cursor: str | None, limit: int) -> DomainPage | None:
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
                by_priority={priority: count for priority, count in share.by_priority.items() if count},
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


def _counts(counts: SpiderCounts) -> Counts:
    return Counts(
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
