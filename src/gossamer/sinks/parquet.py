"""Parquet: a file whose index comes last, so it is built in one go from a spool of JSON lines."""

import hashlib
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from gossamer.errors import BadInput, SinkError
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.jsonl import decode_line, encode_value, open_lines


class _Library:
    """pyarrow, loaded when it is first needed: it takes as long to load as everything else a crawl needs together."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


pa: Any = _Library("pyarrow")
pq: Any = _Library("pyarrow.parquet")

_GROUP_BYTES = 64 * 1024 * 1024
_GROUP_ROWS = 20_000
"""A row group ends at whichever comes first; memory holds a few times as much while one is built."""

_MERGED = b"gossamer.spool"
"""Key in the file's metadata: the digest of the last spool that went in, so that it never goes in twice."""


def require_parquet() -> None:
    """`BadInput` if the library is not installed."""
    if find_spec("pyarrow") is None:
        raise BadInput("Parquet needs more than the core; pip install gossamer-crawl[parquet]")


def check_parquet(path: Path) -> None:
    """`BadInput` if the existing file is not one of ours, to which rows can be added."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as exc:
        raise BadInput(f"the output {path} exists and is no Parquet file: {exc}") from exc
    if not schema.equals(parquet_schema()):
        raise BadInput(f"the output {path} exists and has other columns; name another file")


def parquet_schema() -> Any:
    """The columns: the fields of a page, then those that only an item has. What a record lacks is null.

    Headers and timings are maps; `attrs` and `item`, which have any shape, are JSON text.
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
    """Write `out`: the rows of `existing` (None: there are none), then the records of `spool`; flushed to the disk.

    False, and no `out`, if the spool is already in `existing`. The spool must be whole.
    """
    try:
        merged = _digest(spool)
        if existing is not None and (pq.read_metadata(existing).metadata or {}).get(_MERGED) == merged:
            return False
        schema = parquet_schema()
        with out.open("wb") as stream:
            with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
                if existing is not None:
                    _copy(existing, writer, schema)
                for rows in _groups(spool):
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                writer.add_key_value_metadata({_MERGED: merged})
            stream.flush()
            os.fsync(stream.fileno())
    except (pa.ArrowException, msgspec.MsgspecError) as exc:
        raise SinkError(str(exc)) from exc
    return True


def _digest(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest().encode()


def _copy(existing: Path, writer: Any, schema: Any) -> None:
    with pq.ParquetFile(existing) as source:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group).replace_schema_metadata(schema.metadata))


def _groups(spool: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    with open_lines(spool) as stream:
        for line in stream:
            rows.append(_row(decode_line(line)))
            size += len(line)
            if size >= _GROUP_BYTES or len(rows) >= _GROUP_ROWS:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows


def _row(record: PageRecord | ItemRecord) -> dict[str, Any]:
    row = msgspec.to_builtins(record)
    for name in ("response_headers", "request_headers", "timings"):
        if name in row:
            row[name] = list(row[name].items())
    for name in ("attrs", "item"):
        if row.get(name) is not None:
            row[name] = encode_value(row[name]).decode()
    return dict(row)
