"""Runs a service's step on every shard of the frontier, independently of the others."""

import asyncio
from collections.abc import Awaitable, Callable

from gossamer.errors import FrontierUnavailable
from gossamer.telemetry.troubles import Troubles

_WAIT_SECONDS = 1.0


class EachShard:
    """A shard that does not answer delays only its own step: the next rounds leave it out until that has ended."""

    def __init__(
        self, name: str, shards: int, step: Callable[[int], Awaitable[bool]], troubles: Troubles | None = None
    ) -> None:
        """`step` is given a shard and returns whether there may be more to do at once. `name` is the service's;
        `troubles` is told when some of the shards, and not all, are away."""
        self._name = name
        self._shards = shards
        self._step = step
        self._troubles = troubles
        self._running: dict[int, asyncio.Task[bool]] = {}
        self._away: dict[int, FrontierUnavailable] = {}

    async def run(self) -> bool:
        """One round; whether there may be more to do at once. Raises FrontierUnavailable when all shards are away, and
        whatever else a step raises."""
        begun = [shard for shard in range(self._shards) if shard not in self._running]
        for shard in begun:
            self._running[shard] = asyncio.ensure_future(self._step(shard))
        if begun:
            await asyncio.wait([self._running[shard] for shard in begun], timeout=_WAIT_SECONDS)
        ended = {shard: task for shard, task in self._running.items() if task.done()}
        self._running = {shard: task for shard, task in self._running.items() if shard not in ended}
        more = False
        faults: list[BaseException] = []
        for shard, task in ended.items():
            fault = task.exception()
            if isinstance(fault, FrontierUnavailable):
                self._away[shard] = fault
                continue
            self._away.pop(shard, None)
            if fault is None:
                more = task.result() or more
            else:
                faults.append(fault)
        if faults:
            raise faults[0]
        if len(self._away) == self._shards:
            raise next(iter(self._away.values()))
        self._tell()
        return more

    def _tell(self) -> None:
        if self._troubles is None:
            return
        name = f"{self._name}.shards"
        if self._away:
            why = str(next(iter(self._away.values()))).rstrip(".")
            self._troubles.begin(name, f"{why}. The {self._name} goes on with the other shards.")
        else:
            self._troubles.end(name, f"All shards answer the {self._name} again.")

    async def close(self) -> None:
        """Cancel what is under way."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
