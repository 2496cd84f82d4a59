"""What lies in a data directory around the embedded server: who uses it, and where its server listens."""

import contextlib
import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import quote

from gossamer.errors import BadInput, FrontierBusy

_LOCK = "lock"
_ADDRESS = "valkey.addr"
_SERVER = "valkey"
_SOCKET = "s.sock"
_LONGEST_SOCKET_PATH = 100
"""Bytes. Linux takes 107 (unix(7), `sun_path`), macOS 103."""
_SHORT = Path("/tmp")  # noqa: S108 (a private directory is made in it)
_SHORT_PREFIX = "gossamer-"


class DataDir:
    """Paths in a data directory. It is made, for its owner only, when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.server = self.path / _SERVER
        self.log = self.server / "server.log"
        self.pid = self.server / "pid"
        self._address = self.path / _ADDRESS

    def make(self) -> None:
        """Make what is missing. Raises BadInput when it cannot be."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.server.mkdir(exist_ok=True, mode=0o700)
        except OSError as exc:
            raise BadInput(f"data directory {self.path}: {exc.strerror}") from None

    def choose_socket(self) -> Path:
        """Where the server shall listen: in the directory, or in a short private one if that is too deep."""
        inside = self.server / _SOCKET
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET_PATH:
            return inside
        folder = Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX))  # mode 0700
        if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET_PATH:
            folder.rmdir()
            folder = Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir=_SHORT))
        return folder / _SOCKET

    def publish(self, socket_path: Path) -> None:
        """Say where the server listens, for those who only ask."""
        temporary = self._address.with_suffix(".new")
        temporary.write_text(f"{socket_path}\n", encoding="utf-8", errors="surrogateescape")
        temporary.replace(self._address)

    def published(self) -> Path | None:
        """Where the last server was said to listen; None when none was, or it was stopped."""
        try:
            text = self._address.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise BadInput(f"data directory {self.path}: {exc.strerror}") from None
        return Path(text.strip()) if text.strip() else None

    def withdraw(self) -> None:
        """Forget the address and remove the socket, with the short directory that was made for it."""
        socket_path = self.published()
        self._address.unlink(missing_ok=True)
        if socket_path is None:
            return
        with contextlib.suppress(OSError):
            socket_path.unlink(missing_ok=True)
            if socket_path.parent != self.server and socket_path.parent.name.startswith(_SHORT_PREFIX):
                socket_path.parent.rmdir()  # empty now, or not ours

    def last_log_lines(self, count: int = 5) -> str:
        """The end of the server's log, for an error; empty when there is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-count:])


class HeldLock:
    """A lock file that this process holds. The kernel lets go of it when its last holder is gone, however it went."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path, said: str) -> Self | None:
        """Hold it and write `said` into it; None when somebody else holds it. Raises BadInput if it cannot be made."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise BadInput(f"data directory {path.parent}: {exc.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as exc:
            os.close(descriptor)
            raise BadInput(f"data directory {path.parent}: its file system has no locks ({exc.strerror})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, said.encode(errors="surrogateescape"), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let go. May be repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def occupy(data_dir: DataDir, *, name: str) -> HeldLock:
    """Make the directory ours. `name`: what we are, for others to read. Raises FrontierBusy with who has it."""
    data_dir.make()
    lock = data_dir.path / _LOCK
    held = HeldLock.take(lock, f"{os.getpid()} {name}\n")
    if held is None:
        pid, _, command = lock.read_text(encoding="utf-8", errors="replace").strip().partition(" ")
        raise FrontierBusy(f"{data_dir.path}: process {pid or '?'} ({command or 'unknown'}); --data-dir names another")
    return held


def running(data_dir: Path) -> str | None:
    """The address (`unix://…`) of the server that runs for this data directory; None when none does. Starts nothing."""
    path = DataDir(data_dir).published()
    if path is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fsencode(path))
        except OSError:
            return None
    return socket_address(path)


def socket_address(path: Path) -> str:
    """A socket's path as an address."""
    return "unix://" + quote(os.fsencode(path))
