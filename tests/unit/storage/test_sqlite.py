"""SQLite files that are only read."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.storage import sqlite

_KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.executemany("INSERT INTO pages VALUES (?)", (("x" * 4000,) for _ in range(200)))
connection.execute("UPDATE pages SET url = 'changed' WHERE url = 'a'")
os._exit(0)
"""
"""A writer that ends in the middle of a transaction of which the file has a part already."""


def a_file(path: Path) -> Path:
    with closing(sqlite.connect(path)) as connection:
        connection.execute("CREATE TABLE pages (url TEXT)")
        connection.execute("INSERT INTO pages VALUES ('a')")
    return path


def test_a_file_whose_writer_was_killed_is_read_as_before_its_last_transaction(tmp_path: Path) -> None:
    path = a_file(tmp_path / "items.sqlite")
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=True)
    assert (tmp_path / "items.sqlite-journal").stat().st_size > 0
    with closing(sqlite.connect_to_read(path)) as connection:
        assert connection.execute("SELECT url FROM pages").fetchall() == [("a",)]


def test_a_file_that_is_read_cannot_be_changed_and_is_not_made(tmp_path: Path) -> None:
    with (
        closing(sqlite.connect_to_read(a_file(tmp_path / "items.sqlite"))) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM pages")
    with pytest.raises(sqlite3.OperationalError):
        sqlite.connect_to_read(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
