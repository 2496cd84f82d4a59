"""Endpoint that explains the state of one URL in a crawl.

Clients read the fields, so none may be renamed or removed; fields may be added.
"""

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from gossamer.api.context import CRAWL_PATH, Context, PathCrawl
from gossamer.api.crawls import check_known
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.api.past import FailedRequest, failed_request
from gossamer.control.browsers import browser_to_start
from gossamer.control.domains import blacklisted_among
from gossamer.control.logins import login_wait
from gossamer.control.url_search import find_in_crawl
from gossamer.errors import HistoryUnavailable
from gossamer.model.crawl import CrawlId
from gossamer.model.info import UrlInfo
from gossamer.policy.scope import scope_of
from gossamer.policy.urls import from_user_input, host, registered_domain

if TYPE_CHECKING:
    from gossamer.fresh.freshness import PageVisits
    from gossamer.fresh.store import IndexStore
    from gossamer.history.tables import FailureRow

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class UrlVisits(ResponseModel):
    """Time of the next visit of a page, and the figures behind it. Times are epoch seconds."""

    state: str = Field(examples=["live"])
    """`live`, `missing` (once; another visit has to confirm it), `gone`, `redirected`, `failed` or `refused`"""
    fetched: float
    due: float
    changes_a_day: float | None
    """Estimate; null: there is none yet"""
    interval: float
    """Seconds between two visits"""
    weight: float
    """1, and the expected new links of a visit"""
    changed: float
    """Time of the visit that found the latest change of the content"""
    misses: int
    """Visits in a row that did not find the page"""


class UrlState(ResponseModel):
    """State of a URL in a crawl."""

    url: str
    """The canonical URL"""
    domain: str
    spiderid: str | None
    """The spider that has seen it; null: none has"""
    seen: bool
    """True: it was requested, or waits. False: it is not known, or the frontier has forgotten the crawl"""
    place: str = Field(examples=["queued"])
    """`queued`, `later` (waits for a retry), `leased` (in progress), `done`, or `unknown`"""
    position: int | None
    """Requests before it in its queue; null: it is not queued, or deeper in the queue than was searched"""
    priority: int | None
    due: float | None
    """Epoch seconds before which its domain, or its retry, is not due"""
    held_by: str | None
    """Worker that has leased it"""
    blocked_until: float | None
    """Epoch seconds until which the site asked for a pause, or the domain rests after a refusal"""
    failed_attempts: int | None
    """Attempts that have failed; null: not known"""
    deaths: int
    """Workers that have died while they held it"""
    failure: str
    """Reason of its failure, if the frontier keeps the request for a retry; empty: it did not fail, or is not kept"""
    dropped: str
    """Reason why it was dropped where it waited; empty: not known, or it was not"""
    without_browser: str = ""
    """Command that starts what it waits for, a worker with a browser, because there is none; empty: it does not"""
    login_trouble: str = ""
    """Accounts of the login by which it is to be fetched that have failed, or why no worker uses it; empty: it waits
    for none"""
    paused: bool = False
    """True: `gossamer crawls pause` has paused the crawl, so none of its requests is handed out"""
    blacklisted: str
    """`held` or `dropped`: what happens to requests of its domain, which is on the blacklist; empty: it is not"""
    scope: str
    """`inside`; or the rule by which each submission of the crawl would refuse a link to it"""
    visits: UrlVisits | None = None
    """Null: the crawl is not kept up to date, or its index does not know the page"""
    failures: list[FailedRequest]
    """Failures of this URL that the history remembers, the latest first"""
    history_error: str = ""
    """Reason why the history is away, so that `failures` has none; empty: it is not"""


@router.get(
    "/url",
    operation_id="explain_url",
    summary="Explain the state of a URL in a crawl",
    response_model=UrlState,
    responses=refusals(400, 404, 503),
)
async def explain_url(
    context: Context,
    crawl: PathCrawl,
    url: Annotated[str, Query(description="The URL, as a person writes it", min_length=1, max_length=65_536)],
) -> UrlState:
    """As `gossamer why`, without robots.txt, which is not fetched. The frontier does not know how a request that is
    done has ended; records on the bus, and failures in the history, say that."""
    await check_known(context, crawl)
    canonical = from_user_input(url)
    domain = registered_domain(host(canonical))
    frontier = context.frontier
    run, info = await frontier.latest_run(crawl), await frontier.crawl_info(crawl)
    terms = await frontier.crawl_terms(crawl) if run is not None else []
    found = None
    if run is not None and info is not None:
        found = await find_in_crawl(frontier, run, spiders=list(info.spiders), terms=terms, url=canonical)
    found = found or UrlInfo(spider="", seen=False, place="unknown")
    if found.terms is not None:
        terms = [found.terms]
    refusals_of_links = [scope_of(each).refusal(canonical) for each in terms]
    is_inside = found.seen or not refusals_of_links or None in refusals_of_links
    rules = dict.fromkeys(f"{each.reason}: {each.rule}" for each in refusals_of_links if each is not None)
    without_browser, trouble = "", ""
    if info is not None:
        trouble = await login_wait(frontier, info, found)
        without_browser = await browser_to_start(frontier, info, found)
    failures: list[FailureRow] = []
    history_error = ""
    if context.history is not None:
        try:
            failures = await context.history.failures_of(crawl, canonical)
        except HistoryUnavailable as error:
            history_error = str(error)
    visits = None
    if context.indexes is not None:
        visits = await asyncio.to_thread(_visits, context.indexes, crawl, canonical)
    return UrlState.of(
        found,
        url=canonical,
        domain=domain,
        spiderid=found.spider if found.seen else None,
        blacklisted=(await blacklisted_among(frontier, [domain])).get(domain, ""),
        scope="inside" if is_inside else "; ".join(rules),
        failures=[failed_request(row) for row in failures],
        history_error=history_error,
        without_browser=without_browser,
        login_trouble=trouble,
        paused=info is not None and info.is_paused,
        visits=UrlVisits.of(visits) if visits is not None else None,
    )


def _visits(store: "IndexStore", crawl: CrawlId, url: str) -> "PageVisits | None":
    """Return when a page is visited next. None: the crawl is not kept up to date, or its index does not know it."""
    from gossamer.fresh.freshness import visits_of  # imported late, as its database: few crawls have an index

    index = store.get(crawl)
    if index is None:
        return None
    with closing(index):
        return visits_of(index, url)
