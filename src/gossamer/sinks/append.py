"""One file that many processes append whole batches to: locked, repaired, flushed."""

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gossamer.errors import SinkError, SinkFull
from gossamer.sinks.framing import Framing

_FULL = {errno.ENOSPC, errno.EDQUOT}


class AppendFile:
    """Blocking; for one thread of one process at a time (the lock is between processes). Opened at the first `append`.

    The lock is `flock` on the file itself: the kernel lets it go when its holder dies, however it dies. A file that was
    moved away meanwhile is made anew. `head` makes the units that a new file begins with.
    """

    def __init__(self, path: Path, framing: Framing, head: Callable[[], Sequence[bytes]] = tuple) -> None:
        self.path = path
        self.framing = framing
        self.head = head
        self._fd = -1
        self._whole = -1
        """Up to here the file is known to be whole; -1 before the first look."""

    def append(self, units: Sequence[bytes]) -> None:
        """Append these units in one piece and return when they are on the disk; raises as `Sink.write` does."""
        with border(self.path), self._locked() as fd:
            glue = self._cut_torn_tail(fd)
            begin = self._whole
            packed = glue + self.framing.pack([*self.head(), *units] if begin == 0 else units)
            try:
                _write_at(fd, packed, begin)
                flush(fd)
            except OSError:
                # What is half written must not count; if even this fails, the next append cuts it.
                with suppress(OSError):
                    os.ftruncate(fd, begin)
                self._whole = -1
                raise
            self._whole = begin + len(packed)

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
            self.close()  # it was renamed or deleted while we waited or wrote
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
    flags = os.O_RDWR | os.O_CLOEXEC
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


def _write_at(fd: int, packed: bytes, offset: int) -> None:
    rest = memoryview(packed)
    while rest:
        written = os.pwrite(fd, rest, offset)
        offset += written
        rest = rest[written:]
