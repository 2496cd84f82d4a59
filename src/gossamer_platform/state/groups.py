"""Statements on job groups, and on inputs of jobs.

A job group is several jobs that one request makes, and that are shown and cancelled together: one spider over the parts
of a file, or several processes that share one frontier (the queue of a crawl). An input is a file that a client sends
and that a job finds on its node; it is kept in the database, so that any manager can hand it out.

Every function runs in a transaction of its caller. Fixed: an input belongs to a project, and is named by the SHA-256 of
its content.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from sqlalchemy import Connection, Select, and_, delete, func, insert, select

from gossamer.errors import BadInput
from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first
from gossamer_platform.link import JobInput
from gossamer_platform.names import check_file_name
from gossamer_platform.state.jobs import NewJob, add_job, stop_job
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.tables import (
    GroupRow,
    StoredInput,
    input_parts,
    inputs,
    job_groups,
    jobs,
    projects,
)

START_URLS: Final = "start_urls"
"""Use of an input whose lines become the spider's start URLs. Any other use is the name of an argument. Fixed."""
_PART_BYTES: Final = 1024 * 1024
"""Bytes of an input in one row. A row is in memory while it is written or read."""
_FORGET_SECONDS: Final = 3600.0
"""Age from which an input or a group without jobs is deleted. A client makes the jobs at once."""

_NUMBERS_AT_ONCE: Final = 1000
"""Inputs that one statement deletes. A database limits the parameters of a statement, PostgreSQL to 65,535."""

CRAWL_SETTING = "GOSSAMER_CRAWL_ID"
"""Setting of Scrapy with the crawl that the processes of a group share. Fixed: projects read it."""


class JobGroup(GroupRow):
    """A job group with the name of its project."""

    project: str


class NewGroup(NamedTuple):
    """A job group as it is requested."""

    job: NewJob
    """Template of the jobs; its name is that of the group."""
    inputs: Sequence[str] = ()
    """Digests of inputs, one for each job. Empty: the jobs have none."""
    use: str = START_URLS
    processes: int = 0
    """Number of jobs that share one frontier. 0: they do not."""

    @property
    def size(self) -> int:
        """Number of its jobs."""
        return self.processes or len(self.inputs)

    def job_names(self) -> list[str]:
        """Return the names of its jobs, in their order."""
        return [f"{self.job.name}-{number}" for number in range(1, self.size + 1)]


def add_input(connection: Connection, project: str, name: str, content: bytes) -> str:
    """Keep a file, and return its digest. May be repeated."""
    check_file_name(name, name)
    digest = hashlib.sha256(content).hexdigest()
    owner = project_id(connection, project)
    known = and_(inputs.c.project_id == owner, inputs.c.digest == digest)
    if connection.execute(select(inputs.c.id).where(known)).first() is None:
        columns = {"project_id": owner, "digest": digest, "name": name, "length": len(content)}
        number = add_row(connection, inputs, **columns, created_at=DatabaseNow())
        for start in range(0, len(content), _PART_BYTES):
            part = content[start : start + _PART_BYTES]
            connection.execute(insert(input_parts).values(input_id=number, start_at=start, content=part))
    return digest


def find_input(connection: Connection, project: str, digest: str) -> StoredInput | None:
    """Return an input. None: the project has none of this digest."""
    statement = select(inputs).join(projects, projects.c.id == inputs.c.project_id)
    return fetch_first(connection, StoredInput, statement.where(projects.c.name == project, inputs.c.digest == digest))


def read_input(connection: Connection, number: int, start: int) -> bytes:
    """Return the part of an input that begins at this offset. Empty: there is none."""
    wanted = and_(input_parts.c.input_id == number, input_parts.c.start_at == start)
    return bytes(connection.scalar(select(input_parts.c.content).where(wanted)) or b"")


def add_group(connection: Connection, group: NewGroup) -> int:
    """Add a group with its jobs, and return its number. Raises BadInput for an input that the project does not have."""
    job = group.job
    owner = project_id(connection, job.project)
    columns = {"project_id": owner, "spider": job.spider, "name": job.name, "request_key": job.request_key}
    kind = "processes" if group.processes else "split"
    number = add_row(connection, job_groups, **columns, kind=kind, created_at=DatabaseNow())
    settings: Mapping[str, str] = job.settings
    if group.processes:
        # The group's own name is part of the crawl's: two platforms may share a frontier, and both have a group 1.
        settings = {CRAWL_SETTING: f"group-{number}-{job.name}", **job.settings}
    common = job._replace(group_id=number, settings=settings, shares_frontier=bool(group.processes), request_key=None)
    for index, name in enumerate(group.job_names()):
        part = JobInput(group.inputs[index], "", group.use) if group.inputs else JobInput()
        each = common._replace(name=name, input=part)
        add_job(connection, with_input(connection, each))
    return number


def with_input(connection: Connection, job: NewJob) -> NewJob:
    """Return a job with the name of its input, if it has one. Raises BadInput if the project has no such input."""
    if not job.input.digest:
        return job
    found = find_input(connection, job.project, job.input.digest)
    if found is None:
        raise BadInput(f"project '{job.project}' has no input {job.input.digest}; send it to /v1/inputs first")
    return job._replace(input=replace(job.input, name=found.name))


def find_group(connection: Connection, number: int) -> JobGroup | None:
    """Return a group. None: there is none of this number."""
    return fetch_first(connection, JobGroup, _with_project().where(job_groups.c.id == number))


def find_group_request(connection: Connection, project: str, request_key: str) -> JobGroup | None:
    """Return the group that was added with this key."""
    wanted = and_(projects.c.name == project, job_groups.c.request_key == request_key)
    return fetch_first(connection, JobGroup, _with_project().where(wanted))


def group_page(connection: Connection, project: str, *, before: int | None, limit: int) -> list[JobGroup]:
    """Return up to `limit` groups, the latest first. `project`: empty for all."""
    statement = _with_project()
    if project:
        statement = statement.where(projects.c.name == project)
    if before is not None:
        statement = statement.where(job_groups.c.id < before)
    return fetch(connection, JobGroup, statement.order_by(job_groups.c.id.desc()).limit(limit))


def group_states(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return the number of jobs by state, of each of these groups."""
    counted = select(jobs.c.group_id, jobs.c.state, func.count()).where(jobs.c.group_id.in_(numbers))
    found: dict[int, dict[str, int]] = {number: {} for number in numbers}
    for number, state, count in connection.execute(counted.group_by(jobs.c.group_id, jobs.c.state)):
        found[number][state] = count
    return found


def seconds_since_start(connection: Connection, number: int) -> float:
    """Return the seconds since the first job of a group was started; 0 before that."""
    started_at = connection.scalar(select(func.min(jobs.c.started_at)).where(jobs.c.group_id == number))
    return 0.0 if started_at is None else float(connection.scalar(select(DatabaseNow())) or 0.0) - started_at


def stop_group(connection: Connection, number: int, *, signal: int) -> None:
    """Ask all jobs of a group to stop that have not ended."""
    for job_id in connection.scalars(select(jobs.c.id).where(jobs.c.group_id == number).order_by(jobs.c.id)).all():
        stop_job(connection, job_id, signal=signal)


def forget_groups(connection: Connection) -> None:
    """Delete groups and inputs that no job refers to any more."""
    old = DatabaseNow() - _FORGET_SECONDS
    used = select(jobs.c.id).where(jobs.c.project_id == inputs.c.project_id, jobs.c.input_digest == inputs.c.digest)
    unused = select(inputs.c.id).where(inputs.c.created_at < old, ~used.exists())
    found = connection.scalars(unused).all()
    for start in range(0, len(found), _NUMBERS_AT_ONCE):
        numbers = found[start : start + _NUMBERS_AT_ONCE]
        connection.execute(delete(input_parts).where(input_parts.c.input_id.in_(numbers)))
        connection.execute(delete(inputs).where(inputs.c.id.in_(numbers)))
    empty = ~select(jobs.c.id).where(jobs.c.group_id == job_groups.c.id).exists()
    connection.execute(delete(job_groups).where(job_groups.c.created_at < old, empty))


def _with_project() -> Select[Any]:
    return select(job_groups, projects.c.name.label("project")).join(projects, projects.c.id == job_groups.c.project_id)
