"""Standard output: whole lines for the next program in the pipe. Nothing there is durable."""

import fcntl
import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import OutputClosed
from gossamer.model.record import Output
from gossamer.sinks.append import border, make_folder
from gossamer.sinks.base import SinkThread
from gossamer.sinks.jsonl import encode_lines

_LOOK_MILLISECONDS = 200


class StdoutSink:
    """Writes JSON lines to a file descriptor. A reader that went away is `OutputClosed`; a slow one is waited for until
    `close`, which gives up what it has not taken. Where it is redirected to a file on a full disk, the batch is taken
    back and may be repeated, as with any sink.

    Processes that share the pipe take turns by a lock file in `lock_folder`, because the kernel mixes what two of them
    write as soon as it is longer than a pipe's atomic size. None: this is the only process.
    """

    wants_wire = False

    def __init__(self, lock_folder: Path | None, fd: int | None = None) -> None:
        self._fd = sys.stdout.fileno() if fd is None else fd
        self._lock_path = lock_folder / "stdout.lock" if lock_folder else None
        self._lock = -1
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
        with border("standard output"):
            self._take_turn()
            try:
                self._write_lines(memoryview(lines))
            finally:
                self._end_turn()

    def _write_lines(self, rest: memoryview) -> None:
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
            # What went down a pipe cannot be taken back, so this batch must not come again.
            raise OutputClosed(f"standard output: {exc.strerror or exc}") from exc

    def _write_some(self, rest: memoryview) -> int:
        writable = select.poll()
        writable.register(self._fd, select.POLLOUT)
        while not writable.poll(_LOOK_MILLISECONDS):
            if self._closing:
                raise OutputClosed("standard output: its reader took nothing until the end")
        try:
            # So much goes into a pipe that takes anything; more might block where `close` is not seen.
            return os.write(self._fd, rest[: select.PIPE_BUF])
        except BlockingIOError:  # another program in the pipe made it non-blocking
            return 0

    def _take_turn(self) -> None:
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
