"""Records as JSON Lines, for the outputs of a crawl and the commands that read them. A record is what an output keeps
of one page or item.

Also the sink (a destination of records) for standard output, which writes such lines for the next program in the pipe.

Fixed: one record a line, without a raw newline or NUL, because the end of a torn file (its writer was killed) is found
by them; and that encoding never raises for contents, because a batch with such a record could never be written. On
standard output, lines of two processes must not mix, and a batch of which a pipe may have got a part must not be
written again.
"""

import fcntl
import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import zstandard

from gossamer.compiled import native
from gossamer.errors import BadInput, OutputClosed
from gossamer.model.json_codec import encode_lines
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.append import translate_os_errors
from gossamer.sinks.base import SinkThread
from gossamer.sinks.framing import GZIP_MAGIC, ZSTD_MAGIC, ZSTD_SKIPPABLE_MAGIC_REST, ZstdFrames
from gossamer.storage.files import make_folder

_BUFFER_BYTES = 1 << 20
"""Bytes that are decompressed ahead while a file is read. More take memory, fewer take longer."""

TEXT_WANTED = native is None
"""`Sink.wants_text` of sinks that use `json_units`: only the compiled extension writes bodies that are apart."""


def json_units(outputs: Sequence[Output]) -> list[bytes]:
    """Return the lines of all records of the batch as a single unit (the part that is compressed by itself), because
    one large unit compresses best."""
    lines = encode_lines([output.record for output in outputs])
    return [_with_bodies(lines, outputs) if any(output.body_apart for output in outputs) else lines]


def _with_bodies(lines: bytes, outputs: Sequence[Output]) -> bytes:
    """Return the lines of these outputs with the bodies that are not in their records."""
    bodies = [output.body if output.body_apart else None for output in outputs]
    return cast(bytes, native.put_bodies(lines, bodies))


class _Kind(msgspec.Struct):
    """The field of a record that tells items from pages."""

    type: str


_kind = msgspec.json.Decoder(_Kind)
_page = msgspec.json.Decoder(PageRecord)
_item = msgspec.json.Decoder(ItemRecord)


def read_records(path: Path | str) -> Iterator[PageRecord | ItemRecord]:
    """Yield the records of a file in order, in little memory. The compression is detected from the first bytes.

    Raises `BadInput` when the file cannot be read or decompressed, when it has a torn tail (its writer was killed, and
    no later writer has repaired the file), and when a line is not a record.
    """
    path = Path(path)
    try:
        with open_lines(path) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield decode_line(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                    raise BadInput(f"{path}, line {number}: {exc}") from exc
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as exc:
        raise BadInput(f"{path}: {exc}") from exc


def decode_line(line: bytes) -> PageRecord | ItemRecord:
    """Return the record of a line. Raises `msgspec.MsgspecError` or UnicodeDecodeError."""
    return _item.decode(line) if _kind.decode(line).type == "item" else _page.decode(line)


def open_lines(path: Path) -> BinaryIO:
    """Return a stream of the file's decompressed bytes. Raises `EOFError`, here or while reading, for a torn file."""
    stream = path.open("rb")
    magic = stream.read(4)
    stream.seek(0)
    if magic.startswith(GZIP_MAGIC):
        stream.close()
        import gzip  # imported late: most crawls read no such file

        return cast(BinaryIO, gzip.open(path, "rb"))
    if magic == ZSTD_MAGIC or magic[1:] == ZSTD_SKIPPABLE_MAGIC_REST:
        size = path.stat().st_size
        # The library treats a torn frame as the end of the file, without an error.
        if ZstdFrames().tail(stream.fileno(), 0, size, verify=False).end < size:
            stream.close()
            raise EOFError("the last frame is torn")
        decompressed = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, decompressed), _BUFFER_BYTES))
    return stream


# --- standard output --------------------------------------------------------------------------------------------------

_POLL_MILLISECONDS = 200
"""Longest time after which a wait for a slow reader notices `close`. Longer delays the end of a crawl, shorter costs
CPU time while it waits."""

_LOCK_NAME = "stdout.lock"
"""Name of the lock file. Fixed: processes of other versions may share the pipe."""


class StdoutSink:
    """Sink that writes JSON Lines to a file descriptor. Implements Sink (sinks/base.py).

    Raises `OutputClosed` when the reader is gone. Waits for a slow reader until `close`, which abandons what the reader
    has not taken. When standard output is a file on a full disk, the batch is removed again and may be repeated, as
    with any sink.

    Processes that share the pipe take turns by a lock file in `lock_folder`, because the kernel mixes the writes of two
    processes when they are longer than PIPE_BUF. None: this is the only process.
    """

    wants_wire = False
    wants_text = TEXT_WANTED

    def __init__(self, lock_folder: Path | None, fd: int | None = None) -> None:
        self._fd = sys.stdout.fileno() if fd is None else fd
        self._lock_path = lock_folder / _LOCK_NAME if lock_folder else None
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
        [lines] = json_units(outputs)
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
