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
from typing import Any, Final, Self

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
from gossamer.valkey.topology import Topology, check_server, read_redirect

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
_REDIRECTS = 5
"""Attempts of a call that servers redirect or refuse before carrying it out. May be more; two are needed to load a
script, a third where its slot has moved."""
CONFIRM_KEY = "confirmed"
"""Suffix of the key that `call_confirmed` writes: its first key with this suffix. The key expires after 1 ms."""


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
        self.max_intset_entries = 512
        """Smallest `set-max-intset-entries` of the servers; the documented default where a server hides it."""
        self.version = ""
        """Version of the oldest server in terms of Redis, e.g. `7.2.4`."""
        self.memory_only: tuple[str, ...] = ()
        """Addresses of the servers that write nothing to disk."""
        self.unconfirmed = 0
        """Number of `call_confirmed` that went to a server without replica."""

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
        shards.memory_only = tuple(str(c) for c, report in zip(primaries, reports, strict=True) if report.memory_only)
        shards.version = min((report.version for report in reports), key=lambda v: [int(n) for n in v.split(".")])
        return shards

    def clone(self) -> "Shards":
        """Return an object for the same servers with connections of its own, for use in another event loop.

        Connections are made when they are needed, so servers that are unavailable do not disturb the others.
        """
        return Shards(self._topology.clone(), confirm_ms=self._confirm_ms)

    @property
    def data_epoch(self) -> int:
        """Number that grows whenever a server may have lost writes that it confirmed.

        That may be so when a connection ended (the server may have restarted from an old file) or slots moved to
        another server (a replica may have taken over). In most cases nothing was lost.
        """
        return self._topology.data_epoch

    def begin_data_epoch(self) -> None:
        """Increase `data_epoch`, because data is known to be lost."""
        self._topology.begin_data_epoch()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self, shard: int, script: Script, keys: Sequence[str], args: Sequence[Argument], *, since: int | None = None
    ) -> Any:
        """Run a script on the server of the first key's hash tag; return its reply as bytes, int, None or nested lists.

        `shard` is named in errors. `since`: the data epoch in which the caller learned what it relies on; in a later
        one nothing is sent and FrontierForgot is raised. Also raises FrontierUnavailable (the script may have run),
        FrontierFull (out of memory: the script did not run, or stopped at its first write), ServerUnsuitable, and
        FrontierError for a script that failed.
        """
        packed = pack((b"EVALSHA", script.sha, len(keys), *keys, *args))
        # The common case, with as little work as possible. Whatever is unusual takes the longer way of `_route`.
        client = self._topology.ready_client(keys[0])
        connection = client.ready_connection if client is not None else None
        if connection is not None:
            self._check_data_epoch(since)
            try:
                reply = await connection.send(packed)
            except FrontierUnavailable:
                self._topology.mark_stale(client)
                raise
            if not isinstance(reply, ReplyError):
                return reply
        doing = f"{script.name} on shard {shard}"
        replies = await self._route(keys[0], [packed], script=script, doing=doing, since=since)
        return replies[0]

    def _check_data_epoch(self, since: int | None) -> None:
        """Raise FrontierForgot if another data epoch has begun. No await may come between this and the sending."""
        if since is not None and since != self._topology.data_epoch:
            raise FrontierForgot

    async def call_confirmed(
        self, shard: int, script: Script, keys: Sequence[str], args: Sequence[Argument], *, since: int | None = None
    ) -> Any:
        """Run a script as `call` does; its writes are then on at least one replica, if the server has any.

        - The server has a replica: waits for its confirmation. Raises FrontierUnavailable when none comes in time. A
          repeated call that finds its work done waits, too.
        - It has none, and never had: counts the call in `unconfirmed`, and logs a warning once.
        - It has none any more: another server may have replaced it. Raises FrontierUnavailable unless a majority of the
          primaries reports that this one is still in place.
        """
        doing = f"{script.name} on shard {shard}"
        while True:
            client = await self._topology.client_of(keys[0])
            try:
                replicas = await client.replicas()
            except FrontierUnavailable:
                self._topology.mark_stale(client)
                raise
            if not replicas:
                if not self.unconfirmed and self.address.cluster:  # a single server is expected to have none
                    _log.warning("%s has no replica: confirmed writes are as safe as its own disk", client)
                self.unconfirmed += 1
                reply = await self.call(shard, script, keys, args, since=since)
                if self._topology.has_replicas:
                    client.forget_replicas()  # the replica will probably come back, so ask at each call
                    # A server that hung or was cut off while a replica replaced it does not know that yet.
                    if not await self._topology.is_confirmed_primary(keys[0], client):
                        self._topology.mark_stale(client)
                        raise FrontierUnavailable(f"{doing}: {client} has no replica, and another may be in its place")
                return reply
            # WAIT covers the writes of its own connection. A repeated call may write nothing, because its first attempt
            # wrote on another connection; the SET is a later write on this one, so WAIT covers both.
            replies = await self._route(
                keys[0],
                [
                    pack((b"EVALSHA", script.sha, len(keys), *keys, *args)),
                    pack((b"SET", keys[0] + CONFIRM_KEY, b"", b"PX", 1)),
                ],
                script=script,
                wait=pack((b"WAIT", 1, self._confirm_ms)),
                doing=doing,
                since=since,
            )
            if replies[-1]:
                return replies[0]
            client.forget_replicas()
            if await client.replicas():
                raise FrontierUnavailable(f"{doing}: no replica of {client} confirmed it in {self._confirm_ms} ms")

    async def command(self, key: str, *command: Argument) -> Any:
        """Run a command on the server of this key's hash tag. Raises as `call` does."""
        return (await self._route(key, [pack(command)], doing=str(command[0])))[0]

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

    # --- routing ------------------------------------------------------------------------------------------------------

    async def _route(
        self,
        key: str,
        packed: list[bytes],
        *,
        doing: str,
        script: Script | None = None,
        wait: bytes = b"",
        since: int | None = None,
    ) -> list[Reply]:
        """Send the commands to the server of the key, following redirects; return the replies, that of `wait` last.

        `wait`: packed WAIT to send after the commands; empty: none. The commands are sent again only when the first one
        was refused: once it was carried out, only the caller knows how to repeat it. The refusals:

        - NOSCRIPT: the server does not have the script. Sent again, with the script.
        - MOVED: another server has the key's slot now. Sent to that server.
        - ASK: the slot is being moved to another server, which may have the key. Sent there after an ASKING, except for
          a script that touches keys that the call does not declare: they may be on either server, so it must wait.
        - any other: raised.
        """
        client = await self._topology.client_of(key)
        asking = loading = False
        for _ in range(_REDIRECTS):
            load = script if loading else None
            replies = await self._exchange(client, packed, wait=wait, asking=asking, load=load, since=since)
            failure = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
            if failure is None:
                return replies
            code = error_code(failure)
            if code in ("MOVED", "ASK") and failure is not replies[0]:  # the first command was carried out
                self._topology.mark_stale(client)
                raise FrontierUnavailable(f"{doing}: its slot left {client} before the call could be confirmed")
            if code == "NOSCRIPT" and script is not None and not loading:
                loading = True
            elif code == "MOVED":
                slot, owner = read_redirect(str(failure), replied_by=client.endpoint)
                client, asking = self._topology.redirect(slot, owner), False
            elif code == "ASK" and script is not None and script.undeclared_keys:
                raise FrontierUnavailable(f"{doing}: its slot is being migrated; the call can run when that is done")
            elif code == "ASK":
                client, asking = self._topology.client(read_redirect(str(failure), replied_by=client.endpoint)[1]), True
            else:
                raise await self._refusal(client, failure, doing)
        raise FrontierUnavailable(f"{doing}: redirected from server to server {_REDIRECTS} times")

    async def _exchange(
        self,
        client: ValkeyClient,
        packed: list[bytes],
        *,
        wait: bytes,
        asking: bool,
        load: Script | None,
        since: int | None,
    ) -> list[Reply]:
        """Send the commands, after an ASKING each (`asking`) and after the script (`load`); return their replies."""
        before = [] if load is None else [pack((b"SCRIPT", b"LOAD", load.source))]
        commands = [part for one in packed for part in ((_ASKING, one) if asking else (one,))]
        extra_seconds = self._confirm_ms / 1000 if wait else 0.0
        try:
            connection = (not wait and client.ready_connection) or await client.connection(confirmed=bool(wait))
            self._check_data_epoch(since)
            replies = await connection.send_all(
                [*before, *commands, *([wait] if wait else [])], extra_seconds=extra_seconds
            )
        except FrontierForgot:
            raise  # nothing was sent, so it tells nothing about the slots
        except FrontierUnavailable:
            self._topology.mark_stale(client)
            raise
        answers = replies[len(before) :]
        if asking:  # leave out the reply to each ASKING
            count = len(commands)
            answers = answers[1:count:2] + answers[count:]
        return answers

    async def _refusal(self, client: ValkeyClient, error: ReplyError, doing: str) -> FrontierError:
        """Return the error to raise for an error reply that is no redirect."""
        if means_stale_slots(error):
            self._topology.mark_stale(client)
        if error_code(error) != "OOM":
            return translate_error(error, doing=f"{doing} ({client})")
        info = await client.info("memory")
        used, limit = info.get("used_memory_human", "?"), info.get("maxmemory_human", "?")
        return FrontierFull(f"{doing}: {client} uses {used} of {limit}; raise maxmemory, or stop a crawl")
