"""Where an exchange goes: which addresses may be connected to, directly or through which proxy."""

from dataclasses import dataclass
from typing import Protocol

from gossamer.errors import BlockedAddress, DnsFailed, ProxyFailed
from gossamer.fetch.dial import Route
from gossamer.fetch.exchange import Exchange
from gossamer.fetch.pool import Key
from gossamer.fetch.proxy import Proxy, parse_proxy
from gossamer.fetch.request import Origin
from gossamer.fetch.tls import TlsContexts

_REMEMBERED_PROXIES = 1024
_MAX_ADDRESSES = 4
"""More of a host's addresses are not tried: they would share one connect timeout."""


class Addresses(Protocol):
    """The part of the resolver that the client needs; see `resolve.Resolver`."""

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """Approved addresses in the order to try. Raises DnsFailed or BlockedAddress."""


@dataclass(slots=True)
class Way:
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

    def key(self, ip: str) -> Key:
        """Which connections would do."""
        origin, proxy = self.origin, self.proxy
        if proxy is None:
            return Key(origin.scheme, origin.host, ip, origin.port, None, self.insecure)
        # A plain proxy takes requests to any host on one connection; a tunnel's far end is fixed.
        host = "" if self.absolute_form else f"{origin.host}:{origin.port}:{self.target_ip}"
        return Key(origin.scheme, host, ip, proxy.port, self.proxy_url, self.insecure)

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


class Ways:
    """Finds the way of each exchange. Every address it names went through the resolver's guard."""

    def __init__(self, resolver: Addresses) -> None:
        self._resolver = resolver
        self._proxies: dict[str, Proxy] = {}

    async def find(self, exchange: Exchange, origin: Origin) -> Way:
        """Raises DnsFailed, BlockedAddress, ProxyFailed, and BadInput for an unusable proxy URL."""
        if exchange.proxy is None:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=exchange.allow_private)
            return Way(origin, exchange.insecure, ips[:_MAX_ADDRESSES])
        proxy = self._parse(exchange.proxy)
        # Before anything else is found out for somebody who may not use it.
        ips = await self._judge_proxy(proxy, guard=exchange.guard_proxy)
        target_ip = await self._judge_target(exchange, origin, proxy)
        return Way(origin, exchange.insecure, ips[:_MAX_ADDRESSES], proxy, exchange.proxy, target_ip)

    async def _judge_proxy(self, proxy: Proxy, *, guard: bool) -> tuple[str, ...]:
        try:
            # Where the operator names the proxy it may be anywhere.
            return await self._resolver.addresses(proxy.host, proxy.port, allow_private=not guard)
        except DnsFailed as exc:
            raise ProxyFailed(str(exc)) from exc
        except BlockedAddress as exc:
            raise BlockedAddress(f"the proxy {exc.detail}") from exc

    async def _judge_target(self, exchange: Exchange, origin: Origin, proxy: Proxy) -> str:
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
