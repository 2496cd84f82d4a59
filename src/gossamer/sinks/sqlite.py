"""SQLite files with the tables `pages` and `items`: the sink, and the build from a spool for remote files.

Writing the same records again changes nothing: pages have the key `request_id`, and items `_request_id` and
`_position`, the number of the item among those of its page.

Fixed: the names of tables and key columns, which readers use; and that a batch is one transaction, because a batch is
either durable or may be written again.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.csv_rows import MAX_COLUMNS, OTHER_FIELDS
from gossamer.model.json_codec import encode_value, to_json_types
from gossamer.model.record import Output, PageRecord
from gossamer.sinks.append import translate_os_errors
from gossamer.sinks.base import SinkThread
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.stores.rows import ITEM_KEYS, ITEM_ORIGIN, PAGE_FIELDS, item_row, page_row
from gossamer.sinks.tables import PAGE_URL, Record
from gossamer.storage import sqlite
from gossamer.storage.files import flush, flush_folder, make_folder

Kind = Literal["pages", "items", "all"]
"""Records that a file takes."""

_LOCK_SECONDS = 30.0
"""Time to wait for another program that reads or writes the file, before the wait is reported. Shorter reports programs
that only take a moment."""
_ROWS_AT_ONCE = 1000
"""Records of a spool that one transaction adds. More take memory, fewer take longer."""
_BYTES_AT_ONCE = 16 * 1024 * 1024
"""Bytes of bodies that one transaction adds. More take memory, fewer take longer."""
_LARGEST_INTEGER = 2**63 - 1  # of SQLite: fixed


class SqliteSink:
    """Sink that writes each batch to a local SQLite file in one transaction. Other processes may write to the file.
    Implements Sink (sinks/base.py).

    Waits while another program holds the file's lock. A file that was moved or deleted meanwhile is made anew.
    """

    wants_wire = False
    wants_text = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = SinkThread("sink-sqlite")
        self._database: Database | None = None
        self._file: os.stat_result | None = None

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._write(outputs))

    async def close(self) -> None:
        await self._thread.run(self._close)

    def _write(self, outputs: Sequence[Output]) -> None:
        with translate_sqlite_errors(self.path):
            self._opened().add([output.record for output in outputs])

    def _opened(self) -> "Database":
        """Return the database that is at `path`."""
        if self._database is not None and not self._is_at_path():
            self._close()
        if self._database is None:
            make_folder(self.path.parent)
            is_new = not self.path.exists()
            self._database = Database(self.path)
            self._file = self.path.stat()
            if is_new:
                flush_folder(self.path.parent)
        return self._database

    def _is_at_path(self) -> bool:
        """Return whether the open file is still the one at `path`."""
        try:
            return self._file is not None and os.path.samestat(self._file, self.path.stat())
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


@contextmanager
def translate_sqlite_errors(path: Path | str) -> Iterator[None]:
    """Context that turns errors of SQLite and of the operating system into SinkFull or SinkError."""
    try:
        with translate_os_errors(path):
            yield
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF  # without the details of extended codes
        advice = ""
        if code == sqlite3.SQLITE_CORRUPT:
            advice = ". The file is damaged: stop, and put a whole copy in its place, or move it away to begin anew"
        raise (SinkFull if code == sqlite3.SQLITE_FULL else SinkError)(f"{path}: {exc}{advice}") from exc


class Database:
    """An open SQLite file with the tables `pages` and `items`, which are made when they are needed. For one thread."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """`durable` False: the caller flushes the file to the disk after `close`."""
        self._connection = sqlite.connect(path, lock_seconds=_LOCK_SECONDS)
        self._columns: dict[str, dict[str, str]] = {}
        """By table: the columns by their names in lower case, because SQLite takes `A` and `a` for one column."""
        self._schema_version = -1
        # Not WAL: the file can then be moved, copied or deleted during the crawl, because all of it is in the file.
        # PERSIST keeps the journal, a file beside it, until `close`; deleting it each time takes twice as long.
        self._connection.execute("PRAGMA journal_mode = PERSIST")
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    def close(self) -> None:
        """Close the file and delete its journal, unless another process writes."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def add(self, records: Iterable[Record]) -> None:
        """Add records in one transaction. The items of a page must follow each other, and replace earlier ones."""
        try:
            with sqlite.transaction(self._connection):
                self._add(records)
        except BaseException:
            self._schema_version = -1  # what this transaction changed is undone
            raise

    def _add(self, records: Iterable[Record]) -> None:
        self._read_schema()
        request_id: str | None = None
        position = 0
        for record in records:
            if isinstance(record, PageRecord):
                self._insert("pages", page_row(record))
                continue
            if record.request_id != request_id:
                request_id, position = record.request_id, 0
                self._delete_items(request_id)
            self._insert("items", item_row(record, position))
            position += 1

    def make_tables(self, kind: Kind, columns: Sequence[str]) -> None:
        """Make the tables for these records, unless they exist, and these columns of items."""
        with sqlite.transaction(self._connection):
            self._read_schema()
            for table in ("pages", "items"):
                if kind in ("all", table):
                    known = self._columns.get(table) or self._create(table)
                    if table == "items":
                        self._with_columns(table, known, dict.fromkeys(columns))

    def _delete_items(self, request_id: str) -> None:
        """Delete the items of an earlier attempt of this request, which may have found more of them."""
        if request_id and "items" in self._columns:
            self._connection.execute("DELETE FROM items WHERE _request_id = ?", (request_id,))

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        """Insert a row (values by column), or replace the row with its key. Makes missing tables and columns."""
        columns = self._columns.get(table) or self._create(table)
        if any(columns.get(_lower(name)) != name for name in row):
            row = self._with_columns(table, columns, row)
        names = ", ".join(map(_quoted, row))
        self._connection.execute(
            f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})",  # noqa: S608 (names are quoted)
            [_value(value) for value in row.values()],
        )

    def _create(self, table: str) -> dict[str, str]:
        """Make a table. Return its columns, as `_columns` has them."""
        if table == "pages":
            names, key = PAGE_FIELDS, "request_id"
        else:
            names, key = (*ITEM_KEYS, PAGE_URL, *ITEM_ORIGIN), ", ".join(ITEM_KEYS)
        self._connection.execute(f"CREATE TABLE {table} ({', '.join(map(_quoted, names))}, PRIMARY KEY ({key}))")
        columns = self._columns[table] = {_lower(name): name for name in names}
        return columns

    def _with_columns(self, table: str, columns: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
        """Add columns for the fields of a row that lack one. Return the row, with those that cannot have a column of
        their own in OTHER_FIELDS."""
        fitting: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in row.items():
            column = columns.get(_lower(name))
            may_be_column = bool(name) and name.isprintable()  # so it has no NUL, which ends a statement of SQLite
            if column is None and may_be_column and len(columns) < MAX_COLUMNS:
                self._add_column(table, columns, name)
                column = name
            (fitting if column == name else others)[name] = value  # `a` does not fit the column `A`
        if others:
            if OTHER_FIELDS in fitting:
                others[OTHER_FIELDS] = fitting[OTHER_FIELDS]
            if OTHER_FIELDS not in columns:
                self._add_column(table, columns, OTHER_FIELDS)
            fitting[OTHER_FIELDS] = others
        return fitting

    def _add_column(self, table: str, columns: dict[str, str], name: str) -> None:
        self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(name)}")
        columns[_lower(name)] = name

    def _read_schema(self) -> None:
        """Read the columns of the tables, if they may have changed."""
        version = self._connection.execute("PRAGMA schema_version").fetchone()[0]
        if version != self._schema_version:
            self._schema_version = version
            self._columns = {}
            for table in ("pages", "items"):
                names = _column_names(self._connection, table)
                if names:
                    self._columns[table] = {_lower(name): name for name in names}


def _column_names(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the names of a table's columns; empty if there is no such table."""
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


def _lower(name: str) -> str:
    """Return the form of a column's name by which SQLite tells columns apart."""
    return name.lower()


def _quoted(name: str) -> str:
    """Return a column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _value(value: object) -> object:
    """Return a value that SQLite can store. Arrays and objects become JSON text."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return to_json_types(value)
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER else str(value)
    if value is None or isinstance(value, float):
        return value
    encoded = encode_value(value).decode()
    return msgspec.json.decode(encoded) if encoded.startswith('"') else encoded


def check_sqlite(path: Path) -> None:
    """Raise `BadInput` if the existing file is not a SQLite file, or has other tables of these names."""
    try:
        with closing(sqlite.connect_to_read(path, lock_seconds=_LOCK_SECONDS)) as connection:
            for table, key in (("pages", "request_id"), ("items", ITEM_KEYS[0])):
                names = _column_names(connection, table)
                if names and key not in names:
                    raise BadInput(f"the output {path} exists and has another table {table}; name another file")
    except sqlite3.Error as exc:
        raise BadInput(f"the output {path} exists and is not a SQLite file: {exc}") from exc


def write_empty_sqlite(path: Path, kind: Kind, columns: Sequence[str]) -> None:
    """Make a file with the tables for these records, without rows. `columns`: of the items, where they are known.
    Raises SinkError."""
    with translate_sqlite_errors(path):
        make_folder(path.parent)
        database = Database(path)
        try:
            database.make_tables(kind, columns)
        finally:
            database.close()
        flush_folder(path.parent)


def has_other_tables(path: Path) -> bool:
    """Return whether a SQLite file holds more than the two tables of records."""
    with closing(sqlite.connect_to_read(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    return not {name for (name,) in rows} <= {"pages", "items"}


def build_sqlite(kind: Kind, columns: Sequence[str], existing: Path | None, spool: Path, out: Path) -> bool:
    """Write to `out` the database `existing` (None: there is none) with the records of the spool; flush it to the disk.
    A Build of `spool.py`, once `kind` and `columns` (see `Database.make_tables`) are given."""
    sqlite.delete_side_files(out)  # of a build that was killed, as is `out`
    if existing is not None:
        existing.replace(out)
    else:
        out.unlink(missing_ok=True)
    try:
        with translate_sqlite_errors(out):
            database = Database(out, durable=False)
            try:
                if existing is None:
                    database.make_tables(kind, columns)
                for records in whole_pages(read_records(spool)):
                    database.add(records)
            finally:
                database.close()
            with out.open("rb") as stream:
                flush(stream.fileno())
    except BadInput as exc:
        raise SinkError(str(exc)) from exc
    return True


def whole_pages(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield groups of records of which none ends within the items of a page."""
    group: list[Record] = []
    size = 0
    for record in records:
        if (len(group) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE) and record.request_id != group[-1].request_id:
            yield group
            group, size = [], 0
        group.append(record)
        size += len(record.body) if isinstance(record, PageRecord) else 0
    if group:
        yield group
