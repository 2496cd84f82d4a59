"""Tables of pages or items: CSV files, and JSON files that hold one array. SQLite and exports use their columns too.

A CSV file whose columns are known is appended to, row by row. Other tables are built when the last writer closes, from
a spool: a local file that collects the records of a crawl. A function that builds one is a `Build` (spool.py).

Fixed: rows end with a newline outside quotes, because the end of a torn file (its writer was killed) is found by them;
and `_once`, without which a kill between two steps would add a spool's records twice.
"""

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from gossamer.errors import BadInput, SinkError
from gossamer.model.csv_rows import add_columns, csv_row, guarded_row, unguarded, with_others
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.option_names import named
from gossamer.sinks.framing import RECENT, FileFormat, Tail, chunks_at, first_nul
from gossamer.sinks.jsonl import read_records
from gossamer.storage.files import flush

if TYPE_CHECKING:
    from gossamer.sinks.spool import Build

Record = PageRecord | ItemRecord

_FIRST_COLUMNS = (
    "url", "response_url", "status_code", "success", "reason", "exception", "depth", "content_type", "encoding",
    "truncated", "timestamp", "ip", "timings", "redirects", "links", "response_headers", "request_headers", "attrs",
    "status_msg", "appid", "crawlid", "spiderid", "request_id", "attempt",
)  # fmt: skip
_NO_COLUMNS = {"type", "body", "body_encoding"}
"""Fields of a page without a column. Like the columns below."""
PAGE_COLUMNS = tuple(
    name for name in dict.fromkeys([*_FIRST_COLUMNS, *PageRecord.__struct_fields__]) if name not in _NO_COLUMNS
)
"""Columns of a CSV file of pages: all fields but the body, which would make cells of megabytes. Readers find columns by
name, but a crawl cannot continue a file with other columns."""
PAGE_URL = "page_url"
"""First column of items: the URL of the page. Fixed: users select it by name."""
_COPIED_BYTES = 1 << 20
"""Bytes that are copied at once. More take memory, fewer take longer."""
_HEADER_BYTES = 1 << 20
"""Longest row of column names that is read from an existing file. A file with a longer row is not recognised."""


class TableOptions(msgspec.Struct, frozen=True):
    """Form of the tables of one crawl."""

    has_items: bool = False
    """True: the crawl extracts items, so a table takes them, not the pages, unless told otherwise."""
    columns: Sequence[str] | None = None
    """Columns of items, in order, beginning with `page_url`. None: they are found in the items."""
    csv_guard: bool = False
    """True: no cell of a CSV file can be a formula of a spreadsheet."""


def item_fields(record: ItemRecord) -> dict[str, Any]:
    """Return the fields of an item, the URL of its page first."""
    fields = {PAGE_URL: record.url, **record.item}
    if fields[PAGE_URL] is None:  # the item has a field of this name, without a value
        fields[PAGE_URL] = record.url
    return fields


# --- rows of CSV ------------------------------------------------------------------------------------------------------


class CsvRows:
    """Encoder of records as rows of one CSV file (model/csv_rows.py). A field that is missing becomes an empty cell."""

    def __init__(self, columns: Sequence[str], *, guard: bool) -> None:
        """`guard`: see `TableOptions.csv_guard`. Fields without a column go to the column `OTHER_FIELDS`, if there is
        one."""
        self.columns = tuple(columns)
        self._guard = guard
        self._known = frozenset(columns)

    def header(self) -> bytes:
        """Return the row of column names."""
        return self.cells(self.columns)

    def encode(self, outputs: Sequence[Output]) -> list[bytes]:
        """Return the rows of a batch as one unit."""
        return [b"".join([self.row(output.record) for output in outputs])]

    def row(self, record: Record) -> bytes:
        """Return the row of a record."""
        if isinstance(record, PageRecord):
            values = [getattr(record, name, None) for name in self.columns]
            return self.cells([None if value in ([], {}) else value for value in values])
        fields = with_others(item_fields(record), self._known)
        return self.cells([fields.get(name) for name in self.columns])

    def cells(self, values: Sequence[object]) -> bytes:
        """Return a row of these values."""
        return csv_row(values, guard=self._guard)

    def copied(self, cells: Sequence[str]) -> bytes:
        """Return a row of an existing file of the same form, with empty cells for the columns that it lacks."""
        cells = [*cells, *[""] * (len(self.columns) - len(cells))]
        return guarded_row(cells) if self._guard else self.cells(cells)


class CsvFraming:
    """Framing of a CSV file: a unit is a group of whole rows. A newline inside quotes does not end a row. Implements
    Framing (sinks/framing.py)."""

    def accepts(self, head: bytes) -> bool:
        return True  # `check_csv` compares the columns

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        rows = 0
        outside = True
        for chunk in chunks_at(fd, start, end):
            for part in chunk.split(b'"'):
                rows += part.count(b"\n") if outside else 0
                outside = not outside
            outside = not outside  # a chunk has one part more than quotes, so the loop has turned once too often
        return rows

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        if verify:  # a cell has no NUL, so zeros are what a power cut left
            size = first_nul(fd, max(start, size - RECENT), size)
        end = offset = start
        outside = True
        for chunk in chunks_at(fd, start, size):
            found = _last_row_end(chunk, outside)
            if found >= 0:
                end = offset + found
            outside ^= bool(chunk.count(b'"') % 2)
            offset += len(chunk)
        return Tail(end)


def _last_row_end(chunk: bytes, outside: bool) -> int:
    """Return the offset behind the last newline outside quotes; -1 if there is none. `outside`: whether the chunk
    begins outside quotes."""
    end = len(chunk)
    # Backwards from the end of the chunk, from quote to quote; each quote changes between outside and inside.
    is_outside = outside ^ bool(chunk.count(b'"') % 2)
    while True:
        quote = chunk.rfind(b'"', 0, end)
        if is_outside:
            found = chunk.rfind(b"\n", quote + 1, end)
            if found >= 0:
                return found + 1
        if quote < 0:
            return -1
        end, is_outside = quote, not is_outside


def csv_format(rows: CsvRows) -> FileFormat:
    """Return the format of a CSV file with these columns, to which batches can be appended."""
    return FileFormat(".csv", CsvFraming, rows.encode, lambda: [rows.header()])


def read_header(path: Path, *, guard: bool = False) -> list[str]:
    """Return the column names of a CSV file; empty for an empty file. Raises `BadInput`.

    `guard`: the file was written with it, so the quote before a name that could be a formula is no part of it."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        beginning = stream.read(_HEADER_BYTES)
    names = next(csv_rows(io.StringIO(beginning, newline="")), [])
    return [unguarded(name) for name in names] if guard else names


def has_only_header(path: Path, *, own: bool = False) -> bool:
    """Return whether a CSV file has no row but that of column names. `own`: and these are columns of pages or items."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            rows = list(islice(csv_rows(stream), 2))
    except BadInput:
        return False
    return len(rows) == 1 and (not own or rows[0][:1] == [PAGE_URL] or rows[0] == list(PAGE_COLUMNS))


def csv_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the rows of a CSV file. Cells may be of any size. Raises `BadInput`."""
    import csv  # imported late: few crawls read CSV

    csv.field_size_limit(sys.maxsize)  # by default 128 KiB, for all of the process; nothing else here reads CSV
    try:
        yield from csv.reader(lines)
    except csv.Error as exc:
        raise BadInput(f"not a CSV file: {exc}") from exc


def ways_out() -> str:
    """Return what a person can do about a table of other columns."""
    again = f"begin it again with {named('fresh', True)} if a crawl of these URLs wrote it here"
    return f"name another file, delete it, or {again}"


def check_csv(path: Path, kind: str, columns: Sequence[str] | None, *, guard: bool) -> None:
    """Raise `BadInput` if an existing file has rows, and not these columns (None: any columns of items)."""
    header = read_header(path, guard=guard)
    expected = PAGE_COLUMNS if kind == "pages" else columns
    if not header or (list(expected) == header if expected is not None else header[0] == PAGE_URL):
        return
    if has_only_header(path, own=True):  # the crawl begins it again
        return
    raise BadInput(f"the output {path} exists and has other columns; {ways_out()}")


# --- tables that are built from a spool -------------------------------------------------------------------------------


def build_csv(kind: Literal["pages", "items"], options: TableOptions) -> "Build":
    """Return a Build of a CSV file. Columns that the options do not give are those of the existing file, then the
    fields of the spool's items in the order in which they are found."""
    return partial(_once, partial(_build_csv, kind, options))


def build_json(kind: Literal["pages", "items", "all"]) -> "Build":
    """Return a Build of a JSON file. The elements of its array are records; in a file of items alone they are the items
    themselves, each beginning with `page_url`."""
    return partial(_once, partial(_build_json, kind))


def _once(build: Callable[[Path | None, Path, BinaryIO], None], existing: Path | None, spool: Path, out: Path) -> bool:
    """Build the table `out` from `existing` (None: there is none) and the records in `spool`. Return False, without
    building, if `existing` was built from this spool before: a process was killed before it deleted the spool.

    A file beside the spool, the marker, has the digests of the spool and of the table that was built from it. It must
    be complete when this returns: only then does the caller put `out` in the place of `existing`, so that no table is
    found there without its marker. A marker whose table never came there does not match, and is ignored."""
    marker = spool.with_name(_MARKER)
    spool_digest = _digest(spool)
    if existing is not None and marker.exists() and marker.read_text() == f"{spool_digest} {_digest(existing)}":
        return False
    if existing is not None and not existing.stat().st_size:
        existing = None
    try:
        with out.open("wb") as stream:
            build(existing, spool, stream)
            stream.flush()
            flush(stream.fileno())
    except (BadInput, msgspec.MsgspecError, UnicodeError) as exc:
        raise SinkError(str(exc)) from exc
    with marker.open("w") as stream_of_marker:
        stream_of_marker.write(f"{spool_digest} {_digest(out)}")
        stream_of_marker.flush()
        flush(stream_of_marker.fileno())
    return True


_MARKER = "built"
"""Name of the marker's file. Fixed: an interrupted crawl of an earlier version has left it."""


def _digest(path: Path) -> str:
    """Return a digest of a file's contents. The algorithm is fixed: the marker of `_once` is compared with it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _build_csv(kind: Literal["pages", "items"], options: TableOptions, existing: Path | None, spool: Path,
               out: BinaryIO) -> None:  # fmt: skip
    """Write the rows of an existing file, with cells for new columns, then those of the spool."""
    before = read_header(existing, guard=options.csv_guard) if existing is not None else []
    if kind == "pages":
        columns: Sequence[str] = PAGE_COLUMNS
    else:
        columns = options.columns or find_columns(read_records(spool), before)
    rows = CsvRows(columns, guard=options.csv_guard)
    if existing is not None and before == list(columns):
        _copy_rows(existing, out)
    else:
        out.write(rows.header())
        if existing is not None:
            out.writelines(_wider_rows(existing, rows))
    for record in read_records(spool):
        out.write(rows.row(record))


def find_columns(records: Iterable[Record], before: Sequence[str] = ()) -> list[str]:
    """Return `before` (columns of an existing file), then the fields of these items in the order in which they appear.

    Beyond MAX_COLUMNS there is one column for all others.
    """
    columns = dict.fromkeys([*before] or [PAGE_URL])  # a set that keeps the order
    for record in records:
        if isinstance(record, ItemRecord) and not add_columns(columns, record.item):
            break
    return list(columns)


def _copy_rows(existing: Path, out: BinaryIO) -> None:
    """Copy a CSV file whose columns do not change."""
    last = b"\n"
    with existing.open("rb") as stream:
        while part := stream.read(_COPIED_BYTES):
            out.write(part)
            last = part[-1:]
    if last != b"\n":
        out.write(b"\n")


def _wider_rows(existing: Path, rows: CsvRows) -> Iterator[bytes]:
    """Yield the rows of a CSV file with empty cells for the columns that it lacks."""
    with existing.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv_rows(stream)
        next(reader, None)
        for cells in reader:
            yield rows.copied(cells)


def _build_json(kind: str, existing: Path | None, spool: Path, out: BinaryIO) -> None:
    """Write the elements of an existing file, then those of the spool, as one array."""
    is_empty = _copy_array(existing, out) if existing is not None else _begin_array(out)
    for record in read_records(spool):
        out.write(b"" if is_empty else b",\n")
        out.write(json_element(record, kind))
        is_empty = False
    out.write(END_OF_ARRAY)


BEGIN_OF_ARRAY = b"[\n"
"""First bytes of a JSON file. Existing files may have any white space here, as in END_OF_ARRAY."""
END_OF_ARRAY = b"\n]\n"
"""Last bytes of a JSON file."""


def _begin_array(out: BinaryIO) -> bool:
    """Write the beginning of an array. Return True: it is empty."""
    out.write(BEGIN_OF_ARRAY)
    return True


def json_element(record: Record, kind: str) -> bytes:
    """Return a record as an element of a JSON file of this kind of records."""
    return encode_value(item_fields(record) if kind == "items" and isinstance(record, ItemRecord) else record)


def _copy_array(existing: Path, out: BinaryIO) -> bool:
    """Copy an array without its closing bracket. Return whether it is empty. Raises `BadInput` if it is no array."""
    left = array_end(existing)
    with existing.open("rb") as stream:
        last = b""  # the last byte so far that is no white space
        while left > 0 and (part := stream.read(min(_COPIED_BYTES, left))):
            out.write(part)
            left -= len(part)
            last = part.rstrip()[-1:] or last
    return last == b"["


def array_end(path: Path) -> int:
    """Return the offset behind the last element of the array in a JSON file, before white space and closing bracket.

    Raises `BadInput` if the file holds no array.
    """
    with path.open("rb") as stream:
        beginning = stream.read(_COPIED_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _COPIED_BYTES))
        ending = stream.read()
    closed = ending.rstrip()
    if not beginning.startswith(b"[") or not closed.endswith(b"]"):
        raise BadInput(f"the output {path} exists and is not a JSON array; name another file")
    return size - len(ending) + len(closed[:-1].rstrip())
