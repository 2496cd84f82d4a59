"""The HTTP server of every interface, inside a running event loop.

Fixed: the order in which `serve` stops: streams end, new connections are refused, running requests finish.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from gossamer.net.listening import BACKLOG
from gossamer.web.connections import ConnectionLimits, Connections, LimitedProtocol
from gossamer.web.problems import Answer, problem_answer

_HEADER_BYTES = 32 * 1024
"""Longest request line and headers together. Each connection may fill this much memory. A URL of the greatest length in
a query needs 24 KiB when each character is percent-encoded."""
_OPEN_FILES = 4096
"""Limit of open files to ask the system for. Must be at least `_CONNECTION_SHARE` times the limit of connections
(`ConnectionLimits.total`), or fewer connections are accepted."""
_CONNECTION_SHARE = 4
"""Connections may use one in this many open files. The others are for event streams, which do not count, for
connections that are being closed, and for files and servers behind the interface. Must stay above 1."""


def _ignore() -> None:
    """Do nothing, for an application that keeps no server from stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    drain_seconds: float = 10.0
    """Time that running requests have at the end. At least a second, for short answers."""
    on_stopping: Callable[[], None] = _ignore
    """Called at the end: ends event streams, and what else would keep the server from stopping."""
    on_limit: Callable[[str], object] = len
    """Called with the name of a limit that closes a connection or refuses a request (see `Connections`)."""
    answer: Answer = problem_answer
    """Makes the response to a request that the server itself refuses."""
    unlimited_paths: frozenset[str] = frozenset()
    """Paths whose requests are never refused, for probes: a busy process is not restarted as dead."""


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs the server."""
        yield


async def serve(
    app: ASGIApp, listening: Sequence[socket.socket], stopping: asyncio.Event, options: ServerOptions
) -> None:
    """Serve until `stopping` is set, or the server fails. The sockets are closed at the end."""
    limits = replace(options.limits, total=min(options.limits.total, _raise_file_limit() // _CONNECTION_SHARE))
    connections = Connections(
        limits, on_limit=options.on_limit, answer=options.answer, unlimited_paths=options.unlimited_paths
    )
    server = _Server(
        uvicorn.Config(
            app,
            # A protocol on h11, because httptools does not limit the size of the headers.
            http=partial(LimitedProtocol, connections=connections),  # type: ignore[arg-type]
            h11_max_incomplete_event_size=_HEADER_BYTES,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Without a proxy, any client could write these headers.
            proxy_headers=bool(limits.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in limits.trusted_proxies],
            backlog=BACKLOG,
            timeout_keep_alive=limits.idle,
            timeout_graceful_shutdown=max(1, round(options.drain_seconds)),  # whole seconds
        )
    )
    serving = asyncio.create_task(server.serve(sockets=list(listening)))
    stop_requested = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        server.force_exit = True
        raise
    finally:
        stop_requested.cancel()
        options.on_stopping()
        server.should_exit = True
        try:
            await serving
        finally:
            for sock in listening:
                sock.close()


def _raise_file_limit() -> int:
    """Raise the soft limit of open files if it is low. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
