"""The part of a store that all SQL databases share: tables that fit the rows, batches, rows that are refused.

A batch is one transaction. When the database refuses it for a value, halves of the batch are tried in savepoints until
the rows that do not fit are found. A row that conflicts with a row with another key does not fit.

Fixed: rows are written by their key, because a batch whose confirmation was lost is written again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeVar

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.csv_rows import OTHER_FIELDS
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import ColumnKind, RefusedRow, Row, StoreTable, split_keyless

T = TypeVar("T")

_REPETITIONS: Final = 5
"""Number of times that a batch is written again at once after the database aborted it because of other transactions.
After the last one, the caller repeats the batch."""
_REFUSALS: Final = 10
"""Columns of a table that the database may refuse before no more are tried."""

MADE_HERE: Final = "gossamer"
"""Comment of the columns that a store has made. Fixed: existing tables have it. Rows of earlier crawls are emptied in
these columns, and not in the columns that a person has made."""


class Fault(Enum):
    """Meaning of a database's error for the batch."""

    VALUE = auto()
    """A value does not fit: it never will."""
    SCHEMA = auto()
    """The table is not as this process knows it."""
    CONFLICT = auto()
    """Another transaction was in the way."""
    REFUSED = auto()
    """The statement is refused for good, for a reason other than its values: rights, or a limit of the table."""
    FULL = auto()
    """There is no room."""
    AWAY = auto()
    """The connection is gone, or the database has another trouble that a person has to solve."""


class Filling(Enum):
    """Value that a column gets in a row without a value for it."""

    NULL = auto()
    DEFAULT = auto()
    NUMBER = auto()
    """The next number. A row that replaces another one leaves it as it is."""
    COMPUTED = auto()
    """Computed by the database, for all rows: a statement cannot write it."""


class TableColumn(NamedTuple):
    """A column of an existing table."""

    type: str
    """Database's name of the type."""
    filling: Filling
    required: bool
    """True: it is NOT NULL."""
    is_own: bool
    """True: a store has made it (MADE_HERE)."""


class UniqueIndex(NamedTuple):
    """A unique index of an existing table."""

    name: str
    columns: tuple[str, ...]
    is_plain: bool
    """True: it compares the whole values of the columns, in all rows."""


class SqlStore(ABC):
    """Store in an SQL database. Implements Store (stores/rows.py)."""

    error: type[Exception]
    """Base class of the driver's errors."""
    max_columns: int
    """Columns of a table at most; the fields beyond are in OTHER_FIELDS. Below the database's limit."""
    max_name: int
    """Longest name of a column: the database's limit."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self._connection: Any = None
        self._columns: dict[str, dict[str, TableColumn]] = {}
        """By table: its columns by name."""
        self._refused_columns: dict[str, dict[str, str]] = {}
        """By table: the columns that the database refuses to add, with the reasons."""
        self._unique: dict[str, list[UniqueIndex]] = {}
        """By table: its unique indexes."""
        self._written: dict[str, dict[str, None]] = {}
        """By table: the columns that this process has written, in their order. All are named in each batch, with those
        that a store has made, so that a row that replaces another one also empties the fields that it lacks."""

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
    def is_view(self, connection: Any, table: StoreTable) -> bool:
        """Return whether the table is a view."""

    @abstractmethod
    def read_columns(self, connection: Any, table: StoreTable) -> dict[str, TableColumn]:
        """Return the columns of a table by name. Empty: there is no such table."""

    @abstractmethod
    def create(self, connection: Any, table: StoreTable) -> None:
        """Make a table, unless another process has made it."""

    @abstractmethod
    def add_columns(self, connection: Any, table: StoreTable, columns: dict[str, ColumnKind]) -> None:
        """Add columns, unless another process has added them."""

    @abstractmethod
    def read_unique(self, connection: Any, table: StoreTable) -> list[UniqueIndex]:
        """Return the unique indexes of a table."""

    @abstractmethod
    def explain(self, connection: Any, table: StoreTable, types: dict[str, str]) -> None:
        """Let the database plan the statements that write rows by their key, without carrying them out.

        Raises an error of the driver if this user may not write rows. `types`: of the columns of the key."""

    @abstractmethod
    def insert(
        self, connection: Any, table: StoreTable, types: dict[str, str], rows: Sequence[Row], defaults: Sequence[str]
    ) -> None:
        """Write rows, or replace those with the same key. A row that conflicts with a row with another key, because of
        another unique index, is an error. `types`: of the columns to write. `defaults`: columns without a value in
        these rows, which get their defaults in rows that are replaced."""

    @abstractmethod
    def find_misfit(
        self, connection: Any, table: StoreTable, types: dict[str, str], row: Row, error: Exception
    ) -> tuple[str, str]:
        """Return the column whose value does not fit (empty: unknown), and the reason."""

    @abstractmethod
    def delete_by(self, connection: Any, table: StoreTable, column: str, values: Sequence[Any]) -> None:
        """Delete the rows with one of these values in a column."""

    def describe(self, error: Exception) -> str:
        """Return an error of the driver as one line."""
        return first_line(error)

    def column_name(self, name: str) -> str:
        """Return the form of a name by which the database tells columns apart."""
        return name

    def can_be_column(self, name: str) -> bool:
        """Return whether a new column may have this name."""
        return 0 < len(name.encode("utf-8", "replace")) <= self.max_name and name.isprintable()

    # --- Store --------------------------------------------------------------------------------------------------------

    def prepare(self, table: StoreTable) -> None:
        self._repeat(lambda connection: self._prepare(connection, table))

    def write(self, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        rows, refused = split_keyless(table, rows)
        if not rows:
            return refused
        return refused + self._repeat(lambda connection: self._write(connection, table, rows))

    def delete_crawl(self, table: StoreTable, crawl_id: str) -> None:
        self._repeat(lambda connection: self._delete_crawl(connection, table, crawl_id))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._columns.clear()
        self._refused_columns.clear()
        if connection is not None:
            with suppress(self.error, OSError):
                connection.close()

    # --- the work -----------------------------------------------------------------------------------------------------

    def _repeat(self, action: Callable[[Any], T]) -> T:
        """Return the result of an action on an open connection. It is repeated when others were in its way."""
        for repetition in range(_REPETITIONS + 1):
            try:
                with self._translated() as connection:
                    return action(connection)
            except _Again as again:
                if repetition == _REPETITIONS:
                    raise SinkError(f"{self.address}: {again}") from again.__cause__
        raise AssertionError

    def _prepare(self, connection: Any, table: StoreTable) -> None:
        columns = self.read_columns(connection, table)
        if not columns:
            self.create(connection, table)
            columns = self.read_columns(connection, table)
        if self.is_view(connection, table):
            raise BadInput(
                f"{self.address}: {table.name} is a view. Name a table with table=NAME behind a question mark."
            )
        lacking = [name for name in table.key if name not in columns]
        if lacking:
            raise BadInput(
                f"{self.address}: the table {table.name} exists and has no column {lacking[0]}. Name another table "
                "with table=NAME behind a question mark, or the columns of its key with key=NAME."
            )
        unique = self.read_unique(connection, table)
        if not any(is_key(index, table) for index in unique):
            names = ", ".join(table.key)
            raise BadInput(
                f"{self.address}: the table {table.name} needs a unique index on {names}, so that a new row "
                f"replaces the older one: ALTER TABLE {table.name} ADD UNIQUE ({names})"
            )
        self._unique[table.name] = unique
        self._columns[table.name] = columns
        self._add_known_columns(connection, table)
        self._check_rights(connection, table)

    def _check_rights(self, connection: Any, table: StoreTable) -> None:
        """Raise an error of the driver if this user may not write rows. Other errors are left to the first batch."""
        columns = self._columns[table.name]
        try:
            self.explain(connection, table, {name: columns[name].type for name in table.key})
        except self.error as error:
            if self.fault(error) is not Fault.VALUE:
                raise

    def _add_known_columns(self, connection: Any, table: StoreTable) -> None:
        """Add the columns that the rows are known to have. Raises BadInput if the database refuses them."""
        columns = self._columns[table.name]
        known = {self.column_name(name) for name in columns}
        lacking = {name: kind for name, kind in table.columns.items() if self.column_name(name) not in known}
        lacking = dict(list(lacking.items())[: max(self.max_columns - len(columns), 0)])
        if not lacking:
            return
        reasons = self._add(connection, table, lacking)
        if reasons and OTHER_FIELDS not in self._columns[table.name]:
            del self._columns[table.name]
            raise BadInput(
                f"{self.address}: the table {table.name} lacks the columns {', '.join(reasons)} and cannot get them: "
                f"{next(iter(reasons.values()))}"
            )

    def _delete_crawl(self, connection: Any, table: StoreTable, crawl_id: str) -> None:
        if table.crawl in self.read_columns(connection, table):
            with self.transaction(connection):
                self.delete_by(connection, table, table.crawl, [crawl_id])

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
            reason = self.describe(error)
            if fault in (Fault.SCHEMA, Fault.CONFLICT):
                self._columns.clear()
                raise _Again(reason) from error
            if fault is not Fault.VALUE:
                self.close()
            raise (SinkFull if fault is Fault.FULL else SinkError)(f"{self.address}: {reason}") from error

    def _write(self, connection: Any, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        """Write rows in one transaction. Returns those that were refused, as they were given."""
        rows, fitting, refused = self._fit(connection, table, rows)
        if not rows:
            return refused
        columns = self._columns[table.name]
        written = self._written.setdefault(table.name, {})
        if not written.keys() >= set().union(*fitting):
            for row in fitting:
                written |= dict.fromkeys(row)
        own = [name for name, one in columns.items() if one.is_own and not one.required and name not in written]
        names = [name for name in (*written, *own) if name in columns and columns[name].filling is not Filling.COMPUTED]
        groups = sorted({row[table.parent] for row in fitting if row.get(table.parent)}) if table.parent else []
        try:  # first without savepoints: nearly all batches fit, and a single statement needs no transaction
            with self.transaction(connection) if groups else nullcontext():
                if groups:
                    self.delete_by(connection, table, table.parent, groups)
                self._insert(connection, table, names, fitting)
            return refused
        except self.error as error:
            if self.fault(error) is not Fault.VALUE:
                raise
        misfits: list[RefusedRow] = []
        with self.transaction(connection):
            kept = self._delete_groups(connection, table, groups, fitting, misfits)
            self._insert_halves(connection, table, names, kept, misfits)
        originals = dict(zip(map(id, fitting), rows, strict=True))
        return refused + [one._replace(row=originals[id(one.row)]) for one in misfits]

    def _insert(self, connection: Any, table: StoreTable, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Write rows. `names`: the columns to write."""
        for types, group, defaults in self._alike(table, names, rows):
            self.insert(connection, table, types, group, defaults)

    def _alike(
        self, table: StoreTable, names: Sequence[str], rows: Sequence[Row]
    ) -> list[tuple[dict[str, str], Sequence[Row], list[str]]]:
        """Return groups of rows that lack the same of those columns that the database fills: the types of the columns
        that the rows write, the rows, and the columns that get their defaults when the rows replace others."""
        columns = self._columns[table.name]
        filled = [name for name in names if columns[name].filling is not Filling.NULL and name not in table.key]
        if not filled:
            return [({name: columns[name].type for name in names}, rows, [])]
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            lacking = tuple(
                [name for name in filled if row.get(name) is None and (columns[name].required or name not in row)]
            )
            groups.setdefault(lacking, []).append(row)
        return [
            (
                {name: columns[name].type for name in names if name not in lacking},
                group,
                [name for name in lacking if columns[name].filling is Filling.DEFAULT],
            )
            for lacking, group in groups.items()
        ]

    def _delete_groups(
        self, connection: Any, table: StoreTable, groups: Sequence[Any], rows: Sequence[Row], refused: list[RefusedRow]
    ) -> Sequence[Row]:
        """Delete groups of rows. Return the rows of those that are deleted, and add the others to `refused`: another
        table may refer to their rows."""
        bound = set()
        for group in groups:
            try:
                with self.transaction(connection):
                    self.delete_by(connection, table, table.parent, [group])
            except self.error as error:
                if self.fault(error) is not Fault.VALUE:
                    raise
                bound.add(group)
                reason = self.describe(error)
                refused += [RefusedRow(row, table.parent, reason) for row in rows if row.get(table.parent) == group]
        return [row for row in rows if row.get(table.parent) not in bound] if bound else rows

    def _insert_halves(
        self, connection: Any, table: StoreTable, names: Sequence[str], rows: Sequence[Row], refused: list[RefusedRow]
    ) -> None:
        """Write rows, and add those that do not fit to `refused`."""
        try:
            with self.transaction(connection):
                self._insert(connection, table, names, rows)
            return
        except self.error as error:
            if self.fault(error) is not Fault.VALUE:
                raise
            if len(rows) == 1:
                [(types, _, _)] = self._alike(table, names, rows)
                field, reason = self.find_misfit(connection, table, types, rows[0], error)
                refused.append(RefusedRow(rows[0], field, reason))
                return
        half = len(rows) // 2
        self._insert_halves(connection, table, names, rows[:half], refused)
        self._insert_halves(connection, table, names, rows[half:], refused)

    def _field_of_index(self, table: StoreTable, index: str, row: Row) -> str:
        """Return the column of a unique index by which a row conflicts with another one. Empty: unknown."""
        columns = next((one.columns for one in self._unique.get(table.name, []) if one.name == index), ())
        found = sorted((name for name in columns if name in row), key=lambda name: name in table.key)
        return found[0] if found else ""

    def _fit(
        self, connection: Any, table: StoreTable, rows: Sequence[Row]
    ) -> tuple[Sequence[Row], Sequence[Row], list[RefusedRow]]:
        """Make the table and the columns that it lacks. Return the rows to write, the same rows with the fields that
        cannot have a column of their own in OTHER_FIELDS, and the rows whose fields the table cannot take."""
        if table.name not in self._columns:
            try:
                self._prepare(connection, table)
            except BadInput as error:  # the table was replaced during the crawl
                raise SinkError(str(error)) from error
        columns = self._columns[table.name]
        refused: list[RefusedRow] = []
        if computed := [name for name, column in columns.items() if column.filling is Filling.COMPUTED]:
            named = [(row, next((name for name in computed if row.get(name) is not None), "")) for row in rows]
            reason = "the database computes this column, so no row can have a value for it"
            refused = [RefusedRow(row, name, reason) for row, name in named if name]
            rows = [row for row, name in named if not name]
        if columns.keys() >= set().union(*rows):
            return rows, rows, refused
        missing = self._missing_columns(table, rows)
        if missing:
            self._add(connection, table, missing)
            columns = self._columns[table.name]
        fitting = [self._fitting(columns, row) for row in rows]
        if OTHER_FIELDS in columns or not any(OTHER_FIELDS in row for row in fitting):
            return rows, fitting, refused
        reasons = self._add(connection, table, {OTHER_FIELDS: "json"})
        if OTHER_FIELDS in self._columns[table.name]:
            return rows, fitting, refused
        kept = []
        for row, fit in zip(rows, fitting, strict=True):
            if OTHER_FIELDS in fit:
                name = next(iter(fit[OTHER_FIELDS]))
                why = self._refused_columns[table.name].get(name) or next(iter(reasons.values()))
                refused.append(RefusedRow(row, name, f"the table has no column {name} and cannot get it: {why}"))
            else:
                kept.append((row, fit))
        return [row for row, _ in kept], [fit for _, fit in kept], refused

    def _add(self, connection: Any, table: StoreTable, columns: dict[str, ColumnKind]) -> dict[str, str]:
        """Add columns: together, or one by one when the database refuses that. Return those that it refuses for good,
        with the reasons."""
        refused = self._refused_columns.setdefault(table.name, {})
        groups = [columns] if len(refused) < _REFUSALS else []
        for group in groups:
            try:
                self.add_columns(connection, table, group)
            except self.error as error:
                if self.fault(error) not in (Fault.REFUSED, Fault.VALUE):
                    raise
                if len(group) > 1:
                    groups += [{name: kind} for name, kind in group.items()]
                else:
                    refused |= dict.fromkeys(group, self.describe(error))
                    if len(refused) >= _REFUSALS:
                        break
        self._columns[table.name] = found = self.read_columns(connection, table)
        known = {self.column_name(name) for name in found}
        last = next(reversed(refused.values()), "")
        return {name: refused.get(name, last) for name in columns if self.column_name(name) not in known}

    def _missing_columns(self, table: StoreTable, rows: Iterable[Row]) -> dict[str, ColumnKind]:
        """Return the columns to add, with the kind of the first value that each has."""
        known = {self.column_name(name) for name in self._columns[table.name]}
        refused = self._refused_columns.get(table.name, {})
        missing: dict[str, ColumnKind] = {}
        for row in rows:
            for name, value in row.items():
                folded = self.column_name(name)
                if folded in known or value is None or name in refused:
                    continue
                if self.can_be_column(name) and len(known) < self.max_columns:
                    known.add(folded)
                    missing[name] = kind_of_value(value)
        return missing

    def _fitting(self, columns: dict[str, TableColumn], row: Row) -> Row:
        """Return a row in which fields without a column are in OTHER_FIELDS, except those without a value."""
        others = {name: value for name, value in row.items() if name not in columns and value is not None}
        fitting = {name: value for name, value in row.items() if name in columns}
        if others:
            before = fitting.get(OTHER_FIELDS) or {}
            fitting[OTHER_FIELDS] = (before if isinstance(before, dict) else {OTHER_FIELDS: before}) | others
        return fitting


class _Again(Exception):
    """The batch may be written again at once."""


def is_key(index: UniqueIndex, table: StoreTable) -> bool:
    """Return whether an index has just the columns of a table's key."""
    return index.is_plain and sorted(index.columns) == sorted(table.key)


def kind_of_value(value: object) -> ColumnKind:
    """Return the kind of a column for values like this one."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "json" if isinstance(value, list | tuple | dict | set | frozenset) else "text"


def first_line(error: object) -> str:
    """Return the first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
