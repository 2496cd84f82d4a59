"""Table of an audit, and the statements on it. The products have a table each, with the same columns."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Double, Integer, Table, insert, select, update

from gossamer.storage.audit import AuditedChange, AuditFilter, AuditWrite
from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import ROW_ID, TableRow, add_row, column, fetch
from gossamer.storage.sql.search import PositionOf
from gossamer.storage.sql.storable import storable_json, storable_text
from gossamer.storage.sql.text import String, Text

_MAX_NAME = 200
_MAX_ACTION = 40
_MAX_TEXT = 1000


class AuditEntryRow(TableRow):
    """An entry of an audit."""

    id: int = column(ROW_ID, primary_key=True)
    at: float = column(Double)
    actor: str = column(String(_MAX_NAME))
    action: str = column(String(_MAX_ACTION))
    subject: str = column(Text)
    origin: str = column(String(_MAX_NAME), server_default="")
    details: str = column(Text, server_default="{}")  # JSON
    # Status code of the answer; null: the change has begun. An older program that adds an entry has made the change.
    status: int | None = column(Integer, server_default="200")
    reason: str = column(Text, server_default="")


def write(connection: Connection, audit: Table, writes: Sequence[AuditWrite]) -> list[int]:
    """Add entries of changes that are not made yet, or complete entries. Return their numbers."""
    return [_write(connection, audit, one) for one in writes]


def _write(connection: Connection, audit: Table, one: AuditWrite) -> int:
    if not one.number:
        return add_row(connection, audit, at=DatabaseNow(), status=None, **_columns(one.change))
    values = _columns(one.change)
    if one.outcome is not None:
        values |= {"status": one.outcome.status, "reason": one.outcome.reason}
    connection.execute(update(audit).where(audit.c.id == one.number).values(**values))
    return one.number


def record(connection: Connection, audit: Table, change: AuditedChange) -> None:
    """Add the entry of a change that is made in the same transaction, or was made before."""
    connection.execute(insert(audit).values(at=DatabaseNow(), status=200, **_columns(change)))


def page(
    connection: Connection, audit: Table, chosen: AuditFilter, *, before: int | None, limit: int
) -> list[AuditEntryRow]:
    """Return entries, the latest first. `before`: number of the last entry of the page before."""
    statement = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(audit.c.id < before)
    if chosen.actor:
        statement = statement.where(audit.c.actor == chosen.actor)
    if chosen.action:
        statement = statement.where(audit.c.action.startswith(storable_text(chosen.action), autoescape=True))
    if chosen.subject:
        statement = statement.where(PositionOf(audit.c.subject, storable_text(chosen.subject)) > 0)
    return fetch(connection, AuditEntryRow, statement)


def _columns(change: AuditedChange) -> dict[str, Any]:
    return {
        "actor": change.actor[:_MAX_NAME],
        "origin": change.origin[:_MAX_NAME],
        "action": change.action[:_MAX_ACTION],
        "subject": change.subject[:_MAX_TEXT],
        "details": storable_json(change.details),
    }
