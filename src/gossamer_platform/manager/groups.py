"""Operations on job groups and on inputs of jobs, beside those of `operations.py`.

Fixed: a group and all its jobs are added in one transaction.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from gossamer_platform.link import JobInput
from gossamer_platform.manager.operations import JobConflict, Manager, NotFound, is_same_request
from gossamer_platform.state import groups, jobs
from gossamer_platform.state.groups import JobGroup, NewGroup


async def add_input(manager: Manager, project: str, name: str, content: bytes) -> str:
    """Keep a file for jobs of a project, and return its digest. Raises NotFound for the project, and UnsafeName."""
    await manager.require_project(project)
    return await manager.database.write(lambda connection: groups.add_input(connection, project, name, content))


async def create_group(manager: Manager, group: NewGroup) -> tuple[JobGroup, bool]:
    """Add a group with its jobs. Return it, and True if it is new: a key that was used before returns that one.

    Raises NotFound for the project, version or spider, BadInput for an unknown input, and JobConflict for a name that
    the project has had, or a key that was used for another group.
    """
    job = group.job
    known = await manager.read(lambda connection: _created_before(connection, group))
    if known is not None:  # the spider may be gone by now
        return known, False
    await manager.require_spider(job.project, job.version, job.spider)

    def add(connection: Connection) -> tuple[JobGroup, bool]:
        taken = jobs.find_taken(connection, job.project, group.job_names())  # locks the project
        known = _created_before(connection, group)
        if known is not None:
            return known, False
        if taken:
            raise JobConflict(f"project '{job.project}' has a job {taken} already")
        row = groups.find_group(connection, groups.add_group(connection, group))
        assert row is not None
        return row, True

    created = await manager.database.write(add)
    manager.wake_nodes()
    return created


def _created_before(connection: Connection, group: NewGroup) -> JobGroup | None:
    """Return the group that a request with the same key has made. Raises JobConflict if that was another group."""
    key = group.job.request_key
    known = groups.find_group_request(connection, group.job.project, key) if key else None
    if known is not None and not _is_same(connection, known, group):
        raise JobConflict(f"the key {key} was used for another group, number {known.id}")
    return known


def _is_same(connection: Connection, known: JobGroup, group: NewGroup) -> bool:
    """Return whether a group was made by a request like this one. Their names may differ: a request without a name gets
    a new one each time."""
    rows = jobs.job_page(connection, jobs.JobFilter(group=known.id), before=None, limit=group.size + 1)
    digests = list(group.inputs) or [""] * group.size
    if [row.input_digest for row in reversed(rows)] != digests or rows[0].shares_frontier != bool(group.processes):
        return False
    use = group.use if group.inputs else ""
    wanted = group.job._replace(input=JobInput(rows[0].input_digest, "", use))  # the digests were compared above
    if groups.CRAWL_SETTING not in wanted.settings and groups.CRAWL_SETTING in rows[0].settings:
        given = {**wanted.settings, groups.CRAWL_SETTING: rows[0].settings[groups.CRAWL_SETTING]}
        wanted = wanted._replace(settings=given)  # as `add_group` does
    return is_same_request(rows[0], wanted)


async def find_group(manager: Manager, number: int) -> JobGroup:
    """Return a group. Raises NotFound."""
    row = await manager.read(lambda connection: groups.find_group(connection, number))
    if row is None:
        raise NotFound(f"group {number} not found")
    return row


async def cancel_group(manager: Manager, number: int, *, signal_number: int) -> None:
    """Ask all jobs of a group to stop. Those that have ended stay as they are."""
    await manager.database.write(lambda connection: groups.stop_group(connection, number, signal=signal_number))
    manager.wake_nodes()


async def input_content(manager: Manager, job: int) -> AsyncIterator[bytes]:
    """Yield the content of a job's input, in parts. Raises NotFound if the job has none."""
    row = await manager.job(job)
    found = await manager.read(lambda connection: groups.find_input(connection, row.project, row.input_digest))
    if found is None:
        raise NotFound(f"job {job} has no input")
    position = 0
    while position < found.length:
        part = await manager.read(partial(groups.read_input, number=found.id, start=position))
        if not part:
            raise NotFound(f"the input of job {job} was deleted")
        position += len(part)
        yield part


async def write_input(manager: Manager, job: int, target: Path) -> None:
    """Write the input of a job into a new file. Raises OSError."""
    try:
        with target.open("wb") as file:
            async for part in input_content(manager, job):
                await asyncio.to_thread(file.write, part)
    except NotFound as error:
        raise FileNotFoundError(str(error)) from None
