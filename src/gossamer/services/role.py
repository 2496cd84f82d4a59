"""The interface of a background service (a role), the loop that runs one, and its runner for the frontier's shards.

The frontier is the cluster's queue of requests. It is divided into shards, each of which may be unavailable by itself.

Fixed, because roles rely on it: `run_once` is never interrupted when a role stops, and is called again after an outage.
Steps of PerShardRunner are the exception: one that still waits for an unresponsive shard is cancelled at the end. That
loses nothing, because every step must be safe to repeat.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from gossamer.errors import BusError, FrontierError, FrontierUnavailable, HistoryUnavailable, SinkError
from gossamer.pauses import happens_within
from gossamer.policy.retry import outage_pause
from gossamer.telemetry import logs
from gossamer.telemetry.logs import Troubles

log = logging.getLogger("gossamer.services")

_PAUSE_AFTER_BUG_SECONDS = 5.0
"""Pause after an unexpected exception, so that a bug that recurs does not flood the log. A longer pause also delays the
work that would succeed."""
_ROUND_SECONDS = 1.0
"""Longest wait of a round for its shards. Slower shards continue in the background. With a longer wait one slow shard
delays the next round of all others; with a shorter one, errors are noticed a round later."""
OUTAGES = (FrontierError, BusError, SinkError, HistoryUnavailable)
"""Errors that end by themselves. A role waits meanwhile."""


class Role(Protocol):
    """A background service. Any number of copies may run, in any processes; killing one must lose nothing."""

    name: str
    """Name of the role in logs, and of the trouble that the process reports while the role waits. Fixed: people filter
    by this name."""

    @property
    def pause_seconds(self) -> float:
        """Pause after a step that found nothing to do."""
        ...

    async def run_once(self) -> bool:
        """Run one step. Return True if there may be more to do at once.

        May raise errors of the frontier, the bus, the sinks and the history; the step is then repeated, so it must be
        safe to repeat."""
        ...

    async def close(self) -> None:
        """Release resources, such as membership of a consumer group."""
        ...


async def run_role(role: Role, *, stopping: asyncio.Event, troubles: Troubles) -> None:
    """Run the role until `stopping` is set; the current call of `run_once` is completed first.

    During an outage the role waits, and its name is among the `troubles`: the problems that the process reports."""
    log.info("%s %s", logs.SERVICE_STARTED, role.name)
    failures = 0
    try:
        while not stopping.is_set():
            try:
                more = await role.run_once()
            except OUTAGES as error:
                troubles.begin(role.name, f"{str(error).rstrip('.')}. The {role.name} waits for it.")
                failures += 1
                await _sleep(outage_pause(failures, random=random.random()), stopping)
                continue
            except Exception:
                # A bug in one step must not end the role.
                log.exception("%s %s", logs.SERVICE_BROKE, role.name)
                await _sleep(_PAUSE_AFTER_BUG_SECONDS, stopping)
                continue
            troubles.end(role.name, f"The {role.name} continues.")
            failures = 0
            if not more:
                await _sleep(role.pause_seconds, stopping)
    finally:
        with contextlib.suppress(*OUTAGES):
            await role.close()
        log.info("%s %s", logs.SERVICE_STOPPED, role.name)


async def _sleep(seconds: float, stopping: asyncio.Event) -> None:
    """Sleep, but no longer than until `stopping` is set."""
    if seconds <= 0:
        return
    await happens_within(stopping, seconds)


class PerShardRunner:
    """Runs a step for every shard in background tasks, so that an unresponsive shard delays only its own step."""

    def __init__(self, name: str, shard_count: int, step: Callable[[int], Awaitable[bool]], troubles: Troubles) -> None:
        """`step`: called with a shard; returns True if there may be more to do at once. `name`: the role's name, for
        messages. `troubles`: gets a message while some shards, but not all, are unavailable."""
        self._name = name
        self._shard_count = shard_count
        self._step = step
        self._troubles = troubles
        self._running: dict[int, asyncio.Task[bool]] = {}
        """Steps in progress, by shard: never two for one shard."""
        self._unavailable: dict[int, FrontierUnavailable] = {}
        """Error of the latest step of each shard that was unavailable then."""

    async def run(self) -> bool:
        """Run one round: start a step for each shard that has none in progress, and wait a little for them. Return
        True if there may be more to do at once.

        Raises FrontierUnavailable if all shards are unavailable. Raises any other error of a step; of several, the
        first: the steps are repeated in the next round, so errors that last come again."""
        started = [shard for shard in range(self._shard_count) if shard not in self._running]
        for shard in started:
            self._running[shard] = asyncio.ensure_future(self._step(shard))
        if started:
            await asyncio.wait([self._running[shard] for shard in started], timeout=_ROUND_SECONDS)
        done = {shard: task for shard, task in self._running.items() if task.done()}
        self._running = {shard: task for shard, task in self._running.items() if shard not in done}
        more = False
        errors: list[BaseException] = []
        for shard, task in done.items():
            error = task.exception()
            if isinstance(error, FrontierUnavailable):
                self._unavailable[shard] = error
                continue
            self._unavailable.pop(shard, None)
            if error is None:
                more = task.result() or more
            else:
                errors.append(error)
        if errors:
            raise errors[0]
        if len(self._unavailable) == self._shard_count:
            raise next(iter(self._unavailable.values()))
        self._report()
        return more

    def _report(self) -> None:
        """Report the shards that cannot be reached, or that all can be again."""
        trouble = f"{self._name}.shards"
        if self._unavailable:
            reason = str(next(iter(self._unavailable.values()))).rstrip(".")
            self._troubles.begin(trouble, f"{reason}. The {self._name} continues with the other shards.")
        else:
            self._troubles.end(trouble, f"The {self._name} reaches all shards again.")

    async def close(self) -> None:
        """Cancel the steps that still wait for slow shards. They must be safe to repeat, as after a kill."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
