"""Keeps the logs and items of jobs on other machines: receives them in parts, merges the parts, and reads them.

    files/JOB/ATTEMPT/KIND/OFFSET-RANDOM     objects of the storage

A node sends each file as bytes from an offset on, and repeats what was not confirmed. A part becomes an object first
and a row of the database then, so a kill in between leaves an object that nothing names; `maintain` deletes it later.
All methods wait for the storage and the database: call them in a thread.

Fixed: the begin of the names up to the offset, by which `maintain` knows objects that may still get a row; and the
order of object and row.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from gossamer.storage.line_index import entry_before, index_lines, join_indexes
from gossamer.storage.objects import ObjectMissing, ObjectStorage, StorageUnavailable
from gossamer_platform.link import UnknownAttempt
from gossamer_platform.state import chunks
from gossamer_platform.state.chunks import MERGED_BYTES, FileKey, NewChunk, ReceivedPart
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tables import Chunk, StoredFile

log = logging.getLogger("gossamer.platform.manager")

_EXCESS_BYTES: Final = 64 * 1024 * 1024
"""Bytes beyond a job's limit that are kept: its node notices the limit a moment later."""
_BATCH: Final = 100
"""Files that are looked at in one go."""
_FOLDER: Final = "files"
"""First part of the names of objects. Fixed."""


class ChunkStore:
    """Logs and items in one storage and one database."""

    def __init__(self, database: StateDatabase, storage: ObjectStorage) -> None:
        self._database = database
        self._storage = storage

    # --- receiving ----------------------------------------------------------------------------------------------------

    def append(self, node: str, key: FileKey, offset: int, content: bytes, *, lost: bool = False) -> int:
        """Keep a part of a node's file from a byte offset on, and return the end of what is kept.

        What is known already is left out. Of a part behind the end nothing is kept, and the node sends from the end on;
        but with `lost` the bytes in between do not exist any more, and a text with their number takes their place.
        Raises UnknownAttempt, or StorageUnavailable: then the call may be repeated.
        """
        limit = self._check_owner(node, key)
        while True:
            file = self._database.read_now(lambda connection: chunks.find_file(connection, key))
            seen = 0 if file is None else file.received
            end = offset + len(content)
            if file is not None and (file.deleted_at is not None or (limit and seen >= limit)):
                return max(seen, end)  # what is not kept anyway need not be sent again
            if end <= seen or (offset > seen and not lost):
                return seen
            if self._add(key, content[max(0, seen - offset) :], ReceivedPart(seen, end, max(0, offset - seen))):
                return end
            self._check_owner(node, key)  # another call was faster, or the job was deleted

    def _check_owner(self, node: str, key: FileKey) -> int:
        """Return the length from which a file is cut off; 0: none. Raises UnknownAttempt."""
        row = self._database.read_now(lambda connection: chunks.attempt_owner(connection, key.job, key.attempt))
        owner = None if row is None else row.node
        if row is not None and row.attempt != key.attempt:
            nodes = (each["node"] for each in row.earlier_attempts if each["attempt"] == key.attempt)
            owner = next(nodes, None)
        if row is None or owner != node:
            raise UnknownAttempt(f"attempt {key.attempt} of job {key.job} is none of the node {node}, or was deleted")
        return row.file_limit + _EXCESS_BYTES if row.file_limit else 0

    def _add(self, key: FileKey, content: bytes, part: ReceivedPart) -> bool:
        if part.missing:
            content = _marker(key.kind, part.missing) + content
        chunk = self._write(key, part.seen, content)
        try:
            is_added = self._database.write_now(lambda c: chunks.add_chunk(c, key, chunk, part))
        except Exception:
            # The row may have been committed, so the object must stay. `maintain` deletes it if nothing names it.
            log.warning("a part of the %s of job %d may have been kept for nothing", key.kind, key.job)
            raise
        if not is_added:
            self._storage.delete(chunk.object)
        return is_added

    def _write(self, key: FileKey, offset: int, content: bytes) -> NewChunk:
        name = f"{_folder(key)}/{offset:020d}-{uuid.uuid4().hex}"
        self._storage.put(name, content)
        lines, entries = index_lines(content)
        return NewChunk(name, len(content), lines, entries)

    # --- reading ------------------------------------------------------------------------------------------------------

    def find(self, key: FileKey) -> StoredFile | None:
        """Return the row of a file that clients may see. None: there is none."""
        row = self._database.read_now(lambda connection: chunks.find_file(connection, key))
        return None if row is None or row.deleted_at is not None else row

    def read(self, file_id: int, start: int, stop: int) -> bytes:
        """Return the bytes of a file from `start` to `stop`, fewer if it ends before."""
        parts: list[bytes] = []
        while start < stop:
            content = self._read_chunk(file_id, start, stop)
            if not content:
                break
            parts.append(content)
            start += len(content)
        return b"".join(parts)

    def _read_chunk(self, file_id: int, start: int, stop: int) -> bytes:
        missing = ""
        while True:
            row = self._database.read_now(lambda connection: chunks.chunk_at(connection, file_id, start))
            if row is None:
                return b""
            try:
                return self._storage.read(row.object, start - row.offset, min(stop - row.offset, row.length))
            except ObjectMissing as error:
                if row.object == missing:
                    raise StorageUnavailable(f"{self._storage.address}: the object {row.object} is missing") from error
                missing = row.object  # the chunk may have been merged with others since

    def near_line(self, file_id: int, line: int) -> tuple[int, int]:
        """Return an offset at or before the begin of a line, numbered from 0, and the number of ends of lines before
        it. If that is the number of the line, the line begins at the offset."""
        row = self._database.read_now(lambda connection: chunks.chunk_of_line(connection, file_id, line))
        if row is None:
            return 0, 0
        found = entry_before(row.line_index, line - row.lines_before)
        return (row.offset, row.lines_before) if found is None else (row.offset + found[0], row.lines_before + found[1])

    def keep_reading(self, file_id: int) -> None:
        """Keep a file from being deleted for `chunks.READING_SECONDS`."""
        self._database.write_now(lambda connection: chunks.keep_reading(connection, file_id))

    # --- maintenance --------------------------------------------------------------------------------------------------

    def hide(self, job_ids: Sequence[int], kind: str) -> None:
        """End files of jobs for clients. `maintain` deletes their objects later."""
        self._database.write_now(lambda connection: chunks.hide_files(connection, job_ids, kind))

    def maintain(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Merge chunks, and delete objects that have no use any more, file by file until `is_stopping`. Raises
        StorageUnavailable."""
        for file_id, step in self._due():
            if is_stopping():
                break
            self._with_lease(file_id, step)

    def _due(self) -> Iterator[tuple[int, Any]]:
        """Yield the numbers of files that need something, each with the method that does it."""
        for file_id in self._database.read_now(lambda c: chunks.files_to_merge(c, limit=_BATCH)):
            yield file_id, self._merge
        for row in self._database.read_now(lambda c: chunks.files_to_sweep(c, limit=_BATCH)):
            yield row.id, self._sweep
        for row in self._database.read_now(lambda c: chunks.files_to_delete(c, limit=_BATCH)):
            yield row.id, self._delete

    def _with_lease(self, file_id: int, work: Any) -> None:
        token = uuid.uuid4().hex
        row = self._database.write_now(lambda connection: chunks.lease_file(connection, file_id, token))
        if row is None:
            return
        try:
            work(row, token)
        finally:
            self._database.write_now(lambda connection: chunks.release_file(connection, file_id, token))

    def _merge(self, file: StoredFile, token: str) -> None:
        group: list[Chunk] = []
        for row in self._chunks(file.id):
            if sum(each.length for each in group) + row.length > MERGED_BYTES:
                if not self._join(file, token, group):
                    return
                group = []
            group.append(row)
        if self._join(file, token, group):
            self._database.write_now(lambda c: chunks.record_merge(c, file.id, added=file.added))

    def _chunks(self, file_id: int) -> Iterator[Chunk]:
        """Yield the chunks of a file in their order."""
        after = -1
        while rows := self._database.read_now(partial(chunks.file_chunks, file_id=file_id, after=after)):
            yield from rows
            after = rows[-1].offset

    def _join(self, file: StoredFile, token: str, group: list[Chunk]) -> bool:
        """Replace chunks by one. Return False if the lease was lost."""
        if len(group) < 2:
            return True
        try:
            content = b"".join(self._storage.read(row.object, 0, row.length) for row in group)
        except ObjectMissing as error:
            # The other chunks and files go on. These chunks are tried again only when the file has new ones.
            what = f"the {file.kind} of job {file.job_id}, attempt {file.attempt}"
            log.warning("%s: %d chunks cannot be merged, because an object is missing: %s", what, len(group), error)
            return self._database.read_now(lambda connection: chunks.has_lease(connection, file.id, token))
        parts = self._database.read_now(lambda c: chunks.chunk_indexes(c, [row.id for row in group]))
        key = FileKey(file.job_id, file.attempt, file.kind)
        name = f"{_folder(key)}/{group[0].offset:020d}-{uuid.uuid4().hex}"
        self._storage.put(name, content)
        new = NewChunk(name, len(content), sum(row.lines for row in group), join_indexes(parts))
        return self._database.write_now(lambda c: chunks.replace_chunks(c, file.id, token, group, new))

    def _sweep(self, file: StoredFile, token: str) -> None:
        """Delete the objects of a file that no chunk names, except those that may still get one."""
        found = set(self._storage.names(_folder(FileKey(file.job_id, file.attempt, file.kind))))
        found.difference_update(row.object for row in self._chunks(file.id))
        # Asked after the listing and the rows: another manager that has had the lease since could have made an object
        # that is listed and whose row was not there yet.
        if not self._database.read_now(lambda connection: chunks.has_lease(connection, file.id, token)):
            return
        for name in found:
            # An object from the end on may be one that another call is about to add.
            if _offset(name) < file.received:
                self._storage.delete(name)
        self._database.write_now(lambda connection: chunks.record_sweep(connection, file.id, token))

    def _delete(self, file: StoredFile, token: str) -> None:
        for name in self._storage.names(_folder(FileKey(file.job_id, file.attempt, file.kind))):
            self._storage.delete(name)
        self._database.write_now(lambda connection: chunks.forget_file(connection, file.id, token))


def _folder(key: FileKey) -> str:
    return f"{_FOLDER}/{key.job}/{key.attempt}/{key.kind}"


def _offset(name: str) -> int:
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else 0


def _marker(kind: str, missing: int) -> bytes:
    """Return what takes the place of bytes that are lost. In items it ends a line that lacks its end."""
    return b"\n" if kind == "items" else f"\n[{missing} bytes of this log are lost]\n".encode()
