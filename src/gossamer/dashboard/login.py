"""Login: the API's token, entered once."""

import time

from starlette.responses import RedirectResponse, Response

from gossamer.dashboard import ROOT
from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.sessions import COOKIE, SESSION_SECONDS, Sessions
from gossamer.web.access import is_secret


def show(page: DashboardPage, *, fault: str = "", status_code: int = 200) -> Response:
    """Return the form."""
    return page.render("login.html", to=page.query.get("to", ""), fault=fault, status_code=status_code)


def begin(page: DashboardPage, sessions: Sessions, *, token: str, fault: str) -> Response:
    """Check the token, and begin a session. `fault`: a reason to refuse the request whatever its token is."""
    if fault or not is_secret(page.form.get("token", "").strip().encode(), token):
        return show(page, fault=fault or page.texts("login.wrong"), status_code=403)
    # Only a path of the dashboard: an address of another site would make this page an open redirect.
    to = page.query.get("to", "")
    response = RedirectResponse(ROOT + (to if to.startswith("/") else "/"), 303)
    response.set_cookie(
        COOKIE,
        sessions.begin(now=time.time()),
        max_age=SESSION_SECONDS,
        path=ROOT,
        secure=page.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def end(page: DashboardPage) -> Response:
    """Take the session from the browser."""
    response = page.go("/login")
    response.delete_cookie(COOKIE, path=ROOT)
    return response
