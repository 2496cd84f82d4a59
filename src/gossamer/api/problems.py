"""Every refusal of the API: problem+json (RFC 9457) on /v1 and its kind, Scrapy Cluster's wrapper elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
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
    PoliciesChanged,
    RequestRejected,
)

TYPES = "urn:gossamer:problem:"
_NEW_PATHS = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
_SOON_SECONDS = 5
_LATER_SECONDS = 30

_encode = msgspec.json.Encoder().encode


@dataclass(eq=False)
class Problem(Exception):
    """The request cannot be served; `title` says in a few words why, `detail` what exactly."""

    status: int
    title: str
    detail: str = ""
    kind: str = ""
    """A stable word for programs; empty: made of the title."""
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Mapping[str, str], ...] = ()
    """Each `field` and `reason`."""

    def body(self) -> dict[str, Any]:
        """As RFC 9457 has it."""
        kind = self.kind or self.title.lower().replace(" ", "-")
        found: dict[str, Any] = {"type": TYPES + kind, "title": self.title, "status": self.status}
        if self.detail:
            found["detail"] = self.detail
        if self.errors:
            found["errors"] = list(self.errors)
        return found


def not_found(what: str) -> Problem:
    """404."""
    return Problem(404, "Not found", what)


def bad_request(reason: str, *, where: str = "") -> Problem:
    """400 that names the faulty field or parameter, where there is one."""
    return Problem(
        400,
        "Invalid request",
        f"{where}: {reason}" if where else reason,
        errors=({"field": where, "reason": reason},),
    )


def problem_of(error: GossamerError) -> Problem:
    """What an error of ours is over HTTP."""
    match error:
        case RequestRejected():
            return bad_request(error.reason, where=error.field)
        case BadInput():
            return bad_request(error.detail or str(error))
        case CrawlRefused():
            return Problem(409, "Crawl refused", str(error))
        case PoliciesChanged():
            return Problem(412, "Policies changed", str(error))
        case FrontierFull():
            return _away("Frontier full", error, _LATER_SECONDS)
        case FrontierIncompatible():
            return Problem(500, "Frontier incompatible", str(error))
        case FrontierUnavailable():
            return _away("Frontier unavailable", error, _SOON_SECONDS)
        case FrontierError():
            return _away("Frontier failed", error, _LATER_SECONDS)
        case BusFull():
            return _away("Bus full", error, _LATER_SECONDS)
        case BusError():
            return _away("Bus unavailable", error, _SOON_SECONDS)
    return broken()


def broken() -> Problem:
    """500 for a fault of ours: the log has it, whoever asked need not."""
    return Problem(500, "Internal error", "Something is wrong in Gossamer itself; its log says what.")


def _away(title: str, error: GossamerError, seconds: int) -> Problem:
    return Problem(503, title, str(error), headers={"Retry-After": str(seconds)})


# --- as responses -----------------------------------------------------------------------------------------------------


def is_classic(path: str) -> bool:
    """Whether this path speaks as Scrapy Cluster's REST service did: all but what is ours."""
    return path != "/v1" and not path.startswith(_NEW_PATHS)


def shown(problem: Problem, path: str) -> Response:
    """The response, in the form of the path that was asked."""
    if is_classic(path):
        message = _CLASSIC.get(problem.status, problem.title)
        return failure(problem.status, message, problem.detail, headers=problem.headers)
    return Response(
        _encode(problem.body()),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )


_CLASSIC = {404: "The desired endpoint does not exist", 500: "An error occurred while processing your request."}
"""The original's own words."""


def success(data: Any) -> Response:
    """Scrapy Cluster's wrapper around an answer."""
    return _wrapped(200, {"status": "SUCCESS", "data": data, "error": None})


def failure(status: int, message: str, cause: str = "", *, headers: Mapping[str, str] | None = None) -> Response:
    """The same around a refusal."""
    error = {"message": message, "cause": cause} if cause else {"message": message}
    return _wrapped(status, {"status": "FAILURE", "data": None, "error": error}, headers)


def _wrapped(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(body), status_code=status, headers=dict(headers or {}), media_type="application/json")
