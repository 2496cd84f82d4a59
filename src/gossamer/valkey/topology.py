"""The servers behind an address: one, or the primaries of a cluster and the map of their slots."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.client import Client, Manner
from gossamer.valkey.slots import read_slots, slot_of, speaks_for

_log = logging.getLogger(__name__)

_ASK_SECONDS = 3.0
_GRACE_SECONDS = 0.2
"""For an answer that was sent before another one and comes after it."""
_DOUBT_SECONDS = 0.2
_SHUN_SECONDS = 10.0
"""Who did not answer is asked last for so long."""


class Topology:
    """Finds the client for a key. The map of slots is fetched when it is first needed and when it proved wrong."""

    def __init__(self, address: Address, manner: Manner) -> None:
        self.address = address
        self._manner = manner
        self.era = 0
        """Grows when a connection was made again, before anything is asked on it, and when slots are served elsewhere
        than before."""
        self._clients: dict[Endpoint, Client] = {}
        self._seeds = [self.client(endpoint) for endpoint in address.endpoints]
        self._owners: list[Endpoint | None] = []
        self._stale = address.cluster
        self._adopted = 0.0
        """When the map was read last."""
        self._refreshing = asyncio.Lock()
        self._turn = 0
        self._looking: asyncio.Task[None] | None = None
        self.mirrored = False
        """Whether any primary was ever seen with a replica, so that one may take its place."""
        self.listeners: set[Callable[[], None]] = set()
        """Told when slots are served elsewhere than before: what was published meanwhile may have reached nobody."""

    def twin(self) -> "Topology":
        """The same servers, none of them connected."""
        return Topology(self.address, self._manner)

    def client(self, endpoint: Endpoint) -> Client:
        """The client of one server, made when it is new."""
        found = self._clients.get(endpoint)
        if found is None:
            found = self._clients[endpoint] = Client(endpoint, self._manner, self._suspect, self.begin_era)
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
        clients = [client for client in clients if not client.away] or clients
        self._turn += 1
        return clients[self._turn % len(clients)]

    def moved(self, slot: int, owner: Endpoint) -> Client:
        """A node said that this slot is served there now; other slots may have moved with it."""
        if not self.address.cluster:
            raise ServerUnsuitable(f"{self.address} is a node of a cluster: write redis+cluster://host:port")
        self._owners[slot] = owner
        self._stale = True
        self._tell()
        return self.client(owner)

    def doubt(self, client: Client | None = None) -> None:
        """Something failed on this client in a way that a map out of date explains: ask for it before the next call. Of
        one that is known to be away, a few times a second is enough."""
        if client is None or not client.away or time.monotonic() - self._adopted >= _DOUBT_SECONDS:
            self._stale = self.address.cluster

    async def _refresh(self) -> None:
        async with self._refreshing:
            if not self._stale and self._owners:
                return
            trouble: FrontierError = FrontierUnavailable(f"no node of {self.address} can be asked")
            for client in self._askable():
                try:
                    async with asyncio.timeout(_ASK_SECONDS):
                        reply = await client.ask("CLUSTER", "SLOTS")
                except (FrontierError, TimeoutError) as exc:
                    client.failed_at = time.monotonic()
                    if isinstance(exc, FrontierError):
                        trouble = exc
                    if "cluster support disabled" in str(exc):
                        raise ServerUnsuitable(f"{client} is no node of a cluster: write redis://host:port") from None
                    continue
                if not reply:  # a node that belongs to no cluster yet, or has lost its memory of it
                    continue
                await self._adopt(reply, client)
                return
            if not self._owners or not isinstance(trouble, FrontierUnavailable):
                raise trouble
            # Nobody answers, but the old map may still be right for the one call that comes next.
            _log.warning("the cluster's slots cannot be asked for: %s", trouble)

    def _askable(self) -> list[Client]:
        """Everybody who may know the map; those who did not answer lately last."""
        clients = list(dict.fromkeys([*self._clients.values(), *self._seeds]))
        # Not always the same first: a node cut off from the others would tell its old map for ever.
        self._turn += 1
        start = self._turn % len(clients)
        shunned = time.monotonic() - _SHUN_SECONDS
        return sorted(clients[start:] + clients[:start], key=lambda client: client.failed_at > shunned)

    async def _adopt(self, reply: Sequence[Any], asked: Client) -> None:
        before, self._owners = self._owners, read_slots(reply, asked=asked.endpoint)
        self._stale = False
        self._adopted = time.monotonic()
        self.mirrored = self.mirrored or any(len(row) > 3 for row in reply)
        await self._forget_strangers()
        if before and before != self._owners:
            self._tell()

    def begin_era(self) -> None:
        """A server may have lost what it confirmed."""
        self.era += 1

    def _tell(self) -> None:
        self.begin_era()
        for listener in list(self.listeners):
            listener()

    def _suspect(self, client: Client) -> None:
        """An answer is late. Where its node hangs, a replica may have its slots by now, and nobody would tell us; or it
        does not know of the connection any more."""
        client.failed_at = time.monotonic()
        if self._looking is None or self._looking.done():
            look = self._look_elsewhere if self.address.cluster else self._look_again
            self._looking = asyncio.get_running_loop().create_task(look(client))

    async def _look_again(self, suspect: Client) -> None:
        with contextlib.suppress(FrontierError, TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS):
                lost = await suspect.probe(grace_seconds=_GRACE_SECONDS)
            if lost:
                _log.warning("%s: a connection went silent; another one works", suspect)
                await suspect.hang_up()

    async def _look_elsewhere(self, suspect: Client) -> None:
        for client in self._askable():
            if client is suspect:
                continue
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    reply = await client.ask("CLUSTER", "SLOTS")
            except (FrontierError, TimeoutError):
                client.failed_at = time.monotonic()
                continue
            if reply:
                await self._adopt(reply, client)
                if suspect.endpoint not in set(self._owners):
                    await suspect.hang_up()
                return

    async def vouched(self, key: str | bytes, client: Client) -> bool:
        """Whether most of the primaries, itself included, say now that it serves this key and does not fail.

        A replica is voted into a primary's place by most of the others, each of which holds it for failed until it
        knows the new one. So what it wrote before this was asked was written before it could be replaced.
        """
        name = (await client.ask("CLUSTER", "MYID")).decode()
        primaries = await self.primaries()
        slot = slot_of(key)

        async def voice(other: Client) -> bool:
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    return speaks_for(await other.ask("CLUSTER", "NODES"), name, slot)
            except (FrontierError, TimeoutError):
                return False

        voices = await asyncio.gather(*(voice(other) for other in primaries if other is not client))
        return 2 * (1 + sum(voices)) > len(primaries)

    async def _forget_strangers(self) -> None:
        known = {owner for owner in self._owners if owner} | set(self.address.endpoints)
        for endpoint in self._clients.keys() - known:
            await self._clients.pop(endpoint).close()

    async def close(self) -> None:
        """End every connection."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        with contextlib.suppress(FrontierUnavailable):
            await asyncio.gather(*(client.close() for client in self._clients.values()))
