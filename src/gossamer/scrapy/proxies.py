"""Scrapy downloader middleware that sends requests through a pool of proxies; also for projects without the frontier.

It must stand directly before Scrapy's HttpProxyMiddleware (750), so that it sees responses before the middlewares that
retry and redirect. A request has its proxy only while it is downloaded: neither the spider nor the frontier (the queue
that processes share) sees an address or a password.

Fixed: the name ProxyPoolMiddleware, which projects write into their settings; and a request is never sent without its
proxy.
"""

import asyncio
import logging
import os
import random
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object
from twisted.internet.error import ConnectError, DNSLookupError

from gossamer.errors import BadInput, BadUrl, ProxyFailed
from gossamer.fetch.proxies import Proxy, parse_proxies, parse_proxy, proxy_budgets, read_proxies, split_proxies
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.policy.proxies import ProxyPool, ProxyRests
from gossamer.policy.urls import canonical, host, registered_domain
from gossamer.scrapy.options import PROJECT_SETTINGS, abort

log = logging.getLogger(__name__)

POSITION = 740
"""Position among the downloader middlewares. It must be just below that of HttpProxyMiddleware."""
_NUMBER = "gossamer_proxy"
"""Key of a request's meta: place of its proxy in the list, from 1. Spiders may read it."""
_TRIES = "gossamer_proxy_tries"
"""Key of a request's meta: number of proxies that failed or were refused for it."""
CONNECT_HEADERS = "_gossamer_connect_headers"
"""Key of a request's meta: headers for its `https://` proxy that the site does not get. Set while it is downloaded."""
CREDENTIALS = b"Proxy-Authorization"
_MAX_TRIES = 10
"""Proxies that are tried for one request because others failed. More try longer where most fail."""
_FOLLOW_SECONDS = 1.0
"""Seconds between two looks for proxies that rest or have come back."""
_WANTS_CREDENTIALS = re.compile(r"'status': 407\b")
"""Part of the text of a TunnelError. The text also has the proxy's port and the proxy's own words."""
_UNREACHABLE = ("DownloadConnectionRefusedError", "CannotResolveHostError")
"""Exceptions of newer versions of Scrapy for a proxy that cannot be reached."""


class ProxyPoolMiddleware:
    """Chooses a proxy for each request, and learns from responses and exceptions which proxies work.

    A request whose meta names a `proxy` keeps it. `proxy: None` in the meta sends the request directly.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ProxyPoolMiddleware":
        """Invalid settings end the crawl with one line in the log."""
        try:
            return cls(crawler)
        except BadInput as error:
            abort(error)

    def __init__(self, crawler: Crawler) -> None:
        """Raises BadInput for invalid settings."""
        settings = crawler.settings
        try:
            text = str(read_proxies(setting(settings, "GOSSAMER_PROXIES")) or "")
            self._proxies = dict(zip(split_proxies(text), parse_proxies(text), strict=True))
            kinds = {proxy.scheme for proxy in self._proxies.values()}
            if kinds - {"http", "https"}:
                raise BadInput("Scrapy sends requests through http:// and https:// proxies only")
            if "https" in kinds and not _has_own_handler(settings):
                raise BadInput(
                    "https:// proxies need gossamer.scrapy.download_handler.DownloadHandler for http and https in "
                    "DOWNLOAD_HANDLERS; gossamer.scrapy.Addon sets it"
                )
        except BadInput as error:
            raise BadInput(f"GOSSAMER_PROXIES: {error}") from None
        if not self._proxies:
            raise BadInput("GOSSAMER_PROXIES is not set; name the proxies that ProxyPoolMiddleware is to use")
        first = _number(settings, "GOSSAMER_PROXY_REST", above=0)
        rests = ProxyRests(first, max(first, _number(settings, "GOSSAMER_PROXY_LONGEST_REST", above=0)))
        sticky = str(setting(settings, "GOSSAMER_PROXY_STICKY")).lower() in ("1", "true", "yes", "on")
        self._pool = ProxyPool(tuple(self._proxies), sticky=sticky, rests=rests)
        self._by_address = self._budgets(settings, text)
        """Proxies by address, where each address has a budget of its own; else empty."""
        self._egress_of: Callable[[Request], str | None] = lambda request: None
        self._patience_seconds = _number(settings, "GOSSAMER_PROXY_PATIENCE", above=-1)
        self._bans = _statuses(settings)
        self._stats = crawler.stats
        self._warned = False
        self._last_failure = ""

    async def process_request(self, request: Request) -> Request | None:
        """Give the request a proxy, or return it to wait for a hit of another proxy. Waits while all proxies rest;
        raises ProxyFailed after GOSSAMER_PROXY_PATIENCE."""
        if "proxy" in request.meta or not request.url.startswith(("http:", "https:")):
            return None
        domain = _domain(request)
        give_up_at = time.monotonic() + self._patience_seconds
        address = self._egress_of(request) if self._by_address else None
        while (chosen := self._choose(domain, address)) is None:
            now = time.monotonic()
            wait = self._pool.seconds_until_usable(domain, now=now)
            if wait == 0:  # of other addresses, for which the request has no hit
                return request.replace(dont_filter=True)
            if now + wait > give_up_at:
                raise ProxyFailed(
                    f"all {len(self._proxies)} proxies rest; the next one is tried in {max(1, round(wait))} s"
                    f"{self._last_failure}",
                    wait_seconds=wait,
                )
            await asyncio.sleep(wait)
        self._set(request, chosen)
        return None

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """Return the response, or the request for another proxy if the site refuses this one."""
        proxy = self._unset(request)
        if proxy is None:
            return response
        domain, now, jitter = _domain(request), time.monotonic(), random.random()
        if response.status == 407:
            self._pool.on_failure(proxy, now=now, random=jitter)
            self._note(proxy, "it wants user and password")
            return self._again(request) or self._fail(proxy, "it wants user and password")
        if response.status not in self._bans:
            self._pool.on_response(proxy, domain)
            return response
        self._pool.on_refusal(proxy, domain, now=now, random=jitter)
        self._count("refused")
        another = self._pool.seconds_until_usable(domain, now=now) == 0 and len(self._proxies) > 1
        return (self._again(request) if another else None) or response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Return the request for another proxy if this one cannot be used. None: other middlewares decide.

        Raises ProxyFailed where enough proxies were tried: Scrapy's exception shows the proxy's address.
        """
        proxy = self._unset(request)
        if proxy is None:
            return None
        domain, now, jitter = _domain(request), time.monotonic(), random.random()
        if isinstance(exception, ProxyFailed):  # of Gossamer's download handler
            why = exception.detail
            if exception.for_target:
                self._pool.on_refusal(proxy, domain, now=now, random=jitter)
            else:
                self._pool.on_failure(proxy, now=now, random=jitter)
        elif _is_tunnel_error(exception) and not _WANTS_CREDENTIALS.search(str(exception)):
            self._pool.on_refusal(proxy, domain, now=now, random=jitter)
            why = "it did not connect to the site"
        elif (
            _is_tunnel_error(exception)
            or isinstance(exception, (ConnectError, DNSLookupError, ConnectionRefusedError))
            or type(exception).__name__ in _UNREACHABLE
        ):
            self._pool.on_failure(proxy, now=now, random=jitter)
            why = "it wants user and password" if _is_tunnel_error(exception) else "it could not be reached"
        else:
            self._pool.on_no_response(proxy, domain, now=now, random=jitter)
            return None
        self._note(proxy, why)
        return self._again(request) or self._fail(proxy, why)

    # --- budgets of addresses -----------------------------------------------------------------------------------------

    @property
    def has_budgets(self) -> bool:
        """True: each address has a budget of its own."""
        return bool(self._by_address)

    def join_frontier(self, holder: ValkeyLeaseholder, egress_of: Callable[[Request], str | None]) -> None:
        """Lease for the addresses of the proxies, where each has a budget. `egress_of` returns the address for which a
        request's hit (the charge to the site's rate limit) was granted; None: the request was not leased."""
        self._egress_of = egress_of
        if self._by_address:
            holder.set_egress(*self._addresses())

    async def follow(self, holder: ValkeyLeaseholder) -> None:
        """Lease for the addresses of those proxies that do not rest, until cancelled."""
        leased_for = self._addresses()
        while self._by_address:
            await asyncio.sleep(_FOLLOW_SECONDS)
            if (addresses := self._addresses()) != leased_for:
                holder.set_egress(*addresses)
                leased_for = addresses

    def address_of(self, request: Request) -> str:
        """Return the address of the request's proxy. Empty: it has none, or budgets are shared."""
        number = request.meta.get(_NUMBER)
        if not self._by_address or number is None or not request.meta.get("proxy"):
            return ""
        return self._proxies[self._pool.proxies[number - 1]].address

    def _addresses(self) -> tuple[str, ...]:
        """Return the addresses with a proxy that does not rest; all if there is none."""
        now = time.monotonic()
        up = [name for name, own in self._by_address.items() if any(self._pool.is_up(proxy, now=now) for proxy in own)]
        return tuple(up or self._by_address)

    def _choose(self, domain: str, address: str | None) -> str | None:
        """Return the proxy for a request whose hit is for this address; None as address: for any."""
        now = time.monotonic()
        if address is None:
            return self._pool.choose(domain, now=now)
        own = self._by_address.get(address, ())
        return next((proxy for proxy in own if self._pool.is_usable(proxy, domain, now=now)), None)

    def _budgets(self, settings: BaseSettings, text: str) -> dict[str, list[str]]:
        """Return the proxies by address if each address has a budget of its own. Raises BadInput."""
        budget = setting(settings, "GOSSAMER_PROXY_BUDGET")
        if budget not in ("shared", "address"):
            raise BadInput(f"GOSSAMER_PROXY_BUDGET: {budget!r:.100} is neither shared nor address")
        by_address: dict[str, list[str]] = {}
        if budget == "shared":
            return by_address
        try:
            proxy_budgets(text, {})
        except BadInput as error:
            raise BadInput(str(error).replace("fetch.proxy_budget", "GOSSAMER_PROXY_BUDGET")) from None
        if not hasattr(load_object(settings["SCHEDULER"]), "drops_known"):
            raise BadInput("GOSSAMER_PROXY_BUDGET = address needs the shared frontier, which keeps the budgets")
        for name, proxy in self._proxies.items():
            by_address.setdefault(proxy.address, []).append(name)
        return by_address

    # --- one request --------------------------------------------------------------------------------------------------

    def _set(self, request: Request, chosen: str) -> None:
        """Set the proxy, its credentials and, where it gets them, its headers."""
        proxy = self._proxies[chosen]
        address = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
        request.meta["proxy"] = f"{proxy.scheme}://{address}:{proxy.port}"
        request.meta[_NUMBER] = self._pool.proxies.index(chosen) + 1
        if proxy.authorization:
            request.headers["Proxy-Authorization"] = proxy.authorization
        if request.url.startswith("http:"):
            for name, value in proxy.headers:
                request.headers[name] = value
        elif proxy.scheme == "https":
            request.meta[CONNECT_HEADERS] = proxy.headers
        elif proxy.headers and not self._warned:
            self._warned = True
            log.warning("The headers of proxies are not sent for https:// URLs: Scrapy would send them to the site.")

    def _unset(self, request: Request) -> str | None:
        """Remove what `_set` set, and return the proxy. None: the request has none of the pool."""
        number = request.meta.get(_NUMBER)
        if number is None or not request.meta.get("proxy"):
            return None
        chosen: str = self._pool.proxies[number - 1]
        for key in ("proxy", "_auth_proxy", CONNECT_HEADERS):
            request.meta.pop(key, None)
        for name in ("Proxy-Authorization", *(name for name, _ in self._proxies[chosen].headers)):
            request.headers.pop(name, None)
        return chosen

    def _again(self, request: Request) -> Request | None:
        """Return the request, to be sent through another proxy. None: enough were tried, or there is one only."""
        tries = request.meta.get(_TRIES, 0) + 1
        if len(self._proxies) == 1 or tries > _MAX_TRIES:
            return None
        again = request.replace(dont_filter=True)
        again.meta[_TRIES] = tries
        return again

    def _note(self, proxy: str, why: str) -> None:
        """Keep and log a failure of a proxy."""
        number = self._pool.proxies.index(proxy) + 1
        self._last_failure = f". Last failure: proxy {number} of {len(self._proxies)}: {why}"
        log.info("Proxy %d of %d could not be used: %s.", number, len(self._proxies), why)
        self._count("failed")

    def _fail(self, proxy: str, why: str) -> NoReturn:
        number = self._pool.proxies.index(proxy) + 1
        raise ProxyFailed(f"proxy {number} of {len(self._proxies)}: {why}") from None

    def _count(self, what: str) -> None:
        if self._stats is not None:
            self._stats.inc_value(f"gossamer/proxy/{what}")


def setting(settings: BaseSettings, name: str) -> Any:
    """Return the value of a project's setting, else of the environment's, else the default."""
    default, _ = PROJECT_SETTINGS[name]
    value = settings.get(name)
    return os.environ.get(name, default) if value is None else value


def _number(settings: BaseSettings, name: str, *, above: float) -> float:
    """Return a number of seconds. Raises BadInput."""
    seconds: float = _read(
        name, setting(settings, name), float, lambda seconds: above < seconds < 10**9, "a number of seconds"
    )
    return seconds


def _statuses(settings: BaseSettings) -> frozenset[int]:
    """Return the statuses by which sites refuse a proxy. Raises BadInput."""
    name = "GOSSAMER_PROXY_BAN_STATUSES"
    given = setting(settings, name)
    parts = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else list(given)
    valid = range(100, 600)
    return frozenset(_read(name, part, int, valid.__contains__, "statuses, for example 403,429") for part in parts)


def _read(name: str, value: Any, kind: type, is_valid: Callable[[Any], bool], expected: str) -> Any:
    try:
        read = kind(value)
        if is_valid(read):
            return read
    except (TypeError, ValueError):
        pass
    raise BadInput(f"{name}: cannot use {value!r:.100}. Write {expected}.")


def secure_proxy(request: Request) -> Proxy | None:
    """Return the request's proxy if that is an `https://` one. Raises BadInput."""
    url = request.meta.get("proxy")
    if not url or not str(url).startswith("https://"):
        return None
    headers = tuple(request.meta.get(CONNECT_HEADERS, ()))
    if credentials := request.headers.get(CREDENTIALS):
        headers = (("Proxy-Authorization", credentials.decode("latin-1")), *headers)
    return msgspec.structs.replace(parse_proxy(str(url)), user=b"", password=b"", headers=headers)


def _has_own_handler(settings: BaseSettings) -> bool:
    """Return whether Gossamer's handler downloads http and https."""
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    own = [load_object(handlers[scheme]) for scheme in ("http", "https") if handlers.get(scheme)]
    return all(getattr(handler, "has_secure_proxies", False) for handler in own)


def _domain(request: Request) -> str:
    """Return the registered domain of a request, as the frontier spells it."""
    try:
        return registered_domain(host(canonical(request.url)))
    except BadUrl:
        return request.url  # the download fails with it


def _is_tunnel_error(exception: Exception) -> bool:
    """Return whether Scrapy's own download handler could not open a tunnel through the proxy."""
    # The module is large, and was loaded if the handler is in use.
    http11 = sys.modules.get("scrapy.core.downloader.handlers.http11")
    return http11 is not None and isinstance(exception, http11.TunnelError)
