"""What cannot be made durable part by part waits in a local file, and is finished when the last writer closes."""

import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.errors import SinkError, SinkFull
from gossamer.model.record import Output
from gossamer.sinks.append import AppendFile, border, flush, flush_folder, make_folder
from gossamer.sinks.base import SinkThread
from gossamer.sinks.formats import FileFormat
from gossamer.sinks.framing import Framing
from gossamer.sinks.parquet import build_parquet
from gossamer.sinks.remote import RemoteFile

Finish = Callable[[Path], None]
"""Turns a whole spool file into the output, or raises `SinkError`. Safe to repeat with the same spool, also after a
crash at any moment: a spool that is already in the output is not added again."""


class SpooledSink:
    """Appends to a spool that all processes of one output share; `write` returns when the batch is durable there.

    From its first write to its close a process holds a shared lock on the folder. Whoever can take it alone when
    closing is the last one: it runs `finish` and removes the spool. When no one gets that far (all were killed, or
    the other end is away) the spool stays, and the next open and close goes on with it, written to or not.
    """

    def __init__(self, target: str, folder: Path, kind: FileFormat, finish: Finish) -> None:
        self.target = target
        self.folder = folder
        self.wants_wire = kind.wants_wire
        self.spool = folder / f"spool{kind.suffix}"
        self._encode = kind.encode
        self._finish = finish
        self._file = AppendFile(self.spool, kind.framing(), kind.head)
        self._thread = SinkThread("sink-spool")
        self._lock = -1

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._append(outputs))

    async def close(self) -> None:
        await self._thread.run(self._close)

    def _append(self, outputs: Sequence[Output]) -> None:
        if self._lock < 0:
            with border(self.folder):
                self._lock = self._open_lock()
                fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._file.append(self._encode(outputs))

    def _close(self) -> None:
        if self._lock < 0:
            if not self.spool.exists():
                return
            with border(self.folder):
                self._lock = self._open_lock()
        try:
            if self._is_last():
                self._file.repair()
                self._finish_spool()
        finally:
            self._file.close()
            os.close(self._lock)
            self._lock = -1

    def _is_last(self) -> bool:
        """Whether nobody else writes. If somebody does, our share of the lock is gone, so that they are the last."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _finish_spool(self) -> None:
        try:
            if not self.spool.exists():
                return
            if self.spool.stat().st_size:
                self._finish(self.spool)
            self.spool.unlink()
            flush_folder(self.folder)
        except (OSError, SinkError) as exc:
            kind = SinkFull if isinstance(exc, SinkFull) else SinkError
            reason = exc.detail if isinstance(exc, SinkError) else str(exc)
            hint = f"its records are safe in {self.spool}; run the same command again to finish it"
            raise kind(f"{self.target} is not finished ({reason}); {hint}") from exc

    def _open_lock(self) -> int:
        # Never removed: a lock on a file that somebody deleted locks nobody out.
        make_folder(self.folder)
        return os.open(self.folder / "writers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


Build = Callable[[Path | None, Path, Path], bool]
"""`build(existing, spool, out)` writes `out` from both; False if the spool is in `existing` already."""


def finish_local(target: Path, spool: Path) -> None:
    """Build a Parquet file beside `target` and put it in its place."""
    with border(target):
        make_folder(target.parent)
        out = target.with_name(f".{target.name}.part")
        if build_parquet(target if target.exists() else None, spool, out):
            out.replace(target)
            flush_folder(target.parent)


def finish_remote(remote: RemoteFile, build: Build, spool: Path) -> None:
    """Fetch what is there, build, upload."""
    existing, out = spool.with_name("existing"), spool.with_name("out")
    try:
        there = remote.fetch(existing)
        if build(existing if there else None, spool, out):
            remote.put(out)
    finally:
        existing.unlink(missing_ok=True)
        out.unlink(missing_ok=True)


def concatenate(framing: Framing) -> Build:
    """For files of units: those of `existing`, then those of the spool."""

    def build(existing: Path | None, spool: Path, out: Path) -> bool:
        if existing is None:
            shutil.copyfile(spool, out)
            return True
        if _ends_with(existing, spool):
            return False
        existing.replace(out)
        with out.open("r+b") as stream, spool.open("rb") as more:
            tail = framing.tail(stream.fileno(), 0, os.fstat(stream.fileno()).st_size, doubt=True)
            stream.truncate(tail.end)
            stream.seek(tail.end)
            stream.write(tail.glue)
            shutil.copyfileobj(more, stream, 1 << 20)
            stream.flush()
            flush(stream.fileno())
        return True

    return build


def _ends_with(existing: Path, spool: Path) -> bool:
    size, more = existing.stat().st_size, spool.stat().st_size
    if size < more:
        return False
    with existing.open("rb") as left, spool.open("rb") as right:
        left.seek(size - more)
        while part := right.read(1 << 20):
            if left.read(len(part)) != part:
                return False
    return True
