"""The audit of a manager, in the database that it changes: while that is away, nothing can be changed."""

import logging
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gossamer.storage.audit import AuditedChange, AuditOutcome, AuditWrite
from gossamer.storage.sql.audit import write
from gossamer.telemetry import logs
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tables import audit

log: Final = logging.getLogger("gossamer.platform.manager")


class StateAudit:
    """Implements AuditTrail."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    async def begin(self, change: AuditedChange) -> int:
        """Add an entry before the change, and return its number. Raises SQLAlchemyError; then the change must not
        follow."""
        [number] = await self._database.write(lambda connection: write(connection, audit, [AuditWrite(change)]))
        return number

    async def end(self, number: int, change: AuditedChange, outcome: AuditOutcome) -> None:
        """Complete an entry. It does not fail: the change has happened, and a client that got an error would repeat
        it."""
        done = AuditWrite(change, number, outcome)
        try:
            await self._database.write(lambda connection: write(connection, audit, [done]))
        except SQLAlchemyError as error:
            log.warning("%s %s, with the outcome %d: %s", logs.AUDIT_INCOMPLETE, change.line, outcome.status, error)
