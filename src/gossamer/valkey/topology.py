"""Servers behind an address: a single one, or the primaries of a cluster with the slots that they serve.

Must hold: a data epoch begins before any call is sent to a server that may have lost writes; slots that are read
replace the whole map at once; a background check never raises.
"""

import asyncio
import binascii
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.client import ClientOptions, ValkeyClient
from gossamer.valkey.data_epoch import DataEpoch

_log = logging.getLogger(__name__)

SLOTS = 16384
"""Number of slots of a cluster. Must not change: the Redis Cluster specification sets it."""


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key (Redis Cluster specification): CRC-16/XMODEM of its hash tag, the part in the first
    braces if that is not empty, else of the whole key."""
    name = key.encode() if isinstance(key, str) else key
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return binascii.crc_hqx(name, 0) % SLOTS


def read_slots(reply: Iterable[Any], *, replied_by: Endpoint) -> list[Endpoint | None]:
    """Return the primary of every slot from a reply to CLUSTER SLOTS; None for a slot that no server serves.

    `replied_by`: the node that replied. It stands for a node whose address in the reply is empty or `?`.
    """
    owners: list[Endpoint | None] = [None] * SLOTS
    for first, last, primary, *_ in reply:
        owner = _endpoint(primary[0], primary[1], replied_by)
        owners[first : last + 1] = [owner] * (last + 1 - first)
    return owners


def read_redirect(text: str, *, replied_by: Endpoint) -> tuple[int, Endpoint]:
    """Return the slot and the node of an error `MOVED 3999 host:port` or `ASK 3999 host:port`."""
    _, slot, where = text.split(" ")[:3]
    host, _, port = where.rpartition(":")
    return int(slot), _endpoint(host, int(port), replied_by)


def serves_slot(nodes: bytes, name: str, slot: int) -> bool:
    """Return whether, by this reply to CLUSTER NODES, the named node serves the slot as primary and has not failed."""
    for line in nodes.decode().splitlines():
        # "<name> <address> <flags> <its primary> <ping> <pong> <epoch> <link> 0-5460 9000 [93-<-<node>]": spans of
        # slots and single slots, then slots in brackets that are being moved.
        words = line.split(" ")
        if words[0] == name:
            flags = words[2].split(",")
            spans = [part.split("-") for part in words[8:] if not part.startswith("[")]
            served = any(int(span[0]) <= slot <= int(span[-1]) for span in spans)
            return served and "master" in flags and "fail" not in flags and "fail?" not in flags
    return False


def _endpoint(host: bytes | str | None, port: int, replied_by: Endpoint) -> Endpoint:
    """Return the socket of a node as a server names it. No host, or `?`, means the node that replied."""
    name = host.decode() if isinstance(host, bytes) else host or ""
    return Endpoint(host=replied_by.host if name in ("", "?") else name.strip("[]"), port=port)


_ASK_SECONDS = 3.0
"""Longest wait for a server's reply about the cluster or the state of a connection. Longer, and a hung node delays the
search for the others; shorter, and a busy node is taken for a failed one."""
_GRACE_SECONDS = 0.2
"""Extra wait for data on the old connection after a new one has answered: replies on different connections may overtake
each other. May be longer, which delays a reconnection; if it is shorter, working connections may be closed."""
_STALE_AGAIN_SECONDS = 0.2
"""Minimum time between two reads of the slots that failures of an unavailable server cause. Longer delays a failover,
shorter sends more CLUSTER SLOTS to the other servers during an outage."""
_ASKED_LAST_SECONDS = 10.0
"""Time for which a server that did not answer is asked last. Shorter, and each read of the slots may wait _ASK_SECONDS
for a dead server; longer, and a server that is back is asked less often, which does no harm."""


class Topology:
    """Finds the client for a key. The map of slots is read when it is first needed and when it may be out of date."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self._options = options
        self.epoch = DataEpoch()
        """Begins anew after each reconnection, before any call is sent on the new connection, and when slots moved to
        another server."""
        self._clients: dict[Endpoint, ValkeyClient] = {}
        self._seeds = [self.client(endpoint) for endpoint in address.endpoints]
        self._owners: list[Endpoint | None] = []
        """Map of slots: the server of each; empty until it is read. A single server needs none."""
        self._stale = address.cluster
        """True: read the map before the next call. Always False for a single server."""
        self._slots_read_at = 0.0
        """Monotonic time at which the map of slots was last read."""
        self._refreshing = asyncio.Lock()
        self._refreshes = 0
        """Number of reads of the map that have ended."""
        self._turn = 0
        """Counts up, so that servers take turns where any of them will do."""
        self._checks: dict[ValkeyClient, asyncio.Task[None]] = {}
        """Running checks of why replies are late, by the client of the late server."""
        self._warned_of_slots = False
        """True after a failed read of the slots, until one succeeds, so that an outage is reported once."""
        self.has_replicas = False
        """True once any primary was seen with a replica, which may replace it."""
        self.gap_listeners: set[Callable[[], None]] = set()
        """Called when slots moved to another server: messages that were published meanwhile may be lost."""

    def clone(self) -> "Topology":
        """Return a topology of the same servers, without connections."""
        return Topology(self.address, self._options)

    def client(self, endpoint: Endpoint) -> ValkeyClient:
        """Return the client of a server; a new server gets a new client."""
        found = self._clients.get(endpoint)
        if found is None:
            found = self._clients[endpoint] = ValkeyClient(
                endpoint, self._options, self._on_late_reply, self.epoch.begin
            )
        return found

    def ready_client(self, key: str | bytes) -> ValkeyClient | None:
        """Return the client for this key; None when the slots have to be read first."""
        if not self.address.cluster:
            return self._seeds[0]
        if self._stale:
            return None
        owner = self._owners[slot_of(key)]
        return None if owner is None else self._clients.get(owner)

    async def client_of(self, key: str | bytes) -> ValkeyClient:
        """Return the client for this key. Raises FrontierUnavailable when no server serves it or none can be asked."""
        if not self.address.cluster:
            return self._seeds[0]
        slot = slot_of(key)
        if self._stale or self._owners[slot] is None:
            await self._refresh()
        owner = self._owners[slot]
        if owner is None:
            raise FrontierUnavailable(f"no node of {self.address} serves slot {slot}")
        return self.client(owner)

    async def primaries(self) -> list[ValkeyClient]:
        """Return the clients of all servers that hold keys, in the order of their first slots."""
        if not self.address.cluster:
            return [self._seeds[0]]
        if self._stale:
            await self._refresh()
        return [self.client(owner) for owner in dict.fromkeys(self._owners) if owner is not None]

    async def any_client(self) -> ValkeyClient:
        """Return a client for a call that any server can execute. Successive calls return the servers in rotation; an
        unavailable server is returned only when all are unavailable."""
        clients = await self.primaries()
        clients = [client for client in clients if not client.unavailable] or clients
        self._turn += 1
        return clients[self._turn % len(clients)]

    def redirect(self, slot: int, owner: Endpoint) -> ValkeyClient:
        """Record that `owner` serves this slot now, and return its client. Other slots may have moved, too.

        Raises ServerUnsuitable where the address is that of a single server.
        """
        if not self.address.cluster:
            raise ServerUnsuitable(f"{self.address} is a node of a cluster: write redis+cluster://host:port")
        self._owners[slot] = owner
        self._stale = True
        self._notify_gap()
        return self.client(owner)

    def mark_stale(self, client: ValkeyClient | None = None) -> None:
        """Mark the map of slots as out of date, so that it is read before the next call; for use after a failed call.

        `client`: the client whose call failed. If it is known to be unavailable already, its failures cause at most one
        read in _STALE_AGAIN_SECONDS. None: always mark the map.
        """
        if client is None or not client.unavailable or time.monotonic() - self._slots_read_at >= _STALE_AGAIN_SECONDS:
            self._stale = self.address.cluster

    async def _refresh(self) -> None:
        """Read the map of slots from the first node that has one. Callers that wait meanwhile share the result.

        A caller waits for two reads at most: the one under way, which may have begun before the caller's slot moved,
        and the next. If each waiting caller read again whenever a failed call marks the map, heartbeats that wait here
        would come too late.
        """
        begun = self._refreshes + self._refreshing.locked()
        async with self._refreshing:
            if self._owners and (not self._stale or self._refreshes > begun):
                return
            try:
                await self._read_slots()
            finally:
                self._refreshes += 1

    async def _read_slots(self) -> None:
        """Read the map from the first node that has one.

        If no node has one, an old map stays in use; without an old map, the last failure is raised. A failure that only
        a person can mend is always raised.
        """
        failure: FrontierError = FrontierUnavailable(f"no node of {self.address} can be asked")
        for client in self._clients_to_ask():
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    reply = await client.command("CLUSTER", "SLOTS")
            except (FrontierError, TimeoutError) as exc:
                client.failed_at = time.monotonic()
                if isinstance(exc, FrontierError):
                    failure = exc
                if "cluster support disabled" in str(exc):
                    raise ServerUnsuitable(f"{client} is no node of a cluster: write redis://host:port") from None
                continue
            if not reply:  # the node belongs to no cluster yet, or has lost its configuration
                continue
            await self._apply_slots(reply, client)
            return
        if not self._owners or not isinstance(failure, FrontierUnavailable):
            raise failure
        if not self._warned_of_slots:
            self._warned_of_slots = True
            _log.warning("cannot read the cluster's slots: %s", failure)

    def _clients_to_ask(self) -> list[ValkeyClient]:
        """Return the clients of all nodes that may know the slots; those that failed to answer lately come last."""
        clients = list(dict.fromkeys([*self._clients.values(), *self._seeds]))
        # Begin with another node each time: a node that is cut off from the others keeps answering with an old map.
        self._turn += 1
        start = self._turn % len(clients)
        lately = time.monotonic() - _ASKED_LAST_SECONDS
        return sorted(clients[start:] + clients[:start], key=lambda client: client.failed_at > lately)

    async def _apply_slots(self, reply: Sequence[Any], replied_by: ValkeyClient) -> None:
        before, self._owners = self._owners, read_slots(reply, replied_by=replied_by.endpoint)
        self._stale = self._warned_of_slots = False
        self._slots_read_at = time.monotonic()
        self.has_replicas = self.has_replicas or any(len(row) > 3 for row in reply)
        await self._close_unknown_clients()
        if before and before != self._owners:
            self._notify_gap()

    def _notify_gap(self) -> None:
        self.epoch.begin()
        for listener in list(self.gap_listeners):
            listener()

    def _on_late_reply(self, client: ValkeyClient) -> None:
        """Start a background check of why a reply is late.

        The server may no longer know the connection. In a cluster, it may also hang, and a replica may have taken its
        slots, which no server reports by itself. Each late server has a check of its own: several may be late at once.
        """
        client.failed_at = time.monotonic()
        if client not in self._checks:
            check = self._checks[client] = asyncio.get_running_loop().create_task(self._check(client))
            check.add_done_callback(lambda _: self._checks.pop(client, None))

    async def _check(self, late: ValkeyClient) -> None:
        if self.address.cluster:
            await asyncio.gather(self._check_slots(late), self._check_connection(late))
        else:
            await self._check_connection(late)

    async def _check_connection(self, late: ValkeyClient) -> None:
        """Disconnect a server that no longer knows our connection, so that the next call makes a new one."""
        with contextlib.suppress(FrontierError, TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS):
                lost = await late.has_lost_connection(grace_seconds=_GRACE_SECONDS)
            if lost:
                _log.warning("%s: a connection stopped answering and a new one works; reconnecting", late)
                await late.disconnect()

    async def _check_slots(self, late: ValkeyClient) -> None:
        """Read the map from another node; disconnect the late one if it no longer serves any slot."""
        for client in self._clients_to_ask():
            if client is late:
                continue
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    reply = await client.command("CLUSTER", "SLOTS")
            except (FrontierError, TimeoutError):
                client.failed_at = time.monotonic()
                continue
            if reply:
                await self._apply_slots(reply, client)
                if late.endpoint not in set(self._owners):
                    await late.disconnect()
                return

    async def is_confirmed_primary(self, key: str | bytes, client: ValkeyClient) -> bool:
        """Return whether a majority of primaries, `client` included, now report that its server serves the key.

        A replica can replace a primary only with the votes of a majority of primaries. Each of those regards the old
        primary as failed until it knows the new one. So True means: the server had not been replaced when it made the
        writes that came before this call.
        """
        name = (await client.command("CLUSTER", "MYID")).decode()
        primaries = await self.primaries()
        slot = slot_of(key)

        async def vote(other: ValkeyClient) -> bool:
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    return serves_slot(await other.command("CLUSTER", "NODES"), name, slot)
            except (FrontierError, TimeoutError):
                return False

        votes = await asyncio.gather(*(vote(other) for other in primaries if other is not client))
        return 2 * (1 + sum(votes)) > len(primaries)

    async def _close_unknown_clients(self) -> None:
        # Seeds stay: they may be the only nodes that can be asked after an outage.
        known = {owner for owner in self._owners if owner} | set(self.address.endpoints)
        for endpoint in self._clients.keys() - known:
            await self._clients.pop(endpoint).close()

    async def close(self) -> None:
        """Close every connection."""
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        with contextlib.suppress(FrontierUnavailable):
            await asyncio.gather(*(client.close() for client in self._clients.values()))
