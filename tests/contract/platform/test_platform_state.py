"""Statements on the platform's state: no job is given twice, none is overtaken for ever, no end is overwritten."""

import asyncio
import threading
import warnings
from functools import partial

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, func, inspect, select, text, update

from gossamer.errors import BadInput
from gossamer_platform.lifecycle import JobState
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state import jobs, projects, tokens, variables
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import METADATA
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tables import projects as project_table
from gossamer_platform.state.tables import versions as version_table
from tests.contract.platform import first_schema

_GOOD = AttemptEnd(exit_code=0, finish_reason="finished")


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


async def _differences(database: StateDatabase, url: str) -> list[object]:
    """Return the differences between a database and the tables of the code."""

    def compare(connection: Connection) -> list[object]:
        # An index on an expression cannot be read back from SQLite, which is what the warning says.
        hidden = "ix_job_queue" if url.startswith("sqlite") else ""
        options = {"include_name": lambda name, kind, _: name != hidden}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*ix_job_queue", UserWarning)
            return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))

    return await database.read(compare)


async def test_a_new_database_has_the_tables(database: StateDatabase, url: str) -> None:
    assert await _differences(database, url) == []


async def test_migrations_bring_a_database_of_the_first_schema_up_to_date(url: str) -> None:
    old = StateDatabase(url)

    def make(connection: Connection) -> None:
        first_schema.SCHEMA.create_all(connection)
        connection.execute(text("INSERT INTO alembic_version VALUES ('0014')"))
        _add_project(connection, "shop")

    await old.write(make)
    await old.migrate()
    assert await _differences(old, url) == []
    assert await old.read(projects.project_names) == ["shop"]
    await old.close()


@pytest.mark.parametrize(
    ("schema", "advice"),
    [("0013", "Then start the commit [0-9a-f]{8} once with it"), ("9999", "of a newer Gossamer.*Update Gossamer")],
)
async def test_a_database_of_another_time_is_named_and_left_as_it_is(url: str, schema: str, advice: str) -> None:
    other = StateDatabase(url)

    def make(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:schema)"), {"schema": schema})
        connection.execute(text("CREATE TABLE project (id INTEGER)"))

    await other.write(make)
    with pytest.raises(BadInput, match=f"the database has schema {schema}.*{advice}"):
        await other.migrate()
    names = await other.read(lambda connection: inspect(connection).get_table_names())
    assert sorted(names) == ["alembic_version", "project"]
    await other.close()


async def test_processes_that_start_at_once_migrate_once(url: str) -> None:
    databases = [StateDatabase(url) for _ in range(4)]
    await asyncio.gather(*(each.migrate() for each in databases))
    assert await databases[0].read(projects.project_names) == []
    for each in databases:
        await each.close()


async def test_a_job_is_given_once(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for number in range(40):
        await database.write(lambda c, number=number: _add(c, "shop", str(number)))  # type: ignore[misc]
    calls = [
        database.write(lambda c, call=str(number): take_jobs(c, JobTaker("n", call, 100), free=3))  # type: ignore[misc]
        for number in range(20)
    ]
    taken = [row.id for rows in await asyncio.gather(*calls) for row in rows]
    assert len(taken) == len(set(taken)) == 40


async def test_a_repeated_call_gets_the_same_jobs(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for name in "abc":
        await database.write(lambda c, name=name: _add(c, "shop", name))  # type: ignore[misc]
    first = await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=2))
    again = await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=2))
    assert [(row.id, row.attempt) for row in first] == [(row.id, row.attempt) for row in again]


async def test_a_report_of_an_earlier_attempt_changes_nothing(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    job = await database.write(lambda c: _add(c, "shop", "x"))
    await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=1))
    assert await database.write(lambda c: jobs.record_return(c, job, 1)) is JobState.PENDING
    await database.write(lambda c: take_jobs(c, JobTaker("n", "2", 100), free=1))
    assert await database.write(lambda c: jobs.record_start(c, job, 1, pid=5)) is None
    assert await database.write(lambda c: jobs.record_end(c, job, 1, _GOOD)) is None
    assert await _state(database, job) == ("starting", 2)


async def test_the_first_end_counts(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    job = await database.write(lambda c: _add(c, "shop", "x"))
    await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=1))
    assert await database.write(lambda c: jobs.record_end(c, job, 1, _GOOD)) is JobState.FINISHED
    assert await database.write(lambda c: jobs.record_end(c, job, 1, AttemptEnd(fault="shim_lost"))) is None
    assert await database.write(lambda c: jobs.record_start(c, job, 1, pid=5)) is None  # a late report of the start
    assert not await database.write(lambda c: jobs.request_stop(c, "shop", "x", signal=2))
    assert await _state(database, job) == ("finished", 1)


async def test_a_stopped_job_is_cancelled_however_it_ended(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for end in (_GOOD, AttemptEnd(signal=9), AttemptEnd(fault="shim_lost")):
        job = await database.write(lambda c: _add(c, "shop", "x"))
        await database.write(lambda c, job=job: take_jobs(c, JobTaker("n", str(job), 100), free=1))  # type: ignore[misc]
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
        [row] = await database.write(lambda c, slot=slot: take_jobs(c, JobTaker("n", str(slot), 100), free=1))  # type: ignore[misc]
        order.append(row.project)
    for begin in range(len(order) - len(names) + 1):
        assert set(order[begin : begin + len(names)]) == set(names)


async def test_within_a_project_priority_counts_then_age(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    for name, priority in (("old", 0.0), ("new", 0.0), ("urgent", 1.5), ("late", -1.0)):
        await database.write(lambda c, n=name, p=priority: _add(c, "shop", n, p))  # type: ignore[misc]
    rows = [
        (await database.write(lambda c, call=call: take_jobs(c, JobTaker("n", call, 100), free=1)))[0].name  # type: ignore[misc]
        for call in "1234"
    ]
    assert rows == ["urgent", "old", "new", "late"]


async def test_a_pending_job_whose_version_is_gone_has_failed(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: jobs.add_job(c, NewJob("shop", "a", "x", version="1")))
    found = await database.read(lambda c: projects.find_version(c, "shop", "1"))
    assert found is not None
    await database.write(lambda c: projects.remove_version(c, found.id))
    assert await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=1)) == []
    [row] = await database.read(lambda c: jobs.ended_jobs(c, limit=5))
    assert (row.state, row.reason) == ("failed", "no_version: 1")


async def test_a_database_with_ten_thousand_jobs_answers_by_its_indexes(database: StateDatabase, url: str) -> None:
    """No statement on jobs reads the whole table, as SQLite explains its plans; PostgreSQL decides by the size."""
    if not url.startswith("sqlite"):
        return

    def plans(connection: Connection) -> list[str]:
        seen: list[str] = []

        def explain(conn: Connection, cursor: object, statement: str, parameters: object, *_: object) -> None:
            if "job" in statement and not statement.startswith(("EXPLAIN", "INSERT")):
                rows = conn.connection.cursor().execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()  # type: ignore[attr-defined]
                seen.extend(f"{row[3]} <- {statement[:100]}" for row in rows)

        event.listen(connection, "before_cursor_execute", explain)
        take_jobs(connection, JobTaker("n", "1", 100), free=1)
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


async def test_managers_that_add_at_once_make_one_project_and_files_of_their_own(url: str) -> None:
    managers = [StateDatabase(url) for _ in range(3)]
    await asyncio.gather(*(each.migrate() for each in managers))
    calls = [each.write(lambda c: _add(c, "shop", "same")) for each in managers for _ in range(5)]
    assert len(set(await asyncio.gather(*calls))) == 15
    rows = await managers[0].read(lambda c: jobs.list_jobs(c, [JobState.PENDING], project="shop"))
    assert len({row.file_name for row in rows}) == 15
    assert len({row.project_id for row in rows}) == 1
    for each in managers:
        await each.close()


async def test_managers_that_dispatch_at_once_give_each_job_once(url: str) -> None:
    managers = [StateDatabase(url) for _ in range(3)]
    await asyncio.gather(*(each.migrate() for each in managers))
    await managers[0].write(lambda c: _add_project(c, "shop"))
    for number in range(60):
        await managers[0].write(lambda c, number=number: _add(c, "shop", str(number)))  # type: ignore[misc]
    calls = [
        manager.write(lambda c, call=f"{place}-{number}": take_jobs(c, JobTaker("n", call, 100), free=2))  # type: ignore[misc]
        for place, manager in enumerate(managers)
        for number in range(12)
    ]
    taken = [row.id for rows in await asyncio.gather(*calls) for row in rows]
    assert len(taken) == len(set(taken)) == 60
    for each in managers:
        await each.close()


async def test_a_stop_and_an_end_at_the_same_time_leave_an_end(database: StateDatabase) -> None:
    """The end is recorded, whichever of both came first."""
    await database.write(lambda c: _add_project(c, "shop"))
    for number in range(30):
        name = str(number)
        job = await database.write(lambda c, name=name: _add(c, "shop", name))  # type: ignore[misc]
        await database.write(lambda c, name=name: take_jobs(c, JobTaker("n", name, 100), free=1))  # type: ignore[misc]
        await asyncio.gather(
            database.write(lambda c, name=name: jobs.request_stop(c, "shop", name, signal=2)),  # type: ignore[misc]
            database.write(lambda c, job=job: jobs.record_end(c, job, 1, AttemptEnd(exit_code=1))),  # type: ignore[misc]
        )
        assert (await _state(database, job))[0] in ("cancelled", "failed")


async def test_a_reader_sees_one_state(database: StateDatabase) -> None:
    """A job that another transaction adds meanwhile is in neither of the two counts."""
    reading, added = threading.Event(), threading.Event()

    def count_twice(connection: Connection) -> tuple[int, int]:
        first = len(jobs.list_jobs(connection, [JobState.PENDING]))
        reading.set()
        assert added.wait(30)
        return first, len(jobs.list_jobs(connection, [JobState.PENDING]))

    counting = asyncio.create_task(database.read(count_twice))
    await asyncio.to_thread(reading.wait, 30)
    await database.write(lambda c: _add(c, "shop", "x"))
    added.set()
    assert await counting == (0, 0)


async def test_rows_that_nothing_needs_are_deleted(database: StateDatabase) -> None:
    """Removed versions, old broken ones, cancelled jobs that never ran, and projects that have nothing left."""

    def fill(connection: Connection) -> None:
        for number in range(15):
            version = projects.add_version(connection, "shop", str(number), digest="d", file=f"shop/{number}.egg")
            projects.take_listing(connection, "node")
            projects.record_listing(connection, version, incarnation="node", spiders=[], fault="broken")
        for name in ("gone", "used"):
            _add_project(connection, name)
        for number in range(5):
            _add(connection, "used", str(number))
        take_jobs(connection, JobTaker("n", "1", 100), free=1)
        jobs.cancel_pending(connection, "used", reason="")
        for version in connection.scalars(select(version_table.c.id).where(version_table.c.state == "ready")).all():
            projects.remove_version(connection, version)

    def age(connection: Connection) -> None:
        connection.execute(update(version_table).values(deployed_at=1.0))
        connection.execute(update(project_table).values(created_at=1.0))
        connection.execute(update(job_table).where(job_table.c.ended_at.is_not(None)).values(ended_at=1.0))

    def clean(connection: Connection) -> tuple[list[str], int, int]:
        projects.forget_versions(connection)
        jobs.forget_jobs(connection, keep=2)
        names = list(connection.scalars(select(project_table.c.name).order_by(project_table.c.name)))
        counts = [connection.scalar(select(func.count()).select_from(table)) for table in (version_table, job_table)]
        return names, counts[0] or 0, counts[1] or 0

    await database.write(fill)
    assert await database.write(clean) == (["gone", "shop", "used"], 17, 5)  # nothing is old yet
    await database.write(age)
    # The version of the job that runs stays, and ten broken ones.
    assert await database.write(clean) == (["shop", "used"], 11, 3)


async def test_a_job_that_failed_is_tried_again_until_no_retry_is_left(database: StateDatabase) -> None:
    policy = JobPolicy(retries=2, retry_seconds=0)
    await database.write(lambda c: _add_project(c, "shop"))
    job = await database.write(lambda c: jobs.add_job(c, NewJob("shop", "a", "x", policy=policy)))
    states = []
    for call, end in (
        ("1", AttemptEnd(exit_code=1)),
        ("2", AttemptEnd(fault="shim_lost")),
        ("3", AttemptEnd(signal=9)),
    ):
        [row] = await database.write(
            lambda c, call=call: take_jobs(c, JobTaker("n", f"process {call}", 100), free=1)  # type: ignore[misc]
        )
        await database.write(lambda c, row=row: jobs.record_start(c, row.id, row.attempt, pid=1))  # type: ignore[misc]
        states.append(
            await database.write(lambda c, row=row, end=end: jobs.record_end(c, row.id, row.attempt, end))  # type: ignore[misc]
        )
    assert states == ["pending", "pending", "failed"]
    row = await database.read(lambda c: c.execute(select(job_table).where(job_table.c.id == job)).one())
    columns = ("attempt", "reason", "node", "incarnation", "version")
    assert [tuple(each[name] for name in columns) for each in row.earlier_attempts] == [
        (1, "exit_code: 1", "n", "process 1", "1"),
        (2, "shim_lost", "n", "process 2", "1"),
    ]
    assert (row.node, row.incarnation, row.version_name, row.ran_version) == ("n", "process 3", None, "1")
    assert (row.attempt, row.reason, row.retries_left) == (3, "signal: 9", 0)


async def test_a_job_whose_settings_are_wrong_is_not_tried_again(database: StateDatabase) -> None:
    """Exit code 2; with 4, which Scrapy jobs use where the frontier is away, it is."""
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: projects.change_project(c, "shop", JobPolicy(retries=1, retry_seconds=600)))
    for code, expected in ((2, JobState.FAILED), (4, JobState.PENDING)):
        job = await database.write(lambda c, code=code: _add(c, "shop", f"x{code}"))  # type: ignore[misc]
        await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=1))
        end = AttemptEnd(exit_code=code)
        assert await database.write(lambda c, job=job, end=end: jobs.record_end(c, job, 1, end)) is expected  # type: ignore[misc]


async def test_a_retry_waits_for_its_pause(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: projects.change_project(c, "shop", JobPolicy(retries=1, retry_seconds=600)))
    job = await database.write(lambda c: _add(c, "shop", "x"))
    await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=1))
    assert await database.write(lambda c: jobs.record_end(c, job, 1, AttemptEnd(exit_code=1))) is JobState.PENDING
    assert await database.write(lambda c: take_jobs(c, JobTaker("n", "2", 100), free=1)) == []
    await database.write(lambda c: c.execute(update(job_table).values(not_before=1.0)))
    assert len(await database.write(lambda c: take_jobs(c, JobTaker("n", "3", 100), free=1))) == 1


async def test_a_project_runs_no_more_jobs_than_it_may(database: StateDatabase) -> None:
    """Others get the slots meanwhile."""
    for name in ("limited", "other"):
        await database.write(lambda c, name=name: _add_project(c, name))  # type: ignore[misc]
        for number in range(6):
            await database.write(lambda c, name=name, number=number: _add(c, name, str(number)))  # type: ignore[misc]
    await database.write(lambda c: projects.change_project(c, "limited", JobPolicy(), max_running=2))
    rows = await database.write(lambda c: take_jobs(c, JobTaker("n", "1", 100), free=8))
    assert [row.project for row in rows].count("limited") == 2
    assert len(rows) == 8
    ended = next(row for row in rows if row.project == "limited")
    await database.write(lambda c: jobs.record_end(c, ended.id, ended.attempt, _GOOD))
    [row] = await database.write(lambda c: take_jobs(c, JobTaker("n", "2", 100), free=8))
    assert row.project == "limited"


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql+psycopg2://x/y", "no address"])
def test_an_address_of_another_kind_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadInput, match="write for example postgresql"):
        StateDatabase(url)


async def test_a_secret_that_was_set_anew_is_not_overwritten_by_its_rotation(database: StateDatabase) -> None:
    await database.write(lambda c: variables.set_variable(c, "shop", "KEY", "old", is_secret=True))
    [row] = await database.read(variables.list_secrets)
    await database.write(lambda c: variables.set_variable(c, "shop", "KEY", "set anew", is_secret=True))
    assert not await database.write(lambda c: variables.replace_token(c, row.id, old="old", new="rotated"))
    assert [found.value for found in await database.read(variables.list_secrets)] == ["set anew"]
    assert await database.write(lambda c: variables.replace_token(c, row.id, old="set anew", new="rotated"))


async def test_a_project_has_a_limited_number_of_variables_and_is_kept_for_them(database: StateDatabase) -> None:
    def set_all(connection: Connection) -> list[bool]:
        names = [f"V{number}" for number in range(variables.MAX_VARIABLES + 1)]
        return [variables.set_variable(connection, "shop", name, "x", is_secret=False) for name in names]

    assert await database.write(set_all) == [True] * variables.MAX_VARIABLES + [False]
    assert await database.write(lambda c: variables.set_variable(c, "shop", "V0", "y", is_secret=False))
    await database.write(lambda c: c.execute(update(project_table).values(created_at=0.0)))
    await database.write(projects.forget_versions)
    assert len(await database.read(lambda c: variables.list_variables(c, "shop"))) == variables.MAX_VARIABLES


async def test_a_token_permits_nothing_once_its_time_is_over(database: StateDatabase) -> None:
    def add(connection: Connection, seconds: float) -> str:
        return tokens.add_token(connection, "a", tokens.TokenScope.RUN, valid_seconds=seconds)[1]

    valid, over = [await database.write(partial(add, seconds=seconds)) for seconds in (60.0, 0.0)]
    assert await database.read(lambda c: tokens.find_principal(c, valid)) is not None
    assert await database.read(lambda c: tokens.find_principal(c, over)) is None


async def test_of_nodes_that_use_a_token_at_once_one_gets_it(database: StateDatabase) -> None:
    number, secret = await database.write(lambda c: tokens.add_token(c, "crawler", tokens.TokenScope.NODE))
    names = [f"n{each}" for each in range(8)]
    owners = await asyncio.gather(*(database.write(partial(tokens.bind_token, token_id=number, node=n)) for n in names))
    assert len(set(owners)) == 1
    found = await database.read(lambda c: tokens.find_principal(c, secret))
    assert found is not None
    assert (found.token, found.node) == (number, owners[0])
    assert await database.write(lambda c: tokens.bind_token(c, 999, "n")) == ""
