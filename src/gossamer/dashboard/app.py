"""The dashboard's application: who may use it, its pages, and what each page asks of the API.

A page below `/ui` is made from answers of the API. With the parameter `part`, an address returns only the part of the
page of this name, which a page that is visible asks for every two seconds.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.dashboard import ROOT, crawls, domains, login, overview, workers
from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused, ServiceClient
from gossamer.dashboard.sessions import COOKIE, Sessions
from gossamer.dashboard.texts import Texts, language_for
from gossamer.web.access import foreign_page_fault, local_fault
from gossamer.web.mounts import MountedApp, MountedApps
from gossamer.web.static import StaticFiles

_STATIC: Final = f"{ROOT}/static"


def with_dashboard(api: ASGIApp, *, token: str) -> ASGIApp:
    """Return an application that serves the API, and the dashboard below `/ui`. A browser that asks for `/` is sent to
    the dashboard. `token`: the API's; empty: only programs and browsers of this machine may use both."""
    static = StaticFiles(files("gossamer.dashboard") / "static", _STATIC)
    dashboard = _Dashboard(api, token=token, static=static)
    mounts = {_STATIC: MountedApp(static), ROOT: MountedApp(dashboard.app)}
    return MountedApps(_SendBrowsersOn(api), mounts)


class _SendBrowsersOn:
    """Sends a browser that asks for `/` to the dashboard. Programs, which do not ask for HTML, get the API's answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            accepted = Request(scope).headers.get("accept", "")
            if accepted.lower().startswith("text/html"):
                await RedirectResponse(f"{ROOT}/", 303)(scope, receive, send)
                return
        await self._app(scope, receive, send)


_View = Callable[[DashboardPage], Awaitable[Response]]

_VIEWS: Final[Mapping[str, tuple[str, _View]]] = {
    "/": ("GET", overview.show),
    "/crawls": ("GET", crawls.show_list),
    "/crawls/new": ("GET", crawls.show_form),
    "/crawls/preview": ("POST", crawls.preview),
    "/crawls/submit": ("POST", crawls.submit),
    "/crawl": ("GET", crawls.show),
    "/crawl/pages": ("GET", crawls.show_records),
    "/crawl/stop": ("POST", crawls.stop),
    "/domains": ("GET", domains.show_list),
    "/domain": ("GET", domains.show),
    "/domain/change": ("POST", domains.change),
    "/workers": ("GET", workers.show),
}


class _Dashboard:
    """Pages for one API."""

    def __init__(self, api: ASGIApp, *, token: str, static: StaticFiles) -> None:
        self._api = api
        self._token = token
        self._static = static
        self._sessions = Sessions(token)
        routes = [Route(path, self._endpoint(view), methods=[method]) for path, (method, view) in _VIEWS.items()]
        routes += [
            Route("/login", self._show_login, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
        ]
        self.app = Starlette(routes=routes, exception_handlers={404: self._not_found})

    def _endpoint(self, view: _View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            page = await self._page(request)
            if (refused := self._refusal(page)) is not None:
                return refused
            try:
                return await view(page)
            except ApiRefused as error:
                return page.render("problem.html", status=error.status, detail=error.detail, status_code=error.status)

        return endpoint

    async def _page(self, request: Request) -> DashboardPage:
        host, port = request.client or ("", 0)
        form: dict[str, str] = {}
        if request.method == "POST":
            form = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
        return DashboardPage(
            path=request.url.path,
            query=dict(request.query_params),
            form=form,
            service=ServiceClient(self._api, token=self._token, client=(host, port)),
            texts=Texts(language_for(request.headers.get("accept-language", ""))),
            static=self._static,
            has_login=bool(self._token),
            request=request,
        )

    def _refusal(self, page: DashboardPage) -> Response | None:
        """Return the answer to a client that may not use the page. None: it may."""
        headers = page.request.headers
        fault = foreign_page_fault(page.request.method, headers)
        if not fault and not self._token:
            fault = local_fault(headers)
        if fault:
            return page.render("problem.html", status=403, detail=fault, status_code=403)
        if self._token and not self._sessions.is_valid(page.request.cookies.get(COOKIE, ""), now=time.time()):
            address = page.request.url
            back = urlencode({"to": address.path.removeprefix(ROOT) + (f"?{address.query}" if address.query else "")})
            return RedirectResponse(f"{ROOT}/login?{back}", 303)
        return None

    async def _show_login(self, request: Request) -> Response:
        return login.show(await self._page(request))

    async def _log_in(self, request: Request) -> Response:
        page = await self._page(request)
        fault = foreign_page_fault(request.method, request.headers)
        return login.begin(page, self._sessions, token=self._token, fault=fault)

    async def _log_out(self, request: Request) -> Response:
        return login.end(await self._page(request))

    async def _not_found(self, request: Request, _error: Exception) -> Response:
        page = await self._page(request)
        if (refused := self._refusal(page)) is not None:
            return refused
        return page.render("problem.html", status=404, detail=page.texts("problem.no_page"), status_code=404)
