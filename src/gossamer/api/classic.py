"""Scrapy Cluster's REST service: `/`, `/feed`, `/poll`, with its wrapper and its codes."""

import asyncio
from functools import cache
from typing import Any

import jsonschema_rs
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gossamer.api import openapi as describe
from gossamer.api.context import ApiContext, Given
from gossamer.api.problems import failure, success
from gossamer.api.reading import decoded
from gossamer.api.status import is_bus_there, is_frontier_there
from gossamer.control.admission import DUPLICATE, AdmittedRequest
from gossamer.control.dispatcher import CRAWL
from gossamer.errors import BusError, FrontierError, RequestRejected
from gossamer.model.messages import answers
from gossamer.model.messages.schemas import schema

NO_JSON = "The payload must be valid JSON."
INVALID = "JSON did not validate against schema."
NO_STORE = "Unable to connect to Redis"
NO_BUS = "Unable to connect to Kafka"
NO_ANSWER = "Could not find matching poll_id"

router = APIRouter(tags=["Scrapy Cluster"])


def _wrapped(description: str) -> dict[str, Any]:
    schema = {"$ref": f"{describe.SCHEMAS}Wrapper"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_INDEX: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "GREEN: both are there; YELLOW: one of them; RED: neither",
        "content": {"application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Root"}}},
    }
}


@router.get("/", operation_id="classic_index", summary="How the service is", responses=_INDEX)
@router.post("/", operation_id="classic_index_post", summary="The same", responses=_INDEX)
async def index(parts: Given, request: Request) -> Response:
    """`kafka_connected` is the bus, whichever it is; `redis_connected` the frontier's server."""
    bus, frontier = await asyncio.gather(is_bus_there(parts), is_frontier_there(parts))
    return JSONResponse(
        {
            "kafka_connected": bus,
            "redis_connected": frontier,
            "uptime_sec": int(parts.monotonic() - request.app.state.started),
            "my_id": parts.id,
            "node_health": ("RED", "YELLOW", "GREEN")[bus + frontier],
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
        "A crawl, action, stats or domain request, or one of a plug-in; whatever Content-Type says",
    ),
    responses={
        200: _wrapped(
            "A crawl request: data is null; a URL seen in this run already: the `duplicate` message. "
            "Others: data is the answer, or after service.feed_wait seconds `poll_id`",
        ),
        400: _wrapped("Not valid: which field, and why"),
        500: _wrapped("The frontier or the bus is away; nobody knows whether it was done"),
    },
)
async def feed(parts: Given, request: Request) -> Response:
    """What has a `uuid` is a question: it is answered here, and on the bus. Waiting for the answer costs nothing."""
    try:
        given = decoded(await request.body())
    except RequestRejected as fault:
        return failure(400, NO_JSON, fault.reason)
    if not isinstance(given, dict):
        return failure(400, INVALID, "the body must be a JSON object")
    kind = "unknown"
    try:
        kind, made = parts.desk.read(given)
        result, response = await (
            _crawl(parts, made) if kind == CRAWL else _question(parts, request, kind, made, given)
        )
    except RequestRejected as fault:
        result, response = "rejected", failure(400, INVALID, fault.detail)
    except FrontierError as error:
        return failure(500, NO_STORE, str(error), headers={"Retry-After": "5"})
    except BusError as error:
        return failure(500, NO_BUS, str(error), headers={"Retry-After": "5"})
    request.app.state.fed.count(kind, result)
    return response


async def _crawl(parts: ApiContext, submission: AdmittedRequest) -> tuple[str, Response]:
    [submitted] = await parts.desk.submit([submission])
    if submitted.added:
        return "accepted", success(_told(parts, submission, submitted.blacklisted))
    if submitted.reason == DUPLICATE:
        crawl, spider, url = submission.crawl.id, submission.spider, submission.url
        return "duplicate", success(answers.duplicate(crawl, spider=spider, url=url, now=parts.clock()))
    raise RequestRejected(submitted.reason, field=submitted.field)


def _told(parts: ApiContext, submission: AdmittedRequest, blacklisted: str) -> dict[str, Any] | None:
    """What an accepted request's answer says."""
    if not blacklisted:
        return None
    return answers.blacklisted(
        submission.crawl.id,
        spider=submission.spider,
        url=submission.url,
        domain=submission.domain,
        result=blacklisted,
        now=parts.clock(),
    )


async def _question(
    parts: ApiContext, request: Request, kind: str, made: Any, given: dict[str, Any]
) -> tuple[str, Response]:
    answer, poll_id = await request.app.state.waiting.ask(kind, made, given)
    return "accepted", success({"poll_id": poll_id} if poll_id else answer)


@cache
def _poll_validator() -> Any:
    return jsonschema_rs.validator_for(schema("poll"))


@router.post(
    "/poll",
    operation_id="classic_poll",
    summary="Get an answer that came late",
    openapi_extra=describe.body(
        {
            "application/json": {
                "schema": {"$ref": f"{describe.SCHEMAS}PollRequest"},
                "example": {"poll_id": "b1"},
            }
        },
        "What /feed named",
    ),
    responses={
        200: _wrapped(
            "The answer; it is forgotten with this",
        ),
        400: _wrapped("Not valid"),
        404: _wrapped("Not yet, not any more, or never"),
        500: _wrapped("The frontier is away"),
    },
)
async def poll(request: Request) -> Response:
    """Any process of the API can be asked, also when the one that was fed has died."""
    try:
        given = decoded(await request.body())
    except RequestRejected as fault:
        return failure(400, NO_JSON, fault.reason)
    try:
        _poll_validator().validate(given)
    except jsonschema_rs.ValidationError as error:
        return failure(400, INVALID, error.message)
    try:
        found, answer = await request.app.state.waiting.poll(given["poll_id"])
    except RequestRejected as fault:
        return failure(400, INVALID, fault.detail)
    except FrontierError as error:
        return failure(500, NO_STORE, str(error), headers={"Retry-After": "5"})
    return success(answer) if found else failure(404, NO_ANSWER)
