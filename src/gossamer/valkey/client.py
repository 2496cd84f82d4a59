"""A client of one server: connections that are made when they are first needed, and made again after they broke."""

import asyncio
import hashlib
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.resources.abc import Traversable
from typing import Any

from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierUnavailable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.connection import (
    Argument,
    Reply,
    ValkeyConnection,
    pack,
    translate,
    translate_greeting,
    translate_os_error,
)

_REPLICAS_KNOWN_SECONDS = 3.0
_GIVE_UP_SECONDS = 3.0
_FIRST_PAUSE_SECONDS = 0.05
_RECONNECT_SECONDS = 1.0
"""Longest pause between two attempts to connect to a server that others wait for."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to connect: who we are, over what, and how long to wait."""

    user: str = ""
    password: str = ""
    database: int = 0
    tls: ssl.SSLContext | None = None
    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    give_up_seconds: float | None = None
    """Where there are other servers, nobody waits longer than this for one that does not answer: until it is back,
    calls to it fail at once. None: it is the only one."""

    @classmethod
    def of(cls, address: Address, *, connect_seconds: float, call_seconds: float) -> "ClientOptions":
        """What an address says about it."""
        tls = address.tls_context()
        give_up_seconds = min(_GIVE_UP_SECONDS, call_seconds) if address.cluster else None
        return cls(
            address.user, address.password, address.database, tls, connect_seconds, call_seconds, give_up_seconds
        )


class ValkeyClient:
    """One server. Nothing here repeats a call; a call that raises FrontierUnavailable may have been done."""

    def __init__(
        self,
        endpoint: Endpoint,
        manner: ClientOptions,
        on_silence: "Callable[[ValkeyClient], None] | None" = None,
        on_reconnect: Callable[[], None] | None = None,
    ) -> None:
        """`on_silence` hears of an answer that is late. `on_reconnect` is called when a connection takes the place of
        one that has ended, before anything is asked on it."""
        self.endpoint = endpoint
        self.failed_at = 0.0
        """When it last failed to answer (monotonic): others are asked first what does not need this one."""
        self._on_silence = None if on_silence is None else partial(on_silence, self)
        self._manner = manner
        beside = manner.give_up_seconds is not None
        self._ways = {
            name: _SharedConnection(self.open, on_reconnect, beside=beside) for name in ("calls", "confirmed")
        }
        self._replicas = 0
        self._replicas_known_until = 0.0
        self._closed = False

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def ready(self) -> ValkeyConnection | None:
        """The connection for calls if it is there; None means that `connection` has to make one."""
        connection = self._ways["calls"].connection
        return connection if connection is not None and connection.alive else None

    @property
    def away(self) -> bool:
        """Whether calls to it fail at once, because it did not answer others."""
        return any(way.away for way in self._ways.values())

    async def connection(self, *, confirmed: bool = False) -> ValkeyConnection:
        """The connection for calls, or the one whose writes are waited for: a WAIT holds up all that comes after it."""
        if self._closed:
            raise FrontierUnavailable(f"{self}: closed")
        return await self._ways["confirmed" if confirmed else "calls"].take()

    async def open(self) -> ValkeyConnection:
        """A connection of one's own, greeted. Raises FrontierUnavailable or ServerUnsuitable."""
        loop = asyncio.get_running_loop()
        where, manner, endpoint = str(self), self._manner, self.endpoint

        def protocol() -> ValkeyConnection:
            return ValkeyConnection(
                where,
                call_seconds=manner.call_seconds,
                on_silence=self._on_silence,
                give_up_seconds=manner.give_up_seconds,
            )

        connection: ValkeyConnection | None = None
        try:
            async with asyncio.timeout(manner.connect_seconds):
                if endpoint.path:
                    _, connection = await loop.create_unix_connection(protocol, endpoint.path)
                else:
                    _, connection = await loop.create_connection(
                        protocol,
                        endpoint.host,
                        endpoint.port,
                        ssl=manner.tls,
                        ssl_handshake_timeout=manner.connect_seconds if manner.tls else None,
                    )
                await self._greet(connection)
        except OSError as exc:
            self.failed_at = time.monotonic()
            if connection is not None:
                await connection.close()
            # A server without TLS waits for the rest of what it takes for a command, and says nothing.
            how = " over TLS (redis:// is the form without)" if manner.tls else ""
            raise translate_os_error(exc, doing=f"connecting to {self}{how}") from None
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        return connection

    async def _greet(self, connection: ValkeyConnection) -> None:
        manner = self._manner
        greetings: list[bytes] = []
        if manner.password or manner.user:
            who: tuple[str, ...] = (manner.user, manner.password) if manner.user else (manner.password,)
            greetings.append(pack(("AUTH", *who)))
        if manner.database:
            greetings.append(pack(("SELECT", manner.database)))
        greetings.append(pack(("PING",)))
        for reply in await connection.ask_all(greetings):
            if isinstance(reply, ReplyError):
                raise translate_greeting(reply, doing=f"connecting to {self}")

    async def ask(self, *command: Argument) -> Any:
        """One plain command, for what concerns this server and no key. Raises what the border makes of a refusal."""
        connection = self.ready or await self.connection()
        reply = await connection.ask(pack(command))
        if isinstance(reply, ReplyError):
            raise translate(reply, doing=f"{command[0]!s} on {self}")
        return reply

    async def facts(self, section: str) -> dict[str, str]:
        """A section of INFO, e.g. `{"redis_version": "7.2.4", …}`."""
        return read_info(await self.ask("INFO", section))

    async def replicas(self) -> int:
        """How many replicas follow this server right now, as known for at most a few seconds."""
        if time.monotonic() >= self._replicas_known_until:
            facts = await self.facts("replication")
            self._replicas = sum(
                "state=online" in value
                for name, value in facts.items()
                if name.startswith("slave") and name.removeprefix("slave").isdecimal()
            )
            self._replicas_known_until = time.monotonic() + _REPLICAS_KNOWN_SECONDS
        return self._replicas

    async def probe(self, *, grace_seconds: float) -> bool:
        """Whether it answers on a new connection and goes on saying nothing on an old one, where something is asked:
        then it has lost that one, as a firewall may have it do. A server that is busy answers neither; one that is slow
        has answered what came first, or begun to. Raises FrontierUnavailable or ServerUnsuitable: it does not answer.
        """
        connections = [way.connection for way in self._ways.values() if way.connection is not None]
        before = [(connection, connection.progress) for connection in connections if connection.asked]
        fresh = await self.open()
        await fresh.close()
        await asyncio.sleep(grace_seconds)
        return any(connection.asked and connection.progress == then for connection, then in before)

    async def hang_up(self) -> None:
        """End its connections; what is unanswered raises FrontierUnavailable. The next call makes new ones."""
        self.failed_at = time.monotonic()
        for way in self._ways.values():
            if way.connection is not None:
                await way.connection.close()

    def forget_replicas(self) -> None:
        """Ask again next time."""
        self._replicas_known_until = 0.0

    async def close(self) -> None:
        """End its connections; what is unanswered raises FrontierUnavailable. May be repeated."""
        self._closed = True
        for way in self._ways.values():
            await way.close()


def read_info(reply: Reply) -> dict[str, str]:
    """INFO's text as a dictionary; headings and empty lines left out."""
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


class _SharedConnection:
    """A connection that is made once however many tasks want it at the same time, and again when it has ended.

    `beside`: nobody waits for the second attempt to connect and the later ones. They are made beside the work.
    """

    def __init__(
        self,
        open_connection: Callable[[], Awaitable[ValkeyConnection]],
        on_reconnect: Callable[[], None] | None,
        *,
        beside: bool,
    ) -> None:
        self.connection: ValkeyConnection | None = None
        self._open = open_connection
        self._on_reconnect = on_reconnect
        self._beside = beside
        self._making = asyncio.Lock()
        self._trouble: FrontierUnavailable | None = None
        self._reconnecting: asyncio.Task[None] | None = None

    @property
    def away(self) -> bool:
        """Whether its server does not answer."""
        return self._trouble is not None or (self.connection is not None and self.connection.silent)

    async def take(self) -> ValkeyConnection:
        self._refuse()
        async with self._making:
            self._refuse()
            if self.connection is not None and self.connection.alive:
                return self.connection
            try:
                if self._beside and self.connection is not None and self.connection.silent:
                    raise FrontierUnavailable(f"{self.connection.where}: no answer")
                return await self._make()
            except FrontierUnavailable as trouble:
                if self._beside:
                    self._trouble = trouble
                    self._reconnecting = asyncio.create_task(self._reconnect())
                raise

    def _refuse(self) -> None:
        if self._trouble is not None:
            raise FrontierUnavailable(self._trouble.detail)

    async def _make(self) -> ValkeyConnection:
        connection = await self._open()
        again, self.connection = self.connection is not None, connection
        if again and self._on_reconnect is not None:
            self._on_reconnect()
        return connection

    async def _reconnect(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RECONNECT_SECONDS)
            try:
                await self._make()
            except FrontierError as trouble:
                if not isinstance(trouble, FrontierUnavailable):  # the next call finds out and says so
                    break
                self._trouble = trouble
            else:
                break
        self._trouble = self._reconnecting = None

    async def close(self) -> None:
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        async with self._making:
            if self.connection is not None:
                await self.connection.close()


_INCLUDE = re.compile(r"^-- include (\w+)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:--.*)?\n", re.MULTILINE)
_SUFFIX = ".lua"
_INCLUDES_FOLDER = "include"


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the digest under which the server caches it."""

    name: str
    source: str
    """A first line `#!lua flags=allow-oom` lets the script run when the server's memory is full (Redis 7.0 and later,
    EVAL flags)."""
    far: bool = False
    """The script touches keys of its slot that no call declares. While a slot's keys are being moved between two
    nodes, such a script can run on neither."""
    sha: bytes = field(init=False)
    """40 lower-case hexadecimal digits, as SCRIPT LOAD returns them."""

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False)
        object.__setattr__(self, "sha", digest.hexdigest().encode())


def load(folder: Traversable, *, far: bool = False) -> dict[str, Script]:
    """Return the scripts of a package's folder by name; `far` applies to all of them.

    Each `.lua` file of the folder is a command. A line `-- include name` is replaced by `include/name.lua`, once per
    command, at its first mention. Comments and empty lines are left out of the assembled source.
    Raises ValueError for an include that does not exist and for files that include each other.
    """
    commands = _read_sources(folder)
    includes_folder = folder / _INCLUDES_FOLDER
    includes = _read_sources(includes_folder) if includes_folder.is_dir() else {}
    return {
        name: Script(name, _COMMENT.sub("", _assemble(name, source, includes, set(), (name,))), far)
        for name, source in sorted(commands.items())
    }


def _read_sources(folder: Traversable) -> dict[str, str]:
    return {
        entry.name.removesuffix(_SUFFIX): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    }


def _assemble(name: str, source: str, includes: dict[str, str], done: set[str], above: tuple[str, ...]) -> str:
    def included(match: re.Match[str]) -> str:
        other = match[1]
        if other in above:
            raise ValueError(f"scripts include each other: {' -> '.join((*above, other))}")
        if other not in includes:
            raise ValueError(f"script {name} includes {other}, which does not exist")
        if other in done:
            return ""
        done.add(other)
        return _assemble(other, includes[other], includes, done, (*above, other))

    return _INCLUDE.sub(included, source)
