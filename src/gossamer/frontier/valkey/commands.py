"""Calls of Lua scripts and plain commands on the shards of one frontier. A shard is one of the parts into which the
frontier's keys are divided; several may be on one server.

Also keeps each shard's time even: a call whose shard shows another time than this process expects is not carried out,
because the server's clock was set or the call was held up.

Fixed: every script gets the shard's prefix as its only key, and first the time and the frontier's prefix as arguments
(include/shard.lua reads them). The tolerances are in policy/server_clock.py and shard.lua.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from gossamer.frontier.valkey.keys import ShardKeys
from gossamer.policy.server_clock import ServerClock
from gossamer.telemetry import logs
from gossamer.valkey.scripts import Scripts
from gossamer.valkey.shards import Shards

SCRIPTS = Scripts(Path(__file__).with_name("scripts"), undeclared_keys=True)

Argument = bytes | str | int | float

T = TypeVar("T")

_WRONG_TIME = b"CLOCK"
"""Answer of a script (shard.lua) that did nothing, because the shard's time is not what the caller expected."""

# First argument of a script, as shard.lua reads it; both are fixed. In tests that set the time, it is that time
# instead.
_ANY_TIME = ""
_EXPECTED_TIME = "~"
"""Prefix of the time that the caller expects, in ms."""

log = logging.getLogger("gossamer.frontier")


class ScriptCommands:
    """Scripts and commands of one frontier."""

    def __init__(self, shards: Shards, *, prefix: str, count: int, clock: Callable[[], float] | None = None) -> None:
        """`clock` (epoch seconds) replaces the servers' clocks, for tests only."""
        self.shards = shards
        """Connections to the servers."""
        self.prefix = prefix
        """Prefix of all keys and channels of the frontier."""
        self.count = count
        """Number of shards."""
        self.keys = [ShardKeys(prefix, shard) for shard in range(count)]
        self._bases = [[keys.base] for keys in self.keys]
        self._clock = clock
        self._process = secrets.token_hex(8)
        """Name under which the shards note the agreement of this process's clock with theirs."""
        self._server_clocks = [ServerClock() for _ in range(count)]
        self._clock_locks = [asyncio.Lock() for _ in range(count)]

    @property
    def has_own_clock(self) -> bool:
        """True in tests that set the time themselves."""
        return self._clock is not None

    async def call(
        self, shard: int, script: str, *arguments: Argument, confirmed: bool = False, since: int | None = None
    ) -> Any:
        """Run a script. Raises FrontierUnavailable when the script may or may not have run: repeat the call.

        `confirmed`: wait until its writes are on a replica where there is one. `since`: a data epoch, which ends when
        the frontier may have lost confirmed writes. Raises FrontierForgot, without a call, when a later one has begun.

        The script gets the time that this process expects on the shard, and does nothing when the shard's time is
        another one. Then the server's clock was set, and the shard's offset is corrected, or the call was held up on
        its way; the call is made again without an expected time.
        """
        clock, called_at = self._server_clocks[shard], _steady()
        if self._clock is not None:
            now = repr(self._clock() * 1000)
        else:
            if clock.is_due(called_at):
                await self._compare_clocks(shard, since=called_at)
                called_at = _steady()
            expected = clock.expected(called_at)
            assert expected is not None  # after the comparison
            now = f"{_EXPECTED_TIME}{_ms(expected)}"
        while True:
            reply = await self.shards.call(
                shard, SCRIPTS[script], self._bases[shard], [now, self.prefix, *arguments],
                confirmed=confirmed, since=since,
            )  # fmt: skip
            if reply != _WRONG_TIME:
                return reply
            await self._compare_clocks(shard, since=called_at, even_if_not_due=True)
            now = _ANY_TIME

    def load(self, shard: int) -> float:
        """Return the share of a core that the shard's server used lately, 0 to 1. 0: it is not known."""
        return self.shards.load(self._bases[shard][0])

    async def everywhere(self, script: str, *arguments: Argument) -> list[Any]:
        """Run a script on every shard."""
        return await asyncio.gather(*(self.call(shard, script, *arguments) for shard in range(self.count)))

    async def plain(self, shard: int, *command: Argument) -> Any:
        """Run a plain command, such as HGETALL, on the server that holds the shard."""
        return await self.shards.command(self._bases[shard][0], *command)

    # --- the servers' clocks ------------------------------------------------------------------------------------------

    async def _compare_clocks(self, shard: int, *, since: float, even_if_not_due: bool = False) -> None:
        """Compare the shard's time with this process's clock, unless another call has done so `since`.

        The lock makes concurrent calls share one comparison. `corrections` (the number of corrections of the shard's
        time that this process knows of) makes the shard refuse a correction that another process has made already.
        """
        clock = self._server_clocks[shard]
        async with self._clock_locks[shard]:
            if not clock.is_due(since) and not (even_if_not_due and clock.compared_at <= since):
                return
            sent = _steady()
            server_time, corrections, corrected = await self._read_time(shard, clock.expected(sent))
            wanted = clock.compare(sent=sent, received=_steady(), server_time=server_time, corrections=corrections)
            if wanted:
                sent = _steady()
                server_time, corrections, corrected = await self._read_time(
                    shard, clock.expected(sent), _ms(wanted), corrections
                )
                clock.adopt(sent=sent, received=_steady(), server_time=server_time, corrections=corrections)
        if corrected:
            log.warning(
                "%s The clock of the frontier's server (shard %d) was set %s by %.1f s. The frontier's time goes on.",
                logs.CLOCK_SET, shard, "back" if corrected > 0 else "forward", abs(corrected),
            )  # fmt: skip

    async def _read_time(
        self, shard: int, expected: float | None, wanted: str = "", corrections: int = 0
    ) -> tuple[float, int, float]:
        """Return the shard's time (s), the number of its corrections, and by how much it was corrected now (s).

        `wanted`: ms by which to correct it; empty: not at all.
        """
        arguments: list[Argument] = [_ANY_TIME, self.prefix, self._process]
        arguments += ["" if expected is None else _ms(expected), wanted, corrections]
        now_ms, count, corrected_ms = await self.shards.call(shard, SCRIPTS["clock"], self._bases[shard], arguments)
        return float(now_ms) / 1000, count, float(corrected_ms) / 1000


def _ms(seconds: float) -> str:
    """Return seconds as scripts take times: milliseconds in decimal."""
    return f"{seconds * 1000:.3f}"


def _steady() -> float:
    """Return the seconds of a clock that is never set. Where the system has one, it goes on while the machine is
    suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


async def gather_all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run calls concurrently and return their results. Waits for all of them also when one fails, and then raises the
    first error: a caller that repeats the calls never runs beside an earlier attempt."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], results)
