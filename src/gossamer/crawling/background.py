"""Runs coroutines of Gossamer in a thread with an event loop of its own, so that programs of any kind can call them:
scripts, notebooks (whose event loop already runs) and asyncio programs.

Safe to change: the wait at the end of the program. Fixed: whatever runs here when the program ends is stopped first, or
its server, its files and the requests that it holds would outlive it.
"""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_EXIT_SECONDS = 10.0
"""Longest wait, at the end of the program, for a crawl that it left. May be changed freely: the requests of an
abandoned crawl go to other workers after its heartbeats stop, and its server ends with the program."""


class BackgroundTask(Generic[T]):
    """A coroutine in a thread and an event loop of its own, and its result."""

    def __init__(
        self,
        main: Coroutine[Any, Any, T],
        *,
        name: str,
        stop: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Start `main`.

        `stop` is called at the end of the program, in its main thread, if `main` still runs then; None: `main` is
        cancelled. `on_end` is called in the thread, after `main` and all that it left in the loop ended.
        """
        self._main = main
        self._on_end = on_end
        self.stop = stop or (lambda: self.call(self.cancel))
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_loop = threading.Event()
        self._task: asyncio.Task[T] | None = None
        # A daemon: for any other thread the end of the program would wait before anything could stop it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        _running.add(self)
        _register_exit()
        self._thread.start()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                self._loop = runner.get_loop()
                self._has_loop.set()
                self._result.append(runner.run(self._keep_task()))
        except BaseException as error:  # raised to the caller of `result`
            self._error = error
        finally:
            self._has_loop.set()
            self._done.set()
            _running.discard(self)
            if self._on_end:
                self._on_end()

    async def _keep_task(self) -> T:
        self._task = asyncio.current_task()
        return await self._main

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop of the thread, soon. Does nothing after the end."""
        self._has_loop.wait()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function)

    def cancel(self) -> None:
        """Cancel the coroutine. Call it in the event loop of the thread (`call`)."""
        if self._task is not None:
            self._task.cancel()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most these seconds. Returns whether it was reached."""
        return self._done.wait(seconds)

    def result(self) -> T:
        """Wait for the end, and return or raise what the coroutine did."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]


_running: "set[BackgroundTask[Any]]" = set()
"""Tasks that have not ended."""


def _stop_all() -> None:
    """Stop what still runs at the end of the program, and wait for it."""
    tasks = list(_running)
    for task in tasks:
        task.stop()
    for task in tasks:
        task.wait(_EXIT_SECONDS)


@cache
def _register_exit() -> None:
    """Have `_stop_all` called at the end of the program.

    The functions of `atexit` are called when the executors of asyncio accept no more work, with which outputs are
    closed. Those of `threading._register_atexit` are called in reverse order; that of the executors was registered when
    `concurrent.futures.thread` was imported.
    """
    import concurrent.futures.thread  # noqa: F401

    register = getattr(threading, "_register_atexit", atexit.register)
    register(_stop_all)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops. None: uvloop is not installed, and asyncio's own loop serves."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
