"""One connection of the HTTP client, and the requests that it may serve.

Fixed: the fields of `PoolKey`, which keep one request's connection from serving another that must not have it.
"""

import asyncio
import ssl
import time
from typing import NamedTuple, Protocol, cast

from gossamer.errors import ConnectionLost, FetchError, TlsFailed
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.response import ResponseReader
from gossamer.fetch.tls import ClientContext


class LiveConnection(Protocol):
    """Connection that has a socket."""

    def fail(self, error: FetchError) -> None:
        """Fail the requests in progress with `error`, and close the connection. May be repeated."""

    def abort(self) -> None:
        """Close at once. May be repeated."""

    async def wait_lost(self) -> None:
        """Wait until the socket is gone."""


class HttpConnection(asyncio.Protocol):
    """Connection to a server, which sends one request at a time. It has no timer: `TimeoutWatch` checks its times."""

    is_http2 = False
    """True: it is a stream of an Http2Session."""
    is_refused_as_http2 = False
    """True: the server wants HTTP/1.1 instead."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: ByteBudget, live: "set[LiveConnection]", key: "PoolKey"
    ) -> None:
        """`budget`: may pause this connection and resumes it. `live`: set that contains the connection while it has a
        socket. `key`: the key under which the pool keeps it."""
        self._loop = loop
        self._budget = budget
        self._live = live
        self.key = key
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._result: asyncio.Future[ResponseReader] | None = None
        self._held_bytes = 0  # bytes of the current body that the budget counts
        self._lost: asyncio.Future[None] | None = None
        self._session: tuple[ClientContext, str] | None = None
        self.closed = False
        """True: no further request can be sent."""
        self.served = 0
        """Number of complete responses."""
        self.kept = False
        """True: it was idle in the pool, so the server may have closed it meanwhile."""
        self.paused = False
        """True: the budget of bytes has stopped the reading."""
        self.sent_at = 0.0
        """Monotonic time at which the current request had been sent."""
        self.first_byte_at = 0.0
        """Monotonic time of the first byte of the current response; 0.0 until it arrives."""
        self.last_activity = 0.0
        """Monotonic time of the last bytes received, of the last request sent, or of the connection's beginning."""
        self.deadline = 0.0
        """Monotonic time by which the current response must be complete."""

    def remember_session(self, context: ClientContext, server_hostname: str) -> None:
        """Keep the TLS session in `context` after the first response: TLS 1.3 sends tickets after the handshake."""
        self._session = context, server_hostname

    def send(self, request: bytes, reader: ResponseReader, *, deadline: float) -> asyncio.Future[ResponseReader]:
        """Send a request. The future returns `reader` when the response is complete, or raises a FetchError.

        The budget counts a body while it is received (`take`) and when it is complete (`complete`), until the caller
        calls the budget's `consume` with the reader's `complete_bytes`; the bytes of a failed one are released here. To
        cancel, call `abort`. A request on a connection that is `closed` fails with ConnectionLost.
        """
        self._result = result = self._loop.create_future()
        self._reader = reader
        self.first_byte_at = 0.0
        self.deadline = deadline
        if self.closed or self._transport is None:
            self.fail(ConnectionLost("it was closed while idle"))
        else:
            self._transport.write(request)  # sends at once, also in uvloop: a buffer would wait for other callbacks
        self.sent_at = self.last_activity = time.monotonic()
        return result

    def fail(self, error: FetchError) -> None:
        """Fail the current request with `error` and close the connection. May be repeated."""
        result, self._result = self._result, None
        self.abort()
        if result is not None and not result.done():
            result.set_exception(error)

    def abort(self) -> None:
        """Close at once, without TLS's closing message, whose reply would not be read. May be repeated."""
        self.closed = True
        self._reader = None
        self._release()
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close a connection whose opening failed or was cancelled. The event loop may never call `connection_lost`."""
        self.abort()
        self.connection_lost(None)

    async def wait_lost(self) -> None:
        """Wait until the socket is gone."""
        if self._transport is None:
            return
        if self._lost is None:
            self._lost = self._loop.create_future()
        await self._lost

    def pause(self) -> None:
        """Stop reading, so that the kernel's buffers fill and the server slows down."""
        if not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Continue reading. The pause does not count as inactivity of the server."""
        if self.paused:
            self.paused, self.last_activity = False, time.monotonic()
            if self._transport is not None and not self.closed:
                self._transport.resume_reading()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.closed:
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self.last_activity = time.monotonic()
        self._live.add(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            # Bytes without a request: they must not be taken for the next response.
            self.abort()
            return
        self.last_activity = now = time.monotonic()
        if not self.first_byte_at:
            self.first_byte_at = now
        try:
            complete = reader.feed(data)
        except FetchError as error:
            self.fail(error)
            return
        if complete:
            self._finish(reader)
        elif reader.body_bytes > self._held_bytes:
            grown = reader.body_bytes - self._held_bytes
            self._held_bytes = reader.body_bytes
            self._budget.take(self, grown)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._transport = None
        self._live.discard(self)
        reader = self._reader
        if reader is not None:
            try:
                # However the connection ended, a response that is complete by its framing is complete.
                reader.feed_eof()
            except FetchError as error:
                self.fail(error if exc is None else self._loss(error, exc, reader))
            else:
                self._finish(reader)
        self._release()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def _loss(self, error: FetchError, cause: Exception, reader: ResponseReader) -> FetchError:
        """Return the error of a request whose connection broke. With TLS 1.3, a server refuses a client only after the
        client's handshake."""
        is_of_site = self.key.proxy is None and not self.kept and not reader.received_bytes
        if isinstance(cause, ssl.SSLError) and is_of_site:
            return TlsFailed(f"{self.key.host}: {cause.reason or cause}")
        return ConnectionLost(f"{error.detail} ({cause})")

    def _finish(self, reader: ResponseReader) -> None:
        """End the current request with a complete response."""
        self._reader = None
        self.served += 1
        if self._held_bytes:  # 0: the body came with the head, and is too short to be counted
            held, self._held_bytes = self._held_bytes, 0
            reader.complete_bytes = reader.body_bytes
            self._budget.complete(self, held, reader.complete_bytes)
        if self.paused:
            self.resume()
        if self._session is not None:
            self._keep_session(*self._session)
            self._session = None
        result, self._result = self._result, None
        if not reader.keep_alive:
            self.abort()
        if result is not None and not result.done():
            result.set_result(reader)

    def _keep_session(self, context: ClientContext, server_hostname: str) -> None:
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        if isinstance(tls, ssl.SSLObject):
            context.remember(server_hostname, tls)

    def _release(self) -> None:
        """Give the bytes of an incomplete body back to the budget."""
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._budget.give_back(self, held)
        self.resume()


class PoolKey(NamedTuple):
    """Key of connections that may serve the same requests. A tuple, because it is hashed for every request.

    Every field must stay: without `insecure`, for example, a request that verifies certificates could get a connection
    that does not.
    """

    scheme: str
    host: str
    """Empty for a plain proxy, which accepts requests for any host."""
    ip: str
    port: int
    proxy: str | None
    insecure: bool
    http2: bool = False
    """True: HTTP/2 is offered to the server."""
