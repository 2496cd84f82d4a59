"""Statements on the logs and items that managers keep for nodes elsewhere.

A log or an items file of one attempt is a `job_file`: a sequence of chunks without gaps, each of which is an object of
the storage. A chunk exists once its row does. A manager that adds one locks the row of the file, so two managers
that receive the same bytes keep them once.

Every function runs in a transaction of its caller. Fixed: a chunk is never changed; it may be replaced, together with
its neighbours, by one chunk with the same bytes; and that needs the lease of the file, as a deletion of objects does.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import JSON, Connection, and_, delete, func, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch, fetch_first, fetch_one
from gossamer_platform.state.jobs import WITH_PROJECT, Job
from gossamer_platform.state.tables import (
    Chunk,
    JobRow,
    StorageRow,
    StoredFile,
    chunks,
    job_files,
    jobs,
    projects,
    storage,
)

MERGED_BYTES: Final = 16 * 1024 * 1024
"""Longest chunk that is made of shorter ones. One is held in memory while it is made."""
_ADDED: Final = 16
"""Chunks after which those of a file that still grows are merged."""
_LEASE_SECONDS: Final = 120.0
"""Time that one step of a merge or a deletion may take before another manager may try. When it is over, a merge does
nothing any more."""
_SWEEP_SECONDS: Final = 600.0
"""Time after which the objects of replaced chunks are deleted. Must be longer than a read takes that has just begun."""
_UNSEEN_SECONDS: Final = 300.0
"""Time between hiding a file from clients and deleting its objects. Must be longer than `READING_SECONDS`."""
READING_SECONDS: Final = 180.0
"""Time for which a reader of a file keeps it from being deleted; it says so anew while it reads."""


class FileFolder(NamedTuple):
    """A project or a spider that has files."""

    name: str
    changed_at: float


class FileOfJob(NamedTuple):
    """A file with what its name is made of."""

    length: int
    changed_at: float
    attempt: int
    file_name: str
    earlier_attempts: list[dict[str, Any]]


class FileKey(NamedTuple):
    """Identity of a file of an attempt."""

    job: int
    attempt: int
    """Number of the attempt, as AttemptId has it."""
    kind: str


class NewChunk(NamedTuple):
    """A chunk whose object is written."""

    object: str
    length: int
    lines: int
    line_index: Sequence[Sequence[int]]


def find_file(connection: Connection, key: FileKey) -> StoredFile | None:
    """Return the row of a file. None: nothing of it was received."""
    return fetch_first(connection, StoredFile, select(job_files).where(*_of(key)))


def _of(key: FileKey) -> tuple[Any, ...]:
    return job_files.c.job_id == key.job, job_files.c.attempt == key.attempt, job_files.c.kind == key.kind


def attempt_owner(connection: Connection, job_id: int, attempt: int) -> JobRow | None:
    """Return the row of the job that has, or had, an attempt of this number. None: there is no such attempt."""
    return fetch_first(connection, JobRow, select(jobs).where(jobs.c.id == job_id, jobs.c.attempt >= attempt))


class ReceivedPart(NamedTuple):
    """Place of a chunk in the node's own file."""

    seen: int
    """The end of what was received when the chunk was prepared."""
    end: int
    """The end of what is received with it."""
    missing: int
    """Bytes between the two that are lost."""


def add_chunk(connection: Connection, key: FileKey, new: NewChunk, part: ReceivedPart) -> bool:
    """Add a chunk at the end of a file, and the file if it is the first. Return False if something else was added since
    the chunk was prepared, or the job was deleted."""
    # Locked, so that the deletion of a job finds all its files.
    if connection.scalar(select(jobs.c.id).where(jobs.c.id == key.job).with_for_update(key_share=True)) is None:
        return False
    file = _locked(connection, key)
    if file.received != part.seen or file.deleted_at is not None:
        return False
    row = {**new._asdict(), "line_index": [list(entry) for entry in new.line_index]}
    connection.execute(insert(chunks).values(**row, file_id=file.id, offset=file.length, lines_before=file.lines))
    changes = {
        "length": file.length + new.length,
        "lines": file.lines + new.lines,
        "received": part.end,
        "missing": file.missing + part.missing,
        "added": file.added + 1,
        "changed_at": DatabaseNow(),
    }
    connection.execute(update(job_files).where(job_files.c.id == file.id).values(**changes))
    return True


def _locked(connection: Connection, key: FileKey) -> StoredFile:
    """Return the row of a file, which is added if there is none, and keep others from changing it."""
    locked = select(job_files).where(*_of(key)).with_for_update()
    found = fetch_first(connection, StoredFile, locked)
    if found is None:
        columns = {"job_id": key.job, "attempt": key.attempt, "kind": key.kind, "changed_at": DatabaseNow()}
        with contextlib.suppress(IntegrityError), connection.begin_nested():  # another manager has just added it
            connection.execute(insert(job_files).values(**columns))
        found = fetch_one(connection, StoredFile, locked)
    return found


# --- reading ----------------------------------------------------------------------------------------------------------


def chunk_at(connection: Connection, file_id: int, offset: int) -> Chunk | None:
    """Return the chunk that has the byte at an offset. None: the file ends before it."""
    before = select(chunks).where(chunks.c.file_id == file_id, chunks.c.offset <= offset)
    row = fetch_first(connection, Chunk, before.order_by(chunks.c.offset.desc()).limit(1))
    return row if row is not None and offset < row.offset + row.length else None


def chunk_of_line(connection: Connection, file_id: int, line: int) -> Chunk | None:
    """Return the chunk that has the end of the line before a line, numbered from 0, or the last one before that. None:
    the line is the first, or the file is empty."""
    before = select(chunks).where(chunks.c.file_id == file_id, chunks.c.lines_before < line)
    return fetch_first(connection, Chunk, before.order_by(chunks.c.lines_before.desc(), chunks.c.offset).limit(1))


def keep_reading(connection: Connection, file_id: int) -> None:
    """Record that a file is being read, so that it is not deleted before the reader is done."""
    until = DatabaseNow() + READING_SECONDS
    connection.execute(update(job_files).where(job_files.c.id == file_id).values(read_until=until))


# --- merging ----------------------------------------------------------------------------------------------------------


def files_to_merge(connection: Connection, *, limit: int) -> Sequence[int]:
    """Return the numbers of files of which chunks can be merged: those with many new ones, and those of attempts that
    have ended."""
    ended = or_(jobs.c.id.is_(None), jobs.c.ended_at.is_not(None), jobs.c.attempt > job_files.c.attempt)
    statement = (
        select(job_files.c.id)
        .outerjoin(jobs, jobs.c.id == job_files.c.job_id)
        .where(
            job_files.c.added > 0,
            job_files.c.deleted_at.is_(None),
            job_files.c.leased_until < DatabaseNow(),
            or_(job_files.c.added >= _ADDED, ended),
        )
    )
    return connection.scalars(statement.order_by(job_files.c.added.desc()).limit(limit)).all()


def lease_file(connection: Connection, file_id: int, token: str) -> StoredFile | None:
    """Keep others from merging chunks of a file or deleting its objects for a time. Return its row; None: another one
    has the lease."""
    free = and_(job_files.c.id == file_id, job_files.c.leased_until < DatabaseNow())
    lease = {"lease": token, "leased_until": DatabaseNow() + _LEASE_SECONDS}
    if not connection.execute(update(job_files).where(free).values(**lease)).rowcount:
        return None
    return fetch_one(connection, StoredFile, select(job_files).where(job_files.c.id == file_id))


def has_lease(connection: Connection, file_id: int, token: str) -> bool:
    """Return whether a lease was neither lost nor given back."""
    mine = (job_files.c.id == file_id, job_files.c.lease == token)
    return connection.execute(select(job_files.c.id).where(*mine)).first() is not None


def release_file(connection: Connection, file_id: int, token: str) -> None:
    """Give a lease back."""
    mine = and_(job_files.c.id == file_id, job_files.c.lease == token)
    connection.execute(update(job_files).where(mine).values(lease="", leased_until=0.0))


def file_chunks(connection: Connection, file_id: int, *, after: int = -1, limit: int = 1000) -> list[Chunk]:
    """Return chunks of a file in their order, with an empty `line_index`, from behind the one at offset `after` on."""
    columns = [column for column in chunks.c if column is not chunks.c.line_index]
    statement = select(*columns, literal([], JSON).label("line_index")).where(
        chunks.c.file_id == file_id, chunks.c.offset > after
    )
    return fetch(connection, Chunk, statement.order_by(chunks.c.offset).limit(limit))


def chunk_indexes(connection: Connection, chunk_ids: Sequence[int]) -> list[tuple[int, int, Sequence[Sequence[int]]]]:
    """Return length, lines and line_index of chunks, in their order."""
    statement = select(chunks.c.length, chunks.c.lines, chunks.c.line_index).where(chunks.c.id.in_(chunk_ids))
    return [(row.length, row.lines, row.line_index) for row in connection.execute(statement.order_by(chunks.c.offset))]


def replace_chunks(connection: Connection, file_id: int, token: str, old: Sequence[Chunk], new: NewChunk) -> bool:
    """Replace neighbouring chunks by one with the same bytes. Return False if the lease was lost; then nothing is
    done."""
    mine = and_(job_files.c.id == file_id, job_files.c.lease == token)
    changes = {"sweep_at": DatabaseNow() + _SWEEP_SECONDS, "leased_until": DatabaseNow() + _LEASE_SECONDS}
    if not connection.execute(update(job_files).where(mine).values(**changes)).rowcount:
        return False
    connection.execute(delete(chunks).where(chunks.c.id.in_([row.id for row in old])))
    row = {**new._asdict(), "line_index": [list(entry) for entry in new.line_index]}
    row |= {"file_id": file_id, "offset": old[0].offset, "lines_before": old[0].lines_before}
    connection.execute(insert(chunks).values(**row))
    return True


def record_merge(connection: Connection, file_id: int, *, added: int) -> None:
    """Record that the chunks of a file were merged as far as possible, which had so many new ones."""
    left = update(job_files).where(job_files.c.id == file_id)
    connection.execute(left.values(added=job_files.c.added - added))


# --- deleting ---------------------------------------------------------------------------------------------------------


def hide_files(connection: Connection, job_ids: Sequence[int], kind: str) -> None:
    """End the files of jobs for clients. Their objects are deleted later, when nothing reads them any more."""
    hidden = and_(job_files.c.job_id.in_(job_ids), job_files.c.kind == kind, job_files.c.deleted_at.is_(None))
    connection.execute(update(job_files).where(hidden).values(deleted_at=DatabaseNow()))


def files_to_delete(connection: Connection, *, limit: int) -> list[StoredFile]:
    """Return the rows of files that clients do not see any more, and that no reader needs."""
    statement = select(job_files).where(
        job_files.c.deleted_at < DatabaseNow() - _UNSEEN_SECONDS,
        job_files.c.read_until < DatabaseNow(),
        job_files.c.leased_until < DatabaseNow(),
    )
    return fetch(connection, StoredFile, statement.order_by(job_files.c.deleted_at).limit(limit))


def files_to_sweep(connection: Connection, *, limit: int) -> list[StoredFile]:
    """Return the rows of files that have had objects of replaced chunks for some time."""
    due = (job_files.c.sweep_at < DatabaseNow(), job_files.c.deleted_at.is_(None))
    statement = select(job_files).where(*due, job_files.c.leased_until < DatabaseNow())
    return fetch(connection, StoredFile, statement.order_by(job_files.c.sweep_at).limit(limit))


def record_sweep(connection: Connection, file_id: int, token: str) -> None:
    """Record that a file has no objects without a chunk, and give the lease back."""
    mine = and_(job_files.c.id == file_id, job_files.c.lease == token)
    connection.execute(update(job_files).where(mine).values(sweep_at=None, lease="", leased_until=0.0))


def forget_file(connection: Connection, file_id: int, token: str) -> None:
    """Delete the row of a file whose objects are deleted, and those of its chunks."""
    mine = and_(job_files.c.id == file_id, job_files.c.lease == token)
    connection.execute(delete(chunks).where(chunks.c.file_id.in_(select(job_files.c.id).where(mine))))
    connection.execute(delete(job_files).where(mine))


# --- the storage itself -----------------------------------------------------------------------------------------------


def storage_row(connection: Connection, *, new: str) -> StorageRow:
    """Return identity and is_marked of the platform's storage; the first time the identity becomes `new`."""
    found = fetch_first(connection, StorageRow, select(storage))
    if found is None:
        with contextlib.suppress(IntegrityError), connection.begin_nested():  # another manager came first
            connection.execute(insert(storage).values(id=1, identity=new))
        found = fetch_one(connection, StorageRow, select(storage))
    return found


def record_marker(connection: Connection) -> None:
    """Record that the storage has its marker."""
    connection.execute(update(storage).values(is_marked=True))


# --- listings ---------------------------------------------------------------------------------------------------------


def file_folders(connection: Connection, kind: str, project: str | None = None) -> list[FileFolder]:
    """Return the projects, or the spiders of a project, that have files of a kind."""
    seen = (job_files.c.kind == kind, job_files.c.deleted_at.is_(None))
    name = projects.c.name if project is None else jobs.c.spider
    statement = (
        select(name.label("name"), func.max(job_files.c.changed_at).label("changed_at"))
        .select_from(job_files)
        .join(jobs, jobs.c.id == job_files.c.job_id)
        .join(projects, projects.c.id == jobs.c.project_id)
        .where(*seen, *([] if project is None else [projects.c.name == project]))
    )
    return fetch(connection, FileFolder, statement.group_by(name))


def files_of_spider(connection: Connection, kind: str, project: str, spider: str, *, limit: int) -> list[FileOfJob]:
    """Return the files of a kind, those of the latest jobs first."""
    columns = (job_files.c.length, job_files.c.changed_at, job_files.c.attempt)
    statement = (
        select(*columns, jobs.c.file_name, jobs.c.earlier_attempts)
        .join(jobs, jobs.c.id == job_files.c.job_id)
        .join(projects, projects.c.id == jobs.c.project_id)
        .where(projects.c.name == project, jobs.c.spider == spider)
        .where(job_files.c.kind == kind, job_files.c.deleted_at.is_(None))
    )
    return fetch(connection, FileOfJob, statement.order_by(jobs.c.id.desc()).limit(limit))


def job_of_file(connection: Connection, project: str, spider: str, file_name: str) -> Job | None:
    """Return the row of the job whose files have a name. None: there is none."""
    named = (projects.c.name == project, jobs.c.spider == spider, jobs.c.file_name == file_name)
    return fetch_first(connection, Job, WITH_PROJECT.where(*named))
