"""The database of a page index: a SQLite file, or a schema of its own in a PostgreSQL database.

Both understand the statements of `index.py`; what differs is here. Blocking; a connection belongs to one thread. Not
`storage/sql`: that needs SQLAlchemy, which is an extra, and a command line tool keeps a site up to date without extras.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from gossamer.errors import BadInput, IndexUnavailable, SinkFull
from gossamer.extras import install_advice
from gossamer.net.credentials import hide_secrets
from gossamer.sinks.sqlite import translate_sqlite_errors
from gossamer.sinks.stores.address import StoreAddress, is_store
from gossamer.storage import sqlite
from gossamer.storage.files import make_folder

_LOCK_SECONDS: Final = 60.0
"""Time to wait for another process that writes the index, before that is an error."""
_CACHE_KIB: Final = 32 * 1024
"""Cache of a connection to a SQLite file, in KiB."""
_LOG_PAGES: Final = 8000
"""Pages of 4 KiB after which SQLite writes its log back to the file."""
_ADDRESSES: Final = "Write the path of a SQLite file, or postgresql://USER@HOST/DATABASE."
_SCHEMA_PREFIX: Final = "gossamer "
"""First part of the name of an index's schema. Fixed."""
Rows = list[tuple[Any, ...]]
_SQLITE_WORDS: Final = {"blob": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "often_updated": ""}
_POSTGRESQL_WORDS: Final = {
    "blob": "BYTEA",
    "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    # Each update leaves an old row behind. By default, a fifth of the table may be such rows.
    "often_updated": " WITH (autovacuum_vacuum_scale_factor = 0.05)",
}


class IndexDatabase(Protocol):
    """A connection to the database. Raises SinkError, which is repeated, or BadInput, which is not."""

    def prepare(
        self,
        tables: Sequence[str],
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Make these tables and their indexes, unless they exist. `{blob}` and `{serial}` stand for types,
        `{often_updated}` for options. `before`, `after`: called in the same transaction, of which one at a time is
        carried out."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Return the rows of a query. `?` stands for a value."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Carry out a statement."""

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Carry out a statement once for each row of values."""

    def transaction(self, *, locks: str = "") -> Any:
        """Return a context of which all statements are carried out together, or none. `locks`: a table to which only
        this transaction writes until it ends."""

    def chosen(self, column: str, keys: Sequence[int]) -> tuple[str, Any]:
        """Return a condition by which the column has one of these numbers, and the value for its `?`."""

    def close(self) -> None:
        """Close the connection, which the next call makes anew. May be repeated."""

    def is_there(self) -> bool:
        """Return False if the file whose tables were prepared was deleted or replaced."""

    def delete(self) -> None:
        """Delete all that the index has, and close the connection."""


class SqliteIndex:
    """Index in a SQLite file, which several processes of this machine may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._file = 0
        """Number of the file that was opened last."""

    def _opened(self) -> sqlite3.Connection:
        """Return the connection, which is made when it is needed."""
        if self._connection is None:
            make_folder(self.path.parent)
            opened = sqlite.connect(self.path, lock_seconds=_LOCK_SECONDS, any_thread=True)
            self._connection = opened
            # Readers do not wait for the writer, and a commit is one flush.
            opened.execute("PRAGMA journal_mode = WAL")
            opened.execute("PRAGMA synchronous = FULL")
            # Pages that are due together lie anywhere in a large file. A cache, and a log that is written back seldom,
            # let one write of a part of the file stand for many.
            opened.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            opened.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            self._file = self.path.stat().st_ino
        return self._connection

    def prepare(
        self,
        tables: Sequence[str],
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._check_file()
        with self.transaction():
            _make(self, tables, _SQLITE_WORDS, before, after)

    def _check_file(self) -> None:
        """Raise BadInput for a file that is something else, before anything in it changes."""
        try:
            if not self.path.is_dir() and (not self.path.exists() or not self.path.stat().st_size):
                return
            with closing(sqlite.connect_to_read(self.path, lock_seconds=_LOCK_SECONDS)) as connection:
                names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.DatabaseError as error:
            if not self.path.is_dir() and getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
                return  # the next statement raises it
            names = {""}
        if names and "facts" not in names:
            raise BadInput(f"{self.path} is something else than a page index. Name another place.", option="index")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        with translate_sqlite_errors(self.path):
            return self._opened().execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        with translate_sqlite_errors(self.path):
            self._opened().execute(statement, values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with translate_sqlite_errors(self.path):
            self._opened().executemany(statement, rows)

    @contextmanager
    def transaction(self, *, locks: str = "") -> Iterator[None]:
        with translate_sqlite_errors(self.path), sqlite.transaction(self._opened()):
            yield

    def chosen(self, column: str, keys: Sequence[int]) -> tuple[str, Any]:
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(keys))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def is_there(self) -> bool:
        try:
            return self.path.stat().st_ino == self._file
        except FileNotFoundError:
            return False

    def delete(self) -> None:
        self.close()
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)


class PostgreSqlIndex:
    """Index in a PostgreSQL database, in a schema of its own."""

    def __init__(self, address: StoreAddress, schema: str) -> None:
        """`schema`: empty: none, for queries about the database itself."""
        self._address = address
        self._schema = schema
        self._connection: Any = None

    def _opened(self) -> Any:
        """Return the connection, which is made anew after it broke."""
        if self._connection is None or self._connection.closed:
            from gossamer.sinks.stores.postgresql import PostgreSqlStore  # needs psycopg: see `_translated`

            self._connection = PostgreSqlStore(self._address).connect()
            if not self._schema:
                return self._connection
            self._connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
            self._connection.execute(f'SET search_path = "{self._schema}"')
        return self._connection

    def prepare(
        self,
        tables: Sequence[str],
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        with self.transaction():
            # One process makes the tables, and the others wait for it.
            self.run("SELECT pg_advisory_xact_lock(hashtext(?))", [self._schema])
            _make(self, tables, _POSTGRESQL_WORDS, before, after)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        with self._translated():
            found = self._opened().execute(statement.replace("?", "%s"), values).fetchall()
            return [tuple(bytes(one) if isinstance(one, memoryview) else one for one in row) for row in found]

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        with self._translated():
            self._opened().execute(statement.replace("?", "%s"), values)

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._translated(), self._opened().cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), rows)

    @contextmanager
    def transaction(self, *, locks: str = "") -> Iterator[None]:
        with self._translated(), self._opened().transaction():
            if locks:
                self.run(f"LOCK TABLE {locks} IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            import psycopg
        except ImportError:
            raise BadInput(f"{self._address} needs psycopg. {install_advice('postgresql')}") from None
        try:
            yield
        except psycopg.Error as error:
            if self._connection is not None and self._connection.broken:
                self._connection = None
            kind = SinkFull if isinstance(error, psycopg.errors.DiskFull) else IndexUnavailable
            raise kind(f"{self._address}: {str(error).strip().splitlines()[0]}") from error

    def chosen(self, column: str, keys: Sequence[int]) -> tuple[str, Any]:
        return f"{column} = ANY(?)", list(keys)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def is_there(self) -> bool:
        return True  # statements fail otherwise

    def delete(self) -> None:
        self.run(f'DROP SCHEMA "{self._schema}" CASCADE')
        self.close()


def _make(
    database: IndexDatabase,
    tables: Sequence[str],
    words: Mapping[str, str],
    before: Callable[[], None] | None,
    after: Callable[[], None] | None,
) -> None:
    """Carry out `prepare` in its transaction."""
    if before is not None:
        before()
    for table in tables:
        database.run(table.format(**words))
    if after is not None:
        after()


def open_database(address: str, name: str, *, prefix: str = _SCHEMA_PREFIX) -> IndexDatabase:
    """Open the database of an index: the path of a SQLite file, or postgresql://HOST/DATABASE. `name`: of the index
    among others of that database; `prefix`: of its schema. Raises BadInput or SinkError."""
    if not is_store(address):
        if "://" in address:
            raise BadInput(f"cannot use {address}. {_ADDRESSES}", option="index")
        return SqliteIndex(Path(address))
    if not address.lower().startswith("postgres"):
        raise BadInput(f"cannot keep an index in {hide_secrets(address)}. {_ADDRESSES}", option="index")
    return PostgreSqlIndex(StoreAddress.parse(address), f"{prefix}{name}")


def index_versions(place: str) -> dict[str, object]:
    """Return all indexes in a folder of SQLite files, or in a PostgreSQL database, by name in their order. The value is
    another one after the facts of the index have changed, at the latest some seconds later. Raises BadInput or
    SinkError."""
    if not is_store(place):
        return {path.stem: _file_version(path) for path in sorted(Path(place).glob("*.sqlite"))}
    database = PostgreSqlIndex(StoreAddress.parse(place), "")
    try:
        rows = database.rows(
            "SELECT n.nspname, s.n_tup_ins, s.n_tup_upd FROM pg_namespace n LEFT JOIN pg_stat_user_tables s "
            "ON s.schemaname = n.nspname AND s.relname = 'facts' WHERE left(n.nspname, 9) = ? ORDER BY 1",
            [_SCHEMA_PREFIX],
        )
    finally:
        database.close()
    return {str(name).removeprefix(_SCHEMA_PREFIX): (added, changed) for name, added, changed in rows}


def _file_version(path: Path) -> tuple[tuple[int, int], ...]:
    """Return time and size of a SQLite file and of its log, which get what is written."""
    found = []
    for one in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):  # the log is deleted when the last connection is closed
            facts = one.stat()
            found.append((facts.st_mtime_ns, facts.st_size))
    return tuple(found)
