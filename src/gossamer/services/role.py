"""A long-lived role: the same small step again and again, through every outage, until told to stop."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from gossamer.errors import BusError, FrontierError, FrontierUnavailable, SinkError
from gossamer.policy.retry import outage_pause
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles

log = logging.getLogger("gossamer.services")

_AFTER_A_FAULT_SECONDS = 5.0


class Role(Protocol):
    """What a service does. Any number of copies may run, in any processes; killing one loses nothing."""

    name: str

    @property
    def pause_seconds(self) -> float:
        """Between two steps that found nothing to do."""
        ...

    async def run_once(self) -> bool:
        """One step; True when there may be more to do at once. Raises what the frontier and the bus raise: the step is
        repeated, and must stand that."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


async def keep(role: Role, *, stopping: asyncio.Event, troubles: Troubles) -> None:
    """Run the role until `stopping`; a step under way is finished first. An outage pauses it and is said once."""
    log.info("%s %s", names.SERVICE_STARTED, role.name)
    failures = 0
    try:
        while not stopping.is_set():
            try:
                more = await role.run_once()
            except (FrontierError, BusError, SinkError) as error:
                troubles.begin(role.name, f"{str(error).rstrip('.')}. The {role.name} waits for it.")
                failures += 1
                await _sleep(outage_pause(failures, random=random.random()), stopping)
                continue
            except Exception:
                # A fault of ours in one step must not end the role: say it with all that is known, go on slowly.
                log.exception("%s %s", names.SERVICE_BROKE, role.name)
                await _sleep(_AFTER_A_FAULT_SECONDS, stopping)
                continue
            troubles.end(role.name, f"The {role.name} goes on.")
            failures = 0
            if not more:
                await _sleep(role.pause_seconds, stopping)
    finally:
        with contextlib.suppress(FrontierError, BusError, SinkError):
            await role.close()
        log.info("%s %s", names.SERVICE_STOPPED, role.name)


async def _sleep(seconds: float, stopping: asyncio.Event) -> None:
    if seconds <= 0:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


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
