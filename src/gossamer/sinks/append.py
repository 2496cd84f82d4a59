"""One file that many processes append whole batches to: locked, repaired, flushed."""

import errno
import fcntl
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gossamer.errors import SinkError, SinkFull
from gossamer.model.record import Output
from gossamer.sinks.base import SinkThread
from gossamer.sinks.formats import FileFormat
from gossamer.sinks.framing import Framing, read_at
from gossamer.sinks.ledger import Ledger

_FULL = {errno.ENOSPC, errno.EDQUOT}


class AppendFile:
    """Blocking; for one thread of one process at a time (the lock is between processes). Opened at the first `append`.

    The lock is `flock` on the file itself: the kernel lets it go when its holder dies, however it dies. A file that was
    moved away or deleted meanwhile is made anew. `head` makes the units that a new file begins with.
    """

    def __init__(
        self,
        path: Path,
        framing: Framing,
        head: Callable[[], Sequence[bytes]] = tuple,
        *,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger` counts what is written; None: nothing is counted, and nothing that vanishes is noticed."""
        self.path = path
        self.framing = framing
        self.head = head
        self._fd = -1
        self._whole = -1
        """Up to here the file is known to be whole; -1 before the first look."""
        self._ledger = ledger
        self._left: os.stat_result | None = None
        """The file that was open until it was found no longer to be at `path`."""
        self.missing: deque[int] = deque()
        """Each time that this process found records missing, which any process wrote: how many. Other threads may take
        from it."""

    def append(self, units: Sequence[bytes], *, records: int = 0) -> None:
        """Append these units, which hold so many records, in one piece and return when they are on the disk; raises as
        `Sink.write` does."""
        with border(self.path), self._locked() as fd:
            while not self._append(fd, units, records):
                self._whole = -1

    def _append(self, fd: int, units: Sequence[bytes], records: int) -> bool:
        """False: somebody cut the file meanwhile; nothing of the batch is in it."""
        glue = self._cut_torn_tail(fd)
        self._count_missing(fd, self._whole)
        begin = self._whole
        packed = glue + self.framing.pack([*self.head(), *units] if begin == 0 else units)
        try:
            _write(fd, packed)
            flush(fd)
        except OSError:
            # What is half written must not count; if even this fails, the next append cuts it.
            with suppress(OSError):
                os.ftruncate(fd, min(begin, os.fstat(fd).st_size))
            self._whole = -1
            raise
        size = os.fstat(fd).st_size
        if size != begin + len(packed):
            before = size - len(packed)
            if before >= 0 and read_at(fd, before, len(packed)) == packed:
                os.ftruncate(fd, before)
            return False
        self._whole = size
        if self._ledger is not None:
            with suppress(OSError):  # a count must not make a durable batch fail; it may be too low then
                self._ledger.note(fd, begin, size, records)
        return True

    def verify(self) -> None:
        """Count what is missing, as `append` does, without writing a record."""
        if self._ledger is None:
            return
        with border(self.path):
            if self._fd >= 0 and not _is_at(self._fd, self.path):
                self._leave()
            if not self.path.exists():
                self._count_missing(-1, 0)
                return
            with self._locked() as fd:
                whole = os.fstat(fd).st_size
                if whole < self._ledger.end():
                    self._cut_torn_tail(fd)
                    whole = self._whole
                self._count_missing(fd, whole)

    def _count_missing(self, fd: int, whole: int) -> None:
        if self._ledger is not None:
            missing = self._ledger.missing(self.path, self.framing, fd, whole, left=self._left)
            self._left = None
            if missing:
                self.missing.append(missing)

    def repair(self) -> None:
        """Cut what a killed writer left torn, if anything. Nothing happens to a file that is not there."""
        if self.path.exists():
            with border(self.path), self._locked() as fd:
                self._cut_torn_tail(fd)

    def close(self) -> None:
        """Let the file go. `append` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._whole = -1
        if self._ledger is not None:
            self._ledger.close()

    def _leave(self) -> None:
        """Let go of a file that is no longer at `path`."""
        self._left = os.fstat(self._fd)
        os.close(self._fd)
        self._fd = self._whole = -1

    def _cut_torn_tail(self, fd: int) -> bytes:
        """Make `_whole` the file's size; return what the next batch must begin with."""
        size = os.fstat(fd).st_size
        if size == self._whole:
            return b""
        # Shorter than it was: somebody else cut it, and nothing that was known of it holds.
        known = 0 <= self._whole <= size
        tail = self.framing.tail(fd, self._whole if known else 0, size, doubt=not known)
        if tail.end < size:
            os.ftruncate(fd, tail.end)
        self._whole = tail.end
        return tail.glue

    @contextmanager
    def _locked(self) -> Iterator[int]:
        while True:
            if self._fd < 0:
                self._fd = _open(self.path)
                self._whole = -1
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if _is_at(self._fd, self.path):
                break
            self._leave()  # it was renamed or deleted while we waited or wrote
        try:
            yield self._fd
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


@contextmanager
def border(path: Path | str) -> Iterator[None]:
    """Where the operating system's errors become the sinks' own."""
    try:
        yield
    except OSError as exc:
        kind = SinkFull if exc.errno in _FULL else SinkError
        raise kind(f"{path}: {exc.strerror or exc}") from exc


def flush(fd: int) -> None:
    """Return when the file's bytes survive a power cut."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync alone leaves them in the drive's cache there
    else:
        os.fdatasync(fd)


def flush_folder(path: Path) -> None:
    """Return when the names in this folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make the folder and its parents, durably. Nothing happens if it is there."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        flush_folder(path.parent)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC  # to the end, even where somebody cuts the file meanwhile
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        make_folder(path.parent)
        fd = os.open(path, flags | os.O_CREAT, 0o666)
        flush_folder(path.parent)
        return fd


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _write(fd: int, packed: bytes) -> None:
    rest = memoryview(packed)
    while rest:
        rest = rest[os.write(fd, rest) :]


Missing = Callable[[str, int], None]
"""Told of an output from which so many records vanished that were durable in it."""


class FileSink:
    """Appends each batch to one file, which other processes may append to as well; durable when `write` returns.

    A file that was renamed is followed by a new one. Where it was deleted or cut, `on_missing` is told so, and writing
    goes on.
    """

    def __init__(
        self, path: Path, kind: FileFormat, *, ledger: Ledger | None = None, on_missing: Missing | None = None
    ) -> None:
        self.path = path
        self.wants_wire = kind.wants_wire
        self._encode = kind.encode
        self._file = AppendFile(path, kind.framing(), kind.head, ledger=ledger)
        self._thread = SinkThread("sink-file")
        self._on_missing = on_missing

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            try:
                await self._thread.run(lambda: self._file.append(self._encode(outputs), records=len(outputs)))
            finally:
                self._tell()

    async def verify(self) -> None:
        """Tell `on_missing` now of what vanished."""
        await self._thread.run(self._file.verify)
        self._tell()

    async def close(self) -> None:
        try:
            await self.verify()
        finally:
            await self._thread.run(self._file.close)

    def _tell(self) -> None:
        while self._file.missing:
            missing = self._file.missing.popleft()
            if self._on_missing is not None:
                self._on_missing(str(self.path), missing)
