"""Limits of the API's connections: how long each part of a request may take, and how many there may be."""

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

from gossamer.api.auth import UNLIMITED_PATHS
from gossamer.api.limits import client_of
from gossamer.api.problems import Problem, shown
from gossamer.fetch.guard import Network, within

_SPARE = 8
"""One in so many connections, of a client and of all, is kept without a request, so that a new one finds a place."""
_EVENTS = b"text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What connections may take. Times in seconds. Event streams are not counted: `api.events` limits them."""

    total: int = 1000
    """Connections of one process."""
    per_client: int = 100
    """Connections of one client address."""
    first_byte: float = 5.0
    """From the start of a connection to the first byte of a request."""
    head: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body: float = 65.0
    """From the end of the headers to the end of the body. The application answers 408 a little earlier."""
    idle: int = 15
    """From a response to the next request."""
    unread: float = 30.0
    """For which a client may read nothing of a response."""
    trusted_proxies: Sequence[Network] = ()
    """Proxies whose X-Forwarded-For names the client; the limit of one client's connections does not bind them."""


class _ConnectionShare:
    """The connections of one client, or of all: at most `limit`, and fewer of them busy.

    A new connection therefore always finds a place: that of the connection that has waited longest for a request.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most_busy = limit - max(1, limit // _SPARE)
        self.waiting: dict[GuardedProtocol, None] = {}
        """The longest first."""
        self.busy = 0

    def make_room(self) -> None:
        if self.waiting and len(self.waiting) + self.busy >= self._limit:
            next(iter(self.waiting)).abort("crowded")

    @property
    def is_busy(self) -> bool:
        """Whether no further request may begin."""
        return self.busy >= self._most_busy

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.busy


class Connections:
    """The connections of one server."""

    def __init__(self, limits: ConnectionLimits, *, on_closed: Callable[[str], None]) -> None:
        """`on_closed` gets the reason for which a connection was closed or a request refused: `first_byte`, `head`,
        `body`, `unread`, `crowded` (a newer connection needed the place) or `busy` (too many requests under way)."""
        self.limits = limits
        self.on_closed = on_closed
        self._all = _ConnectionShare(limits.total)
        self._clients: dict[str, _ConnectionShare] = {}

    def shares_of(self, address: str) -> list[_ConnectionShare]:
        """The shares in which a connection from this address counts."""
        if within(address, self.limits.trusted_proxies):
            return [self._all]
        return [self._clients.setdefault(client_of(address), _ConnectionShare(self.limits.per_client)), self._all]

    def forget_empty(self, address: str) -> None:
        """Forget a client that has no connection any more."""
        client = client_of(address)
        if client in self._clients and self._clients[client].is_empty:
            del self._clients[client]


class _CountedConnection(Enum):
    """Where a connection is counted."""

    WAITING = auto()
    """Without a request under way."""
    BUSY = auto()
    NOWHERE = auto()
    """It sends events, or is closed."""


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol, with limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        guard: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._guard = guard
        self._limits = guard.limits
        self._address = ""
        self._shares: list[_ConnectionShare] = []
        self._place = _CountedConnection.NOWHERE
        self._is_lost = False
        self._running = 0
        """Requests that the application is working on; more than one only for a moment, when they are pipelined."""
        self._awaited: tuple[str, object] = ("", None)
        """What the deadline is for, and which request it belongs to."""
        self._deadline: asyncio.TimerHandle | None = None
        self._reader_check: asyncio.TimerHandle | None = None
        self._application = self.app
        self.app = self._serve

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        self._guard.on_closed(reason)
        if self._place is _CountedConnection.WAITING:
            self._move(_CountedConnection.NOWHERE)
        self.transport.abort()

    # --- what the transport reports -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._shares = self._guard.shares_of(self._address)
        for share in self._shares:
            share.make_room()
        self._move(_CountedConnection.WAITING)
        self._await("first_byte", self._limits.first_byte)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._await("", 0)
        self._stop_checking_reader()
        if self._place is _CountedConnection.WAITING:
            self._move(_CountedConnection.NOWHERE)
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
        self._check_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_checking_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._check_reader(self.transport.get_write_buffer_size())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._check_reader(self.transport.get_write_buffer_size())

    # --- times --------------------------------------------------------------------------------------------------------

    def _await(self, what: str, seconds: float, *, of: object = None) -> None:
        """Set the deadline for what must come now; '' for nothing. One that is set already stands."""
        if self._awaited[0] == what and self._awaited[1] is of:
            return
        self._awaited = (what, of)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.abort, what) if what else None

    def _check_reader(self, unread: int) -> None:
        """Close the connection unless the client reads some of what is buffered now in time."""
        self._stop_checking_reader()
        if unread:
            self._reader_check = self.loop.call_later(self._limits.unread, self._judge_reader, unread)

    def _judge_reader(self, before: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= before:
            self.abort("unread")
        else:
            self._check_reader(unread)

    def _stop_checking_reader(self) -> None:
        if self._reader_check is not None:
            self._reader_check.cancel()
            self._reader_check = None

    # --- numbers ------------------------------------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of this connection."""
        if scope["path"] in UNLIMITED_PATHS:  # answered at once, also to a client that is at its limit
            await self._application(scope, receive, send)
            return
        if not self._running and any(share.is_busy for share in self._shares):
            await self._refuse(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_events(message):
                self._move(_CountedConnection.NOWHERE)
            await send(message)

        self._running += 1
        self._move(_CountedConnection.BUSY)
        try:
            await self._application(scope, receive, noting)
        finally:
            self._running -= 1
            if not self._running:
                self._move(_CountedConnection.NOWHERE if self._is_lost else _CountedConnection.WAITING)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard.on_closed("busy")
        problem = Problem(
            503,
            "Too busy",
            "too many requests are under way, of this address or of all",
            headers={"Retry-After": "1", "Connection": "close"},
        )
        await shown(problem, scope["path"])(scope, receive, send)

    def _move(self, place: _CountedConnection) -> None:
        if self._place is _CountedConnection.NOWHERE:  # its client may have been forgotten meanwhile
            self._shares = self._guard.shares_of(self._address)
        for share in self._shares:
            if self._place is _CountedConnection.WAITING:
                share.waiting.pop(self, None)
            elif self._place is _CountedConnection.BUSY:
                share.busy -= 1
            if place is _CountedConnection.WAITING:
                share.waiting[self] = None
            elif place is _CountedConnection.BUSY:
                share.busy += 1
        self._place = place
        if place is _CountedConnection.NOWHERE:
            self._guard.forget_empty(self._address)


def _is_events(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(_EVENTS) for name, value in message["headers"])
