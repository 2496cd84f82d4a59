"""Limit of the rate at which a client may send requests.

Fixed: status code and title of the problem, which clients read.
"""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.web.problems import Answer, Problem, problem_answer


def client_address(request: Request) -> str | None:
    """Return the address of a request's client. None: it uses a Unix socket."""
    return request.client.host if request.client else None


def client_of(host: str) -> str:
    """Return the client to which an address belongs: for IPv6 the /64 network, because one customer gets a whole one.

    Anything that is not an address, such as the path of a socket, is a client by itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> 64 << 64))  # without the 64 bits that the customer chooses
    return str(address)


_MAX_CLIENTS = 10_000
"""Clients whose rate is remembered. When there are more, the one that has been silent longest is forgotten and starts
with a full burst. More clients need more memory."""
_BURST_SECONDS = 2.0
"""Size of a burst, in seconds of the allowed rate. The help of the setting service.max_requests promises bursts of
twice the rate."""


class TokenBuckets:
    """Rate limit per client, in bounded memory: a token is a request that the client may send now; each client gets
    `per_second` tokens a second and keeps at most a burst."""

    def __init__(
        self,
        per_second: float,
        *,
        monotonic: Callable[[], float],
        max_clients: int = _MAX_CLIENTS,
        burst: float | None = None,
    ) -> None:
        """`burst`: tokens that a client keeps at most; None: those of `_BURST_SECONDS`."""
        self._per_second = per_second
        self._capacity = max(1.0, per_second * _BURST_SECONDS) if burst is None else burst
        self._monotonic = monotonic
        self._max_clients = max_clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By client: its tokens, and when they were counted. The client that sent the latest request is at the end."""

    def take(self, client: str) -> float:
        """Return 0 if the client may send a request now, else the seconds until it may."""
        now = self._monotonic()
        tokens, counted_at = self._buckets.pop(client, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - counted_at) * self._per_second)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._max_clients:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._per_second

    def wait(self, client: str) -> float:
        """Return 0 if the client could send a request now, else the seconds until it can. Takes no token."""
        tokens, counted_at = self._buckets.get(client, (self._capacity, 0.0))
        return max(0.0, (1 - tokens) / self._per_second - (self._monotonic() - counted_at)) if tokens < 1 else 0.0

    def give_back(self, client: str) -> None:
        """Give a client a token back."""
        if client in self._buckets:
            tokens, counted_at = self._buckets[client]
            self._buckets[client] = (min(self._capacity, tokens + 1), counted_at)

    def __len__(self) -> int:
        return len(self._buckets)


_GUESSES_PER_SECOND = 2.0
"""Wrong secrets that a client may send. More make a password easier to guess."""
_GUESSES_AT_ONCE = 200.0
"""Wrong secrets that a client may send before it is slowed down. Programs for Scrapyd send each request with an old
password until a person corrects it, and expect Scrapyd's answer: its own tests send a hundred in a few seconds."""


class TooManyGuesses(Exception):
    """The client has sent too many wrong secrets."""

    def __init__(self, seconds: float) -> None:
        super().__init__("this address has sent too many wrong passwords or tokens; wait a little")
        self.seconds = seconds
        """Time until the next one is compared."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer, whose status is 429."""
        return {"Retry-After": str(max(1, ceil(self.seconds)))}


class GuessLimit:
    """Slows down guesses of a secret that people have chosen, whichever way they are sent. While a client has sent too
    many wrong secrets, the right one is refused, too: otherwise the answer would tell it."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._buckets = TokenBuckets(_GUESSES_PER_SECOND, monotonic=monotonic, burst=_GUESSES_AT_ONCE)

    def judge(self, client: str | None, *, is_right: bool) -> None:
        """Note that a client has sent a secret. Raises TooManyGuesses. `client`: address; None: a program that has sent
        it over a Unix socket, which has no limit."""
        if client is None:
            return
        name = client_of(client)
        if seconds := self._buckets.wait(name) if is_right else self._buckets.take(name):
            raise TooManyGuesses(seconds)

    def forgive(self, client: str | None) -> None:
        """Take back a wrong secret: it was one that cannot be guessed, such as a token of 256 random bits."""
        if client is not None:
            self._buckets.give_back(client_of(client))


class RateLimit:
    """ASGI middleware that limits the requests of a client address. What comes over a Unix socket has no limit."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        per_second: float,
        advice: str = "",
        monotonic: Callable[[], float],
        unlimited_paths: frozenset[str] = frozenset(),
        answer: Answer = problem_answer,
    ) -> None:
        """`advice`: says where the rate can be changed. `unlimited_paths` have no limit."""
        self._app = app
        self._advice = advice
        self._buckets = TokenBuckets(per_second, monotonic=monotonic)
        self._unlimited_paths = unlimited_paths
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, peer = scope["path"], scope.get("client")
        if peer and path not in self._unlimited_paths and (wait := self._buckets.take(client_of(peer[0]))):
            problem = Problem(
                429,
                "Too many requests",
                f"this address sends more requests than are allowed{self._advice}",
                headers={"Retry-After": str(ceil(wait))},
            )
            await self._answer(problem, path)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
