"""A long-lived role: the same small step again and again, through every outage, until told to stop."""

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from gossamer.errors import BusError, FrontierError, SinkError
from gossamer.telemetry import names
from gossamer.telemetry.troubles import Troubles

log = logging.getLogger("gossamer.services")

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0


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
    pause = _FIRST_SECONDS
    try:
        while not stopping.is_set():
            try:
                more = await role.run_once()
            except (FrontierError, BusError, SinkError) as error:
                troubles.begin(role.name, f"{str(error).rstrip('.')}. The {role.name} waits for it.")
                await _sleep(pause * (0.5 + 0.5 * random.random()), stopping)
                pause = min(pause * 2, _LONGEST_SECONDS)
                continue
            except Exception:
                # A fault of ours in one step must not end the role: say it with all that is known, go on slowly.
                log.exception("%s %s", names.SERVICE_BROKE, role.name)
                await _sleep(_LONGEST_SECONDS, stopping)
                continue
            troubles.end(role.name, f"The {role.name} goes on.")
            pause = _FIRST_SECONDS
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
