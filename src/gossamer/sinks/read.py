"""Readers of finished outputs, of every format that Gossamer writes: they yield the records again.

Records are read one after the other, in little memory. A format may lack parts of a record: a table of pages has no
bodies, and CSV has no types. `Source.lacks` counts what was missing, so that a program can say it.

To add a format, add a reader to `_READERS`. Fixed: a file that any earlier version wrote must stay readable, so names
of columns and fields may be added to what is read, not removed.
"""

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast, get_origin, get_type_hints

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.model.csv_rows import OTHER_FIELDS, unguarded
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.framing import GZIP_MAGIC, ZSTD_MAGIC, ZSTD_SKIPPABLE_MAGIC_REST, Framing, GzipMembers, ZstdFrames
from gossamer.sinks.framing import PlainLines as PlainLinesFraming
from gossamer.sinks.jsonl import decode_line
from gossamer.sinks.open import CSV, JSON, PARQUET, SQLITE, ending_of
from gossamer.sinks.spool import pa, pq, require_parquet
from gossamer.sinks.tables import PAGE_COLUMNS, PAGE_URL, csv_rows
from gossamer.sinks.warc import WarcRecords, read_pages
from gossamer.storage import sqlite

TORN = "torn"
"""Key of `Source.lacks`: the file ends with a part of a record, which a killed crawl left or a crawl writes now."""
TYPES = "types"
"""Key of `Source.lacks`: items whose values were read as text, because the format has no types."""
ORIGIN = "origin"
"""Key of `Source.lacks`: items of which only the fields are known, not the crawl and the request."""
BODIES = "bodies"
"""Key of `Source.lacks`: pages whose bodies are not in the file."""
FOREIGN = "foreign"
"""Key of `Source.lacks`: responses of other programs in a web archive."""

_BUFFER_BYTES = 1 << 20
"""Bytes that are read or decompressed at once. More take memory, fewer take longer."""
_ROWS_AT_ONCE = 500
"""Rows of a Parquet file that are read at once. Each holds a page, so more take memory."""
_PROGRAMS = frozenset({".py", ".toml", ".cfg", ".html", ".md"})
"""Endings of texts that a crawl never writes, and that would be read as tables."""
_HEAD_BYTES = 64
"""Bytes from which a format is recognised. May be larger, but not smaller: each format needs its magic number."""


class Source:
    """An output that is read. It can be read again from the beginning."""

    def __init__(self, path: Path, *, ending: str | None = None, name: str = "") -> None:
        """`ending`: selects the format; None: the ending of the name, or the contents where it says nothing. `name`:
        for messages; empty: the path. Raises `BadInput` if there is no such file."""
        self.path = path
        self.name = name or str(path)
        self.lacks: Counter[str] = Counter()
        """Number of cases of each kind (see the constants of this module) in the latest reading."""
        if path.is_dir():
            raise BadInput(f"{self.name} is a folder. Name a file in it.")
        if not path.is_file():
            raise BadInput(f"there is no file {self.name}")
        self.ending = ending or _ending_of_file(path)

    def outputs(self) -> Iterator[Output]:
        """Yield the records in their order. Raises `BadInput` where the file cannot be read."""
        self.lacks.clear()
        try:
            yield from _READERS[self.ending](self)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError, ValueError, msgspec.MsgspecError) as exc:
            raise BadInput(f"{self.name}: {exc}") from exc


class JoinedSource(Source):
    """The pages of one output and the items of another."""

    def __init__(self, pages: Source, items: Source) -> None:
        super().__init__(pages.path, ending=pages.ending, name=f"{pages.name} and {items.name}")
        self._parts = ((pages, PageRecord), (items, ItemRecord))

    def outputs(self) -> Iterator[Output]:
        self.lacks.clear()
        for source, kind in self._parts:
            for output in source.outputs():
                if isinstance(output.record, kind):
                    yield output
            self.lacks += source.lacks


def _ending_of_file(path: Path) -> str:
    """Return the ending that names the format of a file: that of its name, else the one that its contents suggest."""
    try:
        return ending_of(str(path))
    except BadInput:
        pass
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(GZIP_MAGIC):
        with gzip.open(path) as unpacked:
            return ".warc.gz" if unpacked.read(5) == b"WARC/" else ".jsonl.gz"
    ending = ending_of_head(head)
    if ending == CSV and path.suffix in _PROGRAMS:
        raise BadInput(f"{path} is a program, not an output of a crawl. Name a file with the records of a crawl.")
    return ending


def ending_of_head(head: bytes) -> str:
    """Return the ending that names the format of contents with this beginning. Raises `BadInput`."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for start, ending in ((b"WARC/", ".warc"), (b"PAR1", PARQUET), (b"SQLite format 3\0", SQLITE[0])):
        if head.startswith(start):
            return ending
    if head[:4] == ZSTD_MAGIC or head[1:4] == ZSTD_SKIPPABLE_MAGIC_REST:
        return ".jsonl.zst"
    if text[:1] in (b"", b"{"):
        return ".jsonl"
    if text[:1] == b"[":
        return JSON
    if b"\0" not in head:
        return CSV
    raise BadInput("the format of the input is not known. Name a file with one of the known endings.")


# --- JSON Lines and web archives --------------------------------------------------------------------------------------


class _Part(io.RawIOBase):
    """The beginning of a file, as a stream: all but its torn tail, which a killed writer left."""

    def __init__(self, stream: BinaryIO, end: int) -> None:
        self._stream = stream
        self._left = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._stream.read(min(len(buffer), self._left))
        buffer[: len(part)] = part
        self._left -= len(part)
        return len(part)


def whole_units(source: Source, stream: BinaryIO, plain: Framing) -> BinaryIO:
    """Return the decompressed contents of a file without its torn tail. `plain`: framing if it is not compressed."""
    magic = stream.read(4)
    framing = plain
    if magic.startswith(GZIP_MAGIC):
        framing = GzipMembers()
    elif magic == ZSTD_MAGIC or magic[1:] == ZSTD_SKIPPABLE_MAGIC_REST:
        framing = ZstdFrames()
    size = stream.seek(0, io.SEEK_END)
    end = framing.tail(stream.fileno(), 0, size, verify=False).end
    if end < size:
        source.lacks[TORN] += 1
    stream.seek(0)
    part = io.BufferedReader(_Part(stream, end), _BUFFER_BYTES)
    if isinstance(framing, GzipMembers):
        return cast(BinaryIO, gzip.GzipFile(fileobj=part))
    if isinstance(framing, ZstdFrames):
        reader = zstandard.ZstdDecompressor().stream_reader(part, read_across_frames=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader), _BUFFER_BYTES))
    return cast(BinaryIO, part)


def read_lines(lines: Iterator[bytes], name: str) -> Iterator[Output]:
    """Yield the records of JSON Lines. Raises `BadInput` for a line that is no record."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Output(record=decode_line(line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                raise BadInput(f"{name}, line {number}: not a record of a crawl ({exc})") from exc


def _json_lines(source: Source) -> Iterator[Output]:
    with source.path.open("rb") as stream:
        yield from read_lines(whole_units(source, stream, PlainLinesFraming()), source.name)


def _warc(source: Source) -> Iterator[Output]:
    with source.path.open("rb") as stream:
        foreign = yield from read_pages(whole_units(source, stream, WarcRecords()))
    if foreign:
        source.lacks[FOREIGN] += foreign


# --- tables -----------------------------------------------------------------------------------------------------------


def _parquet(source: Source) -> Iterator[Output]:
    """Yield the records of a Parquet file. Raises BadInput."""
    require_parquet()
    try:
        with pq.ParquetFile(source.path) as file:
            if not {"type", "request_id", "url", "item"} <= set(file.schema_arrow.names):
                raise BadInput(f"{source.name}: not a file of records; it has other columns")
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    yield Output(record=_record_of_row(row))
    except pa.ArrowException as exc:
        raise BadInput(f"{source.name}: {exc}") from exc


_PLAIN = (str, int, bool, Literal)
"""Types of fields whose values a table holds as they are; others are JSON text. Must hold all such types."""
_PAGE_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(PageRecord).items()}
"""Types of the fields of a page, without their parameters."""
_ITEM_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(ItemRecord).items()}


def _record_of_row(row: dict[str, Any]) -> PageRecord | ItemRecord:
    """Return the record of a row of a Parquet file: headers and timings are pairs, other objects are JSON text."""
    kind: type[PageRecord] | type[ItemRecord] = ItemRecord if row["type"] == "item" else PageRecord
    fields: dict[str, Any] = {}
    for name, plain in (_ITEM_TYPES if kind is ItemRecord else _PAGE_TYPES).items():
        value = row.get(name)
        if isinstance(value, str) and plain not in _PLAIN:
            value = msgspec.json.decode(value)
        elif plain is dict and isinstance(value, list):
            value = dict(value)
        fields[name] = value
    return msgspec.convert(fields, kind)


def _page_of_cells(cells: dict[str, Any]) -> PageRecord:
    """Return a page from the cells of a table: text, or values of SQLite. A field without a cell is empty."""
    fields: dict[str, Any] = {}
    for name, kind in _PAGE_TYPES.items():
        value = cells.get(name)
        if kind is bool:
            fields[name] = value in ("true", 1)
        elif kind is int:
            fields[name] = int(value or 0)
        elif kind in _PLAIN:
            fields[name] = "" if value is None else str(value)
        elif value:
            fields[name] = msgspec.json.decode(value)
        else:
            fields[name] = kind() if kind in (dict, list) else None
    fields |= {"type": "page", "body_encoding": fields["body_encoding"] or "text"}
    return msgspec.convert(fields, PageRecord)


def _value_of_cell(cell: object) -> object:
    """Return the value of a cell of an item: arrays and objects from their JSON text."""
    if isinstance(cell, str) and cell[:1] in ("[", "{") and cell[-1] in "]}":
        try:
            return msgspec.json.decode(cell)
        except (msgspec.DecodeError, RecursionError):
            return cell
    return cell


def reads_as_json(value: object) -> bool:
    """Return whether this value is a text which is read from a table as an array or an object."""
    return isinstance(value, str) and _value_of_cell(value) is not value


def _bare_item(fields: dict[str, Any]) -> ItemRecord:
    """Return the record of an item of which only the fields are known."""
    url = fields.get(PAGE_URL)
    return ItemRecord(
        appid="", crawlid="", spiderid="", request_id="", attempt=0, url=url if isinstance(url, str) else "",
        attrs=None, timestamp="", item=fields,
    )  # fmt: skip


def _csv(source: Source) -> Iterator[Output]:
    """Yield the records of a CSV file, which has either pages or items. Raises BadInput."""
    with source.path.open(encoding="utf-8-sig", newline="") as stream:
        # A guarded file has all text in quotes, which other files have only where they need them.
        is_guarded = stream.read(_HEAD_BYTES).startswith((f'"{PAGE_URL}"', f'"{PAGE_COLUMNS[0]}"'))
        stream.seek(0)
        rows = csv_rows(stream)
        if is_guarded:
            rows = ([unguarded(cell) for cell in row] for row in rows)
        header = next(rows, [])
        has_pages = {"url", "request_id", "status_code", "success"} <= set(header)
        for number, cells in enumerate(rows, 1):
            row: dict[str, Any] = {name: cell or None for name, cell in zip(header, cells, strict=False)}
            if has_pages and len(cells) != len(header):
                if len(cells) > len(header) or next(rows, None) is not None:
                    raise BadInput(f"{source.name}, row {number}: {len(cells)} cells, but the header has {len(header)}")
                source.lacks[TORN] += 1  # it is being written, or its writer was killed
            elif has_pages:
                source.lacks[BODIES] += row["success"] == "true"
                yield Output(record=_page_of_cells(row))
            else:
                source.lacks[TYPES] += 1
                source.lacks[ORIGIN] += 1
                yield Output(record=_bare_item(_item_of_cells(row)))


def _item_of_cells(row: dict[str, Any]) -> dict[str, Any]:
    fields = {name: _value_of_cell(cell) for name, cell in row.items()}
    others = fields.get(OTHER_FIELDS)
    if OTHER_FIELDS in fields and (others is None or isinstance(others, dict)):
        del fields[OTHER_FIELDS]
        fields |= others or {}
    return fields


def _json_array(source: Source) -> Iterator[Output]:
    """Yield the records of a JSON file; its elements may also be items alone, without a record. Raises BadInput."""
    for element in _elements(source):
        kind = element.get("type") if isinstance(element, dict) else None
        if kind == "page" and "request_id" in element:
            yield Output(record=msgspec.convert(element, PageRecord))
        elif kind == "item" and isinstance(element.get("item"), dict) and "request_id" in element:
            yield Output(record=msgspec.convert(element, ItemRecord))
        elif isinstance(element, dict):
            source.lacks[ORIGIN] += 1
            yield Output(record=_bare_item(element))
        else:
            raise BadInput(f"{source.name}: an element of the array is not an object")


def _elements(source: Source) -> Iterator[Any]:
    """Yield the elements of the array in a JSON file."""
    decoder = json.JSONDecoder()
    text = ""
    at = 0
    wanted = _BUFFER_BYTES
    with source.path.open(encoding="utf-8-sig") as stream:
        text = stream.read(wanted).lstrip()
        if not text.startswith("["):
            raise BadInput(f"{source.name}: not a JSON array")
        at = 1
        while True:
            at = _after(text, at, " \t\r\n,")
            if text[at : at + 1] == "]":
                return
            try:
                element, end = decoder.raw_decode(text, at)
                if end == len(text):  # a number may go on
                    raise ValueError
            except ValueError:
                more = stream.read(wanted)
                if not more:
                    raise BadInput(f"{source.name}: the array does not end; the file is torn") from None
                text, at = text[at:] + more, 0
                wanted = max(_BUFFER_BYTES, len(text))  # doubled, so that a large element is not parsed often
            except RecursionError:
                raise BadInput(f"{source.name}: an element is nested too deeply") from None
            else:
                yield element
                at = end


def _after(text: str, at: int, skipped: str) -> int:
    while at < len(text) and text[at] in skipped:
        at += 1
    return at


def _sqlite(source: Source) -> Iterator[Output]:
    """Yield the pages, then the items, of an SQLite file. Raises BadInput."""
    import sqlite3  # imported late: few outputs are SQLite files

    from gossamer.sinks.sqlite import check_sqlite
    from gossamer.sinks.stores.rows import ITEM_KEYS, ITEM_ORIGIN

    check_sqlite(source.path)
    try:
        with closing(sqlite.connect_to_read(source.path)) as connection:
            connection.row_factory = sqlite3.Row
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables & {"pages", "items"}:
                raise BadInput(f"{source.name}: neither a table pages nor a table items is in the file")
            if "pages" in tables:
                for row in connection.execute("SELECT * FROM pages ORDER BY rowid"):
                    cells = dict(row)
                    yield Output(record=_page_of_cells(cells))
            if "items" in tables:
                for row in connection.execute("SELECT * FROM items ORDER BY rowid"):
                    yield Output(record=_item_of_row(dict(row), (*ITEM_KEYS, *ITEM_ORIGIN)))
    except sqlite3.Error as exc:
        raise BadInput(f"{source.name}: {exc}") from exc


def _item_of_row(row: dict[str, Any], own: tuple[str, ...]) -> ItemRecord:
    """Return an item from a row of SQLite. `own`: columns that are not fields of the item."""
    values = {name[1:]: row.pop(name, None) for name in own}
    fields = _item_of_cells(row)
    return ItemRecord(
        appid=values["appid"] or "",
        crawlid=values["crawlid"] or "",
        spiderid=values["spiderid"] or "",
        request_id=values["request_id"] or "",
        attempt=values["attempt"] or 0,
        url=fields.get(PAGE_URL) or "",
        attrs=msgspec.json.decode(values["attrs"]) if values["attrs"] else None,
        timestamp=values["timestamp"] or "",
        item=fields,
    )


_READERS: dict[str, Callable[[Source], Iterator[Output]]] = {
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".jsonl.zst": _json_lines,
    ".warc": _warc,
    ".warc.gz": _warc,
    PARQUET: _parquet,
    CSV: _csv,
    JSON: _json_array,
    **dict.fromkeys(SQLITE, _sqlite),
}
