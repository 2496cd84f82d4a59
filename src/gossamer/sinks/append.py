"""A local file to which many processes append whole batches: locked, repaired, flushed to the disk.

A unit is a group of whole lines, or one archive record; a framing (`sinks/framing.py`) packs the units of a batch. A
torn tail is a part of a batch at the end of a file, left by a process that was killed. A ledger, a small file of its
own, counts the records, so that the loss of records that were written is noticed.

Fixed: the order of `AppendFile.append` (lock, cut off a torn tail, write, flush, count), because a process may be
killed between any two steps, and a batch may be reported as written only when it is on the disk. Also fixed: the form
of a ledger's entries.
"""

import errno
import fcntl
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gossamer.errors import SinkError, SinkFull
from gossamer.model.record import Output
from gossamer.sinks.base import SinkThread
from gossamer.sinks.framing import FileFormat, Framing, read_at
from gossamer.storage.files import flush, flush_folder, is_at, make_folder

_ENTRY = struct.Struct("<QQQ")
"""Stored form of a `_LedgerEntry`. Fixed: a run that is resumed continues its ledger."""


class _LedgerEntry(NamedTuple):
    """State of an output after a batch."""

    inode: int
    end: int
    """Size of the output in bytes."""
    records: int
    """Number of records that this crawl has written to the output so far."""


class Ledger:
    """Counts the records that a crawl wrote to one output: an entry for each durable batch.

    All processes that write to the output share the ledger's file. That file is not flushed: after a power cut it may
    lack its last entries, so it never claims more records than were written. When an output was renamed, its records
    are not lost; the ledger starts again with the file that takes its place. Blocking; for one thread.
    """

    def __init__(self, path: Path | None) -> None:
        """`path`: file for the entries. None: the ledger covers only this process and ends with it."""
        self._path = path
        self._fd = -1

    def note(self, output: int, begin: int, end: int, records: int) -> None:
        """Record that a batch of `records` records was written to the output (a file descriptor), between the offsets
        `begin` and `end`."""
        inode = os.fstat(output).st_ino
        with self._locked():
            last = self._last()
            if last is None or last.inode != inode:
                last = _LedgerEntry(inode, begin, 0)
                self._restart(last)
            self._append(_LedgerEntry(inode, end, last.records + records))

    def end(self) -> int:
        """Return the size in bytes that the output must have at least; 0 without an entry."""
        with self._locked():
            last = self._last()
        return last.end if last else 0

    def missing(
        self, path: Path, framing: Framing, output: int, intact: int, *, moved_file: os.stat_result | None
    ) -> int:
        """Return the number of records that were written and are no longer in the output. Each is returned once.

        - The output is as long as it was: none.
        - It exists under another name: none; the ledger starts again.
        - It was truncated: those behind its present end.
        - It was deleted, or replaced by another file: all.

        `output`: file descriptor of the file at `path`, -1 if there is none. `intact`: size of its valid part in bytes.
        `moved_file`: the file that this process had open and that is no longer at `path`; None: there is none.
        """
        with self._locked():
            last = self._last()
            if last is None:
                return 0
            inode = os.fstat(output).st_ino if output >= 0 else -1
            was_moved = moved_file is not None and moved_file.st_ino == last.inode  # the file that the ledger counts
            if output >= 0 and intact >= last.end and not was_moved:
                return 0
            if _is_renamed(path, last, moved_file if was_moved else None):
                self._restart()
                return 0
            if inode == last.inode and not was_moved:  # truncated
                remaining = self._remaining(framing, output, intact)
            else:  # deleted, or replaced by another file
                remaining = _LedgerEntry(inode, 0, 0)
            # What is missing must leave the ledger, or the next call would return it again.
            self._restart(remaining if remaining.records else None)
            return last.records - remaining.records

    def delete(self) -> None:
        """Delete the entries, because the crawl is finished."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _remaining(self, framing: Framing, output: int, intact: int) -> _LedgerEntry:
        """Return the state of an output that was truncated to `intact` bytes."""
        for entry in self._entries_backwards():
            if entry.end <= intact:
                return _LedgerEntry(entry.inode, intact, entry.records + framing.count(output, entry.end, intact))
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
            import tempfile  # imported late, as below: it loads every kind of compression

            with tempfile.TemporaryFile() as nameless:  # exists until its last descriptor is closed
                return os.dup(nameless.fileno())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_renamed(path: Path, last: _LedgerEntry, moved_file: os.stat_result | None) -> bool:
    """Return whether the output still exists under another name.

    For a file that was open (`moved_file`), its link count tells; else its folder is searched for its inode.
    """
    if moved_file is not None:
        return moved_file.st_nlink > 0
    try:
        with os.scandir(path.parent) as entries:
            return any(
                entry.inode() == last.inode and entry.name != path.name and entry.stat().st_size >= last.end
                for entry in entries
            )
    except FileNotFoundError:
        return False


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
"""Errors that pass when a person makes room, so that the crawl waits instead of ending."""


class AppendFile:
    """A file that several processes append to. Blocking; for one thread of each process. Opened at the first `append`.

    The lock is `flock` on the file itself: fixed, because processes of other versions may write to the same file. The
    kernel releases the lock when its holder dies. A file that was moved or deleted in the meantime is made anew.
    """

    def __init__(
        self,
        path: Path,
        framing: Framing,
        head: Callable[[], Sequence[bytes]],
        *,
        ledger: Ledger | None = None,
    ) -> None:
        """`head` returns the units that a new file begins with. `ledger` counts the records. None: lost records are not
        noticed."""
        self.path = path
        self.framing = framing
        self.head = head
        self._fd = -1  # closed
        self._intact = -1
        """Size of the part of the file that is known to be intact; -1: not known."""
        self._ledger = ledger
        self._moved_file: os.stat_result | None = None
        """The file that was open until this process found another file, or none, at `path`."""
        self.missing: deque[int] = deque()
        """Numbers of lost records, one for each time that this process noticed a loss (of any process's records).
        Other threads may take from it."""

    def append(self, units: Sequence[bytes], *, records: int = 0) -> None:
        """Append these units (see `Framing`) as one batch, and return when they are on the disk. Raises
        SinkError; SinkFull when the disk is full.

        `records`: number of records in the batch, for the ledger.
        """
        with translate_os_errors(self.path), self._locked() as fd:
            while not self._append(fd, units, records):
                self._intact = -1  # not known any more: look for the end again

    def _append(self, fd: int, units: Sequence[bytes], records: int) -> bool:
        """Append the batch. Returns False when another program changed the file's size meanwhile, so that it must be
        appended again. If the batch is whole at the file's end, it is taken back; otherwise parts of it may stay."""
        separator = self._cut_torn_tail(fd)
        self._count_missing(fd, self._intact)
        begin = self._intact
        packed = separator + self.framing.pack([*self.head(), *units] if begin == 0 else units)
        try:
            _write(fd, packed)
            flush(fd)
        except OSError:
            # Remove what is half written. If this fails too, the next append removes it.
            with suppress(OSError):
                os.ftruncate(fd, min(begin, os.fstat(fd).st_size))
            self._intact = -1
            raise
        size = os.fstat(fd).st_size
        if size != begin + len(packed):
            # Usually the file was truncated before the write, so the batch is behind what is left. Take it back.
            before = size - len(packed)
            if before >= 0 and read_at(fd, before, len(packed)) == packed:
                os.ftruncate(fd, before)
            return False
        self._intact = size
        if self._ledger is not None:
            with suppress(OSError):  # the batch is durable and must not fail for its count, which may then be too low
                self._ledger.note(fd, begin, size, records)
        return True

    def verify(self) -> None:
        """Look for lost records, as `append` does, without writing."""
        if self._ledger is None:
            return
        with translate_os_errors(self.path):
            if self._fd >= 0 and not is_at(self._fd, self.path):
                self._let_go()
            if not self.path.exists():
                self._count_missing(-1, 0)
                return
            with self._locked() as fd:
                intact = os.fstat(fd).st_size
                if intact < self._ledger.end():
                    self._cut_torn_tail(fd)
                    intact = self._intact
                self._count_missing(fd, intact)

    def _count_missing(self, fd: int, intact: int) -> None:
        """Add the records that are gone, according to the ledger, to `missing`. `fd` -1: there is no file."""
        if self._ledger is not None:
            missing = self._ledger.missing(self.path, self.framing, fd, intact, moved_file=self._moved_file)
            self._moved_file = None
            if missing:
                self.missing.append(missing)

    def repair(self) -> None:
        """Cut off a torn tail that a killed writer left. Does nothing when there is no file."""
        if self.path.exists():
            with translate_os_errors(self.path), self._locked() as fd:
                self._cut_torn_tail(fd)

    def close(self) -> None:
        """Close the file. `append` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._intact = -1
        if self._ledger is not None:
            self._ledger.close()

    def _let_go(self) -> None:
        """Close a file that is no longer at `path`, and remember it for the ledger."""
        self._moved_file = os.fstat(self._fd)
        os.close(self._fd)
        self._fd = self._intact = -1

    def _cut_torn_tail(self, fd: int) -> bytes:
        """Cut off a torn tail, set `_intact` to the file's size, and return what the next batch must begin with."""
        size = os.fstat(fd).st_size
        if size == self._intact:
            return b""
        # A file that is shorter than before was truncated by another program, so its old size proves nothing.
        known = 0 <= self._intact <= size
        tail = self.framing.tail(fd, self._intact if known else 0, size, verify=not known)
        if tail.end < size:
            os.ftruncate(fd, tail.end)
        self._intact = tail.end
        return tail.separator

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Context that has the file at `path` open and locked, and yields its descriptor. Makes it if there is none."""
        while True:
            if self._fd < 0:
                self._fd = _open(self.path)
                self._intact = -1
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if is_at(self._fd, self.path):
                break
            self._let_go()  # renamed or deleted while this process waited for the lock or wrote
        try:
            yield self._fd
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


@contextmanager
def translate_os_errors(path: Path | str) -> Iterator[None]:
    """Context that turns the operating system's errors into SinkFull or SinkError. `path` names the output in them."""
    try:
        yield
    except OSError as exc:
        kind = SinkFull if exc.errno in _DISK_FULL else SinkError
        raise kind(f"{path}: {exc.strerror or exc}") from exc


def check_folder(folder: Path) -> tuple[Path, str]:
    """Return the folder in which something is made first, this one or the nearest above it that exists, and why nothing
    can be made there: `is no folder`, `may not be written (Permission denied)`. Empty: it can."""
    folder = folder.absolute()
    while not os.path.exists(folder):  # not Path.exists, which fails below a folder that may not be read
        folder = folder.parent
    if not folder.is_dir():
        return folder, "is no folder"
    try:
        # Permission bits are not proof: nothing can be made in /proc. So make a file, without a name where possible.
        _make_nameless_file(folder)
    except OSError as error:
        return folder, f"may not be written ({error.strerror})"
    return folder, ""


def _make_nameless_file(folder: Path) -> None:
    """Make a file in a folder that is gone when this returns. Raises OSError where that is not possible."""
    with suppress(AttributeError, OSError):  # no Linux, a file system without such files, or none can be made at all
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
        return
    import tempfile

    tempfile.TemporaryFile(dir=folder).close()


def _open(path: Path) -> int:
    """Open a file for appending, and make it if there is none. O_APPEND: if another program truncates the file, a write
    still goes to its end and leaves no gap of zeros."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        make_folder(path.parent)
        fd = os.open(path, flags | os.O_CREAT, 0o666)
        flush_folder(path.parent)
        return fd


def _write(fd: int, packed: bytes) -> None:
    """Write all bytes; one call to the operating system may write fewer."""
    rest = memoryview(packed)
    while rest:
        rest = rest[os.write(fd, rest) :]


OnMissing = Callable[[str, int], None]
"""Callback `on_missing(path, records)`: this number of records, which were durable in the output, is gone."""


class FileSink:
    """Sink that appends each batch to a local file. Other processes may append to the same file. Implements Sink
    (sinks/base.py).

    When the file was renamed, the sink starts a new one. When it was deleted or truncated, the sink calls `on_missing`
    and continues.
    """

    def __init__(
        self, path: Path, file_format: FileFormat, *, ledger: Ledger | None, on_missing: OnMissing | None
    ) -> None:
        self.path = path
        self.wants_wire = file_format.wants_wire
        self.wants_text = file_format.wants_text
        self._encode = file_format.encode
        self._file = AppendFile(path, file_format.framing(), file_format.head, ledger=ledger)
        self._thread = SinkThread("sink-file")
        self._on_missing = on_missing

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            try:
                await self._thread.run(lambda: self._file.append(self._encode(outputs), records=len(outputs)))
            finally:
                self._report_missing()

    async def verify(self) -> None:
        """Look for lost records now, and call `on_missing` for them."""
        await self._thread.run(self._file.verify)
        self._report_missing()

    async def close(self) -> None:
        try:
            await self.verify()
        finally:
            await self._thread.run(self._file.close)

    def _report_missing(self) -> None:
        while self._file.missing:
            missing = self._file.missing.popleft()
            if self._on_missing is not None:
                self._on_missing(str(self.path), missing)
