"""Chooses the proxy of each attempt, and learns from its result which proxies work.

Fixed: where a crawl has proxies, no request is sent without one; and no text here has a proxy's address, because it
goes into records and logs: a proxy is named by its place in the list. Safe to change: the numbers, as they say.
"""

import random
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gossamer.errors import BadInput, ConnectionLost, FetchError, NotSentInTime, ProxyFailed
from gossamer.fetch.proxies import parse_proxy, split_proxies
from gossamer.policy.proxies import ProxyPool, ProxyRests
from gossamer.worker.attempt import Attempt

_MAX_POOLS = 256
"""Lists of proxies whose state a worker keeps; the least recently used makes room. May be changed: with fewer, a
service with many crawls that name proxies forgets sooner which of these rest."""
_NO_RESPONSE = frozenset(
    ("connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout", "connection_lost", "bad_response")
)
"""Kinds of FetchError that may be the site's fault or the proxy's. May be changed: a kind that is missing is taken for
the site's."""


class ProxyOptions(msgspec.Struct, frozen=True):
    """Options of all pools of a worker."""

    sticky: bool = False
    """True: a domain keeps its proxy; see `ProxyPool`."""
    rests: ProxyRests = ProxyRests()
    ban_statuses: frozenset[int] = frozenset((403, 429))
    """Statuses by which a site refuses a proxy. Empty: none."""
    budgeted: str = ""
    """List of proxies that each have a budget of their own: a request goes through the proxy for whose address the
    frontier granted its hit (the charge to the site's rate limit). Empty: all proxies share a budget."""


class WorkerProxies:
    """Pools of proxies of one worker: one for each list of proxies."""

    def __init__(self, options: ProxyOptions, count: Callable[[str], None]) -> None:
        """`count` is called with the kind of each failure of a proxy of several: `unusable` (the proxy), `refused` (it
        does not connect to a site, or the site answers with a ban status), `no_response`."""
        self._options = options
        self._count = count
        self._pools: OrderedDict[str, ProxyPool] = OrderedDict()
        self._last_failures: dict[str, str] = {}
        self._by_egress: dict[str, list[str]] = {}
        """Budgeted proxies by address."""
        for proxy in split_proxies(options.budgeted):
            self._by_egress.setdefault(parse_proxy(proxy).address, []).append(proxy)

    def egresses(self) -> tuple[str, ...]:
        """Return the addresses for which requests may be leased now: those of proxies that do not rest, or all if none
        is left. Empty: proxies have no budgets of their own."""
        now = time.monotonic()
        if not self._by_egress:
            return ()
        pool = self._pool(self._options.budgeted)
        usable = [name for name, own in self._by_egress.items() if any(pool.is_up(proxy, now=now) for proxy in own)]
        return tuple(usable or self._by_egress)

    def choose(self, attempt: Attempt) -> bool:
        """Set the attempt's proxy, unless it has none or keeps the one it has. Returns False if the request needs a hit
        for another proxy.

        Raises ProxyFailed, with the seconds to wait, if all proxies rest, and BadInput for a request with proxies of
        its own where proxies have budgets: their budgets would be those of other addresses.
        """
        if attempt.context.proxy is None:
            return True
        pool, domain, now = self._pool(attempt.context.proxy), attempt.lease.domain, time.monotonic()
        if self._by_egress and attempt.context.proxy != self._options.budgeted:
            raise BadInput("this worker has budgets for its own proxies (fetch.proxy_budget), so it uses no others")
        if attempt.proxy in pool.proxies and pool.is_usable(attempt.proxy, domain, now=now):
            return True
        if self._by_egress:
            own = self._by_egress.get(attempt.lease.egress, ())
            proxy = next((one for one in own if pool.is_usable(one, domain, now=now)), None)
            if proxy is None and pool.seconds_until_usable(domain, now=now) == 0:
                return False
        else:
            proxy = pool.choose(domain, now=now)
        if proxy is None:
            wait = pool.seconds_until_usable(domain, now=now)
            last = self._last_failures.get(attempt.context.proxy, "")
            raise ProxyFailed(
                f"all {len(pool.proxies)} proxies rest; the next one is tried in {max(1, round(wait))} s{last}",
                wait_seconds=wait,
            )
        attempt.proxy = proxy
        return True

    def on_failure(self, attempt: Attempt, error: FetchError) -> bool:
        """Record that the attempt's request got no response. Returns True if the attempt may continue at once with
        another proxy: the site has not seen the request."""
        pool = self._pool_of(attempt)
        if pool is None or attempt.proxy is None or isinstance(error, NotSentInTime):
            return False
        domain, now, jitter = attempt.lease.domain, time.monotonic(), random.random()
        number = pool.proxies.index(attempt.proxy) + 1
        text = f"proxy {number} of {len(pool.proxies)}: {error.detail or error.kind}"
        if isinstance(error, ProxyFailed) and not error.for_target:
            pool.on_failure(attempt.proxy, now=now, random=jitter)
            self._count("unusable")
        elif isinstance(error, ProxyFailed):
            pool.on_refusal(attempt.proxy, domain, now=now, random=jitter)
            self._count("refused")
        elif error.kind in _NO_RESPONSE and not (isinstance(error, ConnectionLost) and error.repeatable):
            pool.on_no_response(attempt.proxy, domain, now=now, random=jitter)
            self._count("no_response")
            return False
        else:
            return False
        assert attempt.context.proxy is not None
        self._last_failures[attempt.context.proxy] = f". Last failure: {text}"
        return pool.seconds_until_usable(domain, now=now) == 0

    def on_response(self, attempt: Attempt, status: int) -> None:
        """Record that the attempt's request got a response with this status."""
        pool = self._pool_of(attempt)
        if pool is None or attempt.proxy is None:
            return
        domain = attempt.lease.domain
        if status in self._options.ban_statuses:
            pool.on_refusal(attempt.proxy, domain, now=time.monotonic(), random=random.random())
            self._count("refused")
        else:
            pool.on_response(attempt.proxy, domain)

    def has_another(self, attempt: Attempt, status: int) -> bool:
        """Return whether a site refused the attempt's proxy with this status and another proxy may be tried for it."""
        pool = self._pool_of(attempt)
        if pool is None or status not in self._options.ban_statuses:
            return False
        return pool.seconds_until_usable(attempt.lease.domain, now=time.monotonic()) == 0

    def _pool_of(self, attempt: Attempt) -> ProxyPool | None:
        """Return the pool of an attempt. None: it has one proxy or none, so there is nothing to choose."""
        if attempt.context.proxy is None:
            return None
        pool = self._pool(attempt.context.proxy)
        return pool if len(pool.proxies) > 1 and attempt.proxy in pool.proxies else None

    def _pool(self, text: str) -> ProxyPool:
        """Return the pool of a list of proxies. Raises BadInput for one that cannot be read."""
        pool = self._pools.get(text)
        if pool is None:
            pool = ProxyPool(split_proxies(text) or (text,), sticky=self._options.sticky, rests=self._options.rests)
            self._pools[text] = pool
            if len(self._pools) > _MAX_POOLS:
                forgotten, _ = self._pools.popitem(last=False)
                self._last_failures.pop(forgotten, None)
        else:
            self._pools.move_to_end(text)
        return pool
