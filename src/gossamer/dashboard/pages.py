"""A page that a browser asked for, with what views need to make it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from gossamer.dashboard import ROOT
from gossamer.dashboard.service import ServiceClient
from gossamer.dashboard.texts import Texts
from gossamer.web.html import Templates
from gossamer.web.static import StaticFiles


def _number(value: float) -> str:
    """Return a number with a thin space between thousands."""
    return f"{value:,.0f}".replace(",", "\u2009")


def _plain(value: object) -> object:
    """Return a number without the zeros of a fraction; other values as they are."""
    return f"{value:g}" if isinstance(value, float) else value


def _utc(epoch: float) -> str:
    """Return a time for browsers without scripts; others show it in the viewer's zone."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _with_code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else Markup.escape(part)
        for number, part in enumerate(text.split("`"))
    )


_TEMPLATES: Final = Templates(
    "gossamer.dashboard", filters={"number": _number, "plain": _plain, "utc": _utc, "with_code": _with_code}
)


class DashboardPage(msgspec.Struct, frozen=True):
    """Page of one request, with what its view needs."""

    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    service: ServiceClient
    texts: Texts
    static: StaticFiles
    has_login: bool
    request: Request

    @property
    def part(self) -> str:
        """Name of the only part that is asked for; empty: the whole page."""
        return self.query.get("part", "")

    def render(self, template: str, *, status_code: int = 200, **values: Any) -> Response:
        """Return a page. Where a part is asked for, the template `NAME_live.html` of `NAME.html` is rendered alone."""
        if self.part:
            template = template.replace(".html", "_live.html")
        content = _TEMPLATES.render(template, t=self.texts, page=self, asset=self.static.address, link=link, **values)
        return Response(content, status_code, media_type="text/html")

    def address(self, **changes: str) -> str:
        """Return the address of this page with other parameters. An empty value leaves a parameter out."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def go(self, path: str, **query: str) -> Response:
        """Return an answer that sends the browser to another page."""
        return RedirectResponse(link(path, **query), 303)


def link(path: str, **query: object) -> str:
    """Return the address of a page of the dashboard."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{ROOT}{path}?{urlencode(given)}" if given else f"{ROOT}{path}"
