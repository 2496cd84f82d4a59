"""Statements that search the jobs of one project, as Scrapy Cloud's clients do.

Every function runs in a transaction of its caller. Fixed: the order, the latest job first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, select

from gossamer.storage.sql.rows import fetch, fetch_first
from gossamer_platform.lifecycle import JobState
from gossamer_platform.state.jobs import WITH_PROJECT, Job
from gossamer_platform.state.tables import jobs, spiders
from gossamer_platform.state.tags import tagged

_OF_SPIDER = and_(spiders.c.project_id == jobs.c.project_id, spiders.c.name == jobs.c.spider)


class JobSearch(NamedTuple):
    """Conditions that a job of a project meets. A field with its default value sets no condition."""

    project: int
    states: Sequence[JobState]
    """Empty: no job meets the conditions."""
    spider: str = ""
    spider_number: int | None = None
    spider_jobs: Sequence[tuple[int, int]] | None = None
    """Pairs of a spider's number and a job's number within it. The job is one of these. None: any job."""
    has_tags: Sequence[str] = ()
    """Tags of which the job has at least one."""
    lacks_tags: Sequence[str] = ()
    """Tags of which the job has none."""
    since: float | None = None
    """Earliest time in seconds since 1970 of the job's last change of state."""
    until: float | None = None
    """Time before which the job's state last changed."""


def find_numbered_job(connection: Connection, project: int, spider: int, job: int) -> Job | None:
    """Return a job by the number of its spider and its own number within the spider. None: there is no such job."""
    named = (jobs.c.project_id == project, spiders.c.number == spider, jobs.c.spider_job == job)
    return fetch_first(connection, Job, WITH_PROJECT.join(spiders, _OF_SPIDER).where(*named))


def search_jobs(connection: Connection, wanted: JobSearch, *, skip: int, limit: int) -> list[Job]:
    """Return up to `limit` jobs, the latest first, without the first `skip`."""
    found = WITH_PROJECT.where(*_conditions(wanted)).order_by(jobs.c.id.desc())
    return fetch(connection, Job, found.offset(skip).limit(limit))


def count_found(connection: Connection, wanted: JobSearch) -> int:
    """Return the number of jobs that meet the conditions."""
    return int(connection.scalar(select(func.count()).select_from(jobs).where(*_conditions(wanted))) or 0)


def count_states(connection: Connection, project_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return for each of these projects the number of jobs by state."""
    counted = select(jobs.c.project_id, jobs.c.state, func.count()).where(jobs.c.project_id.in_(project_ids))
    found: dict[int, dict[str, int]] = {number: {} for number in project_ids}
    for number, state, count in connection.execute(counted.group_by(jobs.c.project_id, jobs.c.state)):
        found[number][state] = count
    return found


def latest_of_spiders(connection: Connection, wanted: JobSearch, *, skip: int, limit: int) -> list[Job]:
    """Return for each spider its latest job that meets the conditions, in the order of the spiders' numbers."""
    latest = select(func.max(jobs.c.id)).where(*_conditions(wanted)).group_by(jobs.c.spider)
    statement = WITH_PROJECT.join(spiders, _OF_SPIDER).where(jobs.c.id.in_(latest))
    return fetch(connection, Job, statement.order_by(spiders.c.number).offset(skip).limit(limit))


def _conditions(wanted: JobSearch) -> list[Any]:
    at = func.coalesce(jobs.c.ended_at, jobs.c.started_at, jobs.c.created_at)
    named = select(spiders.c.name).where(spiders.c.project_id == wanted.project)
    found: list[Any] = [jobs.c.project_id == wanted.project, jobs.c.state.in_(wanted.states)]
    found += [jobs.c.spider == wanted.spider] if wanted.spider else []
    if wanted.spider_number is not None:
        found.append(jobs.c.spider.in_(named.where(spiders.c.number == wanted.spider_number)))
    if wanted.spider_jobs is not None:
        of_project = select(jobs.c.id).join(spiders, _OF_SPIDER).where(jobs.c.project_id == wanted.project)
        numbers = [
            of_project.where(spiders.c.number == spider, jobs.c.spider_job == job).scalar_subquery()
            for spider, job in wanted.spider_jobs
        ]
        found.append(jobs.c.id.in_(numbers))
    found += [tagged(wanted.has_tags)] if wanted.has_tags else []
    found += [~tagged(wanted.lacks_tags)] if wanted.lacks_tags else []
    found += [at >= wanted.since] if wanted.since is not None else []
    found += [at < wanted.until] if wanted.until is not None else []
    return found
