"""Files of jobs that run on other machines, on Scrapyd's pages: the folders and names that Scrapyd would have made.

    /logs/PROJECT/SPIDER/JOB.log       /items/PROJECT/SPIDER/JOB.jl

There are no such folders: the listings are made of rows of the database. Fixed: the names, which clients build
themselves; those of further attempts are as in `files.py`.
"""

import re
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from gossamer_platform.manager.chunk_files import ChunkFiles
from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.manager.files import FileKind
from gossamer_platform.scrapyd.files import JobFile
from gossamer_platform.scrapyd.listing import ListedEntry, PageRequest, file_response, folder_response
from gossamer_platform.state import chunks
from gossamer_platform.state.chunks import FileFolder, FileOfJob
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import Job

_KINDS: Final = {"logs": (FileKind.LOG, "log"), "items": (FileKind.ITEMS, "jl")}
"""Kind and suffix of the files below each root. Scrapyd's: fixed."""
_ATTEMPT: Final = re.compile(r"(?P<name>.+)\.attempt-(?P<attempt>[1-9]\d{0,8})")
_MAX_ENTRIES: Final = 10_000
"""Files in a listing, the latest ones. A listing is built in memory."""


class RemoteFiles(ChunkFiles):
    """Implements ServedFiles by the chunks of a manager."""

    def __init__(self, store: ChunkStore, database: StateDatabase) -> None:
        super().__init__(store)
        self._database = database

    def log_url(self, job: Job) -> str | None:
        """Return the path of the log of the job's last attempt on this server. None: it has none."""
        return None if job.log_deleted else _url("logs", job)

    def items_url(self, job: Job) -> str | None:
        """Return the path of the items of the job's last attempt on this server. None: it has none."""
        return None if job.items_deleted else _url("items", job)

    def page(self, root: str, path: str, request: PageRequest) -> Response | None:
        """Return the file or folder `path` below `/logs` or `/items`, as ServedFiles describes it."""
        if root not in _KINDS:
            return None
        kind, suffix = _KINDS[root]
        parts = [part for part in path.split("/") if part]
        if len(parts) < 3:
            entries = self._database.read_now(
                lambda c: (
                    _folders(chunks.file_folders(c, kind, *parts))
                    if len(parts) < 2
                    else _files(chunks.files_of_spider(c, kind, *parts, limit=_MAX_ENTRIES), suffix)
                )
            )
            return folder_response(entries, request) if entries or not parts else None
        if len(parts) > 3 or path.endswith("/") or not parts[2].endswith(f".{suffix}"):
            return None
        return self._file(kind, parts, suffix, request)

    def _file(self, kind: FileKind, parts: Sequence[str], suffix: str, request: PageRequest) -> Response | None:
        project, spider, name = parts
        stem, attempt = name.removesuffix(f".{suffix}"), 1
        further = _ATTEMPT.fullmatch(stem)
        if further is not None:
            stem, attempt = further["name"], int(further["attempt"])
        job = self._database.read_now(lambda c: chunks.job_of_file(c, project, spider, stem))
        if job is None or attempt > len(job.earlier_attempts) + 1:
            return None
        file = self.open(job, kind, attempt)
        return None if file is None else file_response(name, file, request)


def _url(root: str, job: Job) -> str | None:
    if job.started_at is None:
        return None
    path = JobFile.of(job).below("", _KINDS[root][1], attempt=len(job.earlier_attempts) + 1)
    return f"/{root}/{job.project}/{job.spider}/{path.name}"


def _folders(rows: Sequence[FileFolder]) -> list[ListedEntry]:
    return [ListedEntry(row.name, True, 0, row.changed_at) for row in rows]


def _files(rows: Sequence[FileOfJob], suffix: str) -> list[ListedEntry]:
    found = []
    for row in rows:
        numbers = [each["attempt"] for each in row.earlier_attempts]
        # An attempt that a node gave back before it began has a number, too, but no place among those that ran.
        place = numbers.index(row.attempt) + 1 if row.attempt in numbers else len(numbers) + 1
        further = f".attempt-{place}" if place > 1 else ""
        found.append(ListedEntry(f"{row.file_name}{further}.{suffix}", False, row.length, row.changed_at))
    return found
