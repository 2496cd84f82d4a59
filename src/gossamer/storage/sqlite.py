"""SQLite files by Python's own driver, for rooms that work without SQLAlchemy. Each statement is a transaction of its
own, unless it is in a `transaction`."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def connect(path: Path | str, *, lock_seconds: float = 5.0, any_thread: bool = False) -> sqlite3.Connection:
    """Open or make a file; "": a temporary one without a name. `lock_seconds`: time to wait for another process that
    writes. `any_thread`: threads may use it one after the other. Raises sqlite3.Error, as the next does."""
    return sqlite3.connect(path, timeout=lock_seconds, isolation_level=None, check_same_thread=not any_thread)


def connect_to_read(path: Path, *, lock_seconds: float = 5.0) -> sqlite3.Connection:
    """Open a file that exists, and that is not to change, except that SQLite takes back what a killed writer had begun:
    with `mode=ro`, it refuses such a file."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=lock_seconds)
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Context of which all statements are carried out together, or none. It has the file's lock from its beginning."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def delete_side_files(path: Path) -> None:
    """Delete the files that SQLite keeps beside a file. Call it before another file takes the name: SQLite would
    restore in that one what a killed writer has left in them. Raises OSError."""
    for ending in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
