"""Steps across shards that the answer of one shard asks for."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from gossamer.errors import FrontierError

_WAIT_SECONDS = 0.25


class Errands:
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
