"""Calls on the shards of the frontier: each is sent to the server that holds the shard at present.

`Shards` is the interface of this package: it runs scripts and commands by key, and subscribes to channels. Nothing here
repeats a call that may have been carried out.

Words: a shard is a part of the frontier whose keys have one hash tag, and so lie on one server; a slot is the unit that
a cluster moves between servers; the data epoch is counted up whenever confirmed writes may be lost.

Must hold: a call is sent again only after a reply that proves that it was not carried out; the data epoch is checked
after the last await before sending, so that a call never goes to a server that has lost what the caller relies on;
commands and their WAIT share one connection.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierForgot, FrontierFull, FrontierUnavailable
from gossamer.policy.retry import outage_pause
from gossamer.valkey.address import Address
from gossamer.valkey.client import CALL_SECONDS, CONNECT_SECONDS, ClientOptions, ValkeyClient
from gossamer.valkey.connection import (
    Argument,
    Reply,
    ValkeyConnection,
    error_code,
    means_stale_slots,
    pack,
    translate_error,
)
from gossamer.valkey.scripts import Script
from gossamer.valkey.server_check import check_server
from gossamer.valkey.topology import Topology, read_redirect

_log = logging.getLogger(__name__)

_PING_SECONDS = 3.0
"""A subscribed connection on which nothing arrives for this time gets a PING; after twice this time it is given up.
Longer misses messages for longer, shorter sends more PINGs."""
_PING = pack((b"PING",))
_GAP: Reply = [b"gap"]
"""Stands in a subscription's queue where messages may have been missed."""


async def iterate_messages(
    choose: Callable[[], Awaitable[ValkeyClient]],
    channel: str,
    ready: asyncio.Event | None,
    *,
    gap_listeners: set[Callable[[], None]],
) -> AsyncIterator[bytes | None]:
    """Yield the channel's messages, and None where some may have been missed. Connects again, after a pause, whenever
    the connection is lost or cannot be made; the first failure in a row is logged.

    `choose` returns the server to connect to, at each connection. `gap_listeners`: callbacks for the event that slots
    moved to another server, when a message may have been lost; while it runs, the subscription adds its own.
    """
    failures = 0
    while True:
        try:
            received: asyncio.Queue[Reply | None] = asyncio.Queue()
            connection = await (await choose()).connect()
            note_gap = partial(received.put_nowait, _GAP)
            gap_listeners.add(note_gap)
            try:
                connection.subscribe(pack((b"SUBSCRIBE", channel)), received.put_nowait)
                while (reply := await _next(connection, received)) is not None:
                    if isinstance(reply, ReplyError):
                        raise translate_error(reply, doing=f"listening to {channel}")
                    if reply[0] == b"message":
                        yield reply[2]
                    elif reply is _GAP:
                        yield None
                    elif reply[0] == b"subscribe":
                        failures = 0
                        if ready is not None:
                            ready.set()
                        yield None
            finally:
                gap_listeners.discard(note_gap)
                await connection.close()
        except FrontierError as exc:
            if not failures:
                _log.warning("lost the subscription to %s, reconnecting: %s", channel, exc)
        failures += 1
        await asyncio.sleep(outage_pause(failures, random=random.random()))


async def _next(connection: ValkeyConnection, received: "asyncio.Queue[Reply | None]") -> Reply | None:
    """Return what the connection receives next; None when the connection ended, or does not answer a PING."""
    for _ in range(2):
        try:
            async with asyncio.timeout(_PING_SECONDS):
                return await received.get()
        except TimeoutError:
            connection.write(_PING)
    return None


_ASKING: Final = pack(("ASKING",))
_ATTEMPTS = 5
"""Attempts of a call that servers redirect or refuse before carrying it out. Two are needed to load a script, a third
where its slot has moved."""
_PLAIN: Final = Script("command", "")
"""Stands for a plain command in place of a script."""
CONFIRM_KEY = "confirmed"
"""Suffix of the key that a confirmed call writes: its first key with this suffix. The key expires after 1 ms."""


class Shards:
    """One server or a cluster; calls go to the server of a key's hash tag. Any number of calls may run at once.

    A call that may have been carried out is not repeated here: it raises FrontierUnavailable, and the caller repeats it
    if it is idempotent (`retrying`). A call that was certainly not carried out (the server lacks the script, or the
    slot has moved) is repeated at once.
    """

    def __init__(self, topology: Topology, *, confirm_ms: int) -> None:
        self._topology = topology
        self._confirm_ms = confirm_ms
        self.address = topology.address
        self.epoch = topology.epoch
        """The data epoch of this process."""
        self.max_intset_entries = 512
        """Smallest `set-max-intset-entries` of the servers; the documented default where a server hides it."""
        self.version = ""
        """Version of the oldest server in terms of Redis, e.g. `7.2.4`."""
        self.warnings: tuple[str, ...] = ()
        """Warnings about the servers; each begins with the address of one."""
        self.keeps_torn = False
        """True: after a start, a server may have carried out half of a transaction."""
        self.unconfirmed = 0
        """Number of confirmed calls that went to a server without replica."""

    @classmethod
    async def connect(
        cls,
        address: str | Address,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        call_seconds: float = CALL_SECONDS,
        confirm_ms: int = 2000,
    ) -> Self:
        """Connect to every server that holds keys, and check each (version >= 7.0, scripts allowed).

        `call_seconds`: time after which a reply counts as lost. `confirm_ms`: time that a replica has to confirm a
        write. Raises BadInput for an invalid address, FrontierUnavailable, and ServerUnsuitable, which says what to do.
        """
        parsed = Address.parse(address) if isinstance(address, str) else address
        options = ClientOptions.from_address(parsed, connect_seconds=connect_seconds, call_seconds=call_seconds)
        shards = cls(Topology(parsed, options), confirm_ms=confirm_ms)
        try:
            primaries = await shards._topology.primaries()
            reports = await asyncio.gather(*(check_server(c, cluster=parsed.cluster) for c in primaries))
        except BaseException:
            await shards.close()
            raise
        shards.max_intset_entries = min(report.max_intset_entries for report in reports)
        shards.warnings = tuple(
            f"{client} {text}" for client, report in zip(primaries, reports, strict=True) for text in report.warnings
        )
        shards.keeps_torn = any(report.keeps_torn for report in reports)
        shards.version = min((report.version for report in reports), key=lambda v: [int(n) for n in v.split(".")])
        return shards

    def clone(self) -> "Shards":
        """Return an object for the same servers with connections of its own, for use in another event loop.

        Connections are made when they are needed, so servers that are unavailable do not disturb the others.
        """
        clone = Shards(self._topology.clone(), confirm_ms=self._confirm_ms)
        clone.keeps_torn = self.keeps_torn
        return clone

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        shard: int,
        script: Script,
        keys: Sequence[str],
        args: Sequence[Argument],
        *,
        confirmed: bool = False,
        since: int | None = None,
    ) -> Any:
        """Run a script on the server of the first key's hash tag; return its reply as bytes, int, None or nested lists.

        `shard` is named in errors. `confirmed`: return when the writes are on a replica, where there is one (see
        `_is_confirmed`). `since`: the data epoch in which the caller learned what it relies on; in a later one nothing
        is sent and FrontierForgot is raised. Also raises FrontierUnavailable (the script may have run), FrontierFull
        (out of memory: the script did not run, or stopped at its first write), ServerUnsuitable, and FrontierError for
        a script that failed.

        The call is sent again only when it was refused: once it was carried out, only the caller knows how to repeat
        it.
        """
        key, topology, way = keys[0], self._topology, _DIRECT
        packed = pack((b"EVALSHA", script.sha, len(keys), *keys, *args) if script is not _PLAIN else tuple(args))
        for _ in range(_ATTEMPTS):
            client = way.client or topology.ready_client(key) or await topology.client_of(key)
            waits = confirmed and await self._has_replica(client)
            try:
                connection = (not waits and client.ready_connection) or await client.connection(confirmed=waits)
                self.epoch.check(since)  # no await may come between this and the sending
                if way is _DIRECT and not waits:
                    replies = [await connection.send(packed)]
                else:
                    before, (after, seconds) = way.before, self._confirmation(key, way) if waits else ((), 0.0)
                    replies = await connection.send_all([*before, packed, *after], extra_seconds=seconds)
                    replies = replies[len(before) :]
            except FrontierForgot:
                raise  # nothing was sent, so it tells nothing about the slots
            except FrontierUnavailable:
                topology.mark_stale(client)
                raise
            refusal = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
            if refusal is not None:
                ran = refusal is not replies[0]
                way = await self._next_way(way, client, refusal, script, ran, doing=_doing(shard, script, args))
            elif not confirmed or await self._is_confirmed(key, client, replies[1:], _doing(shard, script, args)):
                return replies[0]
        raise FrontierUnavailable(f"{_doing(shard, script, args)}: redirected from server to server {_ATTEMPTS} times")

    async def command(self, key: str, *command: Argument) -> Any:
        """Run a command on the server of this key's hash tag. Raises as `call` does."""
        return await self.call(0, _PLAIN, [key], command)

    def load(self, key: str) -> float:
        """Return the share of a core that the server of this key's hash tag used lately, 0 to 1. 0: it is not known."""
        client = self._topology.ready_client(key)
        return client.load if client is not None else 0.0

    async def everywhere(self, *command: Argument) -> list[Any]:
        """Run a command that concerns no key on every server that holds keys; return the replies in slot order."""
        try:
            return await asyncio.gather(*(client.command(*command) for client in await self._topology.primaries()))
        except FrontierUnavailable:
            self._topology.mark_stale()
            raise

    def subscribe(self, channel: str, ready: asyncio.Event | None = None) -> AsyncIterator[bytes | None]:
        """Yield what is published on this channel from now on, endlessly; a lost connection is made again.

        None means that messages may have been missed: at the start, after each reconnection and when slots moved to
        another server. The caller then reads the current state. `ready` is set when the first subscription is active.
        """
        return iterate_messages(self._topology.any_client, channel, ready, gap_listeners=self._topology.gap_listeners)

    async def close(self) -> None:
        """Close every connection; pending calls raise FrontierUnavailable. May be called again."""
        await self._topology.close()

    # --- confirmation -------------------------------------------------------------------------------------------------

    async def _has_replica(self, client: ValkeyClient) -> bool:
        """Return whether the server has a replica, which can confirm a call."""
        try:
            return await client.replicas() > 0
        except FrontierUnavailable:
            self._topology.mark_stale(client)
            raise

    def _confirmation(self, key: str, way: "_Way") -> tuple[list[bytes], float]:
        """Return the commands behind a call that a replica is to confirm, and for how long they may block.

        WAIT covers the writes of its own connection. A repeated call may write nothing, because its first attempt wrote
        on another connection; the SET is a later write on this one, so WAIT covers both.
        """
        asking = [_ASKING] if way.asking else []
        set_key = pack((b"SET", key + CONFIRM_KEY, b"", b"PX", 1))
        return [*asking, set_key, pack((b"WAIT", 1, self._confirm_ms))], self._confirm_ms / 1000

    async def _is_confirmed(self, key: str, client: ValkeyClient, confirmation: Sequence[Reply], doing: str) -> bool:
        """Return whether the writes of a call are as safe as this server can make them. False: call again.

        `confirmation`: replies to the commands behind the call; empty: it was sent without any.

        - The server has a replica: it must have confirmed the call. Raises FrontierUnavailable when none has. A
          repeated call that finds its work done waits, too.
        - It has none, and never had: counts the call in `unconfirmed`, and logs a warning once.
        - It has none any more: another server may have replaced it. Raises FrontierUnavailable unless a majority of the
          primaries reports that this one is still in place.
        """
        if confirmation:
            if confirmation[-1]:
                return True
            client.forget_replicas()
            if await client.replicas():
                raise FrontierUnavailable(f"{doing}: no replica of {client} confirmed it in {self._confirm_ms} ms")
            return False
        if not self.unconfirmed and self.address.cluster:  # a single server is expected to have none
            _log.warning("%s has no replica: confirmed writes are as safe as its own disk", client)
        self.unconfirmed += 1
        if self._topology.has_replicas:
            client.forget_replicas()  # the replica will probably come back, so ask at each call
            # A server that hung or was cut off while a replica replaced it does not know that yet.
            if not await self._topology.is_confirmed_primary(key, client):
                self._topology.mark_stale(client)
                raise FrontierUnavailable(f"{doing}: {client} has no replica, and another may be in its place")
        return True

    # --- redirects ----------------------------------------------------------------------------------------------------

    async def _next_way(
        self, way: "_Way", client: ValkeyClient, refusal: ReplyError, script: Script, ran: bool, *, doing: str
    ) -> "_Way":
        """Return how to send a call again that the server has refused. `ran`: the call itself was carried out.

        - NOSCRIPT: the server does not have the script. Sent again, with the script.
        - MOVED: another server has the key's slot now. Sent to that server.
        - ASK: the slot is being moved to another server, which may have the key. Sent there after an ASKING, except for
          a script that touches keys that the call does not declare: they may be on either server, so it must wait.
        - any other: raised.
        """
        code = error_code(refusal)
        if code in ("MOVED", "ASK") and ran:
            self._topology.mark_stale(client)
            raise FrontierUnavailable(f"{doing}: its slot left {client} before the call could be confirmed")
        if code == "NOSCRIPT" and way.load is None:
            return way._replace(client=client, load=script)
        if code == "MOVED":
            slot, owner = read_redirect(str(refusal), replied_by=client.endpoint)
            return way._replace(client=self._topology.redirect(slot, owner), asking=False)
        if code == "ASK" and script.undeclared_keys:
            raise FrontierUnavailable(f"{doing}: its slot is being migrated; the call can run when that is done")
        if code == "ASK":
            _, owner = read_redirect(str(refusal), replied_by=client.endpoint)
            return way._replace(client=self._topology.client(owner), asking=True)
        raise await self._refusal(client, refusal, doing)

    async def _refusal(self, client: ValkeyClient, error: ReplyError, doing: str) -> FrontierError:
        """Return the error to raise for an error reply that is no redirect."""
        if means_stale_slots(error):
            self._topology.mark_stale(client)
        if error_code(error) != "OOM":
            return translate_error(error, doing=f"{doing} ({client})")
        info = await client.info("memory")
        used, limit = info.get("used_memory_human", "?"), info.get("maxmemory_human", "?")
        return FrontierFull(f"{doing}: {client} uses {used} of {limit}; raise maxmemory, or stop a crawl")


class _Way(NamedTuple):
    """The way of a call to its server."""

    client: ValkeyClient | None = None
    """None: the server that the map of slots names."""
    load: Script | None = None
    """Script that the server does not have."""
    asking: bool = False
    """The slot is being moved to the server."""

    @property
    def before(self) -> list[bytes]:
        """Commands to send before the call."""
        load = [] if self.load is None else [pack((b"SCRIPT", b"LOAD", self.load.source))]
        return [*load, _ASKING] if self.asking else load


_DIRECT: Final = _Way()


def _doing(shard: int, script: Script, args: Sequence[Argument]) -> str:
    """Return the beginning of an error's message about a call."""
    return str(args[0]) if script is _PLAIN else f"{script.name} on shard {shard}"
