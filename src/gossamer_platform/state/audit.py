"""Statements on the audit: who did what."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, or_, select

from gossamer.storage.audit import AuditedChange, AuditFilter
from gossamer.storage.sql.audit import AuditEntryRow, page, record
from gossamer.storage.sql.rows import fetch
from gossamer_platform.state.tables import AuditRow, VersionRow, audit

_KEPT: Final = 100_000
"""Entries that are kept, the latest ones."""
_DEPLOYMENTS: Final = ("version.deploy", "scrapyd.addversion", "cloud.deploy")
"""Actions that add a version, whose subject is PROJECT VERSION."""
_BROKEN: Final = 422
"""Status of a version that was added, and cannot be run."""


def record_action(connection: Connection, actor: str, action: str, subject: str) -> None:
    """Add the entry of an action that is part of the transaction."""
    record(connection, audit, AuditedChange(actor=actor, action=action, subject=subject))


def entries(connection: Connection, chosen: AuditFilter, *, before: int | None, limit: int) -> list[AuditEntryRow]:
    """Return entries, the latest first. `before`: number of the last entry of the page before."""
    return page(connection, audit, chosen, before=before, limit=limit)


def deployers(connection: Connection, project: str, versions: Sequence[VersionRow]) -> dict[int, str]:
    """Return who deployed versions of a project, by the version's number, as far as the audit has it."""
    subjects = {f"{project} {version.name}" for version in versions}
    added = or_(audit.c.status.is_(None), audit.c.status < 400, audit.c.status == _BROKEN)
    wanted = (audit.c.action.in_(_DEPLOYMENTS), audit.c.subject.in_(subjects), added)
    entries = fetch(connection, AuditRow, select(audit).where(*wanted).order_by(audit.c.id))
    found = {}
    for version in versions:
        for entry in entries:  # the last one before the version is its own
            if entry.subject == f"{project} {version.name}" and entry.at <= version.deployed_at:
                found[version.id] = entry.actor
    return found


def forget_entries(connection: Connection) -> None:
    """Delete the oldest entries, of which there are too many."""
    latest = connection.scalar(select(func.max(audit.c.id))) or 0
    connection.execute(delete(audit).where(audit.c.id <= latest - _KEPT))
