"""A real PostgreSQL server on a unix socket, with a new database for each test that asks for one.

The server's programs come from the system's package (tests/servers/install). Safe to change: the options. Fixed: the
server does not run as root, because PostgreSQL refuses to, and its folder is therefore not below that of pytest.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.servers.program import require
from tests.servers.valkey import wait_until

_OPTIONS = ("listen_addresses=", "shared_buffers=16MB", "max_connections=120", "fsync=off")
"""fsync=off: the tests kill the server, never the machine, so nothing that was committed is lost."""


class PostgreSql:
    """One server, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = _programs()
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the server's files."""
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        arguments = ["-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        self._run("initdb", *arguments, "--locale=C.UTF-8")

    def start(self) -> None:
        """Start the server, and return when it answers."""
        options = [word for option in _OPTIONS for word in ("-c", option)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
            )
        wait_until(self._answers, f"PostgreSQL in {self._folder}")

    @property
    def pid(self) -> int:
        """Id of the server's first process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server and its processes at once."""
        assert self._process is not None
        processes = []
        with contextlib.suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._process.pid)
            server.suspend()  # it starts no process meanwhile
            # Each process of the server is in a session of its own, and carries out a statement or two without it.
            processes = [server, *server.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(30)
        psutil.wait_procs(processes, timeout=30)
        (self._folder / "data/postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the server, whose clients are disconnected."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)

    def new_database(self) -> str:
        """Create an empty database, and return its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex}"
        self._run("createdb", "-h", str(self._folder), "-U", "postgres", name)
        return f"postgresql+psycopg://postgres@/{name}?host={self._folder}"

    def _answers(self) -> bool:
        return self._run("pg_isready", "-q", "-h", str(self._folder), check=False) == 0

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        command = [self._programs / program, *arguments]
        done = subprocess.run(command, user=self._user, capture_output=True, check=False, cwd="/")
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.returncode


def _programs() -> Path:
    """The folder of the newest server that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if found:
        return found[-1]
    return Path(require("postgres")).resolve().parent


@contextlib.contextmanager
def postgresql() -> Iterator[PostgreSql]:
    """A server that runs until the end of the block."""
    _programs()
    with tempfile.TemporaryDirectory(prefix="gp-", ignore_cleanup_errors=True) as name:
        server = PostgreSql(Path(name))
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
