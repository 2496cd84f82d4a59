"""Making a connection: TCP to an approved address, through a proxy if need be, then TLS."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from gossamer.errors import BadInput, BlockedAddress, ConnectFailed, ConnectTimeout, DnsFailed, ProxyFailed, TlsFailed
from gossamer.fetch.connection import ClientContext, HttpConnection, PoolKey, TlsContexts
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.request import Origin, basic_credentials

_DEFAULT_PORTS = {"http": 8080, "socks5": 1080, "socks5h": 1080}
_ANSWER_BYTES = 16 * 1024
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
"""RFC 1928, section 6."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is and how to speak to it."""

    scheme: str
    """`http`, `socks5` or `socks5h`."""
    host: str
    port: int
    user: bytes = field(default=b"", repr=False)
    password: bytes = field(default=b"", repr=False)

    @property
    def knows_names(self) -> bool:
        """Whether it is told the target's name instead of its address."""
        return self.scheme != "socks5"

    @property
    def authorization(self) -> str:
        """The value of a Proxy-Authorization header; empty when there is no user."""
        return basic_credentials(self.user, self.password) if self.user else ""


def parse_proxy(url: str) -> Proxy:
    """Raises BadInput for anything but `http://`, `socks5://` or `socks5h://` with a host. Tells no secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        user, password = unquote_to_bytes(parts.username or ""), unquote_to_bytes(parts.password or "")
    except ValueError as exc:
        raise BadInput("this proxy's URL cannot be read; write http://USER:PASSWORD@HOST:PORT") from exc
    if parts.scheme not in _DEFAULT_PORTS or not host or port == 0:
        given = f"{parts.scheme}://{host or ''}" if parts.scheme else "what has no scheme"
        raise BadInput(
            f"a proxy is http://, socks5:// or socks5h:// with a host, as http://proxy.example:3128, not {given}"
        )
    if len(user) > 255 or len(password) > 255:
        raise BadInput(f"user and password of proxy {host} may have 255 bytes each")
    return Proxy(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], user, password)


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """On a connection to `proxy`, have it connect to `host` (a name, or an address without brackets) and `port`.

    Afterwards the socket is as good as one to the target. Raises ProxyFailed, or OSError if the connection breaks.
    """
    if proxy.scheme == "http":
        await _connect_http(sock, proxy, host, port)
    else:
        await _connect_socks(sock, proxy, host, port)


async def _connect_http(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
    if proxy.authorization:
        head += f"Proxy-Authorization: {proxy.authorization}\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, head.encode("ascii") + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = await loop.sock_recv(sock, 4096)
        answer += piece
        if not piece or len(answer) > _ANSWER_BYTES:
            raise ProxyFailed(f"{proxy.host}:{proxy.port} gave no proper answer to CONNECT")
    status_line = answer.partition(b"\r\n")[0].decode("latin-1")
    version, _, rest = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        raise ProxyFailed(f"{proxy.host}:{proxy.port} refused {authority}: {status_line[:100]!r}")
    # In TLS the client speaks first, so nothing may be here yet.
    if not answer.endswith(b"\r\n\r\n"):
        raise ProxyFailed(f"{proxy.host}:{proxy.port} spoke out of turn")


async def _connect_socks(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    where = f"{proxy.host}:{proxy.port}"
    loop = asyncio.get_running_loop()
    methods = b"\x00\x02" if proxy.user else b"\x00"
    await loop.sock_sendall(sock, bytes([5, len(methods)]) + methods)
    version, method = await _receive(sock, 2, where)
    if version != 5:
        raise ProxyFailed(f"{where} does not speak SOCKS5")
    if method == 2 and proxy.user:
        user, password = proxy.user, proxy.password
        await loop.sock_sendall(sock, bytes([1, len(user)]) + user + bytes([len(password)]) + password)
        _, refused = await _receive(sock, 2, where)
        if refused:
            raise ProxyFailed(f"{where} refused user and password")
    elif method != 0:
        raise ProxyFailed(f"{where} wants another kind of authentication")
    await loop.sock_sendall(sock, b"\x05\x01\x00" + _socks_address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _receive(sock, 4, where)
    if version != 5 or reply != 0:
        raise ProxyFailed(f"{where} could not connect: {_SOCKS_REFUSALS.get(reply, f'reply {reply}')}")
    # The address it connected from, of no interest, but it must be read.
    length = {1: 4, 4: 16}.get(kind) or (await _receive(sock, 1, where))[0]
    await _receive(sock, length + 2, where)


def _socks_address(host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes([3, len(name)]) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


async def _receive(sock: socket.socket, count: int, where: str) -> bytes:
    """Exactly `count` bytes: what follows belongs to the tunnel."""
    received = b""
    while len(received) < count:
        piece = await asyncio.get_running_loop().sock_recv(sock, count - len(received))
        if not piece:
            raise ProxyFailed(f"{where} hung up")
        received += piece
    return received


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
class DialResult:
    """A new connection, and the seconds it took."""

    connection: HttpConnection
    connect_seconds: float
    tls_seconds: float


async def dial(route: Route, make: Callable[[], HttpConnection], *, timeout_seconds: float) -> DialResult:
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


async def _connect(route: Route, make: Callable[[], HttpConnection]) -> DialResult:
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
            return DialResult(connection, connected - started, 0.0)
        name = route.server_name.removesuffix(".")  # the root's dot is neither in certificates nor in SNI (RFC 6066)
        await loop.create_connection(lambda: connection, sock=sock, ssl=route.context, server_hostname=name)
    except BaseException:
        # The socket is the loop's by now, which closes it; but it may have introduced the two already.
        connection.abandon()
        raise
    connection.remember_session(route.context, name)
    return DialResult(connection, connected - started, time.monotonic() - connected)


_REMEMBERED_PROXIES = 1024
_MAX_ADDRESSES = 4
"""More of a host's addresses are not tried: they would share one connect timeout."""


class Addresses(Protocol):
    """The part of the resolver that the client needs; see `resolve.Resolver`."""

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """Approved addresses in the order to try. Raises DnsFailed or BlockedAddress."""


@dataclass(slots=True)
class ConnectionPlan:
    """Decided once, then used for a kept connection or for a new one."""

    origin: Origin
    insecure: bool
    ips: tuple[str, ...]
    """Where to connect to, in the order to try; of the proxy if there is one."""
    proxy: Proxy | None = None
    proxy_url: str | None = None
    target_ip: str = ""
    """Behind a proxy: the server's address as far as it is known."""

    @property
    def absolute_form(self) -> bool:
        """Whether the request is sent to the proxy itself, for it to pass on."""
        return self.proxy is not None and self.proxy.scheme == "http" and not self.origin.secure

    @property
    def site(self) -> tuple[str, str, int, str | None]:
        """The origin and the proxy to it: what may be known to lose kept connections."""
        return self.origin.scheme, self.origin.host, self.origin.port, self.proxy_url

    def key(self, ip: str) -> PoolKey:
        """Which connections would do."""
        origin, proxy = self.origin, self.proxy
        if proxy is None:
            return PoolKey(origin.scheme, origin.host, ip, origin.port, None, self.insecure)
        # A plain proxy takes requests to any host on one connection; a tunnel's far end is fixed.
        host = "" if self.absolute_form else f"{origin.host}:{origin.port}:{self.target_ip}"
        return PoolKey(origin.scheme, host, ip, proxy.port, self.proxy_url, self.insecure)

    def route(self, ip: str, contexts: TlsContexts) -> Route:
        """How to make a new connection."""
        origin, proxy = self.origin, self.proxy
        context = contexts.get(insecure=self.insecure) if origin.secure else None
        if proxy is None:
            return Route(ip, origin.port, origin.host, context)
        if self.absolute_form:
            return Route(ip, proxy.port, proxy.host, None, to_proxy=True)
        target = origin.host if proxy.knows_names else self.target_ip
        return Route(ip, proxy.port, origin.host, context, (proxy, target, origin.port), to_proxy=True)


class ConnectionPlanner:
    """Finds the way of each exchange. Every address it names went through the resolver's guard."""

    def __init__(self, resolver: Addresses) -> None:
        self._resolver = resolver
        self._proxies: dict[str, Proxy] = {}

    async def find(self, exchange: FetchRequest, origin: Origin) -> ConnectionPlan:
        """Raises DnsFailed, BlockedAddress, ProxyFailed, and BadInput for an unusable proxy URL."""
        if exchange.proxy is None:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=exchange.allow_private)
            return ConnectionPlan(origin, exchange.insecure, ips[:_MAX_ADDRESSES])
        proxy = self._parse(exchange.proxy)
        # Before anything else is found out for somebody who may not use it.
        ips = await self._judge_proxy(proxy, guard=exchange.guard_proxy)
        target_ip = await self._judge_target(exchange, origin, proxy)
        return ConnectionPlan(origin, exchange.insecure, ips[:_MAX_ADDRESSES], proxy, exchange.proxy, target_ip)

    async def _judge_proxy(self, proxy: Proxy, *, guard: bool) -> tuple[str, ...]:
        try:
            # Where the operator names the proxy it may be anywhere.
            return await self._resolver.addresses(proxy.host, proxy.port, allow_private=not guard)
        except DnsFailed as exc:
            raise ProxyFailed(str(exc)) from exc
        except BlockedAddress as exc:
            raise BlockedAddress(f"the proxy {exc.detail}") from exc

    async def _judge_target(self, exchange: FetchRequest, origin: Origin, proxy: Proxy) -> str:
        """The server's address as far as it is known: not when the proxy looks up the name."""
        try:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=exchange.allow_private)
        except DnsFailed:
            if not proxy.knows_names:
                raise
            return ""
        return ips[0] if not proxy.knows_names or ips[0] == origin.host else ""

    def _parse(self, url: str) -> Proxy:
        proxy = self._proxies.get(url)
        if proxy is None:
            proxy = parse_proxy(url)
            if len(self._proxies) >= _REMEMBERED_PROXIES:
                self._proxies.clear()
            self._proxies[url] = proxy
        return proxy
