"""One pipelined connection to a Valkey or Redis server, and the translation of its errors into Gossamer's.

Commands are sent as they come; replies arrive in the same order.

Must hold: every command that is written has its place in `_pending`, in the order of writing, until its reply is read,
even if its caller has gone; one place too few or too many would give every later caller the reply of another. So a
connection on which a reply may be lost is ended and never used again.
"""

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

import hiredis
from hiredis import ReplyError

from gossamer.errors import FrontierError, FrontierUnavailable, ServerUnsuitable
from gossamer.policy.retry import outage_pause

_PARTIAL: Final = object()
"""Returned by the reader while a reply is incomplete. May be any object that is not a reply."""

_LATE_SECONDS = 1.0
"""Age at which the next reply counts as late. From then on `on_late_reply` is called once in each such period. Longer
delays the detection of a lost connection or of a cluster that has moved its data, shorter checks servers that are
merely slow."""
_LOOP_STALL_SECONDS = 0.5
"""Delay of a timer that means that this process's event loop stood still, so that replies may have arrived unread.
Longer may fail calls that were answered, shorter delays the detection of a silent server under load."""

Argument = bytes | str | int | float

pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # its stub takes 1-tuples only
"""Encode a command and its arguments for the wire."""

Reply = Any
"""bytes, int, None, a list of replies, or a `hiredis.ReplyError`: error replies are values and are not raised."""


class ValkeyConnection(asyncio.Protocol):
    """A pipelined connection. Any number of tasks may send at once, without waiting for each other's replies.

    `server` names the server in errors. `call_seconds`: a reply that takes longer ends the connection, because later
    replies may never come. `on_late_reply` is called when a reply is late, and may end the connection sooner.

    `fail_fast_seconds`: when a reply is due and no data arrives for this time, all pending calls fail. This is checked
    every _LATE_SECONDS, so a failure may come that much later. The connection stays open and is `unresponsive`
    until data arrives; meanwhile new calls fail at once. None: calls wait for `call_seconds`.
    """

    def __init__(
        self,
        server: str,
        *,
        call_seconds: float,
        on_late_reply: Callable[[], None] | None = None,
        fail_fast_seconds: float | None = None,
    ) -> None:
        self.server = server
        self._fail_fast_seconds = fail_fast_seconds
        self.alive = False
        """True from the time the connection is made until it ends."""
        self.unresponsive = False
        """True while the pending calls have failed and no data has arrived since."""
        self._call_seconds = call_seconds
        self._on_late_reply = on_late_reply
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_PARTIAL)
        self._out: list[bytes] = []
        self._pending: deque[tuple[asyncio.Future[Reply], int, float, float]] = deque()
        """Pending calls, oldest first: (future, number of commands, deadline, seconds until it). The number is
        0 for `send`, whose result is the single reply itself and not a list."""
        self._collected: list[Reply] = []
        """Replies so far of the first pending call, if that has several commands."""
        self._chunks = self._replies = 0
        """Numbers of chunks of data and of replies that were received."""
        self._timer: asyncio.TimerHandle | None = None
        self._last_received = 0.0
        """Time of the last data, on the event loop's clock."""
        self._subscriber: Callable[[Reply | None], None] | None = None
        """Gets all replies instead of `_pending`, once the connection subscribes."""
        self._disconnected = self._loop.create_future()

    @property
    def progress(self) -> tuple[int, int]:
        """Counts of received chunks and replies. While calls are pending, an unchanged value means that nothing
        came."""
        return self._chunks, self._replies

    @property
    def has_pending(self) -> bool:
        """True while a reply is due."""
        return self.alive and bool(self._pending)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, packed: bytes) -> "asyncio.Future[Reply]":
        """Send one packed command; the future has its reply.

        Raises FrontierUnavailable at once, without sending the command, if the connection has ended or is
        unresponsive. If the connection ends or becomes unresponsive later, the future raises FrontierUnavailable: then
        the server may have executed the command.
        """
        return self._enqueue(packed, 0, 0.0)

    def send_all(self, packed: Sequence[bytes], *, extra_seconds: float = 0.0) -> "asyncio.Future[list[Reply]]":
        """Send commands without any other task's command between them; the future has the list of their replies.

        `extra_seconds`: time for which the commands may block on the server (WAIT). It is added to `call_seconds`, and
        no reply counts as late before it is over. Errors are those of `send`.
        """
        return self._enqueue(b"".join(packed), len(packed), extra_seconds)

    def _enqueue(self, packed: bytes, count: int, extra_seconds: float) -> "asyncio.Future[Reply]":
        """Write the commands at the end of this turn of the event loop. `count`: see `_pending`."""
        if not self.alive:
            raise FrontierUnavailable(f"{self.server}: the connection has ended")
        if self.unresponsive:
            raise FrontierUnavailable(f"{self.server}: no answer within {self._fail_fast_seconds:g} s")
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        seconds = self._call_seconds + extra_seconds
        self._pending.append((future, count, loop.time() + seconds, seconds))
        if not self._out:
            # Commands of other tasks in this turn of the loop are sent with this one, in one system call.
            loop.call_soon(self._flush)
        self._out.append(packed)
        if self._timer is None:
            self._timer = loop.call_later(self._next_check(self._call_seconds), self._check_deadlines)
        return future

    def _next_check(self, left: float) -> float:
        """Return the seconds until `_check_deadlines` runs, when the first pending call has `left` seconds."""
        checks_early = self._on_late_reply is not None or self._fail_fast_seconds is not None
        return min(left, _LATE_SECONDS) if checks_early else left

    def subscribe(self, packed: bytes, subscriber: Callable[[Reply | None], None]) -> None:
        """Send this packed SUBSCRIBE. `subscriber` then gets every message, and None when the connection ends.

        From then on the connection is for nothing else: `send` would never get its reply.
        """
        self._subscriber = subscriber
        self.write(packed)

    def write(self, packed: bytes) -> None:
        """Send a packed command whose reply goes to the subscriber. For connections that `subscribe`.

        Does nothing if the connection has ended: the subscriber has got its None.
        """
        if self._transport is not None and self.alive:
            self._transport.write(packed)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.alive:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _check_deadlines(self) -> None:
        """Judge the first pending call, whose reply comes first. The cases:

        - this event loop stood still: judge again after reading what arrived in the meantime
        - the call's deadline has passed: the connection ends
        - the reply is late: `on_late_reply` is called
        - the server is silent, too (`fail_fast_seconds`): all pending calls fail, and the connection stays open
        """
        timer, self._timer = self._timer, None
        if not self._pending or not self.alive:
            return
        now = self._loop.time()
        if timer is not None and now - timer.when() > _LOOP_STALL_SECONDS:
            self._timer = self._loop.call_later(_LOOP_STALL_SECONDS / 2, self._check_deadlines)
            return
        _, _, deadline, seconds = self._pending[0]
        left = deadline - now
        if left <= 0:
            self._end(FrontierUnavailable(f"{self.server}: no answer within {seconds:g} s"))
            return
        self._timer = self._loop.call_later(self._next_check(left), self._check_deadlines)
        if self._on_late_reply is not None and left <= self._call_seconds - _LATE_SECONDS:
            self._on_late_reply()
        due = deadline - self._call_seconds  # when the call was sent, or the end of the time for which it may block
        silent_since = max(due, self._last_received)
        if self._fail_fast_seconds is not None and now - silent_since >= self._fail_fast_seconds:
            self._fail_pending()

    def _fail_pending(self) -> None:
        """Fail the pending calls, but keep their places: their replies may still come, and must be read."""
        self.unresponsive = True
        detail = f"{self.server}: no answer within {self._fail_fast_seconds:g} s"
        for future, *_ in self._pending:
            if not future.done():
                future.set_exception(FrontierUnavailable(detail))

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from this class
        self.alive = True

    def data_received(self, data: bytes) -> None:
        self._chunks += 1
        self._last_received = self._loop.time()
        self.unresponsive = False
        self._reader.feed(data)
        gets = self._reader.gets
        try:
            while (reply := gets()) is not _PARTIAL:
                self._receive(reply)
        except hiredis.ProtocolError as exc:
            self._end(FrontierUnavailable(f"{self.server}: this is not the Redis protocol ({exc})"))

    def _receive(self, reply: Reply) -> None:
        """Hand a reply to the subscriber, or to the first pending call once that has all its replies."""
        if self._subscriber is not None:
            self._subscriber(reply)
            return
        if not self._pending:
            # A server may send the reason why it disconnects (too many clients, protected mode) before any command.
            self._end(FrontierUnavailable(f"{self.server}: {reply}"))
            return
        future, count, _, _ = self._pending[0]
        if count:
            self._collected.append(reply)
            if len(self._collected) < count:
                return
            reply, self._collected = self._collected, []
        self._pending.popleft()
        self._replies += 1
        if not future.done():  # the reply of a cancelled task had to be read, too
            future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(FrontierUnavailable(f"{self.server}: the connection was lost" + (f" ({exc})" if exc else "")))
        if not self._disconnected.done():
            self._disconnected.set_result(None)

    # --- closing ------------------------------------------------------------------------------------------------------

    def _end(self, error: FrontierUnavailable) -> None:
        """Close the connection; all pending calls fail with this error. Does nothing if it has ended."""
        if not self.alive:
            return
        self.alive = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for future, *_ in pending:
            if not future.done():
                future.set_exception(FrontierUnavailable(error.detail))
        if self._subscriber is not None:
            self._subscriber(None)

    async def close(self) -> None:
        """Close the connection; pending calls raise FrontierUnavailable. May be called again."""
        self._end(FrontierUnavailable(f"{self.server}: closed"))
        if self._transport is not None:
            await asyncio.shield(self._disconnected)


T = TypeVar("T")


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    on_trouble: Callable[[FrontierUnavailable, int], None] | None = None,
    timeout_seconds: float | None = None,
    chance: Callable[[], float] = random.random,
) -> T:
    """Repeat `call` until it does not raise FrontierUnavailable, and return its result. `call` must be idempotent.

    `on_trouble` is called at every failure, before the pause, with the failure and its number from 1. After
    `timeout_seconds` the last failure is raised; None: never. `chance` returns the jitter of a pause, 0 to 1.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
    attempt = 0
    while True:
        try:
            return await call()
        except FrontierUnavailable as exc:
            attempt += 1
            if on_trouble is not None:
                on_trouble(exc, attempt)
            pause = outage_pause(attempt, random=chance())
            if deadline is not None and loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)


_TEMPORARY_ERRORS = frozenset(
    {"LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "UNBLOCKED"}
)
"""Codes of errors that pass by themselves, or when a person makes room on the disk: the call may be repeated. Codes may
be added if a repetition can help: callers repeat without a limit. The servers define all codes below."""

_STALE_SLOTS_ERRORS = frozenset({"CLUSTERDOWN", "MASTERDOWN", "READONLY"})
"""Codes of errors after which another node may serve the slot (the part of a cluster's keys that one node has). A code
that is missing here delays a failover; one too many costs a read of the map of slots."""

_ADVICE = {
    "NOAUTH": "it asks for a password: write it into the address, redis://:PASSWORD@host:port, in GOSSAMER_FRONTIER or "
    "a file of settings rather than on a command line, which other users can read",
    "WRONGPASS": "it does not know this user and password; check them in the address",
    "NOPERM": "its access list forbids this user a command that the frontier needs "
    "(~<prefix>* &<prefix>* +@read +@write +@scripting +@pubsub +@connection +wait +info +config|get +cluster)",
    "DENIED": "it is in protected mode: give it a password, or bind it to an address that only your machines reach",
}
"""Codes of errors that a person has to mend, with the advice. Calls that fail with one are not repeated."""

_DISK_FULL = "MISCONF"
"""Code of the error of a server that cannot write its data to the disk: one of _TEMPORARY_ERRORS, with a message of its
own. The servers define it."""


def error_code(error: ReplyError) -> str:
    """Return the code of a server's error: `MOVED`, `OOM`, `ERR` …"""
    return str(error).partition(" ")[0]


def means_stale_slots(error: ReplyError) -> bool:
    """Return whether the map of slots may be out of date after this error."""
    return error_code(error) in _STALE_SLOTS_ERRORS


def translate_error(error: ReplyError, *, doing: str) -> FrontierError:
    """Return Gossamer's error for an error of the server. `doing` names the command and the server in the message."""
    code, text = error_code(error), str(error)
    if code in _ADVICE:
        return ServerUnsuitable(f"{doing}: {_ADVICE[code]} ({text})")
    if code == _DISK_FULL:
        return FrontierUnavailable(f"{doing}: the server cannot write to its disk; make room there ({text})")
    if code in _TEMPORARY_ERRORS or text.startswith("ERR max number of clients"):
        return FrontierUnavailable(f"{doing}: {text}")
    return FrontierError(f"{doing}: {text}")


def translate_login_error(error: ReplyError, *, doing: str) -> FrontierError:
    """Return Gossamer's error for a failed AUTH or SELECT: unless temporary, it is a mistake in the address."""
    translated = translate_error(error, doing=doing)
    if type(translated) is FrontierError:
        return ServerUnsuitable(f"{doing}: check user, password and database in the address ({error})")
    return translated


def translate_os_error(error: OSError, *, doing: str) -> FrontierError:
    """Return Gossamer's error for a connection that could not be made or has ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        return ServerUnsuitable(f"{doing}: its certificate is not trusted ({reason}); ?ssl_ca_certs=FILE names its CA")
    if isinstance(error, ssl.SSLError):
        return ServerUnsuitable(f"{doing}: TLS failed ({error.reason}); redis:// is the address without TLS")
    if isinstance(error, TimeoutError) and not error.strerror:
        return FrontierUnavailable(f"{doing}: no answer in time")
    return FrontierUnavailable(f"{doing}: {error.strerror or error}")
