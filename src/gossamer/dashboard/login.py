"""Login: a token, entered once."""

from starlette.responses import RedirectResponse, Response

from gossamer.dashboard import ROOT
from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.sessions import SESSION_SECONDS
from gossamer.dashboard.visitors import Gate


def show(page: DashboardPage, *, fault: str = "", status_code: int = 200) -> Response:
    """Return the form."""
    return page.render("login.html", to=page.query.get("to", ""), fault=fault, status_code=status_code)


async def begin(page: DashboardPage, gate: Gate) -> Response:
    """Check the secret, and begin a session. A session that the browser has already is ended. Raises
    TooManyGuesses."""
    address = page.request.client
    cookie = await gate.begin(page.form.get("token", "").strip(), client=address.host if address else None)
    if cookie is None:
        return show(page, fault=page.texts("login.wrong"), status_code=403)
    await gate.end(page.request.cookies.get(gate.cookie, ""))
    # Only a path of the dashboard: an address of another site would make this page an open redirect.
    to = page.query.get("to", "")
    response = RedirectResponse(page.link("/") if not to.startswith("/") else page.prefix + ROOT + to, 303)
    response.set_cookie(
        gate.cookie,
        cookie,
        max_age=SESSION_SECONDS,
        path=page.prefix + ROOT,
        secure=page.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def end(page: DashboardPage, gate: Gate) -> Response:
    """End the session, and take its cookie from the browser."""
    await gate.end(page.request.cookies.get(gate.cookie, ""))
    response = page.go("/login")
    response.delete_cookie(gate.cookie, path=page.prefix + ROOT)
    return response
