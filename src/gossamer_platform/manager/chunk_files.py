"""Files of jobs that run on other machines, as readers see them: the chunks of `ChunkStore` behind JobFiles.

Fixed: the number of an attempt that ran, from 1, is translated into that of AttemptId, which also counts attempts that
a node returned without starting them.
"""

import time
from typing import Final

from gossamer_platform.manager.chunk_store import ChunkStore
from gossamer_platform.manager.files import FileKind, JobPlaces
from gossamer_platform.state.chunks import READING_SECONDS, FileKey
from gossamer_platform.state.jobs import Job

_RENEWALS: Final = 3
"""Times that a reader renews its claim within the time for which it is valid. Must be at least 2."""


class ChunkFiles:
    """Implements JobFiles for a manager whose nodes are elsewhere."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store

    def places(self, job: Job) -> JobPlaces:
        """Leave the places of the files to the node."""
        return JobPlaces(output="", items="", arguments={"_job": job.name}, settings={})

    def delete(self, job: Job, kind: FileKind) -> None:
        """End the logs or the items of a job for clients; they are deleted when nothing reads them any more."""
        self._store.hide([job.id], kind)

    def open(self, job: Job, kind: FileKind, attempt: int) -> "OpenChunkFile | None":
        """Begin to read a file. None: there is no such file."""
        number = _number(job, attempt)
        key = FileKey(job.id, number, kind)
        row = self._store.find(key)
        return None if row is None else OpenChunkFile(self._store, key, row.id)


class OpenChunkFile:
    """Implements OpenJobFile."""

    def __init__(self, store: ChunkStore, key: FileKey, file_id: int) -> None:
        self._store = store
        self._key = key
        self._file_id = file_id
        self._claimed_at = time.monotonic()
        """Time of the last claim; that of the opening counts as one, because a deletion waits longer than that."""

    def length(self) -> int:
        """Return the number of bytes that are there now."""
        row = self._store.find(self._key)
        return 0 if row is None else row.length

    def modified_at(self) -> float:
        """Return the time of the last change, in seconds since 1970."""
        row = self._store.find(self._key)
        return 0.0 if row is None else row.changed_at

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`, fewer if the file ends before."""
        now = time.monotonic()
        if now - self._claimed_at > READING_SECONDS / _RENEWALS:
            self._claimed_at = now
            self._store.keep_reading(self._file_id)
        return self._store.read(self._file_id, start, stop)

    def near_line(self, line: int) -> tuple[int, int]:
        """Return an offset at or before the begin of a line, and the number of ends of lines before it."""
        return self._store.near_line(self._file_id, line)

    def close(self) -> None:
        """Do nothing: a claim ends by itself."""


def _number(job: Job, attempt: int) -> int:
    """Return the number that AttemptId has for an attempt that ran, counted from 1; 0: the last."""
    if 0 < attempt <= len(job.earlier_attempts):
        return int(job.earlier_attempts[attempt - 1]["attempt"])
    return job.attempt
