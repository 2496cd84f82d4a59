"""The history's database, and its schema."""

from pathlib import Path
from typing import Final

from gossamer.history.tables import METADATA
from gossamer.storage.sql.database import SqlDatabase
from gossamer.storage.sql.schema import DatabaseSchema

_SCHEMA: Final = DatabaseSchema(
    metadata=METADATA,
    versions=Path(__file__).with_name("migrations"),
    lock=7_310_946_113,
    version_table="history_alembic_version",  # the platform's tables may be in the same database
)


class HistoryDatabase(SqlDatabase):
    """Database of the history. SQLite serves the processes of one machine, PostgreSQL any number."""

    def __init__(self, url: str) -> None:
        super().__init__(url, _SCHEMA, name="history")
