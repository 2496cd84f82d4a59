"""Broken rows in Scrapyd's databases, and forms with names that mislead."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from gossamer_platform.manager.operations import Manager
from gossamer_platform.scrapyd.forms import parse_body
from gossamer_platform.scrapyd.importer import import_queues


class _Writes:
    """Takes the place of a manager and its database: it counts the writes."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.count = 0
        self.database = self

    async def read(self, question: object) -> list[str]:
        return [self.project]

    async def write(self, statement: Any) -> None:
        self.count += 1


@pytest.mark.parametrize("project", ["shop", "jobs"])
@pytest.mark.parametrize("broken", ["[1,2]", '{"name": "a"}', "{"])
async def test_a_broken_row_does_not_keep_those_behind_it(
    tmp_path: Path, project: str, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"{project}.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE spider_queue (id INTEGER PRIMARY KEY, priority REAL, message BLOB)")
        for message in (broken, json.dumps({"name": "a", "_job": "j2"})):
            database.execute("INSERT INTO spider_queue (priority, message) VALUES (0, ?)", (message,))
    manager = _Writes(project)
    await import_queues(cast(Manager, manager), tmp_path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT id FROM spider_queue").fetchall() == [(1,)]
    assert manager.count == 2  # the job, and the end of its import
    assert [record.getMessage().count("row 1 is skipped") for record in caplog.records] == [1]


def test_the_name_of_a_file_is_not_the_name_of_a_field() -> None:
    head = b'Content-Disposition: form-data; filename="a; name=evil.egg"; name="egg"'
    body = b"--b\r\n" + head + b"\r\n\r\nx\r\n--b--\r\n"
    assert parse_body("multipart/form-data; boundary=b", body) == {b"egg": [b"x"]}
