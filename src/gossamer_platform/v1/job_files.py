"""Endpoints that read the logs and items of jobs, while a job runs and after.

Fixed, because clients read them: paths, names of parameters and headers, status codes. A log is read by byte ranges.
Items are read from a cursor, which is a byte offset, or from an item's number, so that the last page costs no more than
the first.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from gossamer.errors import BadInput
from gossamer_platform.manager.files import FileKind
from gossamer_platform.manager.operations import NotFound
from gossamer_platform.state.jobs import Job
from gossamer_platform.v1.context import RESPONSES, Client, Reader
from gossamer_platform.v1.exports import EXPORTS, ItemSelection, export
from gossamer_platform.v1.item_filter import ItemFilter, parse_filters
from gossamer_platform.v1.items import ItemPagePart, ItemReader
from gossamer_platform.v1.jobs import JobId, visible_job
from gossamer_platform.v1.models import ItemPage
from gossamer_platform.v1.pages import PageLimit, PageStart, parse_cursor
from gossamer_platform.v1.reading import begun, file_pieces, in_reader, matching_lines

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=RESPONSES)

_Attempt = Annotated[int, Query(ge=0, lt=2**31, description="Number of an attempt that ran, from 1. 0: the last.")]
_Offset = Annotated[int, Query(ge=0, lt=2**63, description="Offset of the first byte.")]
_ItemNumber = Annotated[int, Query(ge=0, lt=2**63, description="Number of the first item, from 0.")]
_Filters = Annotated[
    list[str] | None,
    Query(
        alias="filter",
        description="Condition that an item must meet: FIELD=VALUE, FIELD!=VALUE, FIELD>=NUMBER (also >, <=, <), "
        "FIELD~TEXT (contains), FIELD (exists), !FIELD (is absent or empty). A field of a field is written with a dot. "
        "May be repeated; then all must be met.",
    ),
]
_FILE_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}
"""The content is a job's, so a browser must not guess that it is a page."""


@router.get("/{job_id}/log", summary="Read the log of a job", response_class=StreamingResponse)
async def get_log(
    job_id: JobId,
    client: Reader,
    attempt: _Attempt = 0,
    start: _Offset = 0,
    stop: Annotated[int | None, Query(ge=0, lt=2**63, description="Offset behind the last byte.")] = None,
    tail: Annotated[int | None, Query(ge=1, lt=2**63, description="Number of bytes at the end to return.")] = None,
    contains: Annotated[str, Query(max_length=1000, description="Text of the lines to return.")] = "",
) -> StreamingResponse:
    """Return the log as it is now, as plain text. The header X-Next-Start is the value of `start` that continues,
    X-Log-Length the length of the whole log."""
    row = await visible_job(client, job_id)
    _check_attempt(row, attempt)
    file = await in_reader(client.context.files.open, row, FileKind.LOG, attempt)
    length = 0 if file is None else await in_reader(file.length)
    end = length if stop is None else min(stop, length)
    start = min(start, end) if tail is None else max(0, end - tail)
    headers = {**_FILE_HEADERS, "X-Next-Start": str(end), "X-Log-Length": str(length)}
    content = iter(()) if file is None else file_pieces(file, start, end)
    if contains:
        content = matching_lines(content, contains.encode())
    else:
        headers["Content-Length"] = str(end - start)
    return StreamingResponse(await begun(content), headers=headers, media_type="text/plain")


@router.get("/{job_id}/items", summary="Read the items of a job")
async def get_items(
    job_id: JobId,
    client: Reader,
    attempt: _Attempt = 0,
    after: PageStart = "",
    start: _ItemNumber = 0,
    limit: PageLimit = 100,
    filters: _Filters = None,
) -> ItemPage:
    """Return a page of items, also while the job runs: from the first one on, from the one with the number `start` on,
    or behind the page before.

    A page may have fewer items than `limit` although others follow, because only so many are read for one page.
    """
    conditions, row = parse_filters(filters or ()), await visible_job(client, job_id)
    position = parse_cursor(after)
    if position is not None and start:
        raise BadInput("after, start: send one of them")
    part = await in_reader(_page, client, row, attempt, position, start, limit, conditions)
    items = [found.item for found in part.items]
    return ItemPage(items=items, next=None if part.is_last else str(part.end), end=str(part.end))


def _page(
    client: Client,
    row: Job,
    attempt: int,
    position: int | None,
    start: int,
    limit: int,
    filters: list[ItemFilter],
) -> ItemPagePart:
    reader = ItemReader(client.context.files, row, attempt)
    try:
        if position is None:
            position, number = reader.position(start)
            if number < start:
                return ItemPagePart([], position, True)
        return reader.page(position, limit, filters)
    finally:
        reader.close()


@router.get("/{job_id}/items.{form}", summary="Export the items of a job", response_class=StreamingResponse)
async def export_items(
    job_id: JobId,
    form: Annotated[str, Path(description="Format: jsonl, json, csv or xml.")],
    client: Reader,
    attempt: _Attempt = 0,
    start: _ItemNumber = 0,
    count: Annotated[int | None, Query(ge=1, lt=2**63, description="Largest number of items. Absent: all.")] = None,
    filters: _Filters = None,
    csv_guard: Annotated[
        bool, Query(description="Write a single quote before cells of CSV that a spreadsheet would run as a formula.")
    ] = False,
) -> StreamingResponse:
    """Return all items, or those that are asked for, in one of the formats, however many they are."""
    conditions, row = parse_filters(filters or ()), await visible_job(client, job_id)
    if form not in EXPORTS:
        raise NotFound(f"there is no format {form}; there are {', '.join(EXPORTS)}")
    reader = await in_reader(ItemReader, client.context.files, row, attempt)
    selection = ItemSelection(reader, start, count, conditions, csv_guard)
    content = await begun(export(form, selection), is_export=True)
    # Not the job's name, which may have any character.
    headers = {**_FILE_HEADERS, "Content-Disposition": f'attachment; filename="job-{job_id}.{form}"'}
    return StreamingResponse(content, headers=headers, media_type=EXPORTS[form])


def _check_attempt(row: Job, attempt: int) -> None:
    if attempt > len(row.earlier_attempts) + 1:
        raise NotFound(f"job {row.id} has no attempt {attempt}")
