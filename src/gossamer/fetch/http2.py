"""HTTP/2 connections of the HTTP client (RFC 9113), on the library h2.

`Http2Session` is a TCP connection; each `Http2Stream` of it takes one request at a time, as an HttpConnection does, and
the pool counts and keeps streams as it does connections. So timeouts, budgets, lateness and repetition are those of
HTTP/1.1.

All that a server controls is bounded: frames besides those of bodies, very short ones of bodies, the size and number of
headers, interim responses, and what it sends without a request. Its streams are never more than the requests of this
client: server push is refused. A malformed response fails its own request only (RFC 9113, section 8.1.1).
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import DenialOfServiceError, H2Error, NoAvailableStreamIDError, TooManyStreamsError
from h2.settings import SettingCodes, Settings

from gossamer.errors import (
    BadResponse,
    ConnectionLost,
    ConnectTimeout,
    FetchError,
    FirstByteTimeout,
    HeadersTooLarge,
    IdleTimeout,
)
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.connection import HttpConnection, LiveConnection, PoolKey
from gossamer.fetch.response import ResponseReader
from gossamer.fetch.tls import ClientContext

_HEAD_BYTES = 9
"""Length of the head of a frame: fixed by RFC 9113, section 4.1."""
_DATA, _GOAWAY = 0, 7
"""Types of frames: fixed by RFC 9113, section 6."""
_MAX_FRAME_BYTES = 16 * 1024
"""Largest frame. A server may send no larger ones unless a client permits it."""
_MAX_STREAMS = 100
"""Streams of one connection at the same time, if the server permits as many."""
_STREAM_WINDOW = 256 * 1024
"""Bytes that a server may send of a body before this client reads on. A paused body takes this much memory more."""
_SESSION_WINDOW = 1024 * 1024
"""Bytes of all bodies of a connection together, which are never paused together."""
_OTHER_FRAMES = 1000
"""Frames that a connection may have besides those of bodies: settings, pings, windows, priorities, headers, and what
comes for requests that have ended."""
_OTHER_FRAMES_PER_STREAM = 20
_OTHER_FRAMES_PER_RESET = 256
"""Frames of a body that may be on their way when this client resets its stream."""
_SENT_BYTES_PER_OTHER_FRAME = 1024
"""Bytes of a request's body for which a server may open a window with one frame more."""
_SHORT_BYTES = 64
"""Length below which a frame of a body costs more time than its bytes are worth."""
_MOST_MISSING_BYTES = 1024 * 1024
"""Bytes that short frames of bodies may lack altogether. Longer frames make up for them, and each request for four."""
_OWN_HEADERS = frozenset(("host", "connection"))
"""Headers of a request by HTTP/1.1 that HTTP/2 does not have."""
_NAME = re.compile(rb":status|[!-9;-@[-~]+")
"""Names of fields of responses (RFC 9113, sections 8.2.1 and 8.3.2): without large letters and colons."""
_NOT_IN_VALUES = re.compile(rb"[\r\n\0]")
"""Bytes that no value may have: they would begin another line in stored heads."""


class Http2Session(asyncio.Protocol):
    """Connection that offers HTTP/2 to a server. If that chooses HTTP/1.1, it becomes an HttpConnection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        budget: ByteBudget,
        live: "set[LiveConnection]",
        key: PoolKey,
        header_bytes: int,
    ) -> None:
        """`header_bytes`: largest head of a response. The rest as for HttpConnection."""
        self._loop = loop
        self._budget = budget
        self._live = live
        self.key = key
        self._header_bytes = header_bytes
        self._transport: asyncio.Transport | None = None
        self._plain: HttpConnection | None = None
        self._h2: H2Connection
        self._incoming = b""
        self._streams: dict[int, Http2Stream] = {}
        self._slots: set[Http2Stream] = set()
        self._unopened_bytes = 0  # received, and not given back to the server's window yet
        self._other_frames_left = _OTHER_FRAMES
        self._missing_bytes = 0  # of short frames
        self._refused = 0  # requests that the server has not processed
        self._received_at = 0.0
        self._tls_session: tuple[ClientContext, str] | None = None
        self._lost: asyncio.Future[None] | None = None
        self.closed = False
        """True: no further request can be sent."""
        self.answers = 0
        """Number of complete responses."""
        self.wants_1 = False
        """True: the server has said that it wants HTTP/1.1."""
        self.settled = loop.create_future()
        """Done when the server has said how many streams it permits, or the connection is gone."""

    # Calls of the client.

    @property
    def has_room(self) -> bool:
        """True: another stream may be opened."""
        return (
            not self.closed
            and self.settled.done()
            and len(self._slots) < min(_MAX_STREAMS, self._h2.remote_settings.max_concurrent_streams)
        )

    def first(self) -> HttpConnection:
        """Return the connection for the request for which this one was opened: a stream of it, or an HttpConnection if
        the server chose HTTP/1.1."""
        return self.new_stream() if self._plain is None else self._plain

    def new_stream(self) -> "Http2Stream":
        """Return a stream, for one request after the other."""
        stream = Http2Stream(self._loop, self._budget, self.key, self)
        stream.closed = self.closed
        self._slots.add(stream)
        return stream

    def remember_session(self, context: ClientContext, server_hostname: str) -> None:
        """Keep the TLS session, as `HttpConnection.remember_session` does."""
        if self._plain is not None:
            self._plain.remember_session(context, server_hostname)
        else:
            self._tls_session = context, server_hostname

    def abandon(self) -> None:
        """Close a connection whose opening failed or was cancelled."""
        self.fail(ConnectionLost("its opening was abandoned"))
        if self._plain is not None:
            self._plain.abandon()
        self.connection_lost(None)

    def fail(self, error: FetchError) -> None:
        """Fail all requests in progress, and close the connection. May be repeated."""
        self._end()
        if self._plain is not None:
            self._plain.fail(error)
        for stream in list(self._slots):
            stream.fail(type(error)(error.detail))  # each request its own: callers write into their errors
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """Close at once. May be repeated."""
        self.fail(ConnectionLost("the connection was closed"))

    async def wait_lost(self) -> None:
        """Wait until the socket is gone."""
        if self._transport is None:
            return
        if self._lost is None:
            self._lost = self._loop.create_future()
        await self._lost

    # Calls of the streams.

    def begin(self, stream: "Http2Stream", request: bytes) -> None:
        """Send a request, which has the form of HTTP/1.1. Raises FetchErrors."""
        if self.closed or self._transport is None:
            raise ConnectionLost("it was closed while idle")
        head, _, body = request.partition(b"\r\n\r\n")
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, _fields(head), end_stream=not body)
            # One wrong length would fail all requests of the connection. ResponseReader compares it instead.
            self._h2.streams[number]._initialize_content_length = _ignore  # type: ignore[assignment, method-assign]
        except (NoAvailableStreamIDError, TooManyStreamsError) as exc:
            self._take_no_more()
            raise self.refusal(f"no further request may be sent on it ({exc})") from exc
        except H2Error as exc:
            raise ConnectionLost(f"the request cannot be sent by HTTP/2 ({exc})") from exc
        stream.number, stream.unsent = number, body
        self._streams[number] = stream
        self._other_frames_left += _OTHER_FRAMES_PER_STREAM + len(body) // _SENT_BYTES_PER_OTHER_FRAME
        self._missing_bytes = max(0, self._missing_bytes - 4 * _SHORT_BYTES)
        self._send_body(stream)
        self.flush()

    def reopen_window(self, stream: "Http2Stream", count: int) -> None:
        """Permit the server to send as many bytes more on this stream."""
        try:
            self._h2.increment_flow_control_window(count, stream.number)
        except (H2Error, KeyError):
            return  # the server has ended the stream meanwhile
        self.flush()

    def end(self, stream: "Http2Stream", *, reset: bool) -> None:
        """Forget the request of a stream. `reset`: tell the server that its response is not wanted any more."""
        if self._streams.pop(stream.number, None) is not None and reset and self._transport is not None:
            self._other_frames_left += _OTHER_FRAMES_PER_RESET
            try:
                self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
            except H2Error:
                return  # the server has ended it meanwhile
            self.flush()

    def leave(self, stream: "Http2Stream") -> None:
        """Close a stream for good. Without any, the connection is closed."""
        self._slots.discard(stream)
        if not self._slots and self._transport is not None:
            self.closed = True
            self._transport.abort()

    def refusal(self, detail: str) -> ConnectionLost:
        """Return the error of a request that the server has not processed. It may be sent again if the server has
        answered more requests on this connection than it has refused: else it could refuse one for ever."""
        error = ConnectionLost(detail)
        error.repeatable = self._refused < self.answers
        self._refused += 1
        return error

    def on_timeout(self, stream: "Http2Stream") -> None:
        """Send no further requests if nothing at all has come since the last activity of a stream that timed out."""
        if self._received_at <= stream.last_activity:
            self._take_no_more()

    def keep_tls_session(self) -> None:
        """Keep the TLS session after the first response."""
        if self._tls_session is not None and self._transport is not None:
            context, name = self._tls_session
            context.remember(name, self._transport.get_extra_info("ssl_object"))
            self._tls_session = None

    def flush(self) -> None:
        """Write what the library has to send."""
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        tls = made.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != "h2":
            self._plain = HttpConnection(self._loop, self._budget, self._live, self.key)
            if self.closed:
                self._plain.abort()
            made.set_protocol(self._plain)
            self._plain.connection_made(made)
            if self._incoming:
                self._plain.data_received(self._incoming)
            return
        if self.closed:
            made.abort()
            return
        self._transport = made
        self._live.add(self)
        # Fields are passed as they come: what a browser would read is not to be lost by a strict library, which would
        # also fail all requests of the connection.
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None, validate_inbound_headers=False))
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: self._header_bytes,
            },
        )
        self._h2.decoder.max_header_list_size = self._header_bytes
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_SESSION_WINDOW)
        self.flush()
        if self._incoming:
            self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        if self._transport is None:  # through a proxy, a server may speak before `dial` knows the end of the handshake
            self._incoming += data
            return
        self._received_at = now = time.monotonic()
        try:
            for frames in self._whole_frames(data):
                for event in self._h2.receive_data(frames):
                    self._take(event, now)
            if self._unopened_bytes >= _SESSION_WINDOW // 2:
                self._h2.increment_flow_control_window(self._unopened_bytes)
                self._unopened_bytes = 0
        except DenialOfServiceError:
            self._refuse(HeadersTooLarge(f"more than {self._header_bytes} bytes"))
        except H2Error as exc:
            self._refuse(BadResponse(f"HTTP/2: {exc or type(exc).__name__}"))
        except FetchError as exc:
            self._refuse(exc)
        else:
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._transport = None
        self._live.discard(self)
        for stream in list(self._slots):
            stream.fail(stream.loss("" if exc is None else f" ({exc})"))
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def _end(self) -> None:
        self.closed = True
        self._settle()

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)

    def _take_no_more(self) -> None:
        """Close all idle streams, and the connection after the last response."""
        self.closed = True
        for stream in list(self._slots):
            if not stream.is_busy:
                stream.abort()

    def _refuse(self, error: FetchError) -> None:
        """Fail all requests, and close the connection after the library's last words. Where there are several, each may
        have another attempt: it is not known which of them the server cannot answer."""
        self.flush()
        several = sum(stream.is_busy for stream in self._slots) > 1
        self.fail(ConnectionLost(f"by what the server sent: {error}") if several else error)

    def _whole_frames(self, data: bytes) -> Iterator[bytes]:
        """Yield whole frames, which the library reads, as far as they have come. Counts them, and acts on GOAWAY, after
        which the library would read no further response. Raises BadResponse."""
        pending = self._incoming + data if self._incoming else data
        start = end = 0
        while len(pending) - end >= _HEAD_BYTES:
            length = int.from_bytes(pending[end : end + 3], "big")
            kind, flags = pending[end + 3], pending[end + 4]
            after = end + _HEAD_BYTES + length
            if after > len(pending) and length <= _MAX_FRAME_BYTES:
                break
            number = int.from_bytes(pending[end + 5 : end + _HEAD_BYTES], "big") & 0x7FFFFFFF
            is_of_body = kind == _DATA and bool(length or flags & 1) and number in self._streams
            fault = self._fault_of(length, is_of_body=is_of_body)
            if fault:
                yield pending[start:end]  # responses before it are good
                raise BadResponse(f"HTTP/2: {fault}")
            if kind == _GOAWAY:
                yield pending[start:end]
                self._go_away(pending[end + _HEAD_BYTES : after])
                start = after
            end = after
        if end > start:
            yield pending[start:end]
        self._incoming = pending[end:]

    def _fault_of(self, length: int, *, is_of_body: bool) -> str:
        """Count a frame, and return why it ends the connection: it is too long, or one of too many that carry next to
        nothing. Empty: it does not."""
        if length > _MAX_FRAME_BYTES:
            return f"a frame of {length} bytes"
        if is_of_body:
            self._missing_bytes = max(0, self._missing_bytes + _SHORT_BYTES - length)
            return "endless short frames" if self._missing_bytes > _MOST_MISSING_BYTES else ""
        self._other_frames_left -= 1
        return "" if self._other_frames_left >= 0 else "endless frames besides those of bodies"

    def _go_away(self, payload: bytes) -> None:
        """Send no further requests. Those that the server has not taken are lost and may be repeated."""
        if len(payload) < 8:
            raise BadResponse("HTTP/2: a GOAWAY without a reason")
        last, code = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF, int.from_bytes(payload[4:8], "big")
        self._take_no_more()
        self.wants_1 = self.wants_1 or code == ErrorCodes.HTTP_1_1_REQUIRED
        for stream in list(self._slots):
            if stream.number > last:
                stream.fail(self.refusal(f"the server closes it ({_name(code)})"))

    def _take(self, event: Any, now: float) -> None:
        """Act on an event of the library."""
        if isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
            if isinstance(event, events.RemoteSettingsChanged):
                self._settle()
            for stream in [one for one in self._streams.values() if one.unsent]:
                self._send_body(stream)
            return
        if isinstance(event, events.DataReceived):
            self._unopened_bytes += event.flow_controlled_length
        stream_or_none = self._streams.get(getattr(event, "stream_id", None) or 0)
        if stream_or_none is not None:
            try:
                self._pass_on(stream_or_none, event, now)
            except FetchError as error:
                stream_or_none.fail(error)

    def _pass_on(self, stream: "Http2Stream", event: Any, now: float) -> None:
        """Give an event to its stream. Raises FetchErrors of its response."""
        if isinstance(event, events.DataReceived):
            stream.take_data(event.data, event.flow_controlled_length, now)
        elif isinstance(event, events.ResponseReceived):
            stream.take_head(event.headers, now)
        elif isinstance(event, events.InformationalResponseReceived):
            stream.take_interim(event.headers, now)
        elif isinstance(event, events.StreamEnded):
            stream.take_end()
        elif isinstance(event, events.StreamReset):
            self.wants_1 = self.wants_1 or event.error_code == ErrorCodes.HTTP_1_1_REQUIRED
            stream.take_reset(event.error_code)

    def _send_body(self, stream: "Http2Stream") -> None:
        """Send as much of a request's body as the server's windows permit."""
        while stream.unsent:
            room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, stream.unsent = stream.unsent[:room], stream.unsent[room:]
            self._h2.send_data(stream.number, piece, end_stream=not stream.unsent)


class Http2Stream(HttpConnection):
    """Place for one request at a time on an Http2Session, with the interface of a connection."""

    is_http2 = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: ByteBudget, key: PoolKey, session: Http2Session
    ) -> None:
        """As for HttpConnection; it is not in the set of live connections, because it has no socket."""
        super().__init__(loop, budget, set(), key)
        self.session = session
        self.number = 0
        """Number of the stream that carries the current or last request; 0: none did."""
        self.unsent = b""
        """Rest of the request's body."""
        self._unopened_bytes = 0
        self._interim = 0
        self.last_activity = time.monotonic()
        # A session that has answered before may have been closed by its server meanwhile.
        self.served, self.kept = session.answers, session.answers > 0

    @property
    def is_refused_as_http2(self) -> bool:  # type: ignore[override]  # of HTTP/1.1 it is a constant
        """True: the server wants HTTP/1.1 instead."""
        return self.session.wants_1

    @property
    def is_busy(self) -> bool:
        """True: a request is in progress."""
        return self._reader is not None

    def send(self, request: bytes, reader: ResponseReader, *, deadline: float) -> "asyncio.Future[ResponseReader]":
        """Send a request, as `HttpConnection.send` does."""
        self._result = result = self._loop.create_future()
        self._reader = reader
        self.first_byte_at = 0.0
        self.deadline = deadline
        self._interim = self._unopened_bytes = 0
        try:
            self.session.begin(self, request)
        except FetchError as error:
            self.fail(error)
        self.sent_at = self.last_activity = time.monotonic()
        return result

    def fail(self, error: FetchError) -> None:
        """Fail the request in progress, and close the stream. May be repeated."""
        if isinstance(error, FirstByteTimeout | IdleTimeout):
            self.session.on_timeout(self)
        super().fail(error)

    def abort(self) -> None:
        """Give up the request in progress, and close the stream. May be repeated."""
        was_busy = self.is_busy
        super().abort()
        self.session.end(self, reset=was_busy)
        self.session.leave(self)

    async def wait_lost(self) -> None:
        """Return at once: the session has the socket."""

    def pause(self) -> None:
        """Let the server send no more than its window permits."""
        self.paused = True

    def resume(self) -> None:
        """Continue reading. The pause does not count as inactivity of the server."""
        if self.paused:
            self.paused, self.last_activity = False, time.monotonic()
            self._reopen_window()

    def loss(self, cause: str) -> FetchError:
        """Return the error of a connection that was lost."""
        reader = self._reader
        if reader is None or not reader.received_bytes:
            return ConnectionLost(f"before the answer's first byte{cause}")
        return ConnectionLost(f"after {reader.body_bytes} bytes of the body{cause}")

    # Calls of the session.

    def take_head(self, fields: list[tuple[bytes, bytes]], now: float) -> None:
        """Take the head of the final response. Raises BadResponse or HeadersTooLarge."""
        self._note_arrival(now)
        if self._reader is not None:
            status, headers, size = _parse_fields(fields)
            self._reader.take_head(status, headers, size)
            self._finish_if_complete()

    def take_interim(self, fields: list[tuple[bytes, bytes]], now: float) -> None:
        """Count an interim response. Raises BadResponse."""
        self._note_arrival(now)
        self._interim += 1
        if self._reader is not None:
            self._reader.received_bytes += _parse_fields(fields)[2]
            if self._interim > self._reader.limits.interim:
                raise BadResponse(f"more than {self._reader.limits.interim} interim responses")

    def take_data(self, data: bytes, window_bytes: int, now: float) -> None:
        """Take a piece of the body, for which the server used so many bytes of its window."""
        self._note_arrival(now)
        reader = self._reader
        if reader is None:
            return
        self._unopened_bytes += window_bytes
        reader.take_body(data)
        if reader.complete:  # it is longer than its limit
            self._finish_if_complete()
            return
        grown = reader.body_bytes - self._held_bytes
        self._held_bytes = reader.body_bytes
        if grown > 0:
            self._budget.take(self, grown)
        self._reopen_window()

    def take_end(self) -> None:
        """Take the end of the response. Raises BadResponse."""
        if self._reader is not None:
            self._reader.take_end()
            self._finish_if_complete()

    def take_reset(self, code: int) -> None:
        """Fail the request that the server has ended early."""
        if code in (ErrorCodes.REFUSED_STREAM, ErrorCodes.HTTP_1_1_REQUIRED):
            self.fail(self.session.refusal(f"the server refused it ({_name(code)})"))
        else:
            self.fail(self.loss(f" ({_name(code)})"))

    def _finish_if_complete(self) -> None:
        reader = self._reader
        if reader is None or not reader.complete:
            return
        # An answer may come before the request's end, which is then not wanted any more.
        self.session.end(self, reset=reader.truncated or bool(self.unsent))
        self.session.answers += 1
        self.session.keep_tls_session()
        reader.keep_alive = not self.session.closed
        self._finish(reader)

    def _note_arrival(self, now: float) -> None:
        self.last_activity = now
        if not self.first_byte_at:
            self.first_byte_at = now

    def _reopen_window(self) -> None:
        """Give the bytes read back to the server's window, a half of it at a time."""
        if self.is_busy and not self.paused and self._unopened_bytes >= _STREAM_WINDOW // 2:
            count, self._unopened_bytes = self._unopened_bytes, 0
            self.session.reopen_window(self, count)


class Http2Sessions:
    """Sessions of a client, by the key of the pool. While one is being opened, other requests to the server wait for
    it."""

    def __init__(self, new: Callable[[PoolKey], Http2Session]) -> None:
        self.new = new
        """Returns a session for a new connection."""
        self._open: dict[PoolKey, Http2Session] = {}
        self._opening: dict[PoolKey, asyncio.Future[None]] = {}

    async def join(self, key: PoolKey, timeout_seconds: float) -> HttpConnection | None:
        """Return a new stream of an open session. None: the caller has to open a session, and to call `opened` or
        `not_opened` afterwards."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            session = self._open.get(key)
            if session is not None and session.has_room:
                return session.new_stream()
            waits_for = self._opening.get(key)
            if waits_for is None and session is not None and not session.settled.done():
                waits_for = session.settled
            if waits_for is None:
                self._opening[key] = asyncio.get_running_loop().create_future()
                return None
            done, _ = await asyncio.wait((waits_for,), timeout=deadline - time.monotonic())
            if not done:
                raise ConnectTimeout(f"{key.host}: no answer by HTTP/2 within {timeout_seconds:.3g} s")

    def opened(self, session: Http2Session) -> HttpConnection:
        """Record an open session, and return the connection for the caller's request."""
        connection = session.first()
        if connection.is_http2:
            for key in [key for key, one in self._open.items() if one.closed]:
                del self._open[key]
            self._open[session.key] = session
        self.not_opened(session.key)
        return connection

    def not_opened(self, key: PoolKey) -> None:
        """Let the next request open a session. May be repeated."""
        opening = self._opening.pop(key, None)
        if opening is not None and not opening.done():
            opening.set_result(None)


def _ignore(_: Any) -> None:
    """Do nothing."""


def _name(code: int) -> str:
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"error {code}"


def _fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request from its head by HTTP/1.1, without the empty line."""
    first, *lines = head.split(b"\r\n")
    method, target, _ = first.split(b" ")
    fields = [(b":method", method), (b":scheme", b"https"), (b":authority", b""), (b":path", target)]
    for line in lines:
        name, _, value = line.partition(b": ")
        lower = name.lower()
        if lower == b"host":
            fields[2] = (b":authority", value)
        elif lower.decode("ascii") not in _OWN_HEADERS:
            fields.append((lower, value))
    return fields


def _parse_fields(fields: list[tuple[bytes, bytes]]) -> tuple[int, list[tuple[str, str]], int]:
    """Return the status, the headers, and the bytes that both take without compression. Raises BadResponse."""
    status, headers, size = 0, [], 0
    for name, value in fields:
        size += len(name) + len(value)
        if not _NAME.fullmatch(name) or _NOT_IN_VALUES.search(value):
            raise BadResponse(f"HTTP/2: a header {name[:40]!r} that may not be")
        if name == b":status":
            if not value.isdigit() or len(value) != 3:
                raise BadResponse(f"its status is {value[:40]!r}")
            status = int(value)
        else:
            headers.append((name.decode("latin-1"), value.decode("latin-1").strip(" \t")))
    return status, headers, size
