"""Endpoints for what the history remembers of a crawl: failures by reason with examples, rates over time, ends of runs.

Clients read the fields, so none may be renamed or removed; fields may be added.
"""

from typing import TYPE_CHECKING

from fastapi import APIRouter
from pydantic import Field

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import NO_HISTORY, info_or_memory, unknown_crawl
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.api.problems import not_found
from gossamer.errors import FrontierUnavailable, HistoryUnavailable
from gossamer.model.crawl import CrawlId

if TYPE_CHECKING:
    from gossamer.history.store import HistoryStore
    from gossamer.history.tables import FailureRow

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class FailedRequest(ResponseModel):
    """A failed request."""

    url: str
    spiderid: str
    request_id: str
    reason: str
    status: int
    """Status of the response; 0: none came"""
    error: str
    """Error behind the reason"""
    at: float
    """Epoch seconds"""


class FailureReason(ResponseModel):
    """Requests that failed for one reason."""

    reason: str = Field(examples=["http_503"])
    count: int
    examples: list[FailedRequest]
    """Some of them, the latest first"""


class FailureReasons(ResponseModel):
    """Failures of a crawl's latest run by reason, the commonest first."""

    items: list[FailureReason]
    remembered: bool
    """False: the service keeps no history, or it is away, so there are no examples"""
    history_error: str = ""
    """Reason why the history is away; empty: it is not"""


class RatePointModel(ResponseModel):
    """Speed and queue of a crawl at a time."""

    at: float
    """Epoch seconds"""
    pages_per_second: float
    """Since the point before"""
    failures_per_second: float
    fetched: int
    failed: int
    waiting: int
    leased: int


class Rates(ResponseModel):
    """Speed of a crawl's latest run, the earliest point first: one each minute in which it changed, one each hour after
    two days. A run of more than 2,000 minutes has points that are further apart."""

    started: float
    """Epoch seconds"""
    items: list[RatePointModel]


class RunEnd(ResponseModel):
    """End of a run, or of one spider's part of it."""

    event_id: str
    """That of the event on the bus"""
    run: int
    spiderid: str | None
    """The spider whose part ended; null: the whole crawl"""
    state: str
    """`finished`, `stopped` or `expired`"""
    at: float
    """Epoch seconds"""
    purged: int
    """Waiting requests that were dropped"""


class RunEnds(ResponseModel):
    """Ends of a crawl's runs, the latest first, 100 at most."""

    items: list[RunEnd]


def failed_request(row: "FailureRow") -> FailedRequest:
    """Return an example of the history as a response has it."""
    return FailedRequest.of(row, spiderid=row.spider)


@router.get(
    "/reasons",
    operation_id="crawl_failure_reasons",
    summary="Return failures by reason, with examples",
    response_model=FailureReasons,
    responses=refusals(404, 503),
)
async def failure_reasons(context: Context, crawl: PathCrawl) -> FailureReasons:
    """The counts are exact. The examples are up to ten of each reason, as long as the history remembers the crawl."""
    history, history_error = context.history, ""
    examples: dict[str, list[FailureRow]] = {}
    info, away = await info_or_memory(context, crawl)
    if info is None and history is not None and (past := await history.crawl(crawl)) is not None:
        info = past.info
    if info is None:
        raise FrontierUnavailable(away) if away else unknown_crawl(crawl)
    if history is not None:
        try:
            examples = await history.failures(crawl, since=info.started)
        except HistoryUnavailable as error:
            history_error = str(error)
    return FailureReasons(
        items=[
            FailureReason(
                reason=reason,
                count=count,
                examples=[failed_request(row) for row in examples.get(reason, [])],
            )
            for reason, count in sorted(info.total().failed.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
        remembered=history is not None and not history_error,
        history_error=history_error,
    )


@router.get(
    "/rates",
    operation_id="crawl_rates",
    summary="Return the speed of a crawl over time",
    response_model=Rates,
    responses=refusals(404, 503),
)
async def crawl_rates(context: Context, crawl: PathCrawl) -> Rates:
    """Needs a history (the setting history.database); otherwise the answer is 404."""
    history = _history(context)
    started = await _started(context, history, crawl)
    points = await history.rates(crawl, started=started)
    return Rates(started=started, items=[RatePointModel(**point._asdict()) for point in points])


@router.get(
    "/ends",
    operation_id="crawl_ends",
    summary="Return how the runs of a crawl ended",
    response_model=RunEnds,
    responses=refusals(404, 503),
)
async def crawl_ends(context: Context, crawl: PathCrawl) -> RunEnds:
    """Needs a history (the setting history.database); otherwise the answer is 404. Runs of crawls with workers of their
    own (`gossamer crawl`, Scrapy projects) have no events; the state of the crawl says how they ended."""
    history = _history(context)
    await _started(context, history, crawl)
    return RunEnds(
        items=[RunEnd.of(end, spiderid=end.spider or None, state=end.kind) for end in await history.ends(crawl)]
    )


def _history(context: ApiContext) -> "HistoryStore":
    """Return the history. Raises Problem where there is none."""
    if context.history is None:
        raise not_found(f"this service keeps no history: {NO_HISTORY}")
    return context.history


async def _started(context: ApiContext, history: "HistoryStore", crawl: CrawlId) -> float:
    """Return when the latest run of a crawl started. Raises Problem for an unknown crawl."""
    if (past := await history.crawl(crawl)) is not None:
        return past.info.started
    if (info := await context.frontier.crawl_info(crawl)) is not None:  # it began a moment ago
        return info.started
    raise unknown_crawl(crawl)
