"""Endpoints that explain speed: what limits the requests to a domain now, and which limits a crawl waits for.

Clients read the fields, so none may be renamed or removed; fields may be added, and causes, too.
"""

import asyncio
import math
import time
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import check_known
from gossamer.api.domains import PathDomain
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.control.domains import blacklisted_among, parse_domain
from gossamer.fetch.robots_service import unpack
from gossamer.model.crawl import CrawlId
from gossamer.model.info import DomainInfo, DomainLimit, DomainLoad

crawl_router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])
domain_router = APIRouter(prefix="/v1/domains", tags=["domains"])

_DOMAINS_READ = 100
"""Domains of a crawl that are read to find those where most requests wait. More take longer."""
_TEXT_BYTES = 20_000
"""Size of the text of a robots.txt."""


class LimitModel(ResponseModel):
    """A limit of the requests to a domain, and its use."""

    cause: str = Field(examples=["policy"])
    """`policy`: the operator's policy; `crawl`: the rate that the crawl asks for; `robots`: the delay of robots.txt"""
    hits: int
    """Most requests in any window"""
    window: float | None
    """Length of the window in seconds; null: no request is allowed"""
    used: int
    """Requests in the window that ends now"""


class RobotsModel(ResponseModel):
    """The robots.txt of an origin, as it was fetched last."""

    origin: str
    outcome: str = Field(examples=["rules"])
    """`rules`: there is one; `allow_all`: there is none; `disallow_all`: it may not be fetched; `unreachable`: no
    useful answer came, and nothing is fetched until then"""
    asked_at: float
    """Epoch seconds"""
    until: float
    """Epoch seconds until which it counts"""
    detail: str
    """Answer that came in place of rules"""
    text: str
    """Beginning of the rules, 20,000 characters at most"""


class DomainLoadModel(ResponseModel):
    """Limits of the requests to a domain, and their use now."""

    domain: str
    limits: list[LimitModel]
    """Each request must fit into all of them"""
    in_flight: int
    concurrency: int | None
    """Most requests at the same time; null: any number"""
    blocked_until: float | None
    """Epoch seconds until which the site asked for a pause (Retry-After), or the domain rests after a refusal; null:
    neither"""
    is_paused: bool
    """The policy holds all requests back: its scale is 0, or it is on the blacklist"""
    robots: list[RobotsModel]
    """Up to 20 origins of the domain, those that were fetched last first"""


class DomainUseModel(ResponseModel):
    """Use of the narrowest limit of a domain in a minute."""

    at: float
    """Epoch seconds of the beginning of the minute"""
    used: float
    """Requests in the window, the mean of six samples"""
    most: int
    """Largest of them"""
    hits: int
    """Most requests in any window"""
    window: float
    """Length of the window in seconds; 0: no request is allowed"""


class DomainUses(ResponseModel):
    """Use of the narrowest limit of a domain in the last 24 hours, the earliest minute first."""

    items: list[DomainUseModel]
    remembered: bool
    """False: the service keeps no history"""


class DomainPace(ResponseModel):
    """Waiting requests of a crawl on a domain, and the limit that they wait for."""

    domain: str
    waiting: int
    """Requests that wait, also those for another attempt"""
    later: int
    """Requests that wait for another attempt, which is not due yet"""
    limited_by: str = Field(examples=["policy"])
    """`crawl_paused` (by `gossamer crawls pause`), `blacklist`, `paused` (a scale of 0), `site` (it asked for a pause),
    `retries` (all wait for another attempt); `concurrency` (as many requests as are allowed are in progress, and answer
    slowly); else the narrowest limit: `robots`, `crawl` or `policy`"""
    blocked_until: float | None
    """Epoch seconds until which the site asked for a pause; null: it did not"""
    hits: int
    """Most requests in any window, by the narrowest limit"""
    window: float | None
    """Length of that window in seconds; null: no request is allowed"""
    used: int
    """Requests in the window that ends now"""
    in_flight: int
    concurrency: int | None
    least_seconds: float | None
    """Time that the waiting requests take at least, at the narrowest limit; null: for ever, or until the crawl is
    resumed"""


class CrawlPace(ResponseModel):
    """Limits for which the requests of a crawl wait."""

    workers: int
    """Workers that are connected. 0: nothing is fetched"""
    items: list[DomainPace]
    """Domains where its requests wait, those that take longest first, 20 at most"""


@domain_router.get(
    "/{domain:name}/load",
    operation_id="domain_load",
    summary="Return what limits the requests to a domain now",
    response_model=DomainLoadModel,
    responses=refusals(400, 503),
)
async def domain_load(context: Context, domain: PathDomain) -> DomainLoadModel:
    """Concerns crawls that ask for no rate of their own; `pace` of a crawl has its limits. Where the policy counts
    each spider alone, the hits are those of `link`; where it counts each address alone, they are 0."""
    name = parse_domain(domain)
    load, origins = await asyncio.gather(context.frontier.domain_load(name), context.frontier.robots_origins(name))
    return DomainLoadModel.of(
        load,
        domain=name,
        limits=[_limit(limit) for limit in load.limits],
        robots=[
            RobotsModel.of(
                record,
                origin=origin,
                outcome=record.outcome.value,
                text=record.body[:_TEXT_BYTES].decode("utf-8", "replace"),
            )
            for origin, packed in origins
            if (record := unpack(packed)) is not None
        ],
    )


@domain_router.get(
    "/{domain:name}/use",
    operation_id="domain_use",
    summary="Return how much of a domain's limits was used over time",
    response_model=DomainUses,
    responses=refusals(400, 503),
)
async def domain_use(context: Context, domain: PathDomain) -> DomainUses:
    """Needs a history (the setting history.database). It remembers up to 50 domains of a minute: the first 30 by name
    that have a policy, and the 20 where most requests wait."""
    name = parse_domain(domain)
    rows = await context.history.domain_use(name) if context.history is not None else []
    return DomainUses(
        items=[DomainUseModel.of(row, at=row.minute * 60.0) for row in rows], remembered=context.history is not None
    )


def _finite(seconds: float) -> float | None:
    """Return a time; None: it never ends."""
    return seconds if math.isfinite(seconds) else None


def _limit(limit: DomainLimit) -> LimitModel:
    return LimitModel.of(limit, window=_finite(limit.window_seconds))


@crawl_router.get(
    "/pace",
    operation_id="crawl_pace",
    summary="Explain the speed of a crawl",
    response_model=CrawlPace,
    responses=refusals(400, 404, 503),
)
async def crawl_pace(
    context: Context,
    crawl: PathCrawl,
    limit: Annotated[int, Query(description="Most domains", ge=1, le=20)] = 10,
) -> CrawlPace:
    """Names the limit for which the requests of each domain wait, and how much of it is used. Up to 100 domains are
    read, and those with most waiting requests are returned."""
    await check_known(context, crawl)
    [found], workers, info = await asyncio.gather(
        context.frontier.first_domains([crawl], limit=_DOMAINS_READ),
        context.frontier.workers(),
        context.frontier.crawl_info(crawl),
    )
    most = sorted(found, key=lambda share: -(share.queued + share.later))[:limit]
    blacklisted = await blacklisted_among(context.frontier, [share.domain for share in most])
    items = await asyncio.gather(*(_pace(context, crawl, share, share.domain in blacklisted) for share in most))
    if info is not None and info.is_paused:
        items = [item.model_copy(update={"limited_by": "crawl_paused", "least_seconds": None}) for item in items]
    return CrawlPace(workers=len(workers), items=sorted(items, key=_longest_first))


def _longest_first(item: DomainPace) -> float:
    return -math.inf if item.least_seconds is None else -item.least_seconds


async def _pace(context: ApiContext, crawl: CrawlId, share: DomainInfo, is_blacklisted: bool) -> DomainPace:
    """Return what the requests of a crawl on one domain wait for."""
    spider = next(iter(share.by_spider), "link")
    load = await context.frontier.domain_load(share.domain, crawl=crawl, spider=spider)
    narrowest = load.narrowest
    waiting = share.queued + share.later
    return DomainPace(
        domain=share.domain,
        waiting=waiting,
        later=share.later,
        limited_by="blacklist" if is_blacklisted else _limited_by(share, load),
        blocked_until=load.blocked_until,
        hits=narrowest.hits,
        window=_finite(narrowest.window_seconds),
        used=narrowest.used,
        in_flight=load.in_flight,
        concurrency=load.concurrency,
        least_seconds=_finite(round(waiting / narrowest.hits * narrowest.window_seconds, 1)),
    )


def _limited_by(share: DomainInfo, load: DomainLoad) -> str:
    """Return what the requests of a crawl on a domain wait for."""
    narrowest = load.narrowest
    if load.is_paused:
        return "paused"
    if load.blocked_until is not None and load.blocked_until > time.time():
        return "site"
    if not share.queued:
        return "retries"
    if load.concurrency is not None and load.in_flight >= load.concurrency and narrowest.used < narrowest.hits:
        return "concurrency"
    return narrowest.cause
