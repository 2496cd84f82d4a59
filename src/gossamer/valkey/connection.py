"""One connection to a server: commands go out as they come, answers come back in the same order."""

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

_SILENCE_SECONDS = 1.0
"""After so long without the answer that is due next, whoever wants to know is told, once a second."""
_HELD_UP_SECONDS = 0.5
"""A timer that is so late says that the event loop stood still."""

Argument = bytes | str | int | float

pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # its stub knows tuples of one only
"""A command and its arguments as they travel."""

Reply = Any
"""bytes, int, None, a list of replies, or a `hiredis.ReplyError` as a value: an error is an answer too."""


class ValkeyConnection(asyncio.Protocol):
    """A pipeline. Any number of tasks may ask at once; nobody waits for another's answer before asking.

    `call_seconds`: an answer that takes longer ends the connection, because what comes after it cannot be trusted to
    come at all. `where` names the server in errors. `on_silence` hears of an answer that is late; it may end
    the connection sooner.

    `give_up_seconds`: when an answer is due and nothing at all arrives for so long, nobody waits any longer. The
    connection lives on, and is `silent` until something arrives: whoever asks meanwhile is refused at once. None: an
    answer is waited for until the end.
    """

    def __init__(
        self,
        where: str,
        *,
        call_seconds: float,
        on_silence: Callable[[], None] | None = None,
        give_up_seconds: float | None = None,
    ) -> None:
        self.where = where
        self._give_up_seconds = give_up_seconds
        self.alive = False
        self.silent = False
        """The answer that is due next was given up."""
        self._call_seconds = call_seconds
        self._on_silence = on_silence
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_PARTIAL)
        self._out: list[bytes] = []
        self._waiting: deque[tuple[asyncio.Future[Reply], int, float]] = deque()
        self._collected: list[Reply] = []
        self._arrived = self._answered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        """When something arrived last."""
        self._listener: Callable[[Reply | None], None] | None = None
        self._ended = self._loop.create_future()

    @property
    def progress(self) -> tuple[int, int]:
        """Grows with everything that arrives and with every answer: the same again, while something is asked, is
        silence."""
        return self._arrived, self._answered

    @property
    def asked(self) -> bool:
        """Whether an answer is due."""
        return self.alive and bool(self._waiting)

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, packed: bytes, *, patience_seconds: float = 0.0) -> "asyncio.Future[Reply]":
        """Send one packed command; the future is its answer. `patience_seconds` is added to the time it may take.

        The future raises FrontierUnavailable when the connection ended first: nobody knows whether it was done.
        """
        return self._enqueue(packed, 0, patience_seconds)

    def ask_all(self, packed: Sequence[bytes], *, patience_seconds: float = 0.0) -> "asyncio.Future[list[Reply]]":
        """Send commands with nothing of anybody else's between them; the future is the list of their answers."""
        return self._enqueue(b"".join(packed), len(packed), patience_seconds)

    def _enqueue(self, packed: bytes, count: int, patience: float) -> "asyncio.Future[Reply]":
        if not self.alive:
            raise FrontierUnavailable(f"{self.where}: the connection has ended")
        if self.silent:
            raise FrontierUnavailable(f"{self.where}: no answer within {self._give_up_seconds:g} s")
        loop = self._loop
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append((future, count, loop.time() + self._call_seconds + patience))
        if not self._out:
            # What other tasks ask in this turn of the loop leaves with it: one system call for all of them.
            loop.call_soon(self._flush)
        self._out.append(packed)
        if self._timer is None:
            self._timer = loop.call_later(self._look_again(self._call_seconds), self._check_time)
        return future

    def _look_again(self, left: float) -> float:
        return left if self._on_silence is None else min(left, _SILENCE_SECONDS)

    def listen(self, packed: bytes, listener: Callable[[Reply | None], None]) -> None:
        """Subscribe with this packed command: from now on every message goes to `listener`, and None at the end."""
        self._listener = listener
        self.tell(packed)

    def tell(self, packed: bytes) -> None:
        """Send without expecting an answer; for a connection that listens."""
        if self._transport is not None:
            self._transport.write(packed)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.alive:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _check_time(self) -> None:
        timer, self._timer = self._timer, None
        if not self._waiting or not self.alive:
            return
        now = self._loop.time()
        if timer is not None and now - timer.when() > _HELD_UP_SECONDS:
            # This process was held up itself: what arrived meanwhile is read first.
            self._timer = self._loop.call_later(_HELD_UP_SECONDS / 2, self._check_time)
            return
        left = self._waiting[0][2] - now
        if left <= 0:
            self._end(FrontierUnavailable(f"{self.where}: no answer within {self._call_seconds:g} s"))
            return
        self._timer = self._loop.call_later(self._look_again(left), self._check_time)
        if self._on_silence is not None and left <= self._call_seconds - _SILENCE_SECONDS:
            self._on_silence()
        since = max(now + left - self._call_seconds, self._heard)
        if self._give_up_seconds is not None and now - since >= self._give_up_seconds:
            self._give_up()

    def _give_up(self) -> None:
        self.silent = True
        for future, _, _ in self._waiting:
            if not future.done():
                future.set_exception(FrontierUnavailable(f"{self.where}: no answer within {self._give_up_seconds:g} s"))

    # --- the protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it
        self.alive = True

    def data_received(self, data: bytes) -> None:
        self._arrived += 1
        self._heard = self._loop.time()
        self.silent = False
        self._reader.feed(data)
        gets = self._reader.gets
        try:
            while (reply := gets()) is not _PARTIAL:
                self._receive(reply)
        except hiredis.ProtocolError as exc:
            self._end(FrontierUnavailable(f"{self.where}: this is no Redis protocol ({exc})"))

    def _receive(self, reply: Reply) -> None:
        if self._listener is not None:
            self._listener(reply)
            return
        if not self._waiting:
            # A server may say why it hangs up (too many clients, protected mode) before anything is asked.
            self._end(FrontierUnavailable(f"{self.where}: {reply}"))
            return
        future, count, _ = self._waiting[0]
        if count:
            self._collected.append(reply)
            if len(self._collected) < count:
                return
            reply, self._collected = self._collected, []
        self._waiting.popleft()
        self._answered += 1
        if not future.done():  # a task that was cancelled no longer waits; its answer still had to be read
            future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(FrontierUnavailable(f"{self.where}: the connection was lost" + (f" ({exc})" if exc else "")))
        if not self._ended.done():
            self._ended.set_result(None)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, error: FrontierUnavailable) -> None:
        if not self.alive:
            return
        self.alive = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for future, _, _ in waiting:
            if not future.done():
                future.set_exception(FrontierUnavailable(error.detail))
        if self._listener is not None:
            self._listener(None)

    async def close(self) -> None:
        """End it; what is still unanswered raises FrontierUnavailable. May be repeated."""
        self._end(FrontierUnavailable(f"{self.where}: closed"))
        if self._transport is not None:
            await asyncio.shield(self._ended)


T = TypeVar("T")


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    on_trouble: Callable[[FrontierUnavailable, int], None] | None = None,
    give_up_seconds: float | None = None,
    chance: Callable[[], float] = random.random,
) -> T:
    """Repeat `call` until it does not raise FrontierUnavailable; it must be one that may be repeated.

    `on_trouble` hears of every failure at once, before the pause, with its number from 1. After `give_up_seconds`
    (None: never) the last failure is raised. Cancelling ends it between two calls or within one.
    """
    loop = asyncio.get_running_loop()
    last = None if give_up_seconds is None else loop.time() + give_up_seconds
    attempt = 0
    while True:
        try:
            return await call()
        except FrontierUnavailable as exc:
            attempt += 1
            if on_trouble is not None:
                on_trouble(exc, attempt)
            pause = outage_pause(attempt, random=chance())
            if last is not None and loop.time() + pause > last:
                raise
        await asyncio.sleep(pause)


_PASSING = frozenset(
    {"LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS", "UNBLOCKED"}
)
"""First words of refusals that pass by themselves, or when a person made room: repeat the call."""

_STALE = frozenset({"CLUSTERDOWN", "MASTERDOWN", "READONLY"})
"""First words that say that another node may serve the slot by now."""

_ADVICE = {
    "NOAUTH": "it asks for a password: write it into the address, redis://:PASSWORD@host:port",
    "WRONGPASS": "it does not know this user and password; check them in the address",
    "NOPERM": "its access list forbids this user something the frontier needs "
    "(~<prefix>* &<prefix>* +@read +@write +@scripting +@pubsub +@connection +wait +info +config|get +cluster)",
    "DENIED": "it is in protected mode: give it a password, or bind it to an address that only your machines reach",
}

_DISK_FULL = "MISCONF"


def first_word(error: ReplyError) -> str:
    """The error's code: `MOVED`, `OOM`, `ERR` …"""
    return str(error).partition(" ")[0]


def is_stale(error: ReplyError) -> bool:
    """Whether this refusal says that the map of slots may be out of date."""
    return first_word(error) in _STALE


def translate(error: ReplyError, *, doing: str) -> FrontierError:
    """Our error for a server's refusal. `doing`: what was asked of which server, for the person who reads it."""
    word, text = first_word(error), str(error)
    if word in _ADVICE:
        return ServerUnsuitable(f"{doing}: {_ADVICE[word]} ({text})")
    if word == _DISK_FULL:
        return FrontierUnavailable(f"{doing}: the server cannot write to its disk; make room there ({text})")
    if word in _PASSING or text.startswith("ERR max number of clients"):
        return FrontierUnavailable(f"{doing}: {text}")
    return FrontierError(f"{doing}: {text}")


def translate_greeting(error: ReplyError, *, doing: str) -> FrontierError:
    """The same for AUTH and SELECT, where what does not pass by itself is a mistake in the address."""
    translated = translate(error, doing=doing)
    if type(translated) is FrontierError:
        return ServerUnsuitable(f"{doing}: check user, password and database in the address ({error})")
    return translated


def translate_os_error(error: OSError, *, doing: str) -> FrontierError:
    """Our error for a connection that did not come about, or ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        return ServerUnsuitable(f"{doing}: its certificate is not trusted ({reason}); ?ssl_ca_certs=FILE names its CA")
    if isinstance(error, ssl.SSLError):
        return ServerUnsuitable(f"{doing}: no TLS came about ({error.reason}); redis:// is the form without TLS")
    if isinstance(error, TimeoutError) and not error.strerror:
        return FrontierUnavailable(f"{doing}: no answer in time")
    return FrontierUnavailable(f"{doing}: {error.strerror or error}")
