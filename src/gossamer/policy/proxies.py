"""Chooses a proxy of a pool for each request, and decides which proxies rest. Times in seconds on one monotonic clock.

A proxy that cannot be used rests for all sites; one that a site refuses rests for that site only. Each rest in a row is
twice as long, up to a limit, and a response ends the row. Nothing here reads a clock or a random number; callers pass
both. Fixed: `choose` returns None where no proxy is usable, and callers then send nothing: a request must never leave
without its proxy.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from gossamer.policy.retry import retry_delay

MAX_PROXIES = 1000
"""Proxies of one pool. With more, the choice for a domain takes longer."""
_MAX_RESTS = 10_000
"""Pairs of proxy and domain whose rests a pool remembers; the oldest makes room. More take memory."""
_TROUBLED_DOMAINS = 3
"""Domains that got no response through a proxy, with none for another domain between, after which the proxy rests for
all. Fewer mistake failing sites for a failing proxy, more try a silent proxy for longer."""

KeyT = TypeVar("KeyT", bound=Hashable)


class ProxyRests(msgspec.Struct, frozen=True):
    """Lengths of the rests of a proxy."""

    first_seconds: float = 10.0
    """After the first failure; it doubles with each further one in a row."""
    longest_seconds: float = 600.0


class _Rest(msgspec.Struct):
    """Failures in a row, and the time at which the rest after the last one ends."""

    failures: int = 0
    until: float = 0.0


class _Rests(Generic[KeyT]):
    """Rests by key, of which the oldest are forgotten beyond a number."""

    def __init__(self, policy: ProxyRests) -> None:
        self._policy = policy
        self._rests: OrderedDict[KeyT, _Rest] = OrderedDict()

    def begin(self, key: KeyT, *, now: float, random: float) -> None:
        """Begin a rest. Failures of requests that were sent before it began do not make it longer."""
        rest = self._rests.setdefault(key, _Rest())
        if rest.until > now:
            return
        rest.failures += 1
        rest.until = now + retry_delay(
            rest.failures,
            random=random,
            base_seconds=self._policy.first_seconds,
            cap_seconds=self._policy.longest_seconds,
        )
        self._rests.move_to_end(key)
        if len(self._rests) > _MAX_RESTS:
            self._rests.popitem(last=False)

    def until(self, key: KeyT) -> float:
        """Return the time at which the last rest ends or ended. 0: there was none."""
        rest = self._rests.get(key)
        return 0.0 if rest is None else rest.until

    def forget(self, key: KeyT) -> None:
        """End the row of failures."""
        self._rests.pop(key, None)


class ProxyPool:
    """Proxies among which the requests of a crawl are shared. Belongs to one process.

    A pool of one proxy never rests: its requests are retried like those of a site that is away.
    """

    def __init__(self, proxies: Sequence[str], *, sticky: bool, rests: ProxyRests) -> None:
        """`proxies`: any texts that identify them, at least one; the same in all processes where `sticky`, so that all
        choose the same proxy for a domain. `sticky` False: each request takes the next proxy. `sticky` True: each
        domain keeps its proxy, and has another one only while that rests.
        """
        if not proxies:
            raise ValueError("a pool needs a proxy")
        self.proxies = tuple(proxies)
        self._sticky = sticky
        self._next = 0
        self._rests: _Rests[str] = _Rests(rests)
        self._domain_rests: _Rests[tuple[str, str]] = _Rests(rests)
        self._troubled: dict[str, set[str]] = {}
        """By proxy: domains that got no response through it since the last response."""

    def choose(self, domain: str, *, now: float, excluded: Container[str] = ()) -> str | None:
        """Return the proxy for a request to this domain. None: all proxies rest, so nothing may be sent.

        `excluded`: proxies that must not be chosen."""
        if self._sticky:
            usable = [one for one in self.proxies if one not in excluded and self.is_usable(one, domain, now=now)]
            return max(usable, key=self._rank(domain), default=None)
        count = len(self.proxies)
        for step in range(count):
            proxy = self.proxies[(self._next + step) % count]
            if proxy not in excluded and self.is_usable(proxy, domain, now=now):
                self._next = (self._next + step + 1) % count
                return proxy
        return None

    def is_usable(self, proxy: str, domain: str, *, now: float) -> bool:
        """Return whether a request to this domain may go through this proxy now."""
        return len(self.proxies) == 1 or self._usable_at(proxy, domain) <= now

    def is_up(self, proxy: str, *, now: float) -> bool:
        """Return whether a proxy does not rest for all domains."""
        return len(self.proxies) == 1 or self._rests.until(proxy) <= now

    def seconds_until_usable(self, domain: str, *, now: float) -> float:
        """Return the seconds until any proxy is usable for this domain. 0: one is."""
        if len(self.proxies) == 1:
            return 0.0
        return max(0.0, min(self._usable_at(proxy, domain) for proxy in self.proxies) - now)

    def on_response(self, proxy: str, domain: str) -> None:
        """Record that a request to this domain got a response that the site did not refuse."""
        self._rests.forget(proxy)
        self._domain_rests.forget((proxy, domain))
        self._troubled.pop(proxy, None)

    def on_failure(self, proxy: str, *, now: float, random: float) -> None:
        """Record that a proxy could not be used. It rests. `random` in [0, 1): spreads the ends of rests."""
        self._rests.begin(proxy, now=now, random=random)

    def on_refusal(self, proxy: str, domain: str, *, now: float, random: float) -> None:
        """Record that a site refuses this proxy: the proxy rests for this domain. `random`: see `on_failure`."""
        self._domain_rests.begin((proxy, domain), now=now, random=random)

    def on_no_response(self, proxy: str, domain: str, *, now: float, random: float) -> None:
        """Record that a request through this proxy got no response, which may be the site's fault or the proxy's.

        The proxy rests for this domain; after some domains in a row, for all. `random`: see `on_failure`.
        """
        self._domain_rests.begin((proxy, domain), now=now, random=random)
        troubled = self._troubled.setdefault(proxy, set())
        troubled.add(domain)
        if len(troubled) >= _TROUBLED_DOMAINS:
            del self._troubled[proxy]
            self.on_failure(proxy, now=now, random=random)

    def _usable_at(self, proxy: str, domain: str) -> float:
        return max(self._rests.until(proxy), self._domain_rests.until((proxy, domain)))

    @staticmethod
    def _rank(domain: str) -> Callable[[str], bytes]:
        """Return the order of the proxies for a domain. It is the same in all processes, and if a proxy rests, only its
        own domains move (rendezvous hashing)."""
        return lambda proxy: blake2b(f"{domain}\n{proxy}".encode(), digest_size=8).digest()
