"""HTTP clients by how long they wait: a crawl's own timeout must not change other crawls'."""

from collections.abc import Callable

from gossamer.fetch.client import Client
from gossamer.fetch.exchange import Exchange, Fetched

_MOST = 16


class Clients:
    """The client for each total timeout asked for; made when first needed. Belongs to one event loop."""

    def __init__(self, make: Callable[[float | None], Client]) -> None:
        """`make` takes a total timeout in seconds; None: the default's."""
        self._make = make
        self._clients: dict[float | None, Client] = {}

    def of(self, timeout_seconds: float | None) -> Client:
        """At most 16 kinds are kept; a crawl beyond them gets the default timeout."""
        client = self._clients.get(timeout_seconds)
        if client is None:
            if len(self._clients) >= _MOST and timeout_seconds is not None:
                return self.of(None)
            client = self._clients[timeout_seconds] = self._make(timeout_seconds)
        return client

    async def fetch(
        self, exchange: Exchange, timeout_seconds: float | None = None, *, waits_for_room: bool = False
    ) -> Fetched:
        """One request, one answer, as `Client.fetch`. Raises FetchError."""
        return await self.of(timeout_seconds).fetch(exchange, waits_for_room=waits_for_room)

    async def close(self) -> None:
        """Close all connections. May be repeated."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
