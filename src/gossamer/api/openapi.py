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


class ResponseModel(BaseModel):
    """An answer's form."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ProblemModel(ResponseModel):
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


_COUNTS = {
    "added": 42,
    "queued": 20,
    "later": 1,
    "leased": 1,
    "fetched": 17,
    "failed": {"dns": 1},
    "dropped": {"robots": 2},
    "links_dropped": {"offsite": 90},
}
_SUMMARY = {
    "appid": "shop",
    "crawlid": "prices",
    "state": "running",
    "run": 1,
    "started": 1767225600.0,
    "ended": None,
    "domains": 1,
    "total": _COUNTS,
}
_POLICY = {"hits": 10, "window": 60.0}
_IN_FORCE = {
    **_POLICY,
    "moderated": True,
    "elastic": True,
    "scale": 1.0,
    "scope": "domain",
    "blacklisted": False,
    "when_blacklisted": "held",
}
_DOMAIN = {"domain": "example.com", "policy": _POLICY, "in_force": _IN_FORCE}
_RECORD = {
    "type": "page",
    "appid": "shop",
    "crawlid": "prices",
    "url": "https://example.com/",
    "status_code": 200,
    "success": True,
    "body": "<html>…",
}
_TAKEN = {
    "added": True,
    "reason": "",
    "field": "",
    "status": 201,
    "appid": "shop",
    "crawlid": "prices",
    "spiderid": "link",
    "url": "https://example.com/",
}
_ROOT = {
    "kafka_connected": True,
    "redis_connected": True,
    "uptime_sec": 3600,
    "my_id": "d2b8f0c4a6e1",
    "node_health": "GREEN",
}


def _success(data: object) -> dict[str, Any]:
    return {"status": "SUCCESS", "data": data, "error": None}


def _failure(message: str, cause: str = "") -> dict[str, Any]:
    error = {"message": message, "cause": cause} if cause else {"message": message}
    return {"status": "FAILURE", "data": None, "error": error}


_AWAY = _failure("Unable to connect to Redis", "The frontier could not be reached")
_CURSOR = "eyIwIjo0Mn0"

ANSWERS: dict[tuple[str, str], Any] = {
    ("submit", "201"): _TAKEN,
    ("submit", "200"): {**_TAKEN, "added": False, "reason": "duplicate", "status": 200},
    ("submit", "207"): {
        "added": 1,
        "duplicates": 0,
        "refused": 1,
        "items": [
            {"added": True, "reason": "", "field": "", "status": 201},
            {"added": False, "reason": "must be at least 0", "field": "maxdepth", "status": 400},
        ],
    },
    ("list_crawls", "200"): {"items": [_SUMMARY], "cursor": ""},
    ("show_crawl", "200"): {
        **_SUMMARY,
        "seen": 42,
        "queued_by_priority": {"1": 2, "-9": 18},
        "spiders": {"link": _COUNTS},
        "max_pages": None,
        "order": "fifo",
        "rate": None,
        "domain_concurrency": None,
        "queued_by_domain": {
            "items": [
                {
                    "domain": "example.com",
                    "queued": 20,
                    "later": 0,
                    "by_priority": {"1": 2, "-9": 18},
                    "by_spider": {"link": 20},
                }
            ],
            "cursor": "",
        },
    },
    ("stop_crawl", "200"): {"appid": "shop", "crawlid": "prices", "spiderid": None, "purged": 21},
    ("crawl_pages", "200"): {"items": [_RECORD], "cursor": _CURSOR, "more": False},
    ("crawl_failures", "200"): {
        "items": [{**_RECORD, "status_code": 0, "success": False, "reason": "dns", "body": ""}],
        "cursor": _CURSOR,
        "more": False,
    },
    ("crawl_items", "200"): {
        "items": [{"type": "item", "appid": "shop", "crawlid": "prices", "item": {"price": 12}}],
        "cursor": _CURSOR,
        "more": False,
    },
    ("list_domains", "200"): {"version": 7, "default": {}, "domains": {"example.com": _POLICY}, "cursor": ""},
    ("replace_domains", "200"): {"version": 8, "domains": 1},
    ("show_domain", "200"): _DOMAIN,
    ("set_domain", "200"): _DOMAIN,
    ("change_domain", "200"): _DOMAIN,
    ("workers", "200"): {
        "items": [{"name": "host-4711-5f0c-1", "silent_seconds": 0.4, "leased": 64}],
        "processes": {"rest": {"host": ["1267c5f0a6e1"]}},
    },
    ("queues", "200"): {"total": 20, "items": [{"spiderid": "link", "queued": 20, "domains": 1}]},
    ("queue_domains", "200"): {"items": [{"domain": "example.com", "queued": 20}], "cursor": ""},
    ("classic_index", "200"): _ROOT,
    ("classic_index_post", "200"): _ROOT,
    ("classic_feed", "200"): _success({"poll_id": "b1"}),
    ("classic_feed", "400"): _failure("JSON did not validate against schema.", "maxdepth: must be at least 0"),
    ("classic_feed", "500"): _AWAY,
    ("classic_poll", "200"): _success(
        {"uuid": "b1", "appid": "shop", "stats": "queue", "queues": {"total_backlog": 0}}
    ),
    ("classic_poll", "400"): _failure("JSON did not validate against schema.", '"poll_id" is a required property'),
    ("classic_poll", "404"): _failure("Could not find matching poll_id"),
    ("classic_poll", "500"): _AWAY,
}
"""By operation and status."""
