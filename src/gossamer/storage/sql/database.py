"""A SQL database: connections, transactions, and the tables, which are made or migrated at the start.

Work on the database is a function that gets a connection, and runs in a thread.

SQLite serves the processes of one machine. It has one writer at a time, so one thread makes all writing transactions in
the order of their arrival: none fails with "database is locked", and none is overtaken for ever. Writers of other
processes wait for its lock. Readers have connections of their own and do not wait for it.

PostgreSQL serves any number of processes. Writers run side by side; a statement that reads what it is about to write
locks the row first. A transaction that PostgreSQL breaks off because of others is run again.

Fixed: BEGIN IMMEDIATE for writers in SQLite (a deferred one that reads and then writes fails when another wrote in
between), synchronous=FULL (with NORMAL a power cut may take back what was confirmed), and that a transaction whose
connection broke is not repeated: it may have been committed.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from gossamer.errors import BadInput
from gossamer.extras import install_advice
from gossamer.net.credentials import hide_secrets
from gossamer.storage.sql.schema import DatabaseSchema
from gossamer.storage.sql.storable import storable_json

T = TypeVar("T")

_READERS: Final = 4
"""Threads and connections for reading. Pages of thousands of rows are what takes long."""
_WRITERS: Final = 8
"""Threads for writing where the database has more than one writer (PostgreSQL)."""
_SQLITE_SECONDS: Final = 30.0
"""Time for which a connection waits for the lock of another process in SQLite."""
_REPETITIONS: Final = 5
"""Times that a transaction is run again that PostgreSQL broke off."""
_BROKEN_OFF: Final = {"40001", "40P01"}
"""SQLSTATEs of such a transaction: it could not be serialized; it was in a deadlock. PostgreSQL's: fixed."""
_CONNECTION: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
"""Options of libpq by which a connection to a server that is gone without a word breaks within half a minute."""
_EXAMPLE: Final = "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"


class SqlDatabase:
    """Connections to the database at a SQLAlchemy URL (`sqlite:////folder/file`, `postgresql+psycopg://…`).

    Raises BadInput if the URL cannot be read or names another kind of database.
    """

    def __init__(self, url: str, schema: DatabaseSchema, *, name: str) -> None:
        """`schema`: tables, which `migrate` makes. `name`: the database's, for the names of its threads."""
        self._schema = schema
        self._is_sqlite = _backend(url) == "sqlite"
        if self._is_sqlite:
            self._writing = _sqlite_engine(url, begin="BEGIN IMMEDIATE", connections=1)
            self._reading = _sqlite_engine(url, begin="BEGIN", connections=_READERS)
        else:
            self._writing = _postgresql_engine(url)
            # A reader sees the state of its first statement in all others, too.
            self._reading = self._writing.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._url = url
        self._writers = ThreadPoolExecutor(1 if self._is_sqlite else _WRITERS, thread_name_prefix=f"{name}-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix=f"{name}-read")

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction, and return its result once that is committed.

        An error that `work` raises rolls everything back. A caller that is cancelled does not stop the transaction.
        `work` may be called several times; only the last call counts, so it must keep nothing outside the database.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, _transact, self._writing, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which must not write, on one consistent state of the database."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, _transact, self._reading, work)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """As `read`, for a thread that may wait."""
        return self._readers.submit(_transact, self._reading, work).result()

    def write_now(self, work: Callable[[Connection], T]) -> T:
        """As `write`, for a thread that may wait."""
        return self._writers.submit(_transact, self._writing, work).result()

    async def migrate(self) -> None:
        """Bring the tables up to date. Of several processes that start at once, one does it and the others wait."""
        await self.write(self._schema.migrate)

    @property
    def is_shared(self) -> bool:
        """True if processes of several machines may use the database at a time."""
        return not self._is_sqlite

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database. None: it is no file."""
        name = make_url(self._url).database
        return Path(name) if self._is_sqlite and name and name != ":memory:" else None

    async def check(self) -> None:
        """Connect once. Raises BadInput if the database cannot be reached. Nothing happens in SQLite."""
        if not self._is_sqlite:
            await asyncio.to_thread(self._check)

    def _check(self) -> None:
        try:
            self._writing.connect().close()
        except DBAPIError as error:
            raise unreachable(error) from None

    async def close(self) -> None:
        """Wait for the transactions that run, and close all connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for threads in (self._writers, self._readers):
            threads.shutdown(wait=True)
        self._writing.dispose()
        self._reading.dispose()


def _transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    for left in reversed(range(_REPETITIONS + 1)):
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            if left == 0 or getattr(error.orig, "sqlstate", "") not in _BROKEN_OFF:
                raise
    raise AssertionError("the last repetition returns or raises")


def unreachable(error: DBAPIError) -> BadInput:
    """Return the error for a database that cannot be reached."""
    return BadInput(f"the database cannot be reached: {' '.join(str(error.orig).split())}")


def _backend(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(
            f"{hide_secrets(url, web=True)!r} is no address of a database; write for example {_EXAMPLE}"
        ) from None
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise BadInput(f"{parsed.drivername} is not supported as a database; write for example {_EXAMPLE}")
    return parsed.get_backend_name()


def _postgresql_engine(url: str) -> Engine:
    try:
        return create_engine(
            url,
            pool_size=_WRITERS + _READERS + 1,  # one for a lock that is held for long
            max_overflow=0,
            hide_parameters=True,  # a message about a fault is logged; a parameter may be a secret
            json_serializer=storable_json,
            pool_pre_ping=True,  # the server may have been restarted
            connect_args={
                "prepare_threshold": None,  # a pooler in front of the server knows no prepared statements
                **_CONNECTION,
            },
        )
    except ModuleNotFoundError as error:
        raise BadInput(f"PostgreSQL needs {error.name}: {install_advice('postgresql')}") from None


def _sqlite_engine(url: str, *, begin: str, connections: int) -> Engine:
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,  # as above
        json_serializer=storable_json,
        connect_args={"check_same_thread": False, "timeout": _SQLITE_SECONDS},
    )

    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # Python's driver would begin transactions by itself, and deferred ones
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        if begin != "BEGIN":  # the file keeps its mode, so readers need not set it
            _set_wal(connection)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _set_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode. SQLite itself does not wait for the lock that a change of the mode needs."""
    deadline = time.monotonic() + _SQLITE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
