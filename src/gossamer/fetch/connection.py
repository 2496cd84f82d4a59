"""One connection: sends a request, feeds what arrives to a reader, and answers through a future."""

import asyncio
import ssl
import time
from typing import cast

from gossamer.errors import ConnectionLost, FetchError
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.resolve import ClientContext
from gossamer.fetch.response import ResponseReader


class HttpConnection(asyncio.Protocol):
    """Serves one exchange at a time. It keeps no timer; `watch.py` looks at its times every now and then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: ByteBudget, live: "set[HttpConnection]") -> None:
        """`live`: it is in this set as long as it has a socket."""
        self._loop = loop
        self._budget = budget
        self._live = live
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._answer: asyncio.Future[ResponseReader] | None = None
        self._held_bytes = 0
        self._lost: asyncio.Future[None] | None = None
        self._session: tuple[ClientContext, str] | None = None
        self.closed = False
        """No further request can be sent."""
        self.served = 0
        """Exchanges completed."""
        self.paused = False
        self.sent_at = 0.0
        self.first_byte_at = 0.0
        """Of the exchange under way; 0.0 until it begins."""
        self.heard_at = 0.0
        """When something last arrived, or the last request left."""
        self.deadline = 0.0
        """When the exchange under way has to be over."""
        self.idle_until = 0.0

    def remember_session(self, context: ClientContext, server_hostname: str) -> None:
        """After the first answer, keep the TLS session in `context` (TLS 1.3 sends its tickets after the handshake)."""
        self._session = context, server_hostname

    def send(self, request: bytes, reader: ResponseReader, *, deadline: float) -> asyncio.Future[ResponseReader]:
        """Send a request; the future gives `reader` back when the answer is complete, or raises a FetchError. The
        caller takes up the reader's `ready_bytes` of the budget.

        The caller cancels by `abort`. A request to a connection that is `closed` fails with ConnectionLost.
        """
        self._answer = answer = self._loop.create_future()
        self._reader = reader
        self.first_byte_at = 0.0
        self.sent_at = self.heard_at = time.monotonic()
        self.deadline = deadline
        if self.closed or self._transport is None:
            self.fail(ConnectionLost("it was closed while idle"))
        else:
            self._transport.write(request)
        return answer

    def fail(self, error: FetchError) -> None:
        """End the exchange under way with `error`, and the connection. May be repeated."""
        answer, self._answer = self._answer, None
        self.abort()
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def abort(self) -> None:
        """Close at once, without a farewell: nobody would wait for its reply. May be repeated."""
        self.closed = True
        self._reader = None
        self._release()
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """It was never handed to anybody: making it failed or was cancelled. The loop may not say that it is lost."""
        self.abort()
        self.connection_lost(None)

    async def wait_lost(self) -> None:
        """Until the socket is gone."""
        if self._transport is None:
            return
        if self._lost is None:
            self._lost = self._loop.create_future()
        await self._lost

    def pause(self) -> None:
        """For the budget: let the kernel's buffers fill, which slows the server down."""
        if not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """For the budget: go on. The server did not idle meanwhile, we did."""
        if self.paused:
            self.paused = False
            self.heard_at = time.monotonic()
            if self._transport is not None and not self.closed:
                self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.closed:
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._live.add(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            # Nobody asked: whatever it is, it must not be taken for the next answer.
            self.abort()
            return
        self.heard_at = time.monotonic()
        if not self.first_byte_at:
            self.first_byte_at = self.heard_at
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
                # However it ended: an answer that is complete by its framing is complete.
                reader.feed_eof()
            except FetchError as error:
                self.fail(error if exc is None else ConnectionLost(f"{error.detail} ({exc})"))
            else:
                self._finish(reader)
        self._release()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def _finish(self, reader: ResponseReader) -> None:
        self._reader = None
        self.served += 1
        if self._held_bytes:
            held, self._held_bytes, reader.ready_bytes = self._held_bytes, 0, reader.body_bytes
            self._budget.complete(self, held, reader.ready_bytes)
        self.resume()
        if self._session is not None:
            self._keep_session(*self._session)
        answer, self._answer = self._answer, None
        if not reader.keep_alive:
            self.abort()
        if answer is not None and not answer.done():
            answer.set_result(reader)

    def _keep_session(self, context: ClientContext, server_hostname: str) -> None:
        self._session = None
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        if isinstance(tls, ssl.SSLObject):
            context.remember(server_hostname, tls)

    def _release(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._budget.give_back(self, held)
        self.resume()
