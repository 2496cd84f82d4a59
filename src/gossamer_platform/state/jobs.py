"""Statements on jobs: request, report, stop, list. `dispatch.py` has those by which nodes get them.

Every function runs in a transaction of its caller (`write` or `read` of `StateDatabase`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first
from gossamer_platform.lifecycle import ACTIVE, ENDED, JobEvent, JobState
from gossamer_platform.link import JobInput
from gossamer_platform.names import check_file_name
from gossamer_platform.outcome import GOOD_FINISH_REASONS, WRONG_USAGE, AttemptEnd, Expectation, failure_of
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state.changes import change_job
from gossamer_platform.state.policies import policy_of, spider_policy
from gossamer_platform.state.projects import locked_project, project_id
from gossamer_platform.state.spiders import next_job_number
from gossamer_platform.state.tables import JobRow, imports, jobs, projects
from gossamer_platform.state.tags import change_tags, tagged

LIVE = (JobState.PENDING, *sorted(ACTIVE))
"""States of jobs that wait or run."""
WITH_PROJECT = select(jobs, projects.c.name.label("project")).join(projects, projects.c.id == jobs.c.project_id)
"""Jobs with their `project`. Made once: to make a statement of so many columns takes longer than to run it."""
_LONGEST_RETRY_SECONDS = 3600.0
"""Longest pause before a retry."""
_RETURN_SECONDS = 30.0
"""Pause before a job is taken again that a node could not start."""
_NO_NODE = {"node": "", "incarnation": ""}
"""Columns of a job that no node has."""
_NAMES_AT_ONCE = 500
"""Names in one query of `find_taken`. SQLite takes at most 32,766."""
_REMEMBERED_SECONDS = 86400.0
"""Time after its end for which a job is kept in any case. Idempotency keys hold for as long."""
_ATTEMPT_FILE = re.compile(r"\.attempt-\d+$")
"""End of the name of a further attempt's file, which no job may have of its own."""


class Job(JobRow):
    """A job with the name of its project."""

    project: str


class NewJob(NamedTuple):
    """A job as it is requested."""

    project: str
    spider: str
    name: str
    """Scrapyd's job id. Several jobs may have the same."""
    version: str | None = None
    """None: the default of the time when the job starts."""
    arguments: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    priority: float = 0.0
    label: str | None = None
    """Label that a node must have to run the job. Empty: none; None: the project's."""
    policy: JobPolicy = JobPolicy()
    request_key: str | None = None
    """Key that the client chose for its request: a second request with the same key adds nothing. None: none."""
    schedule_id: int | None = None
    """Number of the schedule that makes the job. None: a client does."""
    group_id: int | None = None
    """Number of the group that the job belongs to. None: none."""
    shares_frontier: bool = False
    """True: the job takes its requests from the frontier (the queue of a crawl) that all jobs of its group share."""
    input: JobInput = JobInput()
    is_urgent: bool = False
    """True: the job goes before all others, of all projects."""
    after_job: int | None = None
    """Number of a job that must have ended before this one starts. None: none."""
    tags: Sequence[str] = ()
    notes: Mapping[str, Any] | None = None
    """Values that the client attaches to the job; nothing depends on them. None: none."""


class StoppedJob(NamedTuple):
    """Job that was asked to stop."""

    id: int
    attempt: int
    node: str
    was_pending: bool
    stops: int
    """Number of stops that were asked for, this one included."""


def add_job(connection: Connection, job: NewJob, *, has_files: Callable[[str], bool] = lambda _: False) -> int:
    """Add a pending job and return its number. `has_files`: whether another program's files have a name already."""
    common = locked_project(connection, job.project)
    project = common.id
    of_spider = spider_policy(connection, project, job.spider)
    policy = {**policy_of(common).given(), **of_spider.given(), **job.policy.given()}
    number = add_row(
        connection,
        jobs,
        project_id=project,
        spider=job.spider,
        name=job.name,
        request_key=job.request_key,
        schedule_id=job.schedule_id,
        group_id=job.group_id,
        shares_frontier=job.shares_frontier,
        input_digest=job.input.digest,
        input_name=job.input.name,
        input_use=job.input.use,
        spider_job=next_job_number(connection, project, job.spider),
        notes=dict(job.notes) if job.notes else None,
        file_name=_free_file_name(connection, project, job, has_files),
        version_name=job.version,
        arguments=dict(job.arguments),
        settings=dict(job.settings),
        priority=job.priority,
        label=common.label if job.label is None else job.label,
        is_urgent=job.is_urgent,
        after_job=job.after_job,
        retries_left=policy.pop("retries"),
        **policy,
        earlier_attempts=[],
        state=JobState.PENDING.value,
        created_at=DatabaseNow(),
    )
    change_tags(connection, [number], add=job.tags)
    return number


def add_ended_job(connection: Connection, job: NewJob, *, started_at: float, ended_at: float) -> None:
    """Add a job that another program has run, and of whose end it knows nothing but the time."""
    project = project_id(connection, job.project)
    add_row(
        connection,
        jobs,
        project_id=project,
        spider=job.spider,
        name=job.name,
        spider_job=next_job_number(connection, project, job.spider),
        file_name=_free_file_name(connection, project, job, lambda _: False),  # the files are this job's own
        arguments={},
        settings={},
        priority=0.0,
        state=JobState.FINISHED.value,
        reason="imported",
        has_files=True,
        earlier_attempts=[],
        attempt=1,
        created_at=started_at,
        started_at=started_at,
        ended_at=ended_at,
    )


def was_imported(connection: Connection, source: str) -> bool:
    """Return whether something was taken over from another program's database, and remember that it is now."""
    if connection.execute(select(imports).where(imports.c.source == source)).first() is not None:
        return True
    connection.execute(insert(imports).values(source=source))
    return False


def forget_import(connection: Connection, source: str) -> None:
    """Forget what `was_imported` remembers, because the other program's database has it no more."""
    connection.execute(delete(imports).where(imports.c.source == source))


def _free_file_name(connection: Connection, project: int, job: NewJob, has_files: Callable[[str], bool]) -> str:
    """Return the job's name; if an earlier job or a file has it, with a number behind it. Raises UnsafeName."""
    check_file_name(job.spider, f"{job.project}/{job.spider}/{job.name}.log")
    check_file_name(job.name, f"{job.project}/{job.spider}/{job.name}.log")
    of_spider = and_(jobs.c.project_id == project, jobs.c.spider == job.spider)
    alike = select(func.count()).select_from(jobs).where(of_spider, jobs.c.name == job.name).scalar_subquery()
    taken = select(jobs.c.id).where(of_spider, jobs.c.file_name == job.name).exists()
    same, is_taken = connection.execute(select(alike, taken)).one()
    name = job.name if same == 0 else f"{job.name}~{same + 1}"

    def is_free() -> bool:
        in_table = is_taken if name == job.name else _has_file(connection, of_spider, name)
        return not (_ATTEMPT_FILE.search(name) or in_table or has_files(name))

    while not is_free():
        same += 1
        name = f"{job.name}~{same + 1}"
    return name


def _has_file(connection: Connection, of_spider: ColumnElement[bool], name: str) -> bool:
    return connection.execute(select(jobs.c.id).where(of_spider, jobs.c.file_name == name)).first() is not None


def job_rows(connection: Connection, *conditions: Any) -> list[Job]:
    """Return the jobs that meet the conditions, with `project`, the oldest first."""
    return fetch(connection, Job, WITH_PROJECT.where(*conditions).order_by(jobs.c.id))


def record_start(connection: Connection, job_id: int, attempt: int, *, pid: int) -> JobState | None:
    """Record that the process runs. Return the job's state; None: the attempt has ended, or is not the last one."""
    return change_job(connection, job_id, JobEvent.STARTED, of_attempt=attempt, pid=pid, started_at=DatabaseNow())


def record_return(connection: Connection, job_id: int, attempt: int, *, reason: str = "") -> JobState | None:
    """Put a job back whose process was never started. `reason`: what is amiss on the node; then the job waits before it
    is taken again, by whatever node."""
    lock_job(connection, job_id)
    pause: dict[str, Any] = {"not_before": DatabaseNow() + _RETURN_SECONDS, "reason": reason} if reason else {}
    state = change_job(connection, job_id, JobEvent.RETURNED, of_attempt=attempt, **_NO_NODE, **pause)
    return state or change_job(connection, job_id, JobEvent.GONE, of_attempt=attempt)


def record_end(connection: Connection, job_id: int, attempt: int, end: AttemptEnd) -> JobState | None:
    """Record the end of an attempt. Return the job's state; None: the end is known already.

    A job that was asked to stop is cancelled, however its process ended. One that failed and has a retry left is
    pending again after a pause, unless its settings or arguments were wrong.
    """
    row = lock_job(connection, job_id)
    if row is None:
        return None
    now = connection.execute(select(DatabaseNow())).scalar_one()
    # Never before its start: the database's clock may have been set back, and a node may report anything.
    ended_at = max(now - max(0.0, end.ago_seconds), row.created_at, row.started_at or 0.0)
    traces = {
        "ended_at": ended_at,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "finish_reason": end.finish_reason,
        "stats": dict(end.stats) or row.stats,
    }
    failure = failure_of(end, expectation_of(row))
    if (state := change_job(connection, job_id, JobEvent.GONE, of_attempt=attempt, **traces)) is not None:
        return state
    if failure and row.retries_left > 0 and end.exit_code != WRONG_USAGE:
        return change_job(connection, job_id, JobEvent.RETRIED, of_attempt=attempt, **_retry(row, failure, ended_at))
    event = JobEvent.BROKE if failure else JobEvent.SUCCEEDED
    return change_job(connection, job_id, event, of_attempt=attempt, reason=failure, **traces)


def expectation_of(job: JobRow) -> Expectation:
    """Return what an attempt of a job must show to count as a success."""
    good = GOOD_FINISH_REASONS if job.good_reasons is None else job.good_reasons
    return Expectation(good, job.min_items, job.max_errors)


def jobs_of_node(connection: Connection, node: str, job_ids: Sequence[int]) -> set[int]:
    """Return those of the jobs whose last attempt is or was the node's."""
    return set(connection.scalars(select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.node == node)))


def record_stats(connection: Connection, job_id: int, attempt: int, stats: Mapping[str, Any]) -> None:
    """Keep Scrapy's counters of an attempt that runs. Nothing happens if it is not the job's last, or has ended."""
    wanted = (jobs.c.id == job_id, jobs.c.attempt == attempt, jobs.c.state.in_(ACTIVE))
    connection.execute(update(jobs).where(*wanted).values(stats=dict(stats)))


def _overdue() -> ColumnElement[bool]:
    waits_since = func.coalesce(jobs.c.not_before, jobs.c.created_at)
    is_over = waits_since + jobs.c.pending_limit <= DatabaseNow()
    return and_(jobs.c.state == JobState.PENDING, jobs.c.pending_limit > 0, is_over)


def has_overdue(connection: Connection) -> bool:
    """Return whether a job has waited for longer than its limit."""
    return connection.execute(select(jobs.c.id).where(_overdue()).limit(1)).first() is not None


def fail_overdue(connection: Connection) -> int:
    """Let the jobs fail that have waited for longer than their limit. Return their number."""
    failed = 0
    for row in connection.execute(select(jobs.c.id, jobs.c.attempt, jobs.c.pending_limit).where(_overdue())).all():
        reason = f"pending_limit: not started within {row.pending_limit:g} seconds"
        failed += change_job(connection, row.id, JobEvent.BROKE, of_attempt=row.attempt, reason=reason) is not None
    return failed


def _retry(row: JobRow, failure: str, ended_at: float) -> dict[str, Any]:
    """Return the columns that a job gets when it is to be tried again."""
    names = ("attempt", "node", "incarnation", "started_at")
    ended = {**{name: getattr(row, name) for name in names}, "version": row.ran_version, "ended_at": ended_at}
    return {
        "retries_left": row.retries_left - 1,
        "retry_seconds": min(2 * row.retry_seconds, _LONGEST_RETRY_SECONDS),
        "not_before": DatabaseNow() + row.retry_seconds,
        "earlier_attempts": [*row.earlier_attempts, {**ended, "reason": failure}],
        **_NO_NODE,
        "pid": None,
        "started_at": None,
        "stats": None,
    }


def lock_job(connection: Connection, job_id: int) -> JobRow | None:
    """Keep others from changing a job until the end of the transaction, which tries one event after the other. Return
    the job's row; None: there is no such job."""
    return fetch_first(connection, JobRow, select(jobs).where(jobs.c.id == job_id).with_for_update())


def set_notes(connection: Connection, job_id: int, notes: Mapping[str, Any]) -> None:
    """Replace the values that clients have attached to a job."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(notes=dict(notes) or None))


def request_stop(connection: Connection, project: str, name: str, *, signal: int) -> list[StoppedJob]:
    """Ask all jobs with this name to stop. A pending one is cancelled at once; the others stop on their nodes."""
    rows = job_rows(connection, projects.c.name == project, jobs.c.name == name, jobs.c.state.in_(LIVE))
    stopped = (stop_job(connection, row.id, signal=signal) for row in rows)
    return [stop for stop in stopped if stop is not None]


def stop_job(connection: Connection, job_id: int, *, signal: int) -> StoppedJob | None:
    """Ask a job to stop, as `request_stop` does. None: it has ended, or does not exist."""
    row = lock_job(connection, job_id)
    if row is None:
        return None
    columns = {"stops": row.stops + 1, "stop_signal": signal}
    state = change_job(connection, row.id, JobEvent.STOP_REQUESTED, of_attempt=row.attempt, **columns)
    if state is None:
        return None
    return StoppedJob(row.id, row.attempt, row.node, state is JobState.CANCELLED, row.stops + 1)


def cancel_pending(connection: Connection, project: str, *, reason: str) -> int:
    """Cancel all pending jobs of a project, and return their number."""
    pending = job_rows(connection, projects.c.name == project, jobs.c.state == JobState.PENDING)
    return sum(
        change_job(connection, row.id, JobEvent.STOP_REQUESTED, of_attempt=row.attempt, reason=reason) is not None
        for row in pending
    )


class JobFilter(NamedTuple):
    """Conditions of a page of jobs. Empty and None: any."""

    project: str = ""
    spider: str = ""
    name: str = ""
    states: Sequence[JobState] = ()
    group: int | None = None
    tags: Sequence[str] = ()
    """Tags of which the job must have all."""
    schedule: int | None = None


def find_job(connection: Connection, job_id: int) -> Job | None:
    """Return a job's row, with `project`. None: there is none of this number."""
    return next(iter(job_rows(connection, jobs.c.id == job_id)), None)


def find_request(connection: Connection, project: str, request_key: str) -> Job | None:
    """Return the job that was added with this key."""
    return next(iter(job_rows(connection, projects.c.name == project, jobs.c.request_key == request_key)), None)


def has_job(connection: Connection, project: str, name: str) -> bool:
    """Return whether the project has a job of this name, in whatever state. Locks the project until the end of the
    transaction, so that the answer stays true."""
    project_id(connection, project)
    return bool(job_rows(connection, projects.c.name == project, jobs.c.name == name))


def find_taken(connection: Connection, project: str, names: Sequence[str]) -> str | None:
    """Return the first of these names that a job of the project has. Locks the project as `has_job` does."""
    project_id(connection, project)
    for start in range(0, len(names), _NAMES_AT_ONCE):
        part = names[start : start + _NAMES_AT_ONCE]
        found = {row.name for row in job_rows(connection, projects.c.name == project, jobs.c.name.in_(part))}
        if found:
            return next(name for name in part if name in found)
    return None


def job_page(connection: Connection, wanted: JobFilter, *, before: int | None, limit: int) -> list[Job]:
    """Return up to `limit` jobs, the latest first. `before`: number of the last job of the page before."""
    conditions: list[Any] = [] if before is None else [jobs.c.id < before]
    conditions += [projects.c.name == wanted.project] if wanted.project else []
    conditions += [jobs.c.spider == wanted.spider] if wanted.spider else []
    conditions += [jobs.c.name == wanted.name] if wanted.name else []
    conditions += [jobs.c.state.in_(wanted.states)] if wanted.states else []
    conditions += [jobs.c.group_id == wanted.group] if wanted.group is not None else []
    conditions += [jobs.c.schedule_id == wanted.schedule] if wanted.schedule is not None else []
    conditions += [tagged([tag]) for tag in wanted.tags]
    return fetch(connection, Job, WITH_PROJECT.where(*conditions).order_by(jobs.c.id.desc()).limit(limit))


def active_jobs(connection: Connection, node: str) -> list[Job]:
    """Return the jobs that the node has, by what the database knows."""
    return job_rows(connection, jobs.c.node == node, jobs.c.state.in_(ACTIVE))


def list_jobs(
    connection: Connection, states: Sequence[JobState], *, project: str | None = None, name: str | None = None
) -> list[Job]:
    """Return the jobs in these states, those that run next first."""
    conditions: list[Any] = [jobs.c.state.in_(states)]
    if project is not None:
        conditions.append(projects.c.name == project)
    if name is not None:
        conditions.append(jobs.c.name == name)
    order = (jobs.c.project_id, jobs.c.priority.desc(), jobs.c.id)
    return fetch(connection, Job, WITH_PROJECT.where(*conditions).order_by(*order))


_HAS_RUN = or_(jobs.c.state != JobState.CANCELLED, jobs.c.attempt > 0)
"""Condition that leaves out jobs that were cancelled before they started: Scrapyd shows them nowhere."""


def ended_jobs(connection: Connection, *, limit: int) -> list[Job]:
    """Return the jobs that ended last, the latest first, without those that were cancelled before they started."""
    ended = WITH_PROJECT.where(jobs.c.ended_at.is_not(None), jobs.c.state.in_(ENDED), _HAS_RUN)
    return fetch(connection, Job, ended.order_by(jobs.c.ended_at.desc(), jobs.c.id.desc()).limit(limit))


def count_jobs(connection: Connection, *, project: str = "") -> dict[JobState, int]:
    """Return the number of jobs in each state that is not an end, without states that have none. `project`: empty:
    those of all projects."""
    statement = select(jobs.c.state, func.count()).where(jobs.c.state.in_(LIVE)).group_by(jobs.c.state)
    if project:
        statement = statement.where(
            jobs.c.project_id == select(projects.c.id).where(projects.c.name == project).scalar_subquery()
        )
    return {JobState(state): count for state, count in connection.execute(statement)}


def count_ended(connection: Connection, *, limit: int) -> int:
    """Return the number of rows that `ended_jobs` would return."""
    ended = select(jobs.c.id).where(jobs.c.ended_at.is_not(None), jobs.c.state.in_(ENDED), _HAS_RUN).limit(limit)
    return connection.scalar(select(func.count()).select_from(ended.subquery())) or 0


def forget_jobs(connection: Connection, *, keep: int) -> None:
    """Delete the ended jobs that have no files, but the `keep` latest, and those that ended in the last 24 hours: a
    client may still ask for them, or repeat the request that made one, which would make another."""
    latest = select(jobs.c.id).where(jobs.c.ended_at.is_not(None)).order_by(jobs.c.ended_at.desc(), jobs.c.id.desc())
    shown = latest.limit(keep).scalar_subquery()
    connection.execute(
        delete(jobs).where(
            jobs.c.has_files.is_(False), jobs.c.ended_at < DatabaseNow() - _REMEMBERED_SECONDS, jobs.c.id.not_in(shown)
        )
    )
