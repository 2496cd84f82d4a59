"""Building blocks of the OpenAPI description (models, responses, examples), and the page at `/docs` that shows it.

docs/reference/openapi.json, which is generated, contains the texts and examples. Fixed: paths, names of fields, and
names and titles of problems, which clients read.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse, Response

from gossamer import __version__
from gossamer.api.problems import not_found
from gossamer.web.html import Templates
from gossamer.web.mounts import page_headers
from gossamer.web.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TYPE_PREFIX

SCHEMAS = "#/components/schemas/"
"""Place of the models in the description; set by OpenAPI, must not change."""
_DESCRIPTIONS = {
    400: "The request is not valid. The answer names the field and the reason",
    401: "The token is missing or wrong",
    403: "The server has no token, so it refuses requests from other machines and from web pages",
    404: "The resource does not exist",
    405: "The resource does not support this method",
    408: "The body did not arrive in time",
    409: "The crawl accepts no more requests, or the Idempotency-Key was used for another request",
    412: "The resource was changed in the meantime. Get it again and repeat the edit",
    413: "The body is longer than service.max_body allows",
    428: "The header If-Match is missing. It must name the version that was edited",
    429: "This address sends more requests than service.max_requests allows, or too many wrong tokens. See Retry-After",
    503: "The frontier or the bus is unavailable or full. See Retry-After; the request may be repeated",
}
"""Description of each status code that refuses a request. A status code that an endpoint passes to `refusals` must
stand here."""
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
"""Examples by status code: name, title and detail of the problem. A status code may have no example. Name and title
must be those of the API's own response."""
COMMON_REFUSALS = (401, 403, 429)
"""Status codes that each endpoint may return unless it is open to requests without a token (`access.OPEN_PATHS`).
Change it together with `access`, which returns them."""


class ResponseModel(BaseModel):
    """Base of the models of responses. The docstring of a field is its description in OpenAPI."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def of(cls, source: object, **others: Any) -> Self:
        """Return the model of an object: its attributes with the names of fields, and other values."""
        names = (name for name in cls.model_fields if name not in others and hasattr(source, name))
        return cls(**{name: getattr(source, name) for name in names}, **others)


class ProblemModel(ResponseModel):
    """The reason why a request was refused (RFC 9457)."""

    # The fields are those of `problems.Problem.body`, which makes the responses: change both together.

    type: str = Field(examples=["urn:gossamer:problem:invalid-request"])
    """Stable name of the problem, for programs"""
    title: str
    status: int
    detail: str | None = None
    """Explanation for people"""
    errors: list[dict[str, str]] | None = None
    """Invalid fields, each with `field` and `reason`"""


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of refusals with these status codes, as an endpoint's `responses`."""
    return {status: refusal(status) for status in statuses}


def refusal(status: int) -> dict[str, Any]:
    """Return OpenAPI's description of a refusal with this status code: its text, model and example."""
    content: dict[str, Any] = {"schema": {"$ref": f"{SCHEMAS}Problem"}}
    if status in _EXAMPLES:
        name, title, detail = _EXAMPLES[status]
        content["example"] = {
            "type": f"{PROBLEM_TYPE_PREFIX}{name}",
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


Cursor = Annotated[str, Query(description="`cursor` of the previous answer. Empty: the first page", max_length=4096)]
"""Query parameter of lists. `max_length` must fit the cursors of Kafka topics: some characters per partition."""
Limit = Annotated[
    int, Query(description="Number of entries to return. There may be a few more or fewer", ge=1, le=1000)
]
"""Query parameter of lists. One call to the frontier returns all these entries."""
LatestFirst = Annotated[
    bool,
    Query(
        description="Return what was published last first; `cursor` then leads to what is older. A cursor is valid for "
        "the order in which it was made"
    ),
]
"""Query parameter of lists from the message bus."""

# The objects from here to EXAMPLES are examples. They must fit the models.

_TROUBLE = {
    "process": "host:5f0c4711a6e1",
    "name": "app_output",
    "message": "shop: The output could not be written: Kafka: Topic authorization failed. Pages of these "
    "applications wait; those of others do not.",
}
_PROCESS = {
    "process": "host:4711",
    "worker": "host-4711-5f0c-1",
    "roles": ["worker"],
    "version": __version__,
    "python": "3.11.7",
    "started": 1767225600.0,
    "memory_bytes": 180_000_000,
    "cpu": 0.4,
    "lag_seconds": 0.001,
    "pages_per_second": 21.5,
    "finding": "",
    "advice": "",
}
_COUNTS = {
    "added": 42,
    "queued": 20,
    "later": 1,
    "leased": 1,
    "fetched": 17,
    "failed": {"dns": 1},
    "dropped": {"robots": 2},
    "links_dropped": {"offsite": 90},
    "retried": {"http_503": 2},
}
_SUMMARY = {
    "appid": "shop",
    "crawlid": "prices",
    "state": "running",
    "run": 1,
    "started": 1767225600.0,
    "first_started": 1767225600.0,
    "ended": None,
    "domains": 1,
    "repairs": 0,
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
_LOGIN = {
    "name": "shop",
    "site": "example.com",
    "accounts": ["alice"],
    "budget": "site",
    "expires": 1775001600.0,
    "failed": {"alice": "https://shop.example.com/login: the site shows the form again."},
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
_CLASSIC_INDEX = {
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
    ("list_crawls", "200"): {"items": [_SUMMARY], "cursor": "", "remembered": True},
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
    ("stop_crawl", "200"): {"appid": "shop", "crawlid": "prices", "spiderid": None, "purged": 21, "state": "stopped"},
    ("retry_crawl", "200"): {"appid": "shop", "crawlid": "prices", "run": 2, "retried": 3, "kept": 1, "forgotten": 0},
    ("crawl_request", "200"): {
        "request": {"appid": "shop", "crawlid": "prices", "maxdepth": 2},
        "left_out": ["cookie"],
        "submissions": 1,
    },
    ("crawl_pace", "200"): {
        "workers": 2,
        "items": [
            {
                "domain": "example.com",
                "waiting": 20,
                "later": 1,
                "limited_by": "policy",
                "blocked_until": None,
                "hits": 1,
                "window": 1.0,
                "used": 1,
                "in_flight": 1,
                "concurrency": None,
                "least_seconds": 20.0,
            }
        ],
    },
    ("domain_load", "200"): {
        "domain": "example.com",
        "limits": [{"cause": "policy", "hits": 1, "window": 1.0, "used": 1}],
        "in_flight": 1,
        "concurrency": None,
        "blocked_until": None,
        "is_paused": False,
        "robots": [
            {
                "origin": "https://example.com",
                "outcome": "rules",
                "asked_at": 1767225600.0,
                "until": 1767312000.0,
                "detail": "",
                "text": "User-agent: *\nDisallow: /cart\n",
            }
        ],
    },
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
    ("announce_changes", "200"): {"due": 1, "new": 0},
    ("crawl_freshness", "200"): {
        "rounds": 212,
        "cursor": 17,
        "goes_on": True,
        "domains": [
            {
                "domain": "example.com",
                "pages": 1200,
                "live": 1180,
                "gone": 20,
                "due": 3,
                "mean_age": 7200.5,
                "longest_age": 86000.0,
                "visits_a_day": 1200.0,
                "freshness": 0.93,
                "freshness_at_twice_the_budget": 0.97,
                "visits_a_day_needed": 0,
            }
        ],
    },
    ("crawl_changes", "200"): {
        "items": [
            {
                "cursor": 17,
                "url": "https://example.com/",
                "change": "changed",
                "at": 1700000000.5,
                "since": 1699900000.0,
                "what": ["bytes", "text"],
                "status": 200,
                "old_hash": "5d41402abc4b2a76",
                "new_hash": "b9719d911017c592",
                "id": "0f343b0931126a20f133d67c",
            }
        ],
        "cursor": 17,
        "more": False,
    },
    ("crawl_failure_reasons", "200"): {
        "items": [
            {
                "reason": "dns",
                "count": 1,
                "examples": [
                    {
                        "url": "https://gone.example/",
                        "spiderid": "link",
                        "request_id": "d17a3cd45b38e74bf3ab78b9b5c87803",
                        "reason": "dns",
                        "status": 0,
                        "error": "This host has no address.",
                        "at": 1767225660.0,
                    }
                ],
            }
        ],
        "remembered": True,
    },
    ("explain_url", "200"): {
        "url": "https://example.com/a",
        "domain": "example.com",
        "spiderid": "link",
        "seen": True,
        "place": "queued",
        "position": 12,
        "priority": -9,
        "due": 1767225661.0,
        "held_by": None,
        "blocked_until": None,
        "failed_attempts": 0,
        "deaths": 0,
        "failure": "",
        "dropped": "",
        "blacklisted": "",
        "scope": "inside",
        "visits": None,
        "failures": [],
    },
    ("crawl_rates", "200"): {
        "started": 1767225600.0,
        "items": [
            {
                "at": 1767225660.0,
                "pages_per_second": 0.28,
                "failures_per_second": 0.02,
                "fetched": 17,
                "failed": 1,
                "waiting": 21,
                "leased": 1,
            }
        ],
    },
    ("crawl_ends", "200"): {
        "items": [
            {
                "event_id": "0f6e6d3a3b6c4f0f9b9f8e1c2d3a4b5c",
                "run": 1,
                "spiderid": None,
                "state": "finished",
                "at": 1767229200.0,
                "purged": 0,
            }
        ]
    },
    ("list_audit", "200"): {
        "items": [
            {
                "id": 17,
                "at": 1767225600.0,
                "actor": "token",
                "origin": "192.0.2.7",
                "action": "domain.change",
                "subject": "example.com",
                "details": {"before": {"hits": 2, "window": 1.0}, "after": {"hits": 10, "window": 1.0}},
                "outcome": "done",
                "status": 200,
                "reason": "",
            }
        ],
        "cursor": "",
    },
    ("list_logins", "200"): {"items": [_LOGIN]},
    ("put_login", "200"): {**_LOGIN, "failed": {}},
    ("retry_login", "200"): {"name": "shop", "retried": True},
    ("list_domains", "200"): {"version": 7, "default": {}, "domains": {"example.com": _POLICY}, "cursor": ""},
    ("replace_domains", "200"): {"version": 8, "domains": 1},
    ("show_domain", "200"): _DOMAIN,
    ("set_domain", "200"): _DOMAIN,
    ("change_domain", "200"): _DOMAIN,
    ("workers", "200"): {
        "items": [{"name": "host-4711-5f0c-1", "silent_seconds": 0.4, "leased": 64, "browser": False}],
        "cursor": "",
        "processes": {"rest": {"host": ["1267c5f0a6e1"]}},
        "troubles": [_TROUBLE],
        "facts": [_PROCESS],
    },
    ("processes", "200"): {
        "items": [{**_PROCESS, "process": "host:4712", "worker": "", "roles": ["rest"], "pages_per_second": 0.0}],
        "cursor": "",
    },
    ("worker_counts", "200"): {
        "workers": 1,
        "leased": 64,
        "pages_per_second": 21.5,
        "services": 1,
        "versions": [__version__],
        "troubles": [_TROUBLE],
        "trouble_count": 1,
    },
    ("topics", "200"): {
        "items": [{"name": "demo.incoming", "messages": 12, "is_of_requests": True}],
        "cursor": "",
        "requests": ["demo.incoming", "demo.incoming_urls", "demo.inbound_actions"],
        "of_requests": [{"name": "demo.incoming", "messages": 12, "is_of_requests": True}],
        "lag": 0,
        "dead_letter": "demo.dead_letter",
    },
    ("dead_letters", "200"): {
        "items": [
            {
                "id": "9f86d081884c7d659a2feaa0c55ad015",
                "topic": "demo.incoming",
                "message": '{"appid": "shop", "crawlid": "prices", "url": "https://example.com", "maxdepth": -1}',
                "message_encoding": "text",
                "field": "maxdepth",
                "reason": "must be at least 0",
                "timestamp": 1767225600.0,
                "resent": {"at": 1767229200.0, "actor": "token", "origin": "127.0.0.1"},
            }
        ],
        "cursor": "MTc2NzIyNTYwMC0w",
        "more": False,
    },
    ("domain_use", "200"): {
        "items": [{"at": 1767225600.0, "used": 7.5, "most": 10, "hits": 10, "window": 60.0}],
        "remembered": True,
    },
    ("crawl_seeds", "200"): {"items": ["https://example.com/"], "more": False},
    ("rates", "200"): {"items": [{"at": 1765432080.0, "pages_per_second": 41.5, "waiting": 812}], "remembered": True},
    ("queues", "200"): {"total": 20, "items": [{"spiderid": "link", "queued": 20, "domains": 1}], "spiders": 1},
    ("queue_domains", "200"): {"items": [{"domain": "example.com", "queued": 20}], "cursor": ""},
    ("classic_index", "200"): _CLASSIC_INDEX,
    ("classic_index_post", "200"): _CLASSIC_INDEX,
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
"""Examples of responses, by operation id and status code. `classic_...` are Scrapy Cluster's endpoints. Every operation
with a JSON answer needs one here, unless it has its own example."""


# --- the page at /docs ------------------------------------------------------------------------------------------------

_DOCS_FILES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
"""Files of the package `fastapi_swagger` that the page loads, and their media types. The names are those of that
package, and any file of it that is named here can be read without a token."""
DOCS_PATHS = frozenset({"/docs", "/openapi.json", "/docs/start.js", *(f"/docs/{name}" for name in _DOCS_FILES)})
"""Paths that `access` serves without a token: a browser sends none when it opens the page."""

# With this policy the browser loads nothing from other servers. It may become stricter, but must not be relaxed.
_DOCS_HEADERS = page_headers(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TEMPLATES = Templates("gossamer.api")
_CACHE_SECONDS = 3600
"""Time for which browsers keep the files of the package. After an update they show the old page that long."""

docs = APIRouter(include_in_schema=False)


@docs.get("/docs")
async def docs_page() -> Response:
    """Return the page."""
    return HTMLResponse(_TEMPLATES.render("docs.html.j2"), headers=_DOCS_HEADERS)


@docs.get("/docs/{name}")
async def docs_file(name: str) -> Response:
    """Return a file of the page."""
    if name == "start.js":
        return Response(_TEMPLATES.render("docs.js"), media_type="text/javascript", headers=_DOCS_HEADERS)
    if name not in _DOCS_FILES:
        raise not_found(f"/docs/{name} does not exist")
    headers = {**_DOCS_HEADERS, "Cache-Control": f"max-age={_CACHE_SECONDS}"}
    return Response(_swagger_file(name), media_type=_DOCS_FILES[name], headers=headers)


@docs.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    """Return the OpenAPI description."""
    return Response(request.app.state.openapi_json(), media_type="application/json")


@cache
def _swagger_file(name: str) -> bytes:
    # `name` must be one of _DOCS_FILES: any other could name a file outside the package.
    return (resources.files("fastapi_swagger.resources") / name).read_bytes()
