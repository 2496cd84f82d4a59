"""Data directory of an embedded server: its paths, the lock of the process that uses it, and the server's address.

Fixed: the names of the files. Processes of another release look for them in existing directories: with another lock
file, two servers could write to one directory; with another folder, the data would not be found.
"""

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Self
from urllib.parse import quote

from gossamer.errors import BadInput, FrontierBusy
from gossamer.option_names import named

_LOCK = "lock"
"""File that the process which uses the directory keeps locked."""
_ADDRESS = "valkey.addr"
"""File with the path of the server's socket."""
_SERVER = "valkey"
"""Folder in which the server keeps its data, log and process id."""
_SOCKET = "s.sock"
_ROOM = "room"
"""File that `write_error` writes, in the server's folder."""
_LONGEST_SOCKET_PATH = 100
"""Bytes. Linux allows 107 (unix(7), `sun_path`), macOS 103, so it must stay below that."""
_SHORT_PARENT = Path("/tmp")  # noqa: S108 (the socket gets a private directory in it)
"""Parent of the socket's directory where the temporary directory's path is too long as well."""
_SHORT_PREFIX = "gossamer-"
_LOG_TAIL_BYTES = 4096
"""Bytes of the log from which an error takes its last lines."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk, or a quota, that is used up."""
_ROOM_BYTES = 1024 * 1024
"""Room without which a disk counts as full. A server with less would die again at one of its next writes."""
_PROBE_SECONDS = 1.0
"""Limit for a connection to a local socket, which a running server accepts at once."""


class DataDir:
    """Paths in a data directory, and the file with the server's address."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.server = self.path / _SERVER
        self.log = self.server / "server.log"
        self.pid = self.server / "pid"
        self._address = self.path / _ADDRESS

    def make(self) -> None:
        """Make the directories that are missing, readable for their owner only. Raises BadInput when that fails."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.server.mkdir(exist_ok=True, mode=0o700)
        except OSError as exc:
            raise unusable(self.path, exc) from None

    def write_error(self) -> OSError | None:
        """Return why files cannot grow here: some bytes are written, and deleted again. None: they can."""
        path = self.server / _ROOM
        try:
            with path.open("wb", buffering=0) as file:
                left = _ROOM_BYTES
                while left > 0:
                    left -= file.write(bytes(left))
        except OSError as exc:
            return exc
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return None

    def choose_socket(self) -> Path:
        """Return the path of the socket: in the data directory, or in a short private one if that path is too long."""
        inside = self.server / _SOCKET
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET_PATH:
            return inside
        import tempfile  # imported late: it loads every kind of compression

        folder = Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX))  # mode 0700
        if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET_PATH:
            folder.rmdir()
            folder = Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir=_SHORT_PARENT))
        return folder / _SOCKET

    def write_address(self, socket_path: Path) -> None:
        """Write the server's address to its file, where other commands read it: whole, or not at all. Raises
        BadInput."""
        temporary = self._address.with_suffix(".new")
        try:
            temporary.write_text(f"{socket_path}\n", encoding="utf-8", errors="surrogateescape")
            temporary.replace(self._address)
        except OSError as exc:
            raise unusable(self.path, exc) from None

    def read_address(self) -> Path | None:
        """Return the socket of the last server; None when there was none, or it was stopped. Raises BadInput."""
        try:
            text = self._address.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise unusable(self.path, exc) from None
        return Path(text.strip()) if text.strip() else None

    def remove_address(self) -> None:
        """Delete the address file and the socket, with the short directory that was made for the socket."""
        socket_path = self.read_address()
        self._address.unlink(missing_ok=True)
        if socket_path is None:
            return
        with contextlib.suppress(OSError):
            socket_path.unlink(missing_ok=True)
            if socket_path.parent != self.server and socket_path.parent.name.startswith(_SHORT_PREFIX):
                socket_path.parent.rmdir()  # fails, as it should, if the directory is not ours and has other files

    def last_log_lines(self, count: int = 5) -> str:
        """Return the end of the server's log for an error message; empty when there is no log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-count:])


class HeldLock:
    """A lock file that this process holds. The kernel releases it when the last process that has it open ends."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """Open file; -1 after `release`. A child process that inherits it holds the lock, too."""

    @classmethod
    def acquire(cls, path: Path, content: str) -> Self | None:
        """Lock the file and write `content` to it. Returns None when another process holds it. Raises BadInput."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise unusable(path.parent, exc) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as exc:
            os.close(descriptor)
            raise BadInput(
                f"the file system of the data directory {path.parent} has no locks ({exc.strerror}). Name "
                "another directory.",
                option="data_dir",
            ) from None
        # The file itself stays for ever: if it were deleted, two processes could hold locks on two files of this name.
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, content.encode(errors="surrogateescape"), 0)
        except OSError as exc:
            if exc.errno not in _FULL:
                os.close(descriptor)
                raise unusable(path.parent, exc) from None
            # The lock is held without the words for people: a full disk must be usable by a command that makes room.
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock. May be called again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def unusable(path: Path, error: OSError) -> BadInput:
    """Return the error for a data directory that cannot be used."""
    if is_full(error):
        return BadInput(
            f"the disk of the data directory {path} is full. Make room there, or name another.", option="data_dir"
        )
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    reason = "there is a file of this name" if is_file else error.strerror
    return BadInput(f"the data directory {path} cannot be used ({reason}). Name another.", option="data_dir")


def is_full(error: OSError) -> bool:
    """Return whether an error says that a disk, or a quota, is used up."""
    return error.errno in _FULL


def lock_data_dir(data_dir: DataDir, *, name: str) -> HeldLock:
    """Lock the data directory for this process. `name` describes this process to others that find the lock held.

    Raises FrontierBusy with the process that holds it, and BadInput.
    """
    data_dir.make()
    lock = data_dir.path / _LOCK
    held = HeldLock.acquire(lock, f"{os.getpid()} {name}\n")
    if held is None:
        pid, _, command = lock.read_text(encoding="utf-8", errors="replace").strip().partition(" ")
        raise FrontierBusy(
            f"{data_dir.path}: process {pid or '?'} ({command or 'unknown'}). Wait until it ends, or "
            f"name another folder with {named('data_dir')}"
        )
    return held


def delete_data_dir(path: Path) -> bool:
    """Delete a data directory with all that is in it, unless a process uses it. Returns whether it is gone."""
    held = HeldLock.acquire(path / _LOCK, f"{os.getpid()} which deletes it\n") if path.is_dir() else None
    if held is None:
        return not path.is_dir()
    try:
        DataDir(path).remove_address()
        import shutil  # imported late, as tempfile above

        shutil.rmtree(path, ignore_errors=True)
    finally:
        held.release()
    return not path.is_dir()


def running_address(data_dir: Path) -> str | None:
    """Return the address (`unix://…`) of the server that runs in this data directory; None when none runs."""
    path = DataDir(data_dir).read_address()
    if path is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fsencode(path))
        except OSError:
            return None
    return socket_address(path)


def running_process(data_dir: Path) -> str:
    """Return the command that uses this data directory, as it named itself in the lock. Empty: none runs."""
    if running_address(data_dir) is None:
        return ""
    try:
        text = (data_dir / _LOCK).read_text(encoding="utf-8", errors="replace")
        pid, _, command = text.strip().partition(" ")
        os.kill(int(pid), 0)  # sends nothing; a killed command leaves its server behind for a moment
    except ProcessLookupError:
        return ""
    except (OSError, ValueError):
        return "unknown"
    return command or "unknown"


def socket_address(path: Path) -> str:
    """Return the address of a unix socket."""
    return "unix://" + quote(os.fsencode(path))
