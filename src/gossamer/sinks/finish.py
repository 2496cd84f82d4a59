"""How a spool becomes the output: put behind what is there already, in one step that a reader never sees half done."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from gossamer.sinks.append import border, flush, flush_folder, make_folder
from gossamer.sinks.framing import Framing
from gossamer.sinks.parquet import build_parquet
from gossamer.sinks.remote import Remote

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


def finish_remote(remote: Remote, build: Build, spool: Path) -> None:
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
