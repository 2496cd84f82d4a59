"""Statements on the platform's state: no job is given twice, none is overtaken for ever, no end is overwritten."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, select, update

from gossamer.platform.lifecycle import JobState
from gossamer.platform.outcome import AttemptEnd
from gossamer.platform.state import jobs, projects
from gossamer.platform.state.database import StateDatabase
from gossamer.platform.state.jobs import NewJob
from gossamer.platform.state.tables import METADATA
from gossamer.platform.state.tables import jobs as job_table
from gossamer.platform.state.tables import projects as project_table

_GOOD = AttemptEnd(exit_code=0, finish_reason="finished")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[StateDatabase]:
    opened = StateDatabase(f"sqlite:///{tmp_path}/state.db")
    await opened.migrate()
    yield opened
    await opened.close()


def _add_project(connection: Connection, name: str) -> None:
    number = projects.add_version(connection, name, "1", digest="d", file=f"{name}/1.egg")
    projects.take_listing(connection, "node")
    assert projects.record_listing(connection, number, incarnation="node", spiders=["a"], fault="")


def _add(connection: Connection, project: str, name: str, priority: float = 0.0) -> int:
    return jobs.add_job(connection, NewJob(project, "a", name, priority=priority))


async def _state(database: StateDatabase, job: int) -> tuple[str, int]:
    columns = select(job_table.c.state, job_table.c.attempt).where(job_table.c.id == job)
    row = await database.read(lambda c: c.execute(columns).one())
    return row.state, row.attempt


async def test_migrations_make_the_tables(database: StateDatabase) -> None:
    def compare(connection: Connection) -> list[object]:
        # An index on an expression cannot be read back from SQLite.
        options = {"include_name": lambda name, kind, _: name != "ix_job_queue"}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))

    with pytest.warns(UserWarning, match="ix_job_queue"):
        assert await database.read(compare) == []


async def test_processes_that_start_at_once_migrate_once(tmp_path: Path) -> None:
    databases = [StateDatabase(f"sqlite:///{tmp_path}/new.db") for _ in range(4)]
    await asyncio.gather(*(each.migrate() for each in databases))
    assert await databases[0].read(projects.project_names) == []
    for each in databases:
        await each.close()


async def test_a_job_is_given_once(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for number in range(40):
        await database.write(lambda c, number=number: _add(c, "shop", str(number)))  # type: ignore[misc]
    calls = [
        database.write(lambda c, call=str(number): jobs.take_jobs(c, node="n", call=call, free=3))  # type: ignore[misc]
        for number in range(20)
    ]
    taken = [row.id for rows in await asyncio.gather(*calls) for row in rows]
    assert len(taken) == len(set(taken)) == 40


async def test_a_repeated_call_gets_the_same_jobs(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for name in "abc":
        await database.write(lambda c, name=name: _add(c, "shop", name))  # type: ignore[misc]
    first = await database.write(lambda c: jobs.take_jobs(c, node="n", call="1", free=2))
    again = await database.write(lambda c: jobs.take_jobs(c, node="n", call="1", free=2))
    assert [(row.id, row.attempt) for row in first] == [(row.id, row.attempt) for row in again]


async def test_a_report_of_an_earlier_attempt_changes_nothing(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    job = await database.write(lambda c: _add(c, "shop", "x"))
    await database.write(lambda c: jobs.take_jobs(c, node="n", call="1", free=1))
    assert await database.write(lambda c: jobs.record_return(c, job, 1)) is JobState.PENDING
    await database.write(lambda c: jobs.take_jobs(c, node="n", call="2", free=1))
    assert await database.write(lambda c: jobs.record_start(c, job, 1, pid=5)) is None
    assert await database.write(lambda c: jobs.record_end(c, job, 1, _GOOD)) is None
    assert await _state(database, job) == ("starting", 2)


async def test_the_first_end_counts(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    job = await database.write(lambda c: _add(c, "shop", "x"))
    await database.write(lambda c: jobs.take_jobs(c, node="n", call="1", free=1))
    assert await database.write(lambda c: jobs.record_end(c, job, 1, _GOOD)) is JobState.FINISHED
    assert await database.write(lambda c: jobs.record_end(c, job, 1, AttemptEnd(fault="shim_lost"))) is None
    assert await database.write(lambda c: jobs.record_start(c, job, 1, pid=5)) is None  # a late report of the start
    assert not await database.write(lambda c: jobs.request_stop(c, "shop", "x", signal=2))
    assert await _state(database, job) == ("finished", 1)


async def test_a_stopped_job_is_cancelled_however_it_ended(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for end in (_GOOD, AttemptEnd(signal=9), AttemptEnd(fault="shim_lost")):
        job = await database.write(lambda c: _add(c, "shop", "x"))
        await database.write(lambda c, job=job: jobs.take_jobs(c, node="n", call=str(job), free=1))  # type: ignore[misc]
        await database.write(lambda c: jobs.request_stop(c, "shop", "x", signal=2))
        state = await database.write(lambda c, job=job, end=end: jobs.record_end(c, job, 1, end))  # type: ignore[misc]
        assert state is JobState.CANCELLED


async def test_each_waiting_project_gets_a_job_within_as_many_slots_as_projects_wait(database: StateDatabase) -> None:
    """Whatever the others' priorities and backlogs are."""
    names = [f"p{number}" for number in range(7)]
    for name in names:
        await database.write(lambda c, name=name: _add_project(c, name))  # type: ignore[misc]
        for number in range(20):
            priority = 100.0 if name == "p0" else -number
            await database.write(
                lambda c, name=name, number=number, priority=priority: _add(c, name, str(number), priority)  # type: ignore[misc]
            )
    order = []
    for slot in range(len(names) * 5):
        [row] = await database.write(lambda c, slot=slot: jobs.take_jobs(c, node="n", call=str(slot), free=1))  # type: ignore[misc]
        order.append(row.project)
    for begin in range(len(order) - len(names) + 1):
        assert set(order[begin : begin + len(names)]) == set(names)


async def test_within_a_project_priority_counts_then_age(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for name, priority in (("old", 0.0), ("new", 0.0), ("urgent", 1.5), ("late", -1.0)):
        await database.write(lambda c, n=name, p=priority: _add(c, "shop", n, p))  # type: ignore[misc]
    rows = [
        (await database.write(lambda c, call=call: jobs.take_jobs(c, node="n", call=call, free=1)))[0].name  # type: ignore[misc]
        for call in "1234"
    ]
    assert rows == ["urgent", "old", "new", "late"]


async def test_a_pending_job_whose_version_is_gone_has_failed(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: jobs.add_job(c, NewJob("shop", "a", "x", version="1")))
    found = await database.read(lambda c: projects.find_version(c, "shop", "1"))
    assert found is not None
    await database.write(lambda c: projects.remove_version(c, found.id))
    assert await database.write(lambda c: jobs.take_jobs(c, node="n", call="1", free=1)) == []
    [row] = await database.read(lambda c: jobs.ended_jobs(c, limit=5))
    assert (row.state, row.reason) == ("failed", "no_version: 1")


async def test_a_database_with_ten_thousand_jobs_answers_by_its_indexes(database: StateDatabase) -> None:
    def plans(connection: Connection) -> list[str]:
        seen: list[str] = []

        def explain(conn: Connection, cursor: object, statement: str, parameters: object, *_: object) -> None:
            if "job" in statement and not statement.startswith(("EXPLAIN", "INSERT")):
                rows = conn.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()  # type: ignore[attr-defined]
                seen.extend(f"{row[3]} <- {statement[:100]}" for row in rows)

        event.listen(connection, "before_cursor_execute", explain)
        jobs.take_jobs(connection, node="n", call="1", free=1)
        jobs.count_jobs(connection)
        jobs.ended_jobs(connection, limit=100)
        jobs.active_jobs(connection, "n")
        event.remove(connection, "before_cursor_execute", explain)
        return seen

    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: _add(c, "shop", "x"))
    scans = [plan for plan in await database.write(plans) if plan.startswith("SCAN job") and "INDEX" not in plan]
    assert not scans


async def test_a_failed_transaction_leaves_nothing(database: StateDatabase) -> None:
    def break_off(connection: Connection) -> None:
        _add_project(connection, "shop")
        connection.execute(update(project_table).values(turn=5))
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError):
        await database.write(break_off)
    assert await database.read(projects.project_names) == []
