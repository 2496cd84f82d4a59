"""The part of a store that all SQL databases share: tables that fit the rows, batches, rows that are refused.

A batch is one transaction. When the database refuses it for a value, halves of the batch are tried in savepoints until
the rows that do not fit are found.

Fixed: rows are written by their key, because a batch whose confirmation was lost is written again. Safe to
change: how refused rows are found, and the number of repetitions.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum, auto
from typing import Any, Final

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import ColumnKind, RefusedRow, Row, StoreTable, split_keyless
from gossamer.sinks.tables import OTHER_FIELDS

_REPETITIONS: Final = 5
"""Times that a batch is written again at once which the database broke off because of others. May be changed; then the
caller repeats it."""


class Fault(Enum):
    """Meaning of a database's error for the batch."""

    VALUE = auto()
    """A value does not fit: it never will."""
    SCHEMA = auto()
    """The table is not as this process knows it."""
    CONFLICT = auto()
    """Another transaction was in the way."""
    FULL = auto()
    """There is no room."""
    AWAY = auto()
    """The connection is gone, or the database has another trouble that a person has to solve."""


class SqlStore(ABC):
    """Store in an SQL database. Implements Store (stores/rows.py)."""

    error: type[Exception]
    """Base class of the driver's errors."""
    max_columns: int
    """Columns of a table at most; the fields beyond are in OTHER_FIELDS. May be lowered, below the database's limit."""
    max_name: int
    """Longest name of a column: the database's limit."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self._connection: Any = None
        self._columns: dict[str, dict[str, str]] = {}
        """By table: the database's names of types by column."""
        self._written: dict[str, dict[str, None]] = {}
        """By table: the columns that this process has written, in their order. All are named in each batch, so that a
        row that replaces another one also empties the fields that it lacks."""

    # --- what a database has of its own -------------------------------------------------------------------------------

    @abstractmethod
    def connect(self) -> Any:
        """Return a new connection."""

    @abstractmethod
    def fault(self, error: Exception) -> Fault:
        """Return the meaning of an error of the driver."""

    @abstractmethod
    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """Return a context whose statements are carried out together or not at all; within another one, a savepoint."""

    @abstractmethod
    def read_columns(self, connection: Any, table: StoreTable) -> dict[str, str]:
        """Return the database's names of types by column. Empty: there is no such table."""

    @abstractmethod
    def create(self, connection: Any, table: StoreTable) -> None:
        """Make a table, unless another process has made it."""

    @abstractmethod
    def add_columns(self, connection: Any, table: StoreTable, columns: dict[str, ColumnKind]) -> None:
        """Add columns, unless another process has added them."""

    @abstractmethod
    def has_unique_key(self, connection: Any, table: StoreTable) -> bool:
        """Return whether a unique index has just the columns of the key."""

    @abstractmethod
    def insert(self, connection: Any, table: StoreTable, types: dict[str, str], rows: Sequence[Row]) -> None:
        """Write rows, or replace those with the same key. `types`: of the columns to write."""

    @abstractmethod
    def find_misfit(
        self, connection: Any, table: StoreTable, types: dict[str, str], row: Row, error: Exception
    ) -> tuple[str, str]:
        """Return the column whose value does not fit (empty: unknown), and the reason."""

    @abstractmethod
    def delete_by(self, connection: Any, table: StoreTable, column: str, values: Sequence[Any]) -> None:
        """Delete the rows with one of these values in a column."""

    def column_name(self, name: str) -> str:
        """Return the form of a name by which the database tells columns apart."""
        return name

    def can_be_column(self, name: str) -> bool:
        """Return whether a new column may have this name."""
        return 0 < len(name.encode("utf-8", "replace")) <= self.max_name and name.isprintable()

    # --- Store --------------------------------------------------------------------------------------------------------

    def prepare(self, table: StoreTable) -> None:
        with self._translated() as connection:
            columns = self.read_columns(connection, table)
            if not columns:
                self.create(connection, table)
                columns = self.read_columns(connection, table)
            lacking = [name for name in table.key if name not in columns]
            if lacking:
                raise BadInput(
                    f"{self.address}: the table {table.name} exists and has no column {lacking[0]}. Name another table "
                    "with table=NAME behind a question mark, or the columns of its key with key=NAME."
                )
            if not self.has_unique_key(connection, table):
                names = ", ".join(table.key)
                raise BadInput(
                    f"{self.address}: the table {table.name} needs a unique index on {names}, so that a new row "
                    f"replaces the older one: ALTER TABLE {table.name} ADD UNIQUE ({names})"
                )
            self._columns[table.name] = columns

    def write(self, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        rows, refused = split_keyless(table, rows)
        if not rows:
            return refused
        for repetition in range(_REPETITIONS + 1):
            try:
                with self._translated() as connection:
                    return refused + self._write(connection, table, rows)
            except _Again as again:
                if repetition == _REPETITIONS:
                    raise SinkError(f"{self.address}: {again}") from again.__cause__
        raise AssertionError

    def delete_crawl(self, table: StoreTable, crawl_id: str) -> None:
        with self._translated() as connection:
            if table.crawl in self.read_columns(connection, table):
                with self.transaction(connection):
                    self.delete_by(connection, table, table.crawl, [crawl_id])

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._columns.clear()
        if connection is not None:
            with suppress(self.error, OSError):
                connection.close()

    # --- the work -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated(self) -> Iterator[Any]:
        """Context with an open connection, in which the driver's errors become SinkError, SinkFull or _Again."""
        try:
            if self._connection is None:
                self._connection = self.connect()
            yield self._connection
        except BadInput:
            raise
        except self.error as error:
            fault = self.fault(error)
            reason = first_line(error)
            if fault in (Fault.SCHEMA, Fault.CONFLICT):
                self._columns.clear()
                raise _Again(reason) from error
            if fault is not Fault.VALUE:
                self.close()
            raise (SinkFull if fault is Fault.FULL else SinkError)(f"{self.address}: {reason}") from error

    def _write(self, connection: Any, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        """Write rows in one transaction. Returns those that were refused, as they were given."""
        fitting = self._with_columns(connection, table, rows)
        columns = self._columns[table.name]
        written = self._written.setdefault(table.name, {})
        if not written.keys() >= set().union(*fitting):
            for row in fitting:
                written |= dict.fromkeys(row)
        types = {name: columns[name] for name in written if name in columns}
        groups = sorted({row[table.parent] for row in fitting if row.get(table.parent)}) if table.parent else []
        try:  # first without savepoints: nearly all batches fit, and a single statement needs no transaction
            with self.transaction(connection) if groups else nullcontext():
                if groups:
                    self.delete_by(connection, table, table.parent, groups)
                self.insert(connection, table, types, fitting)
            return []
        except self.error as error:
            if self.fault(error) is not Fault.VALUE:
                raise
        refused: list[RefusedRow] = []
        with self.transaction(connection):
            if groups:
                self.delete_by(connection, table, table.parent, groups)
            self._insert(connection, table, types, fitting, refused)
        originals = dict(zip(map(id, fitting), rows, strict=True))
        return [one._replace(row=originals[id(one.row)]) for one in refused]

    def _insert(
        self, connection: Any, table: StoreTable, types: dict[str, str], rows: Sequence[Row], refused: list[RefusedRow]
    ) -> None:
        """Write rows, and add those that do not fit to `refused`."""
        try:
            with self.transaction(connection):
                self.insert(connection, table, types, rows)
            return
        except self.error as error:
            if self.fault(error) is not Fault.VALUE:
                raise
            if len(rows) == 1:
                field, reason = self.find_misfit(connection, table, types, rows[0], error)
                refused.append(RefusedRow(rows[0], field, reason))
                return
        half = len(rows) // 2
        self._insert(connection, table, types, rows[:half], refused)
        self._insert(connection, table, types, rows[half:], refused)

    def _with_columns(self, connection: Any, table: StoreTable, rows: Sequence[Row]) -> list[Row]:
        """Make the table and the columns that it lacks. Return the rows, with the fields that cannot have a column of
        their own in OTHER_FIELDS."""
        columns = self._columns.get(table.name)
        if columns is None:
            try:
                self.prepare(table)
            except BadInput as error:  # the table was replaced during the crawl
                raise SinkError(str(error)) from error
            columns = self._columns[table.name]
        if columns.keys() >= set().union(*rows):
            return list(rows)
        known = {self.column_name(name): name for name in columns}
        missing = self._missing_columns(known, rows)
        if missing:
            self.add_columns(connection, table, missing)
            columns = self._columns[table.name] = self.read_columns(connection, table)
        fitting = [self._fitting(columns, row) for row in rows]
        if OTHER_FIELDS not in columns and any(OTHER_FIELDS in row for row in fitting):
            self.add_columns(connection, table, {OTHER_FIELDS: "json"})
            self._columns[table.name] = self.read_columns(connection, table)
        return fitting

    def _missing_columns(self, known: dict[str, str], rows: Iterable[Row]) -> dict[str, ColumnKind]:
        """Return the columns to add, with the kind of the first value that each has."""
        missing: dict[str, ColumnKind] = {}
        for row in rows:
            for name, value in row.items():
                folded = self.column_name(name)
                if folded in known or value is None:
                    continue
                if self.can_be_column(name) and len(known) < self.max_columns:
                    known[folded] = name
                    missing[name] = kind_of_value(value)
        return missing

    def _fitting(self, columns: dict[str, str], row: Row) -> Row:
        """Return a row in which fields without a column are in OTHER_FIELDS, except those without a value."""
        others = {name: value for name, value in row.items() if name not in columns and value is not None}
        fitting = {name: value for name, value in row.items() if name in columns}
        if others:
            before = fitting.get(OTHER_FIELDS) or {}
            fitting[OTHER_FIELDS] = (before if isinstance(before, dict) else {OTHER_FIELDS: before}) | others
        return fitting


class _Again(Exception):
    """The batch may be written again at once."""


def kind_of_value(value: object) -> ColumnKind:
    """Return the kind of a column for values like this one."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "json" if isinstance(value, list | tuple | dict | set | frozenset) else "text"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
