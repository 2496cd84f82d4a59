"""The servers behind an address: one, or the primaries of a cluster and the map of their slots."""

import asyncio
import binascii
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.client import ClientOptions, ValkeyClient, read_info
from gossamer.valkey.connection import Reply, first_word, pack, translate

_log = logging.getLogger(__name__)


SLOTS = 16384


def slot_of(key: str | bytes) -> int:
    """The slot of a key: CRC-16/XMODEM of its hash tag, the part within the first braces that are not empty."""
    name = key.encode() if isinstance(key, str) else key
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return binascii.crc_hqx(name, 0) % SLOTS


def read_slots(reply: Iterable[Any], *, asked: Endpoint) -> list[Endpoint | None]:
    """CLUSTER SLOTS as a list of the primary of every slot; None where nobody serves it.

    `asked`: who answered; a node that does not know its own address means that one.
    """
    owners: list[Endpoint | None] = [None] * SLOTS
    for first, last, primary, *_ in reply:
        owner = _endpoint(primary[0], primary[1], asked)
        owners[first : last + 1] = [owner] * (last + 1 - first)
    return owners


def read_redirect(text: str, *, asked: Endpoint) -> tuple[int, Endpoint]:
    """The slot and the node of `MOVED 3999 host:port` or `ASK 3999 host:port`."""
    _, slot, where = text.split(" ")[:3]
    host, _, port = where.rpartition(":")
    return int(slot), _endpoint(host, int(port), asked)


def speaks_for(nodes: bytes, name: str, slot: int) -> bool:
    """Whether in this answer to CLUSTER NODES the node of that name serves the slot, and nobody holds it for failed."""
    for line in nodes.decode().splitlines():
        words = line.split(" ")
        if words[0] == name:
            flags = words[2].split(",")
            spans = [part.split("-") for part in words[8:] if not part.startswith("[")]
            served = any(int(span[0]) <= slot <= int(span[-1]) for span in spans)
            return served and "master" in flags and "fail" not in flags and "fail?" not in flags
    return False


def _endpoint(host: bytes | str | None, port: int, asked: Endpoint) -> Endpoint:
    name = host.decode() if isinstance(host, bytes) else host or ""
    return Endpoint(host=asked.host if name in ("", "?") else name.strip("[]"), port=port)


_ASK_SECONDS = 3.0
_GRACE_SECONDS = 0.2
"""For an answer that was sent before another one and comes after it."""
_DOUBT_SECONDS = 0.2
_SHUN_SECONDS = 10.0
"""Who did not answer is asked last for so long."""


class Topology:
    """Finds the client for a key. The map of slots is fetched when it is first needed and when it proved wrong."""

    def __init__(self, address: Address, manner: ClientOptions) -> None:
        self.address = address
        self._manner = manner
        self.era = 0
        """Grows when a connection was made again, before anything is asked on it, and when slots are served elsewhere
        than before."""
        self._clients: dict[Endpoint, ValkeyClient] = {}
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

    def client(self, endpoint: Endpoint) -> ValkeyClient:
        """The client of one server, made when it is new."""
        found = self._clients.get(endpoint)
        if found is None:
            found = self._clients[endpoint] = ValkeyClient(endpoint, self._manner, self._suspect, self.begin_era)
        return found

    def ready_client(self, key: str | bytes) -> ValkeyClient | None:
        """Who serves this key, if that is known without asking."""
        if not self.address.cluster:
            return self._seeds[0]
        if self._stale:
            return None
        owner = self._owners[slot_of(key)]
        return None if owner is None else self._clients.get(owner)

    async def client_of(self, key: str | bytes) -> ValkeyClient:
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

    async def primaries(self) -> list[ValkeyClient]:
        """Every server that holds keys, in the order of its first slot."""
        if not self.address.cluster:
            return [self._seeds[0]]
        if self._stale:
            await self._refresh()
        return [self.client(owner) for owner in dict.fromkeys(self._owners) if owner is not None]

    async def any_client(self) -> ValkeyClient:
        """One server after the other, by turns: for what every one of them can do."""
        clients = await self.primaries()
        clients = [client for client in clients if not client.away] or clients
        self._turn += 1
        return clients[self._turn % len(clients)]

    def moved(self, slot: int, owner: Endpoint) -> ValkeyClient:
        """A node said that this slot is served there now; other slots may have moved with it."""
        if not self.address.cluster:
            raise ServerUnsuitable(f"{self.address} is a node of a cluster: write redis+cluster://host:port")
        self._owners[slot] = owner
        self._stale = True
        self._tell()
        return self.client(owner)

    def doubt(self, client: ValkeyClient | None = None) -> None:
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

    def _askable(self) -> list[ValkeyClient]:
        """Everybody who may know the map; those who did not answer lately last."""
        clients = list(dict.fromkeys([*self._clients.values(), *self._seeds]))
        # Not always the same first: a node cut off from the others would tell its old map for ever.
        self._turn += 1
        start = self._turn % len(clients)
        shunned = time.monotonic() - _SHUN_SECONDS
        return sorted(clients[start:] + clients[:start], key=lambda client: client.failed_at > shunned)

    async def _adopt(self, reply: Sequence[Any], asked: ValkeyClient) -> None:
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

    def _suspect(self, client: ValkeyClient) -> None:
        """An answer is late. Where its node hangs, a replica may have its slots by now, and nobody would tell us; or it
        does not know of the connection any more."""
        client.failed_at = time.monotonic()
        if self._looking is None or self._looking.done():
            look = self._look_elsewhere if self.address.cluster else self._look_again
            self._looking = asyncio.get_running_loop().create_task(look(client))

    async def _look_again(self, suspect: ValkeyClient) -> None:
        with contextlib.suppress(FrontierError, TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS):
                lost = await suspect.probe(grace_seconds=_GRACE_SECONDS)
            if lost:
                _log.warning("%s: a connection went silent; another one works", suspect)
                await suspect.hang_up()

    async def _look_elsewhere(self, suspect: ValkeyClient) -> None:
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

    async def vouched(self, key: str | bytes, client: ValkeyClient) -> bool:
        """Whether most of the primaries, itself included, say now that it serves this key and does not fail.

        A replica is voted into a primary's place by most of the others, each of which holds it for failed until it
        knows the new one. So what it wrote before this was asked was written before it could be replaced.
        """
        name = (await client.ask("CLUSTER", "MYID")).decode()
        primaries = await self.primaries()
        slot = slot_of(key)

        async def voice(other: ValkeyClient) -> bool:
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


OLDEST = (7, 0)
MEMORY_ONLY = "keeps nothing on disk: all crawls are lost when its process ends; set appendonly yes"
_DEFAULT_INTSET_ENTRIES = 512  # redis.conf and valkey.conf, `set-max-intset-entries`

_QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("INFO", "server"),
    ("SCRIPT", "EXISTS", "0" * 40),
    ("CONFIG", "GET", "set-max-intset-entries"),
    ("CONFIG", "GET", "maxmemory-policy"),
    ("CONFIG", "GET", "appendonly"),
    ("CONFIG", "GET", "save"),
)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server said about itself."""

    version: str
    max_intset_entries: int
    memory_only: bool
    """It writes neither an append-only file nor snapshots."""


async def check_server(client: ValkeyClient, *, cluster: bool) -> ServerReport:
    """See that this server is >= 7.0, runs scripts and is what the address calls it.

    Raises ServerUnsuitable with what to do, FrontierUnavailable. What an access list hides is taken for fit: the first
    call will tell.
    """
    connection = client.ready or await client.connection()
    info, exists, intset, eviction, append, save = await connection.ask_all([pack(command) for command in _QUESTIONS])
    if isinstance(info, ReplyError):
        if first_word(info) != "NOPERM":
            raise translate(info, doing=f"asking {client} for its version")
        facts = {}
    else:
        facts = read_info(info)
    version = facts.get("redis_version", "7.0.0")
    if tuple(int(number) for number in version.split(".")[:2]) < OLDEST:
        raise ServerUnsuitable(f"{client} is version {version}; Valkey 7.2 or Redis 7.0 is the oldest that will do")
    is_cluster = facts.get("redis_mode", facts.get("server_mode")) == "cluster"
    if is_cluster and not cluster:
        raise ServerUnsuitable(f"{client} is a node of a cluster: write redis+cluster://{client}")
    if isinstance(exists, ReplyError):
        raise ServerUnsuitable(f"{client} runs no scripts ({exists}); the frontier needs EVALSHA and SCRIPT LOAD")
    policy = _setting(eviction, "noeviction")
    if policy != "noeviction":
        _log.warning("%s has maxmemory-policy %s and may forget URLs when it is full; set noeviction", client, policy)
    without_file = _setting(append, "yes") == "no"
    memory_only = without_file and not _setting(save, "unknown")
    if memory_only:
        _log.warning("%s %s", client, MEMORY_ONLY)
    elif without_file:
        _log.warning(
            "%s keeps no append-only file: with its process everything since its last snapshot is lost; "
            "set appendonly yes",
            client,
        )
    return ServerReport(version, int(_setting(intset, str(_DEFAULT_INTSET_ENTRIES))), memory_only)


def _setting(reply: Reply, default: str) -> str:
    """CONFIG GET's one value; the default where it is forbidden, as hosting services do."""
    return default if isinstance(reply, ReplyError) or not reply else str(reply[1].decode())
