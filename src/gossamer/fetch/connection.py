"""One connection: sends a request, feeds what arrives to a reader, and answers through a future."""

import asyncio
import math
import ssl
import sys
import time
from collections.abc import Callable, Hashable
from ssl import MemoryBIO, SSLObject, SSLSession
from typing import Any, NamedTuple, cast

from gossamer.errors import BadInput, ConnectionLost, FetchError
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.response import ResponseReader

REMEMBERED_SESSIONS = 2048
"""Each is a few kilobytes, the server's certificate among them."""


READING_LEAKS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
"""CPython's issue 116810, fixed in 3.12.8 and 3.13.1, never in 3.11: each time a session is read, memory is lost
for ever (5.5 KB, measured). Using a session loses nothing."""

LEAKY_READS = 2048
"""How many sessions are read at most where that leaks: 11 MB in the life of a process."""


class ClientContext(ssl.SSLContext):
    """A client's context that offers the last session with a server again.

    asyncio cannot be told a session, but it does call `wrap_bio`, uvloop too. Sessions are kept by server name, and a
    context resumes its own only, so what was not verified is never resumed as verified.
    """

    def __init__(self, protocol: int = ssl.PROTOCOL_TLS_CLIENT) -> None:
        """`protocol` is what `ssl.SSLContext` takes; it was given to `__new__`."""
        self._sessions: dict[str, SSLSession] = {}
        self.reads_left = LEAKY_READS if READING_LEAKS else sys.maxsize
        """How often a session may still be read from a connection."""

    def wrap_bio(self, incoming: MemoryBIO, outgoing: MemoryBIO, *args: Any, **kwargs: Any) -> SSLObject:
        """As the original, with the session of `server_hostname` if there is one."""
        name = kwargs.get("server_hostname")
        kwargs.setdefault("session", self._sessions.get(name) if isinstance(name, str) else None)
        return super().wrap_bio(incoming, outgoing, *args, **kwargs)

    def remember(self, server_hostname: str, connection: SSLObject) -> None:
        """Keep the session of `connection` for the next one to this server; the oldest makes room.

        One that was resumed itself stays good until the server refuses it, so it is not read again.
        """
        if connection.session_reused or self.reads_left <= 0:
            return
        self.reads_left -= 1
        session = connection.session
        if session is None or not session.has_ticket:
            return
        self._sessions.pop(server_hostname, None)
        while len(self._sessions) >= REMEMBERED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[server_hostname] = session

    @property
    def session_count(self) -> int:
        """How many servers' sessions are kept."""
        return len(self._sessions)


class TlsContexts:
    """The two contexts of a client, made when first needed: reading the trust store takes tens of milliseconds."""

    def __init__(self, *, extra_ca: str | None = None) -> None:
        """`extra_ca`: a PEM file of authorities trusted beside the system's. Raises BadInput if it cannot be read."""
        self._verified: ClientContext | None = None if extra_ca is None else _verified_context(extra_ca)
        self._insecure: ClientContext | None = None

    def get(self, *, insecure: bool) -> ClientContext:
        """The context that verifies (system trust store, host name), or the one that accepts anything."""
        if insecure:
            if self._insecure is None:
                self._insecure = _insecure_context()
            return self._insecure
        if self._verified is None:
            self._verified = _verified_context(None)
        return self._verified


def _verified_context(extra_ca: str | None) -> ClientContext:
    context = _context()
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if extra_ca is not None:
        try:
            context.load_verify_locations(extra_ca)
        except OSError as exc:  # ssl.SSLError is one
            raise BadInput(f"{extra_ca} has no certificates in PEM: {exc.strerror or exc}") from exc
    return context


def _insecure_context() -> ClientContext:
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Who accepts any certificate wants the page, also from a server that was last configured in 2009.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    return context


def _context() -> ClientContext:
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Many servers end an answer by closing TCP without saying so in TLS. Where HTTP's framing tells the length it
    # detects a loss by itself; where it does not, a browser believes the end, too.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context


class HttpConnection(asyncio.Protocol):
    """Serves one exchange at a time. It keeps no timer; `watch.py` looks at its times every now and then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: ByteBudget, live: "set[HttpConnection]") -> None:
        """`live`: it is in this set as long as it has a socket."""
        self._loop = loop
        self._budget = budget
        self._live = live
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._result: asyncio.Future[ResponseReader] | None = None
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
        self.last_activity = 0.0
        """When something last arrived, or the last request left."""
        self.deadline = 0.0
        """When the exchange under way has to be over."""
        self.idle_until = 0.0

    def remember_session(self, context: ClientContext, server_hostname: str) -> None:
        """After the first answer, keep the TLS session in `context` (TLS 1.3 sends its tickets after the handshake)."""
        self._session = context, server_hostname

    def send(self, request: bytes, reader: ResponseReader, *, deadline: float) -> asyncio.Future[ResponseReader]:
        """Send a request; the future gives `reader` back when the answer is complete, or raises a FetchError. The
        caller takes up the reader's `complete_bytes` of the budget.

        The caller cancels by `abort`. A request to a connection that is `closed` fails with ConnectionLost.
        """
        self._result = result = self._loop.create_future()
        self._reader = reader
        self.first_byte_at = 0.0
        self.sent_at = self.last_activity = time.monotonic()
        self.deadline = deadline
        if self.closed or self._transport is None:
            self.fail(ConnectionLost("it was closed while idle"))
        else:
            self._transport.write(request)
        return result

    def fail(self, error: FetchError) -> None:
        """End the exchange under way with `error`, and the connection. May be repeated."""
        result, self._result = self._result, None
        self.abort()
        if result is not None and not result.done():
            result.set_exception(error)

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
            self.last_activity = time.monotonic()
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
        self.last_activity = time.monotonic()
        if not self.first_byte_at:
            self.first_byte_at = self.last_activity
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
            held, self._held_bytes, reader.complete_bytes = self._held_bytes, 0, reader.body_bytes
            self._budget.complete(self, held, reader.complete_bytes)
        self.resume()
        if self._session is not None:
            self._keep_session(*self._session)
        result, self._result = self._result, None
        if not reader.keep_alive:
            self.abort()
        if result is not None and not result.done():
            result.set_result(reader)

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


_LOSSES = 2
"""After this many losses an origin's connections are not reused. A success does not reset the count: a server may reset
only some of the connections that are used again."""
_REMEMBERED_SECONDS = 600.0
"""This long after an origin's last loss, its losses are forgotten."""
_ORIGINS_REMEMBERED = 10_000


class PoolKey(NamedTuple):
    """What makes two requests fit for one connection. A tuple, since it is hashed for every request."""

    scheme: str
    host: str
    """Empty for a plain proxy, which takes requests for any host."""
    ip: str
    port: int
    proxy: str | None
    insecure: bool


class LostConnections:
    """Remembers which origins lose their kept connections: each request to them gets a connection of its own.

    Some servers reset every connection that is used a second time. Several clients may share one memory.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._losses: dict[Hashable, tuple[int, float]] = {}

    def record(self, origin: Hashable) -> None:
        """Count the loss of a kept connection before the first byte of an answer."""
        now = self._now()
        losses, until = self._losses.pop(origin, (0, 0.0))
        if len(self._losses) >= _ORIGINS_REMEMBERED:
            del self._losses[next(iter(self._losses))]
        self._losses[origin] = (losses + 1 if now < until else 1, now + _REMEMBERED_SECONDS)

    def may_reuse(self, origin: Hashable) -> bool:
        """Return whether connections to this origin may be used again: fewer than two were lost of late."""
        if not self._losses:
            return True
        losses, until = self._losses.get(origin, (0, 0.0))
        return losses < _LOSSES or self._now() >= until


class ConnectionPool:
    """Bounds connections in total and per key, and keeps the idle ones. Who finds no room waits in line."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, total: int, per_key: int, idle_seconds: float) -> None:
        self._loop = loop
        self._total = total
        self._per_key = per_key
        self._idle_seconds = idle_seconds
        self._open = 0
        self._open_by_key: dict[PoolKey, int] = {}
        self._idle: dict[PoolKey, list[HttpConnection]] = {}
        self._idle_in_order: dict[HttpConnection, PoolKey] = {}
        self._waiting: dict[asyncio.Future[None], PoolKey] = {}

    @property
    def open_count(self) -> int:
        """Connections there are, in use, idle or being made."""
        return self._open

    @property
    def idle_count(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle_in_order)

    def take_idle(self, key: PoolKey) -> HttpConnection | None:
        """An idle connection, the one used last, since servers close the old ones first; None if there is none."""
        stack = self._idle.get(key)
        while stack:
            connection = stack.pop()
            if not stack:
                del self._idle[key]
            del self._idle_in_order[connection]
            if not connection.closed:
                return connection
            self._count_out(key)
        return None

    async def acquire(self, key: PoolKey, *, fresh: bool = False) -> HttpConnection | None:
        """An idle connection, or None: there is room reserved for a new one. Waits for either, first come first served.

        `fresh`: only a new one will do. Whoever got room must `release` a connection or `discard`. A full pool makes
        room by closing what has been idle for longest.
        """
        if not self._waiting:
            if not fresh and (connection := self.take_idle(key)) is not None:
                return connection
            if self._reserve(key):
                return None
        while True:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting[turn] = key
            self._wake()
            try:
                await turn
            except asyncio.CancelledError:
                if self._waiting.pop(turn, None) is None:
                    self._wake()  # the turn had come: it is the next one's now
                raise
            if not fresh and (connection := self.take_idle(key)) is not None:
                return connection
            if self._reserve(key):
                return None

    def release(self, key: PoolKey, connection: HttpConnection) -> None:
        """Take back a connection after an exchange: keep it for the next, or count it out if it is closed."""
        if connection.closed or self._idle_seconds <= 0:
            connection.abort()
            self.discard(key)
            return
        connection.idle_until = time.monotonic() + self._idle_seconds
        self._idle.setdefault(key, []).append(connection)
        self._idle_in_order[connection] = key
        if self._waiting:
            self._wake()

    def discard(self, key: PoolKey) -> None:
        """A connection of this key is gone, or was never made."""
        self._count_out(key)
        if self._waiting:
            self._wake()

    def expire(self, now: float) -> bool:
        """Close what has been idle for too long or was closed by its server; whether any idle ones are left."""
        gone = [connection for connection in self._idle_in_order if connection.closed or connection.idle_until <= now]
        for connection in gone:
            self._close_idle(connection)
        if gone and self._waiting:
            self._wake()
        return bool(self._idle_in_order)

    def close_idle(self) -> None:
        """Close all that is idle."""
        self.expire(math.inf)

    def _reserve(self, key: PoolKey) -> bool:
        if not self._has_room(key):
            return False
        if self._open_by_key.get(key, 0) >= self._per_key:
            self._close_idle(self._idle[key][0])
        elif self._open >= self._total:
            self._close_idle(next(iter(self._idle_in_order)))
        self._open += 1
        self._open_by_key[key] = self._open_by_key.get(key, 0) + 1
        return True

    def _has_room(self, key: PoolKey) -> bool:
        if self._open_by_key.get(key, 0) >= self._per_key:
            return key in self._idle
        return self._open < self._total or bool(self._idle_in_order)

    def _wake(self) -> None:
        for turn, key in self._waiting.items():
            if self._has_room(key):
                del self._waiting[turn]
                if not turn.done():
                    turn.set_result(None)
                return

    def _close_idle(self, connection: HttpConnection) -> None:
        key = self._idle_in_order.pop(connection)
        stack = self._idle[key]
        stack.remove(connection)
        if not stack:
            del self._idle[key]
        connection.abort()
        self._count_out(key)

    def _count_out(self, key: PoolKey) -> None:
        self._open -= 1
        left = self._open_by_key[key] - 1
        if left:
            self._open_by_key[key] = left
        else:
            del self._open_by_key[key]
