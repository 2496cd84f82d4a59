"""The API's application: its routes, its middleware, and its OpenAPI description.

A new endpoint goes into the module of its resource, and needs an example in `openapi.EXAMPLES`. Fixed: the order of
the middleware (its reasons stand in `create_app`), and the names in `app.state`, by which endpoints find their objects.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer import __version__
from gossamer.api import (
    audit,
    changes,
    classic,
    crawl_report,
    crawls,
    domains,
    events,
    logins,
    openapi,
    pace,
    pages,
    past,
    status,
    submit,
    topics,
    urls,
    websub,
)
from gossamer.api.access import OPEN_PATHS, UNLIMITED_PATHS, Authentication
from gossamer.api.context import ApiContext, normalized_path
from gossamer.api.openapi import COMMON_REFUSALS, EXAMPLES, SCHEMAS, ProblemModel, refusal
from gossamer.api.pending import PendingRequests
from gossamer.api.problems import bad_request, is_classic, not_found, problem_of, problem_response
from gossamer.api.submit import SubmissionCounter
from gossamer.control.domains import PolicyList
from gossamer.errors import GossamerError
from gossamer.model.messages.reader import REQUESTS, schema
from gossamer.telemetry import logs
from gossamer.web.audit import AuditedRequests
from gossamer.web.bodies import BodyLimit
from gossamer.web.problems import Problem, internal_error
from gossamer.web.rates import RateLimit
from gossamer.web.streams import EventStreams

log = logging.getLogger("gossamer.api")

_ABOUT = """Submit crawls, watch them, stop them.

`/`, `/feed` and `/poll` are Scrapy Cluster's, and wrap their answers as it does. All paths under `/v1` have meaningful
status codes and report errors as `application/problem+json` (RFC 9457). Ids in paths may contain any printable
character, percent-encoded."""
"""Introduction of the description. docs/reference/openapi.json contains it."""
_ROUTERS = (
    submit.router, crawls.router, crawls.crawl_router, events.router, pages.router, changes.router, past.router,
    pace.crawl_router, crawl_report.router, urls.router, domains.router, pace.domain_router, logins.router,
    topics.router, status.cluster, audit.router, classic.router, status.health, websub.router, openapi.docs,
)  # fmt: skip
"""All endpoints, in the order of the description. No two match the same path."""
_MESSAGE_SCHEMAS = {
    **{f"{name.capitalize()}Request": name for name in (*REQUESTS, "poll")},  # poll: only for REST, not on the bus
    "Wrapper": "rest_answer",
    "Root": "rest_root",
}
"""Components of the description that are schemas of messages, and the names of these schemas. Endpoints refer to the
components by name (`CrawlRequest`, `Wrapper`): change both together."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that have their own value in the metrics. Any other is counted as `other`, so that clients cannot create
endless values. Methods may be added. None may be removed, because alerts may use it."""


def create_app(context: ApiContext) -> FastAPI:
    """Return the API. Call this in the event loop that serves it, and `close_app` at the end."""
    app = routes()
    app.state.context = context
    app.state.started_at = context.monotonic()
    app.state.pending = PendingRequests(context)
    app.state.submissions = SubmissionCounter(context)
    app.state.openapi_json = cache(lambda: msgspec.json.encode(app.openapi()))  # at the first call: it takes a while
    app.state.streams = EventStreams()
    app.state.reports = crawl_report.WaitingReports()
    app.state.topic_reads = asyncio.Semaphore(pages.MAX_TOPIC_READS)
    app.state.policies = PolicyList(context.frontier)
    # The middleware that is added last runs first, and the order matters: errors become responses and paths are
    # normalized before anything looks at them; the rate limit also holds for requests that are refused; and the refusal
    # of a body is counted in the metrics.
    app.add_middleware(
        BodyLimit,
        longest=lambda path: context.max_body_bytes,
        advice=" (the setting service.max_body)",
        total_seconds=context.body_timeout_seconds,
        answer=problem_response,
    )
    app.add_middleware(Authentication, token=context.token, guesses=context.guesses)
    _add_common_middleware(app, context)
    return app


def create_probes(context: ApiContext) -> FastAPI:
    """Return an application with `/healthz`, `/readyz` and `/metrics` only, for clients without a token."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, exception_handlers={HTTPException: _on_http_error})
    app.state.context = context
    app.include_router(status.health)
    _add_common_middleware(app, context)
    return app


def _add_common_middleware(app: FastAPI, context: ApiContext) -> None:
    """Add the outermost layers. The one that is added last is the outermost: it sees the responses into which the next
    one turns what inner layers raise."""
    app.add_middleware(
        RateLimit,
        per_second=context.max_requests_per_second,
        advice=" (the setting service.max_requests)",
        monotonic=context.monotonic,
        unlimited_paths=UNLIMITED_PATHS,
        answer=problem_response,
    )
    app.add_middleware(RequestMiddleware, context=context)
    app.add_middleware(AuditedRequests, trail=context.audit)


def stop_streams(app: FastAPI) -> None:
    """End all event streams. Otherwise the server would wait for them when it stops."""
    app.state.streams.closing.set()


async def close_app(app: FastAPI) -> None:
    """Release the API's resources after the server has stopped. The next poll for an unanswered request gives it to
    another API process (see pending.py)."""
    await app.state.pending.close()
    await app.state.submissions.close()


def routes() -> FastAPI:
    """Return the API without context and middleware, for its description."""
    app = FastAPI(
        title="Gossamer",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _on_http_error, RequestValidationError: _on_invalid_parameter},
    )
    for router in _ROUTERS:
        app.include_router(router, dependencies=[Depends(audit.audited)])
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]
    return app


class RequestMiddleware:
    """Outermost ASGI middleware: normalizes the path, turns errors into responses, and counts requests."""

    def __init__(self, app: ASGIApp, *, context: ApiContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = self._context.monotonic()
        status_code = 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status_code
            if message["type"] == "http.response.start":
                status_code = message["status"]
            await send(message)

        try:
            await self._respond(scope, receive, send_and_note_status, lambda: status_code != 0)
        finally:
            self._count(scope, status_code, self._context.monotonic() - started_at)

    async def _respond(self, scope: Scope, receive: Receive, send: Send, has_started: Callable[[], bool]) -> None:
        """Run the application. Answer with a problem if it raises an error before `has_started`, which returns whether
        a part of the response was sent."""
        try:
            scope["path"] = normalized_path(scope["raw_path"])
            await self._app(scope, receive, send)
            return
        except Problem as error:
            problem = error
        except GossamerError as error:
            problem = problem_of(error)
            if problem.status >= 500:
                log.warning("%s %s: %s", scope["method"], scope["path"], error)
        except Exception:
            log.exception("%s %s %s", logs.REQUEST_BROKE, scope["method"], scope["path"])
            problem = internal_error()
        if not has_started():
            await problem_response(problem, scope["path"])(scope, receive, send)
        # Otherwise the server notices that the rest of the response is missing, and closes the connection.

    def _count(self, scope: Scope, status_code: int, seconds: float) -> None:
        """Add an answered request to the metrics."""
        # The route's template, not the path: otherwise every crawl, and every unknown path, would get its own metrics.
        route = getattr(scope.get("route"), "path_format", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._context.metrics.http.labels(route, method, str(status_code)).inc()
        self._context.metrics.http_seconds.labels(route).observe(seconds)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer a request that matches no route: an unknown path, or a method that the path does not have."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 404:
        problem = not_found(f"{path} does not exist")
    elif error.status_code == 405:
        allowed = ", ".join(sorted(_allowed_methods(path)))
        problem = Problem(
            405, "Method not allowed", f"{path} allows {allowed}, not {request.method}", headers={"Allow": allowed}
        )
    else:
        problem = Problem(error.status_code, error.detail)
    return problem_response(problem, path)


def _allowed_methods(path: str) -> set[str]:
    """Return the methods that some route has for this path."""
    allowed: set[str] = set()
    for router in _ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                allowed |= set(route.methods or ())
    return allowed


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    """Return the response for a parameter of the query or path that is not valid: the problem names it."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    parameter = str(first["loc"][-1])
    return problem_response(bad_request(str(first["msg"]), where=parameter), request.scope["path"])


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


def _description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = _complete(FastAPI.openapi(app))
    return app.openapi_schema


def _complete(description: dict[str, Any]) -> dict[str, Any]:
    """Add to FastAPI's description what all endpoints share, the schemas of messages, and the examples."""
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's; this API answers with problems
        schemas.pop(name, None)
    schemas["Problem"] = ProblemModel.model_json_schema()
    schemas["Policy"] = domains.PolicyModel.model_json_schema()
    schemas["Resubmission"] = topics.Resubmission.model_json_schema()
    schemas["Policies"] = domains.PolicyPage.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Policies"].pop("$defs", None)  # a second copy of Policy: its references lead to the one above
    left_out = ("$schema", "$comment")  # the comments are for maintainers
    for component, name in _MESSAGE_SCHEMAS.items():
        shown = _with_references(
            {part: value for part, value in schema(name).items() if part not in left_out}, component
        )
        for part, definition in shown.pop("$defs", {}).items():
            schemas[f"{component}{part.capitalize()}"] = definition
        schemas[component] = shown
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "The setting service.token, if it is set"}
    }
    for path, methods in description["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            responses.pop("422", None)  # FastAPI's status for invalid parameters; this API answers 400
            for code, response in responses.items():
                if response["description"] == "Successful Response":
                    response["description"] = "Success"
                if (example := EXAMPLES.get((operation["operationId"], code))) is not None:
                    response["content"]["application/json"]["example"] = example
            if path in OPEN_PATHS:
                continue
            operation["security"] = [{"token": []}]
            for status_code in COMMON_REFUSALS:
                responses.setdefault(
                    str(status_code), _classic_refusal(status_code) if is_classic(path) else refusal(status_code)
                )
            operation["responses"] = dict(sorted(responses.items()))
    return description


def _with_references(part: Any, component: str) -> Any:
    """Return a copy of a message's schema whose references lead to components: `#/$defs/rule` of `CrawlRequest` to
    `CrawlRequestRule`."""
    if isinstance(part, dict):
        return {
            key: f"{SCHEMAS}{component}{value.rpartition('/')[2].capitalize()}"
            if key == "$ref" and isinstance(value, str)
            else _with_references(value, component)
            for key, value in part.items()
        }
    return [_with_references(each, component) for each in part] if isinstance(part, list) else part


def _classic_refusal(status_code: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Wrapper"}}}
    return {"description": refusal(status_code)["description"], "content": content}
