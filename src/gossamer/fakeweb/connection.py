"""One connection to the fake web, the server of invented sites on which crawlers are tested. Speaks HTTP/1.1 with
keep-alive and pipelining.

An answer is a generated page; a mounted one, which a test has put there; that of an extra site, which a package
implements; or that of the control host, at which tests mount pages and read the journal, the access log. A script is an
answer as a list of steps (send, wait, reset); a raw answer is sent as it is, without a head that the server adds.

Must hold: one answer at a time, in the order of the requests; every request that the journal began is ended there once,
when the kernel has all of its answer or the connection is gone. Tests judge crawlers by these times, so no buffer may
hold data back from the kernel.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Any, NamedTuple, cast

import httptools

from gossamer.fakeweb import control, control_answers
from gossamer.fakeweb.answer import Answer, Ending, encode, perform
from gossamer.fakeweb.journal import How
from gossamer.fakeweb.server import Server

_PIPELINE = 16
"""Requests that may wait on one connection before reading pauses. More take memory."""
_CONTROL_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of a request's body that are kept; the rest is thrown away."""
_ENDINGS_WITHOUT_STATUS = frozenset({Ending.REFUSE})
"""Endings of answers of which nothing is sent. The journal has status 0 for them."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which closing sends a reset (socket(7))."""
_BAD_REQUEST = Answer(status=400, headers=(("Content-Type", "text/plain"),), body=b"Not HTTP/1.1.\n")
# Endings as the journal names them.
_HOWS = {ending: How(ending.value) for ending in Ending}


class _Request(NamedTuple):
    host: str
    """Lower case, without the port."""
    target: str
    """Path and query."""
    method: str
    agent: str
    keep_alive: bool
    """True: the client does not want the connection to be closed after the answer."""
    body: bytes
    """Empty where nothing needs bodies."""
    cookie: str
    """Cookie header."""


class Connection(asyncio.Protocol):
    """Reads requests, gets their answers from the server, and sends them one after the other."""

    def __init__(self, server: Server, number: int) -> None:
        """`number`: number of the connection, for the journal; the first is 1."""
        self._server = server
        self._number = number
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[_Request] = deque()
        """Requests that wait for their answers, the oldest first."""
        # State of the connection.
        self._is_reading_paused = False
        self._kernel_is_full = False
        """True while the kernel takes no more data."""
        self._drained: asyncio.Future[None] | None = None
        """Done when the kernel takes data again; for `drained`."""
        self._is_closing = False
        """True: nothing more is read or answered."""
        # State of the answer in progress.
        self._advancing = False
        """True while `_advance` runs."""
        self._is_answering = False
        """True from the beginning of an answer until it is ended in the journal."""
        self._keeps_open = True
        """True: the connection stays open after this answer."""
        self._sent = 0
        """Bytes of the answer that were written."""
        self._journal_number = -1
        """Number of the request in the journal; -1: it is not recorded."""
        self._how_if_lost = How.LEFT
        """Ending for the journal if the connection is lost now. LEFT: the client closed it."""
        self._ending_when_drained: Ending | None = None
        """Ending of an answer that the kernel has not taken completely yet; None: there is none."""
        self._delay: asyncio.TimerHandle | None = None
        """Timer after which the answer begins."""
        self._script: asyncio.Task[bool] | None = None
        """Task that performs the answer's script."""
        self._clear()

    def _clear(self) -> None:
        """Forget the parts of the last request, because the next one begins."""
        self._target = b""
        self._host = b""
        self._agent = b""
        self._cookie = b""
        self._body: list[bytes] | None = None
        self._body_size = 0

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # No buffer between this program and the kernel: an answer has ended when the kernel has taken all of it.
        self._transport.set_write_buffer_limits(high=0)
        self._server.connections.add(self)
        self._server.idle.clear()
        if self._server.closing:
            self.reset()

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # A fault of this program, not of the client: it must not look like a bad request.
            self._server.loop.call_exception_handler({"message": "The fake web failed", "exception": error})
            self._is_closing = True
            self.reset()
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._bad()

    def pause_writing(self) -> None:
        self._kernel_is_full = True

    def resume_writing(self) -> None:
        self._kernel_is_full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._ending_when_drained is not None:
            ending, self._ending_when_drained = self._ending_when_drained, None
            self._finish(ending)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._server.connections.discard(self)
        if self._delay:
            self._delay.cancel()
        if self._script:
            self._script.cancel()
        if self._is_answering:
            self._server.journal.end(self._journal_number, self._how_if_lost, self._sent)
            self._is_answering = False
        self._requests.clear()
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
        if self._body is not None and self._body_size <= _CONTROL_BODY_BYTES:
            self._body.append(part)

    def on_message_complete(self) -> None:
        """Queue the request, and answer it if no other is being answered."""
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
        self._requests.append(request)
        if len(self._requests) > _PIPELINE and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._advance()

    # --- answering ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer the waiting requests, until one has to be waited for."""
        if self._advancing:  # an answer that was sent at once calls this again; the loop below goes on
            return
        self._advancing = True
        while self._requests and not self._is_answering and not self._is_closing:
            self._begin(self._requests.popleft())
        self._advancing = False
        if self._is_reading_paused and not self._requests and not self._is_closing:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _begin(self, request: _Request) -> None:
        """Get the answer to a request, record the request, and send the answer, now or after its delay. The answer
        comes from the control host (never recorded or delayed), an extra site, or the generated and mounted pages."""
        server = self._server
        self._is_answering = True
        self._how_if_lost = How.LEFT
        self._sent = 0
        delay = 0.0
        if request.host == control.HOST:
            answer = control_answers.answer(server, request.method, request.target, request.body)
            self._journal_number = -1
        else:
            extra = server.extra_site_of(request.host) if server.extra_sites else None
            if extra:
                answer = extra.answer(
                    request.host, request.target, method=request.method, body=request.body, cookie=request.cookie
                )
            else:
                answer = server.answers.answer(request.host, request.target)
            delay = (answer.delay_ms + server.spec.latency_ms) / 1000
            status = 0 if answer.ending in _ENDINGS_WITHOUT_STATUS else answer.status
            self._journal_number = server.journal.begin(
                request.host, request.target, request.method, status, request.agent, self._number
            )
        self._keeps_open = request.keep_alive and server.spec.keep_alive and not (answer.raw or answer.script)
        head_only = request.method == "HEAD"
        if delay:
            self._delay = server.loop.call_later(delay, self._send, answer, head_only)
        else:
            self._send(answer, head_only)

    def _send(self, answer: Answer, head_only: bool) -> None:
        """Send an answer; finish the request now, or when the kernel has taken all of it."""
        self._delay = None
        if answer.script:
            self._script = self._server.loop.create_task(perform(answer.script, self))
            self._script.add_done_callback(self._performed)
            return
        content = encode(answer, head_only=head_only, close=not self._keeps_open)
        if content:
            self.write(content)
        if self._kernel_is_full:
            self._ending_when_drained = answer.ending
        else:
            self._finish(answer.ending)

    def _finish(self, ending: Ending) -> None:
        """End the request as its answer requires, now that the kernel has taken everything: stay silent until the
        client leaves, go on with the next request, reset the connection, or close it."""
        if ending is Ending.STALL:
            self._how_if_lost = How.STALL
            return
        self._is_answering = False
        self._server.journal.end(self._journal_number, _HOWS[ending], self._sent)
        if ending is Ending.WHOLE and self._keeps_open:
            self._advance()
            return
        self._is_closing = True
        if ending in (Ending.REFUSE, Ending.RESET):
            self.reset()
        else:
            self._transport.close()

    def _performed(self, task: "asyncio.Task[bool]") -> None:
        """Finish a request whose script is done. The script's result True means a reset. The connection is not used
        again."""
        if task.cancelled() or self._is_closing:
            return
        self._finish(Ending.RESET if task.result() else Ending.WHOLE)

    def write(self, data: bytes) -> None:
        """Hand the data to the kernel, or to the transport until the kernel takes it."""
        self._sent += len(data)
        self._transport.write(data)

    async def drained(self) -> None:
        """Return when the kernel has taken all that was written."""
        if self._kernel_is_full:
            self._drained = self._server.loop.create_future()
            await self._drained

    def _bad(self) -> None:
        """Refuse bytes that are not HTTP, unless an answer is on its way, and close the connection."""
        self._is_closing = True
        if not self._is_answering:
            self._transport.write(encode(_BAD_REQUEST, head_only=False, close=True))
        self._transport.close()

    def reset(self) -> None:
        """End the connection with a TCP reset, which is what closing without lingering sends."""
        connected: Any = self._transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()
