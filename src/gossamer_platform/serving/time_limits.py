"""Time limits of requests: nothing that a client does or leaves undone holds a connection, a thread or a file for ever.

A body must come at 16 KiB/s, with pauses of half a minute at most. The bytes that came quickly buy no longer pause. An
answer may stop for two minutes while its reader does not read. A connection gets a minute for the head of a request,
and for the rest of a body that was answered before it was read.
"""

import asyncio
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

PAUSE_SECONDS: Final = 30.0
"""Longest pause of a body."""
_BYTES_PER_SECOND: Final = 16 * 1024
"""Rate at which the bytes of a body make up for a pause."""
_READ_SECONDS: Final = 120.0
"""Longest pause of a client that reads an answer."""
_HEAD_SECONDS: Final = 60.0
"""Time for the head of a request."""
_LATE: Final = b"The body of the request took too long. Send it again.\n"


class RequestTimeLimit:
    """ASGI middleware that ends requests whose client is too slow: with status 408, or by closing the connection."""

    def __init__(self, app: ASGIApp, *, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._app = app
        self._pause_seconds = pause_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _TimedExchange(receive, send, self._pause_seconds)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_late:
                raise
        if exchange.is_late and not exchange.is_answered:
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 408, "headers": headers})
            await send({"type": "http.response.body", "body": _LATE})


class _TimedExchange:
    """One request and its answer."""

    def __init__(self, receive: Receive, send: Send, pause_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._most = self._left = pause_seconds
        """Seconds for which the body may pause."""
        self._is_complete = False
        self.is_late = False
        """True: the client was too slow."""
        self.is_answered = False

    async def receive(self) -> Message:
        """Return the next part of the body. A client that was too slow counts as gone."""
        if self._is_complete or self.is_answered:
            return await self._receive()
        if self.is_late:
            return {"type": "http.disconnect"}
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            async with asyncio.timeout(self._left):
                message = await self._receive()
        except TimeoutError:
            self.is_late = True
            return {"type": "http.disconnect"}
        gained = len(message.get("body", b"")) / _BYTES_PER_SECOND
        self._left = min(self._most, self._left - (loop.time() - began_at) + gained)
        self._is_complete = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer. Raises OSError if the client does not read."""
        if self.is_late:
            return  # the application answers a client that is gone, or goes on
        self.is_answered = True
        try:
            async with asyncio.timeout(_READ_SECONDS):
                await self._send(message)
        except TimeoutError:
            self.is_late = True
            raise OSError("the client does not read the answer") from None


class TimedConnection(H11Protocol):
    """Connection of uvicorn's that closes itself when the next request does not come."""

    _idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self.loop.call_later(_HEAD_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
