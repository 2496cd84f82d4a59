"""The schema of a database: its tables, and the migrations that bring older databases up to date.

A new database gets the tables as they are. Alembic runs the migrations of others, which stand in a folder of the
package that owns the tables. Fixed: the numbers of locks, and the names of the tables in which Alembic notes the schema
of existing databases.
"""

from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, MetaData, text

from gossamer.errors import BadInput


class DatabaseSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Tables of one product, and the folder with their migrations."""

    metadata: MetaData
    versions: Path
    """Folder of the migrations, each a module of Alembic. The numbers of their revisions grow as texts."""
    lock: int
    """Number of the lock under which PostgreSQL migrates. Any number; must be the same in all versions of Gossamer."""
    version_table: str = "alembic_version"
    """Table with the revision that the database has. Two schemas in one PostgreSQL database need two names."""
    advice_for_older: str = "which this one does not read. Begin with a new database"
    """Rest of the message for a database that is older than the first migration."""

    def migrate(self, connection: Connection) -> None:
        """Make the tables, or run the migrations that the database lacks, in the connection's transaction. Raises
        BadInput for a database of a version that these migrations do not know; nothing is read or written then."""
        from alembic import command  # here, because only the start needs it
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        # SQLite's lock is the transaction itself: it is a BEGIN IMMEDIATE.
        if connection.dialect.name != "sqlite":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": self.lock})
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        config.set_main_option("version_locations", str(self.versions))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        config.attributes["metadata"] = self.metadata
        config.attributes["version_table"] = self.version_table
        if self._has_tables(connection, ScriptDirectory.from_config(config)):
            command.upgrade(config, "head")
        else:
            self.metadata.create_all(connection, checkfirst=False)
            command.stamp(config, "head")

    def _has_tables(self, connection: Connection, scripts: Any) -> bool:
        """Return whether the database has these tables, of this or an earlier version. Raises BadInput if its schema is
        one that no migration here knows."""
        from alembic.migration import MigrationContext

        options = {"version_table": self.version_table}
        found = MigrationContext.configure(connection, opts=options).get_current_revision()
        known = {script.revision for script in scripts.walk_revisions()}
        if found is None or found in known:
            return found is not None
        if found < min(known):
            raise BadInput(
                f"the database has schema {found}, of a version before the first release, {self.advice_for_older}"
            )
        raise BadInput(
            f"the database has schema {found}, of a newer Gossamer; this one knows {max(known)}. Update Gossamer"
        )
