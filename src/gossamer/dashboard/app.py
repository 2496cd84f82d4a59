"""The dashboard's application: who may use it, its pages, and which API each of them asks.

A page below `/ui` is made from answers of an API. With the parameter `part`, an address returns only the part of the
page of this name, which a page that is visible asks for every two seconds.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.dashboard import ROOT, audit, login, overview
from gossamer.dashboard.crawl_section import crawl_section
from gossamer.dashboard.pages import FILTERS, DashboardPage, DashboardSite
from gossamer.dashboard.sections import DashboardSection, PageRoute, View
from gossamer.dashboard.service import ApiClient, ApiRefused, ChangeUnknown, InProcessClient
from gossamer.dashboard.shared_parts import SharedParts
from gossamer.dashboard.texts import LANGUAGES, Texts, language_for, texts_of
from gossamer.dashboard.visitors import ADMIN, Forbidden, Gate, GateAway, TokenGate, Visitor
from gossamer.telemetry import logs
from gossamer.web.access import foreign_page_fault
from gossamer.web.html import Templates
from gossamer.web.mounts import MountedApp, MountedApps, path_of_proxy
from gossamer.web.rates import GuessLimit, TooManyGuesses
from gossamer.web.static import StaticFiles

log = logging.getLogger("gossamer.dashboard")

_STATIC: Final = f"{ROOT}/static"
_FORM: Final = "application/x-www-form-urlencoded"
_PREFIX_HEADER: Final = "X-Forwarded-Prefix"
"""Header in which a proxy before a crawl service names its path. A client that sends it changes its own links only."""
_OUTSIDER: Final = Visitor(name="", scope="")
"""Visitor before the login."""
OWN_ROUTES: Final = {"/": PageRoute("GET", overview.show), "/audit": PageRoute("GET", audit.show, ADMIN)}
"""Pages about all APIs, by path below the dashboard's."""
_FOR_ALL: Final = frozenset({"/audit"})
"""Those of them that no visitor of a single project may see."""


def with_dashboard(
    api: ASGIApp, *, token: str, guesses: GuessLimit, sections: Sequence[DashboardSection] = ()
) -> ASGIApp:
    """Return an application that serves the API of a crawl service, and the dashboard below `/ui`. A browser that asks
    for `/` is sent to the dashboard. `token`: the API's; empty: only programs and browsers of this machine may use
    both. `guesses`: the API's limit of wrong tokens. `sections`: further sections, about other APIs."""
    own = crawl_section(lambda _visitor, client: InProcessClient(api, client=client, token=token))
    return beside_dashboard(api, TokenGate(token, guesses), (own, *sections), prefix_header=_PREFIX_HEADER)


def beside_dashboard(
    app: ASGIApp, gate: Gate, sections: Sequence[DashboardSection], *, prefix_header: str = ""
) -> ASGIApp:
    """Return an application that serves the dashboard with these sections below `/ui`, and passes on everything else.
    `prefix_header`: header in which a proxy names the path below which it serves everything; empty: none does."""
    static = StaticFiles(files("gossamer.dashboard") / "static", _STATIC)
    dashboard = _Dashboard(gate, sections, static, prefix_header)
    longer = {
        f"{ROOT}{path}": route.longest_body
        for section in sections
        for path, route in section.routes.items()
        if route.longest_body
    }
    mounts = {_STATIC: MountedApp(static), ROOT: MountedApp(dashboard.app, longer_bodies=longer)}
    return MountedApps(_SendBrowsersOn(app, prefix_header), mounts)


class _SendBrowsersOn:
    """Sends a browser that asks for `/` to the dashboard. Programs, which do not ask for HTML first, get the
    application's answer."""

    def __init__(self, app: ASGIApp, prefix_header: str) -> None:
        self._app = app
        self._prefix_header = prefix_header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            request = Request(scope)
            accepted = request.headers.get("accept", "")
            if accepted.lower().startswith("text/html"):
                prefix = path_of_proxy(request, self._prefix_header)
                await RedirectResponse(f"{prefix}{ROOT}/", 303)(scope, receive, send)
                return
        await self._app(scope, receive, send)


@cache  # a process that makes several dashboards compiles their templates once
def _templates(*packages: str) -> Templates:
    return Templates(*packages, filters=FILTERS)


class _Dashboard:
    """Pages about the APIs of some sections."""

    def __init__(
        self, gate: Gate, sections: Sequence[DashboardSection], static: StaticFiles, prefix_header: str
    ) -> None:
        self._gate = gate
        packages = dict.fromkeys(("gossamer.dashboard", *(section.package for section in sections)))
        self._site = DashboardSite(sections, static, _templates(*packages))
        for language in LANGUAGES:
            texts_of(language)  # read now: an upgrade under a running server must not mix two versions
        self._prefix_header = prefix_header
        self._parts = SharedParts(time.monotonic)
        routes = [
            Route(path, self._endpoint(route, is_for_all=path in _FOR_ALL), methods=[route.method])
            for path, route in OWN_ROUTES.items()
        ]
        for section in sections:
            for path, route in section.routes.items():
                endpoint = self._endpoint(route, is_for_all=section.is_for_all)
                routes.append(Route(path, endpoint, methods=[route.method]))
        routes += [
            Route("/login", self._show_login, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
        ]
        handlers = {404: self._not_found, 405: self._not_allowed, GateAway: self._gate_away}
        self.app = Starlette(routes=routes, exception_handlers=handlers)
        self.app.router.redirect_slashes = False  # the address would be made of the header Host

    def _endpoint(self, route: PageRoute, *, is_for_all: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            page = await self._admitted(request)
            if isinstance(page, Response):
                return page
            if not page.may(route.scope):
                detail = page.texts.scope_fault(route.scope, page.visitor.name, page.visitor.scope)
                return self._problem(page, 403, detail)
            if is_for_all and page.visitor.project:
                return self._problem(page, 403, page.texts("problem.one_project", project=page.visitor.project))
            if not page.part or request.method != "GET":
                return await self._answer(page, route.view)
            seen = (str(request.url), page.prefix, page.texts.language, page.visitor)
            return await self._parts.answer(seen, lambda: self._answer(page, route.view))

        return endpoint

    async def _answer(self, page: DashboardPage, view: View) -> Response:
        """Return what a view makes of a page, or the page for its error."""
        try:
            return await view(await self._with_form(page))
        except ApiRefused as error:
            return self._problem(page, error.status, page.detail(error))
        except ChangeUnknown:
            return page.render("change_unknown.html", status_code=503)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("%s %s %s", logs.REQUEST_BROKE, page.request.method, page.request.url.path)
            return self._problem(page, 500, page.texts("problem.bug"))

    async def _admitted(self, request: Request) -> DashboardPage | Response:
        """Return the page for a visitor who may use the dashboard, or the answer to another one. No body is read
        before this."""
        if fault := foreign_page_fault(request.method, request.headers):
            return self._problem(self._page(request), 403, fault)
        try:
            visitor = await self._gate.visitor(request)
        except Forbidden as error:
            return self._problem(self._page(request), 403, str(error))
        except GateAway as error:  # here: the handler of another error may ask, too
            return await self._gate_away(request, error)
        if visitor is None:
            address = request.url
            here = address.path.removeprefix(ROOT) + (f"?{address.query}" if address.query else "")
            # A change is not repeated after the login, and its address has no page.
            return self._page(request).go("/login", to=here if request.method == "GET" else "")
        return self._page(request, visitor)

    def _page(self, request: Request, visitor: Visitor = _OUTSIDER) -> DashboardPage:
        address = request.client
        client = (address.host, address.port) if address else None
        return DashboardPage(
            site=self._site,
            request=request,
            texts=Texts(language_for(request.headers.get("accept-language", ""))),
            visitor=visitor,
            clients={} if visitor is _OUTSIDER else self._clients(visitor, client),
            prefix=path_of_proxy(request, self._prefix_header),
        )

    def _clients(self, visitor: Visitor, client: tuple[str, int] | None) -> dict[str, ApiClient]:
        return {section.name: section.connect(visitor, client) for section in self._site.sections}

    async def _with_form(self, page: DashboardPage) -> DashboardPage:
        """Return a page with its form. A form with a file is left to the view."""
        request = page.request
        if request.method != "POST" or not request.headers.get("content-type", _FORM).lower().startswith(_FORM):
            return page
        text = (await request.body()).decode("utf-8", "replace")
        form = dict(parse_qsl(text, keep_blank_values=True))
        return msgspec.structs.replace(page, form=form)

    def _problem(self, page: DashboardPage, status: int, detail: str) -> Response:
        return page.render("problem.html", status=status, detail=detail, status_code=status)

    async def _show_login(self, request: Request) -> Response:
        return login.show(self._page(request))

    async def _log_in(self, request: Request) -> Response:
        page = self._page(request)
        if fault := foreign_page_fault(request.method, request.headers):
            return login.show(page, fault=fault, status_code=403)
        try:
            return await login.begin(await self._with_form(page), self._gate)
        except TooManyGuesses:
            return login.show(page, fault=page.texts("login.too_often"), status_code=429)

    async def _log_out(self, request: Request) -> Response:
        page = self._page(request)
        if fault := foreign_page_fault(request.method, request.headers):
            return self._problem(page, 403, fault)
        return await login.end(page, self._gate)

    async def _gate_away(self, request: Request, error: Exception) -> Response:
        page = self._page(request)
        log.warning("%s %s %s: %s", logs.REQUEST_BROKE, request.method, request.url.path, error)
        return self._problem(page, 503, page.texts("problem.no_gate"))

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        if request.url.path == ROOT:
            return self._page(request).go("/")
        page = await self._admitted(request)
        return page if isinstance(page, Response) else self._problem(page, 404, page.texts("problem.no_page"))

    async def _not_allowed(self, request: Request, error: Exception) -> Response:
        page = await self._admitted(request)
        if isinstance(page, Response):
            return page
        answer = self._problem(page, 405, page.texts("problem.only_forms"))
        answer.headers.update(getattr(error, "headers", None) or {})
        return answer
