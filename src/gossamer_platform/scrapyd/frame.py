"""Frame of Scrapyd's pages: head, style, navigation. Every page of Scrapyd's interface is put into it.

A page has no script, and its style is the dashboard's. The style must not depend on attributes of rows and cells which
clients read with regular expressions (`pages.py` and `listing.py` name them).
"""

from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from gossamer.dashboard import ROOT
from gossamer.web.html import Templates
from gossamer.web.static import StaticFiles
from gossamer_platform.scrapyd.config import ScrapydConfig

_TEMPLATES: Final = Templates(__package__)


class SitePlace(NamedTuple):
    """A page in the navigation."""

    path: str
    name: str


class PageFrame(NamedTuple):
    """Frame of all pages of one server. `prefix`: path below which a proxy serves it."""

    config: ScrapydConfig
    prefix: str
    host: str = ""
    """Name and port by which the client knows this server."""
    is_manager: bool = False
    """True: nodes on other machines run the jobs."""

    @property
    def server(self) -> str:
        """Address of this server for commands."""
        return f"http://{self.host}{self.prefix}"

    def places(self) -> list[SitePlace]:
        """Return the pages in the navigation."""
        config = self.config
        return [
            SitePlace(f"{ROOT}/", "Dashboard"),
            SitePlace("/jobs", "Jobs"),
            *([SitePlace("/logs/", "Logs")] if config.logs_dir else []),
            *([SitePlace("/items/", "Items")] if config.has_local_items else []),
        ]

    def page(self, template: str, title: str, *, here: str = "", **values: Any) -> str:
        """Return a whole page. `here`: path of the page in the navigation."""
        return _TEMPLATES.render(template, frame=self, title=title, here=here, style=_style(), **values)

    def problem(self, title: str, reason: str) -> str:
        """Return a page in place of one that cannot be shown."""
        return self.page("problem.html.j2", title, reason=reason)

    def address(self, path: str) -> str:
        """Return the address of a path of this server."""
        return f"{self.prefix}{path}"


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    return str(timedelta(seconds=max(0, int(seconds))))


@cache
def _style() -> str:
    """Return the path of the dashboard's style sheet."""
    return StaticFiles(files("gossamer.dashboard") / "static", f"{ROOT}/static").address("dashboard.css")
