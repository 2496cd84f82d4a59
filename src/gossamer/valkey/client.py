"""Client of one Valkey or Redis server.

Connections are made when they are first needed, and again after they broke.

Fixed: calls that end with WAIT have a connection of their own; a connection that replaces another is reported before
any call is sent on it, because what was learned before may be lost; nothing here repeats a call.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierUnavailable
from gossamer.valkey.address import Address, Endpoint
from gossamer.valkey.connection import (
    Argument,
    Reply,
    ValkeyConnection,
    pack,
    translate_error,
    translate_login_error,
    translate_os_error,
)

CONNECT_SECONDS = 5.0
"""Default limit for making a connection, log-in included. Longer for servers that are far away."""
CALL_SECONDS = 30.0
"""Default time after which the reply to a call counts as lost and the connection is closed. Longer detects a lost
connection later, shorter gives up calls to a busy server. It must exceed the longest script."""
OLDEST_VERSION = (7, 0)
"""Oldest version of a server, in terms of Redis, that has all that the scripts need (flags of EVAL, HRANDFIELD). May
only rise."""
_REPLICAS_KNOWN_SECONDS = 3.0
"""Time for which the number of replicas is cached. With a longer one, writes stay unconfirmed for longer after a first
replica has joined; a shorter one sends more INFO."""
_FAIL_FAST_SECONDS = 3.0
"""Longest wait for a node of a cluster that sends nothing (`ClientOptions.fail_fast_seconds`). Longer holds up work on
other nodes longer; a shorter one than a script or a fork takes fails calls that would be answered."""

# Pauses between attempts to reconnect in the background: the first, doubling to the longest. Shorter ones notice a
# server that is back earlier, and try a dead one more often.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class ClientOptions(msgspec.Struct, frozen=True):
    """Credentials, TLS and time limits of a client."""

    # Empty user and password: no log-in. Database 0 is the server's default.
    user: str = ""
    password: str = ""
    database: int = 0
    tls: ssl.SSLContext | None = None
    connect_seconds: float = CONNECT_SECONDS
    call_seconds: float = CALL_SECONDS
    fail_fast_seconds: float | None = None
    """For a node of a cluster: longest wait for a server that sends nothing. Until it answers again, calls to it fail
    at once and the client reconnects in the background. None for a single server: calls wait."""

    @classmethod
    def from_address(cls, address: Address, *, connect_seconds: float, call_seconds: float) -> "ClientOptions":
        """Return the options for this address. Raises BadInput for a certificate file that cannot be used."""
        tls = address.tls_context()
        fail_fast_seconds = min(_FAIL_FAST_SECONDS, call_seconds) if address.cluster else None
        return cls(
            address.user, address.password, address.database, tls, connect_seconds, call_seconds, fail_fast_seconds
        )


class ValkeyClient:
    """Client of one server. It never repeats a call; one that raises FrontierUnavailable may have been carried out."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: ClientOptions,
        on_late_reply: "Callable[[ValkeyClient], None] | None" = None,
        on_reconnect: Callable[[], None] | None = None,
    ) -> None:
        """`on_late_reply` is called with this client, again and again, while a reply is late. `on_reconnect` is called
        when a connection replaces one that has ended, before any call is sent on it."""
        self.endpoint = endpoint
        self.failed_at = 0.0
        """Monotonic time of the last failure to connect or reply. Other servers are preferred for a while."""
        self._on_late_reply = None if on_late_reply is None else partial(on_late_reply, self)
        self._options = options
        # Nodes of a cluster are reconnected in the background, so that calls to the others need not wait for one.
        in_background = options.fail_fast_seconds is not None
        self._connections = {
            name: _SharedConnection(self.connect, on_reconnect, in_background=in_background)
            for name in ("calls", "confirmed")
        }
        self._replicas = 0
        self._replicas_known_until = 0.0
        self.load = 0.0
        """Share of a core that the server's main thread used between the last two questions for its replicas, 0 to 1. 0
        where it is not known."""
        self._cpu_read: tuple[float, float] | None = None
        """Monotonic time and CPU seconds of the server at the last question."""
        self._closed = False

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def ready_connection(self) -> ValkeyConnection | None:
        """The connection for calls; None when `connection` has to make one."""
        connection = self._connections["calls"].connection
        return connection if connection is not None and connection.alive else None

    @property
    def unavailable(self) -> bool:
        """True while calls to this server fail at once, because it did not answer earlier ones."""
        return any(shared.unavailable for shared in self._connections.values())

    async def connection(self, *, confirmed: bool = False) -> ValkeyConnection:
        """Return the connection for calls, or the `confirmed` one for calls that end with WAIT.

        WAIT blocks every command after it on the same connection, so other calls do not share that connection.
        """
        if self._closed:
            raise FrontierUnavailable(f"{self}: closed")
        return await self._connections["confirmed" if confirmed else "calls"].get()

    async def connect(self) -> ValkeyConnection:
        """Return a new connection that is logged in and not shared. Raises FrontierUnavailable or ServerUnsuitable."""
        loop = asyncio.get_running_loop()
        where, options, endpoint = str(self), self._options, self.endpoint

        def protocol() -> ValkeyConnection:
            return ValkeyConnection(
                where,
                call_seconds=options.call_seconds,
                on_late_reply=self._on_late_reply,
                fail_fast_seconds=options.fail_fast_seconds,
            )

        connection: ValkeyConnection | None = None
        try:
            async with asyncio.timeout(options.connect_seconds):
                if endpoint.path:
                    _, connection = await loop.create_unix_connection(protocol, endpoint.path)
                else:
                    _, connection = await loop.create_connection(
                        protocol,
                        endpoint.host,
                        endpoint.port,
                        ssl=options.tls,
                        ssl_handshake_timeout=options.connect_seconds if options.tls else None,
                    )
                await self._log_in(connection)
        except OSError as exc:
            self.failed_at = time.monotonic()
            if connection is not None:
                await connection.close()
            # A server without TLS takes the handshake for the beginning of a command, and sends no error.
            how = " over TLS (redis:// is the address without TLS)" if options.tls else ""
            raise translate_os_error(exc, doing=f"connecting to {self}{how}") from None
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        return connection

    async def _log_in(self, connection: ValkeyConnection) -> None:
        """Send the credentials, the number of the database, and a PING, which fails while the server loads its data."""
        options = self._options
        commands: list[bytes] = []
        if options.password or options.user:
            credentials: tuple[str, ...] = (options.user, options.password) if options.user else (options.password,)
            commands.append(pack(("AUTH", *credentials)))
        if options.database:
            commands.append(pack(("SELECT", options.database)))
        commands.append(pack(("PING",)))
        for reply in await connection.send_all(commands):
            if isinstance(reply, ReplyError):
                raise translate_login_error(reply, doing=f"connecting to {self}")

    async def command(self, *command: Argument) -> Any:
        """Run a command that concerns this server and no key. Raises a FrontierError (see `translate_error`)."""
        connection = self.ready_connection or await self.connection()
        reply = await connection.send(pack(command))
        if isinstance(reply, ReplyError):
            raise translate_error(reply, doing=f"{command[0]!s} on {self}")
        return reply

    async def info(self, *sections: str) -> dict[str, str]:
        """Return sections of INFO, e.g. `{"redis_version": "7.2.4", …}`."""
        return read_info(await self.command("INFO", *sections))

    async def replicas(self) -> int:
        """Return the number of online replicas of this server; the answer may be _REPLICAS_KNOWN_SECONDS old."""
        if time.monotonic() >= self._replicas_known_until:
            fields = await self.info("replication", "cpu")
            self._replicas = sum(
                "state=online" in value
                for name, value in fields.items()
                if name.startswith("slave") and name.removeprefix("slave").isdecimal()
            )
            now = time.monotonic()
            self._replicas_known_until = now + _REPLICAS_KNOWN_SECONDS
            self._note_cpu(now, fields)
        return self._replicas

    def _note_cpu(self, now: float, fields: Mapping[str, str]) -> None:
        """Record the CPU time of the server, and its load since the last record. A server that hides it has no load,
        and one that has started again has none until the next record."""
        whose = "_main_thread" if "used_cpu_user_main_thread" in fields else ""  # only Linux tells them apart
        used = [float(fields.get(f"used_cpu_{kind}{whose}", 0.0)) for kind in ("user", "sys")]
        if self._cpu_read is not None:
            read_at, used_before = self._cpu_read
            self.load = max(0.0, sum(used) - used_before) / max(now - read_at, _REPLICAS_KNOWN_SECONDS / 2)
        self._cpu_read = now, sum(used)

    async def has_lost_connection(self, *, grace_seconds: float) -> bool:
        """Return whether the server no longer knows one of our connections, for example because a firewall dropped it.

        That is so when the server answers on a new connection, and `grace_seconds` later still nothing has come on an
        old one with pending calls: no part of a reply, as `progress` counts them. (A busy server answers on neither; a
        slow one has begun to answer on the old one.) Raises FrontierUnavailable or ServerUnsuitable when it does not
        answer on the new connection.
        """
        connections = [shared.connection for shared in self._connections.values() if shared.connection is not None]
        progress_before = [(connection, connection.progress) for connection in connections if connection.has_pending]
        fresh = await self.connect()
        await fresh.close()
        await asyncio.sleep(grace_seconds)
        return any(connection.has_pending and connection.progress == before for connection, before in progress_before)

    async def disconnect(self) -> None:
        """Close the connections; pending calls raise FrontierUnavailable. The next call makes new connections."""
        self.failed_at = time.monotonic()
        for shared in self._connections.values():
            if shared.connection is not None:
                await shared.connection.close()

    def forget_replicas(self) -> None:
        """Make the next `replicas` ask the server."""
        self._replicas_known_until = 0.0

    async def close(self) -> None:
        """Close the connections for good; pending calls raise FrontierUnavailable. May be called again."""
        self._closed = True
        for shared in self._connections.values():
            await shared.close()


def read_info(reply: Reply) -> dict[str, str]:
    """Return the text of INFO as a dictionary, without headings and empty lines."""
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


class _SharedConnection:
    """A connection that many tasks share. It is made by the first `get`, and again after it has ended.

    When an attempt to connect fails, `get` raises the failure. What the next `get` does depends on `in_background`:
    False: it tries to connect, and its caller waits. True: it raises that failure at once, until a background task has
    connected.
    """

    def __init__(
        self,
        open_connection: Callable[[], Awaitable[ValkeyConnection]],
        on_reconnect: Callable[[], None] | None,
        *,
        in_background: bool,
    ) -> None:
        self.connection: ValkeyConnection | None = None
        self._open = open_connection
        self._on_reconnect = on_reconnect
        self._in_background = in_background
        self._lock = asyncio.Lock()
        self._failure: FrontierUnavailable | None = None
        """Last failure while the background task tries to connect: calls raise it. None: `get` may connect."""
        self._reconnecting: asyncio.Task[None] | None = None

    @property
    def unavailable(self) -> bool:
        """True while calls fail at once."""
        return self._failure is not None or (self.connection is not None and self.connection.unresponsive)

    async def get(self) -> ValkeyConnection:
        """Return the connection, made if there is none. Raises FrontierUnavailable or ServerUnsuitable."""
        self._raise_if_failing()
        async with self._lock:
            self._raise_if_failing()
            if self.connection is not None and self.connection.alive:
                return self.connection
            try:
                # The last connection ended while the server did not answer (`unresponsive`). Probably it does not
                # answer now, either, so the caller does not wait for an attempt. The error is handled below like that
                # of a failed attempt: the background task connects.
                if self._in_background and self.connection is not None and self.connection.unresponsive:
                    raise FrontierUnavailable(f"{self.connection.server}: no answer")
                return await self._make()
            except FrontierUnavailable as failure:
                if self._in_background:
                    self._failure = failure
                    self._reconnecting = asyncio.create_task(self._reconnect())
                raise

    def _raise_if_failing(self) -> None:
        if self._failure is not None:
            raise FrontierUnavailable(self._failure.detail)

    async def _make(self) -> ValkeyConnection:
        """Open the connection. Callers of `get` receive it only after `on_reconnect`."""
        connection = await self._open()
        replaces_another = self.connection is not None
        self.connection = connection
        if replaces_another and self._on_reconnect is not None:
            self._on_reconnect()
        return connection

    async def _reconnect(self) -> None:
        """Try to connect until that succeeds, or fails for another reason than an unreachable server, such as a wrong
        password. Then `get` may connect again: it fails for the same reason, and its caller sees the error."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            try:
                await self._make()
            except FrontierError as failure:
                if not isinstance(failure, FrontierUnavailable):
                    break
                self._failure = failure
            else:
                break
        self._failure = self._reconnecting = None

    async def close(self) -> None:
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        async with self._lock:
            if self.connection is not None:
                await self.connection.close()
