"""Local files that are there whole or not at all, also after a power cut."""

import fcntl
import os
import sys
from pathlib import Path
from typing import IO

_COPY_BYTES = 1024 * 1024
"""Bytes that are copied at a time."""


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
