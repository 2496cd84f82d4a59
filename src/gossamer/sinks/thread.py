"""A sink's own thread: files block, the event loop must not."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SinkThread:
    """Runs one call after the other, in the order they came. One thread, because a lock between processes is none
    between threads."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        """Wait for the call; a cancelled wait does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Take no more calls; those that were taken are finished."""
        self._executor.shutdown(wait=False)
