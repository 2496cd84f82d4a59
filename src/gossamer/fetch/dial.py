"""Opens connections: TCP to an approved address, through a proxy if there is one, then TLS.

An HTTP proxy gets requests for http URLs in absolute form, and a CONNECT for https URLs; an `https://` proxy gets both
over TLS, in which that of the site is another layer. SOCKS5 (RFC 1928, user
and password by RFC 1929) tunnels everything.

`socks5://` proxies get the address that the guard approved, so that the connection goes where the check went. The
other kinds get the name, because such a proxy chooses the address nearest to it and often is in a network where names
resolve differently. The guard then checks the name as it resolves here: a private address is refused, and a
name that is unknown here is left to the proxy, whose own rules must protect its network.

Fixed: the bytes of both proxy protocols; that this process connects only to addresses from the resolver, which the
guard has approved, never to a name; and that after any failure or cancellation no socket is left open.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import NamedTuple, Protocol

import msgspec

from gossamer.errors import BlockedAddress, ConnectFailed, ConnectTimeout, DnsFailed, ProxyFailed, TlsFailed
from gossamer.fetch.connection import ClientContext, HttpConnection, PoolKey, TlsContexts
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.proxies import Proxy, parse_proxy
from gossamer.fetch.request import Origin

_MAX_REPLY_BYTES = 16 * 1024
"""Longest answer to CONNECT. It bounds memory."""
_READ_BYTES = 4096
"""Most bytes that are read at once of that answer."""
_SHOWN_CHARACTERS = 100
"""Characters of a refusal that an error shows."""

# SOCKS5: RFC 1928 and RFC 1929 fix all of these.
_SOCKS_VERSION = 5
_NO_AUTHENTICATION = 0
_USER_AND_PASSWORD = 2
_USER_AND_PASSWORD_VERSION = 1
_CONNECT = b"\x05\x01\x00"
"""Version, command, and a reserved byte."""
_IPV4, _NAME, _IPV6 = 1, 3, 4
"""Types of an address."""
_SUCCEEDED = 0
_SOCKS_REFUSALS = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}
"""Replies of RFC 1928, section 6, as people read them."""


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask `proxy`, to which `sock` is connected, to connect to `host` (a name, or an address without brackets) and
    `port`.

    Afterwards the socket leads to the target. Raises ProxyFailed, or OSError if the connection breaks.
    """
    if proxy.scheme == "http":
        await _connect_http(sock, proxy, host, port)
    else:
        await _connect_socks(sock, proxy, host, port)


async def _connect_http(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask an HTTP proxy for a tunnel with CONNECT (RFC 9110, section 9.3.6)."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, _connect_head(proxy, host, port))
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = await loop.sock_recv(sock, _READ_BYTES)
        answer += piece
        if not piece or len(answer) > _MAX_REPLY_BYTES:
            break
    _check_connected(answer, host, port)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connect_head(proxy: Proxy, host: str, port: int) -> bytes:
    """Return the request for a tunnel."""
    authority = _authority(host, port)
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{proxy.header_lines}\r\n"
    return head.encode("ascii")


def _check_connected(answer: bytes, host: str, port: int) -> None:
    """Raise ProxyFailed unless this answer to CONNECT is complete and grants the tunnel."""
    if b"\r\n\r\n" not in answer:
        raise ProxyFailed("it gave no proper answer to CONNECT")
    status_line = answer.partition(b"\r\n")[0].decode("latin-1")
    version, _, rest = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        wants_credentials = rest.startswith("407")
        raise ProxyFailed(
            f"it refused {_authority(host, port)}: {status_line[:_SHOWN_CHARACTERS]!r}",
            for_target=not wants_credentials,
        )
    # In TLS the client speaks first, so no bytes may have arrived yet.
    if not answer.endswith(b"\r\n\r\n"):
        raise ProxyFailed("it spoke out of turn")


class _ConnectAnswer(asyncio.Protocol):
    """Reads the answer to CONNECT of a proxy that speaks TLS."""

    def __init__(self) -> None:
        self.answer = b""
        self.is_complete = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if b"\r\n\r\n" in self.answer or len(self.answer) > _MAX_REPLY_BYTES:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.is_complete.done():
            self.is_complete.set_result(None)


async def _connect_through_tls(
    sock: socket.socket, route: "Route", new_connection: Callable[[], HttpConnection]
) -> HttpConnection:
    """Return a connection through a proxy that speaks TLS. Raises ProxyFailed, and the errors of the site's TLS."""
    assert route.proxy is not None
    loop, proxy = asyncio.get_running_loop(), route.proxy
    connection = new_connection()
    tunnel = _ConnectAnswer()
    first: asyncio.Protocol | HttpConnection = connection if route.tunnel is None else tunnel
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
        tunnel.transport.write(_connect_head(*route.tunnel))
        await tunnel.is_complete
        _check_connected(tunnel.answer, route.tunnel.host, route.tunnel.port)
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


async def _connect_socks(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask a SOCKS5 proxy for a tunnel: agree on an authentication, log in if need be, then CONNECT."""
    loop = asyncio.get_running_loop()
    methods = bytes([_NO_AUTHENTICATION, _USER_AND_PASSWORD] if proxy.user else [_NO_AUTHENTICATION])
    await loop.sock_sendall(sock, bytes([_SOCKS_VERSION, len(methods)]) + methods)
    version, method = await _receive(sock, 2)
    if version != _SOCKS_VERSION:
        raise ProxyFailed("it does not speak SOCKS5")
    if method == _USER_AND_PASSWORD and proxy.user:
        user, password = proxy.user, proxy.password
        login = bytes([_USER_AND_PASSWORD_VERSION, len(user)]) + user + bytes([len(password)]) + password
        await loop.sock_sendall(sock, login)
        _, refused = await _receive(sock, 2)
        if refused:
            raise ProxyFailed("it refused user and password")
    elif method != _NO_AUTHENTICATION:
        raise ProxyFailed("it wants another kind of authentication")
    await loop.sock_sendall(sock, _CONNECT + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _receive(sock, 4)
    if version != _SOCKS_VERSION or reply != _SUCCEEDED:
        refusal = _SOCKS_REFUSALS.get(reply, f"reply {reply}")
        raise ProxyFailed(f"it could not connect: {refusal}", for_target=True)
    # The address and port (2 bytes) that the proxy connected from: unused, but the tunnel begins after them.
    if kind == _IPV4:
        length = 4
    elif kind == _IPV6:
        length = 16
    else:
        length = (await _receive(sock, 1))[0]
    await _receive(sock, length + 2)


def _socks_address(host: str) -> bytes:
    """Return the type of a host's address, and the address or name as SOCKS5 sends it."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


async def _receive(sock: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes: the bytes after them belong to the tunnel."""
    received = b""
    while len(received) < count:
        piece = await asyncio.get_running_loop().sock_recv(sock, count - len(received))
        if not piece:
            raise ProxyFailed("it hung up")
        received += piece
    return received


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


class DialResult(msgspec.Struct, frozen=True):
    """New connection, and the seconds that it took."""

    connection: HttpConnection
    connect_seconds: float
    tls_seconds: float


async def dial(route: Route, new_connection: Callable[[], HttpConnection], *, timeout_seconds: float) -> DialResult:
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
        raise TlsFailed(f"{route.server_name}: {exc.reason or exc}") from exc
    except OSError as exc:
        # That nothing listens on the proxy's port is the proxy's failure, not the site's.
        if route.proxy is not None:
            raise ProxyFailed(os.strerror(exc.errno) if exc.errno else type(exc).__name__) from exc
        raise ConnectFailed(f"{where}: {exc.strerror or exc or type(exc).__name__}") from exc
    except ValueError as exc:
        # A name that cannot be in a certificate, such as one with an empty label.
        raise TlsFailed(f"{route.server_name}: {exc}") from exc


async def _connect(route: Route, new_connection: Callable[[], HttpConnection]) -> DialResult:
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
        raise OSError(error, f"Connect call failed {address}")


_MAX_PROXIES = 1024
"""Proxy URLs whose parsed form is cached; at this number all are forgotten."""
_MAX_PLANS = 4096
"""Plans of requests without a proxy that are kept; at this number all are forgotten."""
_MAX_ADDRESSES = 4
"""Addresses of a host that are tried. They share one connect timeout, so of more each gets less of it."""


class Addresses(Protocol):
    """Part of the resolver that the client needs; see `resolve.Resolver`. It must return only addresses that the guard
    has approved: they are connected to without another check."""

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """Return approved addresses in the order to try. Raises DnsFailed or BlockedAddress."""

    def cached_addresses(self, host: str, *, allow_private: bool) -> tuple[str, ...] | None:
        """Return what `addresses` would return, if that needs no wait, else None. While it is valid, it is the same
        tuple."""


class ConnectionPlan(msgspec.Struct):
    """Plan for requests to one origin: the addresses and the proxy, for a kept connection or a new one."""

    origin: Origin
    insecure: bool
    ips: tuple[str, ...]
    """Addresses to connect to, in the order to try; of the proxy if there is one."""
    proxy: Proxy | None = None
    proxy_url: str | None = None
    target_ip: str = ""
    """Address of the server behind a proxy; empty: unknown."""

    # Derived from the fields above.
    absolute_form: bool = False
    """True: the request goes to the proxy itself in absolute form, and the proxy forwards it."""
    losses_key: tuple[str, str, int, str | None] = ("", "", 0, None)
    """Scheme, host, port, and URL of the proxy: the key under which `LostConnections` counts lost connections."""
    pool_keys: tuple[PoolKey, ...] = ()
    """For each address, the key under which the pool keeps connections that can serve the request."""

    def __post_init__(self) -> None:
        through_http = self.proxy is not None and self.proxy.scheme in ("http", "https")
        self.absolute_form = through_http and not self.origin.secure
        self.losses_key = self.origin.scheme, self.origin.host, self.origin.port, self.proxy_url
        self.pool_keys = tuple(map(self._pool_key, self.ips))

    def _pool_key(self, ip: str) -> PoolKey:
        origin, proxy = self.origin, self.proxy
        if proxy is None:
            return PoolKey(origin.scheme, origin.host, ip, origin.port, None, self.insecure)
        # One connection to a plain proxy may serve requests for any host; one with a tunnel leads to one host and
        # address.
        host = "" if self.absolute_form else f"{origin.host}:{origin.port}:{self.target_ip}"
        return PoolKey(origin.scheme, host, ip, proxy.port, self.proxy_url, self.insecure)

    def route(self, ip: str, contexts: TlsContexts) -> Route:
        """Return the instructions to open a new connection."""
        origin, proxy = self.origin, self.proxy
        context = contexts.get(insecure=self.insecure) if origin.secure else None
        if proxy is None:
            return Route(ip, origin.port, origin.host, context)
        to_proxy = contexts.get(insecure=self.insecure) if proxy.scheme == "https" else None
        if self.absolute_form:
            return Route(ip, proxy.port, proxy.host, None, None, proxy, to_proxy)
        target = origin.host if proxy.resolves_names else self.target_ip
        return Route(ip, proxy.port, origin.host, context, Tunnel(proxy, target, origin.port), proxy, to_proxy)


class ConnectionPlanner:
    """Plans each request. The resolver's guard has approved every address in a plan."""

    def __init__(self, resolver: Addresses) -> None:
        self._resolver = resolver
        self._proxies: dict[str, Proxy] = {}
        self._direct: dict[tuple[Origin, bool], tuple[tuple[str, ...], ConnectionPlan]] = {}
        """By origin and `insecure`: the last plan without a proxy, and the resolver's addresses that it is for."""

    def find_cached(self, request: FetchRequest, origin: Origin) -> ConnectionPlan | None:
        """Return the plan of a request without a proxy to an origin whose addresses the resolver has at hand. None:
        any other request, for which `find` makes the plan. The resolver is asked each time, so a plan lasts no longer
        than its addresses."""
        if request.proxy is not None:
            return None
        ips = self._resolver.cached_addresses(origin.host, allow_private=request.allow_private)
        if ips is None:
            return None
        key = (origin, request.insecure)
        known = self._direct.get(key)
        if known is not None and known[0] is ips:
            return known[1]
        plan = ConnectionPlan(origin, request.insecure, ips[:_MAX_ADDRESSES])
        if len(self._direct) >= _MAX_PLANS:
            self._direct.clear()
        self._direct[key] = ips, plan
        return plan

    async def find(self, request: FetchRequest, origin: Origin) -> ConnectionPlan:
        """Return the plan of a request. Raises DnsFailed, BlockedAddress, ProxyFailed, and BadInput for an invalid
        proxy URL."""
        if request.proxy is None:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=request.allow_private)
            return ConnectionPlan(origin, request.insecure, ips[:_MAX_ADDRESSES])
        proxy = self._parse(request.proxy)
        # The proxy first, so that a crawl that may not use the proxy learns nothing about the target.
        ips = await self._resolve_proxy(proxy, guard=request.guard_proxy)
        target_ip = await self._resolve_target(request, origin, proxy)
        return ConnectionPlan(origin, request.insecure, ips[:_MAX_ADDRESSES], proxy, request.proxy, target_ip)

    async def _resolve_proxy(self, proxy: Proxy, *, guard: bool) -> tuple[str, ...]:
        """Return the proxy's addresses. `guard`: they must be on the public internet."""
        try:
            # The operator's own proxy (`guard` is False) may be anywhere.
            return await self._resolver.addresses(proxy.host, proxy.port, allow_private=not guard)
        except DnsFailed as exc:
            raise ProxyFailed("its name could not be resolved") from exc
        except BlockedAddress as exc:
            raise BlockedAddress("the proxy's address is not on the public internet") from exc

    async def _resolve_target(self, request: FetchRequest, origin: Origin, proxy: Proxy) -> str:
        """Return the server's address; empty if it is unknown because the proxy looks up the name."""
        try:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=request.allow_private)
        except DnsFailed:
            if not proxy.resolves_names:
                raise
            return ""
        return ips[0] if not proxy.resolves_names or ips[0] == origin.host else ""

    def _parse(self, url: str) -> Proxy:
        """Return the proxy of a URL, from the cache if possible. Raises BadInput."""
        proxy = self._proxies.get(url)
        if proxy is None:
            proxy = parse_proxy(url)
            if len(self._proxies) >= _MAX_PROXIES:
                self._proxies.clear()
            self._proxies[url] = proxy
        return proxy
