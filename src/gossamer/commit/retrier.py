"""Repeats a step that the frontier or an output cannot take now, until it can."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gossamer.errors import FrontierFull, FrontierUnavailable, GossamerError, OutputClosed, SinkError, SinkFull
from gossamer.telemetry.logs import Troubles

T = TypeVar("T")

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 5.0


class Retrier:
    """Tries again with growing, jittered pauses (50 ms doubling to 5 s) and says once what it waits for.

    An outage of the frontier or a full disk pauses a crawl; it loses nothing and it ends nothing.
    """

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._away: set[int | None] = set()
        """Shards that did not answer last; None: a call that concerns no single one."""

    @property
    def troubles(self) -> list[str]:
        """Names of all that is wrong in this process now."""
        return list(self._troubles.current)

    @property
    def tried(self) -> bool:
        """Whether the frontier or an output is being waited for now."""
        return not {"frontier", "output"}.isdisjoint(self._troubles.current)

    async def frontier(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        shard: int | None = None,
        failed: Callable[[], None] | None = None,
    ) -> T:
        """The call's answer, once the frontier gives one. `shard`: the only one that the call concerns. `failed` is
        called before each pause."""
        pause = FIRST_SECONDS
        while True:
            try:
                answer = await call()
            except FrontierUnavailable as error:
                self._away.add(shard)
                self._troubles.begin("frontier", _sentence(error, "Waiting for it."))
            except FrontierFull as error:
                self._away.add(shard)
                self._troubles.begin("frontier", _sentence(error, "Waiting for room; nothing is lost."))
            except Exception:  # an answer, too
                self._answered(shard)
                raise
            else:
                self._answered(shard)
                return answer
            if failed:
                failed()
            pause = await self._pause(pause)

    def _answered(self, shard: int | None) -> None:
        if self._away:
            self._away.discard(shard)
            if not self._away:
                self._troubles.end("frontier", "The frontier is back; going on.")

    async def output(self, write: Callable[[], Awaitable[None]]) -> None:
        """Return when the output has taken it. Raises OutputClosed, after which it never will."""
        pause = FIRST_SECONDS
        while True:
            try:
                await write()
            except OutputClosed:  # what went down a pipe must not come again, and nobody will ever read the rest
                raise
            except SinkFull as error:
                self._troubles.begin("output", _sentence(error, "Waiting for room; nothing is lost."))
            except SinkError as error:
                self._troubles.begin("output", _sentence(error, "Waiting until it can be written; nothing is lost."))
            else:
                self._troubles.end("output", "The output can be written again; going on.")
                return
            pause = await self._pause(pause)

    @staticmethod
    async def _pause(seconds: float) -> float:
        await asyncio.sleep(seconds * (0.5 + 0.5 * random.random()))
        return min(seconds * 2, LONGEST_SECONDS)


def _sentence(error: GossamerError, then: str) -> str:
    return f"{str(error).rstrip('.')}. {then}"
