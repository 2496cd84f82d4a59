"""Counts what a crawl wrote to one output, so that records that vanish are noticed."""

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gossamer.sinks.framing import Framing

_ENTRY = struct.Struct("<QQQ")


class _LedgerEntry(NamedTuple):
    """The state of the output after one batch."""

    inode: int
    end: int
    """Size of the output in bytes."""
    records: int
    """Number of records that this crawl wrote to it so far."""


class Ledger:
    """One entry of 24 bytes for each batch that is durable in an output, in a file that all its writers share.

    The ledger itself is not flushed: after a power cut it may lack its last entries, so it never claims more records
    than were written. An output that was renamed is complete, in another place; the ledger begins again with the file
    that takes its place. Blocking; for one thread.
    """

    def __init__(self, path: Path | None) -> None:
        """`path`: where the entries are kept. None: only as long as this process lives, and for it alone."""
        self._path = path
        self._fd = -1

    def note(self, output: int, begin: int, end: int, records: int) -> None:
        """A batch of so many records stands between these offsets of the output (a file descriptor)."""
        inode = os.fstat(output).st_ino
        with self._locked():
            last = self._last()
            if last is None or last.inode != inode:
                last = _LedgerEntry(inode, begin, 0)
                self._restart(last)
            self._append(_LedgerEntry(inode, end, last.records + records))

    def end(self) -> int:
        """Bytes that the output has at least; 0 where nothing is known of it."""
        with self._locked():
            last = self._last()
        return last.end if last else 0

    def missing(self, path: Path, framing: Framing, output: int, whole: int, *, left: os.stat_result | None) -> int:
        """Number of records that were written and are no longer in the output; each is counted once.

        `output`, `whole`: the file at `path` (-1: there is none) and up to where it is sound. `left`: the file this
        process had open and that is no longer at `path`.
        """
        with self._locked():
            last = self._last()
            if last is None:
                return 0
            found = os.fstat(output).st_ino if output >= 0 else -1
            replaced = left is not None and left.st_ino == last.inode
            if output >= 0 and whole >= last.end and not replaced:
                return 0
            if _is_renamed(path, last, left if replaced else None):
                self._restart()
                return 0
            kept = (
                self._kept(framing, output, whole)
                if found == last.inode and not replaced
                else _LedgerEntry(found, 0, 0)
            )
            self._restart(kept if kept.records else None)
            return last.records - kept.records

    def forget(self) -> None:
        """Remove the entries: the crawl is finished."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the file go. The next call opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _kept(self, framing: Framing, output: int, whole: int) -> _LedgerEntry:
        """What is left of an output that was cut."""
        for entry in self._entries_backwards():
            if entry.end <= whole:
                return _LedgerEntry(entry.inode, whole, entry.records + framing.count(output, entry.end, whole))
        return _LedgerEntry(0, 0, 0)

    def _entries_backwards(self) -> Iterator[_LedgerEntry]:
        for number in reversed(range(self._count())):
            yield self._entry(number)

    def _last(self) -> _LedgerEntry | None:
        count = self._count()
        return self._entry(count - 1) if count else None

    def _entry(self, number: int) -> _LedgerEntry:
        return _LedgerEntry._make(_ENTRY.unpack(os.pread(self._fd, _ENTRY.size, number * _ENTRY.size)))

    def _count(self) -> int:
        return os.fstat(self._fd).st_size // _ENTRY.size

    def _append(self, entry: _LedgerEntry) -> None:
        os.pwrite(self._fd, _ENTRY.pack(*entry), self._count() * _ENTRY.size)

    def _restart(self, first: _LedgerEntry | None = None) -> None:
        os.ftruncate(self._fd, 0)
        if first is not None:
            self._append(first)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._fd < 0:
            self._fd = self._open()
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _open(self) -> int:
        if self._path is None:
            with tempfile.TemporaryFile() as nameless:
                return os.dup(nameless.fileno())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_renamed(path: Path, last: _LedgerEntry, left: os.stat_result | None) -> bool:
    """Whether the output has another name now: known of a file that was open, else looked for in its folder."""
    if left is not None:
        return left.st_nlink > 0
    try:
        with os.scandir(path.parent) as entries:
            return any(
                entry.inode() == last.inode and entry.name != path.name and entry.stat().st_size >= last.end
                for entry in entries
            )
    except FileNotFoundError:
        return False
