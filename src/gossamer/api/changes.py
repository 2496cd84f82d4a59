"""Endpoints of crawls that are kept up to date: their changes, and an intake for URLs that have changed.

Fixed: the form of an answer and of its cursor, which clients keep; and the fields of the intake, which are those of
IndexNow (https://www.indexnow.org/documentation).
"""

import asyncio
from contextlib import closing
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from gossamer.api.audit import begin
from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl, check_fields, read_object
from gossamer.api.openapi import Limit, ResponseModel, refusals
from gossamer.api.problems import bad_request, not_found
from gossamer.control.changes import crawl_subject
from gossamer.errors import BadInput
from gossamer.fresh.freshness import CrawlFreshness, freshness_of
from gossamer.fresh.index import PageIndex
from gossamer.fresh.page import Change
from gossamer.fresh.store import IndexStore, kept_crawl
from gossamer.model.crawl import CrawlId
from gossamer.net.names import domain_name
from gossamer.policy.scope import scope_of
from gossamer.policy.urls import from_user_input, host, registered_domain
from gossamer.storage.audit import shown

_MOST_URLS = 10_000
"""URLs of one announcement: the limit of IndexNow."""

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class ChangePage(ResponseModel):
    """Some changes, oldest first."""

    items: list[dict[str, object]]
    """Changes as in the topic `<prefix>.changes`, without `appid` and `crawlid`"""
    cursor: int
    """`since` of the next call, which may be made now or later"""
    more: bool
    """True: there are more changes now. False: there are none at present"""


@router.get(
    "/changes",
    operation_id="crawl_changes",
    summary="Return the changes of a crawl that is kept up to date",
    responses={200: {"description": "Some changes", "model": ChangePage}, **refusals(400, 404, 503)},
)
async def list_changes(
    context: Context,
    crawl: PathCrawl,
    since: Annotated[int, Query(description="Cursor of the last change that was read; 0: from the oldest", ge=0)] = 0,
    limit: Limit = 100,
) -> Response:
    """New, changed, gone and returned pages, for a crawl that was submitted with `recrawl`. The last million changes
    are kept; an older cursor is refused."""
    found = await asyncio.to_thread(_changes, _indexes(context), crawl, since, limit + 1)
    items = found[:limit]
    body = {"items": items, "cursor": items[-1].cursor if items else since, "more": len(found) > limit}
    return Response(msgspec.json.encode(body), media_type="application/json")


class FreshDomain(ResponseModel):
    """Freshness of the pages of a domain. Ages are in seconds."""

    domain: str
    pages: int
    """All pages, also those that are gone or redirect"""
    live: int
    gone: int
    due: int
    """Pages that wait for a visit: the debt of visits"""
    mean_age: float
    """Time since the visits of its live pages, on average"""
    longest_age: float
    visits_a_day: float | None
    """Visits that the budget buys; null, as in the next three fields: nothing is planned yet"""
    freshness: float | None
    """Share of pages that is expected to be up to date"""
    freshness_at_twice_the_budget: float | None
    visits_a_day_needed: int | None
    """Visits that reach the longest age of each page, if the budget does not; 0: it does"""


class Freshness(ResponseModel):
    """Freshness of the pages of a crawl."""

    rounds: int
    """Rounds that have begun"""
    cursor: int
    """Cursor of the last change"""
    goes_on: bool
    """False: the crawl was stopped, and its pages are not visited any more"""
    domains: list[FreshDomain]
    """The domain with the most pages first"""


@router.get(
    "/freshness",
    operation_id="crawl_freshness",
    summary="Show how up to date the pages of a crawl are",
    response_model=Freshness,
    responses=refusals(404, 503),
)
async def show_freshness(context: Context, crawl: PathCrawl) -> Freshness:
    """As `gossamer crawls fresh`, for a crawl that was submitted with `recrawl`. Reads all pages of its index: half a
    second for a million."""
    found, goes_on = await asyncio.to_thread(_freshness, _indexes(context), crawl)
    return Freshness.of(found, domains=[FreshDomain.of(one) for one in found.domains], goes_on=goes_on)


class AnnouncedChanges(ResponseModel):
    """Result of announced changes."""

    due: int
    """Pages that are due now"""
    new: int
    """URLs of which the crawl had no page, and which are due now; without those beyond the crawl's limits of pages"""


@router.post(
    "/changed",
    operation_id="announce_changes",
    summary="Announce that pages have changed",
    response_model=AnnouncedChanges,
    responses=refusals(400, 404, 503),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["host", "urlList"],
                        "properties": {
                            "host": {"type": "string", "description": "Host of all URLs"},
                            "urlList": {
                                "type": "array",
                                "items": {"type": "string"},
                                "maxItems": _MOST_URLS,
                                "description": "URLs of pages that are new, have changed or are gone",
                            },
                            "key": {"type": "string", "description": "Not read"},
                            "keyLocation": {"type": "string", "description": "Not read"},
                        },
                    },
                    "example": {"host": "example.com", "urlList": ["https://example.com/news"]},
                }
            },
        }
    },
)
async def announce_changes(context: Context, crawl: PathCrawl, request: Request) -> AnnouncedChanges:
    """Makes pages due at once, within the budget of the crawl. The body has the form of IndexNow; instead of its key,
    the token of this API counts. URLs of a site (a registered domain) of which the crawl has no page, and URLs out of
    its scope, are refused."""
    indexes = _indexes(context)
    given = await read_object(request)
    check_fields(given, ("host", "urlList", "key", "keyLocation"))
    name, urls = given.get("host"), given.get("urlList")
    if not isinstance(name, str) or not name:
        raise bad_request("name the host of the URLs", where="host")
    if not isinstance(urls, list) or not urls or len(urls) > _MOST_URLS or not all(isinstance(u, str) for u in urls):
        raise bad_request(f"list 1 to {_MOST_URLS:,} URLs as texts", where="urlList")
    await begin(request, "changes.announce", crawl_subject(crawl), host=shown(name), urls=len(urls))
    return await asyncio.to_thread(_announce, indexes, crawl, name, urls)


def _announce(store: IndexStore, crawl: CrawlId, name: str, given: list[str]) -> AnnouncedChanges:
    index = _opened(store, crawl)
    try:
        kept = kept_crawl(index)
        if kept is None:
            raise not_found(f"the crawl {crawl} is not kept up to date any more")
        try:
            named = domain_name(name)
        except BadInput as error:
            raise bad_request(str(error), where="host") from None
        domain, scope = registered_domain(named), scope_of(kept.terms)
        if domain not in index.domains():
            raise bad_request(f"the crawl {crawl} has no page of {name}", where="host")
        try:
            urls = [from_user_input(url) for url in given]
        except BadInput as error:
            raise bad_request(str(error).removesuffix("."), where="urlList") from None
        for url in urls:
            if host(url) != named:
                raise bad_request(f"{url} is not a URL of {name}", where="urlList")
            if (reason := scope.reason(url)) is not None:
                raise bad_request(f"{url} is out of the scope of the crawl ({reason})", where="urlList")
        now = int(index.clock())
        found = index.announce(dict.fromkeys(urls, now), is_certain=True)
        return AnnouncedChanges(due=found.news, new=kept.enter(index, found.unknown))
    finally:
        index.close()


def _opened(store: IndexStore, crawl: CrawlId) -> PageIndex:
    """Open the index of a crawl. Raises Problem for a crawl that has none."""
    try:
        return store.find(crawl)
    except BadInput as error:
        raise not_found(error.detail) from None


def _indexes(context: ApiContext) -> IndexStore:
    """Return the page indexes of the service. Raises Problem if it has none."""
    if context.indexes is None:
        raise not_found("this service keeps no crawls up to date: it has no database for their page indexes")
    return context.indexes


def _changes(store: IndexStore, crawl: CrawlId, since: int, limit: int) -> list[Change]:
    with closing(_opened(store, crawl)) as index:
        try:
            return index.changes(since, limit)
        except BadInput as error:
            raise bad_request(error.fault.removesuffix("."), where="since") from None


def _freshness(store: IndexStore, crawl: CrawlId) -> tuple[CrawlFreshness, bool]:
    """Return the freshness of a crawl's pages, and whether they are visited any more."""
    with closing(_opened(store, crawl)) as index:
        return freshness_of(index, index.clock()), kept_crawl(index) is not None
