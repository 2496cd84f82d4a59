"""Runs coroutines of Gossamer in a thread with an event loop of its own, so that programs of any kind can call them:
scripts, notebooks (whose event loop already runs) and asyncio programs. `Handover` gives them the records of a crawl.

A crawl writes to `Handover` as to any output, and goes on when the program has read the batch. So a slow program slows
the crawl down. Fixed: a page counts as done only when the program has asked for the next one, or it would be lost when
the program stops or fails; and whatever runs here when the program ends is stopped first, or its server, its files and
the requests that it holds would outlive it.
"""

import asyncio
import atexit
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from gossamer.errors import OutputClosed
from gossamer.model.record import ItemRecord, Output, PageRecord

T = TypeVar("T")

_EXIT_SECONDS = 10.0
"""Longest wait, at the end of the program, for a crawl that it left. The requests of an abandoned crawl go to other
workers after its heartbeats stop, and its server ends with the program."""


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
        self._cancelled = False
        # A daemon: for any other thread the end of the program would wait before anything could stop it.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name=name, daemon=True
        )
        _running.add(self)
        _register_exit()
        self._thread.start()

    def _run(self) -> None:
        """Run the coroutine to its end. The body of the thread."""
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
        if self._cancelled:  # before the event loop reached this task
            self._main.close()
            raise asyncio.CancelledError
        return await self._main

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop of the thread, soon. Does nothing after the end."""
        self._has_loop.wait()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function)

    def cancel(self) -> None:
        """Cancel the coroutine. Call it in the event loop of the thread (`call`)."""
        self._cancelled = True
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


class _WrittenBatch(msgspec.Struct):
    """A batch that the crawl writes and the program has not read to its end."""

    size: int
    read: asyncio.Future[None]
    """Done, in the event loop of the crawl, when the program has read the batch, or nothing more will be read."""
    taken: int = 0
    """Number of outputs, from the beginning, that the program is done with."""


class Entry(msgspec.Struct):
    """A page with the items from it, as the program reads it."""

    page: Output
    items: list[ItemRecord]
    batch: _WrittenBatch
    end: int = 0
    """Number of outputs of the batch up to the end of this entry."""


class Handover:
    """Sink of a crawl, and source of its entries for one reader in another thread.

    The crawl calls `write`, `close` and `end` in its event loop. The reader calls the other methods in any thread, but
    not two of them at once.
    """

    wants_wire = False
    wants_text = True

    def __init__(self, *, wants: Callable[[PageRecord], bool]) -> None:
        """`wants`: whether the reader gets a page; the others count as read at once."""
        self._wants = wants
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque()
        self._batches: list[_WrittenBatch] = []
        """Batches that wait for the reader, in order."""
        self._current: Entry | None = None
        """Entry that the reader works on."""
        self._notify: Callable[[], object] | None = None
        """Called once when there is an entry, or the end."""
        self._ended = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop of the crawl, once something was written."""

    # --- for the crawl ------------------------------------------------------------------------------------------------

    async def write(self, outputs: Sequence[Output]) -> None:
        """Return when the reader is done with the batch. Raises OutputClosed when it reads no more."""
        loop = asyncio.get_running_loop()
        batch = _WrittenBatch(len(outputs), loop.create_future())
        entries = self._group(outputs, batch)
        with self._lock:
            self._loop = loop
            if self._closed:
                raise OutputClosed
            if not entries:
                return
            self._entries.extend(entries)
            self._batches.append(batch)
            notify, self._notify = self._notify, None
        _call(notify)
        await batch.read
        if batch.taken < batch.size:
            raise OutputClosed(taken=batch.taken)

    async def close(self) -> None:
        """Do nothing: `end` follows, also where no output could be closed."""

    def end(self) -> None:
        """Record that nothing more will be written. The reader gets what is left, then the end."""
        with self._lock:
            self._ended = True
            notify, self._notify = self._notify, None
        _call(notify)

    def _group(self, outputs: Sequence[Output], batch: _WrittenBatch) -> list[Entry]:
        """Return an entry for each page that the reader wants, with the items that follow the page."""
        entries: list[Entry] = []
        wanted = False
        for position, output in enumerate(outputs, 1):
            record = output.record
            if isinstance(record, PageRecord):
                wanted = self._wants(record)
                if wanted:
                    entries.append(Entry(output, [], batch))
            elif wanted:
                entries[-1].items.append(record)
            if entries:
                entries[-1].end = position
        return entries

    # --- for the reader -----------------------------------------------------------------------------------------------

    def next(self) -> Entry | None:
        """Return the next entry, and count the one before as done. None: there is none at present, or never again."""
        with self._lock:
            finished = self._finish_current()
            if self._entries and not self._closed:
                self._current = self._entries.popleft()
            entry = self._current
        if finished:
            self._release([finished])
        return entry

    @property
    def ended(self) -> bool:
        """True: there is no entry and there will be none."""
        with self._lock:
            return self._closed or (self._ended and not self._entries)

    def notify(self, call: Callable[[], object]) -> None:
        """Call this function once, in some thread, when there may be an entry or the end; at once if there is."""
        with self._lock:
            if not self._entries and not self._ended and not self._closed:
                self._notify = call
                return
        call()

    def stop(self) -> None:
        """Read no more. The entry that the reader has in hand does not count as done, nor do those behind it."""
        with self._lock:
            self._closed = True
            self._current = None
            self._entries.clear()
            left, self._batches = self._batches, []
        self._release(left)

    def _finish_current(self) -> _WrittenBatch | None:
        """Count the reader's entry as done. Returns its batch if that was the last of it."""
        entry, self._current = self._current, None
        if entry is None or self._closed:
            return None
        entry.batch.taken = entry.end
        if entry.end < entry.batch.size:
            return None
        self._batches.remove(entry.batch)
        return entry.batch

    def _release(self, batches: Sequence[_WrittenBatch]) -> None:
        """Let `write` of these batches return, in their order."""
        if batches and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so no write waits
                self._loop.call_soon_threadsafe(_set_read, [batch.read for batch in batches])


def _set_read(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # else the write was cancelled
            future.set_result(None)


def _call(notify: Callable[[], object] | None) -> None:
    """Wake the reader, if it waits."""
    if notify:
        with contextlib.suppress(RuntimeError):  # the event loop of the reader is closed
            notify()
