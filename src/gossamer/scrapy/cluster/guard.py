"""Private addresses are not for those who submit URLs to a service."""

from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet import defer
from twisted.python.failure import Failure

from gossamer.errors import BadUrl, BlockedAddress, DnsFailed
from gossamer.fetch.resolve import Resolver
from gossamer.policy.urls import canonical, host
from gossamer.settings import Settings


class AddressRefused(IgnoreRequest):
    """The host has no address that may be connected to."""


class AddressGuard:
    """A downloader middleware: refuses hosts that only have addresses outside the public internet and
    `GOSSAMER_ALLOW_NETWORKS`.

    It judges what Scrapy's own resolver answers, whose cache the downloader asks next. It does not pin: where that
    cache is off or full, a name that answers differently a moment later is connected to unjudged. And where a host has
    good and bad addresses, Scrapy chooses. Without a reactor (TWISTED_REACTOR_ENABLED=False) Scrapy has no resolver and
    no cache; the system is asked then. The fast worker is strict in all of these.
    """

    def __init__(self, settings: Settings) -> None:
        lookup = _lookup if is_reactor_installed() else None
        self._resolver = Resolver(allow_networks=settings.allow_networks, lookup=lookup)

    async def process_request(self, request: Request) -> None:
        """Return when it may go. Raises AddressRefused."""
        await self._check(request.url, request)
        proxy = request.meta.get("proxy")
        if proxy:
            await self._check(str(proxy), request)

    def close(self) -> None:
        """May be repeated."""
        self._resolver.close()

    async def _check(self, url: str, request: Request) -> None:
        try:
            name = host(canonical(url))
        except BadUrl:
            return  # not on the web
        try:
            await self._resolver.addresses(name, 0)
        except BlockedAddress as refused:
            raise AddressRefused(
                f"The address is not on the public internet; GOSSAMER_ALLOW_NETWORKS permits it: {refused.detail}"
            ) from None
        except DnsFailed:
            return  # the downloader finds out, and says so as it does


async def _lookup(name: str) -> list[str]:
    from twisted.internet import reactor

    resolve: Any = reactor.resolve
    found: defer.Deferred[str] = resolve(name)
    return [await maybe_deferred_to_future(found)]


_KINDS = {
    "CannotResolveHostError": "dns",
    "DNSLookupError": "dns",
    "DownloadConnectionRefusedError": "connect",
    "DownloadTimeoutError": "total_timeout",
    "TimeoutError": "total_timeout",
    "TCPTimedOutError": "connect_timeout",
    "ConnectError": "connect",
    "ResponseDataLossError": "connection_lost",
    "ResponseFailed": "connection_lost",
    "ConnectionLost": "connection_lost",
    "ConnectionDone": "connection_lost",
    "TunnelError": "proxy",
    "DownloadFailedError": "fetch",
}
"""By the class or the nearest of its bases, whose names differ between versions of Scrapy and its handlers."""


def kind_of(result: object) -> str | int | None:
    """The word for a failed download, the status of an answer; None: neither."""
    if isinstance(result, Response):
        return result.status
    if not isinstance(result, Failure) or isinstance(result.value, IgnoreRequest):
        return None
    return next((_KINDS[kind.__name__] for kind in type(result.value).__mro__ if kind.__name__ in _KINDS), None)
