"""A page that a browser asked for, with what views need to make it."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from gossamer.dashboard import ROOT
from gossamer.dashboard.sections import DashboardSection, NavigationEntry
from gossamer.dashboard.service import ApiClient, ApiRefused, ApiSilent, StreamedAnswer
from gossamer.dashboard.texts import Texts
from gossamer.dashboard.visitors import ADMIN, Visitor
from gossamer.platform_client.sizes import exact_size
from gossamer.web.html import Templates
from gossamer.web.static import StaticFiles

T = TypeVar("T")
D = TypeVar("D")


def _number(value: float) -> str:
    """Return a number with a thin space between thousands."""
    return f"{value:,.0f}".replace(",", "\u2009")


def _plain(value: object) -> object:
    """Return a number without the zeros of a fraction; other values as they are. Forms send it back: it is not
    rounded."""
    return f"{value:.15g}" if isinstance(value, float) else value


def _utc(epoch: float) -> str:
    """Return a time for browsers without scripts; others show it in the viewer's zone."""
    try:
        return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # what another program calls a time may be any number
        return str(epoch)


def _duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    left = max(0, int(seconds))
    parts = [(left // 86400, "d"), (left // 3600 % 24, "h"), (left // 60 % 60, "min"), (left % 60, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count}\u202f{unit}" for count, unit in parts[first : first + 2] if count or first == 3)


def _iso_utc(text: str) -> str:
    """Return a time in ISO 8601, UTC, for browsers without scripts."""
    return f"{text[:19].replace('T', ' ')} UTC"


def _until(start: str | None, end: str | None) -> str:
    """Return the time between two times in ISO 8601. An end of None is now; a start of None: there is none."""
    if not start:
        return "–"
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return _duration((until - datetime.fromisoformat(start)).total_seconds())


def _whole(value: object) -> object:
    """Return a count with a thin space between thousands; anything else that a program calls a count as it is."""
    return _number(value) if isinstance(value, int | float) and abs(value) < 1e15 else value


def _size(count: float, texts: Texts) -> str:
    """Return a number of bytes in a unit that keeps it short."""
    unit, value = next(
        ((unit, count / size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= size), ("B", count)
    )
    return f"{texts.decimal(value)}\u202f{unit}" if value < 10 and unit != "B" else f"{value:.0f}\u202f{unit}"


def _last_line(text: str) -> str:
    """Return the last line of a text, which of a traceback is the error."""
    return text.strip().rpartition("\n")[2]


def _named_time(name: str) -> int | None:
    """Return the time for which scrapyd-client named a version, in epoch seconds. None: it has another name."""
    return int(name) if len(name) == 10 and name.isascii() and name.isdigit() else None


def _with_code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else Markup.escape(part)
        for number, part in enumerate(text.split("`"))
    )


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "duration": _duration,
    "exact_size": exact_size,
    "iso_utc": _iso_utc,
    "last_line": _last_line,
    "named_time": _named_time,
    "number": _number,
    "plain": _plain,
    "size": _size,
    "until": _until,
    "utc": _utc,
    "whole": _whole,
    "with_code": _with_code,
}
"""Functions for texts, by their names in templates."""


_AUDIT: Final = NavigationEntry("/audit", "nav.audit", ADMIN, is_for_all=True)


class DashboardSite(msgspec.Struct, frozen=True):
    """Parts that all pages of a dashboard share."""

    sections: Sequence[DashboardSection]
    static: StaticFiles
    templates: Templates

    @property
    def names(self) -> frozenset[str]:
        """Names of the sections."""
        return frozenset(section.name for section in self.sections)


class DashboardPage(msgspec.Struct, frozen=True):
    """Page of one request, with what its view needs."""

    site: DashboardSite
    request: Request
    texts: Texts
    visitor: Visitor
    clients: Mapping[str, ApiClient]
    """Clients of the sections' APIs, by the names of the sections."""
    prefix: str = ""
    """Path below which a proxy serves the dashboard."""
    form: Mapping[str, str] = {}
    faults: list[str] = []
    """Reasons for which parts of the page are missing."""

    @property
    def query(self) -> Mapping[str, str]:
        """Parameters of the address."""
        return self.request.query_params

    @property
    def path(self) -> str:
        """Path of the page, as the browser knows it."""
        return self.prefix + self.request.url.path

    @property
    def service(self) -> ApiClient:
        """Client of the crawl service."""
        return self.clients["crawls"]

    @property
    def platform(self) -> ApiClient:
        """Client of the platform."""
        return self.clients["platform"]

    @property
    def part(self) -> str:
        """Name of the only part that is asked for; empty: the whole page."""
        return self.query.get("part", "")

    async def known(self, call: Awaitable[T], default: D) -> T | D:
        """Return the answer to a call. If the API, or what it asks, is away, return `default`, and note why.

        Raises ApiRefused for other errors."""
        try:
            return await call
        except ApiRefused as error:
            if error.status < 500:
                raise
            self.faults.append(self.detail(error))
            return default

    def detail(self, error: ApiRefused) -> str:
        """Return why a call failed, for people."""
        if isinstance(error, ApiSilent):
            return self.texts("problem.no_answer", seconds=f"{error.seconds:g}")
        return self.texts.fault(error.detail, error.kind) if error.kind else error.detail

    def field_faults(self, error: ApiRefused | None) -> dict[str, str]:
        """Return why a form was refused, for people, by the names of its fields; an empty name: the whole form. With an
        error of None, there is nothing."""
        if error is None:
            return {}
        errors = [each for each in error.errors if each[0]]
        if not errors:
            name, _, reason = error.detail.partition(": ")
            errors = [(name, reason)] if reason and name in self.form else []
        found: dict[str, str] = {}
        for path, reason in errors:
            name, _, inner = path.partition(".")
            told = self.texts.fault(reason, error.kind) if error.kind else reason
            if name not in self.form:
                name, told = "", f"{path}: {told}"
            elif reason.startswith("is missing"):
                told = self.texts("form.missing")
            elif inner:
                told = f"{inner}: {told}"
            found[name] = f"{found[name]}; {told}" if name in found else told
        return found or {"": self.detail(error)}

    def may(self, scope: str) -> bool:
        """Return whether the visitor has a scope."""
        return self.visitor.may(scope)

    def navigation(self) -> Iterator[NavigationEntry]:
        """Yield the links at the top that the visitor may follow."""
        if not self.visitor.may("read"):
            return
        yield NavigationEntry("/", "nav.overview")
        of_sections = [entry for section in self.site.sections for entry in section.navigation]
        for entry in (*of_sections, _AUDIT):
            if self.visitor.may(entry.scope) and not (entry.is_for_all and self.visitor.project):
                yield entry

    def render(self, template: str, *, status_code: int = 200, **values: Any) -> Response:
        """Return a page. Where a part is asked for, the template `NAME_live.html` of `NAME.html` is rendered alone.
        Whatever an address asks for, a page without parts is rendered whole, and a part without a page alone."""
        live = template.replace(".html", "_live.html")
        names = (live, template) if self.part else (template, live)
        content = self.site.templates.render(
            *names, t=self.texts, page=self, asset=self.asset, link=self.link, may=self.may, **values
        )
        # A job may report text that is no Unicode.
        return Response(content.encode(errors="replace"), status_code, media_type="text/html; charset=utf-8")

    def link(self, path: str, **query: object) -> str:
        """Return the address of a page of the dashboard."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.prefix}{ROOT}{path}" + (f"?{urlencode(given)}" if given else "")

    def asset(self, name: str) -> str:
        """Return the address of a file of the pages."""
        return self.prefix + self.site.static.address(name)

    def address(self, **changes: str) -> str:
        """Return the address of this page with other parameters. An empty value leaves a parameter out."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def came_from(self) -> str:
        """Return the address of the dashboard's page whose form was sent; the overview's if it is not known."""
        parts = urlsplit(self.request.headers.get("referer", ""))
        is_own = parts.netloc == self.request.headers.get("host") and parts.path.startswith(self.link("/"))
        return parts.path + (f"?{parts.query}" if parts.query else "") if is_own else self.link("/")

    def go(self, path: str, **query: str) -> Response:
        """Return an answer that sends the browser to another page."""
        return RedirectResponse(self.link(path, **query), 303)

    def pass_on(self, answer: StreamedAnswer, *names: str) -> Response:
        """Return an answer of an API as it is, with these of its headers."""
        kept = ("content-type", "content-disposition", "content-length", *names)
        headers = {name: answer.headers[name] for name in kept if name in answer.headers}
        return StreamingResponse(answer.parts, headers=headers)
