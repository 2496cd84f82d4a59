"""A worker's registration on one shard: the name it has there, what it holds there, whether the shard answers."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from gossamer.errors import FrontierError, FrontierUnavailable, LeaseLost
from gossamer.frontier.valkey.commands import Argument, ScriptCommands
from gossamer.model.request import Outcome
from gossamer.policy.retry import outage_pause
from gossamer.policy.timing import usual_seconds
from gossamer.telemetry import logs as names

log = logging.getLogger("gossamer.worker")

SETTLE_AT_ONCE = 256
_CALL = 2**20
"""A lease's id is the number of the call that got it, times this, and its place among those; see `lease.lua`."""


def worker_of(name: str) -> str:
    """The worker that a shard knows under this name."""
    return name.rpartition("-")[0]


class ShardSession:
    """State of one worker on one shard. Sessions know nothing of each other.

    The shard knows the worker under `name`, and every lease carries the name that it was leased under. When the shard
    declares a name dead, its leases are lost and the session continues under a new name. A late answer to an old name
    therefore says nothing about the new one.
    """

    def __init__(
        self, commands: ScriptCommands, shard: int, *, worker: str, spiders: Sequence[str], lost: Callable[[], None]
    ) -> None:
        """`lost` is called when a name was declared dead."""
        self.shard = shard
        self._commands = commands
        self._worker = worker
        self._lost = lost
        self._spiders = list(spiders)
        self._epoch = 1
        self.name = f"{worker}-1"
        """The worker's name on this shard, now."""
        self._number = 0
        """Of the last lease call. It grows through all epochs: no lease id is used twice."""
        self._first = 1
        """Number of the first lease call of this epoch."""
        self._asked: float | None = None
        """When the lease call was first made that has no answer yet."""
        self.usual_seconds = 0.0
        """How long an answer usually takes."""
        self.held: set[int] = set()
        """Ids of what was leased under `name` and is not settled yet."""
        self.due = 0.0
        """When the shard has work again, as far as it said."""
        self.woken = 0
        """How often the shard has announced work."""
        self.asking: asyncio.Task[int] | None = None
        """The lease call under way."""
        self.late = False
        """That call takes so long that nobody waits for it any more."""
        self.error: FrontierUnavailable | None = None
        """Why the last lease call failed. None: it was answered."""
        self._failures = 0
        self.starving: dict[str, float] = {}
        """Crawls whose requests wait for a share of the page budget, and when to ask for one again."""
        self.retry_at = 0.0
        """Do not ask again before (monotonic)."""

    @property
    def joined(self) -> bool:
        """Whether the shard may know this name."""
        return self._number >= self._first

    @property
    def healthy(self) -> bool:
        """Whether the shard answers, as far as is known."""
        return self.error is None and not self.late

    def retire(self, name: str) -> None:
        """The shard has declared this name dead: forget what was held under it. Does nothing for an older name."""
        if name != self.name:
            return
        log.warning("%s %s", names.WORKER_STALE, name)
        self._epoch += 1
        self.name = f"{self._worker}-{self._epoch}"
        self._first = self._number + 1
        self._asked = None
        self.held = set()
        self.due = 0.0
        self.starving = {}
        self._lost()

    def failed(self, error: FrontierUnavailable) -> None:
        """A lease call failed. The first failure is retried at once, the next ones after growing pauses."""
        self.error = error
        self._failures += 1
        pause = outage_pause(self._failures - 1, random=random.random()) if self._failures > 1 else 0.0
        self.retry_at = time.monotonic() + pause

    def answered(self) -> None:
        """A lease call was answered."""
        self.error, self._failures, self.retry_at = None, 0, 0.0

    def charged(self, asked: float) -> float:
        """When a call that was made at `asked`, and is answered now, was carried out, at the earliest."""
        took = time.monotonic() - asked
        self.usual_seconds = usual = usual_seconds(self.usual_seconds, took)
        return asked + usual

    # --- calls --------------------------------------------------------------------------------------------------------

    async def lease(self, limit: int, pool: str, egress: str, retention_ms: int) -> tuple[Any, str, float] | None:
        """Ask for requests: the reply, the name that they are leased under, and when their hits were charged. None: the
        name was declared dead, ask again."""
        if self._asked is None:
            self._number += 1
            self._asked = time.monotonic()
        name, asked = self.name, self._asked
        reply = await self._commands.call(
            self.shard, "lease", name, self._number, limit, pool, egress, retention_ms, 1,
            int(self._number == self._first), *self._spiders,
        )  # fmt: skip
        charged = self.charged(asked)
        if reply[0] == b"stale":
            self.retire(name)
        if name != self.name:
            return None
        self._asked = None
        self._spiders.append(self._spiders.pop(0))
        return reply, name, charged

    async def settle(
        self, name: str, ids: Sequence[int], rows: Sequence[Argument], *, retention_ms: int, era: int | None = None
    ) -> Any:
        """Report what became of these leases of `name`: { for each 1 or 0, idle tokens, spent tokens }. None: the name
        was declared dead.

        Confirmed by a replica where there is one: what a failover forgot would be fetched again."""
        held = self.held
        reply = await self._commands.call_confirmed(self.shard, "settle", name, retention_ms, *rows, since=era)
        if reply[0] == b"stale":
            self.retire(name)
            return None
        if name == self.name:
            held.difference_update(ids)
        return reply

    async def hop(self, name: str, lease: int, fingerprint: int, tail: bytes) -> tuple[int, float]:
        """The answer of `hop.lua`, and when its hit was charged. Raises LeaseLost."""
        asked = time.monotonic()
        answer = await self._commands.call(self.shard, "hop", name, lease, fingerprint, tail)
        charged = self.charged(asked)
        if answer < 0:
            if name == self.name:
                self.held.discard(lease)
            raise LeaseLost(f"{lease} of {name}")
        return answer, charged

    async def heartbeat(self, heartbeat_ms: int) -> tuple[int, int] | None:
        """{ number of leases on the shard, ms until a silent worker counts as dead }. None: the shard does not know the
        worker yet, or declared it dead.

        Asks the shard also where the worker has not joined it: an answer is proof that the shard can be reached."""
        name, joined = self.name, self.joined
        count, left = await self._commands.call(self.shard, "heartbeat", name, heartbeat_ms)
        if count >= 0:
            return count, left
        # A shard that has not answered the first lease call may not know the worker yet.
        if joined and self._asked is None:
            self.retire(name)
        return None

    async def forgotten(self) -> tuple[str, list[int]]:
        """Name, and leases of it on the shard that this worker does not hold: they are settled, and a failover or a
        restore forgot that."""
        name, answered = self.name, self._number - (self._asked is not None)
        key = self._commands.keys[self.shard].leases(name)
        listed = [int(field) for field in await self._commands.plain(self.shard, "HKEYS", key) if field != b"last"]
        if name != self.name:
            return name, []
        return name, [lease for lease in listed if lease // _CALL <= answered and lease not in self.held]


def forwarded(leases: Sequence[int]) -> list[Argument]:
    """Rows of `settle.lua` that put leases back in front of their queues. Not as returned: their hits were used."""
    return [part for lease in leases for part in (lease, Outcome.FORWARDED.value, "", 0, b"", 0)]


_WAIT_SECONDS = 0.25


class BackgroundSteps:
    """Runs such steps beside the call that asked for them: a shard that does not answer delays only the steps that
    need it.

    A failure ends the step quietly. The frontier has noted what is to be done, and housekeeping repeats it.
    """

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called after each step."""
        self._done = done
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._again: set[Hashable] = set()

    async def run(self, name: Hashable, step: Callable[[], Awaitable[object]]) -> None:
        """Run the step. Returns when it has ended, or when it has become clear that it takes longer.

        Where a step of this name is running already, it is repeated afterwards, and nobody waits for it.
        """
        if name in self._running:
            self._again.add(name)
            return
        task = self._running[name] = asyncio.create_task(self._repeat(name, step))
        await asyncio.wait((task,), timeout=_WAIT_SECONDS)
        if task.done():
            task.result()

    async def _repeat(self, name: Hashable, step: Callable[[], Awaitable[object]]) -> None:
        try:
            while True:
                self._again.discard(name)
                await step()
                if name not in self._again:
                    break
        except FrontierError:
            pass
        finally:
            del self._running[name]
            self._done()

    async def close(self) -> None:
        """Cancel what is running."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
