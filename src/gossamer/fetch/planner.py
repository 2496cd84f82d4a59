"""Plans of connections: the addresses to connect to for a request, and its proxy.

`socks5://` proxies get the address that the guard approved, so that the connection goes where the check went. The
other kinds get the name, because such a proxy chooses the address nearest to it and often is in a network where names
resolve differently. The guard then checks the name as it resolves here: a private address is refused, and a name that
is unknown here is left to the proxy, whose own rules must protect its network.
"""

import msgspec

from gossamer.errors import BlockedAddress, DnsFailed, ProxyFailed
from gossamer.fetch.connection import PoolKey
from gossamer.fetch.dial import Route, Tunnel
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.http_versions import HttpVersions
from gossamer.fetch.proxies import Proxy, parse_proxy
from gossamer.fetch.request import Origin
from gossamer.fetch.tls import TlsContexts
from gossamer.net.resolve import Resolver

_MAX_PROXIES = 1024
"""Proxy URLs whose parsed form is cached; at this number all are forgotten."""
_MAX_PLANS = 4096
"""Plans of requests without a proxy that are kept; at this number all are forgotten."""
_MAX_ADDRESSES = 4
"""Addresses of a host that are tried. They share one connect timeout, so of more each gets less of it."""


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
    http2: bool = False
    """True: a new connection offers HTTP/2 to the server."""

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
            return PoolKey(origin.scheme, origin.host, ip, origin.port, None, self.insecure, self.http2)
        # One connection to a plain proxy may serve requests for any host; one with a tunnel leads to one host and
        # address.
        host = "" if self.absolute_form else f"{origin.host}:{origin.port}:{self.target_ip}"
        return PoolKey(origin.scheme, host, ip, proxy.port, self.proxy_url, self.insecure, self.http2)

    def with_http2(self) -> "ConnectionPlan":
        """Return the same plan, by which a new connection offers HTTP/2."""
        return ConnectionPlan(
            self.origin, self.insecure, self.ips, self.proxy, self.proxy_url, self.target_ip, http2=True
        )

    def route(self, ip: str, contexts: TlsContexts) -> Route:
        """Return the instructions to open a new connection."""
        origin, proxy = self.origin, self.proxy
        context = contexts.get(insecure=self.insecure, http2=self.http2) if origin.secure else None
        if proxy is None:
            return Route(ip, origin.port, origin.host, context)
        to_proxy = contexts.get(insecure=self.insecure) if proxy.scheme == "https" else None
        if self.absolute_form:
            return Route(ip, proxy.port, proxy.host, None, None, proxy, to_proxy)
        target = origin.host if proxy.resolves_names else self.target_ip
        return Route(ip, proxy.port, origin.host, context, Tunnel(proxy, target, origin.port), proxy, to_proxy)


class ConnectionPlanner:
    """Plans each request. The resolver's guard has approved every address in a plan."""

    def __init__(self, resolver: Resolver, versions: HttpVersions | None = None) -> None:
        """`versions`: chooses whether HTTP/2 is offered; None: it never is. After a change of its choice for an origin,
        `forget` must be called."""
        self._resolver = resolver
        self._versions = versions
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
        plan = self._plan(origin, request.insecure, ips)
        if len(self._direct) >= _MAX_PLANS:
            self._direct.clear()
        self._direct[key] = ips, plan
        return plan

    async def find(self, request: FetchRequest, origin: Origin) -> ConnectionPlan:
        """Return the plan of a request. Raises DnsFailed, BlockedAddress, ProxyFailed, and BadInput for an invalid
        proxy URL."""
        if request.proxy is None:
            ips = await self._resolver.addresses(origin.host, origin.port, allow_private=request.allow_private)
            return self._plan(origin, request.insecure, ips)
        proxy = self._parse(request.proxy)
        # The proxy first, so that a crawl that may not use the proxy learns nothing about the target.
        ips = await self._resolve_proxy(proxy, guard=request.guard_proxy)
        target_ip = await self._resolve_target(request, origin, proxy)
        return self._plan(origin, request.insecure, ips, proxy, request.proxy, target_ip)

    def forget(self, origin: Origin) -> None:
        """Plan anew for this origin."""
        self._direct.pop((origin, False), None)
        self._direct.pop((origin, True), None)

    def _plan(
        self,
        origin: Origin,
        insecure: bool,
        ips: tuple[str, ...],
        proxy: Proxy | None = None,
        proxy_url: str | None = None,
        target_ip: str = "",
    ) -> ConnectionPlan:
        plan = ConnectionPlan(origin, insecure, ips[:_MAX_ADDRESSES], proxy, proxy_url, target_ip)
        if self._versions is not None and origin.secure and self._versions.offers_2(plan.losses_key):
            return plan.with_http2()
        return plan

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
