"""Limits of the API's connections: how many there may be, and how long each part of a request may take."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gossamer.api.access import UNLIMITED_PATHS, client_of
from gossamer.api.problems import Problem, problem_response
from gossamer.fetch.guard import Network, within

_RESERVE = 8
"""One in this many connections, of a client and of all, may not have a running request. It gives way to a new one."""
_EVENT_STREAM = b"text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of the connections of one process. Times in seconds. `api.events` limits event streams separately."""

    total: int = 1000
    """Connections in all."""
    per_client: int = 100
    """Connections of one client address."""
    first_byte: float = 5.0
    """Time from the start of a connection to the first byte of a request."""
    head: float = 10.0
    """Time from the first byte of a request to the end of its headers."""
    body: float = 65.0
    """Time from the end of the headers to the end of the body. Must exceed `ApiContext.body_timeout_seconds`: then the
    application answers 408 first."""
    idle: int = 15
    """Time from a response to the next request."""
    unread: float = 30.0
    """Time for which a client may read nothing of a response."""
    trusted_proxies: Sequence[Network] = ()
    """Proxies whose X-Forwarded-For names the client. `per_client` does not apply to the proxies themselves."""


class _ConnectionShare:
    """The connections of one client, or of all: at most `limit`, and fewer of them with a running request.

    A new connection therefore always finds room: it takes that of the connection that has waited longest for a request.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._max_busy = limit - max(1, limit // _RESERVE)
        self.waiting: dict[LimitedProtocol, None] = {}
        """Connections without a running request, the longest waiting first."""
        self.busy = 0

    def make_room(self) -> None:
        if self.waiting and len(self.waiting) + self.busy >= self._limit:
            next(iter(self.waiting)).abort("crowded")

    @property
    def is_busy(self) -> bool:
        """True if no further request may start."""
        return self.busy >= self._max_busy

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.busy


class Connections:
    """Counts the connections of one server, and applies their limits."""

    def __init__(self, limits: ConnectionLimits, *, on_closed: Callable[[str], None]) -> None:
        """`on_closed` is called with the reason when a connection is closed or a request refused: `first_byte`, `head`,
        `body` or `unread` (a time limit), `crowded` (a newer connection needed room), `busy` (too many requests)."""
        self.limits = limits
        self.on_closed = on_closed
        self._all = _ConnectionShare(limits.total)
        self._clients: dict[str, _ConnectionShare] = {}

    def shares_of(self, address: str) -> list[_ConnectionShare]:
        """Return the shares in which a connection from this address is counted."""
        if within(address, self.limits.trusted_proxies):
            return [self._all]
        return [self._clients.setdefault(client_of(address), _ConnectionShare(self.limits.per_client)), self._all]

    def forget_empty(self, address: str) -> None:
        """Forget the client of this address if it has no more connections."""
        client = client_of(address)
        if client in self._clients and self._clients[client].is_empty:
            del self._clients[client]


class _ConnectionState(Enum):
    """State in which a connection is counted."""

    WAITING = auto()
    """No request is running."""
    BUSY = auto()
    NOT_COUNTED = auto()
    """The connection is an event stream, or closed."""


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits."""

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
        self._state = _ConnectionState.NOT_COUNTED
        self._is_closed = False
        self._running = 0
        """Requests that the application is processing. More than one only for a moment, if the client pipelines."""
        self._awaited: tuple[str, object] = ("", None)
        """Reason for which the deadline would close the connection, and the request to which the deadline belongs."""
        self._deadline: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._application = self.app
        self.app = self._serve

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        self._connections.on_closed(reason)
        if self._state is _ConnectionState.WAITING:
            self._move(_ConnectionState.NOT_COUNTED)
        self.transport.abort()

    # --- callbacks of the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._shares = self._connections.shares_of(self._address)
        for share in self._shares:
            share.make_room()
        self._move(_ConnectionState.WAITING)
        self._await("first_byte", self._limits.first_byte)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._await("", 0)
        self._stop_watching_reading()
        if self._state is _ConnectionState.WAITING:
            self._move(_ConnectionState.NOT_COUNTED)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await("head", self._limits.head)
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("body", self._limits.body, of=self.cycle)
        else:
            self._await("", 0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching_reading()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_reading(self.transport.get_write_buffer_size())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reading(self.transport.get_write_buffer_size())

    # --- times --------------------------------------------------------------------------------------------------------

    def _await(self, what: str, seconds: float, *, of: object = None) -> None:
        """Set the deadline for the next part of a request; `what` empty: none. A deadline for the same part stays."""
        if self._awaited[0] == what and self._awaited[1] is of:
            return
        self._awaited = (what, of)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.abort, what) if what else None

    def _watch_reading(self, unread: int) -> None:
        """Close the connection unless the client reads some of the `unread` bytes in time."""
        self._stop_watching_reading()
        if unread:
            self._read_timer = self.loop.call_later(self._limits.unread, self._check_reading, unread)

    def _check_reading(self, before: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= before:
            self.abort("unread")
        else:
            self._watch_reading(unread)

    def _stop_watching_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    # --- counting -----------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of this connection."""
        if scope["path"] in UNLIMITED_PATHS:
            await self._application(scope, receive, send)
            return
        if not self._running and any(share.is_busy for share in self._shares):
            await self._refuse(scope, receive, send)
            return

        async def send_and_uncount_streams(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_event_stream(message):
                self._move(_ConnectionState.NOT_COUNTED)
            await send(message)

        self._running += 1
        self._move(_ConnectionState.BUSY)
        try:
            await self._application(scope, receive, send_and_uncount_streams)
        finally:
            self._running -= 1
            if not self._running:
                self._move(_ConnectionState.NOT_COUNTED if self._is_closed else _ConnectionState.WAITING)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connections.on_closed("busy")
        problem = Problem(
            503,
            "Too busy",
            "too many requests are running, from this address or in total",
            headers={"Retry-After": "1", "Connection": "close"},
        )
        await problem_response(problem, scope["path"])(scope, receive, send)

    def _move(self, state: _ConnectionState) -> None:
        if self._state is _ConnectionState.NOT_COUNTED:  # `forget_empty` may have removed its client since
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


def _is_event_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_EVENT_STREAM) for name, value in message["headers"])
