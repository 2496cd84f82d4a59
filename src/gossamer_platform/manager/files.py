"""Interface to the files of jobs: where a job writes its log and items, and how they are read and deleted.

Implemented by `scrapyd/files.py` for a folder. Fixed: a job has files of its own for each attempt; and nothing here may
wait for a project's code.
"""

import contextlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from gossamer_platform.state.jobs import Job


class JobPlaces(NamedTuple):
    """Places of a job's files, and what the job is told about them."""

    output: str
    """File for the log. Empty: a file of the attempt, which is deleted with it."""
    items: str
    """File for the items. Empty: items are not kept."""
    arguments: Mapping[str, str]
    """Arguments of the spider beside those of the client."""
    settings: Mapping[str, str]
    """Settings that precede those of the client."""
    enters: Sequence[str] = ()
    """Folders of the project on the way to its files, the outer ones first."""
    owns: Sequence[str] = ()
    """Folders of the job."""


class FileKind(StrEnum):
    """File of a job. Part of addresses: fixed."""

    LOG = "log"
    ITEMS = "items"


class OpenJobFile(Protocol):
    """A file of a job that is being read. Retention does not cut it off until it is closed. The methods wait for the
    disk or the network: call them in a thread."""

    def length(self) -> int:
        """Return the number of bytes that are there now."""

    def modified_at(self) -> float:
        """Return the time of the last change, in seconds since 1970."""

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`, fewer if the file ends before."""

    def near_line(self, line: int) -> tuple[int, int]:
        """Return an offset at or before the begin of a line, numbered from 0, and the number of ends of lines before
        it. If that is the number of the line, the line begins at the offset."""

    def close(self) -> None:
        """End the reading. May be repeated."""


class JobFiles(Protocol):
    """Decides where the files of jobs are."""

    def places(self, job: Job) -> JobPlaces:
        """Make folders for the files of a job that is about to start, and return their places. Each attempt that
        follows a failed one has files of its own."""

    def delete(self, job: Job, kind: FileKind) -> None:
        """Delete the logs or the items of all attempts of a job that has ended."""

    def open(self, job: Job, kind: FileKind, attempt: int) -> OpenJobFile | None:
        """Begin to read a file. `attempt`: number of an attempt that ran, from 1; 0: the last one. None: there is no
        such file."""


def read_part(files: JobFiles, job: Job, kind: FileKind, attempt: int, place: slice) -> bytes:
    """Return the bytes of a file from `place.start` to `place.stop`, or to its end. Empty: there is no such file."""
    file = files.open(job, kind, attempt)
    if file is None:
        return b""
    with contextlib.closing(file):
        return file.read(place.start, file.length() if place.stop is None else place.stop)
