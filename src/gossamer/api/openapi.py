"""Building blocks of the OpenAPI description (models, responses, examples), and the page at `/docs` that shows it."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse, Response

from gossamer.api.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TYPE_PREFIX, not_found

SCHEMAS = "#/components/schemas/"
_DESCRIPTIONS = {
    400: "The request is not valid. The answer names the field and the reason",
    401: "The token is missing or wrong",
    403: "No token is set, and the request is not from this machine or is from a web page",
    404: "The resource does not exist",
    405: "The resource does not support this method",
    408: "The body did not arrive in time",
    409: "The crawl accepts no more requests",
    412: "The resource was changed in the meantime. Get it again and repeat the edit",
    413: "The body is longer than service.max_body allows",
    428: "The header If-Match is missing. It must name the version that was edited",
    429: "This address sends more requests than service.max_requests allows. See Retry-After",
    503: "The frontier or the bus is unavailable or full. See Retry-After; the request may be repeated",
}
_EXAMPLES: dict[int, tuple[str, str, str]] = {
    400: ("invalid-request", "Invalid request", "maxdepth: must be at least 0"),
    401: ("unauthorized", "Unauthorized", "send the header Authorization: Bearer <token>"),
    404: ("not-found", "Not found", "no crawl shop/prices is known"),
    409: ("crawl-refused", "Crawl refused", "This crawl takes no more requests: shop/prices is stopped"),
    412: (
        "policies-changed",
        "Policies changed",
        "The domain policies were changed in the meantime; load them again and repeat the edit.",
    ),
    503: ("frontier-unavailable", "Frontier unavailable", "The frontier could not be reached"),
}
COMMON_REFUSALS = (401, 403, 429)
"""Status codes that every endpoint may return, except those without a token."""


class ResponseModel(BaseModel):
    """Base of the models of responses. The docstring of a field is its description in OpenAPI."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ProblemModel(ResponseModel):
    """The reason why a request was refused (RFC 9457)."""

    type: str = Field(examples=["urn:gossamer:problem:invalid-request"])
    """Stable name of the problem, for programs"""
    title: str
    status: int
    detail: str | None = None
    """Explanation for people"""
    errors: list[dict[str, str]] | None = None
    """Invalid fields, each with `field` and `reason`"""


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the responses with these status codes, for an endpoint's `responses`."""
    return {status: refusal(status) for status in statuses}


def refusal(status: int) -> dict[str, Any]:
    """Return the response with this status code."""
    content: dict[str, Any] = {"schema": {"$ref": f"{SCHEMAS}Problem"}}
    if status in _EXAMPLES:
        kind, title, detail = _EXAMPLES[status]
        content["example"] = {
            "type": f"{PROBLEM_TYPE_PREFIX}{kind}",
            "title": title,
            "status": status,
            "detail": detail,
        }
    return {"description": _DESCRIPTIONS[status], "content": {PROBLEM_MEDIA_TYPE: content}}


def body(content: Mapping[str, Mapping[str, Any]], description: str) -> dict[str, Any]:
    """Return the description of a request's body, for an endpoint's `openapi_extra`."""
    return {"requestBody": {"required": True, "description": description, "content": dict(content)}}


def response(example: object, *, description: str) -> dict[str, Any]:
    """Return the description of a response that has an example but no model."""
    content = {"schema": {"type": "object"}, "example": example}
    return {"description": description, "content": {"application/json": content}}


Cursor = Annotated[
    str, Query(description="Start of the page, from the previous page. Empty: the first page", max_length=4096)
]
Limit = Annotated[int, Query(description="Maximum number of entries to return (approximate)", ge=1, le=1000)]


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
_ADDED = {
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


_UNAVAILABLE = _failure("Unable to connect to Redis", "The frontier could not be reached")
_CURSOR = "eyIwIjo0Mn0"

EXAMPLES: dict[tuple[str, str], Any] = {
    ("submit", "201"): _ADDED,
    ("submit", "200"): {**_ADDED, "added": False, "reason": "duplicate", "status": 200},
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
    ("classic_feed", "500"): _UNAVAILABLE,
    ("classic_poll", "200"): _success(
        {"uuid": "b1", "appid": "shop", "stats": "queue", "queues": {"total_backlog": 0}}
    ),
    ("classic_poll", "400"): _failure("JSON did not validate against schema.", '"poll_id" is a required property'),
    ("classic_poll", "404"): _failure("Could not find matching poll_id"),
    ("classic_poll", "500"): _UNAVAILABLE,
}
"""Examples of responses, by operation id and status."""


# --- the page at /docs ------------------------------------------------------------------------------------------------

_DOCS_FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
DOCS_PATHS = frozenset({"/docs", "/openapi.json", "/docs/start.js", *(f"/docs/{name}" for name in _DOCS_FILES)})

# The addresses are relative, so that the page also works behind a proxy that serves the API under a path.
_DOCS_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gossamer's REST API</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_DOCS_SCRIPT = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
});
"""
_DOCS_HEADERS = {
    # With this policy the browser loads nothing from other servers.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

docs = APIRouter(include_in_schema=False)


@docs.get("/docs")
async def docs_page() -> Response:
    """Return the page."""
    return HTMLResponse(_DOCS_PAGE, headers=_DOCS_HEADERS)


@docs.get("/docs/{name}")
async def docs_file(name: str) -> Response:
    """Return a file of the page."""
    if name == "start.js":
        return Response(_DOCS_SCRIPT, media_type="text/javascript", headers=_DOCS_HEADERS)
    if name not in _DOCS_FILES:
        raise not_found(f"/docs/{name} does not exist")
    headers = {**_DOCS_HEADERS, "Cache-Control": "max-age=3600"}
    return Response(_swagger_file(name), media_type=_DOCS_FILES[name], headers=headers)


@docs.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    """Return the OpenAPI description."""
    return Response(request.app.state.openapi_json(), media_type="application/json")


@cache
def _swagger_file(name: str) -> bytes:
    return (resources.files("fastapi_swagger.resources") / name).read_bytes()
