"""How much one client may send: requests a second, and bytes of a body. Both refuse before anything is parsed."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.api.auth import UNLIMITED_PATHS
from gossamer.api.problems import Problem, shown

_CLIENTS = 10_000
"""That are remembered. One that is forgotten begins anew."""
_BURST = 2.0
"""Seconds' worth of requests that may come at once."""
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 16 * 1024 * 1024


class TokenBuckets:
    """A token bucket for each client. Its memory is bounded."""

    def __init__(self, a_second: float, *, monotonic: Callable[[], float], clients: int = _CLIENTS) -> None:
        self._a_second = a_second
        self._most = max(1.0, a_second * _BURST)
        self._monotonic = monotonic
        self._clients = clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """0 when the client may send this request, else the seconds until it may send one."""
        now = self._monotonic()
        tokens, then = self._buckets.pop(client, (self._most, now))
        tokens = min(self._most, tokens + (now - then) * self._a_second)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._a_second

    def __len__(self) -> int:
        return len(self._buckets)


def client_of(host: str) -> str:
    """The client that an address belongs to: of IPv6 the network that one customer gets."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> 64 << 64))
    return str(address)


class RateLimit:
    """ASGI middleware; raises Problem."""

    def __init__(self, app: ASGIApp, *, a_second: float, monotonic: Callable[[], float]) -> None:
        self._app = app
        self._buckets = TokenBuckets(a_second, monotonic=monotonic)

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


class BodyLimit:
    """ASGI middleware: reads the body, if it is short enough and comes in time, and hands it on whole."""

    def __init__(self, app: ASGIApp, *, most: int, seconds: float) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in UNLIMITED_PATHS:  # reads no body
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        told = headers.get("content-length", "0")
        if told.isdecimal() and int(told) > self._most:
            await self._refuse(self._too_large(f"{int(told):,}"), scope, receive, send)
            return
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._most:
                        await self._refuse(self._too_large("more"), scope, receive, send)
                        return
        except TimeoutError:
            await self._refuse(
                Problem(408, "Request timeout", f"the body did not come within {self._seconds:g} s"),
                scope,
                receive,
                send,
            )
            return
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            if whole is not None:
                message, whole = whole, None
                return message
            return await receive()

        await self._app(scope, replay, send)

    def _too_large(self, size: str) -> Problem:
        return Problem(
            413,
            "Request too large",
            f"the body has {size} bytes, the setting service.max_body allows {self._most:,}",
        )

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        problem.headers = {**problem.headers, "Connection": "close"}
        response = shown(problem, scope["path"])
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        # Closed at once, the connection would be reset under a client that is still sending, and take the answer along.
        left = _LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        break
        await send({"type": "http.response.body", "body": b"", "more_body": False})
