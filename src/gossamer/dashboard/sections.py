"""Sections of the dashboard: pages about one API, which are registered together.

The crawl service's section is here (`crawl_section.py`); the platform registers its own from its side.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from starlette.responses import Response

from gossamer.dashboard.service import ApiClient
from gossamer.dashboard.visitors import READ, Visitor
from gossamer.errors import BadInput
from gossamer.extras import install_advice

if TYPE_CHECKING:
    from gossamer.dashboard.pages import DashboardPage

_PLATFORM: Final = "gossamer_platform.dashboard.section"
"""Module whose function `remote_section` returns the platform's section. By name: the crawler does not import it."""

View = Callable[["DashboardPage"], Awaitable[Response]]
"""Makes the answer for a page."""
Connect = Callable[[Visitor, tuple[str, int] | None], ApiClient]
"""Returns the client of an API for a visitor, who has this address and port."""


class PageRoute(NamedTuple):
    """A page, or a change that a form of a page sends."""

    method: str
    view: View
    scope: str = READ
    """Permission that a visitor needs."""
    longest_body: int = 0
    """Longest body of a form with a file. 0: as of other forms. Otherwise the view reads the body itself."""


class NavigationEntry(NamedTuple):
    """A link at the top of each page."""

    path: str
    text: str
    """Key of its text."""
    scope: str = READ
    """Permission without which the link is not shown."""
    is_for_all: bool = False
    """True: it is not shown to visitors of a single project."""


class OverviewPart(NamedTuple):
    """Contribution of a section to the overview."""

    attention: str
    """Template of what needs attention: a list entry for each, or nothing."""
    template: str
    """Template of the rest."""
    values: Callable[["DashboardPage"], Awaitable[Mapping[str, Any]]]
    """Returns the values of both templates."""


class SubjectLink(NamedTuple):
    """Page about what a change was about."""

    path: str
    query: Mapping[str, str] = {}


class DashboardSection(NamedTuple):
    """Pages about one API."""

    name: str
    """Name by which views find the API's client: `crawls` or `platform`."""
    connect: Connect
    routes: Mapping[str, PageRoute]
    """By path below the dashboard's. Its method is a part of the route, so a path has one."""
    navigation: tuple[NavigationEntry, ...]
    overview: OverviewPart
    subject_link: Callable[[str, str], SubjectLink | None]
    """Returns the page for the action and the subject of a change in the audit. None: there is none."""
    package: str
    """Package whose folder `templates` has the pages."""
    is_for_all: bool = False
    """True: no visitor of a single project may see it."""


def platform_pages(url: str, token: str) -> DashboardSection:
    """Return the section about a platform in another process, at this address. Raises BadInput if it cannot be used."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput("service.platform: this is no address such as http://localhost:6800")
    try:
        module = importlib.import_module(_PLATFORM)
    except ModuleNotFoundError as error:
        raise BadInput(f"service.platform needs {error.name}: {install_advice('platform')}") from None
    return cast("DashboardSection", module.remote_section(url, token))
