"""Calls on shards: each goes to the server that holds the shard, whichever that is by now."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierForgot, FrontierFull, FrontierUnavailable
from gossamer.policy.retry import outage_pause
from gossamer.valkey import connection as border
from gossamer.valkey.address import Address
from gossamer.valkey.client import ClientOptions, Script, ValkeyClient
from gossamer.valkey.connection import Argument, Reply, ValkeyConnection, pack, translate
from gossamer.valkey.topology import Topology, check_server, read_redirect

_log = logging.getLogger(__name__)


_SILENCE_SECONDS = 3.0
"""After so long without a word the server is asked for one; after twice that the connection counts as dead."""

_PING = pack((b"PING",))


_GAP: Reply = [b"gap"]


async def messages(
    choose: Callable[[], Awaitable[ValkeyClient]],
    channel: str,
    ready: asyncio.Event | None = None,
    *,
    listeners: set[Callable[[], None]],
) -> AsyncIterator[bytes | None]:
    """The channel's messages; None where some may be missing. `choose` says whom to ask, anew at each connection.

    `listeners`: who is called when something may have been published that reached nobody; we are, while we listen.
    """
    failures = 0
    while True:
        try:
            heard: asyncio.Queue[Reply | None] = asyncio.Queue()
            connection = await (await choose()).open()
            note_gap = partial(heard.put_nowait, _GAP)
            listeners.add(note_gap)
            try:
                connection.listen(pack((b"SUBSCRIBE", channel)), heard.put_nowait)
                while (reply := await _next(connection, heard)) is not None:
                    if isinstance(reply, ReplyError):
                        raise translate(reply, doing=f"listening to {channel}")
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
                listeners.discard(note_gap)
                await connection.close()
        except FrontierError as exc:
            if not failures:
                _log.warning("not listening to %s for now: %s", channel, exc)
        failures += 1
        await asyncio.sleep(outage_pause(failures, random=random.random()))


async def _next(connection: ValkeyConnection, heard: "asyncio.Queue[Reply | None]") -> Reply | None:
    """The next thing heard; None when the connection ended, or is silent even when asked."""
    for _ in range(2):
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                return await heard.get()
        except TimeoutError:
            connection.tell(_PING)
    return None


_ASKING: Final = pack(("ASKING",))
_REDIRECTS = 5
CONFIRM_KEY = "confirmed"
"""What `call_confirmed` appends to its first key for the one key of this room; it lives for a millisecond."""


class Shards:
    """One server or a cluster, asked by the hash tag of a key. Any number of calls may be under way at once.

    No call is repeated here after it may have been done: FrontierUnavailable means that nobody knows, and the caller
    repeats it in a way that may be repeated (`retrying`). What surely was not done (a script that the server does not
    have, a slot that moved) is asked again without a word.
    """

    def __init__(self, topology: Topology, *, confirm_ms: int) -> None:
        self._topology = topology
        self._confirm_ms = confirm_ms
        self.address = topology.address
        self.max_intset_entries = 512
        """The servers' smallest `set-max-intset-entries`; the documented default where they do not tell."""
        self.version = ""
        """The oldest server's version of the Redis protocol, e.g. `7.2.4`."""
        self.memory_only: tuple[str, ...] = ()
        """The servers that write nothing to disk."""
        self.unconfirmed = 0
        """How many calls that asked for a replica's confirmation went to a server that has no replica."""

    @classmethod
    async def connect(
        cls, address: str | Address, *, connect_seconds: float = 5.0, call_seconds: float = 30.0, confirm_ms: int = 2000
    ) -> Self:
        """Connect to every server that holds keys, and see that it is fit (>= 7.0, scripts allowed).

        `call_seconds`: an answer that takes longer counts as lost; `confirm_ms`: so long a replica may take.
        Raises BadInput for an address that is none, FrontierUnavailable, and ServerUnsuitable with what to do.
        """
        parsed = Address.parse(address) if isinstance(address, str) else address
        manner = ClientOptions.of(parsed, connect_seconds=connect_seconds, call_seconds=call_seconds)
        shards = cls(Topology(parsed, manner), confirm_ms=confirm_ms)
        try:
            primaries = await shards._topology.primaries()
            fitness = await asyncio.gather(*(check_server(c, cluster=parsed.cluster) for c in primaries))
        except BaseException:
            await shards.close()
            raise
        shards.max_intset_entries = min(fit.max_intset_entries for fit in fitness)
        shards.memory_only = tuple(str(c) for c, fit in zip(primaries, fitness, strict=True) if fit.memory_only)
        shards.version = min((fit.version for fit in fitness), key=lambda v: [int(n) for n in v.split(".")])
        return shards

    def twin(self) -> "Shards":
        """The same servers over connections of its own, which are made when they are needed: for another event loop.
        Where some servers are away, the others can be asked."""
        return Shards(self._topology.twin(), confirm_ms=self._confirm_ms)

    @property
    def era(self) -> int:
        """Grows whenever a server may have lost what it confirmed: a connection ended (it may have been started again
        from an old file) or slots are served elsewhere (a replica took over). Mostly nothing was lost."""
        return self._topology.era

    def begin_era(self) -> None:
        """Something is known to be lost."""
        self._topology.begin_era()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self, shard: int, script: Script, keys: Sequence[str], args: Sequence[Argument], *, since: int | None = None
    ) -> Any:
        """Run a script on the server of the first key's hash tag; its answer as bytes, int, None or lists of them.

        Raises FrontierUnavailable (it may have run), FrontierFull (out of memory: it did not run, or stopped where it
        first wrote), ServerUnsuitable, and FrontierError for a script that failed. `shard` is for errors. `since`: an
        era; in a later one nothing is sent and FrontierForgot raised.
        """
        packed = pack((b"EVALSHA", script.sha, len(keys), *keys, *args))
        client = self._topology.ready_client(keys[0])
        connection = client.ready if client is not None else None
        if connection is not None:
            self._check_era(since)
            try:
                reply = await connection.ask(packed)
            except FrontierUnavailable:
                self._topology.doubt(client)
                raise
            if not isinstance(reply, ReplyError):
                return reply
        doing = f"{script.name} on shard {shard}"
        replies = await self._route(keys[0], [packed], script=script, doing=doing, since=since)
        return replies[0]

    def _check_era(self, since: int | None) -> None:
        if since is not None and since != self._topology.era:
            raise FrontierForgot

    async def call_confirmed(
        self, shard: int, script: Script, keys: Sequence[str], args: Sequence[Argument], *, since: int | None = None
    ) -> Any:
        """The same, and what it wrote is on at least one replica, if the server has any.

        Raises FrontierUnavailable also when no replica confirmed it in time. Without a replica it goes on, and says so
        once in the log and in `unconfirmed`. A repeat that finds its work done waits for a replica just the same.
        """
        doing = f"{script.name} on shard {shard}"
        while True:
            client = await self._topology.client_of(keys[0])
            try:
                replicas = await client.replicas()
            except FrontierUnavailable:
                self._topology.doubt(client)
                raise
            if not replicas:
                if not self.unconfirmed and self.address.cluster:  # a single server is meant to be alone
                    _log.warning("%s has no replica: what it confirms is as safe as its own disk", client)
                self.unconfirmed += 1
                reply = await self.call(shard, script, keys, args, since=since)
                if self._topology.mirrored:  # where there was a replica there is soon one again: ask each time
                    client.forget_replicas()
                # One that hung or was cut off while its replica took its place does not know that yet.
                if self._topology.mirrored and not await self._topology.vouched(keys[0], client):
                    self._topology.doubt(client)
                    raise FrontierUnavailable(f"{doing}: {client} has no replica, and another may be in its place")
                return reply
            # WAIT waits for what this connection wrote. A repeated call may write nothing, and what it stands for was
            # written on another connection: a write of our own behind it makes WAIT cover both.
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
        """A plain command on the server of this key's hash tag. Raises as `call` does."""
        return (await self._route(key, [pack(command)], doing=str(command[0])))[0]

    async def everywhere(self, *command: Argument) -> list[Any]:
        """A plain command that concerns no key, on every server that holds keys, in the order of their slots."""
        try:
            return await asyncio.gather(*(client.ask(*command) for client in await self._topology.primaries()))
        except FrontierUnavailable:
            self._topology.doubt()
            raise

    def subscribe(self, channel: str, ready: asyncio.Event | None = None) -> AsyncIterator[bytes | None]:
        """What is published on this channel from now on, through every loss of the connection, without end.

        None is a gap: messages may have been missed, at the beginning, after each reconnection and when slots moved to
        another server. Look at the state, then go on. `ready` is set when the first subscription holds.
        """
        return messages(self._topology.any_client, channel, ready, listeners=self._topology.listeners)

    async def close(self) -> None:
        """End every connection; calls under way raise FrontierUnavailable. May be repeated."""
        await self._topology.close()

    # --- the way there ------------------------------------------------------------------------------------------------

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
        """Ask until the right server answers. With `wait` its answer is last.

        Only a refusal of the first command is asked again elsewhere: if the first command was carried out, only the
        caller knows how to repeat it.
        """
        client = await self._topology.client_of(key)
        asking = loading = False
        for _ in range(_REDIRECTS):
            load = script if loading else None
            replies = await self._exchange(client, packed, wait=wait, asking=asking, load=load, since=since)
            trouble = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
            if trouble is None:
                return replies
            word = border.first_word(trouble)
            if word in ("MOVED", "ASK") and trouble is not replies[0]:  # the first command was carried out
                self._topology.doubt(client)
                raise FrontierUnavailable(f"{doing}: its slot left {client} before the call could be confirmed")
            if word == "NOSCRIPT" and script is not None and not loading:
                loading = True
            elif word == "MOVED":
                client, asking = self._topology.moved(*read_redirect(str(trouble), asked=client.endpoint)), False
            elif word == "ASK" and script is not None and script.far:
                raise FrontierUnavailable(
                    f"{doing}: its slot is being moved, key by key; it goes on when all are there"
                )
            elif word == "ASK":
                client, asking = self._topology.client(read_redirect(str(trouble), asked=client.endpoint)[1]), True
            else:
                raise await self._refusal(client, trouble, doing)
        raise FrontierUnavailable(f"{doing}: sent from server to server {_REDIRECTS} times")

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
        before = [] if load is None else [pack((b"SCRIPT", b"LOAD", load.source))]
        commands = [part for one in packed for part in ((_ASKING, one) if asking else (one,))]
        patience = self._confirm_ms / 1000 if wait else 0.0
        try:
            connection = (not wait and client.ready) or await client.connection(confirmed=bool(wait))
            self._check_era(since)
            replies = await connection.ask_all(
                [*before, *commands, *([wait] if wait else [])], patience_seconds=patience
            )
        except FrontierUnavailable:
            self._topology.doubt(client)
            raise
        answers = replies[len(before) :]
        if asking:
            count = len(commands)
            answers = answers[1:count:2] + answers[count:]
        return answers

    async def _refusal(self, client: ValkeyClient, error: ReplyError, doing: str) -> FrontierError:
        if border.is_stale(error):
            self._topology.doubt(client)
        if border.first_word(error) != "OOM":
            return border.translate(error, doing=f"{doing} ({client})")
        facts = await client.facts("memory")
        used, limit = facts.get("used_memory_human", "?"), facts.get("maxmemory_human", "?")
        return FrontierFull(f"{doing}: {client} uses {used} of {limit}; raise maxmemory, or stop a crawl")
