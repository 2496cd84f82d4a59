"""The platform's database: connections, transactions, and the migrations at the start.

Work on the database is a function that gets a connection, and runs in a thread. SQLite has one writer at a time, so one
thread makes all writing transactions in the order of their arrival: none fails with "database is locked", and none is
overtaken for ever. Readers have connections of their own and do not wait for it.

Safe to change: the numbers of threads. Fixed: BEGIN IMMEDIATE for writers (a deferred one that reads and then writes
fails when another wrote in between), and synchronous=FULL (with NORMAL a power cut may take back confirmed jobs).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url

from gossamer.platform.state.tables import METADATA

T = TypeVar("T")

_READERS: Final = 4
"""Threads and connections for reading. May be changed; pages of thousands of jobs are what takes long."""
_WRITERS: Final = 8
"""Threads for writing where the database has more than one writer (PostgreSQL). May be changed."""
_MIGRATION_LOCK: Final = 7_310_946_110
"""Number of the lock under which PostgreSQL migrates. Any number; must be the same in all versions of Gossamer."""


class StateDatabase:
    """Connections to the database at a SQLAlchemy URL (`sqlite:////folder/file`, `postgresql+psycopg://…`)."""

    def __init__(self, url: str) -> None:
        self._is_sqlite = make_url(url).get_backend_name() == "sqlite"
        if self._is_sqlite:
            self._writing = _sqlite_engine(url, begin="BEGIN IMMEDIATE", connections=1)
            self._reading = _sqlite_engine(url, begin="BEGIN", connections=_READERS)
        else:
            self._writing = self._reading = create_engine(url, pool_size=_WRITERS + _READERS, pool_pre_ping=True)
        self._writers = ThreadPoolExecutor(1 if self._is_sqlite else _WRITERS, thread_name_prefix="state-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="state-read")

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction, and return its result once that is committed.

        An error that `work` raises rolls everything back. A caller that is cancelled does not stop the transaction.
        """
        return await asyncio.get_running_loop().run_in_executor(self._writers, _transact, self._writing, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which must not write, on one consistent state of the database."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, _transact, self._reading, work)

    async def migrate(self) -> None:
        """Bring the tables up to date. Of several processes that start at once, one does it and the others wait."""
        await self.write(self._migrate)

    def _migrate(self, connection: Connection) -> None:
        # SQLite's lock is the transaction itself: it is a BEGIN IMMEDIATE.
        if not self._is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
        migrate(connection)

    async def close(self) -> None:
        """Wait for the transactions that run, and close all connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for threads in (self._writers, self._readers):
            threads.shutdown(wait=True)
        self._writing.dispose()
        self._reading.dispose()


def migrate(connection: Connection) -> None:
    """Run the migrations that the database lacks, in the connection's transaction."""
    from alembic import command  # here, because only the start needs it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    config.attributes["metadata"] = METADATA
    command.upgrade(config, "head")


def _transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)


def _sqlite_engine(url: str, *, begin: str, connections: int) -> Engine:
    engine = create_engine(
        url, pool_size=connections, max_overflow=0, connect_args={"check_same_thread": False, "timeout": 30.0}
    )

    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # Python's driver would begin transactions by itself, and deferred ones
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine
