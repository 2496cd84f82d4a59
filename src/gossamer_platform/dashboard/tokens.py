"""Tokens, each of whose secrets is shown once."""

from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.service import ApiRefused
from gossamer.net.loopback import is_loopback
from gossamer.web.access import own_origin
from gossamer_platform.dashboard.choices import project_choice
from gossamer_platform.dashboard.jobs import number_of, row_number
from gossamer_platform.dashboard.latest import latest

SCOPES: Final = ("read", "run", "deploy", "admin", "node")
_DAY: Final = 86400


async def show_list(page: DashboardPage, *, secret: str = "", fault: str = "", status_code: int = 200) -> Response:
    """Return a page of tokens, the latest first, with the form that makes one. `secret`: that of a new token, which no
    other page shows."""
    found, after = await latest(page, "/v1/tokens")
    projects = await project_choice(page)
    address = page.platform.dashboard or own_origin(page.request.headers) + page.link("/")
    return page.render(
        "tokens.html", tokens=found, after=after, projects=projects, scopes=SCOPES, secret=secret, fault=fault,
        address=address, is_local=is_loopback(urlsplit(address).hostname or ""), status_code=status_code,
    )  # fmt: skip


async def make(page: DashboardPage) -> Response:
    """Make a token, and show its secret: in the answer to the form, so that no address leads to it again."""
    form = page.form
    try:
        days = number_of(page, form, "days")
        token = {
            "name": form.get("name", "").strip(),
            "scope": form.get("scope", "read"),
            "project": form.get("project", ""),
            "valid_seconds": None if days is None else days * _DAY,
        }
        made = await page.platform.call("POST", "/v1/tokens", body=token)
    except ApiRefused as error:
        return await show_list(page, fault=page.detail(error), status_code=400)
    return await show_list(page, secret=made["token"])


async def revoke(page: DashboardPage) -> Response:
    """Revoke a token, and show those that are left."""
    await page.platform.call("DELETE", f"/v1/tokens/{row_number(page, page.form)}")
    return page.go("/tokens")
