"""HTTP server of the API, inside a running event loop.

Fixed: without a token the API listens on this machine only (the probes may be reached by others); and the order in
which `_serve` stops: streams end, new connections are refused, running requests finish.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import uvicorn
from fastapi import FastAPI

from gossamer.api.app import close_app, stop_streams
from gossamer.api.connections import Connections, LimitedProtocol
from gossamer.api.context import ApiContext
from gossamer.errors import BadInput
from gossamer.net.listening import listen_fault
from gossamer.net.loopback import is_loopback
from gossamer.telemetry.metrics import parse_listen_address

log = logging.getLogger("gossamer.api")

_BACKLOG = 512
"""Connections that the kernel accepts before the server takes them. With fewer, clients that connect in a burst are
refused or wait a second. The kernel has its own upper limit (net.core.somaxconn)."""
_HEADER_BYTES = 64 * 1024
"""Longest request line and headers together. Each connection may fill this much memory; long cursors in the query need
some thousand bytes."""
_OPEN_FILES = 4096
"""Limit of open files to ask the system for. Must be at least `_CONNECTION_SHARE` times the limit of connections
(`ConnectionLimits.total` in api/connections.py), or fewer connections are accepted."""
_CONNECTION_SHARE = 4
"""Connections may use one in this many open files. The others are for event streams, which do not count, for
connections that are being closed, and for the servers behind the API. Must stay above 1."""


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs the server."""
        yield


async def serve_api(
    app: FastAPI,
    *,
    host: str,
    port: int,
    stopping: asyncio.Event,
    ready: Callable[[str], None],
    drain_seconds: float = 10.0,
) -> None:
    """Serve at host and port (0: a free one) until `stopping` is set. Running requests then get `drain_seconds` to end.

    `ready` is called once with the URL for this machine, when the server accepts connections. Raises BadInput if the
    address is not available, or if other machines can reach it and the application has no token.
    """
    listening = await _listen(host, port, is_public=bool(app.state.context.token), option="--port")
    # The address of all interfaces is none that a client can use.
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    ready(_url(here, _port_of(listening[0])))
    try:
        await _serve(app, listening, stopping, drain_seconds=drain_seconds, on_stopping=lambda: stop_streams(app))
    finally:
        await close_app(app)


async def serve_probes(app: FastAPI, *, address: str, stopping: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve the application of the probes at `ADDRESS:PORT`. Other machines may reach it although it has no token."""
    host, port = parse_listen_address(address)
    listening = await _listen(host, port, is_public=True, option="the setting service.metrics")
    ready(_url(host, _port_of(listening[0])))
    await _serve(app, listening, stopping, drain_seconds=0, on_stopping=lambda: None)


async def _serve(
    app: FastAPI,
    listening: list[socket.socket],
    stopping: asyncio.Event,
    *,
    drain_seconds: float,
    on_stopping: Callable[[], None],
) -> None:
    """Serve until `stopping` is set, or the server fails. `on_stopping` ends what would keep the server from
    stopping."""
    context: ApiContext = app.state.context
    total = min(context.connections.total, _raise_file_limit() // _CONNECTION_SHARE)
    limits = replace(context.connections, total=total)
    connections = Connections(limits, on_limit=lambda reason: context.metrics.http_closed.labels(reason).inc())
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
            proxy_headers=bool(limits.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in limits.trusted_proxies],
            backlog=_BACKLOG,
            timeout_keep_alive=limits.idle,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),  # whole seconds; at least one, for short answers
        )
    )
    serving = asyncio.create_task(server.serve(sockets=listening))
    stop_requested = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({serving, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        server.force_exit = True
        raise
    finally:
        stop_requested.cancel()
        on_stopping()
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


_NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""Errors of an address that this machine does not have."""


async def _listen(host: str, port: int, *, is_public: bool, option: str) -> list[socket.socket]:
    """Return a listening socket for each address of the host, all on one port (0: a free one). An empty host means
    every address of this machine. `is_public`: True if other machines may reach it. `option`: where a
    person chooses another port.

    An address that this machine does not have, such as IPv6 without an IPv6 network, is skipped. At the first other
    error the remaining addresses are not tried. Raises BadInput if no address is left, or if the port is taken on one
    of them."""
    if not is_public and not is_loopback(host):
        raise BadInput(
            f"the API would listen at {host or 'every address'}, where others reach it: "
            "set service.token (GOSSAMER_SERVICE__TOKEN), or listen at 127.0.0.1"
        )
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise BadInput(f"the API cannot listen at {host}: {error.strerror or error}") from None
    listening: list[socket.socket] = []
    last_error: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(addresses):  # each once
        try:
            ip, _, *scope = address  # the rest is IPv6's flow and scope
            listening.append(_bind(family, (ip, port, *scope)))
            port = _port_of(listening[0])  # if it was 0: the free port of the first address, for the others
        except OSError as error:
            last_error = error
            if error.errno not in _NO_SUCH_ADDRESS:
                break
    if last_error is not None and (not listening or last_error.errno == errno.EADDRINUSE):
        for sock in listening:
            sock.close()
        raise BadInput(f"the API {listen_fault(_url(host, port), last_error, option=option)}")
    return listening


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens at this address. Raises OSError."""
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A response is two writes. With Nagle's algorithm the second would wait 40 ms for the first's acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _port_of(listening: socket.socket) -> int:
    """Return the port on which a socket listens."""
    _, port, *_ = listening.getsockname()
    return int(port)


def _url(host: str, port: int) -> str:
    name = host or socket.gethostname()
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
