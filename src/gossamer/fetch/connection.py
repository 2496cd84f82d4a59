"""Connections of the HTTP client: TLS sessions, one connection, and the pool that keeps idle connections.

Fixed: the fields of `PoolKey`, which keep one request's connection from serving another that must not have it; a
verified TLS context resumes only its own sessions; and the pool's count of open connections: each that is counted in
must be counted out once, or requests wait for ever. All calls come from one event loop.
"""

import asyncio
import math
import ssl
import sys
import time
from collections.abc import Callable, Hashable
from ssl import MemoryBIO, SSLObject, SSLSession
from typing import Any, NamedTuple, cast

from gossamer.errors import BadInput, ConnectionLost, FetchError, TlsFailed
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.response import ResponseReader

REMEMBERED_SESSIONS = 2048
"""TLS sessions that a context keeps, so that the next handshake with a server is short. Above 0: each takes a few
kilobytes, because it includes the server's certificate."""

READING_LEAKS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
"""True where CPython issue 116810 is not fixed (fixed in 3.12.8 and 3.13.1, not in 3.11): each read of a session leaks
5.5 KB (measured). Using a session leaks nothing. To be removed when these versions are not supported any more."""

LEAKY_READS = 2048
"""Bound on reads of sessions where each leaks memory: 11 MB in the life of a process. More leak more, fewer make more
full handshakes."""


class ClientContext(ssl.SSLContext):
    """TLS context that resumes the last session with a server.

    asyncio has no parameter for a session, but it calls `wrap_bio`, and so does uvloop. Sessions are kept by server
    name, and a context resumes only its own, so that an unverified session is never resumed as verified.
    """

    def __init__(self, protocol: int = ssl.PROTOCOL_TLS_CLIENT) -> None:
        """`protocol`: argument of `ssl.SSLContext`, which has passed it to `__new__` already."""
        self._sessions: dict[str, SSLSession] = {}
        self.reads_left = LEAKY_READS if READING_LEAKS else sys.maxsize
        """Number of sessions that may still be read from connections."""

    def wrap_bio(self, incoming: MemoryBIO, outgoing: MemoryBIO, *args: Any, **kwargs: Any) -> SSLObject:
        """Call the original method with the session of `server_hostname`, if there is one."""
        name = kwargs.get("server_hostname")
        kwargs.setdefault("session", self._sessions.get(name) if isinstance(name, str) else None)
        return super().wrap_bio(incoming, outgoing, *args, **kwargs)

    def remember(self, server_hostname: str, connection: SSLObject) -> None:
        """Keep the session of `connection` for the next connection to this server; the oldest session makes room.

        A session that was resumed stays valid until the server refuses it, so it is not read again.
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


class TlsContexts:
    """The two TLS contexts of a client, made when first needed: reading the trust store takes tens of milliseconds."""

    def __init__(self, *, extra_ca: str | None = None) -> None:
        """`extra_ca`: a PEM file of authorities trusted in addition to the system's. Raises BadInput if it cannot be
        read."""
        self._verified: ClientContext | None = None if extra_ca is None else _verified_context(extra_ca)
        self._insecure: ClientContext | None = None

    def get(self, *, insecure: bool) -> ClientContext:
        """Return the context that verifies certificates (system trust store, host name), or one that accepts any."""
        if insecure:
            if self._insecure is None:
                self._insecure = _insecure_context()
            return self._insecure
        if self._verified is None:
            self._verified = _verified_context(None)
        return self._verified


def _verified_context(extra_ca: str | None) -> ClientContext:
    """Return a context that verifies certificates. `extra_ca`: as in TlsContexts."""
    context = _context()
    context.set_ciphers(_CIPHERS)
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if extra_ca is not None:
        try:
            context.load_verify_locations(extra_ca)
        except OSError as exc:
            fault = "has no certificates in PEM" if isinstance(exc, ssl.SSLError) else "cannot be read"
            raise BadInput(f"{extra_ca} {fault}: {exc.strerror or exc}") from exc
    return context


_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:kRSA+AESGCM:kRSA+AES:!aNULL:!eNULL:!aDSS:!AESCCM"
"""Ciphers of TLS 1.2, the best first: Python's own, and those without forward secrecy or with SHA-1 as MAC, which
Chromium uses, too, with servers that have no others."""


def _insecure_context() -> ClientContext:
    """Return a context that accepts any certificate, and the ciphers of old servers."""
    context = _context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # A crawl that accepts any certificate wants the page, even from a server that was last configured in 2009.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def _context() -> ClientContext:
    """Return a context with what both kinds have in common."""
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])  # the only version that this client reads
    # Many servers close TCP without ending TLS. Where HTTP framing gives the length, it detects a loss by itself; where
    # it does not, browsers accept the end, too.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    # As browsers, it connects to servers without secure renegotiation (RFC 5746). Neither side can renegotiate with
    # these. The number is OpenSSL's, where Python has no name.
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0x4)
    return context


class HttpConnection(asyncio.Protocol):
    """Connection to a server, which sends one request at a time. It has no timer: `TimeoutWatch` checks its times."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: ByteBudget, live: "set[HttpConnection]", key: "PoolKey"
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


_MAX_LOSSES = 2
"""Losses after which an origin's connections are not reused. A success does not reset the count, because a server may
reset only some of the reused connections. Each loss costs a further hit of the site, and a connection that is not
reused costs a handshake."""
_LOSS_SECONDS = 600.0
"""Time after an origin's last loss when its losses are forgotten. A shorter time tries reuse, and so loses requests,
more often."""
_MAX_ORIGINS = 10_000
"""Origins whose losses are remembered; the oldest makes room. More take memory."""


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


class LostConnections:
    """Record of origins that lose kept connections. Each request to such an origin gets a new connection.

    Some servers reset every connection that is used a second time. Several clients may share one record.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: monotonic seconds."""
        self._now = now
        self.recent: dict[Hashable, tuple[int, float]] = {}
        """By origin: number of losses, and the time at which they are forgotten; the least recent loss first."""

    def record(self, origin: Hashable) -> None:
        """Record the loss of a kept connection before the first byte of a response."""
        now = self._now()
        losses, until = self.recent.pop(origin, (0, 0.0))
        if len(self.recent) >= _MAX_ORIGINS:
            del self.recent[next(iter(self.recent))]
        self.recent[origin] = (losses + 1 if now < until else 1, now + _LOSS_SECONDS)

    def may_reuse(self, origin: Hashable) -> bool:
        """Return whether connections to this origin may be reused: fewer than _MAX_LOSSES were lost recently."""
        losses, until = self.recent.get(origin, (0, 0.0))
        return losses < _MAX_LOSSES or self._now() >= until


class ConnectionPool:
    """Pool of connections, bounded in total and per key, that keeps the idle ones. Requests that find no room wait in
    line."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, total: int, per_key: int, idle_seconds: float) -> None:
        """`total`, `per_key`: most connections that are open, busy or idle. `idle_seconds`: 0 keeps none."""
        self._loop = loop
        self._total = total
        self._per_key = per_key
        self._idle_seconds = idle_seconds
        self._open = 0
        self._open_by_key: dict[PoolKey, int] = {}
        # All idle connections are in both: by key with the last used at the end, and in the order in which they became
        # idle.
        self._idle: dict[PoolKey, list[HttpConnection]] = {}
        self._idle_in_order: dict[HttpConnection, PoolKey] = {}
        # Callers that wait, first come first. A future is done when its caller may look for room again.
        self._waiting: dict[asyncio.Future[None], PoolKey] = {}

    @property
    def open_count(self) -> int:
        """Number of connections in use, idle or being opened."""
        return self._open

    def take_idle(self, key: PoolKey) -> HttpConnection | None:
        """Return the idle connection used last, because servers close the older ones first. None: there is none."""
        stack = self._idle.get(key)
        while stack:
            connection = stack.pop()
            if not stack:
                del self._idle[key]
            del self._idle_in_order[connection]
            if not connection.closed:
                connection.kept = True
                return connection
            self._count_out(key)
        return None

    async def acquire(self, key: PoolKey, *, fresh: bool = False) -> HttpConnection | None:
        """Return an idle connection, or None with room reserved for a new one. Callers wait for either, first come,
        first served.

        `fresh`: True: only a new connection will do. A caller that got a connection must `release` it; one that got
        room must `release` the new connection or `discard` the room. A full pool makes room by closing the connection
        that was idle for longest.
        """
        if not self._waiting:
            if not fresh and (connection := self.take_idle(key)) is not None:
                return connection
            if self._reserve(key):
                return None
        while True:
            # A caller whose turn came to nothing (another host took the room) queues again, at the end.
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting[turn] = key
            self._wake()  # this caller may be the only one who can use what is free
            try:
                await turn
            except asyncio.CancelledError:
                if self._waiting.pop(turn, None) is None:
                    self._wake()  # the turn had been granted: pass it to the next caller
                raise
            if not fresh and (connection := self.take_idle(key)) is not None:
                return connection
            if self._reserve(key):
                return None

    def release(self, connection: HttpConnection) -> None:
        """Return a connection after a request: it becomes idle, or is removed if it is closed."""
        key = connection.key
        if connection.closed or self._idle_seconds <= 0:
            connection.abort()
            self.discard(key)
            return
        self._idle.setdefault(key, []).append(connection)
        self._idle_in_order[connection] = key
        if self._waiting:
            self._wake()

    def discard(self, key: PoolKey) -> None:
        """Release the room of a connection that is gone or was never opened."""
        self._count_out(key)
        if self._waiting:
            self._wake()

    def expire(self, now: float) -> bool:
        """Close connections that were idle for too long or closed by their server. Returns whether any idle ones are
        left."""
        gone = [one for one in self._idle_in_order if one.closed or one.last_activity <= now - self._idle_seconds]
        for connection in gone:
            self._close_idle(connection)
        if gone and self._waiting:
            self._wake()  # one is enough: callers wait only where no idle connection could make room for them
        return bool(self._idle_in_order)

    def close_idle(self) -> None:
        """Close all idle connections."""
        self.expire(math.inf)

    def _reserve(self, key: PoolKey) -> bool:
        """Count a new connection in, closing an idle one if that is needed. False: there is no room."""
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
        """Return whether a connection with this key may be opened, if need be in place of an idle one."""
        if self._open_by_key.get(key, 0) >= self._per_key:
            return key in self._idle
        return self._open < self._total or bool(self._idle_in_order)

    def _wake(self) -> None:
        """Wake the first caller in line that would find room now."""
        for turn, key in self._waiting.items():
            if self._has_room(key):
                del self._waiting[turn]
                if not turn.done():
                    turn.set_result(None)
                return

    def _close_idle(self, connection: HttpConnection) -> None:
        """Remove an idle connection from the pool, and close it."""
        key = self._idle_in_order.pop(connection)
        stack = self._idle[key]
        stack.remove(connection)
        if not stack:
            del self._idle[key]
        connection.abort()
        self._count_out(key)

    def _count_out(self, key: PoolKey) -> None:
        """Count a connection out that `_reserve` has counted in."""
        self._open -= 1
        left = self._open_by_key[key] - 1
        if left:
            self._open_by_key[key] = left
        else:
            del self._open_by_key[key]
