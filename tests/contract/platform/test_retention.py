"""Retention by age and by count: what a project does not keep is deleted, and nothing else."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from gossamer.errors import BadInput
from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform.lifecycle import JobState
from gossamer_platform.manager.artefacts import ArtefactStore
from gossamer_platform.manager.files import FileKind
from gossamer_platform.manager.operations import Manager
from gossamer_platform.manager.retention import delete_outdated, parse_limits
from gossamer_platform.policy import JobPolicy
from gossamer_platform.scrapyd.config import load
from gossamer_platform.scrapyd.files import JobFile, ScrapydFiles
from gossamer_platform.state import jobs, retention
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.projects import change_project
from gossamer_platform.state.retention import KeepLimits, KeptKind, RetentionPolicy
from gossamer_platform.state.tables import jobs as job_table


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScrapydFiles:
    monkeypatch.chdir(tmp_path)
    return ScrapydFiles(dataclasses.replace(load([], {}), logs_dir="logs", items_dir="items"))


def _add(
    connection: Connection, spider: str, days: int, state: JobState = JobState.FINISHED, group: int | None = None
) -> Any:
    """A job that ended so many days ago."""
    number = jobs.add_job(connection, NewJob("shop", spider, f"{spider}-{days}", group_id=group))
    ended_at = DatabaseNow() - 86400.0 * days if state is JobState.FINISHED else None
    columns = {"state": state.value, "ended_at": ended_at, "has_files": True, "attempt": 1}
    connection.execute(update(job_table).where(job_table.c.id == number).values(**columns))
    return jobs.find_job(connection, number)


def _make_files(files: ScrapydFiles, rows: list[Any]) -> None:
    for row in rows:
        place = files.places(row)
        Path(place.output).write_text("log")
        Path(place.items).write_text('{"n": 1}\n')


def _leave_log(name: str) -> None:
    path = Path("logs", name)
    path.parent.mkdir(parents=True)
    path.write_text("another program's")


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.rglob("*") if path.is_file())


async def test_age_and_count_of_logs_items_and_jobs(
    database: StateDatabase, files: ScrapydFiles, tmp_path: Path
) -> None:
    rows = await database.write(
        lambda c: [
            *(_add(c, "a", days) for days in (5, 4, 3, 2, 1)),
            _add(c, "b", 40),
            _add(c, "a", 90, JobState.RUNNING),
        ]
    )
    _make_files(files, rows)
    foreign = tmp_path / "logs/shop/a/foreign.log"
    foreign.write_text("not the platform's own")
    everything = sorted(["a-5", "a-4", "a-3", "a-2", "a-1", "b-40", "a-90"])
    await delete_outdated(database, files, RetentionPolicy())
    assert _names(tmp_path / "items") == everything
    stopping = asyncio.Event()
    stopping.set()
    await delete_outdated(database, files, RetentionPolicy(logs=KeepLimits(jobs=1)), stopping=stopping)
    assert _names(tmp_path / "logs") == sorted([*everything, "foreign"])
    reading = files.open(rows[0], FileKind.LOG, 0)
    assert reading is not None

    await delete_outdated(database, files, RetentionPolicy(logs=KeepLimits(days=3.5), items=KeepLimits(jobs=2)))
    assert _names(tmp_path / "logs") == sorted(["a-3", "a-2", "a-1", "a-90", "foreign"])
    assert _names(tmp_path / "items") == sorted(["a-2", "a-1", "b-40", "a-90"])
    assert reading.read(0, 10) == b"log"  # it was open before
    reading.close()
    found = await database.read(lambda c: c.execute(select(job_table).order_by(job_table.c.id)).all())
    assert [row.has_files for row in found] == [False, False, True, True, True, True, True]

    # The project's own limits come first; 0 keeps for ever.
    own = {"keep_jobs_days": 1.5, "keep_jobs": None, "keep_items_jobs": 0}
    assert await database.write(lambda c: change_project(c, "shop", JobPolicy(), **own))
    await delete_outdated(database, files, RetentionPolicy(items=KeepLimits(jobs=1), jobs=KeepLimits(jobs=100)))
    left = await database.read(lambda c: c.execute(select(job_table.c.name)).scalars().all())
    assert sorted(left) == ["a-1", "a-90"]
    assert _names(tmp_path / "items") == ["a-1", "a-90"]
    assert foreign.exists()


async def test_a_file_that_cannot_be_deleted_is_tried_again(
    database: StateDatabase, files: ScrapydFiles, tmp_path: Path
) -> None:
    [row] = await database.write(lambda c: [_add(c, "a", 9)])
    path = JobFile.of(row).below(str(tmp_path / "logs"), "log", attempt=1)
    path.mkdir(parents=True)  # a folder in its place
    policy = RetentionPolicy(logs=KeepLimits(days=1))
    await delete_outdated(database, files, policy)
    assert (await database.read(lambda c: jobs.find_job(c, row.id))).has_files
    await asyncio.to_thread(path.rmdir)
    path.write_text("log")
    await delete_outdated(database, files, policy)
    assert not path.exists()
    assert (await database.read(lambda c: jobs.find_job(c, row.id))).log_deleted


@pytest.mark.parametrize(
    ("text", "limits"),
    [("all", (0, 0)), ("30d", (30, 0)), ("100", (0, 100)), ("1.5d,7", (1.5, 7)), ("0d", (0, 0))],
)
def test_limits_as_a_person_writes_them(text: str, limits: tuple[float, int]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", ["", "d", "30 days", "30d,", ",5", "-1", "5,30d", "1e3"])
def test_limits_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        parse_limits(text)


async def test_a_projects_limits_take_precedence_over_jobs_to_keep(database: StateDatabase) -> None:
    await database.write(lambda c: [_add(c, "a", days) for days in (3, 2, 1)])

    async def beyond(kind: KeptKind) -> list[str]:
        found = await database.read(lambda c: retention.files_beyond(c, kind, "shop", "a", keep=1))
        return [row.name for row in found]

    assert await beyond(KeptKind.LOGS) == await beyond(KeptKind.ITEMS) == ["a-2", "a-3"]
    await database.write(lambda c: change_project(c, "shop", JobPolicy(), keep_logs_jobs=50))
    assert await beyond(KeptKind.LOGS) == []
    assert await beyond(KeptKind.ITEMS) == ["a-2", "a-3"]


async def test_a_group_counts_as_one_job_as_old_as_its_last_part(
    database: StateDatabase, files: ScrapydFiles, tmp_path: Path
) -> None:
    await database.write(lambda c: [_add(c, "a", days, group=7) for days in (9, 6, 2)])
    await database.write(lambda c: [_add(c, "a", days) for days in (8, 5)])
    await database.write(lambda c: [_add(c, "a", 20, group=8), _add(c, "a", 1, JobState.RUNNING, group=8)])

    async def beyond(keep: int) -> list[str]:
        found = await database.read(lambda c: retention.files_beyond(c, KeptKind.ITEMS, "shop", "a", keep=keep))
        return [row.name for row in found]

    assert [await beyond(keep) for keep in (0, 1, 2, 3)] == [
        ["a-2", "a-5", "a-6", "a-8", "a-9"],
        ["a-5", "a-8"],
        ["a-8"],
        [],
    ]

    async def left() -> list[str]:
        return sorted(await database.read(lambda c: c.execute(select(job_table.c.name)).scalars().all()))

    await delete_outdated(database, files, RetentionPolicy(jobs=KeepLimits(days=5.5, jobs=2)))
    assert await left() == ["a-1", "a-2", "a-20", "a-5", "a-6", "a-9"]
    await delete_outdated(database, files, RetentionPolicy(jobs=KeepLimits(days=1.5)))
    assert await left() == ["a-1", "a-20"]


async def test_a_new_job_does_not_take_files_of_another_program(database: StateDatabase, files: ScrapydFiles) -> None:
    await database.write(lambda c: _add(c, "a", 1))  # the project and its spider
    _leave_log("shop/a/old.log")
    manager = Manager(database, ArtefactStore(Path("eggs"), Path("uploads")), None)  # type: ignore[arg-type]
    manager.has_files = files.has_files
    await manager.schedule(NewJob("shop", "a", "old"))
    [row] = await database.read(lambda c: jobs.job_rows(c, job_table.c.name == "old"))
    assert row.file_name != "old"
    assert not files.has_files("shop", "a", row.file_name)


async def test_a_manager_deletes_no_jobs_for_their_lack_of_files(database: StateDatabase, tmp_path: Path) -> None:
    """Which jobs it keeps, its own limits say. `gossamer scrapyd` keeps those that Scrapyd would show."""

    def add(connection: Connection) -> None:
        for days in (1, 2, 3):
            _add(connection, "a", days)
        connection.execute(update(job_table).values(has_files=False))

    async def count() -> int:
        return len(await database.read(lambda c: c.execute(select(job_table.c.id)).all()))

    await database.write(add)
    manager = Manager(database, ArtefactStore(tmp_path / "eggs", tmp_path / "uploads"), None)  # type: ignore[arg-type]
    await manager.clean()
    assert await count() == 3
    await manager.clean(ended_jobs=1)
    assert await count() == 1
