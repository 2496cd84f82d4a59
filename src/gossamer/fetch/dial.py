"""Making a connection: TCP to an approved address, through a proxy if need be, then TLS."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gossamer.errors import BlockedAddress, ConnectFailed, ConnectTimeout, DnsFailed, ProxyFailed, TlsFailed
from gossamer.fetch.connection import HttpConnection
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.pool import PoolKey
from gossamer.fetch.proxy import Proxy, open_tunnel, parse_proxy
from gossamer.fetch.request import Origin
from gossamer.fetch.resolve import ClientContext, TlsContexts


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
