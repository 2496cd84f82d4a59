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
from concurrent.futures import ThreadPoolExecutor
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
    "alembic.command",
    "alembic.ddl.postgresql",
    "alembic.ddl.sqlite",
    "cronsim",
    "cryptography.x509",
    "fastapi.openapi.utils",
    "fastapi.staticfiles",
    "gossamer.api.app",
    "gossamer_platform.serving.scrapyd",
    "gossamer_platform.v1.app",
    "hiredis",
    "httpcore",
    "httptools",
    "httpx",
    "jinja2",
    "jsonschema_rs",
    "msgspec.json",
    "multiprocessing",
    "packaging.requirements",
    "psycopg",
    "pydantic",
    "re2",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "starlette.middleware.base",
    "uvicorn.protocols.http.h11_impl",
    "uvloop",
    "xxhash",
    "zstandard",
)
"""Libraries of the commands that serve: services, managers and nodes. Of ours, the APIs, because FastAPI needs longer
for their declarations than a command for the rest of its start, and the platform's server with all that it serves."""
_OF_COMMANDS = (
    "ada_url",
    "gossamer.cli.commands.crawl",
    "hiredis",
    "httptools",
    "jsonschema_rs",
    "selectolax.lexbor",
    "uvloop",
    "xxhash",
    "zstandard",
)
"""Libraries of the commands that crawl."""
_LIBRARIES = {"scrapy": _OF_SCRAPY, "servers": _OF_SERVERS, "commands": _OF_COMMANDS}
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
    """Empty: its streams come with the order."""
    folder: str


class Reared:
    """A process of a nursery, with what tests use of `subprocess.Popen`, and as it is there."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path | None = None,
        streams: Sequence[int] = (),
        folder: Path = _ROOT,
        appends: bool = False,
        libraries: str = "scrapy",
    ) -> None:
        """Run `main` of this module, whose answer is the exit code. Its output and its errors go to `log`, which is
        emptied unless `appends`; without `log`, its three streams are those of these descriptors. `environment` is all
        of it; of what Python itself reads at its start, only PYTHONPATH has an effect. `libraries`: those that it
        begins with, "scrapy", "servers" or "commands"."""
        if log is not None:
            log.open("ab" if appends else "wb").close()
        self.returncode: int | None = None
        self._reports, theirs = socket.socketpair()
        order = _Order(module, [*arguments], dict(environment), str(log or ""), str(folder))
        with theirs:
            descriptors = [theirs.fileno(), *streams]
            socket.send_fds(next(_nurseries(libraries)), [msgspec.json.encode(order) + b"\n"], descriptors)
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


def run_reared(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdin: str = "",
    seconds: float,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as `subprocess.run` does. Raises subprocess.TimeoutExpired."""
    pipes = [os.pipe() for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    streams = (theirs_in, theirs_out, theirs_err)
    process = Reared(module, arguments, environment=environment, streams=streams, folder=folder, libraries="commands")
    for descriptor in streams:
        os.close(descriptor)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_write_all, ours_in, stdin)
        output, errors = pool.submit(_read_all, ours_out), pool.submit(_read_all, ours_err)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(
            ["gossamer", *arguments], code, output.result(seconds), errors.result(seconds)
        )


def _write_all(descriptor: int, text: str) -> None:
    with suppress(BrokenPipeError), open(descriptor, "w") as stream:
        stream.write(text)


def _read_all(descriptor: int) -> str:
    with open(descriptor) as stream:
        return stream.read()


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
    """Where orders go, by turns. Each is opened for its first order."""
    opened = []
    for _ in range(2):
        opened.append(_open(libraries))
        yield opened[-1]
    yield from itertools.cycle(opened)


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
        text, handed, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not text:
            sys.exit()
        while not text.endswith(b"\n"):
            text += orders.recv(1 << 20)
        nurse = os.fork()
        if not nurse:
            orders.close()
            _rear(msgspec.json.decode(text, type=_Order), socket.socket(fileno=handed[0]), handed[1:])
        for descriptor in handed:
            os.close(descriptor)


def _rear(order: _Order, reports: socket.socket, streams: Sequence[int]) -> NoReturn:
    """Begin it, tell its process id, wait for its end and tell that."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begun = os.fork()
    if not begun:
        reports.close()
        _become(order, streams)
    for stream in streams:
        os.close(stream)
    reports.sendall(_NUMBER.pack(begun))
    _, status = os.waitpid(begun, 0)
    with suppress(OSError):  # nobody wants to know
        reports.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(order: _Order, streams: Sequence[int]) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    if order.log:
        log = os.open(order.log, os.O_WRONLY | os.O_APPEND)
        streams = (os.open(os.devnull, os.O_RDONLY), log, log)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in {*streams}:
        os.close(stream)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    path = order.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [order.folder, *filter(None, path)]
    module: Any = importlib.import_module(order.module)
    sys.argv = [module.__file__, *order.arguments]
    sys.exit(module.main())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), _LIBRARIES[sys.argv[2]])
