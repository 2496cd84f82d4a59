"""A real PostgreSQL server on a unix socket, with a new database for each test that asks for one.

The server's programs come from the system's package (tests/servers/install). Fixed: the server does not run as root,
because PostgreSQL refuses to, and its folder is therefore not below that of pytest.
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
import psycopg
from sqlalchemy.engine import make_url

from tests.servers.process import ServerProcess
from tests.servers.program import require

_OPTIONS = ("listen_addresses=", "shared_buffers=16MB", "max_connections=120", "fsync=off")
"""fsync=off: the tests kill the server, never the machine, so nothing that was committed is lost."""
_DURABLE_OPTIONS = ("listen_addresses=", "shared_buffers=128MB", "max_connections=120")


class PostgreSql(ServerProcess):
    """One server."""

    stop_signal = signal.SIGINT  # which disconnects clients; SIGTERM waits for them

    def __init__(self, folder: Path, *, is_durable: bool = False) -> None:
        """`is_durable`: commits wait for the disk, and the cache has the size of a usual server, for measurements."""
        super().__init__(folder)
        self._options = _DURABLE_OPTIONS if is_durable else _OPTIONS
        self._programs = _programs()
        self._user = "nobody" if os.geteuid() == 0 else None

    def create(self) -> None:
        """Make the server's files."""
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        arguments = ["-D", str(self.folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        self.run_program("initdb", *arguments, "--locale=C.UTF-8")

    def start(self) -> None:
        """Start the server, and return when it answers."""
        options = [word for option in self._options for word in ("-c", option)]
        command = [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options]
        self.launch(command, self._answers, user=self._user)

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
        (self.folder / "data/postmaster.pid").unlink(missing_ok=True)

    def new_database(self, *, like: str | None = None) -> str:
        """Create a database, and return its SQLAlchemy URL. `like`: URL of the one to copy, which has no clients. None:
        the new one is empty."""
        name = f"test_{uuid.uuid4().hex}"
        template = make_url(like).database if like else "template1"
        with psycopg.connect(host=str(self.folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def _answers(self) -> bool:
        return self.run_program("pg_isready", "-q", "-h", str(self.folder), check=False) == 0

    def run_program(self, program: str, *arguments: str, check: bool = True, **variables: str) -> int:
        """Run a program of the server's package as the server's user, and return its exit code. `check`: it must be 0.
        `variables`: of its environment, besides this process's."""
        command, environment = [self._programs / program, *arguments], {**os.environ, **variables}
        done = subprocess.run(command, user=self._user, capture_output=True, check=False, cwd="/", env=environment)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.returncode


def _programs() -> Path:
    """The folder of the newest server that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    if found:
        return found[-1]
    return Path(require("postgres")).resolve().parent


@contextlib.contextmanager
def postgresql(*, is_durable: bool = False) -> Iterator[PostgreSql]:
    """A server that runs until the end of the block. `is_durable`: see PostgreSql."""
    _programs()
    with tempfile.TemporaryDirectory(prefix="gp-", ignore_cleanup_errors=True) as name:
        server = PostgreSql(Path(name), is_durable=is_durable)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
