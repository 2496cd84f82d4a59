"""Downloader middlewares that the schedulers add, closest to the downloader: the shared throttle, the address guard.

Fixed: both stay the closest to the downloader, because a middleware behind them could send a request that they have not
seen; requests for robots.txt need no hit, because the request that waits for the file would miss its own; and what
AddressGuard lets through, which decides whether a crawl reaches private networks.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet import defer
from twisted.python.failure import Failure

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadUrl, BlockedAddress, DnsFailed
from gossamer.fetch.robots_rules import RobotsRules
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Run
from gossamer.net.resolve import Resolver
from gossamer.policy.retry import parse_retry_after
from gossamer.policy.urls import canonical, host, registered_domain
from gossamer.scrapy.entries import RENDER_KEY
from gossamer.settings import Settings

_PAUSED_SECONDS = 5.0
"""Seconds between two attempts to get a hit of a paused domain. Shorter costs calls to the frontier, longer delays the
first request after the pause."""
_MAX_WAIT_SECONDS = 5.0
"""Longest wait before a request asks for a hit again: the domain's policy may change meanwhile."""
_MAX_JITTER = 0.1
"""Largest share by which a wait is lengthened at random, so that processes do not ask all at once. Must not be
negative, or a request asks before its hit is due."""
_ROBOTS_PATH = "/robots.txt"  # RFC 9309: fixed
_OVERLOAD_STATUSES = (429, 503)
"""Statuses whose Retry-After header holds for the whole domain (RFC 6585, RFC 9110). A redirect's holds for its target
only: add none of those."""


class LeaseTakenOver(IgnoreRequest):
    """Raised for a leased request that another process runs by now, because this one was silent for too long
    (suspended, cut off). It is not sent, or the page would be fetched twice, and the spider gets no result of it."""


def was_taken_over(result: object) -> bool:
    """Return whether this result of a request is LeaseTakenOver."""
    return isinstance(result, Failure) and isinstance(result.value, LeaseTakenOver)


class SharedThrottle:
    """Downloader middleware that makes requests without a usable hit wait for one from the frontier.

    A hit is the permission to send one request to a domain; the frontier, which all processes share, grants hits at the
    domain's rate. A leased request (one from the frontier's queue) has its hit. All other requests wait here: images of
    a media pipeline, `engine.download`, requests that could not be stored, and leased requests that were held up until
    their hit expired (mostly by a slow robots.txt that many requests wait for). So does a request that is sent a second
    time because its connection was lost. Requests for robots.txt need no hit.
    """

    def __init__(
        self,
        frontier: ValkeyFrontier,
        holder: ValkeyLeaseholder,
        retrier: Retrier,
        run: Run,
        spider: str,
        settings: BaseSettings,
        *,
        send_by: Callable[[Request], float | None],
        is_taken_over: Callable[[Request], bool],
    ) -> None:
        """`send_by` returns the monotonic time until which a leased request may use its hit. None: not leased.
        `is_taken_over` returns whether a leased request is another process's by now."""
        self._frontier = frontier
        self._holder = holder
        self._retrier = retrier
        self._run = run
        self._spider = spider
        self._send_by = send_by
        self._is_taken_over = is_taken_over
        self.on_rendering: Callable[[], None] = lambda: None
        """Called before a request is sent that was not leased, and has `render` in its meta."""
        self.charges_addresses = False
        """True: each address of a proxy has a budget of its own."""
        self.egress_of: Callable[[Request], str] = lambda request: ""
        """Returns the address of a request's proxy, where each has a budget of its own."""
        self._user_agent = str(settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"])
        self._crawl_delays: dict[str, float] = {}
        """Seconds last reported for each domain whose robots.txt has a Crawl-delay."""

    def may_send(self, request: Request) -> bool:
        """Return whether the request may be sent now; otherwise `process_request` decides."""
        send_by = self._send_by(request)
        return send_by is not None and time.monotonic() <= send_by and not self._is_taken_over(request)

    async def process_request(self, request: Request) -> None:
        """Return when the request may be sent. Raises LeaseTakenOver."""
        self._check_lease(request)
        send_by = self._send_by(request)
        if send_by is not None and time.monotonic() <= send_by:
            return
        if RENDER_KEY in request.meta:
            self.on_rendering()
        # Where the domain was paused after the lease, the request goes on its old hit: a closing spider would otherwise
        # wait for it.
        egress = self.egress_of(request)
        await self._wait_for_hit(request.url, give_up_if_paused=send_by is not None, egress=egress)
        self._check_lease(request)

    def _check_lease(self, request: Request) -> None:
        if self._is_taken_over(request):
            raise LeaseTakenOver("another process has taken this request over")

    async def may_repeat(self, url: str, address: str = "") -> bool:
        """Return True when a request may be sent a second time, on a new hit, because its connection was lost. False:
        the domain is paused, or each proxy has a budget and the `address` of the request's is unknown."""
        if self.charges_addresses and not address:
            return False
        return await self._wait_for_hit(url, give_up_if_paused=True, egress=address if self.charges_addresses else "")

    async def _wait_for_hit(self, url: str, *, give_up_if_paused: bool, egress: str = "") -> bool:
        """Return True when a hit was granted, or none is needed. False: the domain is paused, and `give_up_if_paused`
        is set; else the call waits for the end of the pause."""
        target = _domain_and_path(url)
        if target is None or target[1] == _ROBOTS_PATH:
            return True
        domain, _ = target
        while True:
            # 0.0: a hit was granted. None: the domain is paused.
            wait = await self._retrier.call_frontier(
                lambda: self._holder.charge_hit(self._run, spider=self._spider, domain=domain, egress=egress),
                shard=self._frontier.shard_of(domain),
            )
            if wait == 0.0:
                return True
            if wait is None and give_up_if_paused:
                return False
            seconds = _PAUSED_SECONDS if wait is None else min(wait, _MAX_WAIT_SECONDS)
            await asyncio.sleep(seconds * (1.0 + _MAX_JITTER * random.random()))

    def has_no_advice(self, request: Request, response: Response) -> bool:
        """Return whether a response says nothing about the domain's rate: `process_response` would do nothing."""
        url = request.url
        return response.status not in _OVERLOAD_STATUSES and _ROBOTS_PATH not in url and "%" not in url

    async def process_response(self, request: Request, response: Response) -> Response:
        """Report the site's `Retry-After`, and the `Crawl-delay` of its robots.txt, to the whole cluster."""
        target = _domain_and_path(request.url)
        if target is None:
            return response
        domain, path = target
        if response.status in _OVERLOAD_STATUSES and (header := response.headers.get(b"Retry-After")):
            seconds = parse_retry_after(header.decode("latin-1"), now=time.time())
            if seconds:
                await self._retrier.call_frontier(
                    lambda: self._frontier.block_domain(domain, seconds=seconds), shard=self._frontier.shard_of(domain)
                )
        elif path == _ROBOTS_PATH and response.status == 200:
            delay = RobotsRules(response.body).verdict("/", self._user_agent, explain=False).crawl_delay or 0.0
            if self._crawl_delays.get(domain, 0.0) != delay:
                self._crawl_delays[domain] = delay
                await self._retrier.call_frontier(
                    lambda: self._frontier.set_crawl_delay(domain, seconds=delay), shard=self._frontier.shard_of(domain)
                )
        return response


def _domain_and_path(text: str) -> tuple[str, str] | None:
    """Return the registered domain and the path. None for a URL that is not on the web (`data:`, `file:`, `s3:`)."""
    try:
        url = canonical(text)
    except BadUrl:
        return None
    path_start = url.index("/", len("https://"))  # also right for http://, where the host is at least as long
    return registered_domain(host(url)), url[path_start:].partition("?")[0]


class AddressRefused(IgnoreRequest):
    """Raised for a request whose host has no address that may be connected to. The cluster's scheduler recognizes it
    and records the request as dropped, not as failed."""


class AddressGuard:
    """Downloader middleware that refuses private addresses: the public internet and `GOSSAMER_ALLOW_NETWORKS` are open.

    It checks the addresses that Scrapy's own resolver returns; the downloader then reads the resolver's cache. It is
    less strict than the fast worker, Gossamer's own crawler:

    - The connection is not bound to the address that was checked. Where that cache is off or full, a name that resolves
      differently a moment later is connected to without a check.
    - Where a host has allowed and refused addresses, Scrapy chooses among them.
    - Without a reactor (TWISTED_REACTOR_ENABLED=False), Scrapy has neither resolver nor cache; the guard asks the
      system.
    """

    def __init__(self, settings: Settings) -> None:
        own = lookup if is_reactor_installed() else None
        self._resolver = Resolver(allow_networks=settings.allow_networks, lookup=own)

    async def process_request(self, request: Request) -> None:
        """Return when the request may be sent. Raises AddressRefused."""
        await self._check(request.url)
        proxy = request.meta.get("proxy")
        if proxy:
            await self._check(str(proxy))

    def close(self) -> None:
        """Release the resolver. May be repeated."""
        self._resolver.close()

    async def _check(self, url: str) -> None:
        try:
            name = host(canonical(url))
        except BadUrl:
            return  # not on the web
        try:
            await self._resolver.addresses(name, 0)
        except BlockedAddress as refusal:
            raise AddressRefused(
                f"The address is not on the public internet; GOSSAMER_ALLOW_NETWORKS permits it: {refusal.detail}"
            ) from None
        except DnsFailed:
            return  # the downloader fails with it and reports it


async def lookup(name: str) -> list[str]:
    """Return the address that Scrapy's resolver, the reactor's, has for this name."""
    from twisted.internet import reactor  # importing it installs a reactor, so only where there is one

    resolve: Any = reactor.resolve
    found: defer.Deferred[str] = resolve(name)
    return [await maybe_deferred_to_future(found)]
