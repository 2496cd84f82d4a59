"""The application: routes, the layers around them, and what OpenAPI says of both."""

import asyncio
from functools import cache
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gossamer import __version__
from gossamer.api import classic, crawls, docs, domains, events, pages, queues, stats, status, submit, workers
from gossamer.api.auth import OPEN_PATHS, Auth
from gossamer.api.context import ApiContext
from gossamer.api.events import EventStreamMiddleware
from gossamer.api.limits import BodyLimit, RateLimit
from gossamer.api.openapi import ALWAYS, ANSWERS, ProblemModel, refusal
from gossamer.api.pending import PendingRequests
from gossamer.api.problems import Problem, bad_request, is_classic, not_found, shown
from gossamer.api.submit import SubmissionCounter
from gossamer.model.messages.schemas import REQUESTS, schema

_ABOUT = """Submit crawls, watch them, stop them.

`/`, `/feed` and `/poll` are Scrapy Cluster's, in its wrapper; everything under `/v1` has real status codes and answers
refusals as `application/problem+json` (RFC 9457). Ids in paths may hold any printable character, percent-encoded."""
_ROUTERS = (
    submit.router, crawls.router, crawls.one, events.router, pages.router, domains.router, workers.router, stats.router,
    queues.router, classic.router, status.router, docs.router,
)  # fmt: skip
_FROM_MESSAGES = {
    **{f"{name.capitalize()}Request": name for name in (*REQUESTS, "poll")},
    "Wrapper": "rest_answer",
    "Root": "rest_root",
}
"""Forms that have a schema among the messages."""


def create_app(parts: ApiContext) -> FastAPI:
    """Everything, ready to serve; make it in the event loop it runs in. `close_app` ends what it began."""
    app = routes()
    app.state.parts = parts
    app.state.started = parts.monotonic()
    app.state.waiting = PendingRequests(parts)
    app.state.fed = SubmissionCounter(parts)
    app.state.description = cache(lambda: msgspec.json.encode(app.openapi()))
    app.state.streams = events.EventStreams()
    app.state.scans = asyncio.Semaphore(pages.AT_ONCE)
    # The last one added is asked first.
    app.add_middleware(BodyLimit, most=parts.max_body, seconds=parts.body_seconds)
    app.add_middleware(Auth, token=parts.token)
    app.add_middleware(RateLimit, a_second=parts.max_requests, monotonic=parts.monotonic)
    app.add_middleware(EventStreamMiddleware, parts=parts)
    return app


def create_probes(parts: ApiContext) -> FastAPI:
    """`/healthz`, `/readyz` and `/metrics` alone, for probes and scrapers that have no token."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, exception_handlers={HTTPException: _http})
    app.state.parts = parts
    app.include_router(status.router)
    app.add_middleware(RateLimit, a_second=parts.max_requests, monotonic=parts.monotonic)
    app.add_middleware(EventStreamMiddleware, parts=parts)
    return app


def end_streams(app: FastAPI) -> None:
    """Let those who listen to events go: the server waits for them."""
    app.state.streams.closing.set()


async def close_app(app: FastAPI) -> None:
    """After the server has stopped: leave what is not answered yet to others."""
    await app.state.waiting.close()
    await app.state.fed.close()


def routes() -> FastAPI:
    """The routes alone, for their description."""
    app = FastAPI(
        title="Gossamer",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _http, RequestValidationError: _invalid},
    )
    for router in _ROUTERS:
        app.include_router(router)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


async def _http(request: Request, error: Exception) -> Response:
    """What no route takes: an unknown path, or a method it does not have."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 404:
        problem = not_found(f"there is no {path}")
    elif error.status_code == 405:
        allowed = ", ".join(sorted(_allowed(request)))
        problem = Problem(
            405, "Method not allowed", f"{request.method} is not for {path}, but {allowed}", headers={"Allow": allowed}
        )
    else:
        problem = Problem(error.status_code, error.detail)
    return shown(problem, path)


def _allowed(request: Request) -> set[str]:
    found: set[str] = set()
    for router in _ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(request.scope["path"]):
                found |= set(route.methods or ())
    return found


async def _invalid(request: Request, error: Exception) -> Response:
    """A parameter that cannot be used."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    where = str(fault["loc"][-1])
    return shown(bad_request(str(fault["msg"]), where=where), request.scope["path"])


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


def _described(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = _completed(FastAPI.openapi(app))
    return app.openapi_schema


def _completed(found: dict[str, Any]) -> dict[str, Any]:
    """With what holds for every endpoint, and with the schemas of the requests."""
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = ProblemModel.model_json_schema()
    schemas["Policy"] = domains.PolicyModel.model_json_schema()
    schemas["Policies"] = domains.PolicyPage.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Policies"].pop("$defs", None)
    for form, name in _FROM_MESSAGES.items():
        schemas[form] = {part: value for part, value in schema(name).items() if part != "$schema"}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "The setting service.token, where it is set"}
    }
    for path, methods in found["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            responses.pop("422", None)
            for code, response in responses.items():
                if response["description"] == "Successful Response":
                    response["description"] = "As asked"
                if (example := ANSWERS.get((operation["operationId"], code))) is not None:
                    response["content"]["application/json"]["example"] = example
            if path in OPEN_PATHS:
                continue
            operation["security"] = [{"token": []}]
            for code in ALWAYS:
                responses.setdefault(str(code), _classic_refusal(code) if is_classic(path) else refusal(code))
            operation["responses"] = dict(sorted(responses.items()))
    return found


def _classic_refusal(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Wrapper"}}}
    return {"description": refusal(status)["description"], "content": content}
