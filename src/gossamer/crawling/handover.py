"""Hands the records of a crawl, which runs in a thread of its own, to the program that reads them in another thread.

The crawl writes to `Handover` as to any output, and goes on when the program has read the batch. So a slow program
slows the crawl down, and a page counts as done only when the program has asked for the next one. Safe to change: all
but this order. A page that counted as done earlier would be lost when the program stops or fails.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.errors import OutputClosed
from gossamer.model.record import ItemRecord, Output, PageRecord


@dataclass(slots=True)
class _WrittenBatch:
    """A batch that the crawl writes and the program has not read to its end."""

    size: int
    read: asyncio.Future[None]
    """Done, in the event loop of the crawl, when the program has read the batch, or nothing more will be read."""
    taken: int = 0
    """Number of outputs, from the beginning, that the program is done with."""


@dataclass(slots=True)
class Entry:
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
    if notify:
        with contextlib.suppress(RuntimeError):  # the event loop of the reader is closed
            notify()
