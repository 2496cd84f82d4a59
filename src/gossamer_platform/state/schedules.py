"""Statements on schedules: add, change, list, and those that are due.

A firing is identified by the schedule and its instant before the jitter: it is the key of the job's request, which is
unique in the project, so two managers never fire twice. Fixed: the form of that key, and that a firing and the step to
the next instant are one transaction.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, delete, func, or_, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state.jobs import LIVE, NewJob, add_job, find_request
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.row_page import RowPage
from gossamer_platform.state.tables import ScheduleRow, crawl_firings, jobs, projects, schedules

_BATCH: Final = 100
"""Schedules that are fired in one transaction."""
_FORGET_SECONDS: Final = 30 * 86400.0
"""Age from which a schedule is deleted that has no further instant."""


class Schedule(ScheduleRow):
    """A schedule with the name of its project."""

    project: str


class DueSchedule(Schedule):
    """A schedule that is due."""

    now: float
    """Time of the database."""


def add_schedule(connection: Connection, project: str, name: str, columns: Mapping[str, Any]) -> int | None:
    """Add a schedule without an instant yet, and return its number. None: the project has one of this name."""
    number = project_id(connection, project)
    known = select(schedules.c.id).where(schedules.c.project_id == number, schedules.c.name == name)
    if connection.execute(known).first() is not None:
        return None
    values = {**columns, "project_id": number, "name": name, "created_at": DatabaseNow()}
    return add_row(connection, schedules, **values)


def change_schedule(connection: Connection, schedule_id: int, **columns: Any) -> None:
    """Change columns of a schedule."""
    connection.execute(update(schedules).where(schedules.c.id == schedule_id).values(**columns))


def delete_schedule(connection: Connection, schedule_id: int) -> bool:
    """Delete a schedule. Its jobs stay. Return False if there is none of this number."""
    connection.execute(select(schedules.c.id).where(schedules.c.id == schedule_id).with_for_update())  # it may fire
    connection.execute(delete(crawl_firings).where(crawl_firings.c.schedule_id == schedule_id))
    return bool(connection.execute(delete(schedules).where(schedules.c.id == schedule_id)).rowcount)


def pause_schedules(connection: Connection, project: str, *, reason: str, only_of_jobs: bool = False) -> list[str]:
    """Pause the schedules of a project that are not paused, and return their names. `reason`: shown with each.
    `only_of_jobs`: leave out those that submit crawl requests."""
    of_project = select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    active = [schedules.c.project_id == of_project, schedules.c.paused.is_(False)]
    active += [schedules.c.spider != ""] if only_of_jobs else []
    names = list(connection.scalars(select(schedules.c.name).where(*active).order_by(schedules.c.name)))
    connection.execute(update(schedules).where(*active).values(paused=True, last_result=f"paused: {reason}"))
    return names


def find_schedule(connection: Connection, schedule_id: int) -> Schedule | None:
    """Return a schedule. None: there is none of this number."""
    return fetch_first(connection, Schedule, _with_project().where(schedules.c.id == schedule_id))


def list_schedules(connection: Connection, project: str, page: RowPage) -> list[Schedule]:
    """Return a page of the schedules of one project, or of all if `project` is empty."""
    statement = _with_project().where(*([projects.c.name == project] if project else []))
    return fetch(connection, Schedule, page.of(statement, schedules.c.id))


def database_time(connection: Connection) -> float:
    """Return the time of the database."""
    return float(connection.execute(select(DatabaseNow())).scalar_one())


def seconds_to_next(connection: Connection) -> float | None:
    """Return the time until a schedule is due, which may be negative. None: none will be."""
    waiting = select(func.min(schedules.c.due_at) - DatabaseNow()).where(schedules.c.paused.is_(False))
    return connection.scalar(waiting)


def waiting_schedules(connection: Connection, now: float) -> list[Schedule]:
    """Return the schedules whose next instant is still to come, or that have ended at a time that is, and lock them
    until the end of the transaction. `now`: the time of the database."""
    is_waiting = or_(schedules.c.next_at > now, and_(schedules.c.next_at.is_(None), schedules.c.ended_at > now))
    statement = _with_project().where(schedules.c.paused.is_(False), is_waiting)
    return fetch(connection, Schedule, statement.order_by(schedules.c.id).with_for_update(of=schedules))


def due_schedules(connection: Connection) -> list[DueSchedule]:
    """Return schedules that are due, and lock them until the end of the transaction. Those that another manager has
    locked are left out."""
    statement = _with_project().add_columns(DatabaseNow().label("now"))
    due = statement.where(schedules.c.paused.is_(False), schedules.c.due_at <= DatabaseNow())
    due = due.order_by(schedules.c.due_at, schedules.c.id).limit(_BATCH)
    return fetch(connection, DueSchedule, due.with_for_update(of=schedules, skip_locked=True))


def fire(connection: Connection, schedule: Schedule, *, after_job: int | None = None) -> int:
    """Add the job of the schedule's present instant, and return its number. The instant's job is added once.

    `after_job`: number of a job that must have ended before it starts. None: none.
    """
    key = f"schedule:{schedule.id}:{schedule.next_at!r}"
    known = find_request(connection, schedule.project, key)
    if known is not None:
        return known.id
    name = f"{schedule.name}-{schedule.next_at:.3f}".removesuffix(".000")
    return add_job(connection, job_of(schedule, name=name, request_key=key)._replace(after_job=after_job))


def job_of(schedule: Schedule, *, name: str, request_key: str | None) -> NewJob:
    """Return a job of a schedule. `request_key`: see NewJob."""
    return NewJob(
        project=schedule.project,
        spider=schedule.spider,
        name=name,
        version=schedule.version_name,
        arguments=schedule.arguments,
        settings=schedule.settings,
        priority=schedule.priority,
        policy=JobPolicy(**schedule.policy),
        request_key=request_key,
        schedule_id=schedule.id,
    )


def live_jobs(connection: Connection, schedule_id: int) -> list[int]:
    """Return the numbers of the schedule's jobs that wait or run, the oldest first."""
    wanted = select(jobs.c.id).where(jobs.c.schedule_id == schedule_id, jobs.c.state.in_(LIVE))
    return list(connection.scalars(wanted.order_by(jobs.c.id)))


def forget_schedules(connection: Connection) -> None:
    """Delete schedules that have had no further instant for long."""
    old = schedules.c.next_at.is_(None), schedules.c.ended_at < DatabaseNow() - _FORGET_SECONDS
    for number in connection.scalars(select(schedules.c.id).where(*old)).all():
        delete_schedule(connection, number)


def _with_project() -> Select[Any]:
    return select(schedules, projects.c.name.label("project")).join(projects, projects.c.id == schedules.c.project_id)
