"""A real MariaDB server on a unix socket and a port of 127.0.0.1, with a new database for each test that asks for one.

The server's programs come from the system's package (tests/servers/install).
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pymysql

from tests.servers.process import ServerProcess
from tests.servers.program import require
from tests.servers.valkey import free_ports

_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=2",  # the tests kill the server, never the machine
    "--performance-schema=OFF",
    "--skip-name-resolve",
)


class MariaDb(ServerProcess):
    """One server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.socket = folder / "s.sock"
        [self.port] = free_ports(1)
        self._as_root = ["--user=root"] if os.geteuid() == 0 else []

    def create(self) -> None:
        """Make the server's files."""
        done = subprocess.run(
            [
                require("mariadb-install-db"), "--no-defaults", *self._as_root, f"--datadir={self.folder / 'data'}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ],
            capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start the server, and return when it answers."""
        command = [
            require("mariadbd"), "--no-defaults", *self._as_root, f"--datadir={self.folder / 'data'}",
            f"--socket={self.socket}", f"--port={self.port}", f"--pid-file={self.folder / 'pid'}", *_OPTIONS,
        ]  # fmt: skip
        self.launch(command, self._answers)

    def new_database(self, *, password: str = "") -> str:
        """Create an empty database with a user of its own, and return its address."""
        name = f"t{uuid.uuid4().hex[:16]}"
        self.execute(f"CREATE DATABASE {name}")
        self.execute(f"CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY '{password}'")
        self.execute(f"GRANT ALL ON {name}.* TO '{name}'@'127.0.0.1'")
        secret = f":{password}" if password else ""
        return f"mysql://{name}{secret}@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str) -> tuple[tuple[object, ...], ...]:
        """Carry out a statement as root, and return its rows."""
        with pymysql.connect(unix_socket=str(self.socket), user="root", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    def _answers(self) -> bool:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            with socket.socket(socket.AF_UNIX) as probe:  # the driver leaves its own open if nobody listens
                probe.connect(str(self.socket))
            return bool(self.execute("SELECT 1"))
        return False


@contextlib.contextmanager
def mariadb() -> Iterator[MariaDb]:
    """A server that runs until the end of the block."""
    require("mariadbd")
    folder = Path(tempfile.mkdtemp(prefix="gm-"))
    server = MariaDb(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
