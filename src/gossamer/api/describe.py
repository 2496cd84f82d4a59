"""What OpenAPI says of the endpoints: shapes, examples, refusals."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

PROBLEM_TYPE = "application/problem+json"
SCHEMAS = "#/components/schemas/"
_MEANINGS = {
    400: "The request is not valid: which field, and why",
    401: "The token is missing or wrong",
    403: "Without a token: not from this machine, or from a web page",
    404: "There is no such thing",
    405: "Not with this method",
    408: "The body did not come in time",
    409: "The crawl takes no more requests",
    412: "Somebody else changed it meanwhile: get it again, repeat the edit",
    413: "The body is longer than service.max_body allows",
    428: "If-Match is missing: say which version was edited",
    429: "More requests than service.max_requests allows; see Retry-After",
    503: "The frontier or the bus is away or full; see Retry-After. It may be repeated",
}
_EXAMPLES: dict[int, tuple[str, str, str]] = {
    400: ("invalid-request", "Invalid request", "maxdepth: must be at least 0"),
    401: ("unauthorized", "Unauthorized", "send the header Authorization: Bearer <token>"),
    404: ("not-found", "Not found", "no crawl shop/prices is known"),
    409: ("crawl-refused", "Crawl refused", "This crawl takes no more requests: shop/prices is stopped"),
    412: ("policies-changed", "Policies changed", "Somebody else changed the domain policies meanwhile"),
    503: ("frontier-unavailable", "Frontier unavailable", "The frontier could not be reached"),
}
ALWAYS = (401, 403, 429)
"""What every endpoint may refuse with, those that anybody may ask apart."""


class Shape(BaseModel):
    """An answer's form."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ProblemShape(Shape):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(examples=["urn:gossamer:problem:invalid-request"])
    """A stable name for programs"""
    title: str
    status: int
    detail: str | None = None
    """What exactly, for people"""
    errors: list[dict[str, str]] | None = None
    """Each with `field` and `reason`"""


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem responses, for an endpoint's `responses`."""
    return {status: refusal(status) for status in statuses}


def refusal(status: int) -> dict[str, Any]:
    """One of them."""
    content: dict[str, Any] = {"schema": {"$ref": f"{SCHEMAS}Problem"}}
    if status in _EXAMPLES:
        kind, title, detail = _EXAMPLES[status]
        content["example"] = {
            "type": f"urn:gossamer:problem:{kind}",
            "title": title,
            "status": status,
            "detail": detail,
        }
    return {"description": _MEANINGS[status], "content": {PROBLEM_TYPE: content}}


def body(content: Mapping[str, Mapping[str, Any]], description: str) -> dict[str, Any]:
    """A request's body, for an endpoint's `openapi_extra`."""
    return {"requestBody": {"required": True, "description": description, "content": dict(content)}}


def answer(
    example: object, *, description: str = "Answered", schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A response whose form is not one of ours."""
    content = {"schema": dict(schema or {"type": "object"}), "example": example}
    return {"description": description, "content": {"application/json": content}}


Cursor = Annotated[
    str, Query(description="Where the page begins, as the page before said; empty: at the beginning", max_length=4096)
]
Limit = Annotated[int, Query(description="About how many, at most", ge=1, le=1000)]
