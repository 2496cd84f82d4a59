"""Event loop in a thread of its own, for the work of pipelines, and the wait for its results in any reactor.

Scrapy runs on asyncio, on Twisted's asyncio reactor or on another reactor. Work that needs asyncio runs in this loop,
so it works in all three.
"""

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from scrapy.utils.asyncio import is_asyncio_available

T = TypeVar("T")


class BackgroundLoop:
    """Asyncio event loop in a daemon thread. It starts at once."""

    def __init__(self, name: str) -> None:
        # Not the project's loop: uvloop and the loop of Windows start programs in other ways.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start the work. Cancelling the future cancels the work. May be called from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what is running, and end the thread. May be repeated."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            running = asyncio.all_tasks(self._loop)
            for task in running:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        finally:
            self._loop.close()


async def outcome(future: "Future[T]") -> T:
    """Wait in Scrapy's thread for a result of another thread or process. Raises what the work has raised."""
    if is_asyncio_available():
        return await asyncio.wrap_future(future)
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    done: Deferred[None] = Deferred()
    # By way of the reactor: a Deferred may be fired in its thread only.
    future.add_done_callback(lambda _: reactor.callFromThread(done.callback, None))
    await cast("Awaitable[None]", done)
    return future.result()
