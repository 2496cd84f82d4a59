"""Making a connection: TCP to an approved address, through a proxy if need be, then TLS."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.errors import ConnectFailed, ConnectTimeout, ProxyFailed, TlsFailed
from gossamer.fetch.connection import Connection
from gossamer.fetch.proxy import Proxy, open_tunnel
from gossamer.fetch.tls import ClientContext


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a server."""

    ip: str
    """Approved; of the proxy if there is one."""
    port: int
    """Where to connect to at this address."""
    server_name: str
    """The host as in the URL (an IPv6 address without brackets): what its certificate has to be for."""
    context: ClientContext | None
    """None: no TLS."""
    tunnel: tuple[Proxy, str, int] | None = None
    """A proxy to go through, with the host and port to ask it for."""
    to_proxy: bool = False
    """A proxy is what is at the address, with or without a tunnel."""


@dataclass(frozen=True, slots=True)
class Dialled:
    """A new connection, and the seconds it took."""

    connection: Connection
    connect_seconds: float
    tls_seconds: float


async def dial(route: Route, make: Callable[[], Connection], *, timeout_seconds: float) -> Dialled:
    """Connect. Raises ConnectFailed, ConnectTimeout, ProxyFailed or TlsFailed; then no socket is left behind."""
    where = f"{route.ip}:{route.port}" if ":" not in route.ip else f"[{route.ip}]:{route.port}"
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _connect(route, make)
    except TimeoutError as exc:
        raise ConnectTimeout(f"{where}, {timeout_seconds:.3g} s") from exc
    except ssl.SSLCertVerificationError as exc:
        raise TlsFailed(f"{route.server_name}: {exc.verify_message}") from exc
    except ssl.SSLError as exc:
        raise TlsFailed(f"{route.server_name}: {exc.reason or exc}") from exc
    except OSError as exc:
        # A port where nobody listens is the proxy's fault if it is the proxy's.
        failure = ProxyFailed if route.to_proxy else ConnectFailed
        raise failure(f"{where}: {exc.strerror or exc or type(exc).__name__}") from exc
    except ValueError as exc:
        # A name that cannot stand in a certificate, such as one with an empty label.
        raise TlsFailed(f"{route.server_name}: {exc}") from exc


async def _connect(route: Route, make: Callable[[], Connection]) -> Dialled:
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    # A socket of our own, because loop.create_connection would hide when TCP was done and TLS began, and because a
    # proxy is easier spoken to before there is a protocol.
    sock = socket.socket(socket.AF_INET6 if ":" in route.ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, (route.ip, route.port))
        if route.tunnel is not None:
            await open_tunnel(sock, *route.tunnel)
    except BaseException:
        sock.close()
        raise
    connected = time.monotonic()
    connection = make()
    try:
        if route.context is None:
            await loop.create_connection(lambda: connection, sock=sock)
            return Dialled(connection, connected - started, 0.0)
        name = route.server_name.removesuffix(".")  # the root's dot is neither in certificates nor in SNI (RFC 6066)
        await loop.create_connection(lambda: connection, sock=sock, ssl=route.context, server_hostname=name)
    except BaseException:
        # The socket is the loop's by now, which closes it; but it may have introduced the two already.
        connection.abandon()
        raise
    connection.remember_session(route.context, name)
    return Dialled(connection, connected - started, time.monotonic() - connected)
