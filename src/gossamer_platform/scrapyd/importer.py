"""Takes over what Scrapyd has in its databases: waiting jobs, and jobs that have ended.

    DBS/PROJECT.db    table spider_queue(id, priority, message): waiting jobs, each a JSON object
    DBS/jobs.db       table finished_jobs(id, project, spider, job, start_time, end_time)

A waiting job is removed from Scrapyd's database only after it was added to ours, and each row is added once, also if
the process is killed in between. Fixed: names and columns, which are Scrapyd's.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from gossamer.storage import sqlite
from gossamer_platform.manager.operations import Manager
from gossamer_platform.names import UnsafeName
from gossamer_platform.state import jobs, projects
from gossamer_platform.state.jobs import NewJob

log = logging.getLogger("gossamer.platform.scrapyd")

_FINISHED: Final = "jobs.db"
_TIMES: Final = "%Y-%m-%d %H:%M:%S.%f"
_RESERVED: Final = frozenset({"name", "_job", "_version", "settings"})
"""Keys of a message that are no arguments of the spider."""


class ImportedJobs(NamedTuple):
    """Numbers of jobs that were found in Scrapyd's databases."""

    waiting: int
    ended: int
    """Also those that were taken over before."""


async def import_queues(manager: Manager, folder: Path) -> ImportedJobs:
    """Take over the databases in the folder. Projects without a version stay in theirs, until there is one."""
    waiting = ended = 0
    known = set(await manager.read(projects.project_names))
    for path in await asyncio.to_thread(lambda: sorted(folder.glob("*.db"))):
        try:
            if path.name == _FINISHED:
                for row in await asyncio.to_thread(_rows, path, "finished_jobs"):
                    ended += await _take(manager, path, row, _finished)
            if path.stem in known:  # also a project that is called `jobs`, whose queue is in the same file
                for row in await asyncio.to_thread(_rows, path, "spider_queue"):
                    if await _take(manager, path, row, _waiting):
                        waiting += 1
                        await asyncio.to_thread(_remove, path, row["id"])
                        await manager.database.write(partial(jobs.forget_import, source=_source(path.name, row)))
        except (sqlite3.Error, ValueError, KeyError, TypeError, UnsafeName) as error:
            log.error("%s cannot be taken over from Scrapyd: %s", path, error)
    return ImportedJobs(waiting, ended)


def running_jobs(folder: Path) -> list[int]:
    """Return the processes of jobs that a Scrapyd has started in this folder. Empty where there is no /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"scrapyd.runner" in words and b"crawl" in words and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
    return sorted(found)


async def _take(
    manager: Manager,
    path: Path,
    row: dict[str, Any],
    statement: Callable[[Path, dict[str, Any]], Callable[[Connection], None]],
) -> bool:
    """Take over a row. Return False, with a line in the log, if it is broken: the rows behind it do not wait for it."""
    try:
        await manager.database.write(statement(path, row))
    except (ValueError, KeyError, TypeError, AttributeError, UnsafeName) as error:
        log.error("%s: row %s is skipped, it cannot be taken over from Scrapyd: %r", path, row.get("id"), error)
        return False
    return True


def _waiting(path: Path, row: dict[str, Any]) -> Callable[[Connection], None]:
    message = json.loads(row["message"])
    if not isinstance(message, dict):
        raise TypeError("the message is not a JSON object")
    arguments = {str(name): str(value) for name, value in message.items() if name not in _RESERVED}
    job = NewJob(
        project=path.stem,
        spider=message["name"],
        name=message["_job"],
        version=message.get("_version"),
        arguments=arguments,
        settings=message.get("settings", {}),
        priority=float(row["priority"] or 0.0),
    )

    def add(connection: Connection) -> None:
        if not jobs.was_imported(connection, _source(path.name, row)):
            jobs.add_job(connection, job)

    return add


def _finished(path: Path, row: dict[str, Any]) -> Callable[[Connection], None]:
    job = NewJob(row["project"], row["spider"], row["job"])
    started, ended = (datetime.strptime(row[key], _TIMES).timestamp() for key in ("start_time", "end_time"))

    def add(connection: Connection) -> None:
        if not jobs.was_imported(connection, _source(path.name, row)):
            jobs.add_ended_job(connection, job, started_at=started, ended_at=ended)

    return add


def _source(name: str, row: dict[str, Any]) -> str:
    """Return a key of the row. Its number is not enough: Scrapyd uses the numbers of removed rows again."""
    content = repr(sorted(row.items())).encode()
    return f"{name[:100]}:{row['id']}:{hashlib.sha256(content).hexdigest()[:32]}"


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def _rows(path: Path, table: str) -> list[dict[str, Any]]:
    with _open(path) as connection:
        exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
        if exists.fetchone() is None:
            return []
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]  # noqa: S608 (constant)


def _remove(path: Path, number: int) -> None:
    with _open(path) as connection:
        connection.execute("DELETE FROM spider_queue WHERE id = ?", (number,))
