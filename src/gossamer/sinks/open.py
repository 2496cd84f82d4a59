"""Sinks from the output paths that a person names (`-o`): checked before a crawl, opened in each worker.

Fixed: the suffixes, which people write, and the names of the folders in which an interrupted crawl has left a spool (a
local file that collects records for an output) or a ledger (a file that counts the records of an output).
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import unquote, urlsplit

import msgspec

from gossamer.errors import BadInput, SinkError
from gossamer.model.record import Destination, ItemRecord, PageRecord
from gossamer.net.credentials import hide_secrets
from gossamer.option_names import named
from gossamer.sinks.append import AppendFile, FileSink, Ledger, OnMissing, check_folder
from gossamer.sinks.assets import AssetFolder, manifest_of
from gossamer.sinks.base import RecordFilter, Sink
from gossamer.sinks.framing import FileFormat, GzipMembers, PlainLines, ZstdFrames
from gossamer.sinks.jsonl import TEXT_WANTED, StdoutSink, json_units
from gossamer.sinks.stores.address import SCHEMES, StoreAddress, is_store, other_database
from gossamer.sinks.tables import (
    PAGE_COLUMNS,
    CsvRows,
    TableOptions,
    array_end,
    build_csv,
    build_json,
    check_csv,
    csv_format,
)

if TYPE_CHECKING:
    from gossamer.sinks.spool import Build, SpooledSink

_HEAD_BYTES = 64
"""Bytes of an existing output from which its format is recognised. May be larger, not smaller: framings need them."""

_NAME_CHARACTERS = 16
"""Characters of a hash that name a folder or a ledger. Fixed, like the names."""

NO_TABLES = TableOptions()
"""Options of a crawl without items."""

JSONL_ZST = FileFormat(".jsonl.zst", ZstdFrames, json_units, wants_text=TEXT_WANTED)
"""Also the format of the spools of Parquet files."""

# Suffixes are documented names and must not change. The format of a remote file's spool must not change either: an
# interrupted crawl may have left such a spool. New formats may be added in any order, if no suffix ends with another.
FORMATS = (
    FileFormat(".jsonl", PlainLines, json_units, wants_text=TEXT_WANTED),
    FileFormat(".jsonl.gz", GzipMembers, json_units, wants_text=TEXT_WANTED),
    JSONL_ZST,
)
_WARC = (".warc", ".warc.gz")

# First bytes of these files: fixed by the formats.
_PARQUET_MAGIC = b"PAR1"
_SQLITE_MAGIC = b"SQLite format 3\0"

# Suffixes of the formats that are not a row of units (a unit is what one write adds: lines, or an archive record).
# Documented names, like those above: they must not change.
PARQUET = ".parquet"
CSV = ".csv"
JSON = ".json"
SQLITE = (".sqlite", ".sqlite3", ".db")
TABLES = (CSV, JSON, *SQLITE)
"""Formats that take either pages or items unless told otherwise."""
STORE = "store"
"""Stands for the ending of an output in a store (a database or a search server), which has none. Never a suffix."""
ENDINGS = (*(file_format.suffix for file_format in FORMATS), *_WARC, PARQUET, *TABLES)
"""All endings that select a format. An ending must not be the end of another one: the first that fits is taken."""

Named = str | Destination
"""An output as a person names it; a text is its path."""


class _Opened(msgspec.Struct, frozen=True):
    """An output whose format and records are known."""

    path: str
    ending: str
    """Empty: standard output. STORE: a store."""
    kind: Literal["pages", "items", "all"]

    @property
    def is_remote(self) -> bool:
        """True for a file that is read and written as a whole, elsewhere."""
        return is_url(self.path) and self.ending != STORE


class RefusedOptions(msgspec.Struct, frozen=True):
    """Place of the rows that a store refuses."""

    folder: Path
    """Folder for a file of each table. It is made when it is needed."""
    on_refused: Callable[[str, int], None] | None = None
    """Called with a sentence about refused rows, and their number."""


def ending_of(path: str) -> str:
    """Return the ending of a path or URL that selects its format; STORE for the address of a store. Raises `BadInput`
    for an unknown one."""
    if is_store(path):
        return STORE
    if refusal := other_database(path):
        raise BadInput(refusal)
    for ending in ENDINGS:
        if path.lower().endswith(ending):
            return ending
    if path and not is_url(path) and (path.endswith("/") or Path(path).is_dir()):
        raise BadInput(f"the output {path} is a folder, not a file. Name a file in it: {path.rstrip('/')}/pages.jsonl")
    no_store = f"is no database that is supported, whose addresses begin with {', '.join(SCHEMES)}; as a file it "
    raise BadInput(
        f"the output {hide_secrets(path)} {no_store * is_url(path)}has an unknown ending; known are "
        f"{' '.join(ENDINGS)}, and - for standard output"
    )


def format_of(path: str) -> FileFormat | None:
    """Return the format by the ending of a path or URL, if batches can be appended to it whatever they hold; else None.

    Raises `BadInput` for an unknown ending.
    """
    ending = ending_of(path)
    formats = _warc_formats() if ending in _WARC else FORMATS
    return next((file_format for file_format in formats if file_format.suffix == ending), None)


@cache
def _warc_formats() -> tuple[FileFormat, ...]:
    """Return the formats of _WARC, whose module is imported late, like those of spools and remote files below."""
    from gossamer.sinks.warc import WarcRecords, warc_units, warcinfo_units

    return (
        FileFormat(".warc", WarcRecords, warc_units, warcinfo_units, wants_wire=True),
        FileFormat(".warc.gz", GzipMembers, warc_units, warcinfo_units, wants_wire=True),
    )


def _resolve(output: Named, tables: TableOptions) -> _Opened:
    """Return the format of an output and which records it takes. Raises `BadInput`."""
    destination = Destination(output) if isinstance(output, str) else output
    path, kind = destination.path, destination.records
    ending = "" if path == "-" else ending_of(path)
    if kind == "auto":
        kind = ("items" if tables.has_items else "pages") if ending in (*TABLES, STORE) else "all"
    if kind == "all" and ending == CSV:
        raise BadInput(f"the output {path} cannot hold both pages and items; name two files")
    return _Opened(path, ending, kind)


def kind_of(output: Destination, tables: TableOptions) -> Literal["pages", "items", "all"]:
    """Return which records an output of a crawl takes. Raises `BadInput`."""
    return _resolve(output, tables).kind


def check_outputs(outputs: Sequence[Named], *, tables: TableOptions = NO_TABLES, replaces: bool = False) -> None:
    """Check, once before a crawl starts, whether these outputs can be written, as far as can be told without writing.

    This also contacts remote servers. Raises `BadInput` for an unknown ending or protocol, a missing library, a path
    that is not writable or a directory, a file of another format, an output that is named twice, or an unreachable
    server. `replaces`: existing tables will be emptied and may have other columns.
    """
    if not outputs:
        raise BadInput(f"no output is named; try {named('output', 'pages.jsonl')}")
    seen: set[str] = set()
    for output in outputs:
        opened = _resolve(output, tables)
        key = _output_key(opened.path)
        if key in seen:
            raise BadInput(f"the output {hide_secrets(str(output))} is named twice")
        seen.add(key)
        if opened.ending == STORE:
            from gossamer.sinks.stores.sink import check_store  # imported late, like its driver: few crawls need it

            check_store(opened.path, opened.kind)
        elif opened.is_remote:
            _check_remote(opened)
        elif opened.ending:
            _check_local(local_path(opened.path), opened, tables, replaces=replaces)


def missing_folders(outputs: Sequence[Named]) -> list[Path]:
    """Return the folders of local outputs that do not exist yet. The first write makes them and their parents."""
    paths = map(str, outputs)
    folders = (local_path(path).parent for path in paths if is_local(path))
    return [folder for folder in dict.fromkeys(folders) if not folder.exists()]


def open_sinks(
    outputs: Sequence[Named],
    *,
    spool_dir: Path,
    run: str = "",
    on_missing: OnMissing | None = None,
    tables: TableOptions = NO_TABLES,
    refused: RefusedOptions | None = None,
) -> list[Sink]:
    """Return a sink for each output, for this process; `-` is standard output. Files are opened at the first write.

    `spool_dir`: folder for lock files and spools. It must be the same for all processes of a crawl, and when the crawl
    is resumed. Opening and closing a sink without a write finishes the spool that an earlier run left there.

    `on_missing` is called when records that were written are missing from a local file. They are noticed by a ledger: a
    file in `spool_dir` that counts the records written to one output. `run`: name of the run whose processes share a
    ledger, also when the run is resumed; empty: each process counts only its own records, in memory. `tables` must be
    the same for all processes and when the crawl is resumed. `refused`: for rows that do not fit their table in a
    store; None: they are in the folder `refused` beside `spool_dir`. Raises `BadInput` for an unknown ending or a
    missing library; `check_outputs` finds other problems.
    """
    refused = refused or RefusedOptions(Path(spool_dir).parent / "refused")
    opened = [_resolve(output, tables) for output in outputs]
    return [
        _open_store(output, refused)
        if output.ending == STORE
        else _filtered(_open_sink(output, spool_dir, run, on_missing, tables), output)
        for output in opened
    ]


def open_asset_folder(folder: str, *, spool_dir: Path, run: str, on_missing: OnMissing | None) -> AssetFolder:
    """Return a sink for assets, the files that pages embed or link. The arguments are as for `open_sinks`."""
    ledger = _ledger(_folder(manifest_of(folder), spool_dir), run) if on_missing is not None else None
    return AssetFolder(Path(folder), ledger=ledger, on_missing=on_missing)


def write_empty(output: Named, tables: TableOptions, *, spool_dir: Path) -> bool:
    """Make a file without records, as its format has it (an empty array, a table without rows), if there is no file or
    one without content. Return whether it was made.

    Standard output needs none, and the tables of a store were made when the crawl began. Call it when no sink of this
    process has the output open. Raises `SinkError`.
    """
    opened = _resolve(output, tables)
    path = local_path(opened.path)
    if opened.ending in ("", STORE) or (not opened.is_remote and has_content(path)):
        return False
    if not opened.is_remote and opened.ending in SQLITE:
        from gossamer.sinks.sqlite import write_empty_sqlite

        write_empty_sqlite(path, opened.kind, tables.columns or ())
        return True
    if not opened.is_remote and (file_format := _appendable(opened, tables)) is not None:
        file = AppendFile(path, file_format.framing(), file_format.head)
        try:
            file.append([b""])  # a unit without records: compressed formats have no file of no bytes
        finally:
            file.close()
        return True
    from gossamer.sinks.remote import RemoteFile

    if opened.is_remote and RemoteFile(opened.path).head(1):
        return False
    sink = _open_sink(opened, spool_dir, "", None, tables)
    return cast("SpooledSink", sink).finish_empty()


def left_spool(path: str, *, spool_dir: Path) -> Path | None:
    """Return the file with records of an output that is not built from them yet. None: there are none."""
    return next(_folder(path, spool_dir).glob("spool.*"), None) if path != "-" else None


def delete_ledgers(outputs: Sequence[Named], *, spool_dir: Path, run: str) -> None:
    """Delete the ledgers (see `open_sinks`) of a finished run, which will not be resumed."""
    for path in map(str, outputs):
        _ledger(_folder(path, spool_dir), run).delete()


def discard(output: Named, *, spool_dir: Path, crawl_id: str, tables: TableOptions = NO_TABLES) -> None:
    """Delete the contents of an output, and what an earlier run has left of it in its spool. No sink may have it open.

    A file to which batches are appended is cut, so that a program that follows it goes on; others are deleted. In a
    store, only the rows of this crawl are deleted.
    """
    path = str(output)
    if path == "-":
        return
    if is_store(path):
        from gossamer.sinks.stores.sink import delete_crawl

        delete_crawl(path, _resolve(output, tables).kind, crawl_id)
        return
    for spool in _folder(path, spool_dir).glob("spool.*"):
        spool.unlink(missing_ok=True)
    if is_url(path):
        from gossamer.sinks.remote import RemoteFile

        RemoteFile(path).delete()
        return
    file = local_path(path)
    if format_of(path) is not None:
        with suppress(FileNotFoundError):
            os.truncate(file, 0)
        return
    file.unlink(missing_ok=True)
    if ending_of(path) in SQLITE:
        from gossamer.storage.sqlite import delete_side_files

        delete_side_files(file)


def _open_store(output: _Opened, refused: RefusedOptions) -> Sink:
    """Return the sink of a store. It takes the records of its tables."""
    from gossamer.sinks.stores.sink import StoreSink

    return StoreSink(StoreAddress.parse(output.path), output.kind, refused.folder, refused.on_refused)


def _filtered(sink: Sink, output: _Opened) -> Sink:
    """Return the sink, limited to the records that the output takes."""
    if output.kind == "all":
        return sink
    kind = PageRecord if output.kind == "pages" else ItemRecord
    return RecordFilter(sink, lambda written: isinstance(written.record, kind))


def _open_sink(output: _Opened, spool_dir: Path, run: str, on_missing: OnMissing | None, tables: TableOptions) -> Sink:
    """Return the sink of an output for all records. Arguments as for `open_sinks`.

    Standard output, SQLite files, and local files to which batches can be appended are written directly. The others are
    built from a spool: remote files, Parquet, JSON, and CSV files whose columns are not known.
    """
    if not output.ending:
        return StdoutSink(spool_dir)
    path = output.path
    folder = _folder(path, spool_dir)
    if output.is_remote:
        return _remote_sink(output, folder, tables)
    if output.ending in SQLITE:
        from gossamer.sinks.sqlite import SqliteSink  # imported late, as below: few crawls need SQLite

        return SqliteSink(local_path(path))
    file_format = _appendable(output, tables)
    if file_format is None:
        return _spooled_sink(output, folder, tables)
    ledger = _ledger(folder, run) if on_missing is not None else None
    if file_format.wants_wire:
        from gossamer.sinks.warc import WarcEncoder

        file_format = msgspec.structs.replace(file_format, encode=WarcEncoder().units)
    return FileSink(local_path(path), file_format, ledger=ledger, on_missing=on_missing)


def open_spooled(output: Destination, *, spool_dir: Path, csv_guard: bool) -> "SpooledSink":
    """Return the sink of an output whose spool an earlier command has left (`left_spool`). A CSV file gets the columns
    that its items have, whatever the crawl's rules are now. Raises BadInput for a missing library."""
    tables = TableOptions(has_items=output.records == "items", columns=None, csv_guard=csv_guard)
    opened, folder = _resolve(output, tables), _folder(output.path, spool_dir)
    return (_remote_sink if opened.is_remote else _spooled_sink)(opened, folder, tables)


def _spooled_sink(output: _Opened, folder: Path, tables: TableOptions) -> "SpooledSink":
    """Return the sink of a local file that is built from a spool, which is in `folder`."""
    from gossamer.sinks.spool import SpooledSink, finish_local

    _require_library(output)
    finish = partial(finish_local, local_path(output.path), _build(output, tables))
    return SpooledSink(output.path, folder, JSONL_ZST, finish)


def _require_library(output: _Opened) -> None:
    """Raise `BadInput` if the library of an output's format is not installed."""
    if output.ending == PARQUET:
        from gossamer.sinks.spool import require_parquet

        require_parquet()


def _remote_sink(output: _Opened, folder: Path, tables: TableOptions) -> "SpooledSink":
    """Return the sink of a remote output. `folder`: that of its spool."""
    from gossamer.sinks.remote import RemoteFile
    from gossamer.sinks.spool import SpooledSink, concatenate, finish_remote

    _require_library(output)
    remote = RemoteFile(output.path)
    remote.require_driver()
    own_format = format_of(output.path)
    build = concatenate(own_format.framing()) if own_format else _build(output, tables)
    return SpooledSink(remote.display_url, folder, own_format or JSONL_ZST, partial(finish_remote, remote, build))


def _appendable(output: _Opened, tables: TableOptions) -> FileFormat | None:
    """Return the format of a local file to which batches can be appended: also of a CSV file whose columns are known.
    None: the file has to be built from a spool."""
    if output.ending != CSV:
        return format_of(output.path)
    columns = PAGE_COLUMNS if output.kind == "pages" else tables.columns
    if columns is None:
        return None
    return csv_format(CsvRows(columns, guard=tables.csv_guard))


def _build(output: _Opened, tables: TableOptions) -> "Build":
    """Return the function that builds an output from its spool. Not for the FORMATS."""
    if output.ending == PARQUET:
        from gossamer.sinks.spool import build_parquet

        return build_parquet
    if output.ending == CSV:
        return build_csv("pages" if output.kind == "pages" else "items", tables)
    if output.ending == JSON:
        return build_json(output.kind)
    from gossamer.sinks.sqlite import build_sqlite

    return partial(build_sqlite, output.kind, tables.columns or ())


def _folder(path: str, spool_dir: Path) -> Path:
    """Return the folder of an output's spool, lock and ledgers.

    Its name must not change: unfinished spools of earlier crawls lie there.
    """
    return spool_dir / "outputs" / hashlib.sha256(os.fsencode(_output_key(path))).hexdigest()[:_NAME_CHARACTERS]


def _ledger(folder: Path, run: str) -> Ledger:
    """Return the ledger of a run for one output. Its name must not change: a run that is resumed looks for it."""
    name = hashlib.sha256(run.encode()).hexdigest()[:_NAME_CHARACTERS]
    return Ledger(folder / f"{name}.ledger" if run else None)


def is_url(path: str) -> bool:
    """Return whether the output is remote."""
    return "://" in path and not path.startswith("file://")


def is_local(path: str) -> bool:
    """Return whether the output is a file on this machine: neither remote nor standard output."""
    return path != "-" and not is_url(path)


def has_content(path: Path) -> bool:
    """Return whether a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0


def local_path(path: str) -> Path:
    """Return the file of such an output."""
    return Path(unquote(urlsplit(path).path) if path.startswith("file://") else path)


def _output_key(path: str) -> str:
    """Return a text that is the same for two spellings of one output. Fixed: the name of its folder depends on it."""
    return os.path.realpath(local_path(path)) if is_local(path) else path


def _check_remote(output: _Opened) -> None:
    """Check that a remote output can be reached and has the right format, if it exists. Raises `BadInput`."""
    from gossamer.sinks.remote import RemoteFile

    _require_library(output)
    remote = RemoteFile(output.path)
    remote.require_driver()
    try:
        head = remote.head(_HEAD_BYTES)
    except SinkError as exc:
        raise BadInput(f"the output cannot be reached: {exc.detail}") from exc
    if head and not _accepts(output, head):
        raise BadInput(
            f"the output {remote.display_url} exists and its contents are of another kind; name another file"
        )


def _accepts(output: _Opened, head: bytes) -> bool:
    """Return whether a file that begins with these bytes may have the format of the output."""
    file_format = format_of(output.path)
    if file_format is not None:
        return file_format.framing().accepts(head)
    if output.ending == CSV:
        return b"\0" not in head
    if output.ending == JSON:
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"", b"[")
    magic = _PARQUET_MAGIC if output.ending == PARQUET else _SQLITE_MAGIC
    return magic.startswith(head[: len(magic)])


def _check_local(path: Path, output: _Opened, tables: TableOptions, *, replaces: bool) -> None:
    """Check that a local output can be written, and has the right format if it exists. Raises `BadInput`."""
    _require_library(output)
    exists = os.path.exists(path)  # not Path.exists, which fails below a folder that may not be read
    if exists and path.is_dir():
        raise BadInput(f"the output {path} is a directory; name a file in it")
    if exists:
        if not path.is_file():
            raise BadInput(f"the output {path} is not a regular file")
        try:
            with path.open("r+b") as stream:
                head = stream.read(_HEAD_BYTES)
        except OSError as exc:
            raise BadInput(f"the output {path} may not be written: {exc.strerror}") from exc
        if head and not _accepts(output, head):
            raise BadInput(f"the output {path} exists and its contents are of another kind; name another file")
        if head or output.ending == PARQUET:
            _check_contents(path, output, tables, replaces=replaces)
    is_appended_to = _appendable(output, tables) is not None  # others need a new file or a journal beside the old one
    if not exists or not is_appended_to:
        folder, fault = check_folder(path.parent)
        if fault:
            raise BadInput(f"the output {path} cannot be made: {folder} {fault}")


def _check_contents(path: Path, output: _Opened, tables: TableOptions, *, replaces: bool) -> None:
    """Check whether records can be added to an existing file that has the right beginning. `replaces`: the file will
    be emptied, so that its columns do not matter. Raises `BadInput`."""
    if output.ending == PARQUET:
        from gossamer.sinks.spool import check_parquet

        check_parquet(path)
    elif output.ending == CSV and not replaces:
        check_csv(path, output.kind, tables.columns, guard=tables.csv_guard)
    elif output.ending == JSON:
        array_end(path)
    elif output.ending in SQLITE:
        from gossamer.sinks.sqlite import check_sqlite

        check_sqlite(path)
