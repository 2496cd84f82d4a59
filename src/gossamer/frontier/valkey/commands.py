"""Calls scripts on a shard: the one place that knows what every script is given first."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from gossamer.frontier.valkey.keys import Keys
from gossamer.policy.timing import ServerClock
from gossamer.telemetry import logs as names
from gossamer.valkey.client import Script, load_scripts
from gossamer.valkey.shards import Shards

SCRIPTS: dict[str, Script] = load_scripts(resources.files("gossamer.frontier.valkey") / "scripts", undeclared_keys=True)

Argument = bytes | str | int | float

_REFUSED = b"CLOCK"
"""Answer of a script that did nothing: the shard's time is not what the caller expected."""

log = logging.getLogger("gossamer.frontier")


class ScriptCommands:
    """The scripts of one frontier. `clock` (epoch seconds) stands in for the servers' own, for tests only."""

    def __init__(self, shards: Shards, *, prefix: str, count: int, clock: Callable[[], float] | None = None) -> None:
        self.shards = shards
        self.prefix = prefix
        self.count = count
        self.keys = [Keys(prefix, shard) for shard in range(count)]
        self._bases = [[keys.base] for keys in self.keys]
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._server_clocks = [ServerClock() for _ in range(count)]
        self._looking = [asyncio.Lock() for _ in range(count)]

    @property
    def has_own_clock(self) -> bool:
        """Whether the servers are told the time."""
        return self._clock is not None

    async def call(self, shard: int, script: str, *arguments: Argument) -> Any:
        """Run a script. Raises FrontierUnavailable when nobody knows whether it ran: repeat it."""
        return await self._in_time(
            shard,
            lambda now: self.shards.call(shard, SCRIPTS[script], self._bases[shard], [now, self.prefix, *arguments]),
        )

    async def call_confirmed(self, shard: int, script: str, *arguments: Argument, since: int | None = None) -> Any:
        """The same, and what it wrote is on a replica where there is one. `since`: not in a later era than this."""
        return await self._in_time(
            shard,
            lambda now: self.shards.call_confirmed(
                shard, SCRIPTS[script], self._bases[shard], [now, self.prefix, *arguments], since=since
            ),
        )

    async def everywhere(self, script: str, *arguments: Argument) -> list[Any]:
        """Run a script on every shard."""
        return await asyncio.gather(*(self.call(shard, script, *arguments) for shard in range(self.count)))

    async def plain(self, shard: int, *command: Argument) -> Any:
        """A plain command on a shard's node; its first key says which."""
        return await self.shards.command(self._bases[shard][0], *command)

    # --- the servers' clocks ------------------------------------------------------------------------------------------

    async def _in_time(self, shard: int, ask: Callable[[str], Awaitable[Any]]) -> Any:
        """Make a call with the time that this process expects on the shard.

        A script does nothing when its shard's time is another: the server's clock was set, which is corrected then, or
        the call was held up on its way.
        """
        if self._clock is not None:
            return await ask(repr(self._clock() * 1000))
        clock, asked = self._server_clocks[shard], _steady()
        if clock.is_due(asked):
            await self._look(shard, since=asked)
            asked = _steady()
        expected = clock.expected(asked)
        assert expected is not None
        reply = await ask(f"~{expected * 1000:.3f}")
        if reply != _REFUSED:
            return reply
        await self._look(shard, since=asked, again=True)
        return await ask("")

    async def _look(self, shard: int, *, since: float, again: bool = False) -> None:
        """Compare the shard's time with this process's clock, unless another call has done so `since`."""
        clock = self._server_clocks[shard]
        async with self._looking[shard]:
            if not clock.is_due(since) and not (again and clock.looked <= since):
                return
            sent = _steady()
            shown, corrections, corrected = await self._ask_time(shard, clock.expected(sent), "", 0)
            wanted = clock.look(sent=sent, received=_steady(), shown=shown, corrections=corrections)
            if wanted:
                sent = _steady()
                shown, corrections, corrected = await self._ask_time(
                    shard, clock.expected(sent), f"{wanted * 1000:.3f}", corrections
                )
                clock.adopt(sent=sent, received=_steady(), shown=shown, corrections=corrections)
        if corrected:
            log.warning(
                "%s The clock of the frontier's server (shard %d) was set %s by %.1f s. The frontier's time goes on.",
                names.CLOCK_SET, shard, "back" if corrected > 0 else "forward", abs(corrected),
            )  # fmt: skip

    async def _ask_time(
        self, shard: int, expected: float | None, wanted: str, corrections: int
    ) -> tuple[float, int, float]:
        arguments: list[Argument] = ["", self.prefix, self._name]
        arguments += ["" if expected is None else f"{expected * 1000:.3f}", wanted, corrections]
        reply = await self.shards.call(shard, SCRIPTS["clock"], self._bases[shard], arguments)
        return float(reply[0]) / 1000, reply[1], float(reply[2]) / 1000


def _steady() -> float:
    """Seconds on a clock that nobody sets. Where there is one, it goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
