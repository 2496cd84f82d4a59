"""Endpoint that makes the report of a crawl from its records on the message bus, as `gossamer report` does from a file.

A process of its own makes the page, so that the API answers meanwhile. Fixed: what strangers wrote is escaped by the
report, and the header below keeps a browser from running anything of it.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import check_known
from gossamer.api.openapi import refusals
from gossamer.api.pages import header_of, records_topic
from gossamer.api.problems import not_found
from gossamer.bus.base import Reader
from gossamer.model.crawl import CrawlId
from gossamer.web.problems import Problem

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])

_MOST_PAGES = 20_000
"""Pages of one report. More take longer: about a fifth of a millisecond for each."""
_MOST_BYTES = 512 * 1024 * 1024
"""Size of the records of one report, which are in a temporary file meanwhile."""
_READ_SECONDS = 20.0
"""Longest time for which records are read."""
_MAKE_SECONDS = 60.0
"""Longest time in which the page is made."""
_BATCH_SIZE = 500
_POLL_SECONDS = 0.05
_ONE_AT_A_TIME = asyncio.Semaphore(1)
_POLICY = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""Content-Security-Policy beside the page's own one, which allows its style sheet alone, by its hash. A dashboard shows
a report in a frame."""
_MOST_WAITING = 8
"""Reports that wait for the one that is made. More wait longer than a person does."""


class _Written(NamedTuple):
    """Records that were written into a file."""

    pages: int
    is_complete: bool
    """False: a limit was reached, and there are more."""


@router.get(
    "/report",
    operation_id="crawl_report",
    summary="Make a report about a crawl",
    response_class=HTMLResponse,
    responses={
        200: {
            "description": "The report, an HTML page without script",
            "content": {"text/html": {"example": "<!doctype html>…"}},
        },
        **refusals(404, 503),
    },
)
async def crawl_report(context: Context, crawl: PathCrawl, request: Request) -> Response:
    """Failed pages and why, pages over time, status codes, depth, response times, sizes, broken links, duplicates: as
    `gossamer report`, from the records that the bus still keeps. Reads up to 20,000 pages, or for 20 seconds; the
    header X-Report-Complete is `no` where there are more. To report on a larger crawl, write its pages to a file."""
    await check_known(context, crawl)
    waiting = request.app.state.reports
    if waiting.count >= _MOST_WAITING:
        raise Problem(
            503,
            "Too many reports",
            "other reports are being made; try again in a minute",
            headers={"Retry-After": "60"},
        )
    with waiting.one_more():
        return await _report(context, crawl, request)


class WaitingReports:
    """Reports of one process that are being made, or wait for that."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a report until the block ends."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


async def _report(context: ApiContext, crawl: CrawlId, request: Request) -> Response:
    async with _ONE_AT_A_TIME, request.app.state.topic_reads:
        with tempfile.TemporaryDirectory(prefix="gossamer-report-") as folder:
            records, page = Path(folder, f"{crawl.appid.replace('/', '_')[:50]}.jsonl"), Path(folder, "report.html")
            written = await _write_records(context, crawl, records)
            if not written.pages:
                raise not_found(f"the bus keeps no pages of {crawl}")
            await _make(records, page)
            content = await asyncio.to_thread(page.read_bytes)
    headers = {"Content-Security-Policy": _POLICY, "X-Report-Complete": "yes" if written.is_complete else "no"}
    return HTMLResponse(content, headers=headers)


async def _write_records(context: ApiContext, crawl: CrawlId, path: Path) -> _Written:
    """Write the page records of a crawl that are on the bus into a file, one a line."""
    reader = await context.bus.read([records_topic(context, crawl)], from_beginning=True)
    try:
        with path.open("wb") as file:
            return await _copy(context, reader, crawl, file)
    finally:
        await reader.close()


async def _copy(context: ApiContext, reader: Reader, crawl: CrawlId, file: BinaryIO) -> _Written:
    pages = size = 0
    deadline = context.monotonic() + _READ_SECONDS
    while context.monotonic() < deadline:
        for message in await reader.take(at_most=_BATCH_SIZE, wait_seconds=_POLL_SECONDS):
            header = header_of(message.value, crawl)
            if header is None or header.type != "page":
                continue
            if pages >= _MOST_PAGES or size >= _MOST_BYTES:
                return _Written(pages, is_complete=False)
            pages, size = pages + 1, size + len(message.value)
            file.write(message.value + b"\n")
        if reader.is_at_end():
            return _Written(pages, is_complete=True)
    return _Written(pages, is_complete=False)


async def _make(records: Path, page: Path) -> None:
    """Make the page in a process of its own. Raises Problem if it takes too long or fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gossamer", "report", str(records), "-o", str(page), "--quiet"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_MAKE_SECONDS):
            _, errors = await process.communicate()
    except TimeoutError:
        raise Problem(503, "Report not made", f"the report took longer than {_MAKE_SECONDS:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Problem(503, "Report not made", errors.decode(errors="replace").strip()[-500:])
