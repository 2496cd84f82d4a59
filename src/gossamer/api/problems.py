"""Error responses: problem+json (RFC 9457) on Gossamer's own paths, Scrapy Cluster's wrapper on the others.

`problem_of` decides which status an error has; a new error class that the API may raise belongs there. Details may be
worded freely. Fixed, because clients read them: statuses, titles, and Scrapy Cluster's messages and wrapper.
"""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from gossamer.errors import (
    BadInput,
    BusError,
    BusFull,
    CrawlRefused,
    FrontierError,
    FrontierFull,
    FrontierIncompatible,
    FrontierUnavailable,
    GossamerError,
    HistoryUnavailable,
    PoliciesChanged,
    RequestRejected,
    about_field,
)
from gossamer.model.json_codec import encode_value
from gossamer.web.problems import Problem, internal_error, problem_json

_OWN_PATHS = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
"""Beginnings of Gossamer's own paths. A new endpoint outside /v1 must be added, or its errors come in Scrapy Cluster's
wrapper."""
OUTAGE_RETRY_SECONDS = 5
"""Retry-After of an outage. With a shorter time clients notice the end earlier and call more often."""
_LONG_RETRY_SECONDS = 30
"""Retry-After when storage is full or in a state that does not pass quickly."""


def not_found(detail: str) -> Problem:
    """Return the problem for a resource that does not exist."""
    return Problem(404, "Not found", detail)


def bad_request(reason: str, *, where: str = "") -> Problem:
    """Return the problem for an invalid request. `where`: the invalid field or parameter; empty: the whole request."""
    return Problem(
        400,
        "Invalid request",
        about_field(where, reason),
        errors=({"field": where, "reason": reason},),
    )


def problem_of(error: GossamerError) -> Problem:
    """Return the problem for one of Gossamer's errors. The frontier is the cluster's queue of requests, the bus carries
    its messages, the history is a database; an outage of any has status 503.

    The first class that fits decides, so each stands before its base classes."""
    match error:
        case RequestRejected():
            faults = ({"field": one.field, "reason": one.reason} for one in (error, *error.others))
            return Problem(400, "Invalid request", error.detail, errors=tuple(faults))
        case BadInput():
            return bad_request(error.detail or str(error))
        case CrawlRefused():
            return Problem(409, "Crawl refused", str(error))
        case PoliciesChanged():
            return Problem(412, "Policies changed", str(error))
        case FrontierFull():
            return _unavailable("Frontier full", error, _LONG_RETRY_SECONDS)
        case FrontierIncompatible():
            return Problem(500, "Frontier incompatible", str(error))
        case FrontierUnavailable():
            return _unavailable("Frontier unavailable", error, OUTAGE_RETRY_SECONDS)
        case FrontierError():
            return _unavailable("Frontier failed", error, _LONG_RETRY_SECONDS)
        case BusFull():
            return _unavailable("Bus full", error, _LONG_RETRY_SECONDS)
        case BusError():
            return _unavailable("Bus unavailable", error, OUTAGE_RETRY_SECONDS)
        case HistoryUnavailable():
            return _unavailable("History unavailable", error, OUTAGE_RETRY_SECONDS)
    return internal_error()


def _unavailable(title: str, error: GossamerError, retry_seconds: int) -> Problem:
    return Problem(503, title, str(error), headers={"Retry-After": str(retry_seconds)})


# --- responses --------------------------------------------------------------------------------------------------------


def is_classic(path: str) -> bool:
    """Return whether responses on this path have the format of Scrapy Cluster's REST service."""
    return path != "/v1" and not path.startswith(_OWN_PATHS)


def problem_response(problem: Problem, path: str) -> Response:
    """Return the response for a problem, in the format of the path."""
    if is_classic(path):
        message = _CLASSIC_MESSAGES.get(problem.status, problem.title)
        return failure(problem.status, message, problem.detail, headers=problem.headers)
    return problem_json(problem)


_CLASSIC_MESSAGES = {
    404: "The desired endpoint does not exist",
    500: "An error occurred while processing your request.",
}
"""Scrapy Cluster's messages by status: fixed. For any other status, the message is the problem's title."""


def success(data: Any) -> Response:
    """Return an answer in Scrapy Cluster's wrapper."""
    return _wrapped(200, {"status": "SUCCESS", "data": data, "error": None})


def failure(status: int, message: str, cause: str = "", *, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error in Scrapy Cluster's wrapper."""
    error = {"message": message, "cause": cause} if cause else {"message": message}
    return _wrapped(status, {"status": "FAILURE", "data": None, "error": error}, headers)


def _wrapped(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_value(body), status_code=status, headers=dict(headers or {}), media_type="application/json")
