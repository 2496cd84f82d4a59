"""Rows of the database as typed objects: the class of a row names its columns, and a query names the class.

A row is what SQLAlchemy returns, and is not converted; the class tells type checkers its attributes. Every query checks
that it returns them.
"""

from functools import cache
from typing import Any, Final, TypeVar, cast, get_args

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Result, Table, insert
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql import Executable

R = TypeVar("R")

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Names of constraints, for `MetaData`. Each has one from the first migration on, because a later migration can change
only what has a name."""

ROW_ID: Final = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite gives a row its number only if the column's type is INTEGER."""

column: Any = Column
"""Makes a column in the class of a row, which has the type of its values: `name: str = column(Text)`."""


class TableRow:
    """Row of a table. A subclass has its columns; one that a query joins with others has those, too."""

    def _asdict(self) -> dict[str, Any]:
        """Return the values by the names of their columns, as SQLAlchemy's rows do."""
        raise NotImplementedError


def table(metadata: MetaData, name: str, row: type[TableRow], *items: SchemaItem) -> Table:
    """Add the table of these rows to a database's tables, and return it. A column may be null if its values may be
    None."""
    columns = {}
    for kind in row.__mro__:
        for key, each in list(vars(kind).items()):  # a copy: from Python 3.14 on, reading annotations adds to the class
            if isinstance(each, Column):
                columns[key] = found = each if kind is row else each._copy()  # a column belongs to one table
                found.key = found.name = key
                found.nullable = type(None) in get_args(kind.__annotations__[key])
    # Otherwise SQLite would give the number of a deleted last row again.
    has_numbers = any(each.type is ROW_ID for each in columns.values())
    return Table(name, metadata, *columns.values(), *items, info={"row": row}, sqlite_autoincrement=has_numbers)


def add_row(connection: Connection, into: Table, **values: Any) -> int:
    """Add a row and return its number."""
    return int(connection.execute(insert(into).values(**values)).inserted_primary_key[0])  # type: ignore[index]


def fetch(connection: Connection, kind: type[R], query: Executable) -> list[R]:
    """Return the rows that a query finds."""
    return cast("list[R]", _execute(connection, kind, query).all())


def fetch_first(connection: Connection, kind: type[R], query: Executable) -> R | None:
    """Return the first row. None: there is none."""
    return cast("R | None", _execute(connection, kind, query).first())


def fetch_one(connection: Connection, kind: type[R], query: Executable) -> R:
    """Return the only row, which must exist."""
    return cast("R", _execute(connection, kind, query).one())


def _execute(connection: Connection, kind: type[object], query: Executable) -> Result[Any]:
    result = connection.execute(query)
    missing = columns_of(kind) - set(result.keys())  # type: ignore[arg-type]
    assert not missing, f"a query of {kind.__name__} lacks {missing}"
    return result


@cache
def columns_of(kind: type[object]) -> frozenset[str]:
    """Return the names of the columns of a row."""
    return frozenset(name for each in kind.__mro__ for name in getattr(each, "__annotations__", ()))
