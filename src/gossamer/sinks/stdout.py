"""Sink for standard output: whole lines for the next program in the pipe. Nothing there is durable.

Fixed: lines of two processes must not mix, and a batch of which a pipe may have got a part must not be written again.
"""

import fcntl
import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import OutputClosed
from gossamer.model.record import Output
from gossamer.sinks.append import make_folder, translate_os_errors
from gossamer.sinks.base import SinkThread
from gossamer.sinks.jsonl import encode_lines

_POLL_MILLISECONDS = 200
"""Longest time after which a wait for a slow reader notices `close`. Free to change."""


class StdoutSink:
    """Sink that writes JSON Lines to a file descriptor.

    Raises `OutputClosed` when the reader is gone. Waits for a slow reader until `close`, which abandons what the reader
    has not taken. When standard output is a file on a full disk, the batch is removed again and may be repeated, as
    with any sink.

    Processes that share the pipe take turns by a lock file in `lock_folder`, because the kernel mixes the writes of two
    processes when they are longer than PIPE_BUF. None: this is the only process.
    """

    wants_wire = False

    def __init__(self, lock_folder: Path | None, fd: int | None = None) -> None:
        self._fd = sys.stdout.fileno() if fd is None else fd
        self._lock_path = lock_folder / "stdout.lock" if lock_folder else None
        self._lock = -1  # file descriptor; -1: not open
        self._thread = SinkThread("sink-stdout")
        self._closing = False

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._write(outputs))

    async def close(self) -> None:
        self._closing = True
        await self._thread.run(self._close)

    def _write(self, outputs: Sequence[Output]) -> None:
        lines = encode_lines([output.record for output in outputs])
        with translate_os_errors("standard output"):
            self._take_turn()
            try:
                self._write_lines(memoryview(lines))
            finally:
                self._end_turn()

    def _write_lines(self, rest: memoryview) -> None:
        """Write the whole batch. If that fails, a regular file is cut back to its former size, so that the batch may be
        written again; a pipe ends the crawl."""
        status = os.fstat(self._fd)
        if stat.S_ISREG(status.st_mode):
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                os.ftruncate(self._fd, status.st_size)
                os.lseek(self._fd, 0, os.SEEK_END)
                raise
            return
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        except OSError as exc:
            # Bytes in a pipe cannot be taken back, so this batch must not be repeated.
            raise OutputClosed(f"standard output: {exc.strerror or exc}") from exc

    def _write_some(self, rest: memoryview) -> int:
        """Wait until the reader takes something, and return the number of bytes written; it may be 0."""
        writable = select.poll()
        writable.register(self._fd, select.POLLOUT)
        while not writable.poll(_POLL_MILLISECONDS):
            if self._closing:
                raise OutputClosed("standard output: its reader took nothing until the crawl ended")
        try:
            # A writable pipe takes PIPE_BUF bytes without blocking (POSIX). Must not be more: a longer write might
            # block, and `close` could not end it.
            return os.write(self._fd, rest[: select.PIPE_BUF])
        except BlockingIOError:  # another program in the pipe made it non-blocking
            return 0

    def _take_turn(self) -> None:
        """Wait until no other process writes. Does nothing if this is the only process."""
        if self._lock_path is None:
            return
        if self._lock < 0:
            make_folder(self._lock_path.parent)
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _end_turn(self) -> None:
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1
