"""Insertion of rows that may be there already, in SQLite and in PostgreSQL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Condition = Callable[[Any], ColumnElement[bool]]


def insert_into(connection: Connection, table: Table) -> Any:
    """Return the insertion of the database's own dialect, which has `on_conflict_do_update`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key, or whose other unique value, the table does not have. The rows have the same
    columns; one is needed at least."""
    connection.execute(insert_into(connection, table).on_conflict_do_nothing(), list(rows))


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: Sequence[str],
    when: Condition | None = None,
) -> None:
    """Insert rows, and replace those with the same `key`, columns that are unique together. The rows have the same
    columns; one is needed at least.

    `when`: returns the condition under which the new row, its argument, replaces the other; None: always. Rows are
    locked in the order of their keys, so that two processes do not wait for each other."""
    statement = insert_into(connection, table)
    given = statement.excluded
    changed = {name: given[name] for name in rows[0] if name not in key}
    ordered = sorted(rows, key=lambda row: [row[name] for name in key])
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(key), set_=changed, where=None if when is None else when(given)
        ),
        ordered,
    )
