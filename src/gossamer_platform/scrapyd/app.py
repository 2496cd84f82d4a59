"""ASGI application with Scrapyd's interface: paths, methods, access, and the form of answers and errors. It passes on
what is addressed to the platform's own API, /v1.

Fixed: errors of endpoints have the status 200 and a JSON object with `status` and `message`, as Scrapyd's clients
expect; a path may have repeated slashes, because clients join addresses in two ways; and nothing of a request's body is
read before its sender is known.
"""

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy.exc import DBAPIError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from gossamer.errors import GossamerError
from gossamer.storage.audit import AuditedChange
from gossamer.storage.objects import StorageUnavailable
from gossamer.telemetry import logs
from gossamer.web.audit import RequestAudit, origin_of
from gossamer.web.mounts import page_headers, path_of_proxy
from gossamer.web.rates import client_address
from gossamer.web.streams import EventStreams
from gossamer_platform.delivery.crawls import CrawlService
from gossamer_platform.lifecycle import JobState
from gossamer_platform.manager.operations import BrokenVersion, Manager
from gossamer_platform.names import UnsafeName
from gossamer_platform.scrapyd import pages
from gossamer_platform.scrapyd.config import ScrapydConfig
from gossamer_platform.scrapyd.endpoints import Endpoints, Form, ScrapydEndpoint, StillBuilding
from gossamer_platform.scrapyd.files import ServedFiles
from gossamer_platform.scrapyd.forms import Parameters, parse_body, parse_query
from gossamer_platform.scrapyd.frame import PageFrame
from gossamer_platform.scrapyd.listing import PageRequest
from gossamer_platform.state import jobs, projects, tokens
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import (
    CHALLENGE,
    AccessControl,
    Login,
    NotPermitted,
    TooManyPasswords,
    Unauthorized,
    refuse_foreign_page,
)
from gossamer_platform.v1.app import create_app
from gossamer_platform.v1.context import PlatformContext, RemoteNodes
from gossamer_platform.v1.reading import in_reader
from gossamer_platform.v1.spooling import spooled

log = logging.getLogger("gossamer.platform.scrapyd")

_MAX_BODY_BYTES: Final = 512 * 1024 * 1024
"""Largest body of a request. An egg in a form may be three times as long as its file."""
_LARGE_BODY_BYTES: Final = 64 * 1024
"""Length from which a body is parsed in a thread."""
_LARGE_BODIES: Final = 2
"""Large bodies that are parsed in memory at a time; others wait as files."""
_SUBJECT: Final = (b"project", b"version", b"_version", b"spider", b"job", b"jobid")
"""Parameters that the audit shows. Arguments of spiders may be secrets."""
_AUDITED_STATUS: Final[Mapping[type[Exception], int]] = {StillBuilding: 202, BrokenVersion: 422}
"""Status codes that the audit has for errors, as /v1 answers them; for others it has 400."""
_MISSING: Final = ("No Such Resource", "There is no page at this address.")
"""Heading, which is Scrapyd's, and text of the page in place of one that does not exist."""
_PAGE_ROWS: Final = 100
"""Projects on one page."""
_METHODS: Final = {"GET": ("HEAD", "OPTIONS", "GET"), "POST": ("HEAD", "OPTIONS", "POST")}
"""Methods that an endpoint names in an error, by its own method. Scrapyd's order: fixed."""


class ScrapydApp:
    """The application."""

    def __init__(
        self, manager: Manager, config: ScrapydConfig, files: ServedFiles, nodes: RemoteNodes | None = None
    ) -> None:
        self.manager = manager
        self.config = config
        self._files = files
        endpoints = Endpoints(manager, config, files).by_name
        self._endpoints = {name: endpoint for name, endpoint in endpoints.items() if name in config.services}
        self._large_bodies = asyncio.Semaphore(_LARGE_BODIES)
        self.access = AccessControl(
            Login(config.username, config.password),
            lambda secret: manager.database.read(lambda connection: tokens.find_principal(connection, secret)),
        )
        service = CrawlService.of(config.crawl_service, config.crawl_service_token)
        self.streams = EventStreams()
        self.v1 = create_app(PlatformContext(manager, files, self._principal, service, nodes), self.streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"].startswith(("/v1/", "/nodes/v1/")):
            await self.v1(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("%s %s %s", logs.REQUEST_BROKE, scope["method"], scope["path"])
            response = PlainTextResponse("Internal Server Error", 500)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = "/" + "/".join(part for part in request.scope["raw_path"].decode("latin-1").split("/") if part)
        name = path[1:]
        endpoint = self._endpoints.get(name)
        admitted = await self._admit(request, endpoint)
        if isinstance(admitted, Response):
            return admitted if admitted.status_code in (401, 429) else self._with_cors(admitted, endpoint)
        if endpoint is not None:
            return self._with_cors(await self._call(request, endpoint, admitted), endpoint)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET and HEAD.", 405, {"Allow": "HEAD, GET"})
        page = await self._page(request, path) or HTMLResponse(self._frame(request).problem(*_MISSING), 404)
        for header, value in page_headers().items():
            page.headers.setdefault(header, value)
        return page

    # --- access -------------------------------------------------------------------------------------------------------

    async def _principal(self, request: Request) -> Principal:
        refuse_foreign_page(request.method, request.headers)
        return await self.access.principal(request.headers, client=client_address(request))

    async def _admit(self, request: Request, endpoint: ScrapydEndpoint | None) -> Principal | Response:
        """Return the sender of the request, or the answer if it is not permitted."""
        try:
            principal = await self._principal(request)
        except Unauthorized:
            return HTMLResponse("Unauthorized", 401, {"WWW-Authenticate": CHALLENGE})
        except TooManyPasswords as error:
            return PlainTextResponse(f"{error}\n", 429, error.headers)
        except NotPermitted as error:
            return self._json({"status": "error", "message": str(error)}, 403)
        needed = TokenScope.READ if endpoint is None else endpoint.scope
        if principal.project:
            reason = f"the token of {principal.name} is for one project; Scrapyd's interface shows all, so use /v1"
        elif not principal.scope.includes(needed):
            reason = f"this needs a token with the scope {needed}; {principal.name} has {principal.scope}"
        else:
            return principal
        return self._json({"status": "error", "message": reason}, 403)

    # --- endpoints ----------------------------------------------------------------------------------------------------

    async def _call(self, request: Request, endpoint: ScrapydEndpoint, principal: Principal) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": _allowed(endpoint)})
        if request.method not in (endpoint.method, "HEAD"):
            expected = ", ".join(str(method.encode()) for method in _METHODS[endpoint.method])
            return self._json({"status": "error", "message": f"UnsupportedMethod: Expected one of [{expected}]"})
        if request.method == "HEAD" and endpoint.method == "POST":
            return self._json({})
        entry = RequestAudit(self.manager.audit)
        try:
            parameters = await self._parameters(request)
            if endpoint.is_audited:
                await entry.begin(_change(request, principal, parameters))
            form = Form(parameters, scope=principal.scope)
            del parameters  # an egg is not to stay in memory while its version is built
            fields = await endpoint.answer(form)
        except ClientDisconnect:
            raise
        except Exception as error:
            message = _message(error)
            await entry.end(_AUDITED_STATUS.get(type(error), 400), message)
            if not isinstance(error, GossamerError | ValueError):
                log.exception("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path)
            if self.config.debug:
                return PlainTextResponse(traceback.format_exc())
            return self._json({"status": "error", "message": message})
        await entry.end(200)
        return self._json({**fields, "status": "ok"})

    async def _parameters(self, request: Request) -> Parameters:
        found = parse_query(request.scope["query_string"])
        if request.method != "POST":
            return found
        announced = int(request.headers.get("content-length") or _MAX_BODY_BYTES)
        if announced < _LARGE_BODY_BYTES:
            return found | parse_body(request.headers.get("content-type", ""), await request.body())
        new_file = self.manager.artefacts.temporary_file
        async with spooled(request.stream(), new_file, limit=_MAX_BODY_BYTES) as file, self._large_bodies:
            kind = request.headers.get("content-type", "")
            return found | await asyncio.to_thread(lambda: parse_body(kind, file.read()))

    def _json(self, fields: Mapping[str, Any], status: int = 200) -> Response:
        content = json.dumps({**fields, "node_name": self.config.node_name}).encode() + b"\n"
        return Response(content, status, media_type="application/json")

    def _with_cors(self, response: Response, endpoint: ScrapydEndpoint | None) -> Response:
        if endpoint is not None:
            response.headers["Access-Control-Allow-Origin"] = "*"
            response.headers["Access-Control-Allow-Methods"] = _allowed(endpoint)
            response.headers["Access-Control-Allow-Headers"] = "X-Requested-With"
        return response

    # --- pages --------------------------------------------------------------------------------------------------------

    def _frame(self, request: Request) -> PageFrame:
        config = self.config
        host = request.headers.get("host", f"localhost:{config.http_port}")
        prefix = path_of_proxy(request, config.prefix_header)
        return PageFrame(config, prefix, host, is_manager=self.manager.has_remote_nodes)

    async def _page(self, request: Request, path: str) -> Response | None:
        if "\0" in unquote(request.url.path) + unquote(request.url.query):  # no database takes it
            return None
        frame = self._frame(request)
        if path == "/":
            after = request.query_params.get("after", "")
            known, live, ended = await self.manager.read(lambda connection: self._overview(connection, after))
            more = known[-1].name if len(known) == _PAGE_ROWS else ""
            return HTMLResponse(pages.home(known, pages.count_states(live, ended), frame, more=more))
        if path == "/jobs":
            live, ended = await self.manager.read(self._rows)
            return HTMLResponse(await asyncio.to_thread(self._jobs_page, frame, live, ended))
        root, _, rest = path[1:].partition("/")
        slash = "/" if request.scope["raw_path"].endswith(b"/") else ""
        try:
            return await in_reader(
                self._files.page,
                root,
                unquote(rest) + slash,
                PageRequest(unquote(path) + slash, request.method, request.headers, frame),
            )
        except StorageUnavailable as error:
            return PlainTextResponse(f"{error}\n", 503, {"Retry-After": "5"})

    def _rows(self, connection: Any) -> tuple[Any, Any]:
        live = (JobState.PENDING, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
        return jobs.list_jobs(connection, live), jobs.ended_jobs(connection, limit=self.config.finished_to_keep)

    def _overview(self, connection: Any, after: str) -> tuple[Any, Any, Any]:
        known = projects.project_page(connection, after=after, limit=_PAGE_ROWS)
        return [pages.ProjectSummary(*each) for each in known.items()], *self._rows(connection)

    def _jobs_page(self, frame: PageFrame, live: Any, ended: Any) -> str:
        return pages.JobsPage(self.config, self._files, frame).render(live, ended, time.time())


def _change(request: Request, principal: Principal, parameters: Parameters) -> AuditedChange:
    named = [parameters.get(name, [b""])[0] for name in _SUBJECT]
    subject = " ".join(value.decode(errors="replace") for value in named if value)
    action = f"scrapyd.{request.url.path.rpartition('/')[2].removesuffix('.json')}"
    return AuditedChange(actor=principal.name, origin=origin_of(request), action=action, subject=subject)


def _allowed(endpoint: ScrapydEndpoint) -> str:
    return f"OPTIONS, HEAD, {endpoint.method}"


def _message(error: Exception) -> str:
    """Return the message of an error in Scrapyd's form."""
    if isinstance(error, UnsafeName):
        return str(error) if error.is_too_long else f"DirectoryTraversalError: {error.shown}"
    if isinstance(error, BrokenVersion):
        return f"RunnerError: {error}"
    if isinstance(error, DBAPIError):  # its own text contains the statement
        return f"{type(error.orig).__name__}: {error.orig}"
    return str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
