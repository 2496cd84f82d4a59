"""Scrapy Cluster's REST endpoints `/`, `/feed` and `/poll`, with its messages, status codes and wrapper.

Its clients work with them unchanged, so nothing that they read may change: paths, fields, messages, and the status 500
where the paths under /v1 answer 503. The frontier is the cluster's queue of requests; the bus carries its messages.
"""

import asyncio
from functools import cache
from typing import Any

import jsonschema_rs
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gossamer.api import openapi as describe
from gossamer.api.audit import begin_change
from gossamer.api.context import ApiContext, Context, parse_json
from gossamer.api.problems import OUTAGE_RETRY_SECONDS, failure, success
from gossamer.api.status import is_bus_available, is_frontier_available, troubles_everywhere, waited_for
from gossamer.control.admission import DUPLICATE, AdmittedRequest
from gossamer.control.changes import made_change, refusal_in, requested_change, submission
from gossamer.control.dispatcher import CRAWL
from gossamer.errors import BusError, FrontierError, RequestRejected
from gossamer.model.messages import answers
from gossamer.model.messages.reader import schema
from gossamer.web.audit import audit_of

# Scrapy Cluster's own messages; clients compare them.
_NOT_JSON = "The payload must be valid JSON."
_INVALID = "JSON did not validate against schema."
_NO_FRONTIER = "Unable to connect to Redis"
_NO_BUS = "Unable to connect to Kafka"
_NO_ANSWER = "Could not find matching poll_id"

_RETRY_LATER = {"Retry-After": str(OUTAGE_RETRY_SECONDS)}

router = APIRouter(tags=["Scrapy Cluster"])


def _wrapped(description: str) -> dict[str, Any]:
    """Describe a response in Scrapy Cluster's wrapper."""
    content = {"application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Wrapper"}}}
    return {"description": description, "content": content}


_INDEX_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "GREEN: bus and frontier answer, and no process waits for anything (see /readyz); RED: "
        "neither answers; else YELLOW",
        "content": {"application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Root"}}},
    }
}


@router.get("/", operation_id="classic_index", summary="Return the state of the service", responses=_INDEX_RESPONSES)
@router.post(
    "/",
    operation_id="classic_index_post",
    summary="Return the state of the service (POST)",
    responses=_INDEX_RESPONSES,
)
async def index(context: Context, request: Request) -> Response:
    """`kafka_connected` stands for the bus, Kafka or not, and `redis_connected` for the servers of the frontier."""
    bus, frontier, troubles = await asyncio.gather(
        is_bus_available(context), is_frontier_available(context), troubles_everywhere(context)
    )
    health = (
        "RED" if not bus and not frontier else "GREEN" if bus and frontier and not waited_for(troubles) else "YELLOW"
    )
    return JSONResponse(
        {
            "kafka_connected": bus,
            "redis_connected": frontier,
            "uptime_sec": int(context.monotonic() - request.app.state.started_at),
            "my_id": context.id,
            "node_health": health,
        }
    )


@router.post(
    "/feed",
    operation_id="classic_feed",
    summary="Send a request of any kind",
    openapi_extra=describe.body(
        {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"$ref": f"{describe.SCHEMAS}{name}"}
                        for name in ("CrawlRequest", "ActionRequest", "StatsRequest", "DomainRequest")
                    ]
                },
                "examples": {
                    "crawl": {"value": {"appid": "shop", "crawlid": "prices", "url": "https://example.com"}},
                    "info": {
                        "value": {
                            "uuid": "b1",
                            "appid": "shop",
                            "crawlid": "prices",
                            "spiderid": "link",
                            "action": "info",
                        }
                    },
                },
            }
        },
        "A crawl, action, stats or domain request, or one of a plug-in. Content-Type is ignored",
    ),
    responses={
        200: _wrapped(
            "For a crawl request, `data` is null, or the `duplicate` message if this run has already seen the URL. For "
            "other requests, `data` is the answer, or has the `poll_id` if it is late (service.feed_wait seconds)",
        ),
        400: _wrapped("The request is not valid. `cause` names the field and the reason"),
        500: _wrapped("The frontier or the bus is unavailable. The request may have been carried out"),
    },
)
async def feed(context: Context, request: Request) -> Response:
    """A crawl request is submitted. Any other request is answered in the response, and on the bus as well."""
    try:
        given = parse_json(await request.body())
    except RequestRejected as fault:
        return failure(400, _NOT_JSON, fault.reason)
    if not isinstance(given, dict):
        return failure(400, _INVALID, "the body must be a JSON object")
    kind = "unknown"  # for the counter, if `read` refuses the request
    try:
        kind, parsed = context.dispatcher.read(given)
        if kind == CRAWL:
            await begin_change(request, submission([parsed]))
            result, response = await _submit(context, parsed)
        else:
            result, response = await _answer(request, kind, parsed, given)
    except RequestRejected as fault:
        result, response = "rejected", failure(400, _INVALID, fault.detail)
    # Outages are not counted: the client repeats the request, and it is counted then.
    except FrontierError as error:
        return failure(500, _NO_FRONTIER, str(error), headers=_RETRY_LATER)
    except BusError as error:
        return failure(500, _NO_BUS, str(error), headers=_RETRY_LATER)
    request.app.state.submissions.count(kind, result)
    return response


async def _submit(context: ApiContext, admitted: AdmittedRequest) -> tuple[str, Response]:
    """Submit a crawl request. Return the result for the counters, and the response.

    A URL of a blacklisted domain is accepted, too, and the answer says whether it will be held or dropped.
    """
    [result] = await context.dispatcher.submit([admitted])
    crawl, spider, url = admitted.crawl.id, admitted.spider, admitted.url
    if result.added and result.blacklisted:
        answer = answers.blacklisted_answer(
            crawl, spider=spider, url=url, domain=admitted.domain, result=result.blacklisted, now=context.clock()
        )
        return "accepted", success(answer)
    if result.added:
        return "accepted", success(None)
    if result.reason == DUPLICATE:
        return "duplicate", success(answers.duplicate(crawl, spider=spider, url=url, now=context.clock()))
    raise RequestRejected(result.reason, field=result.field)


async def _answer(request: Request, kind: str, parsed: Any, given: dict[str, Any]) -> tuple[str, Response]:
    """Answer any other request. Return the result for the counters, and the response."""
    frontier, entry = request.app.state.context.frontier, audit_of(request)
    if (change := await requested_change(frontier, kind, parsed)) is not None:
        await begin_change(request, change)
    # `poll_id` is empty if there is an answer, which may be null.
    answer, poll_id = await request.app.state.pending.ask(kind, parsed, given)
    if entry.is_open and answer is not None:
        entry.refusal = refusal_in([answer])
        entry.note(**await made_change(frontier, parsed))
    return "accepted", success({"poll_id": poll_id} if poll_id else answer)


@cache
def _poll_validator() -> Any:
    return jsonschema_rs.validator_for(schema("poll"))


@router.post(
    "/poll",
    operation_id="classic_poll",
    summary="Get a late answer",
    openapi_extra=describe.body(
        {
            "application/json": {
                "schema": {"$ref": f"{describe.SCHEMAS}PollRequest"},
                "example": {"poll_id": "b1"},
            }
        },
        "The id that /feed returned",
    ),
    responses={
        200: _wrapped("The answer. It can be polled for only once"),
        400: _wrapped("The request is not valid"),
        404: _wrapped("There is no answer: not yet, not any more, or the id is unknown"),
        500: _wrapped("The frontier is unavailable"),
    },
)
async def poll(request: Request) -> Response:
    """Any process of the API can return the answer, even if the one that got the request has died."""
    try:
        given = parse_json(await request.body())
    except RequestRejected as fault:
        return failure(400, _NOT_JSON, fault.reason)
    try:
        _poll_validator().validate(given)
    except jsonschema_rs.ValidationError as error:
        return failure(400, _INVALID, error.message)
    try:
        found, answer = await request.app.state.pending.poll(given["poll_id"])
    except FrontierError as error:
        return failure(500, _NO_FRONTIER, str(error), headers=_RETRY_LATER)
    return success(answer) if found else failure(404, _NO_ANSWER)
