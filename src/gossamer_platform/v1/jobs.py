"""Endpoints of jobs: create, list, show, cancel. `job_files.py` has those of their logs and items.

Fixed, because clients read them: paths, names of parameters, status codes.
"""

import contextlib
import re
import signal
from collections import deque
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from gossamer.errors import BadInput
from gossamer.storage.objects import StorageUnavailable
from gossamer_platform.lifecycle import ENDED, JobState
from gossamer_platform.link import JobInput
from gossamer_platform.manager.files import FileKind, JobFiles
from gossamer_platform.manager.operations import STOPPING_SIGNALS, new_job_name
from gossamer_platform.state import jobs
from gossamer_platform.state.dispatch import waits_for
from gossamer_platform.state.jobs import Job, JobFilter, NewJob
from gossamer_platform.state.tags import tags_of
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.context import RESPONSES, Client, Reader, Runner
from gossamer_platform.v1.item_filter import MAX_FILTERS
from gossamer_platform.v1.models import JobCounts, JobModel, JobPage, NewJobModel
from gossamer_platform.v1.pages import PageLimit, PageStart, cut_page, parse_cursor
from gossamer_platform.v1.reading import in_reader

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=RESPONSES)

_LOG_END_LINES: Final = 20
"""Lines of the log that are shown with a failed job."""
_LOG_END_BYTES: Final = 16 * 1024
"""Bytes at the end of the log in which these lines are looked for."""
_ERROR_BYTES: Final = 256 * 1024
"""Bytes at the end of the log in which the last error is looked for."""
_ERROR_CHARACTERS: Final = 1000
"""Characters of the last error that are shown."""
_ERROR: Final = re.compile(rb"^.*\] (?:ERROR|CRITICAL): .*$", re.MULTILINE)
"""Line of Scrapy's log with an error, in Scrapy's own LOG_FORMAT."""
_RAISED: Final = re.compile(rb"^Traceback \(most recent call last\):\n(?:[ \t].*\n|--- .*\n)+(\S.*)$", re.MULTILINE)
"""Traceback of Python or Twisted, with the exception as its group."""
JobId = Annotated[int, Path(ge=1, lt=2**63, description="Number of the job.")]


@router.post("", status_code=201, summary="Create a job")
async def create_job(
    job: NewJobModel,
    client: Runner,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> JobModel:
    """Create a job, which starts when a node has a free slot.

    With a header Idempotency-Key the request may be repeated: the second one returns the same job, with status 200.
    """
    client.check_project(job.project)
    given = job.model_dump(include={"project", "spider", "version", "arguments", "settings", "priority", "label"})
    name = new_job_name() if job.name is None else job.name
    if job.is_urgent:
        client.require_scope(TokenScope.ADMIN)
        client.require_all_projects()
    own = JobInput(job.input.digest, "", job.input.use) if job.input else JobInput()
    new = NewJob(
        **given,
        name=name,
        policy=job,
        request_key=idempotency_key,
        input=own,
        is_urgent=job.is_urgent,
        tags=job.tags,
    )
    client.check_settings(job.settings)
    row, created = await client.context.manager.create_job(new)
    if created:
        client.name_change("job.create", f"{row.id} {row.project}/{row.spider}")
    else:
        response.status_code = 200
    return await shown_job(client, row)


def _conditions(
    project: str = "",
    spider: str = "",
    name: str = "",
    state: Annotated[list[JobState] | None, Query(description="State; may be repeated.")] = None,
    group: Annotated[int | None, Query(ge=1, lt=2**63, description="Number of a job group.")] = None,
    tag: Annotated[list[str] | None, Query(description="Tag; may be repeated, then the job has all of them.")] = None,
    schedule: Annotated[int | None, Query(ge=1, lt=2**63, description="Number of the schedule that made it.")] = None,
) -> JobFilter:
    if tag and len(tag) > MAX_FILTERS:
        raise BadInput(f"tag: {len(tag)} tags are too many; the largest number is {MAX_FILTERS}")
    return JobFilter(project, spider, name, state or (), group, tag or (), schedule)


@router.get("", summary="List jobs")
async def list_jobs(
    client: Reader,
    conditions: Annotated[JobFilter, Depends(_conditions)],
    after: PageStart = "",
    limit: PageLimit = 100,
) -> JobPage:
    """Return jobs, the latest first. Without a filter: all that the client may see."""
    wanted = conditions._replace(project=client.listed_project(conditions.project))
    before = parse_cursor(after)
    found = await client.context.manager.read(lambda c: jobs.job_page(c, wanted, before=before, limit=limit + 1))
    rows, following = cut_page(found, limit)
    tags = await client.context.manager.read(lambda c: tags_of(c, [row.id for row in rows]))
    shown = [JobModel.of(row, tags[row.id]) for row in rows]
    return JobPage(jobs=shown, next=following)


@router.get("/counts", summary="Count the jobs that have not ended")
async def count_jobs(client: Reader, project: str = "") -> JobCounts:
    """Return how many jobs wait, start, run and stop. Jobs that have ended are not counted: there may be millions."""
    wanted = client.listed_project(project)
    return JobCounts(jobs=await client.context.manager.read(lambda c: jobs.count_jobs(c, project=wanted)))


@router.get("/{job_id}", summary="Show a job")
async def get_job(job_id: JobId, client: Reader) -> JobModel:
    """Return a job. One that is pending comes with what it waits for, one that has failed with the last lines of its
    log, and one that has ended with its last error."""
    row = await visible_job(client, job_id)
    shown = await shown_job(client, row)
    if row.state == JobState.PENDING:
        shown.waits_for = await client.context.manager.read(lambda c: waits_for(c, row))
    with contextlib.suppress(StorageUnavailable):  # the rest is known all the same
        if row.state == JobState.FAILED:
            shown.last_log_lines = await in_reader(last_log_lines, client.context.files, row)
        if row.state in ENDED:
            shown.last_error = await in_reader(last_error, client.context.files, row)
    return shown


def last_log_lines(files: JobFiles, row: Job) -> list[str]:
    """Return the last lines of a job's log. Empty: it has none. Waits for the storage: call it in a thread."""
    is_whole, content = _log_end(files, row, _LOG_END_BYTES)
    lines = content.decode(errors="replace").splitlines()
    return lines[0 if is_whole else 1 :][-_LOG_END_LINES:]  # the first one may be a part


def last_error(files: JobFiles, row: Job) -> str | None:
    """Return the last line with an error of a job's log, and on a second line the exception of its traceback. None:
    there is none near the log's end, or the job has ended well and counted none. Waits for the storage: call it in a
    thread."""
    counts = (row.stats or {}).keys() & {"log_count/ERROR", "log_count/CRITICAL"}
    if not counts and row.state != JobState.FAILED:  # a process that dies has counted nothing
        return None
    content = _log_end(files, row, _ERROR_BYTES)[1]
    last = deque(_ERROR.finditer(content), maxlen=1)
    if not last:
        return None
    raised = deque(_RAISED.finditer(content, last[0].end()), maxlen=1)
    lines = [last[0][0], *(found[1] for found in raised)]
    return "\n".join(line.decode(errors="replace").strip()[:_ERROR_CHARACTERS] for line in lines)


def _log_end(files: JobFiles, row: Job, size: int) -> tuple[bool, bytes]:
    """Return up to so many bytes at the end of a log, and before them whether they are all of it."""
    file = files.open(row, FileKind.LOG, 0)
    if file is None:
        return True, b""
    with contextlib.closing(file):
        end = file.length()
        return end <= size, file.read(max(0, end - size), end)


@router.post("/{job_id}/cancel", status_code=202, summary="Cancel a job")
async def cancel_job(
    job_id: JobId,
    client: Runner,
    number: Annotated[
        int, Query(alias="signal", ge=1, le=64, description="Number of the signal for Scrapy's process.")
    ] = int(signal.SIGTERM),
) -> JobModel:
    """Ask a job to stop. A pending job is cancelled at once, a running one when all its processes are gone. A second
    call does not wait for the grace period; signal 9 kills at once. Nothing happens to a job that has ended."""
    row = await visible_job(client, job_id)
    if number not in STOPPING_SIGNALS:
        raise BadInput(f"signal: {number} does not end a process")
    row = await client.context.manager.cancel_job(job_id, signal_number=number)
    client.name_change("job.cancel", f"{row.id} {row.project}/{row.spider}")
    return await shown_job(client, row)


async def visible_job(client: Client, number: int) -> Job:
    """Return a job that the client may see. Raises NotFound."""
    return client.visible(await client.context.manager.job(number), f"job {number}")


async def shown_job(client: Client, row: Job) -> JobModel:
    """Return the model of a job."""
    tags = await client.context.manager.read(lambda c: tags_of(c, [row.id]))
    return JobModel.of(row, tags[row.id])
