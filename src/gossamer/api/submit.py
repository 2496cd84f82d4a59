"""Submitting crawl requests, one or many."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.context import ApiContext, Given
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.api.problems import Problem, bad_request
from gossamer.api.reading import NDJSON, decoded, encoded, is_lines, lines
from gossamer.control import stats
from gossamer.control.admission import DUPLICATE, AdmittedRequest, SubmitResult
from gossamer.control.dispatcher import CRAWL
from gossamer.errors import FrontierError, RequestRejected

_PAUSE_SECONDS = 1.0
_GOODBYE_SECONDS = 1.0


class SubmissionCounter:
    """Counts in memory, and puts it together with the others' once a second. What is not there yet when the process
    dies is not counted."""

    def __init__(self, parts: ApiContext) -> None:
        self._parts = parts
        self._counts: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    def count(self, kind: str, result: str) -> None:
        """`result`: accepted, duplicate or rejected."""
        self._parts.metrics.requests.labels(kind, result).inc()
        self._counts["total"] += 1
        self._counts["fail" if result == "rejected" else stats.request_counter(kind)] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._soon())

    async def close(self) -> None:
        """Count the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._flush()

    async def _soon(self) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        counts, self._counts = self._counts, Counter()
        with contextlib.suppress(FrontierError):  # repeated it might count twice
            await self._parts.counters.add(stats.INTAKE, counts)


MOST_ITEMS = 10_000
"""Requests in one batch."""

router = APIRouter(prefix="/v1/crawls", tags=["crawls"])


class RequestResult(ResponseModel):
    """What became of one request."""

    added: bool
    reason: str = ""
    """`duplicate`: its URL was seen in this run of the crawl; else why it was refused. Of a request with `fresh` that
    was added to a running run: that it joined this"""
    field: str = ""
    """The faulty field, where it is not valid"""
    blacklisted: str = ""
    """`held` or `dropped`: it was added, and its domain is on the blacklist"""
    status: int
    """201 added, 200 duplicate, 400 not valid, 409 the crawl takes no more"""


class SingleResult(RequestResult):
    """The same of a request that was sent alone."""

    appid: str
    crawlid: str
    spiderid: str
    url: str
    """As it will be fetched"""


class BatchResult(ResponseModel):
    """What became of each request of a batch, in order."""

    added: int
    duplicates: int
    refused: int
    items: list[RequestResult]


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
        201: {"description": "Added", "model": SingleResult},
        200: {"description": "Seen in this run of the crawl already: nothing was added", "model": SingleResult},
        207: {"description": "A batch: each has its own status", "model": BatchResult},
        **refusals(400, 408, 409, 413, 503),
    },
)
async def submit(parts: Given, request: Request) -> Response:
    """Requests join the crawl they name, each under its own terms; a crawl that is not there begins.

    May be repeated after a 503: what was added before is then a duplicate."""
    fed: SubmissionCounter = request.app.state.fed
    body = await request.body()
    if is_lines(request):
        return await _submit_batch(parts, fed, lines(body))
    given = decoded(body)
    if isinstance(given, list):
        return await _submit_batch(parts, fed, given)
    if not isinstance(given, dict):
        raise bad_request("the body must be a JSON object or array")
    return await _submit_one(parts, fed, given)


async def _submit_one(parts: ApiContext, fed: SubmissionCounter, given: dict[str, Any]) -> Response:
    try:
        submission = _read(parts, given)
    except RequestRejected:
        fed.count(CRAWL, "rejected")
        raise
    [submitted] = await parts.desk.submit([submission])
    taken = _taken(fed, submitted)
    if taken.field:
        raise RequestRejected(taken.reason, field=taken.field)
    if taken.status == 409:
        raise Problem(409, "Crawl refused", taken.reason)
    crawl = submission.crawl.id
    found = SingleResult(
        **taken.model_dump(), appid=crawl.appid, crawlid=crawl.crawlid, spiderid=submission.spider, url=submission.url
    )
    headers = {"Location": f"/v1/crawls/{encoded(crawl.appid, crawl.crawlid)}"}
    return Response(found.model_dump_json(), taken.status, headers, "application/json")


async def _submit_batch(parts: ApiContext, fed: SubmissionCounter, values: Sequence[Any]) -> Response:
    if len(values) > MOST_ITEMS:
        raise bad_request(f"a batch may have {MOST_ITEMS:,} requests, not {len(values):,}")
    taken: list[RequestResult | None] = [None] * len(values)
    sound: list[int] = []
    submissions: list[AdmittedRequest] = []
    for at, value in enumerate(values):
        try:
            submissions.append(_read(parts, value))
            sound.append(at)
        except RequestRejected as fault:
            fed.count(CRAWL, "rejected")
            taken[at] = RequestResult(added=False, reason=fault.reason, field=fault.field, status=400)
    for at, submitted in zip(sound, await parts.desk.submit(submissions), strict=True):
        taken[at] = _taken(fed, submitted)
    items = [item for item in taken if item is not None]
    found = BatchResult(
        added=sum(item.status == 201 for item in items),
        duplicates=sum(item.status == 200 for item in items),
        refused=sum(item.status >= 400 for item in items),
        items=items,
    )
    return Response(found.model_dump_json(), 207, media_type="application/json")


def _read(parts: ApiContext, value: Any) -> AdmittedRequest:
    if not isinstance(value, bytes | dict):
        raise RequestRejected("the body must be a JSON object")
    kind, request = parts.desk.read(value)
    if kind != CRAWL:
        raise RequestRejected(f"this is a request of the kind {kind}, not crawl; send it to /feed")
    found: AdmittedRequest = request
    return found


def _taken(fed: SubmissionCounter, submitted: SubmitResult) -> RequestResult:
    if submitted.added:
        result, status = "accepted", 201
    elif submitted.reason == DUPLICATE:
        result, status = "duplicate", 200
    else:
        result, status = "rejected", 400 if submitted.field else 409
    fed.count(CRAWL, result)
    return RequestResult(
        added=submitted.added,
        reason=submitted.reason,
        field=submitted.field,
        blacklisted=submitted.blacklisted,
        status=status,
    )
