"""Statements on the use of domains' limits over time. Rows are kept for a day, whatever the history's own time."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from gossamer.history.tables import DomainUseRow, domain_uses
from gossamer.storage.sql.batches import delete_batch
from gossamer.storage.sql.rows import fetch
from gossamer.storage.sql.upsert import upsert

KEPT_MINUTES: Final = 24 * 60
_DELETED: Final = 500
"""Old rows that one call deletes. Must exceed the domains of a minute, or rows pile up."""


class DomainUse(NamedTuple):
    """Use of the narrowest limit of a domain in a minute."""

    domain: str
    minute: int
    """Minutes since 1970."""
    used: float
    """Hits in the window, the mean of some samples."""
    most: int
    """Largest of the samples."""
    hits: int
    """Most hits in any window."""
    window: float
    """Seconds. 0: no hit is allowed."""


def record(connection: Connection, rows: Sequence[DomainUse]) -> None:
    """Record the use of domains in one minute, and delete what is too old. May be repeated."""
    upsert(connection, domain_uses, [row._asdict() for row in rows], key=["domain", "minute"])
    old = domain_uses.c.minute < rows[0].minute - KEPT_MINUTES
    delete_batch(connection, domain_uses, old, limit=_DELETED, order=domain_uses.c.minute)


def of_domain(connection: Connection, domain: str) -> list[DomainUseRow]:
    """Return the minutes of a domain that are kept, the earliest first."""
    query = select(domain_uses).where(domain_uses.c.domain == domain).order_by(domain_uses.c.minute.desc())
    return fetch(connection, DomainUseRow, query.limit(KEPT_MINUTES))[::-1]
