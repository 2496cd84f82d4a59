"""Endpoints of jobs: create, list, show, cancel, and read their logs and items.

Fixed, because clients read them: paths, names of parameters, status codes. A log is read by byte ranges while it
grows; items by a cursor, which is a byte offset, so that the last page costs no more than the first.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row

from gossamer.errors import BadInput
from gossamer.platform.lifecycle import JobState
from gossamer.platform.manager.local_link import FileKind
from gossamer.platform.manager.operations import STOPPING_SIGNALS, NotFound, new_job_name
from gossamer.platform.state import jobs
from gossamer.platform.state.jobs import JobFilter, NewJob
from gossamer.platform.v1.context import Client, Reader, Runner
from gossamer.platform.v1.items import EXPORTS, ItemReader
from gossamer.platform.v1.models import ItemPage, JobModel, JobPage, NewJobModel

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_PAGE: Final = 1000
"""Largest page of a list. May be changed; a page of jobs is built in memory."""
_CHUNK_BYTES: Final = 256 * 1024
"""Bytes that are read of a log at a time. May be changed."""
JobId = Annotated[int, Path(ge=1, lt=2**63, description="Number of the job.")]
_Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Largest number of entries to return.")]
_Attempt = Annotated[int, Query(ge=0, lt=2**31, description="Number of an attempt that ran, from 1. 0: the last.")]


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
    given = job.model_dump(include={"project", "spider", "version", "arguments", "settings", "priority"})
    name = new_job_name() if job.name is None else job.name
    new = NewJob(**given, name=name, policy=job.policy(), request_key=idempotency_key)
    row, created = await client.context.manager.create_job(new)
    if created:
        await client.record("job.create", f"{row.id} {row.project}/{row.spider}")
    else:
        response.status_code = 200
    return JobModel.of(row)


@router.get("", summary="List jobs")
async def list_jobs(
    client: Reader,
    project: str = "",
    spider: str = "",
    name: str = "",
    state: Annotated[list[JobState] | None, Query(description="State; may be repeated.")] = None,
    after: Annotated[str, Query(description="Value of `next` of the page before.")] = "",
    limit: _Limit = 100,
) -> JobPage:
    """Return jobs, the latest first. Without a filter: all that the client may see."""
    if project:
        client.check_project(project)
    wanted = JobFilter(project or client.principal.project, spider, name, state or ())
    before = parse_cursor(after)
    rows = await client.context.manager.read(lambda c: jobs.job_page(c, wanted, before=before, limit=limit))
    return JobPage(jobs=[JobModel.of(row) for row in rows], next=str(rows[-1].id) if len(rows) == limit else None)


@router.get("/{job_id}", summary="Show a job")
async def get_job(job_id: JobId, client: Reader) -> JobModel:
    """Return a job."""
    return JobModel.of(await visible_job(client, job_id))


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
    await client.record("job.cancel", f"{row.id} {row.project}/{row.spider}")
    return JobModel.of(row)


@router.get("/{job_id}/log", summary="Read the log of a job", response_class=StreamingResponse)
async def get_log(
    job_id: JobId,
    client: Reader,
    attempt: _Attempt = 0,
    start: Annotated[int, Query(ge=0, lt=2**63, description="Offset of the first byte.")] = 0,
    tail: Annotated[int | None, Query(ge=1, lt=2**63, description="Number of bytes at the end to return.")] = None,
) -> StreamingResponse:
    """Return the log as it is now, as plain text. The header X-Next-Start is the value of `start` that continues."""
    row = await visible_job(client, job_id)
    length = await _length(client, row, FileKind.LOG, attempt)
    start = min(start, length) if tail is None else max(0, length - tail)
    headers = {"X-Next-Start": str(length), "X-Content-Type-Options": "nosniff", "Content-Length": str(length - start)}
    content = _content(client, row, attempt, slice(start, length))
    return StreamingResponse(content, headers=headers, media_type="text/plain")


@router.get("/{job_id}/items", summary="Read the items of a job")
async def get_items(
    job_id: JobId,
    client: Reader,
    attempt: _Attempt = 0,
    after: Annotated[str, Query(description="Value of `next` of the page before.")] = "",
    limit: _Limit = 100,
) -> ItemPage:
    """Return a page of items, also while the job runs."""
    row = await visible_job(client, job_id)
    reader = ItemReader(client.context.files, row, attempt)
    items, position = await asyncio.to_thread(reader.page, parse_cursor(after) or 0, limit)
    return ItemPage(items=items, next=str(position) if len(items) == limit else None)


@router.get("/{job_id}/items.{form}", summary="Export the items of a job", response_class=StreamingResponse)
async def export_items(
    job_id: JobId,
    form: Annotated[str, Path(description="Format: jsonl, json, csv or xml.")],
    client: Reader,
    attempt: _Attempt = 0,
) -> StreamingResponse:
    """Return all items in one of the formats, however many they are."""
    row = await visible_job(client, job_id)
    if form not in EXPORTS:
        raise NotFound(f"there is no format {form}; there are {', '.join(EXPORTS)}")
    media_type, export = EXPORTS[form]
    reader = ItemReader(client.context.files, row, attempt)
    # Not the job's name, which may have any character.
    headers = {
        "Content-Disposition": f'attachment; filename="job-{job_id}.{form}"',
        "X-Content-Type-Options": "nosniff",
    }
    # Starlette runs a generator that is not asynchronous in a thread, one step after the other.
    return StreamingResponse(export(reader), headers=headers, media_type=media_type)


def parse_cursor(text: str) -> int | None:
    """Return the number in a cursor. None: there is none. Raises BadInput."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadInput(f"after: {text} is no cursor; send the value of next of the page before")
    return int(text)


async def visible_job(client: Client, number: int) -> Row[Any]:
    """Return a job that the client may see. Raises NotFound."""
    row = await client.context.manager.job(number)
    if client.principal.project not in ("", row.project):
        raise NotFound(f"job {number} not found")
    return row


async def _length(client: Client, row: Row[Any], kind: FileKind, attempt: int) -> int:
    if attempt > len(row.earlier_attempts) + 1:
        raise NotFound(f"job {row.id} has no attempt {attempt}")
    return await asyncio.to_thread(client.context.files.length, row, kind, attempt) or 0


async def _content(client: Client, row: Row[Any], attempt: int, place: slice) -> AsyncIterator[bytes]:
    position = place.start
    while position < place.stop:
        part = slice(position, min(place.stop, position + _CHUNK_BYTES))
        content = await asyncio.to_thread(client.context.files.read, row, FileKind.LOG, attempt, part)
        if not content:  # the file was deleted or cut off: the connection ends before the announced length
            return
        position += len(content)
        yield content
