"""Choices of a form: projects, spiders and versions. Each has so many entries at most that a person finds one; of more
there are the latest or first ones, and a field into which any may be written."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gossamer.dashboard.pages import DashboardPage

_MOST: Final = 100


class Choice(NamedTuple):
    """Entries that a field of a form offers."""

    names: Sequence[str]
    has_more: bool
    """True: there are more, and the field takes those, too."""


def _choice(names: Sequence[str]) -> Choice:
    return Choice(names[:_MOST], len(names) > _MOST)


async def project_choice(page: DashboardPage) -> Choice:
    """Return the projects that the visitor may see, the latest first."""
    return _choice(await page.platform.get("/v1/project-names", limit=_MOST + 1, latest_first=True))


async def spider_choice(page: DashboardPage, project: str) -> Choice:
    """Return the spiders of a project; none without a project."""
    return _choice(await page.platform.get("/v1/spiders", project=project, limit=_MOST + 1) if project else [])


async def version_choice(page: DashboardPage, project: str) -> Choice:
    """Return the versions of a project that jobs can run, the latest first; none without a project."""
    query: dict[str, Any] = {"project": project, "state": "ready", "limit": _MOST + 1, "latest_first": True}
    found = await page.platform.get("/v1/versions", **query) if project else []
    return _choice([each["name"] for each in found if each["name"]])
