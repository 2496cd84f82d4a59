"""Deletion of old rows in small batches, so that writers wait only a little."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, select, tuple_


def delete_batch(connection: Connection, table: Table, which: ColumnElement[bool], *, limit: int, order: Any) -> int:
    """Delete up to `limit` rows that meet a condition, in this order; return their number."""
    keys = list(table.primary_key.columns)
    found = connection.execute(select(*keys).where(which).order_by(order).limit(limit)).all()
    if found:
        connection.execute(delete(table).where(tuple_(*keys).in_([tuple(row) for row in found])))
    return len(found)
