"""ASGI application with Scrapy Cloud's interface below /cloud, beside Scrapyd's and /v1 on the same port.

Its clients join addresses and paths, so a path of its own tells it from Scrapyd's pages /logs and /items:

    http://HOST:6800/cloud/api/    what clients call the endpoint, or Dash
    http://HOST:6800/cloud/        what they call the storage

A client sends a token as the name of basic authentication, or NAME:PASSWORD of the server. Fixed: the path; the form of
errors, by which clients tell them apart; and that a body is read only for a sender who may send it.
"""

import logging
from typing import Final

from sqlalchemy.exc import DataError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.errors import BadInput, GossamerError
from gossamer.storage.audit import AuditedChange
from gossamer.storage.objects import StorageUnavailable
from gossamer.telemetry import logs
from gossamer.web.audit import AuditedRequests, origin_of
from gossamer.web.rates import client_address
from gossamer_platform.cloud import dash, jobq, links, records
from gossamer_platform.cloud.calls import CloudCall, CloudRoute, NotOffered, check_scope
from gossamer_platform.manager.files import JobFiles
from gossamer_platform.manager.operations import BrokenVersion, Manager, NoNode, NotFound, SettingNotPermitted
from gossamer_platform.names import UnsafeName
from gossamer_platform.packages import NotAnArtefact
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.scrapyd.endpoints import BadParameter
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import CHALLENGE, NotPermitted, TooManyPasswords, Unauthorized, refuse_foreign_page
from gossamer_platform.v1.spooling import UploadTooLong

log = logging.getLogger("gossamer.platform.cloud")

PREFIX: Final = "/cloud"
"""Path of this interface. Clients' configurations contain it: fixed."""
_STATUS: Final[tuple[tuple[type[GossamerError], int], ...]] = (
    (Unauthorized, 401),
    (NotPermitted, 403),
    (TooManyPasswords, 429),
    (SettingNotPermitted, 403),
    (NotFound, 404),
    (UploadTooLong, 413),
    (NotOffered, 400),
    (BadInput, 400),
    (BadParameter, 400),
    (UnsafeName, 400),
    (NotAnArtefact, 400),
    (BrokenVersion, 400),
    (NoNode, 503),
    (StorageUnavailable, 503),
)
"""Status by the class of an error. Fixed; a class may be added."""


class CloudApp:
    """Application that answers below /cloud, and to addresses of Scrapy Cloud's pages. It passes everything else on."""

    def __init__(self, inner: ScrapydApp, manager: Manager, files: JobFiles) -> None:
        self._inner = inner
        self._manager = manager
        self._files = files
        routes = (*dash.ROUTES, *jobq.ROUTES, *links.ROUTES, *records.ROUTES)
        router = Router([self._route(route) for route in routes], redirect_slashes=False)
        self._router: ASGIApp = AuditedRequests(router, trail=manager.audit)

    def stop_streams(self) -> None:
        """End all event streams. Otherwise the server would wait for them when it stops."""
        self._inner.streams.closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = "/" + "/".join(part for part in scope.get("path", "").split("/") if part)
        if scope["type"] != "http" or not (path.startswith(f"{PREFIX}/") or links.PAGE.fullmatch(path)):
            await self._inner(scope, receive, send)
            return
        inner = {**scope, "path": path.removeprefix(PREFIX), "root_path": ""}
        await self._router(inner, receive, send)

    def _route(self, route: CloudRoute) -> Route:
        async def answer(request: Request) -> Response:
            return await self._answer(request, route)

        return Route(route.path, answer, methods=[route.method])

    async def _answer(self, request: Request, route: CloudRoute) -> Response:
        try:
            principal = await self._principal(request)
            refusal = check_scope(principal, route.scope)
            if refusal:
                raise NotPermitted(refusal)
            call = CloudCall(request, self._manager, self._files, principal)
            if route.scope is not TokenScope.READ:
                subject = "/".join(str(value) for value in request.path_params.values())
                who, origin = principal.name, origin_of(request)
                await call.entry.begin(AuditedChange(actor=who, origin=origin, action=route.action, subject=subject))
            return await route.answer(call)
        except ClientDisconnect:
            return Response(status_code=499)
        except UnicodeDecodeError as error:
            return _error(request, 400, f"the request cannot be read: {error}")
        except GossamerError as error:
            return _refused(request, error)
        except (DataError, OverflowError):  # by PostgreSQL, and by SQLite
            return _error(request, 400, "a number in the address is too large")
        except SQLAlchemyError as error:
            if isinstance(error, OperationalError | InterfaceError | PoolTimeout):  # the server is away, and comes back
                first_line = str(error).partition("\n")[0]
                log.warning("%s %s %s: %s", logs.REQUEST_BROKE, request.method, request.url.path, first_line)
            else:
                log.exception("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path)
            return _error(request, 503, "the database cannot answer at present; repeat the request")
        except Exception:
            log.exception("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path)
            return _error(request, 500, "Internal Server Error")

    async def _principal(self, request: Request) -> Principal:
        refuse_foreign_page(request.method, request.headers)
        key = request.query_params.get("apikey", "")
        return await self._inner.access.principal_of_key(request.headers, key, client=client_address(request))


def _refused(request: Request, error: GossamerError) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        log.error("%s %s %s", logs.REQUEST_BROKE, request.method, request.url.path, exc_info=error)
    return _error(request, status, str(error))


def _error(request: Request, status: int, message: str) -> Response:
    if status == 401:
        if request.url.path.startswith("/api/"):  # clients know this message, and deployments this status
            return JSONResponse({"status": "error", "message": "Authentication failed"}, 403)
        return JSONResponse({"message": message}, 401, {"WWW-Authenticate": CHALLENGE})
    if status == 404 and request.method == "POST" and request.url.path.startswith("/api/"):
        status = 400  # of a 404 clients do not show the message
    kind = "badrequest" if status == 400 else "error"
    body = {"status": kind, "message": message}
    headers = {"Retry-After": "5"} if status == 503 else {}
    return JSONResponse(body, status, headers)
