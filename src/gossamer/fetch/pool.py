"""Pool that keeps idle connections, and the connections that servers closed while a request was on its way.

Fixed: the count of open connections: each that is counted in must be counted out once, or requests wait for ever. All
calls come from one event loop.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable

from gossamer.fetch.connection import HttpConnection, PoolKey

_MAX_LOSSES = 2
"""Losses after which an origin's connections are not reused. A success does not reset the count, because a server may
reset only some of the reused connections. Each loss costs a further hit of the site, and a connection that is not
reused costs a handshake."""
_LOSS_SECONDS = 600.0
"""Time after an origin's last loss when its losses are forgotten. A shorter time tries reuse, and so loses requests,
more often."""
_MAX_ORIGINS = 10_000
"""Origins whose losses are remembered; the oldest makes room. More take memory."""


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
