"""The servers behind an address: one, or the primaries of a cluster and the map of their slots."""

import asyncio
import contextlib
import logging

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.client import Client, Manner
from gossamer.valkey.slots import read_slots, slot_of

_log = logging.getLogger(__name__)

_ASK_SECONDS = 3.0


class Topology:
    """Finds the client for a key. The map of slots is fetched when it is first needed and when it proved wrong."""

    def __init__(self, address: Address, manner: Manner) -> None:
        self.address = address
        self._manner = manner
        self._clients: dict[Endpoint, Client] = {}
        self._seeds = [self.client(endpoint) for endpoint in address.endpoints]
        self._owners: list[Endpoint | None] = []
        self._stale = address.cluster
        self._refreshing = asyncio.Lock()
        self._turn = 0

    def client(self, endpoint: Endpoint) -> Client:
        """The client of one server, made when it is new."""
        found = self._clients.get(endpoint)
        if found is None:
            found = self._clients[endpoint] = Client(endpoint, self._manner)
        return found

    def ready_client(self, key: str | bytes) -> Client | None:
        """Who serves this key, if that is known without asking."""
        if not self.address.cluster:
            return self._seeds[0]
        if self._stale:
            return None
        owner = self._owners[slot_of(key)]
        return None if owner is None else self._clients.get(owner)

    async def client_of(self, key: str | bytes) -> Client:
        """Who serves this key. Raises FrontierUnavailable when nobody does, or nobody can be asked."""
        if not self.address.cluster:
            return self._seeds[0]
        slot = slot_of(key)
        if self._stale or self._owners[slot] is None:
            await self._refresh()
        owner = self._owners[slot]
        if owner is None:
            raise FrontierUnavailable(f"no node of {self.address} serves slot {slot}")
        return self.client(owner)

    async def primaries(self) -> list[Client]:
        """Every server that holds keys, in the order of its first slot."""
        if not self.address.cluster:
            return [self._seeds[0]]
        if self._stale:
            await self._refresh()
        return [self.client(owner) for owner in dict.fromkeys(self._owners) if owner is not None]

    async def any_client(self) -> Client:
        """One server after the other, by turns: for what every one of them can do."""
        clients = await self.primaries()
        self._turn += 1
        return clients[self._turn % len(clients)]

    def moved(self, slot: int, owner: Endpoint) -> Client:
        """A node said that this slot is served there now; other slots may have moved with it."""
        if not self.address.cluster:
            raise ServerUnsuitable(f"{self.address} is a node of a cluster: write redis+cluster://host:port")
        self._owners[slot] = owner
        self._stale = True
        return self.client(owner)

    def doubt(self) -> None:
        """Something failed in a way that a map out of date explains: ask for it before the next call."""
        self._stale = self.address.cluster

    async def _refresh(self) -> None:
        async with self._refreshing:
            if not self._stale and self._owners:
                return
            trouble: FrontierError = FrontierUnavailable(f"no node of {self.address} can be asked")
            clients = list(dict.fromkeys([*self._clients.values(), *self._seeds]))
            # Not always the same first: a node cut off from the others would tell its old map for ever.
            self._turn += 1
            start = self._turn % len(clients)
            for client in clients[start:] + clients[:start]:
                try:
                    async with asyncio.timeout(_ASK_SECONDS):
                        reply = await client.ask("CLUSTER", "SLOTS")
                except (FrontierError, TimeoutError) as exc:
                    if isinstance(exc, FrontierError):
                        trouble = exc
                    if "cluster support disabled" in str(exc):
                        raise ServerUnsuitable(f"{client} is no node of a cluster: write redis://host:port") from None
                    continue
                if not reply:  # a node that belongs to no cluster yet, or has lost its memory of it
                    continue
                self._owners = read_slots(reply, asked=client.endpoint)
                self._stale = False
                await self._forget_strangers()
                return
            if not self._owners or not isinstance(trouble, FrontierUnavailable):
                raise trouble
            # Nobody answers, but the old map may still be right for the one call that comes next.
            _log.warning("the cluster's slots cannot be asked for: %s", trouble)

    async def _forget_strangers(self) -> None:
        known = {owner for owner in self._owners if owner} | set(self.address.endpoints)
        for endpoint in self._clients.keys() - known:
            await self._clients.pop(endpoint).close()

    async def close(self) -> None:
        """End every connection."""
        with contextlib.suppress(FrontierUnavailable):
            await asyncio.gather(*(client.close() for client in self._clients.values()))
