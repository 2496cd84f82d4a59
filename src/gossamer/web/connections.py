"""Limits of the connections of an HTTP server: how many there may be, and how long each part of a request may take.

A connection is busy while one of its requests is running, else waiting. About an eighth of the connections of each
client, and of all clients together, is reserved for waiting ones. At the limit there is therefore always a waiting
connection, which is closed when a new connection needs room: idle clients keep no new one out. A request that would
make a reserved connection busy is answered with 503.

Fixed: the names that `on_limit` of `Connections` gets; and that only `_set_state` changes the state of a connection,
because one that stayed counted after its end would use up the limit for ever.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gossamer.net.guard import Network, within
from gossamer.web.problems import Answer, Problem, problem_answer
from gossamer.web.rates import client_of
from gossamer.web.streams import EVENT_STREAM

_RESERVED_SHARE = 8
"""One in this many connections (rounded down, but at least one) is reserved for waiting ones. A smaller number leaves
more room for new connections and allows fewer requests at once. Must be at least 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of the connections of one process. Times in seconds. Event streams, which are recognized by their media
    type, do not count as busy for hours; `web.streams` limits them.

    Lower values protect the process from slow and greedy clients, higher ones spare clients on bad networks.
    """

    total: int = 1000
    """Connections in all. `web.server` lowers it to a quarter of the files that the process may open."""
    per_client: int = 100
    """Connections of one client: an IPv4 address, or an IPv6 network of 64 bits (`client_of`)."""
    first_byte: float = 5.0
    """Time from the start of a connection to the first byte of a request."""
    head: float = 10.0
    """Time from the first byte of a request to the end of its headers."""
    body: float = 60.0
    """Time for the rest of a body whose request has been answered. `web.bodies` limits the others."""
    idle: int = 15
    """Time from a response to the next request on the connection. Whole seconds: it is passed to uvicorn."""
    unread: float = 30.0
    """Time within which a client must read some of what is left of a response."""
    trusted_proxies: Sequence[Network] = ()
    """Proxies whose X-Forwarded-For names the client. Their connections carry the requests of many clients, so they
    count for `total` only."""


class _ConnectionShare:
    """The connections of one client, or of all clients: at most `limit`, of which fewer may be busy.

    A new connection takes the place of the one that has waited longest for a request.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        reserved = max(1, limit // _RESERVED_SHARE)
        # At least 1, also with a limit of 1: else no request would ever run.
        self._max_busy = max(1, limit - reserved)
        self.waiting: dict[LimitedProtocol, None] = {}
        """Connections without a running request, the longest waiting first."""
        self.busy = 0
        """Number of connections with a running request."""

    def make_room(self) -> None:
        """Close the longest waiting connection if there is no room for another."""
        if self.waiting and len(self.waiting) + self.busy >= self._limit:
            next(iter(self.waiting)).abort("crowded")

    @property
    def has_max_busy(self) -> bool:
        """True if no further connection may become busy: its request is refused."""
        return self.busy >= self._max_busy

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.busy


class Connections:
    """Counts the connections of one server, and applies their limits."""

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        on_limit: Callable[[str], object],
        answer: Answer = problem_answer,
        unlimited_paths: frozenset[str] = frozenset(),
    ) -> None:
        """`answer` makes the response to a refused request. Requests for `unlimited_paths` are never refused.

        `on_limit` is called with the limit's name when it closes a connection or refuses a request: `first_byte`,
        `head`, `body` or `unread` (a time limit), `crowded` (a newer connection needed room), `busy` (too many
        requests). The names must not change: the metric `gossamer_http_closed_total`, which alerts use, has them as a
        label."""
        self.limits = limits
        self.on_limit = on_limit
        self.answer = answer
        self.unlimited_paths = unlimited_paths
        self._all_clients = _ConnectionShare(limits.total)
        self._clients: dict[str, _ConnectionShare] = {}

    def shares_of(self, address: str) -> list[_ConnectionShare]:
        """Return the shares in which a connection from this address is counted. An empty address is that of a Unix
        socket: a proxy of this machine, say."""
        if not address or within(address, self.limits.trusted_proxies):
            return [self._all_clients]
        of_client = self._clients.setdefault(client_of(address), _ConnectionShare(self.limits.per_client))
        return [of_client, self._all_clients]

    def forget_empty(self, address: str) -> None:
        """Forget the client of this address if it has no more connections."""
        client = client_of(address)
        if client in self._clients and self._clients[client].is_empty:
            del self._clients[client]


class _ConnectionState(Enum):
    """State of a connection, which decides how its shares count it."""

    WAITING = auto()
    """No request is running."""
    BUSY = auto()
    """A request is running."""
    NOT_COUNTED = auto()
    """The connection is an event stream, or closed."""


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits. uvicorn makes one object per connection, and calls it in the event loop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._limits = connections.limits
        self._address = ""
        self._shares: list[_ConnectionShare] = []
        """Those in which this connection is counted."""
        self._state = _ConnectionState.NOT_COUNTED
        self._is_closed = False
        self._running_requests = 0
        """Requests that the application is processing. If the client pipelines, a second one may start before the first
        has ended."""
        self._awaited_part = ""
        """Part of a request that must arrive before the deadline, by the name of its limit. Empty: no deadline."""
        self._awaited_request: object = None
        """Request to which that part belongs: uvicorn's `cycle` object, or None before its headers have come."""
        self._deadline: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        """Closes the connection of a client that does not read."""
        self._application = self.app
        self.app = self._serve  # uvicorn runs this for every request

    def abort(self, reason: str) -> None:
        """Close the connection at once, because of the limit with this name (see `Connections`)."""
        self._connections.on_limit(reason)
        # Not counted from now on: `connection_lost` is called later, and a newer connection needs the room now. A busy
        # connection stays counted until its request ends (`_serve`).
        if self._state is _ConnectionState.WAITING:
            self._set_state(_ConnectionState.NOT_COUNTED)
        self.transport.abort()

    # --- callbacks of the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Without the address, applications would take the sender for one of a Unix socket, and trust it.
        if self.client is None and transport.get_extra_info("socket").family != socket.AF_UNIX:
            transport.abort()  # the client has reset the connection already
            return
        self._address = self.client[0] if self.client else ""
        self._shares = self._connections.shares_of(self._address)
        for share in self._shares:
            share.make_room()
        self._set_state(_ConnectionState.WAITING)
        self._set_deadline("first_byte", self._limits.first_byte)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._clear_deadline()
        self._stop_watching_client()
        if self._state is _ConnectionState.WAITING:
            self._set_state(_ConnectionState.NOT_COUNTED)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # uvicorn has parsed the data, so the parser's state names the part that the client sends next.
        if self.conn.their_state is h11.IDLE:
            self._set_deadline("head", self._limits.head)
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._set_deadline("body", self._limits.body, request=self.cycle)
        else:
            self._clear_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_client_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching_client()

    # In the next two, uvicorn may close the connection after it has sent the rest of a response. `pause_writing` is not
    # called for a short rest, so a client that does not read it would keep the connection open.

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_client_reading(self.transport.get_write_buffer_size())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_client_reading(self.transport.get_write_buffer_size())
        elif self.conn.their_state is h11.SEND_BODY:
            self._set_deadline("body", self._limits.body, request=self.cycle)

    # --- times --------------------------------------------------------------------------------------------------------

    def _set_deadline(self, part: str, seconds: float, *, request: object = None) -> None:
        """Set the deadline for a part of a request (see `_awaited_request`). A deadline for the same part of the same
        request stays, so that a client cannot extend it by sending slowly."""
        if self._awaited_part == part and self._awaited_request is request:
            return
        self._clear_deadline()
        self._awaited_part, self._awaited_request = part, request
        self._deadline = self.loop.call_later(seconds, self.abort, part)

    def _clear_deadline(self) -> None:
        self._awaited_part, self._awaited_request = "", None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch_client_reading(self, unread_bytes: int) -> None:
        """Close the connection unless the client reads some of these bytes of a response in time."""
        self._stop_watching_client()
        if unread_bytes:
            self._read_timer = self.loop.call_later(self._limits.unread, self._check_client_reading, unread_bytes)

    def _check_client_reading(self, bytes_before: int) -> None:
        """Close the connection if the client has read nothing since the last check; else check again later."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes >= bytes_before:
            self.abort("unread")
        else:
            self._watch_client_reading(unread_bytes)

    def _stop_watching_client(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    # --- counting -----------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request of this connection, or refuse the request."""
        if fault := _framing_fault(scope):
            await self._refuse(Problem.named(400, "invalid-request", fault), scope, receive, send)
            return
        if scope["path"] in self._connections.unlimited_paths:
            await self._application(scope, receive, send)
            return
        # The shares count connections, so a second request on a busy one is not refused.
        if not self._running_requests and any(share.has_max_busy for share in self._shares):
            self._connections.on_limit("busy")
            detail = "too many requests are running, from this address or in total"
            await self._refuse(Problem(503, "Too busy", detail, headers={"Retry-After": "1"}), scope, receive, send)
            return

        async def send_and_uncount_streams(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_event_stream(message):
                self._set_state(_ConnectionState.NOT_COUNTED)
            await send(message)

        self._running_requests += 1
        self._set_state(_ConnectionState.BUSY)
        try:
            await self._application(scope, receive, send_and_uncount_streams)
        finally:
            self._running_requests -= 1
            if not self._running_requests:
                self._set_state(_ConnectionState.NOT_COUNTED if self._is_closed else _ConnectionState.WAITING)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with a problem, and close the connection."""
        closing = replace(problem, headers={**problem.headers, "Connection": "close"})
        await self._connections.answer(closing, scope["path"])(scope, receive, send)

    def _set_state(self, state: _ConnectionState) -> None:
        """Change the state of this connection in all its shares: leave the old state, then enter the new one."""
        if self._state is _ConnectionState.NOT_COUNTED:
            # While the connection was not counted, `forget_empty` may have removed its client's share.
            self._shares = self._connections.shares_of(self._address)
        for share in self._shares:
            if self._state is _ConnectionState.WAITING:
                share.waiting.pop(self, None)
            elif self._state is _ConnectionState.BUSY:
                share.busy -= 1
            if state is _ConnectionState.WAITING:
                share.waiting[self] = None
            elif state is _ConnectionState.BUSY:
                share.busy += 1
        self._state = state
        if state is _ConnectionState.NOT_COUNTED:
            self._connections.forget_empty(self._address)


def _framing_fault(scope: Scope) -> str:
    """Return why it is uncertain where the body of a request ends (RFC 9112, 6.1). Empty: it is certain.

    The parser accepts such requests. A proxy may decide otherwise than it does, so that the rest of a body becomes a
    request of another client; and what counts on Content-Length would read a body of any length.
    """
    names = {name for name, _ in scope["headers"]}
    if b"transfer-encoding" not in names:
        return ""
    if b"content-length" in names:
        return "the request has Content-Length and Transfer-Encoding; send one of them"
    return "" if scope["http_version"] == "1.1" else "Transfer-Encoding needs HTTP/1.1"


def _is_event_stream(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(EVENT_STREAM.encode()) for name, value in message["headers"]
    )
