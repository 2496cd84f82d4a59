"""Middleware that protects the API: authentication, the rate limit of a client, and the limits of a request's body.

Fixed: status codes and titles of the problems, which clients read; and that a body is read whole, within its limits,
before an endpoint runs: endpoints have no limits of their own.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.api.openapi import DOCS_PATHS
from gossamer.api.problems import problem_response
from gossamer.web.access import authorization, foreign_page_fault, is_secret, local_fault
from gossamer.web.problems import Problem

UNLIMITED_PATHS = frozenset({"/healthz"})
"""Paths without limits, here and in `connections`, so that a busy process is not restarted as dead. A path may be added
only if its endpoint reads no body and does no work."""
OPEN_PATHS = UNLIMITED_PATHS | DOCS_PATHS
"""Paths that need no token. Any program that reaches the API can read a path that is added here."""


class Authentication:
    """ASGI middleware that checks the token; without one it accepts only programs on this machine. Raises Problem."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN_PATHS:
            headers = Headers(scope=scope)
            if self._token:
                self._check_token(headers)
            else:
                _check_local(scope["method"], headers)
        await self._app(scope, receive, send)

    def _check_token(self, headers: Headers) -> None:
        """Raise Problem unless the request has the token."""
        scheme, given = authorization(headers)
        if scheme != "bearer" or not is_secret(given.encode("latin-1"), self._token):
            raise Problem(
                401,
                "Unauthorized",
                "send the header Authorization: Bearer <token>, with the token of the setting service.token",
                headers={"WWW-Authenticate": 'Bearer realm="gossamer"'},
            )


def _check_local(method: str, headers: Headers) -> None:
    """Raise Problem for a request that a web page in a browser on this machine may have made."""
    fault = local_fault(headers) or foreign_page_fault(method, headers)
    if fault:
        raise Problem(403, "Forbidden", f"{fault}; set service.token, and send it with each request")


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
"""Clients whose rate is remembered. Beyond it, the one that has been silent longest is forgotten and starts with a full
burst. More clients need more memory."""
_BURST_SECONDS = 2.0
"""Size of a burst, in seconds of the allowed rate. The help of the setting service.max_requests promises bursts of
twice the rate."""


class TokenBuckets:
    """Rate limit per client, in bounded memory: a token is a request that the client may send now; each client gets
    `per_second` tokens a second and keeps at most a burst."""

    def __init__(self, per_second: float, *, monotonic: Callable[[], float], max_clients: int = _MAX_CLIENTS) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * _BURST_SECONDS)
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

    def __len__(self) -> int:
        return len(self._buckets)


class RateLimit:
    """ASGI middleware that limits the requests of a client address. Raises Problem."""

    def __init__(self, app: ASGIApp, *, per_second: float, monotonic: Callable[[], float]) -> None:
        self._app = app
        self._buckets = TokenBuckets(per_second, monotonic=monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client") or ("", 0)
        if scope["path"] not in UNLIMITED_PATHS and (wait := self._buckets.take(client_of(peer[0]))):
            raise Problem(
                429,
                "Too many requests",
                "this address sends more requests than the setting service.max_requests allows",
                headers={"Retry-After": str(ceil(wait))},
            )
        await self._app(scope, receive, send)


_LINGER_SECONDS = 2.0
"""Longest time for which the rest of a refused body is read before the connection is closed. With less, clients on slow
networks may lose the response; with more, refused requests hold their connections longer."""
_LINGER_BYTES = 16 * 1024 * 1024
"""Most bytes of a refused body that are read in that time."""


class BodyLimit:
    """ASGI middleware that reads the whole body, within limits of size and time, before the application runs."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # 1. A body that is declared too large is refused before any of it is read.
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._max_bytes:
            await self._refuse(self._too_large(f"{int(declared):,}"), scope, receive, send)
            return
        # 2. The body is read, up to its end or a limit.
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._max_bytes:
                        await self._refuse(self._too_large("more"), scope, receive, send)
                        return
        except TimeoutError:
            problem = Problem(408, "Request timeout", f"the body did not arrive within {self._timeout_seconds:g} s")
            await self._refuse(problem, scope, receive, send)
            return
        # 3. The application gets it as one message.
        whole_body: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def receive_whole_body() -> Message:
            nonlocal whole_body
            if whole_body is not None:
                message, whole_body = whole_body, None
                return message
            return await receive()  # afterwards the application waits for the client to disconnect

        await self._app(scope, receive_whole_body, send)

    def _too_large(self, size: str) -> Problem:
        return Problem(
            413,
            "Request too large",
            f"the body has {size} bytes, the setting service.max_body allows {self._max_bytes:,}",
        )

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the problem while the client is still sending its body, and close the connection."""
        problem.headers = {**problem.headers, "Connection": "close"}
        response = problem_response(problem, scope["path"])
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        # Read on for a moment. If the connection were closed at once, it would be reset while the client is still
        # sending, and the client would lose the response.
        bytes_left = _LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while bytes_left > 0:
                    message = await receive()
                    bytes_left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        break
        await send({"type": "http.response.body", "body": b"", "more_body": False})
