"""Chooses the proxy of each attempt, and learns from its result which proxies work.

Fixed: where a crawl has proxies, no request is sent without one; and no text here has a proxy's address, because it
goes into records and logs: a proxy is named by its place in the list.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gossamer.errors import BadInput, ConnectionLost, FetchError, NotSentInTime, ProxyFailed, TotalTimeout
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.proxies import parse_proxy, split_proxies
from gossamer.fetch.robots_service import Fetch, Reroute
from gossamer.policy.proxies import ProxyPool, ProxyRests
from gossamer.policy.robots import RobotsOutcome, classify_status
from gossamer.telemetry.logs import Troubles
from gossamer.worker.attempt import Attempt

_MAX_POOLS = 256
"""Lists of proxies whose state a worker keeps; the least recently used makes room. With fewer, a service with many
crawls that name proxies forgets sooner which of these rest."""
_NO_RESPONSE = frozenset(
    ("connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout", "connection_lost", "bad_response")
)
"""Kinds of FetchError that may be the site's fault or the proxy's. A kind that is missing is taken for the site's."""
_ROBOTS_TRIES = 3
"""Requests for one robots.txt, with its redirects, of which each further one goes through another proxy."""
_ROBOTS_TRY_SECONDS = 8.0
"""Longest of these requests but the last. All must fit into `fetch_seconds` of RobotsService."""
_TROUBLE = "proxies"
"""Name of the reported trouble. For an application with proxies of its own, the appid follows, after a colon."""
_FAILURES_OF_ONE = 2
"""Failures in a row after which a single proxy counts as unusable. With 1, each lost connection to a proxy is
logged."""
_FORGOTTEN_AFTER_SECONDS = 1200.0
"""Time after the last failure from which proxies are no longer reported as unusable, because no request needs them. At
least twice the longest rest."""


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
    appids: frozenset[str] = frozenset()
    """Applications that have proxies of their own."""


class _Outage(msgspec.Struct):
    """Failures in a row of a list of proxies."""

    failures: int = 0
    last: float = 0.0
    """Time of the last one, in seconds on the monotonic clock."""
    is_reported: bool = False


class _Outages:
    """Lists of proxies of which none can be used at present, for the log. It names their application, and no
    address."""

    def __init__(self, options: ProxyOptions, troubles: Troubles) -> None:
        self._appids = options.appids
        self._kept_seconds = max(_FORGOTTEN_AFTER_SECONDS, 2 * options.rests.longest_seconds)
        self._troubles = troubles
        self._by_list: dict[tuple[str, str], _Outage] = {}
        """By name of the trouble, and list of proxies."""

    def on_failure(self, attempt: Attempt, pool: ProxyPool, reason: str, *, now: float) -> None:
        """Record a failure of a proxy of the attempt's list, and report it if none of the list can be used."""
        key = self._key(attempt)
        outage = self._by_list.get(key)
        if outage is None:
            if len(self._by_list) >= _MAX_POOLS:
                return
            outage = self._by_list[key] = _Outage()
        outage.failures += 1
        outage.last = now
        count = len(pool.proxies)
        if any(pool.is_up(one, now=now) for one in pool.proxies) if count > 1 else outage.failures < _FAILURES_OF_ONE:
            return
        outage.is_reported = True
        which = f"None of the {count} proxies" if count > 1 else "The proxy"
        can = "can" if count > 1 else "cannot"
        self._troubles.begin(
            key[0],
            f"{which} of {self._owner(attempt)} {can} be used ({reason}). Nothing is sent without a proxy: requests "
            "are retried, and then fail with the reason proxy.",
        )

    def on_wait(self, attempt: Attempt, *, now: float) -> None:
        """Record that a request waits because all proxies of its list rest."""
        if outage := self._by_list.get(self._key(attempt)):
            outage.last = now

    def on_response(self, attempt: Attempt) -> None:
        """Record that a response came through a proxy of the attempt's list."""
        if self._by_list and (outage := self._by_list.pop(key := self._key(attempt), None)):
            self._end(key[0], outage, f"The proxies of {self._owner(attempt)} can be used again.")

    def forget(self, *, now: float) -> None:
        """End the reports about proxies that no request needs any more."""
        for key, outage in list(self._by_list.items()):
            if outage.last + self._kept_seconds <= now:
                del self._by_list[key]
                self._end(key[0], outage, "No request needs the proxies that could not be used.")

    def _end(self, name: str, ended: _Outage, message: str) -> None:
        if ended.is_reported and not any(key[0] == name and one.is_reported for key, one in self._by_list.items()):
            self._troubles.end(name, message)

    def _key(self, attempt: Attempt) -> tuple[str, str]:
        context = attempt.context
        appid = context.run.crawl.id.appid
        has_own = context.terms.proxy is None and appid in self._appids
        return f"{_TROUBLE}:{appid}" if has_own else _TROUBLE, context.proxy or ""

    @staticmethod
    def _owner(attempt: Attempt) -> str:
        crawl = attempt.context.run.crawl
        return f"the application {crawl.id.appid}" if crawl.is_of_service else "this crawl"


class _ReroutedFetch:
    """Fetches a robots.txt, and the redirects from it, through another proxy of a pool where one is refused, gets no
    response or the status of a server that fails, which may be the proxy's own. Without that, one such proxy would make
    all requests to the site wait.

    The robots.txt is not charged to the site's rate limit, so few proxies are tried. Failures of the first one that say
    that it does not work are raised: the request for the page meets them, too, and is sent through another.
    """

    def __init__(
        self, fetch: Fetch, pool: ProxyPool, domain: str, *, ban_statuses: frozenset[int], count: Callable[[str], None]
    ) -> None:
        self._fetch = fetch
        self._pool = pool
        self._domain = domain
        self._ban_statuses = ban_statuses
        self._count = count
        self._proxy: str | None = None
        """Proxy of the next request, after another was refused. None: the request's own."""
        self._tried: set[str] = set()
        """Proxies through which the file is not asked for again."""
        self._tries_left = _ROBOTS_TRIES

    async def __call__(self, request: FetchRequest) -> FetchResponse:
        """Implement Fetch."""
        while True:
            if self._proxy is not None:
                request = msgspec.structs.replace(request, proxy=self._proxy)
            self._tries_left -= 1
            try:
                fetched = await self._try(request)
            except FetchError as error:
                is_first_unusable = isinstance(error, ProxyFailed) and self._proxy is None
                if is_first_unusable or not self._on_failure(request, error) or not self._has_another(request):
                    raise
            else:
                # A refusal that allows everything, as 403, is no reason to ask again.
                if classify_status(fetched.status) is not RobotsOutcome.UNREACHABLE:
                    return fetched
                if fetched.status in self._ban_statuses:
                    self._rest(request, refused=True)
                if not self._has_another(request):
                    return fetched

    async def _try(self, request: FetchRequest) -> FetchResponse:
        """Send the request. A silent proxy leaves time for another one."""
        if not self._tries_left:
            return await self._fetch(request)
        try:
            async with asyncio.timeout(_ROBOTS_TRY_SECONDS):
                return await self._fetch(request)
        except TimeoutError:
            raise TotalTimeout(f"{_ROBOTS_TRY_SECONDS:g} s") from None

    def _on_failure(self, request: FetchRequest, error: FetchError) -> bool:
        """Record a failure. Returns whether it may be the proxy's."""
        if isinstance(error, ProxyFailed):
            assert request.proxy is not None
            self._pool.on_failure(request.proxy, now=time.monotonic(), random=random.random())
            self._count("unusable")
        elif error.kind in _NO_RESPONSE:
            self._rest(request, refused=False)
        else:
            return False
        return True

    def _rest(self, request: FetchRequest, *, refused: bool) -> None:
        """Let the request's proxy rest for the domain."""
        assert request.proxy is not None
        record = self._pool.on_refusal if refused else self._pool.on_no_response
        record(request.proxy, self._domain, now=time.monotonic(), random=random.random())
        self._count("refused" if refused else "no_response")

    def _has_another(self, request: FetchRequest) -> bool:
        """Choose another proxy than the request's. Returns whether there is one, and it may be tried."""
        if not self._tries_left:
            return False
        assert request.proxy is not None
        self._tried.add(request.proxy)
        another = self._pool.choose(self._domain, now=time.monotonic(), excluded=self._tried)
        if another is not None:
            self._proxy = another
        return another is not None


class WorkerProxies:
    """Pools of proxies of one worker: one for each list of proxies."""

    def __init__(self, options: ProxyOptions, count: Callable[[str], None], troubles: Troubles) -> None:
        """`count` is called with the kind of each failure of a proxy: `unusable` (the proxy), `refused` (it does not
        connect to a site, or the site answers with a ban status), `no_response`. `troubles` gets a message when none of
        a crawl's proxies can be used."""
        self._options = options
        self._count = count
        self._outages = _Outages(options, troubles)
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
            self._outages.on_wait(attempt, now=now)
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
        text = error.detail or error.kind
        if len(pool.proxies) > 1:
            text = f"proxy {pool.proxies.index(attempt.proxy) + 1} of {len(pool.proxies)}: {text}"
            if isinstance(error, ProxyFailed):
                error.set_detail(text)  # for the record, if this was the last attempt
        if isinstance(error, ProxyFailed) and not error.for_target:
            pool.on_failure(attempt.proxy, now=now, random=jitter)
            self._count("unusable")
            self._outages.on_failure(attempt, pool, text, now=now)
        elif isinstance(error, ProxyFailed):
            pool.on_refusal(attempt.proxy, domain, now=now, random=jitter)
            self._count("refused")
        elif error.kind in _NO_RESPONSE and not (isinstance(error, ConnectionLost) and error.repeatable):
            pool.on_no_response(attempt.proxy, domain, now=now, random=jitter)
            self._count("no_response")
            if len(pool.proxies) > 1:  # with a single one, the site may be at fault
                self._outages.on_failure(attempt, pool, text, now=now)
            return False
        else:
            return False
        assert attempt.context.proxy is not None
        self._last_failures[attempt.context.proxy] = f". Last failure: {text}"
        return len(pool.proxies) > 1 and pool.seconds_until_usable(domain, now=now) == 0

    def on_response(self, attempt: Attempt, status: int) -> None:
        """Record that the attempt's request got a response with this status."""
        pool = self._pool_of(attempt)
        if pool is None or attempt.proxy is None:
            return
        self._outages.on_response(attempt)
        domain = attempt.lease.domain
        if status in self._options.ban_statuses:
            pool.on_refusal(attempt.proxy, domain, now=time.monotonic(), random=random.random())
            self._count("refused")
        else:
            pool.on_response(attempt.proxy, domain)

    def has_another(self, attempt: Attempt, status: int) -> bool:
        """Return whether a site refused the attempt's proxy with this status and another proxy may be tried for it."""
        pool = self._pool_of(attempt)
        if pool is None or len(pool.proxies) == 1 or status not in self._options.ban_statuses:
            return False
        return pool.seconds_until_usable(attempt.lease.domain, now=time.monotonic()) == 0

    def reroute(self, attempt: Attempt) -> Reroute | None:
        """Return how the robots.txt for this attempt is fetched if one of its proxies gets none. None: it has no other
        proxy."""
        pool = self._pool_of(attempt)
        if pool is None or len(pool.proxies) == 1:
            return None
        domain, statuses, count = attempt.lease.domain, self._options.ban_statuses, self._count
        return lambda fetch: _ReroutedFetch(fetch, pool, domain, ban_statuses=statuses, count=count)

    def forget_outages(self) -> None:
        """End the reports about proxies that no request needs any more. To be called now and then."""
        self._outages.forget(now=time.monotonic())

    def _pool_of(self, attempt: Attempt) -> ProxyPool | None:
        """Return the pool of which the attempt has a proxy. None: it has none."""
        if attempt.context.proxy is None:
            return None
        pool = self._pool(attempt.context.proxy)
        return pool if attempt.proxy in pool.proxies else None

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
