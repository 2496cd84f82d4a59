"""Limits of requests' bodies: no client holds a connection, a thread or a file for ever, or fills the memory.

A body must come at 16 KiB/s, with pauses of half a minute in all; bytes that came quickly buy no longer pause. Only the
time for which the application waits for the body counts.

Fixed: status codes and titles of the problems, which clients read; and that nothing of a body is read before the
application asks for it: a body without its token is refused unread.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.web.problems import Answer, Problem, problem_answer

PAUSE_SECONDS: Final = 30.0
"""Longest pause of a body."""
_BYTES_PER_SECOND: Final = 16 * 1024
"""Rate at which the bytes of a body make up for a pause."""
_LINGER_SECONDS: Final = 2.0
"""Longest time for which the rest of a refused body is read before the connection is closed. With less, clients on slow
networks may lose the response; with more, refused requests hold their connections longer."""
_LINGER_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of a refused body that are read in that time."""
_GONE: Final[Message] = {"type": "http.disconnect"}


class BodyLimit:
    """ASGI middleware that answers a body that is too long with status 413, one that is too slow with 408.

    For the application, such a client is gone: what it answers is dropped.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        longest: Callable[[str], float],
        advice: str = "",
        pause_seconds: float = PAUSE_SECONDS,
        total_seconds: float = float("inf"),
        answer: Answer = problem_answer,
    ) -> None:
        """`longest` returns the most bytes of a body for a path. `advice`: says where the number can be changed.
        `total_seconds`: longest time for a whole body."""
        self._app = app
        self._longest = longest
        self._advice = advice
        self._pause_seconds = pause_seconds
        self._total_seconds = total_seconds
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, Headers(scope=scope), self._longest(scope["path"]), self._advice)
        body.pause_left = body.pause_most = self._pause_seconds
        body.total_left = self._total_seconds
        try:
            await self._app(scope, body.receive, body.send)
        except ClientDisconnect:
            pass
        except Exception:
            if body.fault is None:
                raise
        if body.fault is not None and not body.is_answered:
            await _refuse(self._answer(body.fault, scope["path"]), receive, send)


class _Body:
    """The body of one request, while it comes."""

    def __init__(self, receive: Receive, send: Send, headers: Headers, longest: float, advice: str) -> None:
        self._receive = receive
        self._send = send
        self._declared = headers.get("content-length", "")
        self._longest = longest
        self._advice = advice
        self._length = 0
        self.pause_left = self.pause_most = self.total_left = 0.0
        """Seconds for which the body may still pause, and may at most, and in which it must be complete."""
        self._is_complete = False
        self.fault: Problem | None = None
        """Limit that the client exceeds."""
        self.is_answered = False
        """True: the application has begun to answer."""

    async def receive(self) -> Message:
        """Return the next part of the body, or that the client is gone."""
        if self._is_complete or self.is_answered:
            return await self._receive()
        if self._length == 0 and self._declared.isdecimal() and int(self._declared) > self._longest:
            self._refuse_length(f"{int(self._declared):,}")
        if self.fault is not None:
            return _GONE
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            async with asyncio.timeout(min(self.pause_left, self.total_left)):
                message = await self._receive()
        except TimeoutError:
            self.fault = Problem(408, "Request timeout", "the body took too long; send it again")
            return _GONE
        took = clock() - began_at
        part = len(message.get("body", b""))
        self.pause_left = min(self.pause_most, self.pause_left - took + part / _BYTES_PER_SECOND)
        self.total_left -= took
        self._length += part
        if self._length > self._longest:
            self._refuse_length("more")
            return _GONE
        self._is_complete = not message.get("more_body", False)
        return message

    def _refuse_length(self, size: str) -> None:
        allowed = f"the body has {size} bytes, {self._longest:,.0f} are allowed{self._advice}"
        self.fault = Problem(413, "Request too large", allowed)

    async def send(self, message: Message) -> None:
        """Send a part of the application's answer, unless the client's body was refused."""
        if self.fault is None:
            self.is_answered = True
            await self._send(message)


async def _refuse(response: Response, receive: Receive, send: Send) -> None:
    """Answer while the client is still sending its body, and close the connection."""
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    # Read on for a moment. If the connection were closed at once, it would be reset while the client is still sending,
    # and the client would lose the response.
    bytes_left = _LINGER_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while bytes_left > 0:
                message = await receive()
                bytes_left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    break
    await send({"type": "http.response.body", "body": b"", "more_body": False})
