"""Outputs that cannot be appended to (Parquet, JSON, remote files): their records are collected in a local spool file.

When the last writer closes, the output is built from the spool.

Fixed: the names and formats of spools and locks, because an interrupted crawl may have left a spool; and that the spool
is removed only when the output is complete, because until then it is the only copy of its records.
"""

import asyncio
import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.extras import install_advice
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.append import AppendFile, translate_os_errors
from gossamer.sinks.base import SinkThread
from gossamer.sinks.framing import FileFormat, Framing
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.remote import RemoteFile
from gossamer.storage.files import FileInUse, flush, flush_folder, make_folder, unfinished

log = logging.getLogger("gossamer.sinks.spool")

_PAUSE_SECONDS = (0.1, 10.0)
"""First and longest pause between attempts to build a file that another command writes. Each attempt may read the
spool."""
_SILENT_SECONDS = 5.0
"""Time after which the log says what a sink waits for."""

_COPIED_BYTES = 1 << 20
"""Bytes that are copied or compared at once. More take memory, fewer take longer."""

Finish = Callable[[Path], None]
"""Builds the output from a whole spool file, or raises `SinkError`. It must be safe to repeat with the same spool, also
after a crash at any moment: a spool that is already in the output is not added again."""

_LOCK_NAME = "writers.lock"
"""Name of the file that the writers of a spool lock. Fixed. The file must never be removed: a lock on a deleted file
excludes no process that opens the name anew."""


class SpooledSink:
    """Sink that appends to a spool, which all processes of an output share. Batches are durable in the spool.
    Implements Sink (sinks/base.py).

    From its first write to its close, a process holds a shared lock on the folder. A closing process that can get the
    lock exclusively is the last one: it runs `finish` and removes the spool. When no process gets that far (all were
    killed, or the remote server is unavailable), the spool stays, and the next process that opens and closes this
    output finishes it, whether it writes or not.
    """

    def __init__(self, target: str, folder: Path, spool_format: FileFormat, finish: Finish) -> None:
        """`target`: name of the output, for errors. `folder`: folder for the spool and its lock."""
        self.target = target
        self.folder = folder
        self.wants_text = spool_format.wants_text
        self.wants_wire = spool_format.wants_wire  # whether the records need the raw HTTP bytes (WARC)
        self.spool = folder / f"spool{spool_format.suffix}"
        self._encode = spool_format.encode
        self._finish = finish
        self._file = AppendFile(self.spool, spool_format.framing(), spool_format.head)
        self._thread = SinkThread("sink-spool")
        self._lock = -1

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._append(outputs))

    async def close(self) -> None:
        """Close as in Sink. While another command writes the file, wait; a task that is cancelled waits no longer."""
        pause, longest = _PAUSE_SECONDS
        warns_at = time.monotonic() + _SILENT_SECONDS
        while True:
            try:
                return await self._thread.run(self._close)
            except FileInUse:
                if time.monotonic() > warns_at:
                    warns_at = float("inf")
                    waits = "%s is being written by another command. This one waits; until then, its records are in %s"
                    log.error(waits, self.target, self.spool)  # no warning: most commands show none
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)

    def finish_empty(self) -> bool:
        """Build the output from no records. Return False if another process still writes to it. Blocking.
        Raises SinkError."""
        with translate_os_errors(self.folder):
            self._lock = self._open_lock()
        try:
            if not self._is_last() or self.spool.exists():
                return False
            self._file.append([b""])
            self._finish_spool(may_be_empty=True)
            return True
        except FileInUse:
            self.spool.unlink()
            return False
        finally:
            self._file.close()
            os.close(self._lock)
            self._lock = -1

    def _append(self, outputs: Sequence[Output]) -> None:
        if self._lock < 0:
            with translate_os_errors(self.folder):
                self._lock = self._open_lock()
                fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._file.append(self._encode(outputs))

    def _close(self) -> None:
        """Release the lock. The last writer builds the output first, also from a spool that killed writers left."""
        if self._lock < 0:
            if not self.spool.exists():
                return
            with translate_os_errors(self.folder):
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
        """Return whether this process is the last writer.

        If another process still holds its shared lock, the attempt releases this process's own, so that a later process
        can get the lock exclusively.
        """
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _finish_spool(self, *, may_be_empty: bool = False) -> None:
        """Build the output and remove the spool. Raises SinkError or SinkFull; the spool then stays. `may_be_empty`:
        also from a spool of no bytes."""
        try:
            if not self.spool.exists():
                return
            if may_be_empty or self.spool.stat().st_size:
                self._finish(self.spool)
            self.spool.unlink()  # only after the output is complete; after a kill in between, `finish` is repeated
            flush_folder(self.folder)
        except (OSError, SinkError) as exc:
            kind = SinkFull if isinstance(exc, SinkFull) else SinkError
            reason = exc.detail if isinstance(exc, SinkError) else str(exc)
            hint = f"its records are safe in {self.spool}; run the same command again to finish it"
            raise kind(f"{self.target} is not finished ({reason}); {hint}") from exc

    def _open_lock(self) -> int:
        make_folder(self.folder)
        return os.open(self.folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


Build = Callable[[Path | None, Path, Path], bool]
"""Callback `build(existing, spool, out)`: writes `out` from `existing` (None: there is no file yet) and the spool.
Returns False, without `out`, if the spool is in `existing` already."""


def finish_local(target: Path, build: Build, spool: Path) -> None:
    """Build a file beside `target`, then replace `target` by it. Raises FileInUse while another process does the same,
    so that neither takes the place of records that the other added."""
    with translate_os_errors(target):
        make_folder(target.parent)
        with unfinished(target) as out:
            if build(target if target.exists() else None, spool, out):
                out.replace(target)
                flush_folder(target.parent)


def finish_remote(remote: RemoteFile, build: Build, spool: Path) -> None:
    """Fetch the existing remote file, build the new one, and upload it."""
    existing, out = spool.with_name("existing"), spool.with_name("out")
    try:
        exists = remote.fetch(existing)
        if build(existing if exists else None, spool, out):
            remote.put(out)
    finally:
        existing.unlink(missing_ok=True)
        out.unlink(missing_ok=True)


def concatenate(framing: Framing) -> Build:
    """Return a Build that appends the spool to the existing file, after its last whole unit.

    A unit is what this framing writes at once: a line, a gzip member, a zstd frame, or a WARC record.
    """

    def build(existing: Path | None, spool: Path, out: Path) -> bool:
        if existing is None:
            shutil.copyfile(spool, out)
            return True
        if _ends_with(existing, spool):
            return False
        existing.replace(out)
        with out.open("r+b") as stream, spool.open("rb") as more:
            tail = framing.tail(stream.fileno(), 0, os.fstat(stream.fileno()).st_size, verify=True)
            stream.truncate(tail.end)
            stream.seek(tail.end)
            stream.write(tail.separator)
            shutil.copyfileobj(more, stream, _COPIED_BYTES)
            stream.flush()
            flush(stream.fileno())
        return True

    return build


def _ends_with(existing: Path, spool: Path) -> bool:
    """Return whether the file ends with the bytes of the spool, so that the spool was added before."""
    existing_bytes, spool_bytes = existing.stat().st_size, spool.stat().st_size
    if existing_bytes < spool_bytes:
        return False
    with existing.open("rb") as old, spool.open("rb") as new:
        old.seek(existing_bytes - spool_bytes)
        while part := new.read(_COPIED_BYTES):
            if old.read(len(part)) != part:
                return False
    return True


class _Library:
    """Imports a module when one of its attributes is first used. pyarrow takes as long as all other imports."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


pa: Any = _Library("pyarrow")
pq: Any = _Library("pyarrow.parquet")

# Size of a row group, which ends at the limit that is reached first. Larger groups compress better, and building one
# takes a few times as much memory.
_GROUP_BYTES = 64 * 1024 * 1024
_GROUP_ROWS = 20_000

_SPOOL_KEY = b"gossamer.spool"
"""Key in the file's metadata with the digest of the last spool that was added. Neither the key nor the digest may
change: a process that does not find them in an existing file adds the same spool again."""


def require_parquet() -> None:
    """Raise `BadInput` if the library is not installed."""
    if find_spec("pyarrow") is None:
        raise BadInput(f"Parquet needs pyarrow: {install_advice('parquet')}")


def check_parquet(path: Path) -> None:
    """Raise `BadInput` if the existing file is not a Parquet file, or has other columns than `parquet_schema`."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as exc:
        raise BadInput(f"the output {path} exists and is not a Parquet file: {exc}") from exc
    if not schema.equals(parquet_schema()):
        raise BadInput(f"the output {path} exists and has other columns; name another file")


def parquet_schema() -> Any:
    """Return the columns: the fields of a page, then those that only an item has. A field that a record lacks is null.

    Headers and timings are maps. `attrs`, `content`, `rendering`, `refusal` and `item` are JSON text. A change of a
    column makes `check_parquet` refuse every existing file.
    """
    text, number = pa.string(), pa.int64()
    headers = pa.map_(text, pa.list_(text))
    special = {
        "attempt": number,
        "depth": number,
        "status_code": number,
        "response_headers": headers,
        "request_headers": headers,
        "links": pa.list_(pa.struct([("url", text), ("text", text)])),
        "redirects": pa.list_(pa.struct([("url", text), ("status", number)])),
        "timings": pa.map_(text, pa.float64()),
        "success": pa.bool_(),
        "truncated": pa.bool_(),
    }
    names = dict.fromkeys([*PageRecord.__struct_fields__, *ItemRecord.__struct_fields__])
    return pa.schema([(name, special.get(name, text)) for name in names])


def build_parquet(existing: Path | None, spool: Path, out: Path) -> bool:
    """Write to `out` the rows of `existing` (None: there are none), then the records of `spool`; flush it to the disk.

    Returns False, without `out`, if the spool is already in `existing`. The spool must not have a torn tail. Raises
    SinkError, also for a library that is installed and cannot be loaded.
    """
    try:
        import_module("pyarrow.parquet")
    except ImportError as exc:
        advice = f"Install it again: {install_advice('parquet')}"
        raise SinkError(f"Parquet: pyarrow cannot be loaded ({exc}). {advice}") from exc
    try:
        spool_digest = _digest(spool)
        if existing is not None and (pq.read_metadata(existing).metadata or {}).get(_SPOOL_KEY) == spool_digest:
            return False
        with out.open("wb") as stream:
            write_parquet(read_records(spool), stream, existing=existing, spool_digest=spool_digest)
            stream.flush()
            flush(stream.fileno())
    except (BadInput, pa.ArrowException) as exc:
        raise SinkError(str(exc)) from exc
    return True


def write_parquet(
    records: Iterable[PageRecord | ItemRecord],
    stream: BinaryIO,
    *,
    existing: Path | None = None,
    spool_digest: bytes | None = None,
) -> None:
    """Write a Parquet file: the rows of `existing`, then the records. Raises `SinkError`."""
    schema = parquet_schema()
    try:
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            if existing is not None:
                _copy(existing, writer, schema)
            for rows in _groups(records):
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            if spool_digest is not None:
                writer.add_key_value_metadata({_SPOOL_KEY: spool_digest})
    except pa.ArrowException as exc:
        raise SinkError(str(exc)) from exc


def _digest(path: Path) -> bytes:
    """Return the digest of a spool that a Parquet file keeps under _SPOOL_KEY."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest().encode()


def _copy(existing: Path, writer: Any, schema: Any) -> None:
    """Copy all rows of an existing Parquet file."""
    with pq.ParquetFile(existing) as source:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group).replace_schema_metadata(schema.metadata))


def _groups(records: Iterable[PageRecord | ItemRecord]) -> Iterator[list[dict[str, Any]]]:
    """Yield the records as rows, one list for each row group."""
    rows: list[dict[str, Any]] = []
    size = 0
    for record in records:
        row = _row(record)
        rows.append(row)
        size += len(row.get("body") or row.get("item") or "")
        if size >= _GROUP_BYTES or len(rows) >= _GROUP_ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _row(record: PageRecord | ItemRecord) -> dict[str, Any]:
    """Return a record as a row of `parquet_schema`."""
    row = msgspec.to_builtins(record)
    for name in ("response_headers", "request_headers", "timings"):
        if name in row:
            row[name] = list(row[name].items())
    for name in ("attrs", "content", "rendering", "refusal", "item"):
        if row.get(name) is not None:
            row[name] = encode_value(row[name]).decode()
    return dict(row)
