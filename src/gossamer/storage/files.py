"""Local files that are there whole or not at all, also after a power cut."""

import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gossamer.errors import BadInput

_COPY_BYTES = 1024 * 1024
"""Bytes that are copied at a time."""

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of a file system that has no locks, such as NFS without lockd and some of FUSE."""


class FileInUse(BadInput):
    """Another process is writing the file."""


def write_whole(
    path: Path, content: bytes | IO[bytes], *, fresh: bool = False, mode: int = 0o666, flushes_folder: bool = True
) -> None:
    """Write a file, or replace it. A file object is copied from its begin.

    `fresh`: raise FileExistsError if there is one of this name. `mode`: rights before the umask. `flushes_folder`
    False: the caller calls `flush_folder` after it has written several files. Raises OSError.
    """
    new = path.with_name(f".{os.urandom(16).hex()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content.seek(0)
                while part := content.read(_COPY_BYTES):
                    file.write(part)
            file.flush()
            flush(file.fileno())
        if fresh:
            os.link(new, path)
        else:
            os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    if flushes_folder:
        flush_folder(path.parent)


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """Yield the path under which a file is written until it is complete, when the caller renames it: in a hidden folder
    beside `target`, which no other process has meanwhile. What a killed process left there is deleted.

    On a file system without locks, each process has a folder of its own. Raises FileInUse and OSError.
    """
    from shutil import rmtree  # late: a plain crawl does without it

    folder = target.absolute().with_name(f".{target.name}.part")
    try:
        lock = _locked(folder / f"{target.name}.lock")
    except BlockingIOError:
        raise FileInUse(f"{target} is being written by another command. Wait, or name another file.") from None
    if lock is None:
        folder = folder.with_name(f".{target.name}.{os.urandom(16).hex()}.part")
        folder.mkdir()
    try:
        _delete_parts(folder)
        yield folder / target.name
    finally:
        with suppress(OSError):
            _delete_parts(folder)  # before the lock: once that is gone, the next process has its own part here
        rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _delete_parts(folder: Path) -> None:
    from shutil import rmtree  # late, as above

    for part in folder.glob("*"):
        if part.is_dir():  # of a file that a killed process built inside its part
            rmtree(part)
        elif not part.name.endswith(".lock"):
            part.unlink()


def _locked(path: Path) -> int | None:
    """Make a file and its folder, and return its descriptor, which has the lock. None: the file system has no locks;
    nothing is left. Raises BlockingIOError if another process has the lock, and OSError."""
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
        except FileExistsError:  # a file, as earlier versions left it
            with suppress(FileNotFoundError, IsADirectoryError):  # another process was faster
                path.parent.unlink()
            continue
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the process that had the lock has deleted the folder
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in _NO_LOCKS:
                raise
            path.unlink(missing_ok=True)
            with suppress(OSError):  # there are parts of processes that did without a lock
                path.parent.rmdir()
            return None
        if is_at(fd, path):
            return fd
        os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    """Return whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def flush(fd: int) -> None:
    """Flush a file's contents to the disk, so that they survive a power cut."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync on macOS leaves the contents in the drive's cache
    else:
        os.fdatasync(fd)


def flush_folder(path: Path) -> None:
    """Flush a folder's entries to the disk, so that the names of its files survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and flush them to the disk. Does nothing if the folder exists."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        flush_folder(path.parent)
