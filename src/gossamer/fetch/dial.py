"""Opens connections: TCP to an approved address, through a proxy if there is one, then TLS.

An HTTP proxy gets requests for http URLs in absolute form, and a CONNECT for https URLs; an `https://` proxy gets both
over TLS, in which that of the site is another layer. A SOCKS5 proxy tunnels everything.

Fixed: this process connects only to addresses from the resolver, which the guard has approved, never to a name; and
after any failure or cancellation no socket is left open.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from gossamer.errors import ConnectFailed, ConnectTimeout, ProxyFailed, TlsFailed
from gossamer.fetch.connection import HttpConnection
from gossamer.fetch.proxies import Proxy
from gossamer.fetch.tls import ClientContext
from gossamer.fetch.tunnel import ConnectAnswer, check_connected, connect_head, open_tunnel

if TYPE_CHECKING:
    from gossamer.fetch.http2 import Http2Session

NewConnection = TypeVar("NewConnection", HttpConnection, "Http2Session")


class Tunnel(NamedTuple):
    """Proxy that connects to a host and port, and then passes all bytes on."""

    proxy: Proxy
    host: str
    """Name, or an address without brackets."""
    port: int


class Route(msgspec.Struct, frozen=True):
    """Instructions to open one connection."""

    ip: str
    """Approved address, of the proxy if there is one."""
    port: int
    """Port to connect to at this address."""
    server_name: str
    """Host as in the URL (an IPv6 address without brackets), which the certificate must be valid for."""
    context: ClientContext | None
    """TLS context; None: no TLS."""
    tunnel: Tunnel | None = None
    """None: no proxy, or a plain one that gets the requests itself."""
    proxy: Proxy | None = None
    """Proxy whose address it is, with or without a tunnel. None: no proxy."""
    proxy_context: ClientContext | None = None
    """TLS context of the connection to the proxy. None: no TLS."""


class DialResult(msgspec.Struct, Generic[NewConnection], frozen=True):
    """New connection, and the seconds that it took."""

    connection: NewConnection
    connect_seconds: float
    tls_seconds: float


async def dial(
    route: Route, new_connection: Callable[[], NewConnection], *, timeout_seconds: float
) -> DialResult[NewConnection]:
    """Open a connection. Raises ConnectFailed, ConnectTimeout, ProxyFailed or TlsFailed; no socket is left behind
    then."""
    where = f"{route.ip}:{route.port}" if ":" not in route.ip else f"[{route.ip}]:{route.port}"
    if route.proxy is not None:
        where = "the proxy"  # its address must not reach records and logs
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _connect(route, new_connection)
    except TimeoutError as exc:
        raise ConnectTimeout(f"{where}, {timeout_seconds:.3g} s") from exc
    except ssl.SSLCertVerificationError as exc:
        raise TlsFailed(f"{route.server_name}: {exc.verify_message}") from exc
    except ssl.SSLError as exc:
        error = TlsFailed(f"{route.server_name}: {exc.reason or exc}")
        error.wants_other_version = "no application protocol" in str(exc).lower().replace("_", " ")
        raise error from exc
    except OSError as exc:
        # That nothing listens on the proxy's port is the proxy's failure, not the site's.
        if route.proxy is not None:
            raise ProxyFailed(os.strerror(exc.errno) if exc.errno else type(exc).__name__) from exc
        raise ConnectFailed(f"{where}: {exc.strerror or exc or type(exc).__name__}") from exc
    except ValueError as exc:
        # A name that cannot be in a certificate, such as one with an empty label.
        raise TlsFailed(f"{route.server_name}: {exc}") from exc


async def _connect(route: Route, new_connection: Callable[[], NewConnection]) -> DialResult[NewConnection]:
    """Open a connection: TCP, the tunnel of a proxy, then TLS. Raises the errors of the system."""
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    # The socket is made here, because loop.create_connection would hide the moment between TCP and TLS, and because the
    # proxy's handshake is easier before the event loop reads the socket.
    sock = socket.socket(socket.AF_INET6 if ":" in route.ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await _connect_socket(sock, (route.ip, route.port))
        if route.tunnel is not None and route.proxy_context is None:
            await open_tunnel(sock, *route.tunnel)
    except BaseException:
        sock.close()
        raise
    connected = time.monotonic()
    if route.proxy_context is not None:
        connection = await _connect_through_tls(sock, route, new_connection)
        return DialResult(connection, connected - started, time.monotonic() - connected)
    connection = new_connection()
    try:
        if route.context is None:
            await loop.create_connection(lambda: connection, sock=sock)
            return DialResult(connection, connected - started, 0.0)
        name = route.server_name.removesuffix(".")  # neither certificates nor SNI (RFC 6066) have the root's dot
        await loop.create_connection(lambda: connection, sock=sock, ssl=route.context, server_hostname=name)
    except BaseException as exc:
        # The event loop owns and closes the socket now, but it may have called connection_made already.
        connection.abandon()
        if isinstance(exc, ConnectionError):
            raise ConnectionResetError("the server ended the TLS handshake") from exc
        raise
    connection.remember_session(route.context, name)
    return DialResult(connection, connected - started, time.monotonic() - connected)


async def _connect_through_tls(
    sock: socket.socket, route: Route, new_connection: Callable[[], NewConnection]
) -> NewConnection:
    """Return a connection through a proxy that speaks TLS. Raises ProxyFailed, and the errors of the site's TLS."""
    assert route.proxy is not None
    loop, proxy = asyncio.get_running_loop(), route.proxy
    connection = new_connection()
    tunnel = ConnectAnswer()
    first: asyncio.Protocol = connection if route.tunnel is None else tunnel
    try:
        try:
            await loop.create_connection(
                lambda: first, sock=sock, ssl=route.proxy_context, server_hostname=proxy.host.removesuffix(".")
            )
        except ssl.SSLCertVerificationError as exc:
            raise ProxyFailed("its certificate is not valid for it") from exc
        except (ssl.SSLError, ValueError) as exc:
            raise ProxyFailed("it does not speak TLS as this machine does") from exc
        if route.tunnel is None:
            return connection
        tunnel.transport.write(connect_head(*route.tunnel))
        await tunnel.is_complete
        check_connected(tunnel.answer, route.tunnel.host, route.tunnel.port)
        assert route.context is not None
        name = route.server_name.removesuffix(".")
        transport = await loop.start_tls(tunnel.transport, connection, route.context, server_hostname=name)
        if transport is None:
            raise ProxyFailed("it hung up")
        connection.connection_made(transport)
    except BaseException:
        connection.abandon()
        if hasattr(tunnel, "transport"):
            tunnel.transport.abort()
        raise
    return connection


async def _connect_socket(sock: socket.socket, address: tuple[str, int]) -> None:
    """Connect a socket that does not block. Raises OSError. Not `loop.sock_connect`: uvloop's asks a thread for the
    address, which is known."""
    try:
        sock.connect(address)
        return
    except (BlockingIOError, InterruptedError):
        pass
    loop = asyncio.get_running_loop()
    writable: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        if not writable.done():
            writable.set_result(None)

    loop.add_writer(sock, on_writable)
    try:
        await writable
    finally:
        loop.remove_writer(sock)
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))
