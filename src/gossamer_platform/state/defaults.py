"""Statements on the default version of a project: pin it, go back to the one before, see what uses a version.

The default is the version of jobs that name none: the pinned one, else the latest that is ready. Fixed: a pin is a
name, so a version that is deployed again under that name stays pinned.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, or_, select, update

from gossamer_platform.lifecycle import ACTIVE, JobState
from gossamer_platform.names import means_version
from gossamer_platform.state.projects import (
    ReadyVersion,
    project_id,
    project_row,
    ready_names,
    ready_versions,
)
from gossamer_platform.state.tables import Project, jobs, projects, schedules


class DefaultVersion(NamedTuple):
    """Default of a project."""

    name: str | None
    """None: no version is ready."""
    is_pinned: bool


class VersionUse(NamedTuple):
    """Things that use a version."""

    is_default: bool
    is_pinned: bool
    running: int
    """Jobs that run it."""
    pending: int
    """Jobs that wait to run it."""
    schedules: list[str]
    """Names of the schedules that name it."""

    def reasons(self) -> list[str]:
        """Return what uses the version, as parts of a sentence. Empty: nothing does."""
        default = "it is pinned as the default" if self.is_pinned else "it is the default"
        return [
            *([default] if self.is_default or self.is_pinned else []),
            *([f"{_jobs(self.running)} it"] if self.running else []),
            *([f"{self.pending} pending job{'s' if self.pending > 1 else ''} will run it"] if self.pending else []),
            *([f"the schedules {', '.join(self.schedules)} name it"] if self.schedules else []),
        ]


def _jobs(count: int) -> str:
    return "1 job runs" if count == 1 else f"{count} jobs run"


def default_of(connection: Connection, project: str) -> DefaultVersion:
    """Return the default of a project."""
    row = project_row(connection, project)
    return DefaultVersion(None, False) if row is None else defaults_of(connection, [row])[0]


def defaults_of(connection: Connection, rows: Sequence[Project]) -> list[DefaultVersion]:
    """Return the default of each of these projects."""
    names = ready_names(connection, [row.id for row in rows])
    found = []
    for row in rows:
        is_pinned = row.pinned_version in names[row.id]
        latest = names[row.id][-1] if names[row.id] else None
        found.append(DefaultVersion(row.pinned_version if is_pinned else latest, is_pinned))
    return found


def pin(connection: Connection, project: str, version: str | None) -> bool:
    """Make a version the default, None: the latest again. Return False if the project has no such version."""
    number = project_id(connection, project)  # locked: the version is not removed meanwhile
    if version is not None and version not in {each.name for each in ready_versions(connection, project)}:
        return False
    connection.execute(update(projects).where(projects.c.id == number).values(pinned_version=version))
    return True


def roll_back(connection: Connection, project: str) -> str | None:
    """Pin the version before the default, and return its name. None: there is none before it."""
    project_id(connection, project)
    names = [version.name for version in ready_versions(connection, project)]
    current = default_of(connection, project).name
    place = names.index(current) if current in names else 0
    if place == 0:
        return None
    pin(connection, project, names[place - 1])
    return names[place - 1]


def unpin(connection: Connection, project: str, version: str) -> None:
    """Forget the pin of a version that is being removed."""
    pinned = projects.c.pinned_version == version
    connection.execute(update(projects).where(projects.c.name == project, pinned).values(pinned_version=None))


def use_of(connection: Connection, project: str, version: ReadyVersion) -> VersionUse:
    """Return what uses a version."""
    default = default_of(connection, project)
    is_default = default.name == version.name
    in_project = jobs.c.project_id == select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    running = select(func.count()).where(jobs.c.version_id == version.id, jobs.c.state.in_(ACTIVE))
    counted = select(jobs.c.version_name, func.count().label("jobs")).where(
        in_project, jobs.c.state == JobState.PENDING
    )
    pending = sum(
        row.jobs
        for row in connection.execute(counted.group_by(jobs.c.version_name))
        if (is_default if row.version_name is None else means_version(row.version_name, version.name))
    )
    names = _schedules(connection, project, version)
    return VersionUse(is_default, is_default and default.is_pinned, connection.scalar(running) or 0, pending, names)


def _schedules(connection: Connection, project: str, version: ReadyVersion) -> list[str]:
    named: Any = select(schedules.c.name, schedules.c.version_name).join(
        projects, projects.c.id == schedules.c.project_id
    )
    alive = or_(schedules.c.ended_at.is_(None), schedules.c.next_at.is_not(None))
    rows = connection.execute(named.where(projects.c.name == project, schedules.c.version_name.is_not(None), alive))
    return sorted(row.name for row in rows if means_version(row.version_name, version.name))
