"""The platform's database: its schema, the lock of its servers, and notices between managers."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from gossamer.errors import BadInput
from gossamer.storage.sql.database import SqlDatabase, unreachable
from gossamer.storage.sql.schema import DatabaseSchema
from gossamer_platform.state.tables import METADATA

_SCHEMA: Final = DatabaseSchema(
    metadata=METADATA,
    versions=Path(__file__).with_name("migrations") / "versions",
    lock=7_310_946_110,
    advice_for_older="which this one does not read. "
    "Keep a copy of it. Then start the commit ea9edef1 once with it, which brings it up to date; or export its "
    "projects and schedules there, and begin with a new database",
)
_OWNER_LOCK: Final = 7_310_946_112
"""Number of the lock of the servers of a PostgreSQL database: one that does not share it, or managers that do. Any
number; must be the same in all versions of Gossamer."""
_CHANNEL: Final = "gossamer_platform"
"""Channel of the notices between managers. As above."""


class StateDatabase(SqlDatabase):
    """Database of the platform. SQLite serves one manager, PostgreSQL any number."""

    def __init__(self, url: str) -> None:
        super().__init__(url, _SCHEMA, name="state")
        self._owner: Connection | None = None

    async def notify(self, notices: Sequence[str]) -> None:
        """Send notices to all that `listen`. Only where the database is shared."""
        send = text("SELECT pg_notify(:channel, :notice)")
        await self.write(lambda c: [c.execute(send, {"channel": _CHANNEL, "notice": each}) for each in notices])

    async def listen(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with each notice, until the connection is lost or the caller is cancelled. Raises BadInput if the
        database cannot be reached. Only where the database is shared."""
        import psycopg

        # The one connection that is asynchronous: it waits for ever, and a thread could not be cancelled.
        address = make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
                await connection.execute(f"LISTEN {_CHANNEL}")
                async for notice in connection.notifies():
                    hear(notice.payload)
        except psycopg.Error as error:
            raise BadInput(f"the database cannot be reached: {str(error).strip()}") from None

    async def own(self, *, shared: bool = False) -> bool:
        """Keep other servers that call this off the database, until this one is closed or loses its connection. Return
        False if another one has it. May be repeated, and must be now and then, to notice a lost connection.

        `shared`: keep only those off that do not share it. Nothing happens in SQLite, whose file has a lock. Raises
        BadInput if the database cannot be reached.
        """
        return self._is_sqlite or await asyncio.to_thread(self._own, shared)

    def _own(self, shared: bool) -> bool:
        try:
            if self._owner is not None:
                self._owner.execute(text("SELECT 1"))
                return True
        except DBAPIError:
            self._owner = None
        try:
            connection = self._writing.connect().execution_options(isolation_level="AUTOCOMMIT")
        except DBAPIError as error:
            raise unreachable(error) from None
        lock = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
        if not connection.scalar(text(f"SELECT {lock}(:number)"), {"number": _OWNER_LOCK}):
            connection.close()
            return False
        self._owner = connection
        return True

    async def share(self) -> None:
        """Let in those that share the database, after `own` alone. No other server gets in between."""
        if not self._is_sqlite:
            await asyncio.to_thread(self._share)

    def _share(self) -> None:
        assert self._owner is not None
        for call in ("pg_advisory_lock_shared", "pg_advisory_unlock"):
            self._owner.execute(text(f"SELECT {call}(:number)"), {"number": _OWNER_LOCK})

    def _close(self) -> None:
        if self._owner is not None:
            self._owner.invalidate()  # a connection in the pool would keep the lock
            self._owner.close()
        super()._close()
