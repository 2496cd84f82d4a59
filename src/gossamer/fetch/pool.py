"""Connections kept for the next request, and how many there may be."""

import asyncio
import math
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from gossamer.fetch.connection import HttpConnection

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

    def count(self, origin: Hashable) -> None:
        """Count the loss of a kept connection before the first byte of an answer."""
        now = self._now()
        losses, until = self._losses.pop(origin, (0, 0.0))
        if len(self._losses) >= _ORIGINS_REMEMBERED:
            del self._losses[next(iter(self._losses))]
        self._losses[origin] = (losses + 1 if now < until else 1, now + _REMEMBERED_SECONDS)

    def reuses(self, origin: Hashable) -> bool:
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

        `fresh`: only a new one will do. Whoever got room must `keep` a connection or `give_up`. A full pool makes room
        by closing what has been idle for longest.
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

    def keep(self, key: PoolKey, connection: HttpConnection) -> None:
        """Take back a connection after an exchange: keep it for the next, or count it out if it is closed."""
        if connection.closed or self._idle_seconds <= 0:
            connection.abort()
            self.give_up(key)
            return
        connection.idle_until = time.monotonic() + self._idle_seconds
        self._idle.setdefault(key, []).append(connection)
        self._idle_in_order[connection] = key
        if self._waiting:
            self._wake()

    def give_up(self, key: PoolKey) -> None:
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
