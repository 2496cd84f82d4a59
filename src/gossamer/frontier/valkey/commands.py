"""Calls scripts on a shard: the one place that knows what every script is given first."""

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any

from gossamer.frontier.valkey.keys import Keys
from gossamer.valkey.scripts import Script, load
from gossamer.valkey.shards import Shards

SCRIPTS: dict[str, Script] = load(resources.files("gossamer.frontier.valkey") / "scripts", far=True)

Argument = bytes | str | int | float


class Commands:
    """The scripts of one frontier. `clock` (epoch seconds) stands in for the servers' own, for tests only."""

    def __init__(self, shards: Shards, *, prefix: str, count: int, clock: Callable[[], float] | None = None) -> None:
        self.shards = shards
        self.prefix = prefix
        self.count = count
        self.keys = [Keys(prefix, shard) for shard in range(count)]
        self._bases = [[keys.base] for keys in self.keys]
        self._clock = clock

    @property
    def has_own_clock(self) -> bool:
        """Whether the servers are told the time."""
        return self._clock is not None

    def _arguments(self, arguments: tuple[Argument, ...]) -> list[Argument]:
        now = "" if self._clock is None else repr(self._clock() * 1000)
        return [now, self.prefix, *arguments]

    async def call(self, shard: int, script: str, *arguments: Argument) -> Any:
        """Run a script. Raises FrontierUnavailable when nobody knows whether it ran: repeat it."""
        return await self.shards.call(shard, SCRIPTS[script], self._bases[shard], self._arguments(arguments))

    async def call_confirmed(self, shard: int, script: str, *arguments: Argument, since: int | None = None) -> Any:
        """The same, and what it wrote is on a replica where there is one. `since`: not in a later era than this."""
        given = self._arguments(arguments)
        return await self.shards.call_confirmed(shard, SCRIPTS[script], self._bases[shard], given, since=since)

    async def everywhere(self, script: str, *arguments: Argument) -> list[Any]:
        """Run a script on every shard."""
        return await asyncio.gather(*(self.call(shard, script, *arguments) for shard in range(self.count)))

    async def plain(self, shard: int, *command: Argument) -> Any:
        """A plain command on a shard's node; its first key says which."""
        return await self.shards.command(self._bases[shard][0], *command)
