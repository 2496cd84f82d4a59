"""Conversion of an output into another format: every format that Gossamer writes into every other.

The new file takes its name when it is complete. What the new format cannot carry (`Exported.losses`) is counted, and
told in sentences.

Fixed: an existing file is replaced only if the caller asks for it, and never by a part of the new one.
"""

import codecs
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import msgspec

from gossamer.controls import without_controls
from gossamer.errors import BadInput, OutputClosed, SinkError
from gossamer.model import DATA_DIR
from gossamer.model.csv_rows import OTHER_FIELDS
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.net.credentials import hide_secrets
from gossamer.policy.words import counted
from gossamer.sinks import read
from gossamer.sinks.append import translate_os_errors
from gossamer.sinks.open import CSV, JSON, PARQUET, SQLITE, STORE, ending_of, format_of, is_url, local_path
from gossamer.sinks.read import Source
from gossamer.sinks.remote import RemoteFile
from gossamer.sinks.spool import require_parquet, write_parquet
from gossamer.sinks.stores.address import StoreAddress, is_store
from gossamer.sinks.tables import BEGIN_OF_ARRAY, END_OF_ARRAY, PAGE_COLUMNS, CsvRows, find_columns, json_element
from gossamer.sinks.warc import rebuilt_exchange
from gossamer.storage import sqlite
from gossamer.storage.files import flush, flush_folder, make_folder, unfinished

Kind = Literal["pages", "items", "all"]

_COPIED_BYTES = 1 << 20
"""Bytes that are copied at once. More take memory, fewer take longer."""

# Size of a group of records that is encoded at once, which ends at the limit that is reached first. Larger groups
# compress better and take more memory.
_GROUP_BYTES = 4 * 1024 * 1024
_GROUP_RECORDS = 1000


class ExportStopped(Exception):
    """Raised by `ExportOptions.on_progress` to end an export, which then removes what it began."""


class ExportOptions(msgspec.Struct):
    """Choices of an export."""

    records: Literal["auto", "pages", "items", "all"] = "auto"
    """auto: CSV, JSON and stores take the items, or the pages if there are no items; the other formats take all."""
    csv_guard: bool = False
    """As in `TableOptions`."""
    crawl_id: str = ""
    """Take only the records of this crawl. Empty: of all."""
    on_progress: Callable[[int], None] = lambda _: None
    """Called again and again with the number of records that were read. It may raise to end the export."""
    needs_records: bool = False
    """True: an input without such records raises `BadInput`, and no file is written."""
    refused_folder: Path = Path(DATA_DIR, "refused")
    """Folder for the rows that a store refuses."""


class Exported(msgspec.Struct):
    """Result of an export."""

    pages: int = 0
    """Number of records of requests, fetched or failed."""
    failed: int = 0
    """Number of those that failed or were not sent, for example because robots.txt forbids the URL."""
    items: int = 0
    losses: list[str] = msgspec.field(default_factory=list)
    """Sentences on what the new file lacks, with counts."""

    def sentences(self, source: str, target: str) -> list[str]:
        """Return what was exported from where to where, then the losses."""
        counts = {"page": self.pages - self.failed, "failed request": self.failed, "item": self.items}
        found = [counted(count, word) for word, count in counts.items() if count]
        to = "standard output" if target == "-" else target
        what = " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))
        return [f"Exported {what or 'no records'} from {source} to {to}.", *self.losses]


class _Survey(NamedTuple):
    """Contents of a source, which some formats need to know before they begin."""

    pages: int
    items: int
    columns: list[str]
    """Columns of the items."""


def export_file(source: Source, target: Path, ending: str, options: ExportOptions, *, replace: bool) -> Exported:
    """Convert `source` into a local file of the format `ending`. `replace`: replace an existing file.

    Raises `BadInput` for a file that exists or cannot be read, or `SinkError`.
    """
    if target.exists() and source.path.exists() and target.samefile(source.path):
        raise BadInput(f"{target} is the input. Name another file.")
    if target.is_dir():
        raise BadInput(f"{target} is a folder. Name a file in it.")

    def check_target() -> None:
        if target.exists() and not replace:
            raise BadInput(f"{target} exists. Name another file, or replace it with -f.")

    check_target()
    with translate_os_errors(target):
        make_folder(target.absolute().parent)
        with unfinished(target) as part:
            if ending in SQLITE:
                exported = _Export(source, ending, options).to_database(part)
            else:
                with part.open("wb") as stream:
                    exported = export_stream(source, stream, ending, options)
            if options.needs_records and not exported.pages + exported.items:
                raise BadInput(f"{source.name} has no {'records' if options.records == 'all' else options.records}")
            with part.open("rb") as complete:
                flush(complete.fileno())
            check_target()  # again: another program may have made it meanwhile
            if ending in SQLITE:
                sqlite.delete_side_files(target)
            part.replace(target)
            flush_folder(target.absolute().parent)
    return exported


def export_stream(source: Source, stream: BinaryIO, ending: str, options: ExportOptions) -> Exported:
    """Convert `source` into a stream of any format but SQLite. Raises as `export_file`."""
    if ending == PARQUET:
        require_parquet()
    return _Export(source, ending, options).to_stream(stream)


def open_source(path: str, folder: Path) -> Source:
    """Return an output as a source. A remote one is copied into `folder`, a temporary one, first. Raises `BadInput`."""
    if is_store(path):
        raise BadInput(f"{hide_secrets(path)} is a database. Only files can be converted.")
    if not is_url(path):
        here = os.getcwd() + os.sep
        return Source(local_path(path), name=path.removeprefix(here))
    remote = RemoteFile(path)
    remote.require_driver()
    copy = folder / "input"
    try:
        if not remote.fetch(copy):
            raise BadInput(f"there is no file {remote.display_url}")
    except SinkError as error:
        raise BadInput(f"the input cannot be read: {error.detail}") from None
    return Source(copy, ending=ending_of(path), name=remote.display_url)


def export_to(
    source: Source, target: str, ending: str, options: ExportOptions, folder: Path, *, replace: bool
) -> Exported:
    """Convert `source` into a local or remote file, standard output (`-`), or the tables of a store, where rows replace
    those with the same key.

    `folder`: a temporary one. Raises as `export_file`, and `OutputClosed` when the reader of standard output is gone.
    """
    if target == "-":
        return _export_to_stdout(source, ending, options, folder)
    if ending == STORE:
        return _Export(source, ending, options).to_store(target)
    if not is_url(target):
        return export_file(source, local_path(target), ending, options, replace=replace)
    remote = RemoteFile(target)
    remote.require_driver()
    try:
        exists = remote.head(1) is not None
    except SinkError as error:
        raise BadInput(f"the output cannot be reached: {error.detail}") from None
    if exists and not replace:
        raise BadInput(f"{remote.display_url} exists. Name another file, or replace it with -f.")
    exported = export_file(source, folder / "output", ending, options, replace=False)
    remote.put(folder / "output")
    return exported


def _export_to_stdout(source: Source, ending: str, options: ExportOptions, folder: Path) -> Exported:
    """Convert to standard output. `folder`: for the formats that cannot be written from beginning to end."""
    stream = cast(BinaryIO, _TerminalText()) if sys.stdout.isatty() else sys.stdout.buffer
    try:
        if ending in SQLITE:
            exported = export_file(source, folder / "output", ending, options, replace=False)
            with (folder / "output").open("rb") as database:
                shutil.copyfileobj(database, stream, _COPIED_BYTES)
        else:
            exported = export_stream(source, stream, ending, options)
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes when it exits
        raise OutputClosed("standard output: its reader is gone") from None
    except OSError as error:
        raise SinkError(f"standard output: {error.strerror}") from None
    return exported


class _TerminalText(io.RawIOBase):
    """Standard output that is a terminal: control characters, which would act on it, are replaced."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a part may end within a character

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        text = self._decoder.decode(bytes(part)).replace("\r\n", "\n")
        sys.stdout.buffer.write(without_controls(text).encode())
        return len(part)

    def flush(self) -> None:
        sys.stdout.buffer.flush()


class _Export:
    """One conversion."""

    def __init__(self, source: Source, ending: str, options: ExportOptions) -> None:
        self._source = source
        self._ending = ending
        self._options = options
        self._kind: Kind = "all"
        """Records that are written; `_choose_records` sets it, and `_survey` if the format needs one."""
        self._survey = _Survey(0, 0, [])
        self._read = 0
        """Records read so far, in all passes."""
        self._exported = Exported()
        self._left_out = {"pages": 0, "items": 0}
        """Number of records that are not written, by kind."""
        self._lost: Counter[str] = Counter()
        """Number of records that are written without a part, by the part: bodies, origin (the fields of an item's
        record beside the item), wires (the bytes as they were sent), requests (request headers), rebuilt (wires that
        are made from the record), booleans (true and false), json_texts (text that is read as an array or object)."""

    def to_database(self, path: Path) -> Exported:
        """Write a SQLite file."""
        from gossamer.sinks.sqlite import Database, translate_sqlite_errors, whole_pages

        self._choose_records()
        with translate_sqlite_errors(path):
            database = Database(path, durable=False)
            try:
                if self._kind != "all":
                    database.make_tables(self._kind, ())
                for records in whole_pages(output.record for output in self._chosen()):
                    database.add(records)
            finally:
                database.close()
        return self._finished()

    def to_store(self, address: str) -> Exported:
        """Write to the tables of a store."""
        from gossamer.sinks.sqlite import whole_pages
        from gossamer.sinks.stores.sink import StoreSink, check_store

        self._choose_records()
        if self._options.needs_records and not self._survey.pages + self._survey.items:
            raise BadInput(f"{self._source.name} has no {'records' if self._kind == 'all' else self._kind}")
        check_store(address, self._kind)
        sink = StoreSink(StoreAddress.parse(address), self._kind, self._options.refused_folder, None)
        refused: Counter[str] = Counter()
        try:
            for records in whole_pages(output.record for output in self._chosen()):
                for sentence, rows in sink.add(records):
                    refused[sentence] += rows
        finally:
            sink.disconnect()
        if refused:
            example = next(iter(refused))
            self._exported.losses.append(f"{counted(refused.total(), 'row')} refused. {example}")
        return self._finished()

    def to_stream(self, stream: BinaryIO) -> Exported:
        """Write a file of any other format."""
        self._choose_records()
        if self._ending == CSV:
            self._write_csv(stream)
        elif self._ending == JSON:
            self._write_json(stream)
        elif self._ending == PARQUET:
            write_parquet((output.record for output in self._chosen()), stream)
        else:
            self._write_units(stream)
        return self._finished()

    def _choose_records(self) -> None:
        """Find out which records to take. CSV needs the columns of its items first, and CSV, JSON and stores without a
        choice take items if there are any; then the source is read once more."""
        kind = self._options.records
        if kind == "all" and self._ending == CSV:
            raise BadInput("a CSV file cannot hold both pages and items. Write --items or --pages.")
        asks = kind == "auto" or (kind, self._ending) == ("items", CSV)
        if (self._ending in (CSV, JSON) and asks) or (self._ending == STORE and (asks or self._options.needs_records)):
            pages = items = 0
            columns: list[str] = []

            def count(outputs: Iterator[Output]) -> Iterator[PageRecord | ItemRecord]:
                nonlocal pages, items
                for output in outputs:
                    pages += isinstance(output.record, PageRecord)
                    items += isinstance(output.record, ItemRecord)
                    yield output.record

            records = count(self._outputs())
            columns = find_columns(records)
            for _ in records:  # find_columns ends early if there are too many columns
                pass
            self._survey = _Survey(pages, items, columns)
            if kind == "auto":
                kind = "items" if items else "pages"
            self._survey = _Survey(pages * (kind != "items"), items * (kind != "pages"), columns)
        self._kind = "all" if kind == "auto" else kind

    def _outputs(self) -> Iterator[Output]:
        """Yield the records of the source that belong to the crawl."""
        for output in self._source.outputs():
            self._read += 1
            if self._read % 100 == 0:
                self._options.on_progress(self._read)
            if not self._options.crawl_id or output.record.crawlid in ("", self._options.crawl_id):
                yield output

    def _chosen(self) -> Iterator[Output]:
        """Yield the records to write, and count what they lose."""
        for output in self._outputs():
            record = output.record
            if isinstance(record, PageRecord):
                if self._kind == "items":
                    self._left_out["pages"] += 1
                    continue
                self._exported.pages += 1
                self._exported.failed += not record.success
                if self._ending == CSV and record.body:
                    self._lost["bodies"] += 1
            else:
                if self._kind == "pages":
                    self._left_out["items"] += 1
                    continue
                self._exported.items += 1
                if self._kind == "items" and self._ending in (CSV, JSON) and record.request_id:
                    self._lost["origin"] += 1
                if self._ending in SQLITE and any(isinstance(value, bool) for value in record.item.values()):
                    self._lost["booleans"] += 1
                if self._ending in SQLITE and any(map(read.reads_as_json, record.item.values())):
                    self._lost["json_texts"] += 1
            if output.wires and not self._ending.startswith(".warc"):
                self._lost["wires"] += len(output.wires)
            yield output

    # --- formats ------------------------------------------------------------------------------------------------------

    def _write_csv(self, stream: BinaryIO) -> None:
        columns = PAGE_COLUMNS if self._kind == "pages" else self._survey.columns
        rows = CsvRows(columns, guard=self._options.csv_guard)
        stream.write(rows.header())
        for output in self._chosen():
            stream.write(rows.row(output.record))

    def _write_json(self, stream: BinaryIO) -> None:
        stream.write(BEGIN_OF_ARRAY)
        for number, output in enumerate(self._chosen()):
            stream.write(b",\n" if number else b"")
            stream.write(json_element(output.record, self._kind))
        stream.write(END_OF_ARRAY)

    def _write_units(self, stream: BinaryIO) -> None:
        """Write a format that is a row of units (lines, or archive records), group by group."""
        file_format = format_of(self._ending)
        assert file_format is not None  # others are built otherwise
        framing = file_format.framing()
        outputs = self._chosen()
        if file_format.wants_wire:
            outputs = map(self._with_wires, outputs)
        head = file_format.head()
        if head:
            stream.write(framing.pack(head))
        is_empty = not head
        for group in _groups(outputs):
            stream.write(framing.pack(file_format.encode(group)))
            is_empty = False
        if is_empty:
            stream.write(framing.pack([b""]))  # compressed formats have no file of no bytes

    def _with_wires(self, output: Output) -> Output:
        """Return a page with its exchange: rebuilt if the source does not have it."""
        record = output.record
        if output.wires or isinstance(record, ItemRecord):
            return output
        wire = rebuilt_exchange(record)
        if wire is None:
            self._lost["requests"] += bool(record.request_headers)
            return output
        self._lost["rebuilt"] += 1
        return Output(record=record, body=output.body, wires=(wire,))

    # --- what is lost -------------------------------------------------------------------------------------------------

    def _finished(self) -> Exported:
        """Return the result, with a sentence for each kind of loss."""
        lacks, lost, losses = self._source.lacks, self._lost, self._exported.losses
        name = self._source.name
        self._options.on_progress(self._read)
        if lacks[read.TORN]:
            losses.append(f"The end of {name} is left out: a record that is not written completely.")
        target = "this table" if self._ending == STORE else "this file"
        for kind, count in self._left_out.items():
            if count and self._options.records == "auto":
                losses.append(f"{counted(count, kind.removesuffix('s'))} left out: {target} has {self._kind} only.")
        if lacks[read.FOREIGN]:
            count = lacks[read.FOREIGN]
            losses.append(f"{counted(count, 'response')} left out: another program wrote them into {name}.")
        if lost["bodies"]:
            losses.append(f"{counted(lost['bodies'], 'page')} without the body: a CSV file has none.")
        if lacks[read.BODIES] and self._kind != "items":
            losses.append(f"{counted(lacks[read.BODIES], 'page')} without the body, which is not in {name}.")
        if lost["rebuilt"]:
            responses = counted(lost["rebuilt"], "response")
            losses.append(f"{responses} rebuilt from records: the exact bytes are not in {name}.")
        if lost["requests"]:
            losses.append(f"{counted(lost['requests'], 'page')} without the request headers: no response came.")
        if lost["wires"]:
            losses.append(f"The exact bytes of {counted(lost['wires'], 'exchange')} are only in {name}.")
        if lost["origin"]:
            items = counted(lost["origin"], "item")
            losses.append(f"{items} without the fields of their records (crawlid, request_id and so on).")
        if lost["booleans"]:
            losses.append(
                f"{counted(lost['booleans'], 'item')} with 1 and 0 for true and false: SQLite has no such type."
            )
        if lost["json_texts"]:
            items = counted(lost["json_texts"], "item")
            losses.append(f"{items} with text that is read as an array or object: SQLite has no such types.")
        if self._kind != "pages":
            self._add_losses_of_items(name)
        return self._exported

    def _add_losses_of_items(self, name: str) -> None:
        """Add the sentences that are only about items. `name`: of the source."""
        lacks, losses = self._source.lacks, self._exported.losses
        if lacks[read.ORIGIN] and self._ending not in (CSV, JSON):
            items = counted(lacks[read.ORIGIN], "item")
            losses.append(f"{items} with empty crawlid, request_id and so on, which are not in {name}.")
        if lacks[read.TYPES] and self._ending != CSV:
            losses.append(f"{counted(lacks[read.TYPES], 'item')} with text for numbers: there are no types in {name}.")
        if OTHER_FIELDS in self._survey.columns:
            losses.append(f"There are too many different fields for columns; some are in {OTHER_FIELDS}.")


def _groups(outputs: Iterator[Output]) -> Iterator[list[Output]]:
    """Yield the records in groups that are written at once."""
    group: list[Output] = []
    size = 0
    for output in outputs:
        group.append(output)
        if isinstance(output.record, PageRecord):
            size += len(output.record.body) + sum(len(wire.response_body) for wire in output.wires)
        if size >= _GROUP_BYTES or len(group) >= _GROUP_RECORDS:
            yield group
            group, size = [], 0
    if group:
        yield group
