"""Processes that begin with their libraries loaded, for those that take longer to load them than for all they then do.

A nursery is a process that has loaded libraries of others, hardly anything of ours, and has done nothing else. What is
forked from it is a process like any other: memory, signals and end are its own, and what else it needs it loads itself.
There are two for each set of libraries, that take turns: what works together has different hash seeds, as processes of
different machines have.
"""

import atexit
import gc
import importlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, Self

import msgspec

from tests.servers.program import python

_ROOT = Path(__file__).parents[2]
_OF_SCRAPY = (
    "ada_url",
    "hiredis",
    "httptools",
    "itemadapter",
    "jsonschema_rs",
    "prometheus_client",
    "pydantic",
    "redis",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.core.engine",
    "scrapy.crawler",
    "scrapy.extensions.feedexport",
    "selectolax.lexbor",
    "xxhash",
    "yaml",
)
_OF_SERVERS = (
    "ada_url",
    "cronsim",
    "cryptography.x509",
    "fastapi.openapi.utils",
    "fastapi.staticfiles",
    "gossamer.api.app",
    "gossamer_platform.v1.app",
    "hiredis",
    "httptools",
    "httpx",
    "jinja2",
    "jsonschema_rs",
    "msgspec.json",
    "multiprocessing",
    "psycopg",
    "pydantic",
    "re2",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "starlette.middleware.base",
    "uvicorn.protocols.http.h11_impl",
    "xxhash",
    "zstandard",
)
"""Libraries of the commands that serve: services, managers and nodes. Of ours, the APIs: FastAPI needs longer for their
declarations than a command for the rest of its start."""
_LIBRARIES = {"scrapy": _OF_SCRAPY, "servers": _OF_SERVERS}
_START_SECONDS = 60.0
SCRAPY = "tests.servers.scrapy_command"
"""Module that is Scrapy's command line."""
GOSSAMER = "gossamer.__main__"
"""Module that is Gossamer's."""
_NUMBER = struct.Struct("!i")


class _Order(msgspec.Struct):
    """What is to be run: `python -m module arguments` in a folder, in a session of its own."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    log: str
    folder: str


class Reared:
    """A process of a nursery, with what tests use of `subprocess.Popen`, and as it is there."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        folder: Path = _ROOT,
        appends: bool = False,
        libraries: str = "scrapy",
    ) -> None:
        """Run `main` of this module, whose answer is the exit code. Both of its streams go to `log`, which is emptied
        unless `appends`. `environment` is all of it; of what Python itself reads at its start, only PYTHONPATH has an
        effect. `libraries`: those that it begins with, "scrapy" or "servers"."""
        log.open("ab" if appends else "wb").close()
        self.returncode: int | None = None
        self._reports, theirs = socket.socketpair()
        order = _Order(module, [*arguments], dict(environment), str(log), str(folder))
        with theirs:
            socket.send_fds(next(_nurseries(libraries)), [msgspec.json.encode(order) + b"\n"], [theirs.fileno()])
        self._reports.settimeout(_START_SECONDS)
        self.pid = self._heard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def _heard(self) -> int:
        """The next of two numbers: its process id, and how it ended. Raises TimeoutError; BlockingIOError for poll."""
        number = self._reports.recv(_NUMBER.size)
        assert number, "the nursery ended"
        return int(*_NUMBER.unpack(number))

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None: it runs."""
        with suppress(BlockingIOError):
            self._wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        try:
            return self._wait(timeout)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired("a process of a nursery", timeout or 0.0) from None

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._reports.settimeout(timeout)
            self.returncode = self._heard()
            self._reports.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve_in(
    folder: Path, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path
) -> "Reared | subprocess.Popen[bytes]":
    """Run a command of Gossamer that serves, in a session of its own. Both of its streams are appended to `log`."""
    if python() == sys.executable:
        return Reared(
            GOSSAMER, arguments, environment=environment, log=log, folder=folder, appends=True, libraries="servers"
        )
    with log.open("ab") as out:
        return subprocess.Popen(
            [python(), "-m", "gossamer", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(environment),
            start_new_session=True,
        )


@cache
def _nurseries(libraries: str) -> Iterator[socket.socket]:
    """Where orders go, by turns."""
    return itertools.cycle([_open(libraries), _open(libraries)])


def _open(libraries: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.servers.nursery", str(theirs.fileno()), libraries]
        process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- in the nursery ---------------------------------------------------------------------------------------------------


def _serve(orders: socket.socket, libraries: Sequence[str]) -> NoReturn:
    """Until nobody has orders any more."""
    for library in libraries:
        importlib.import_module(library)
    gc.freeze()
    # A Ctrl-C at the terminal is for whoever ordered, who then ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nor are the ends of those between waited for
    while True:
        text, handed, _, _ = socket.recv_fds(orders, 1 << 20, 1)
        if not text:
            sys.exit()
        while not text.endswith(b"\n"):
            text += orders.recv(1 << 20)
        nurse = os.fork()
        if not nurse:
            orders.close()
            _rear(msgspec.json.decode(text, type=_Order), socket.socket(fileno=handed[0]))
        os.close(handed[0])


def _rear(order: _Order, reports: socket.socket) -> NoReturn:
    """Begin it, tell its process id, wait for its end and tell that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begun = os.fork()
    if not begun:
        reports.close()
        _become(order)
    reports.sendall(_NUMBER.pack(begun))
    _, status = os.waitpid(begun, 0)
    with suppress(OSError):  # nobody wants to know
        reports.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(order: _Order) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    path = order.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [order.folder, *filter(None, path)]
    sys.argv = [order.module, *order.arguments]
    main: Any = importlib.import_module(order.module).main
    sys.exit(main())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), _LIBRARIES[sys.argv[2]])
