"""One connection to the fake web: HTTP/1.1 in, answers out, in order; keep-alive and pipelining."""

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httptools

from gossamer.fakeweb import control
from gossamer.fakeweb.answer import Answer, Ending, encode, perform
from gossamer.fakeweb.journal import How

if TYPE_CHECKING:
    from gossamer.fakeweb.server import Server

_PIPELINE = 16
"""Requests waiting on one connection before reading pauses."""
_CONTROL_BODY = 64 * 1024 * 1024
_SILENT = frozenset({Ending.REFUSE})
_LINGER_NOT = struct.pack("ii", 1, 0)
_BAD = Answer(status=400, headers=(("Content-Type", "text/plain"),), body=b"Not HTTP/1.1.\n")
_HOWS = {ending: How(ending.value) for ending in Ending}


class _Request(NamedTuple):
    host: str
    target: str
    method: str
    agent: str
    keep_alive: bool
    body: bytes
    cookie: str


class Connection(asyncio.Protocol):
    """Reads requests, asks the server for answers, carries them out one after the other."""

    def __init__(self, server: "Server", number: int) -> None:
        self._server = server
        self._number = number
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[_Request] = deque()
        self._busy = False
        self._advancing = False
        self._reading_paused = False
        self._clogged = False
        self._closing = False
        self._entry = -1
        self._how = How.LEFT  # how the current request ends if the connection is lost now
        self._after_drain: Ending | None = None
        self._keep = True
        self._timer: asyncio.TimerHandle | None = None
        self._performing: asyncio.Task[bool] | None = None
        self._unclogged: asyncio.Future[None] | None = None
        self._sent = 0
        self._clear()

    def _clear(self) -> None:
        self._target = b""
        self._host = b""
        self._agent = b""
        self._cookie = b""
        self._body: list[bytes] | None = None
        self._body_size = 0

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # No buffer between us and the kernel: an answer has ended when the kernel has taken all of it.
        self._transport.set_write_buffer_limits(high=0)
        self._server.connections.add(self)
        self._server.idle.clear()
        if self._server.closing:
            self.reset()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # A fault of ours, not of the client: it must not pass for a bad request.
            self._server.loop.call_exception_handler({"message": "The fake web failed", "exception": error})
            self._closing = True
            self.reset()
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._bad()

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        if self._unclogged is not None and not self._unclogged.done():
            self._unclogged.set_result(None)
        if self._after_drain is not None:
            ending, self._after_drain = self._after_drain, None
            self._finish(ending)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._server.connections.discard(self)
        if self._timer:
            self._timer.cancel()
        if self._performing:
            self._performing.cancel()
        if self._busy:
            self._server.journal.end(self._entry, self._how, self._sent)
            self._busy = False
        self._waiting.clear()
        if not self._server.connections:
            self._server.idle.set()

    # --- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._clear()

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        length = len(name)
        if length == 4:
            if name.lower() == b"host":
                self._host = value
        elif length == 10 and name.lower() == b"user-agent":
            self._agent = value
        elif length == 6 and name.lower() == b"cookie":
            self._cookie = value

    def on_headers_complete(self) -> None:
        if self._host.startswith(b"_") or any(site.wants_bodies for site in self._server.extra_sites):
            self._body = []

    def on_body(self, part: bytes) -> None:
        self._body_size += len(part)
        # Only the control host and some extra sites use bodies; the others get theirs read and thrown away.
        if self._body is not None and self._body_size <= _CONTROL_BODY:
            self._body.append(part)

    def on_message_complete(self) -> None:
        target, host = self._target, self._host
        if target[:1] != b"/" and b"://" in target:  # absolute form (RFC 9112, 3.2.2)
            host, slash, path = target.partition(b"://")[2].partition(b"/")
            target = slash + path or b"/"
        request = _Request(
            host.decode("latin-1").partition(":")[0].lower(),
            target.decode("latin-1").partition("#")[0],
            self._parser.get_method().decode("latin-1"),
            self._agent.decode("latin-1"),
            self._parser.should_keep_alive(),
            b"".join(self._body) if self._body else b"",
            self._cookie.decode("latin-1"),
        )
        self._waiting.append(request)
        if len(self._waiting) > _PIPELINE and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._advance()

    # --- answering ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer what waits, until an answer takes time."""
        if self._advancing:  # an answer that was sent at once returns here; the loop below goes on
            return
        self._advancing = True
        while self._waiting and not self._busy and not self._closing:
            self._begin(self._waiting.popleft())
        self._advancing = False
        if self._reading_paused and not self._waiting and not self._closing:
            self._reading_paused = False
            self._transport.resume_reading()

    def _begin(self, request: _Request) -> None:
        server = self._server
        self._busy = True
        self._how = How.LEFT
        self._sent = 0
        delay = 0.0
        if request.host == control.HOST:
            answer = control.answer(server, request.method, request.target, request.body)
            self._entry = -1
        else:
            extra = server.extra_site_of(request.host) if server.extra_sites else None
            if extra:
                answer = extra.answer(
                    request.host, request.target, method=request.method, body=request.body, cookie=request.cookie
                )
            else:
                answer = server.answers.answer(request.host, request.target)
            delay = (answer.delay_ms + server.spec.latency_ms) / 1000
            status = 0 if answer.ending in _SILENT else answer.status
            self._entry = server.journal.begin(
                request.host, request.target, request.method, status, request.agent, self._number
            )
        self._keep = request.keep_alive and server.spec.keep_alive and not (answer.raw or answer.script)
        head_only = request.method == "HEAD"
        if delay:
            self._timer = server.loop.call_later(delay, self._send, answer, head_only)
        else:
            self._send(answer, head_only)

    def _send(self, answer: Answer, head_only: bool) -> None:
        self._timer = None
        if answer.script:
            self._performing = self._server.loop.create_task(perform(answer.script, self))
            self._performing.add_done_callback(self._performed)
            return
        content = encode(answer, head_only=head_only, close=not self._keep)
        if content:
            self.write(content)
        if self._clogged:
            self._after_drain = answer.ending
        else:
            self._finish(answer.ending)

    def _finish(self, ending: Ending) -> None:
        """The kernel has all that was to be sent: end the request as its answer says."""
        if ending is Ending.STALL:
            self._how = How.STALL
            return
        self._busy = False
        self._server.journal.end(self._entry, _HOWS[ending], self._sent)
        if ending is Ending.WHOLE and self._keep:
            self._advance()
            return
        self._closing = True
        if ending in (Ending.REFUSE, Ending.RESET):
            self.reset()
        else:
            self._transport.close()

    def _performed(self, task: "asyncio.Task[bool]") -> None:
        if task.cancelled() or self._closing:
            return
        self._finish(Ending.RESET if task.result() else Ending.WHOLE)

    def write(self, data: bytes) -> None:
        """Hand it to the kernel, or to the transport until the kernel takes it."""
        self._sent += len(data)
        self._transport.write(data)

    async def drained(self) -> None:
        """Until the kernel has all that was written."""
        if self._clogged:
            self._unclogged = self._server.loop.create_future()
            await self._unclogged

    def _bad(self) -> None:
        """Refuse bytes that are not HTTP, unless an answer is on its way, and close the connection."""
        self._closing = True
        if not self._busy:
            self._transport.write(encode(_BAD, head_only=False, close=True))
        self._transport.close()

    def reset(self) -> None:
        """End the connection with a TCP reset, which is what closing without lingering sends."""
        connected: Any = self._transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._transport.abort()
