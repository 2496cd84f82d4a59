"""Statements by which nodes get jobs.

Projects take turns: of those that have a pending job and may run another one, the one whose last turn is longest ago
starts one. So with P projects waiting each starts a job within P freed slots, whatever the others' priorities and
backlogs are. Within a project the highest priority goes first, then the oldest job.

A node names the attempts that it has. One that it was given and does not name was lost with an answer, and is given
again. This needs no memory of calls, and also finds what a call took that was carried out after its node had given up.

Every function runs in a transaction of its caller. Fixed: the order of turns, which is a promise; and that jobs are
given again only to the process that they were given to: another one may find them running in its folder.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, not_, or_, select, text, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch_first
from gossamer_platform.lifecycle import ACTIVE, JobEvent, JobState
from gossamer_platform.link import AttemptId
from gossamer_platform.state.changes import change_job
from gossamer_platform.state.jobs import LIVE, WITH_PROJECT, Job, active_jobs, job_rows
from gossamer_platform.state.nodes import Node, list_nodes
from gossamer_platform.state.policies import full_spiders
from gossamer_platform.state.projects import find_version
from gossamer_platform.state.tables import jobs, labels, projects

_DISPATCH_LOCK: Final = 7_310_946_111
"""Number of the lock under which jobs are given in PostgreSQL. Any number; the same in all versions of Gossamer."""

# Conditions are made once, because to make an alias of a table with so many columns takes milliseconds.
_busy, _before = jobs.alias("busy"), jobs.alias("before")
_running = select(func.count()).where(_busy.c.state.in_(ACTIVE), _busy.c.project_id == projects.c.id).scalar_subquery()
_MAY_RUN = or_(projects.c.max_running.is_(None), _running < projects.c.max_running)
"""Condition of projects that may run another job."""
_waits = select(_before.c.id).where(_before.c.id == jobs.c.after_job, _before.c.state.in_(LIVE)).exists()
_READY = and_(
    jobs.c.state == JobState.PENDING,
    or_(jobs.c.not_before.is_(None), jobs.c.not_before <= DatabaseNow()),
    or_(jobs.c.after_job.is_(None), not_(_waits)),
)
"""Condition of jobs that have waited for what they were told to wait for."""


class JobTaker(NamedTuple):
    """A node that is given jobs."""

    name: str
    incarnation: str
    """Random name of its process."""
    slots: int
    """Most jobs that it may have at a time."""
    labels: Sequence[str] = ()
    """Jobs that demand another label are left to other nodes."""
    is_draining: bool = False
    """True: it gets no new jobs."""


def has_pending(connection: Connection) -> bool:
    """Return whether any job waits."""
    return connection.execute(select(jobs.c.id).where(jobs.c.state == JobState.PENDING).limit(1)).first() is not None


def take_jobs(connection: Connection, node: JobTaker, *, free: int, has: Collection[AttemptId] = ()) -> list[Job]:
    """Give a node up to `free` jobs, which become `starting`, and return their rows, with `project`. The first ones are
    those that this process was given before and has not received. `has`: attempts that it names."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _DISPATCH_LOCK})
    active = active_jobs(connection, node.name)
    again = unreceived_jobs(active, node.incarnation, has)
    # By slots, too: an earlier call of the node may be carried out after a later one.
    free = 0 if node.is_draining else min(free - len(again), node.slots - len(active))
    return again + _take_pending(connection, node, free)


def unreceived_jobs(active: Sequence[Job], incarnation: str, has: Collection[AttemptId]) -> list[Job]:
    """Return those of a node's active jobs that its present process was given and has not received. `has`: attempts
    that it names."""
    given = (row for row in active if row.incarnation == incarnation and row.pid is None)
    return [row for row in given if AttemptId(row.id, row.attempt) not in has]


def _take_pending(connection: Connection, node: JobTaker, free: int) -> list[Job]:
    taken: list[int] = []
    while len(taken) < free and (not taken or has_pending(connection)):
        row = _next_job(connection, node.labels)
        if row is None:
            break
        version = find_version(connection, row.project, row.version_name)
        if version is None:
            reason = f"no_version: {row.version_name or 'the project has none'}"
            change_job(connection, row.id, JobEvent.BROKE, of_attempt=row.attempt, reason=reason)
            continue
        columns = {"attempt": row.attempt + 1, "node": node.name, "incarnation": node.incarnation, "pid": None}
        columns |= {"version_id": version.id, "ran_version": version.name, "has_files": True, "reason": ""}
        if change_job(connection, row.id, JobEvent.TAKEN, of_attempt=row.attempt, **columns):
            turn = select(func.max(projects.c.turn) + 1).scalar_subquery()
            connection.execute(update(projects).where(projects.c.id == row.project_id).values(turn=turn))
            taken.append(row.id)
    return job_rows(connection, jobs.c.id.in_(taken)) if taken else []


def _next_job(connection: Connection, offered: Sequence[str]) -> Job | None:
    due = _due(connection, offered)
    waiting = select(jobs.c.project_id).where(due, jobs.c.project_id == projects.c.id)
    urgent = WITH_PROJECT.where(due, jobs.c.is_urgent, _MAY_RUN).order_by(jobs.c.id).limit(1)
    if (row := fetch_first(connection, Job, urgent)) is not None:
        return row
    first = connection.execute(
        select(projects.c.id).where(waiting.exists(), _MAY_RUN).order_by(projects.c.turn, projects.c.id).limit(1)
    ).scalar()
    if first is None:
        return None
    of_project = WITH_PROJECT.where(jobs.c.project_id == first, due)
    return fetch_first(connection, Job, of_project.order_by(jobs.c.priority.desc(), jobs.c.id).limit(1))


def _due(connection: Connection, offered: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition of jobs that may start now, but for the limits of their projects."""
    fits = jobs.c.label.in_(["", *_free_labels(connection, offered)])
    full = full_spiders(connection)
    return and_(_READY, fits, *(not_(and_(jobs.c.project_id == one, jobs.c.spider == name)) for one, name in full))


def _free_labels(connection: Connection, offered: Sequence[str]) -> list[str]:
    """Return those of the labels of which another job may run."""
    if not offered:
        return []
    running = select(func.count()).where(jobs.c.state.in_(ACTIVE), jobs.c.label == labels.c.name).scalar_subquery()
    full = select(labels.c.name).where(labels.c.name.in_(offered), running >= labels.c.max_running)
    return [label for label in offered if label not in set(connection.scalars(full))]


def waits_for(connection: Connection, job: Job) -> str:
    """Return what a pending job waits for, for a person: the first cause in the order of the text below. `job`: its row
    with `project`. Nothing is stored: the answer may be another one a moment later."""
    before = select(_before.c.id).where(_before.c.id == job.after_job, _before.c.state.in_(LIVE))
    if job.after_job is not None and connection.execute(before).first() is not None:
        return f"the end of job {job.after_job}"
    pause = 0.0 if job.not_before is None else connection.execute(select(job.not_before - DatabaseNow())).scalar_one()
    if pause > 0:
        return f"its next attempt, in {pause:.0f} s"
    if find_version(connection, job.project, job.version_name) is None:
        wanted = "a ready version" if job.version_name is None else f"version {job.version_name}, which is not ready,"
        return f"{wanted} of {job.project}"
    counted = select(projects.c.max_running, _running.label("running")).where(projects.c.id == job.project_id)
    limit, running = connection.execute(counted).one()
    if limit is not None and running >= limit:
        return f"the limit of {job.project}: max_running is {limit}"
    if (job.project_id, job.spider) in full_spiders(connection):
        return f"the limit of {job.spider}: the spider's max_running is reached"
    if job.label and not _free_labels(connection, [job.label]):
        return f"the limit of the label {job.label}: its max_running is reached"
    return _node_wanted([node for node in list_nodes(connection) if node.lost_at is None], job.label)


def _node_wanted(online: Sequence[Node], label: str) -> str:
    """Return what a job waits for whose limits permit it to run. `online`: nodes that are not lost."""
    if not online:
        return "a node: none is online"
    fitting = [node for node in online if not label or label in node.labels]
    if not fitting:
        return f"a node with the label {label}: none is online"
    taking = [node for node in fitting if not node.is_draining]
    which = f" with the label {label}" if label else ""
    if not taking:
        return f"a node{which} that takes jobs: all are draining"
    if all(node.running >= node.slots for node in taking):
        return f"a free slot: the nodes{which} have {sum(node.slots for node in taking)}, all in use"
    return "its turn: a slot is free"
