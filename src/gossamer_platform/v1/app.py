"""ASGI application with the platform's API under /v1, its description, and the form of its errors.

A new endpoint goes into the module of its resource. Errors are problem+json (RFC 9457). Fixed: the names of problems
and their statuses, which clients read; and that a request's body is read only for a sender who may send it.
"""

import contextlib
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Final
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.errors import BadInput, GossamerError
from gossamer.storage.objects import StorageUnavailable
from gossamer.telemetry import logs
from gossamer.web.audit import AuditedRequests
from gossamer.web.problems import Problem, internal_error, problem_json
from gossamer.web.streams import EventStreams
from gossamer_platform.link import LinkRefused, UnknownAttempt
from gossamer_platform.manager.operations import (
    BrokenVersion,
    JobConflict,
    NoNode,
    NotFound,
    SettingNotPermitted,
    VersionInUse,
)
from gossamer_platform.manager.vault import NoSecretKey
from gossamer_platform.names import UnsafeName
from gossamer_platform.packages import NotAnArtefact
from gossamer_platform.v1 import (
    events,
    groups,
    job_files,
    jobs,
    node_calls,
    nodes,
    policies,
    projects,
    schedules,
    uploads,
    variables,
    webhooks,
)
from gossamer_platform.v1.access import CHALLENGE, NotPermitted, TooManyPasswords, Unauthorized
from gossamer_platform.v1.context import PRINCIPAL, PlatformContext
from gossamer_platform.v1.groups import INPUTS_PATH, MAX_INPUT_BYTES
from gossamer_platform.v1.projects import MAX_ARTEFACT_BYTES, VERSIONS_PATH
from gossamer_platform.v1.spooling import UploadTooLong
from gossamer_platform.v1.uploads import PARTS_PATH
from gossamer_platform.wire import MAX_CALL_BYTES, MAX_PART_BYTES, PREFIX

log = logging.getLogger("gossamer.platform.v1")

_ABOUT = """Deploy Scrapy projects, run their spiders as jobs, and read logs and items.

Send `Authorization: Bearer TOKEN`, or the server's name and password. A server without a password accepts any program
on its own machine. Errors are `application/problem+json` (RFC 9457)."""
_PROBLEMS: Final[tuple[tuple[type[GossamerError], int, str], ...]] = (
    (Unauthorized, 401, "unauthorized"),
    (NotPermitted, 403, "not-permitted"),
    (TooManyPasswords, 429, "too-many-requests"),
    (SettingNotPermitted, 403, "not-permitted"),
    (NotFound, 404, "not-found"),
    (JobConflict, 409, "job-conflict"),
    (VersionInUse, 409, "version-in-use"),
    (NoSecretKey, 409, "no-secret-key"),
    (LinkRefused, 409, "node-refused"),
    (NoNode, 503, "no-node"),
    (UploadTooLong, 413, "body-too-long"),
    (BrokenVersion, 422, "broken-version"),
    (NotAnArtefact, 400, "invalid-request"),
    (UnsafeName, 400, "invalid-request"),
    (BadInput, 400, "invalid-request"),
    (UnknownAttempt, 404, "not-found"),
    (StorageUnavailable, 503, "storage-unavailable"),
)
"""Status and name by the class of an error. Fixed; a class may be added."""

ROUTERS: Final = tuple(
    module.router
    for module in (
        jobs, job_files, events, groups, schedules, projects, policies, variables, webhooks, nodes, uploads, node_calls
    )
)  # fmt: skip
"""Endpoints by their nouns, in the order of the description."""
_LATER: Final = {"Retry-After": "5"}
_MAX_BODY_BYTES: Final = 1024 * 1024
"""Longest body of a request that sends no file."""
_LARGE_BODIES: Final = {VERSIONS_PATH: MAX_ARTEFACT_BYTES, INPUTS_PATH: MAX_INPUT_BYTES}
"""Longest bodies of those that do, by path."""
_LIMITS: Final = {413: "body-too-long"}
"""Names of limits that this API had before the server, by status. Fixed."""


def create_app(context: PlatformContext, streams: EventStreams) -> ASGIApp:
    """Return the application."""
    app = routes()
    app.state.context = context
    app.state.streams = streams
    return RequestGuard(AuditedRequests(app, trail=context.manager.audit), context)


class RequestGuard:
    """ASGI middleware that finds the sender of a request.

    FastAPI reads the body before it calls the dependencies of an endpoint, so this cannot be one of them.
    """

    def __init__(self, app: ASGIApp, context: PlatformContext) -> None:
        """`app`: with what makes the entries of the audit."""
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if "\0" in scope["path"] or b"\0" in unquote_to_bytes(scope["query_string"]):
            refused = problem_json(Problem.named(400, "invalid-request", "the address has a NUL character (%00)"))
            await refused(scope, receive, send)
            return
        try:
            # Only a caller in this process can name the sender: no server puts it into the state of a request.
            principal = scope.get("state", {}).get(PRINCIPAL) or await self._context.find_principal(request)
        except (Unauthorized, NotPermitted, TooManyPasswords) as error:
            refused = await _on_error(request, error)
            await refused(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), PRINCIPAL: principal}
        with contextlib.suppress(ClientDisconnect):
            await self._app(scope, receive, send)


def longest_body(path: str) -> float:
    """Return the length of the longest body of a request for a path. Other interfaces have limits of their own."""
    if path.startswith(PREFIX):
        return MAX_PART_BYTES if path.startswith(PARTS_PATH) else MAX_CALL_BYTES
    return _LARGE_BODIES.get(path, _MAX_BODY_BYTES) if path.startswith("/v1/") else math.inf


def answer_limit(problem: Problem, _path: str) -> Response:
    """Return the response to a request that exceeds a limit of the server."""
    return problem_json(replace(problem, kind=_LIMITS.get(problem.status, "")))


def routes() -> FastAPI:
    """Return the application without its objects, for its description."""
    app = FastAPI(
        title="Gossamer platform",
        version=version("gossamer-crawl"),
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            GossamerError: _on_error,
            Problem: _on_problem,
            RequestValidationError: _on_invalid,
            HTTPException: _on_http_error,
            SQLAlchemyError: _on_outage,
        },
    )
    for router in ROUTERS:
        # include_router() would analyse the parameters of each endpoint again, 0.07 s of each start.
        app.router.routes += router.routes
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    for kind, status, name in _PROBLEMS:
        if isinstance(error, kind):
            headers = {401: {"WWW-Authenticate": CHALLENGE}, 503: _LATER}.get(status, {})
            if isinstance(error, TooManyPasswords):
                headers = error.headers
            return problem_json(Problem.named(status, name, str(error), headers=headers))
    log.error("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path, exc_info=error)
    return problem_json(internal_error())


async def _on_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_json(error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [
        {**fault, "msg": "unknown field"} if fault["type"] == "extra_forbidden" else fault for fault in error.errors()
    ]
    # Of each fault the last part of its place: `limit`, not `query.limit`.
    faults = [{"field": ".".join(map(str, fault["loc"][1:])), "reason": fault["msg"]} for fault in errors]
    # A fault of the whole body has no field.
    detail = "; ".join(f"{_field_text(fault['loc'][1:])}: {fault['msg']}".removeprefix(": ") for fault in errors)
    return problem_json(Problem.named(400, "invalid-request", detail, errors=tuple(faults)))


def _field_text(place: Sequence[int | str]) -> str:
    """Return a place as a person reads it: `crawl.url (entry 1)`."""
    names = ".".join(str(part) for part in place if not isinstance(part, int))
    entries = ", ".join(f"entry {part + 1}" for part in place if isinstance(part, int))
    return f"{names} ({entries})" if entries else names


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = {404: "not-found", 405: "method-not-allowed", 413: "body-too-long"}.get(error.status_code, "invalid-request")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return problem_json(Problem.named(error.status_code, name, detail, headers=dict(error.headers or {})))


async def _on_outage(request: Request, error: Exception) -> Response:
    if isinstance(error, DataError):  # to repeat the request would not help
        log.error("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path, exc_info=error)
        detail = "the database cannot store a value of the request"
        return problem_json(Problem.named(400, "invalid-request", detail))
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout):  # the server is away, and comes back
        first_line = str(error).partition("\n")[0]
        log.warning("%s %s %s: %s", logs.REQUEST_BROKE, request.method, request.url.path, first_line)
    else:
        log.error("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path, exc_info=error)
    detail = "the database cannot answer at present; repeat the request"
    return problem_json(Problem.named(503, "database-unavailable", detail, headers=_LATER))
