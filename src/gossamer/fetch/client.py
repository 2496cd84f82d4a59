"""HTTP client of the crawler: sends one request and returns its response, over connections that are kept open.

A request on a kept connection costs one future: no task, no timer, no look-up that leaves the process. The byte budget
bounds the memory for bodies: when it is used up, only one connection, its leader, goes on receiving.

Fixed: a request is sent only to an address in its `ConnectionPlan`, because the guard, which keeps crawls out of
private networks, has approved these; a request with `send_by` (see FetchRequest) is sent at most once; and, also after
an error or a cancellation, every connection that is checked out goes back to the pool and every complete body is
consumed from the budget, because otherwise their room is lost for the life of the process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    DecodeBomb,
    DecodeFailed,
    FetchError,
    FirstByteTimeout,
    IdleTimeout,
    NotSentInTime,
    ProxyFailed,
    TlsFailed,
    TotalTimeout,
)
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.connection import HttpConnection, LiveConnection, PoolKey
from gossamer.fetch.decode import DecodedBody, decode, is_plain, parse_encodings
from gossamer.fetch.dial import DialResult, NewConnection, dial
from gossamer.fetch.exchange import MIB, FetchRequest, FetchResponse, ResponseLimits, Timeouts, Timings
from gossamer.fetch.faults import ResponseFault
from gossamer.fetch.http_versions import ASKING_STATUSES, HttpVersions
from gossamer.fetch.planner import ConnectionPlan, ConnectionPlanner
from gossamer.fetch.pool import ConnectionPool, LostConnections
from gossamer.fetch.request import RequestEncoder
from gossamer.fetch.response import ResponseReader
from gossamer.fetch.tls import TlsContexts
from gossamer.net.resolve import Resolver
from gossamer.telemetry import logs
from gossamer.telemetry.stalls import StallClock

if TYPE_CHECKING:
    from gossamer.fetch.http2 import Http2Sessions

log = logging.getLogger("gossamer.fetch")

STALL_SECONDS = 1.0
"""Silence of the leader after which another connection becomes the leader. A longer time lets a slow server hold up the
others; a shorter one changes the leader more often, and each leader may add a body to the memory."""
_DEFAULT_BUDGET_BYTES = 64 * MIB
"""Byte budget of a client that is given none; the worker gives its own. More take memory, fewer make downloads of large
bodies wait for each other."""

# The interval between two checks of all connections is the shortest timeout divided by _TICKS_PER_TIMEOUT, within the
# two bounds. `exchange.Timeouts` promises the precision: longer intervals end requests later, shorter ones cost CPU.
_TICKS_PER_TIMEOUT = 8
_MIN_TICK_SECONDS = 0.005
_MAX_TICK_SECONDS = 0.25


class TimeoutWatch:
    """Ends requests that exceed a timeout. Its timer runs only while there are connections to watch."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        budget: ByteBudget,
        expire_idle: Callable[[float], bool],
    ) -> None:
        """`expire_idle(now)` closes connections that were idle for too long, at this monotonic time, and returns
        whether any idle ones are left."""
        self._loop = loop
        self._timeouts = timeouts
        self._budget = budget
        self._expire_idle = expire_idle
        shortest = min(timeouts.first_byte, timeouts.idle, timeouts.total)
        self._tick_seconds = min(max(shortest / _TICKS_PER_TIMEOUT, _MIN_TICK_SECONDS), _MAX_TICK_SECONDS)
        self._timer: asyncio.TimerHandle | None = None
        self.busy: set[HttpConnection] = set()
        """Connections with a request in progress."""

    def send(
        self, connection: HttpConnection, wire: bytes, reader: ResponseReader, deadline: float
    ) -> asyncio.Future[ResponseReader]:
        """Send a request (see `HttpConnection.send`), and watch its connection. The caller removes the connection from
        `busy` when the request has ended."""
        self.busy.add(connection)
        if self._timer is None:
            self._start()
        return connection.send(wire, reader, deadline=deadline)

    def _start(self) -> None:
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def stop(self) -> None:
        """Stop the timer. May be repeated."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Check all connections, and start the timer again if any are left to watch."""
        self._timer = None
        now = time.monotonic()
        for connection in list(self.busy):
            self._check(connection, now)
        if self._expire_idle(now) or self.busy:
            self._start()

    def _check(self, connection: HttpConnection, now: float) -> None:
        """End the request of a connection if one of its timeouts has passed; pass on the lead if it stands still."""
        timeouts = self._timeouts
        silent_seconds = now - connection.last_activity
        if now >= connection.deadline:
            connection.fail(TotalTimeout(f"{timeouts.total:g} s"))
        elif connection.paused:
            return  # the budget paused it, so its silence is not the server's
        elif not connection.first_byte_at:
            if silent_seconds >= timeouts.first_byte:
                connection.fail(FirstByteTimeout(f"{timeouts.first_byte:g} s"))
        elif silent_seconds >= timeouts.idle:
            connection.fail(IdleTimeout(f"nothing for {timeouts.idle:g} s"))
        elif silent_seconds >= STALL_SECONDS:
            self._budget.yield_lead(connection)


_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
"""Methods whose request may be sent again when its connection was lost. RFC 9110, section 9.2.2: none may be added."""


class PoolLimits(msgspec.Struct, frozen=True):
    """Bounds on a client's connections. A request that finds no room waits, within its total timeout.

    Larger ones save waits and handshakes, and take file descriptors and memory. The worker replaces `total` and
    `per_address`.
    """

    total: int = 512
    """All connections, including idle ones."""
    per_address: int = 32
    """Connections to one host at one address."""
    idle_seconds: float = 15.0
    """Time that an idle connection is kept for another request; 0: it is closed after each request. Servers close
    idle connections, too, so a longer time loses more requests."""


class HttpClient:
    """HTTP/1.1 client (and 1.0), which also speaks HTTP/2 where `versions` says so. Belongs to the event loop in which
    it is first used; close it there.

    docs/adr/0003-own-http-client.md lists what it does not do, and why. If a connection is lost, there are three cases:
    - it was kept from an earlier request, no byte of the response has come, the method is idempotent, and there is no
      `send_by`: the request is sent once more, on a new connection
    - the same with `send_by`: ConnectionLost is raised as `repeatable`
    - else: ConnectionLost is raised

    After some losses of kept connections, those to the origin are not reused (see `LostConnections`).
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        limits: ResponseLimits | None = None,
        timeouts: Timeouts | None = None,
        connections: PoolLimits | None = None,
        budget: ByteBudget | None = None,
        losses: LostConnections | None = None,
        versions: HttpVersions | None = None,
        extra_ca: str | None = None,
    ) -> None:
        """`resolver` decides which addresses may be connected to; the caller closes it.

        `budget`: limits the bytes of bodies in memory; beyond it all downloads pause but one. Several clients and
        holders of bodies may share one; None: the client has _DEFAULT_BUDGET_BYTES of its own. `losses`: remembers
        which origins lose kept connections; may be shared, too. `versions`: the versions of HTTP to speak with each
        origin; may be shared; None: HTTP/1.1 with all. `extra_ca`: a PEM file of authorities trusted in
        addition to the system's; raises BadInput if it cannot be read.
        """
        self._limits = limits or ResponseLimits()
        self._timeouts = timeouts or Timeouts()
        self._connection_limits = connections or PoolLimits()
        self._budget = ByteBudget(_DEFAULT_BUDGET_BYTES) if budget is None else budget
        self._losses = losses or LostConnections()
        self._versions = versions
        self._planner = ConnectionPlanner(resolver, versions)
        self._contexts = TlsContexts(extra_ca=extra_ca)
        self._requests = RequestEncoder()
        self._live: set[LiveConnection] = set()
        self._http2: Http2Sessions | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ConnectionPool
        self._watch: TimeoutWatch
        self._stalls: StallClock
        self._closed = False

    @property
    def open_connections(self) -> int:
        """Number of connections in use, idle, or being opened."""
        return 0 if self._loop is None else self._pool.open_count

    @property
    def bodies_in_flight_bytes(self) -> int:
        """Bytes of bodies that are being received, or complete and not returned yet."""
        return self._budget.held_bytes + self._budget.complete_bytes

    @property
    def awaiting_responses(self) -> bool:
        """True: requests were sent whose responses are not complete."""
        return self._loop is not None and bool(self._watch.busy)

    async def fetch(self, request: FetchRequest, *, wait_for_room: bool = False) -> FetchResponse:
        """Send one request and return its response, whatever its status. Any number of calls may run at once.

        `wait_for_room`: True: the caller counts the bodies that it keeps in the budget. While these fill it, a complete
        response waits here before it is decoded, because a small body may be large when decoded.

        Raises FetchErrors, and BadUrl and BadInput for an invalid request. Cancelling closes the connection.
        """
        # A request on a kept connection, the case of most pages, makes no coroutine besides this one.
        if self._loop is None or self._closed:
            self._begin()
        started, timings = time.monotonic(), Timings()
        origin, target = self._requests.split(request.url)
        plan = self._planner.find_cached(request, origin)
        if plan is None:
            plan = await self._planner.find(request, origin)
            timings.dns = time.monotonic() - started
        head, wire = self._encode(request, plan, target)
        reader = self._new_reader(request)
        deadline = started + self._timeouts.total
        connection, send_by = self._take_idle(plan), request.send_by
        if connection is None:
            connection = await self._check_out(plan, deadline, timings, fresh=self._loses(plan))
            send_by = send_by and send_by + min(request.connect_allowance, timings.connecting)
        if send_by is not None and time.monotonic() > send_by:
            raise self._not_sent_in_time(send_by, connection, timings)
        failure: FetchError | None = None  # must not hide the status and headers that came before it
        result: asyncio.Future[Any] | None = None
        try:
            try:
                result = self._watch.send(connection, wire, reader, deadline)  # `_end_request` must follow in any case
                await (result if send_by is None else _warn_if_late(result, request.url, connection.sent_at - send_by))
            except BaseException as error:
                self._end_request(plan, connection, failed=True)
                if not isinstance(error, FetchError):
                    raise
                failure = error
                # A server may close a kept connection while a request is on its way (RFC 9112, section 9.3.1).
                if self._may_send_again(request, plan, connection, reader, error):
                    reader = self._new_reader(request)
                    connection, failure = await self._send_again(plan, wire, reader, deadline, timings)
            else:
                self._end_request(plan, connection, failed=False)
            is_telling = failure is not None or connection.served == 1 or reader.status in ASKING_STATUSES
            if is_telling and self._wants_another_version(request, plan, connection, reader, failure):
                return await self.fetch(request, wait_for_room=wait_for_room)
            if failure is not None and not reader.has_head:
                raise failure
            # Read now: during a wait below, another request may get the connection.
            timings.first_byte = connection.first_byte_at - connection.sent_at
            reused = connection.served > 1
            if wait_for_room and self._budget.retained_bytes and self._budget.is_full:
                await self._budget.wait_for_room()
            return _response(request, plan, connection.key.ip, reader, head, reused, timings, failure)
        finally:
            timings.total = time.monotonic() - started
            failure = result = None  # breaks reference cycles: its traceback refers to this frame
            if reader.complete_bytes:
                self._budget.consume(reader.complete_bytes)

    def _encode(self, request: FetchRequest, plan: ConnectionPlan, target: str) -> tuple[bytes, bytes]:
        """Return the head of a request, without the credentials of a proxy, and all bytes to send."""
        through_proxy = plan.absolute_form
        head = wire = self._requests.head(
            plan.origin, target, request.method, request.headers, len(request.body), through_proxy=through_proxy
        )
        if through_proxy or request.body:
            wire = (_with_proxy_credentials(head, plan) if through_proxy else head) + request.body
        return head, wire

    async def close(self) -> None:
        """Close all connections and wait until they are gone; requests in progress fail. May be repeated."""
        self._closed = True
        if self._loop is None:
            return
        self._watch.stop()
        self._stalls.stop()
        self._pool.close_idle()
        live = list(self._live)
        for connection in live:
            connection.fail(ConnectionLost("the client was closed"))
        for connection in live:
            await connection.wait_lost()

    def _begin(self) -> None:
        """Bind the client to the running event loop, with the first request."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._loop is None:
            self._loop = loop = asyncio.get_running_loop()
            self._pool = ConnectionPool(
                loop,
                total=self._connection_limits.total,
                per_key=self._connection_limits.per_address,
                idle_seconds=self._connection_limits.idle_seconds,
            )
            self._watch = TimeoutWatch(loop, self._timeouts, self._budget, self._pool.expire)
            self._stalls = StallClock()

    def _new_reader(self, request: FetchRequest) -> ResponseReader:
        """Return a reader for the response to a request, with the request's own limits if it has any."""
        limits = self._limits
        if request.body_bytes is not None:
            limits = msgspec.structs.replace(limits, body_bytes=request.body_bytes, whole_only=request.whole_only)
        return ResponseReader(limits, head_only=request.method == "HEAD")

    def _not_sent_in_time(self, send_by: float, connection: HttpConnection, timings: Timings) -> NotSentInTime:
        """Return the error of a request whose monotonic time `send_by` has passed. The connection is kept for another
        request."""
        late_seconds = time.monotonic() - send_by
        self._pool.release(connection)
        error = NotSentInTime()
        error.connect_seconds = timings.connecting
        # True if the request would have been in time without opening the connection.
        error.connecting = late_seconds <= error.connect_seconds
        return error

    def _may_send_again(
        self,
        request: FetchRequest,
        plan: ConnectionPlan,
        connection: HttpConnection,
        reader: ResponseReader,
        error: FetchError,
    ) -> bool:
        """Record that the server closed a kept connection, and return whether the request may be sent again. A loss of
        a new connection, or within a response, is not recorded, and the request may not be sent again. Nor may a
        request that has been charged: its error becomes `repeatable`. A server by HTTP/2 may say that it has not
        processed a request, which may then be sent again, too."""
        if not isinstance(error, ConnectionLost) or connection.is_refused_as_http2:
            return False
        if error.repeatable:
            return request.send_by is None
        if not connection.kept or reader.received_bytes:
            return False
        self._losses.record(plan.losses_key)
        if request.method in _IDEMPOTENT and request.send_by is not None:
            error.repeatable = True
        return request.method in _IDEMPOTENT and request.send_by is None

    def _end_request(self, plan: ConnectionPlan, connection: HttpConnection, *, failed: bool) -> None:
        """Return a connection to the pool, closed if its request has failed, or if kept connections to its origin are
        often lost."""
        self._watch.busy.discard(connection)
        if failed or (self._losses.recent and self._loses(plan)):
            connection.abort()
        self._pool.release(connection)

    def _wants_another_version(
        self,
        request: FetchRequest,
        plan: ConnectionPlan,
        connection: HttpConnection,
        reader: ResponseReader,
        failure: FetchError | None,
    ) -> bool:
        """Record what an attempt says about the versions of HTTP that a server speaks, and return whether the request
        is to be sent again with another one, which happens once for each origin and direction. Raises ConnectionLost as
        `repeatable` if it was charged, and Http2Needed if the version that the server seems to want cannot be
        spoken."""
        versions, key = self._versions, plan.losses_key
        if versions is None or not plan.origin.secure:
            return False
        repeats = changes = False
        if failure is None or reader.has_head:
            is_refused = reader.status in ASKING_STATUSES and not connection.is_http2
            if is_refused:
                versions.check_2(key, f"answers HTTP/1.1 with the status {reader.status}")
            if connection.served == 1:
                versions.answered(key, with_2=connection.is_http2)
                changes = connection.is_http2 != plan.http2
            if is_refused:
                repeats = versions.try_2(key, surely=True)
        elif connection.is_http2:
            if connection.is_refused_as_http2:
                versions.refuse_2(key)
                repeats = True
            else:
                repeats = not connection.kept and versions.failed_with_2(key)
        elif reader.is_http2:
            versions.check_2(key, "answers HTTP/1.1 with frames of HTTP/2")
            repeats = versions.try_2(key, surely=True)
        elif (
            not connection.kept and not reader.received_bytes and isinstance(failure, ConnectionLost | FirstByteTimeout)
        ):
            if plan.proxy is None and isinstance(failure, ConnectionLost):
                versions.check_2(key, "ends connections by HTTP/1.1 without an answer", is_sure=False)
            changes = versions.try_2(key, surely=False)
            # A page, which was charged, has its next attempt later; anything else has none.
            repeats = changes and request.send_by is None and isinstance(failure, ConnectionLost)
        if repeats or changes:
            self._planner.forget(plan.origin)
        if not repeats or request.method not in _IDEMPOTENT:
            return False
        if request.send_by is not None:
            raise _repeatable(failure)
        return True

    async def _send_again(
        self, plan: ConnectionPlan, wire: bytes, reader: ResponseReader, deadline: float, timings: Timings
    ) -> tuple[HttpConnection, FetchError | None]:
        """Send the request on a new connection, after a kept one was lost. Returns the connection, which has gone back
        to the pool, and the error of the request."""
        connection = await self._check_out(plan, deadline, timings, fresh=True)
        failed, failure = True, None
        try:
            await self._watch.send(connection, wire, reader, deadline)
            failed = False
        except FetchError as error:
            failure = error
        finally:
            self._end_request(plan, connection, failed=failed)
        return connection, failure

    async def _check_out(
        self, plan: ConnectionPlan, deadline: float, timings: Timings, *, fresh: bool
    ) -> HttpConnection:
        """Return a kept connection to any of the addresses, else a new one to the first address that accepts. `fresh`:
        return no kept one. Each address gets its share of the remaining connect timeout. The seconds that opening took
        go into `timings`.

        `deadline`: monotonic time. Room in the pool that is acquired here must be discarded if no connection is opened.
        """
        seconds_left = self._timeouts.connect
        for index, (ip, key) in enumerate(zip(plan.ips, plan.pool_keys, strict=True)):
            addresses_left = len(plan.ips) - index  # this one included
            connection = await self._acquire(key, deadline, fresh=fresh)
            if connection is not None:
                return connection
            started = time.monotonic()
            share = min(max(seconds_left, 0.0) / addresses_left, deadline - started)
            try:
                return await self._open(plan, ip, key, share, timings, fresh=fresh)
            except (ConnectFailed, ConnectTimeout):
                self._pool.discard(key)
                if addresses_left == 1:
                    raise
                seconds_left -= time.monotonic() - started
            except TlsFailed as error:
                self._pool.discard(key)
                if not self._offers_another_version(plan, error):
                    raise
                return await self._check_out(plan.with_http2(), deadline, timings, fresh=fresh)
            except BaseException:
                self._pool.discard(key)
                raise
        raise ConnectFailed(f"{plan.origin.host} has no address")

    async def _open(
        self, plan: ConnectionPlan, ip: str, key: PoolKey, timeout_seconds: float, timings: Timings, *, fresh: bool
    ) -> HttpConnection:
        """Return a new connection, or a new stream of one by HTTP/2. Raises the errors of `dial`."""
        if not key.http2:
            dialled = await self._dial(plan, ip, partial(self._new_connection, key), timeout_seconds, timings)
            return dialled.connection
        sessions = self._http2_sessions()
        if not fresh and (stream := await sessions.join(key, timeout_seconds)) is not None:
            return stream
        try:
            offered = await self._dial(plan, ip, partial(sessions.new, key), timeout_seconds, timings)
            return sessions.opened(offered.connection)
        finally:
            sessions.not_opened(key)

    async def _dial(
        self,
        plan: ConnectionPlan,
        ip: str,
        new_connection: Callable[[], NewConnection],
        timeout_seconds: float,
        timings: Timings,
    ) -> DialResult[NewConnection]:
        """Open a connection."""
        with self._stalls:
            stalled = self._stalls.seconds(time.monotonic())
            dialled = await dial(plan.route(ip, self._contexts), new_connection, timeout_seconds=timeout_seconds)
            timings.stalled = self._stalls.seconds(time.monotonic()) - stalled
        if self._closed:  # meanwhile; sending on the closed connection then fails
            dialled.connection.fail(ConnectionLost("the client was closed"))
        timings.connect, timings.tls = dialled.connect_seconds, dialled.tls_seconds
        return dialled

    def _offers_another_version(self, plan: ConnectionPlan, error: TlsFailed) -> bool:
        """Return whether a server that refused the handshake is to be offered HTTP/2 now. Nothing was sent to it.
        Raises Http2Needed if HTTP/2 cannot be spoken."""
        versions = self._versions
        if versions is None or not error.wants_other_version:
            return False
        if plan.http2:
            versions.failed_with_2(plan.losses_key)
            return False
        versions.check_2(plan.losses_key, "refuses a TLS handshake for HTTP/1.1")
        return versions.try_2(plan.losses_key, surely=True)

    def _http2_sessions(self) -> "Http2Sessions":
        """Return the connections by HTTP/2. The library is imported with the first."""
        if self._http2 is None:
            from gossamer.fetch.http2 import Http2Session, Http2Sessions

            loop, header_bytes = asyncio.get_running_loop(), self._limits.header_bytes
            self._http2 = Http2Sessions(lambda key: Http2Session(loop, self._budget, self._live, key, header_bytes))
        return self._http2

    def _take_idle(self, plan: ConnectionPlan) -> HttpConnection | None:
        """Return a kept connection to any of the addresses. None: there is none that should be used."""
        if self._losses.recent and self._loses(plan):
            return None
        for key in plan.pool_keys:
            connection = self._pool.take_idle(key)
            if connection is not None:
                return connection
        return None

    def _loses(self, plan: ConnectionPlan) -> bool:
        """Return whether kept connections to the origin are often lost."""
        return not self._losses.may_reuse(plan.losses_key)

    async def _acquire(self, key: PoolKey, deadline: float, *, fresh: bool) -> HttpConnection | None:
        """Return an idle connection, or None with room for a new one, before this monotonic time."""
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await self._pool.acquire(key, fresh=fresh)
        except TimeoutError as exc:
            raise TotalTimeout(f"{self._timeouts.total:g} s, waiting for a free connection") from exc

    def _new_connection(self, key: PoolKey) -> HttpConnection:
        return HttpConnection(asyncio.get_running_loop(), self._budget, self._live, key)


def _response(
    request: FetchRequest,
    plan: ConnectionPlan,
    ip: str,
    reader: ResponseReader,
    head: bytes,
    reused: bool,
    timings: Timings,
    failure: FetchError | None,
) -> FetchResponse:
    """Decode the body and return the response. `ip`: the address of the connection. `head`: the request's. `failure`:
    an error within the body. If the status is 200 to 299, raises that error or the decoder's. For other responses,
    status and headers are enough."""
    if plan.absolute_form and reader.status == 407:
        raise ProxyFailed("it wants user and password")
    wire = body = reader.body
    truncated, faults, limits = reader.truncated, reader.faults, reader.limits
    encodings: tuple[str, ...] = ()
    if request.decoded_bytes is not None:
        limits = msgspec.structs.replace(limits, body_bytes=request.decoded_bytes)
        encodings = parse_encodings(reader.content_encodings)
    if failure is not None:
        truncated, faults = True, (*faults, ResponseFault.BODY)
    if reader.content_encodings:
        decoded, error = _decode(wire, parse_encodings(reader.content_encodings), limits)
        body, truncated, failure = decoded.body, truncated or decoded.truncated, failure or error
        del error  # as in `fetch`
        if decoded.fault is not None:
            faults = (*faults, decoded.fault)
    elif len(wire) > limits.body_bytes:
        body, truncated = wire[: limits.body_bytes], True
    response = FetchResponse(  # by position, because names cost time for every page
        request.url,
        reader.status,
        reader.reason,
        reader.http_version,
        reader.headers,
        head,
        reader.head,
        body,
        wire if request.keep_wire else None,
        truncated,
        ip if plan.proxy is None else plan.target_ip,
        plan.origin.port,
        reused,
        timings,
        reader.received_bytes,
        reader.headers_by_name,
        faults,
        encodings,
    )
    if failure is not None and 200 <= reader.status < 300:
        failure.response = response
        try:
            raise failure
        finally:
            del failure  # as in `fetch`
    return response


def _decode(
    wire: bytes, encodings: tuple[str, ...], limits: ResponseLimits
) -> tuple[DecodedBody, DecodeFailed | DecodeBomb | None]:
    """Return the decoded body. If that cannot be decoded: what is usable of it as it came, and the error."""
    try:
        return decode(wire, encodings, limits), None
    except (DecodeFailed, DecodeBomb) as error:
        if is_plain(wire, encodings):
            return DecodedBody(wire, truncated=False, fault=ResponseFault.CONTENT_ENCODING), error
        return DecodedBody(b"", truncated=True, fault=ResponseFault.BODY), error


def _repeatable(failure: FetchError | None) -> ConnectionLost:
    """Return the error of a charged request that is to be sent again with another version of HTTP."""
    error = ConnectionLost("the server wants another version of HTTP" if failure is None else failure.detail)
    error.repeatable = True
    return error


def _warn_if_late(result: "asyncio.Future[Any]", url: str, late_seconds: float) -> "asyncio.Future[Any]":
    """Return the result of a request. Log it if it is late, although it was in time immediately before it was sent."""
    if late_seconds > 0.0:
        log.warning(
            "%s %s by %.3f s: this process stood still while it sent the request", logs.SENT_LATE, url, late_seconds
        )
    return result


def _with_proxy_credentials(head: bytes, plan: ConnectionPlan) -> bytes:
    """Add the password and the headers of a plain proxy, which the request head of the response does not show."""
    if plan.proxy is None or not (lines := plan.proxy.header_lines):
        return head
    # In place of the empty line that ends every head, which follows again.
    return head.removesuffix(b"\r\n") + f"{lines}\r\n".encode("ascii")


_MAX_CLIENTS = 16
"""Maximum number of clients with a timeout of their own. Each has its own connections. With fewer, fewer of the
timeouts that requests ask for are obeyed."""


class HttpClients:
    """HTTP clients by total timeout, created when first needed. Belongs to one event loop."""

    def __init__(self, make: Callable[[float | None], HttpClient]) -> None:
        """`make` takes a total timeout in seconds; None: the default timeout."""
        self._make = make
        self._clients: dict[float | None, HttpClient] = {}

    def for_timeout(self, timeout_seconds: float | None) -> HttpClient:
        """Return the client for this timeout. After `_MAX_CLIENTS` timeouts, further ones get the default client."""
        client = self._clients.get(timeout_seconds)
        if client is None:
            if len(self._clients) >= _MAX_CLIENTS and timeout_seconds is not None:
                return self.for_timeout(None)
            client = self._clients[timeout_seconds] = self._make(timeout_seconds)
        return client

    def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> Coroutine[Any, Any, FetchResponse]:
        """Send one request, as `HttpClient.fetch` does."""
        client = self._clients.get(timeout_seconds) or self.for_timeout(timeout_seconds)
        return client.fetch(request, wait_for_room=wait_for_room)

    def waiting_for(self) -> str:
        """Return words for what the requests in progress wait for. If they wait for different things, the latest step
        of a request counts."""
        clients = self._clients.values()
        if any(client.awaiting_responses for client in clients):
            return "a response"
        return "a connection" if any(client.open_connections for client in clients) else "an address from DNS"

    async def close(self) -> None:
        """Close all connections. May be repeated."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
