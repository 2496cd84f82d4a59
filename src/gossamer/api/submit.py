"""The endpoint that submits crawl requests, one or many, and the counter of what was submitted.

A run of a crawl lasts from a first request until nothing is left to do; a request with `fresh` asks for a new run.

Fixed, because clients read them: statuses, names of fields, and that the results of a batch are in the order of its
requests. docs/reference/openapi.json, which is generated, contains the texts below.
"""

import asyncio
import contextlib
import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.audit import begin_change
from gossamer.api.context import (
    JSON_LINES,
    ApiContext,
    Context,
    is_json_lines,
    parse_json,
    split_lines,
)
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.api.problems import bad_request
from gossamer.control import stats
from gossamer.control.admission import DUPLICATE, AdmittedRequest, SubmitResult
from gossamer.control.changes import submission
from gossamer.control.dispatcher import CRAWL
from gossamer.errors import FrontierError, RequestRejected
from gossamer.net.paths import path_of
from gossamer.web.audit import audit_of
from gossamer.web.problems import Problem

MAX_BATCH = 10_000
"""Most requests in one batch. Larger batches keep the process busy for longer, while other clients wait; smaller ones
break clients that send full batches (docs/howto/rest.md names the number). service.max_body limits them as well."""


router = APIRouter(prefix="/v1/crawls", tags=["crawls"])


class RequestResult(ResponseModel):
    """Result of one request."""

    added: bool
    reason: str = ""
    """`duplicate`: this run of the crawl has already seen the URL. Otherwise why the request was refused; or, for a
    request with `fresh`, that it was added to the run in progress"""
    field: str = ""
    """The invalid field, if the request is not valid"""
    blacklisted: str = ""
    """`held` or `dropped`: the request was added, but its domain is on the blacklist"""
    status: int
    """201 added, 200 duplicate, 400 not valid, 409 the crawl accepts no more requests"""


class SingleResult(RequestResult):
    """Result of a request that was sent alone."""

    appid: str
    crawlid: str
    spiderid: str
    url: str
    """The URL in canonical form"""


class BatchResult(ResponseModel):
    """Results of a batch, in the order of its requests."""

    added: int
    duplicates: int
    refused: int
    items: list[RequestResult]


_FLUSH_SECONDS = 1.0
"""Delay after which counts are added to the shared counters, so that one call serves many requests. Longer needs fewer
calls, but a process that dies loses the counts of that time."""
_CLOSE_SECONDS = 1.0
"""Time for the last counts to be added when the process stops; then they are lost. It delays the stop while the servers
of the frontier, which hold the counters, are unavailable."""


class SubmissionCounter:
    """Counts submissions in memory, and adds them to the cluster's counters every `_FLUSH_SECONDS`. When the
    process dies, the counts that are not added yet are lost."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._counts: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    def count(self, kind: str, result: str) -> None:
        """Count one request. `result`: accepted, duplicate or rejected; the names are labels of a metric."""
        self._context.metrics.requests.labels(kind, result).inc()
        self._counts["total"] += 1
        self._counts["fail" if result == "rejected" else stats.request_counter(kind)] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_later())

    async def close(self) -> None:
        """Add the remaining counts."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._flush()

    async def _flush_later(self) -> None:
        """Add the collected counts to the statistics a little later, together."""
        while self._counts:  # also those that came while the earlier ones were being added
            await asyncio.sleep(_FLUSH_SECONDS)
            await self._flush()

    async def _flush(self) -> None:
        """Add the collected counts to the statistics now."""
        counts, self._counts = self._counts, Counter()
        with contextlib.suppress(FrontierError):  # a repeated call might count twice, so lost counts stay lost
            await self._context.counters.add(stats.INTAKE, counts)


class _RememberedAnswer(msgspec.Struct):
    """The answer to a request with an idempotency key."""

    request: bytes
    """Digest of the request's body."""
    status: int
    location: str
    body: bytes
    """Compressed: the answer to a large batch has a megabyte."""


_KEY_SECONDS = 3600
"""Time for which a key is remembered. Must be that for which the frontier remembers the key of a fresh run: a process
that dies between the submission and its answer leaves only that. docs/howto/rest.md names it."""
_MAX_KEY = 200
"""Longest idempotency key."""
IdempotencyKey = Annotated[
    str,
    Header(
        max_length=_MAX_KEY,
        description="Any text, a new one for each submission. A repetition with the same key within an hour submits "
        "nothing again and gets the first answer",
    ),
]


class AnswerMemory:
    """Remembers the answers to requests with an idempotency key, for all processes of the cluster.

    Keys: `<prefix>:submitted:<digest of the idempotency key>` (string: the answer), and the same with `:begun` (string:
    digest of the body, set before the submission). They expire after an hour.
    """

    def __init__(self, context: ApiContext, key: str, body: bytes) -> None:
        """`key` empty: nothing is remembered."""
        self.digest = hashlib.sha256(key.encode()).hexdigest() if key else ""
        self._shards = context.shards
        self._key = f"{context.prefix}:submitted:{self.digest}"
        self._request = hashlib.sha256(body).digest()

    async def find(self) -> Response | None:
        """Return the first answer. None: there is none. Raises Problem if the key was used for another request."""
        stored = await self._shards.command(self._key, "GET", self._key) if self.digest else None
        if stored is None:
            return None
        answer = msgspec.msgpack.decode(stored, type=_RememberedAnswer)
        if answer.request != self._request:
            raise Problem(409, "Key used before", "the Idempotency-Key was used for another request within the hour")
        headers = {"Idempotency-Replayed": "true", **({"Location": answer.location} if answer.location else {})}
        return Response(zlib.decompress(answer.body), answer.status, headers, "application/json")

    async def begin(self) -> bool:
        """Record that the request is submitted now. Return whether it was before: then its answer got lost, and what
        seems a duplicate may be its own."""
        if not self.digest:
            return False
        key = f"{self._key}:begun"
        before = await self._shards.command(key, "SET", key, self._request, "NX", "GET", "EX", _KEY_SECONDS)
        return bool(before == self._request)

    async def keep(self, response: Response) -> Response:
        """Remember an answer, and return the one to send: that of another process which was faster, if there is one."""
        if not self.digest:
            return response
        content = zlib.compress(bytes(response.body), 1)
        answer = _RememberedAnswer(self._request, response.status_code, response.headers.get("location", ""), content)
        value = msgspec.msgpack.encode(answer)
        try:
            if await self._shards.command(self._key, "SET", self._key, value, "NX", "EX", _KEY_SECONDS) is None:
                return await self.find() or response
        except FrontierError:
            pass  # it was submitted; the frontier itself keeps a repetition from doing so again
        return response


_REQUEST = {"$ref": f"{describe.SCHEMAS}CrawlRequest"}
_EXAMPLE = {"appid": "shop", "crawlid": "prices", "url": "https://example.com", "maxdepth": 2}


@router.post(
    "",
    operation_id="submit",
    summary="Submit one request or a batch",
    status_code=201,
    openapi_extra=describe.body(
        {
            "application/json": {
                "schema": {"oneOf": [_REQUEST, {"type": "array", "items": _REQUEST, "maxItems": MAX_BATCH}]},
                "examples": {"one": {"value": _EXAMPLE}, "batch": {"value": [_EXAMPLE]}},
            },
            JSON_LINES: {
                "schema": {"type": "string"},
                "example": '{"appid": "shop", "crawlid": "prices", "url": "a.test"}',
            },
        },
        "A crawl request, an array of crawl requests, or one crawl request per line",
    ),
    responses={
        201: {"description": "The request was added", "model": SingleResult},
        200: {
            "description": "This run of the crawl has already seen the URL; nothing was added",
            "model": SingleResult,
        },
        207: {"description": "The results of a batch, each with its own status", "model": BatchResult},
        **refusals(400, 408, 409, 413, 503),
    },
)
async def submit(context: Context, request: Request, idempotency_key: IdempotencyKey = "") -> Response:
    """Adds requests to the crawls that they name, each with its own options. A crawl that does not exist is created.

    After a 503 or a lost answer the call may be repeated: requests that were already added are then duplicates; with an
    Idempotency-Key, they count as added. With `fresh`, send one, so that a repetition begins no second run."""
    body = await request.body()
    memory = AnswerMemory(context, idempotency_key, body)
    known = await memory.find()
    if known is not None:
        return known
    key = SubmissionKey(memory.digest, is_repeated=await memory.begin())
    return await memory.keep(await _submit(request, body, key))


class SubmissionKey(msgspec.Struct, frozen=True):
    """The idempotency key of a submission."""

    digest: str
    """Equal in each repetition. Empty: the client gave no key."""
    is_repeated: bool
    """True: an earlier attempt may have added the requests."""


async def _submit(request: Request, body: bytes, key: SubmissionKey) -> Response:
    """Submit the requests in a body."""
    counter: SubmissionCounter = request.app.state.submissions
    if is_json_lines(request):
        return await _submit_batch(request, counter, split_lines(body), key)
    given = parse_json(body)
    if isinstance(given, list):
        return await _submit_batch(request, counter, given, key)
    if not isinstance(given, dict):
        raise bad_request("the body must be a JSON object or array")
    return await _submit_one(request, counter, given, key)


async def _submit_one(
    request: Request, counter: SubmissionCounter, given: dict[str, Any], key: SubmissionKey
) -> Response:
    """Submit one request, and return the response. Raises RequestRejected, and Problem if the crawl refuses it."""
    context: ApiContext = request.app.state.context
    try:
        admitted = _read(context, given, key.digest)
    except RequestRejected:
        counter.count(CRAWL, "rejected")
        raise
    await begin_change(request, submission([admitted]))
    [submitted] = await context.dispatcher.submit([admitted])
    result = _counted_result(counter, submitted, is_repeated=key.is_repeated)
    if result.field:
        raise RequestRejected(result.reason, field=result.field)
    if result.status == 409:
        raise Problem(409, "Crawl refused", result.reason)
    crawl = admitted.crawl.id
    body = SingleResult(
        **result.model_dump(), appid=crawl.appid, crawlid=crawl.crawlid, spiderid=admitted.spider, url=admitted.url
    )
    headers = {"Location": f"/v1/crawls/{path_of(crawl.appid, crawl.crawlid)}"}
    return Response(body.model_dump_json(), result.status, headers, "application/json")


async def _submit_batch(
    request: Request, counter: SubmissionCounter, values: Sequence[Any], key: SubmissionKey
) -> Response:
    """Submit several requests. Return a 207 with a result for each, in their order."""
    if len(values) > MAX_BATCH:
        raise bad_request(f"a batch may have {MAX_BATCH:,} requests, not {len(values):,}")
    context: ApiContext = request.app.state.context
    results: dict[int, RequestResult] = {}  # by position in the batch
    admitted: dict[int, AdmittedRequest] = {}
    for position, value in enumerate(values):
        try:
            admitted[position] = _read(context, value, key.digest)
        except RequestRejected as fault:
            counter.count(CRAWL, "rejected")
            results[position] = RequestResult(added=False, reason=fault.reason, field=fault.field, status=400)
    if admitted:
        await begin_change(request, submission([*admitted.values()]))
    for position, submitted in zip(admitted, await context.dispatcher.submit([*admitted.values()]), strict=True):
        results[position] = _counted_result(counter, submitted, is_repeated=key.is_repeated)
    items = [results[position] for position in range(len(values))]
    body = BatchResult(
        added=sum(item.status == 201 for item in items),
        duplicates=sum(item.status == 200 for item in items),
        refused=sum(item.status >= 400 for item in items),
        items=items,
    )
    audit_of(request).note(added=body.added, duplicates=body.duplicates, refused=body.refused)
    return Response(body.model_dump_json(), 207, media_type="application/json")


def _read(context: ApiContext, value: Any, key: str) -> AdmittedRequest:
    """Return the crawl request in one element or line of a body, which a submission with this key has. Raises
    RequestRejected."""
    if not isinstance(value, bytes | dict):
        raise RequestRejected("a request must be a JSON object")
    kind, request = context.dispatcher.read(value)
    if kind != CRAWL:
        raise RequestRejected(f"this is a request of the kind {kind}, not crawl; send it to /feed")
    admitted: AdmittedRequest = request
    if key and admitted.fresh:
        # Of each crawl its own: the frontier remembers one run by a key.
        admitted.idempotency_key = f"{key}:{admitted.crawl.id.token}"
    return admitted


def _counted_result(counter: SubmissionCounter, submitted: SubmitResult, *, is_repeated: bool) -> RequestResult:
    """Count the result of a submission, and return it with its status. In a repetition, a duplicate counts as added."""
    if is_repeated and submitted.reason == DUPLICATE:
        submitted = SubmitResult(added=True)
    if submitted.added:
        result, status = "accepted", 201
    elif submitted.reason == DUPLICATE:
        result, status = "duplicate", 200
    else:
        # Without an invalid field, the crawl itself accepts no more requests.
        result, status = "rejected", 400 if submitted.field else 409
    counter.count(CRAWL, result)
    return RequestResult.of(submitted, status=status)
