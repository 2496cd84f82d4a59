"""Parts of servers: locks that keep a second one out, sockets, and the HTTP server itself.

Fixed: the locks come first, because two processes with one state would run every job twice; and a Unix socket's file is
replaced only by the process that has the lock.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from gossamer.errors import BadInput
from gossamer.net.listening import listen_fault
from gossamer_platform.serving.time_limits import PAUSE_SECONDS, RequestTimeLimit, TimedConnection
from gossamer_platform.state.database import StateDatabase

log = logging.getLogger("gossamer.platform.serving")

_LOCK_SECONDS: Final = 5.0
"""Time for which a process waits for the lock of one that has just been killed."""
_DATABASE_SECONDS: Final = 15.0
"""Time for which a server waits at its start for a database that starts at the same time."""
_TRY_SECONDS, _SAY_SECONDS = 0.5, 3.0
"""Pauses between two tries to reach it, and between two lines that say so."""
_OWNER_SECONDS: Final = 2.0
"""Pause between two looks whether the database is still this process's own."""
_BACKLOG: Final = 128
"""Connections that wait until they are accepted."""
_DRAIN_SECONDS: Final = 5
"""Time that running requests have at the end. Whole seconds, for uvicorn."""


class _QuietServer(uvicorn.Server):
    """uvicorn's server without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def stopped_within(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait for `stopping`, but not longer. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return stopping.is_set()


async def serve_app(
    app: ASGIApp, sockets: list[socket.socket], stopping: asyncio.Event, *, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Serve until `stopping` is set. `pause_seconds`: longest pause of a request's body."""
    server = _QuietServer(
        uvicorn.Config(
            RequestTimeLimit(app, pause_seconds=pause_seconds),
            http=TimedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=sockets))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving


async def lock_folder(closing: contextlib.AsyncExitStack, file: Path, *, command: str, what: str) -> None:
    """Keep other processes that lock this file out until this one ends, and wait for one that has just been killed.

    Raises BadInput if one stays: `command` is its name, `what` names the thing that it uses.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    closing.callback(os.close, descriptor)
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise BadInput(
                    f"another `{command}` (process {owner or 'unknown'}) uses {what}. Stop it, or start this one in "
                    "another folder"
                ) from None
            await asyncio.sleep(0.1)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return


async def wait_for_database(
    database: StateDatabase, stopping: asyncio.Event, *, seconds: float = _DATABASE_SECONDS
) -> bool:
    """Wait until the database can be reached, and log a line every few seconds. Return False if `stopping` came first.

    Raises BadInput with the reason if it cannot be reached within `seconds`. Every reason may pass: a server that has
    just been started refuses connections first, and may have neither the user nor the database yet.
    """
    clock = asyncio.get_running_loop().time
    deadline, say_at = clock() + seconds, clock()
    while True:
        try:
            await database.check()
            return True
        except BadInput as error:
            if clock() > deadline:
                raise BadInput(f"{error} (tried for {seconds:g} seconds)") from None
            if clock() >= say_at:
                say_at = clock() + _SAY_SECONDS
                log.warning("waiting for the database, for up to %.0f seconds: %s", deadline - clock(), error)
        if await stopped_within(_TRY_SECONDS, stopping):
            return False


async def own_database(database: StateDatabase, *, command: str, shared: bool) -> None:
    """Wait for the database of a process that has just been killed. Raises BadInput if another one uses it that does
    not share it. `command`: name of this command."""
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while not await database.own(shared=shared):
        if asyncio.get_running_loop().time() > deadline:
            raise BadInput(
                f"another `{command}` uses the database of database_url. Stop it, or give this one a database of "
                "its own"
            )
        await asyncio.sleep(0.1)


async def stay_owner(database: StateDatabase, stopping: asyncio.Event, *, command: str, shared: bool) -> None:
    """Own the database again after an outage. Raises BadInput if a process came first that does not share it."""
    while not await stopped_within(_OWNER_SECONDS, stopping):
        try:
            is_owner = await database.own(shared=shared)
        except BadInput as error:  # it cannot be reached at present
            log.warning("%s", error)
            continue
        if not is_owner:
            raise BadInput(f"another `{command}` has taken the database of database_url over")


@contextlib.contextmanager
def listen_tcp(host: str, port: int, *, option: str) -> Iterator[socket.socket]:
    """Yield a listening socket. `option`: where a person chooses another port. Raises BadInput."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.closing(sock):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # An answer is two writes; the second would wait 40 ms for the acknowledgement of the first.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            yield sock
    except OSError as error:
        raise BadInput(listen_fault(f"{host}:{port}", error, option=option)) from None


@contextlib.contextmanager
def listen_unix(path: str) -> Iterator[socket.socket]:
    """Yield a listening socket in the file system. Raises BadInput."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # left by a process that was killed; a living one has the lock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(sock):
        try:
            sock.bind(path)
            os.chmod(path, 0o660)
        except OSError as error:
            raise BadInput(f"cannot listen at {path}: {error.strerror or error}") from None
        sock.listen(_BACKLOG)
        yield sock


def address_of(host: str, sockets: list[socket.socket]) -> str:
    """Return the address of the first socket for clients on this machine. `host`: as it was given."""
    name = sockets[0].getsockname()
    if isinstance(name, str):
        return f"http+unix://{name}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (the address of all interfaces)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{name[1]}"
