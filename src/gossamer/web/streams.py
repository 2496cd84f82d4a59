"""Server-sent events: their form, and how many streams of them a process keeps open.

A stream is sent while nothing happens, too: a comment now and then shows proxies that the connection is alive. All
streams end when the server stops; clients connect again by themselves.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gossamer.web.problems import Problem

EVENT_STREAM: Final = "text/event-stream"
"""Media type. Fixed by the standard."""
MAX_STREAMS: Final = 200
"""Most open event streams of one application. Each asks a database or a frontier every second or so, and has a
connection. The limit of connections does not count streams; `_CONNECTION_SHARE` in web/server.py leaves open files for
them."""
_RETRY_SECONDS: Final = 5
"""Retry-After when there are too many streams."""
KEEPALIVE_SECONDS: Final = 15.0
"""Silence after which a comment is sent. Proxies close connections after 30 s or more."""
KEEPALIVE: Final = b": still there\n\n"
"""A comment, which clients ignore."""


class EventStreams:
    """Counts the open event streams of an application, and ends them when it stops."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = asyncio.Event()
        """Set when all streams must end."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more stream during the context. Raises Problem if there are too many."""
        if self.open >= MAX_STREAMS:
            raise Problem(
                503,
                "Too busy",
                f"{MAX_STREAMS} event streams are open already",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until all streams must end."""
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return


class EventStreamResponse(StreamingResponse):
    """A response that is counted as an open stream while it is sent.

    It is counted here and not in the endpoint: a client that leaves before the response begins would stay counted."""

    def __init__(self, events: AsyncIterator[bytes], streams: EventStreams) -> None:
        # Nginx collects a response before it passes it on, unless the second header forbids that.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type=EVENT_STREAM, headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.counted():
            await super().__call__(scope, receive, send)


def event(name: str, data: bytes, *, id: str = "") -> bytes:
    """Return an event as bytes of the stream. Its data must be one line, so line breaks become spaces. `id`: a browser
    that connects again sends the last one as Last-Event-ID."""
    place = b"id: %s\n" % id.encode() if id else b""
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), place, b" ".join(data.splitlines()))
