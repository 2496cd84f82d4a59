"""Frame of the pages for people: head, style, navigation. Every page of Scrapyd's interface is put into it.

A page loads nothing from elsewhere and works without scripts. The style must not depend on attributes of rows and cells
which clients read with regular expressions (`pages.py` and `listing.py` name them).
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from gossamer.web.html import Templates
from gossamer_platform.lifecycle import ENDED, JobState
from gossamer_platform.scrapyd.config import ScrapydConfig

_TEMPLATES: Final = Templates(
    __package__,
    filters={
        "duration": lambda seconds: duration(seconds),
        "ended": lambda counts: sum(count for state, count in counts.items() if JobState(state) in ENDED),
        "in_zone": lambda at, zone: datetime.fromtimestamp(int(at), _zone(zone)),
        "quoted": lambda text: quote(text, safe=""),
        "quoted_path": quote,
        "shown": lambda value: "" if value is None else value,
        "with_query": lambda path, query, **more: f"{path}?{urlencode({**query, **more})}" if query or more else path,
    },
)


class SitePlace(NamedTuple):
    """A page in the navigation."""

    path: str
    name: str
    content: str


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
            SitePlace("/jobs", "Jobs", "jobs that wait or run, and those that ended last"),
            SitePlace("/history", "History", "all jobs, by project, spider and state"),
            SitePlace("/groups", "Groups", "jobs that one command has made, with their progress"),
            SitePlace("/schedules", "Schedules", "times at which jobs are made"),
            *([SitePlace("/nodes", "Nodes", "the machines that run the jobs")] if self.is_manager else []),
            *([SitePlace("/logs/", "Logs", "logs as files")] if config.logs_dir else []),
            *([SitePlace("/items/", "Items", "items as files")] if config.has_local_items else []),
        ]

    def page(self, template: str, title: str, *, here: str = "", **values: Any) -> str:
        """Return a whole page. `here`: path of the page in the navigation."""
        return _TEMPLATES.render(template, frame=self, title=title, here=here, states=tuple(JobState), **values)

    def problem(self, title: str, reason: str) -> str:
        """Return a page in place of one that cannot be shown."""
        return self.page("problem.html.j2", title, reason=reason)

    def address(self, path: str) -> str:
        """Return the address of a path of this server."""
        return f"{self.prefix}{path}"


def duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    return str(timedelta(seconds=max(0, int(seconds))))


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (OSError, ValueError, KeyError):  # it was removed from this machine
        return UTC
