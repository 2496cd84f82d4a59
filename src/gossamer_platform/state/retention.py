"""Statements on the retention of jobs and their files: which ended jobs are too old, or too many, for their project.

A project has limits of age and of count for logs, for items and for jobs; the count is of each spider. Null means the
manager's default, 0 for ever. A job group counts as one job, as old as its part that ended last. Every function runs in
a transaction of its caller. Fixed: only jobs that have ended are ever found, those of a group only when all have; and
their age is the time since the end of the last attempt.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Subquery, and_, case, delete, func, or_, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch
from gossamer_platform.lifecycle import ENDED
from gossamer_platform.state.jobs import LIVE, WITH_PROJECT, Job
from gossamer_platform.state.tables import jobs, projects

_DAY_SECONDS = 86400.0


class KeptKind(StrEnum):
    """Things that are kept for a time."""

    LOGS = "logs"
    ITEMS = "items"
    JOBS = "jobs"


class KeepLimits(NamedTuple):
    """Limits of what is kept. 0: for ever."""

    days: float = 0.0
    """Days after the end of a job."""
    jobs: int = 0
    """Jobs of a spider, the latest ones."""


class RetentionPolicy(NamedTuple):
    """Limits for projects that have none of their own."""

    logs: KeepLimits = KeepLimits()
    items: KeepLimits = KeepLimits()
    jobs: KeepLimits = KeepLimits()


_COLUMNS = {
    KeptKind.LOGS: (projects.c.keep_logs_days, projects.c.keep_logs_jobs),
    KeptKind.ITEMS: (projects.c.keep_items_days, projects.c.keep_items_jobs),
    KeptKind.JOBS: (projects.c.keep_jobs_days, projects.c.keep_jobs),
}
_PRESENT = {
    KeptKind.LOGS: and_(jobs.c.has_files, jobs.c.log_deleted.is_(False)),
    KeptKind.ITEMS: and_(jobs.c.has_files, jobs.c.items_deleted.is_(False)),
    KeptKind.JOBS: jobs.c.id.is_not(None),
}


def outdated_jobs(connection: Connection, kind: KeptKind, default: KeepLimits, *, limit: int) -> list[Job]:
    """Return up to `limit` jobs whose logs, items or rows are to be deleted."""
    days_column, count_column = _COLUMNS[kind]
    days, count = func.coalesce(days_column, default.days), func.coalesce(count_column, default.jobs)
    limited = select(projects.c.id).where(or_(days > 0, count > 0))
    # Jobs without files count, too: the latest five are the latest five.
    ranked = _ranked(jobs.c.project_id.in_(limited))
    too_old = and_(days > 0, ranked.c.unit_ended_at < DatabaseNow() - days * _DAY_SECONDS)
    too_many = and_(count > 0, ranked.c.newness > count)
    outdated = WITH_PROJECT.join(ranked, ranked.c.id == jobs.c.id).where(_PRESENT[kind], or_(too_old, too_many))
    return fetch(connection, Job, outdated.order_by(jobs.c.id).limit(limit))


def files_beyond(connection: Connection, kind: KeptKind, project: str, spider: str, *, keep: int) -> list[Job]:
    """Return the ended jobs of a spider that have logs or items, except the `keep` latest; a group is
    one of these.

    A project with limits of its own for this kind has none: `outdated_jobs` applies its limits.
    """
    owner = select(projects.c.id).where(projects.c.name == project, *(column.is_(None) for column in _COLUMNS[kind]))
    ranked = _ranked(jobs.c.project_id.in_(owner), jobs.c.spider == spider, _PRESENT[kind])
    beyond = WITH_PROJECT.join(ranked, ranked.c.id == jobs.c.id).where(ranked.c.newness > keep)
    return fetch(connection, Job, beyond.order_by(jobs.c.ended_at.desc(), jobs.c.id.desc()))


def _ranked(*conditions: ColumnElement[bool]) -> Subquery:
    """Return `id`, `unit_ended_at` and `newness` of the ended jobs that meet these conditions. A unit is a job, or a
    group whose jobs have all ended; `newness` is 1 for the latest unit of a spider."""
    unit = (jobs.c.project_id, jobs.c.spider, case((jobs.c.group_id.is_(None), jobs.c.id), else_=-jobs.c.group_id))
    ended_at, last = (func.max(column).over(partition_by=unit) for column in (jobs.c.ended_at, jobs.c.id))
    other = jobs.alias("other")
    goes_on = select(other.c.id).where(other.c.group_id == jobs.c.group_id, other.c.state.in_(LIVE)).exists()
    columns = (jobs.c.id, jobs.c.project_id, jobs.c.spider, ended_at.label("unit_ended_at"), last.label("last"))
    ended = (jobs.c.ended_at.is_not(None), jobs.c.state.in_(ENDED), or_(jobs.c.group_id.is_(None), ~goes_on))
    units = select(*columns).where(*conditions, *ended).subquery()
    newness = func.dense_rank().over(
        partition_by=(units.c.project_id, units.c.spider), order_by=(units.c.unit_ended_at.desc(), units.c.last.desc())
    )
    return select(units.c.id, units.c.unit_ended_at, newness.label("newness")).subquery()


def record_deleted(connection: Connection, kind: KeptKind, job_ids: Sequence[int]) -> None:
    """Record that the logs or the items of jobs are deleted; or delete the jobs, whose files are deleted."""
    if kind is KeptKind.JOBS:
        gone = and_(jobs.c.id.in_(job_ids), jobs.c.ended_at.is_not(None), jobs.c.state.in_(ENDED))
        connection.execute(delete(jobs).where(gone))
        return
    mine, other = ("log_deleted", "items_deleted") if kind is KeptKind.LOGS else ("items_deleted", "log_deleted")
    left = case((jobs.c[other], False), else_=jobs.c.has_files)
    connection.execute(update(jobs).where(jobs.c.id.in_(job_ids)).values({mine: True, "has_files": left}))
