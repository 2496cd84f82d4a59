"""Limits of projects, spiders and jobs; jobs that go first, wait for another one, or wait too long."""

from typing import Any

from sqlalchemy import Connection, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform.lifecycle import JobState
from gossamer_platform.outcome import AttemptEnd
from gossamer_platform.policy import JobPolicy
from gossamer_platform.schedules.firing import fire_due, start_schedule
from gossamer_platform.state import jobs, policies, projects, schedules
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tables import schedules as schedule_table

_GOOD = AttemptEnd(exit_code=0, finish_reason="finished")


def _add_project(connection: Connection, name: str) -> None:
    number = projects.add_version(connection, name, "1", digest="d", file=f"{name}/1.egg")
    projects.take_listing(connection, "node")
    assert projects.record_listing(connection, number, incarnation="node", spiders=["a", "b"], fault="")


async def _add(database: StateDatabase, project: str, spider: str, **fields: Any) -> int:
    def add(connection: Connection) -> int:
        name = f"job-{connection.scalar(select(DatabaseNow()))}"
        return jobs.add_job(connection, NewJob(project, spider, name, **fields))

    return await database.write(add)


async def _take(database: StateDatabase, call: str, free: int = 100) -> list[int]:
    rows = await database.write(lambda c: take_jobs(c, JobTaker("n", call, 100), free=free))
    return [row.id for row in rows]


async def _row(database: StateDatabase, job: int) -> Any:
    return await database.read(lambda c: jobs.find_job(c, job))


async def test_a_job_has_its_own_limits_then_its_spiders_then_its_projects(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: projects.change_project(c, "shop", JobPolicy(retries=1, time_limit=10, min_items=5)))
    of_spider = JobPolicy(retries=2, good_reasons=["enough"])
    await database.write(lambda c: policies.set_spider_policy(c, "shop", "a", of_spider, max_running=None))
    own = await _row(database, await _add(database, "shop", "a", policy=JobPolicy(retries=3)))
    spiders = await _row(database, await _add(database, "shop", "a"))
    others = await _row(database, await _add(database, "shop", "b"))
    assert [row.retries_left for row in (own, spiders, others)] == [3, 2, 1]
    assert {row.time_limit for row in (own, spiders, others)} == {10}
    assert {row.min_items for row in (own, spiders, others)} == {5}
    assert [row.good_reasons for row in (own, spiders, others)] == [["enough"], ["enough"], None]


async def test_a_spider_runs_no_more_jobs_than_it_may(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: policies.set_spider_policy(c, "shop", "a", JobPolicy(), max_running=2))
    full = [await _add(database, "shop", "a") for _ in range(5)]
    other = await _add(database, "shop", "b", priority=-1.0)
    assert await _take(database, "1") == [*full[:2], other]
    assert await _take(database, "2") == []
    await database.write(lambda c: jobs.record_end(c, full[0], 1, _GOOD))
    assert await _take(database, "3") == [full[2]]
    assert await database.write(lambda c: policies.delete_spider_policy(c, "shop", "a"))
    assert await _take(database, "4") == full[3:]


async def test_an_urgent_job_goes_before_all_projects(database: StateDatabase) -> None:
    for name in ("one", "two", "three"):
        await database.write(lambda c, name=name: _add_project(c, name))  # type: ignore[misc]
    for name in ("one", "two"):
        for _ in range(3):
            await _add(database, name, "a", priority=100.0)
    urgent = await _add(database, "three", "a", is_urgent=True)
    assert await _take(database, "1", free=1) == [urgent]


async def test_an_urgent_job_waits_for_its_projects_limit(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    await database.write(lambda c: projects.change_project(c, "shop", JobPolicy(), max_running=0))
    await _add(database, "shop", "a", is_urgent=True)
    assert await _take(database, "1") == []


async def test_a_job_waits_until_the_one_before_has_ended(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    first = await _add(database, "shop", "a")
    second = await _add(database, "shop", "a", after_job=first)
    third = await _add(database, "shop", "a", after_job=second)
    assert await _take(database, "1") == [first]
    assert await _take(database, "2") == []
    await database.write(lambda c: jobs.record_end(c, first, 1, AttemptEnd(exit_code=1)))
    assert await _take(database, "3") == [second]
    await database.write(lambda c: jobs.record_end(c, second, 1, _GOOD))
    assert await _take(database, "4") == [third]


async def test_a_job_that_waits_too_long_has_failed(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    late = await _add(database, "shop", "a", policy=JobPolicy(pending_limit=60))
    patient = await _add(database, "shop", "a")
    assert not await database.read(jobs.has_overdue)
    assert await database.write(jobs.fail_overdue) == 0
    older = update(job_table).values(created_at=job_table.c.created_at - 61)
    await database.write(lambda c: c.execute(older))
    assert await database.read(jobs.has_overdue)
    assert await database.write(jobs.fail_overdue) == 1
    failed = await _row(database, late)
    assert (failed.state, failed.reason) == ("failed", "pending_limit: not started within 60 seconds")
    assert (await _row(database, patient)).state == JobState.PENDING


async def test_an_end_counts_by_what_the_job_expects(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    expected = JobPolicy(min_items=2, max_errors=3, good_reasons=["finished", "enough"])
    cases = [
        ({"item_scraped_count": 2, "log_count/ERROR": 2}, "enough", ""),
        ({"item_scraped_count": 1}, "finished", "few_items: 1"),
        ({"item_scraped_count": 9, "log_count/ERROR": 2, "log_count/CRITICAL": 1}, "finished", "errors: 3"),
        ({}, "finished", "few_items: 0"),
        ({"item_scraped_count": 9}, "closespider_timeout", "finish_reason: closespider_timeout"),
    ]
    for number, (stats, reason, failure) in enumerate(cases):
        job = await _add(database, "shop", "a", policy=expected)
        assert await _take(database, str(number)) == [job]
        end = AttemptEnd(exit_code=0, finish_reason=reason, stats=stats)
        await database.write(lambda c, job=job, end=end: jobs.record_end(c, job, 1, end))  # type: ignore[misc]
        row = await _row(database, job)
        assert (row.state, row.reason) == ("failed" if failure else "finished", failure)
        assert row.stats == (stats or None)


async def test_counters_of_an_attempt_that_is_over_are_not_replaced(database: StateDatabase) -> None:
    await database.write(lambda c: _add_project(c, "shop"))
    job = await _add(database, "shop", "a")
    await _take(database, "1")
    await database.write(lambda c: jobs.record_stats(c, job, 1, {"item_scraped_count": 5}))
    assert (await _row(database, job)).stats == {"item_scraped_count": 5}
    await database.write(lambda c: jobs.record_end(c, job, 1, _GOOD))
    await database.write(lambda c: jobs.record_stats(c, job, 1, {"item_scraped_count": 9}))
    assert (await _row(database, job)).stats == {"item_scraped_count": 5}


async def test_jobs_of_a_schedule_that_queues_start_one_after_the_other(database: StateDatabase) -> None:
    columns = {
        "kind": "every", "rule": "86400.0", "time_zone": "UTC", "start_at": 1000.0, "jitter": 0.0, "missed": "skip",
        "if_running": "queue", "spider": "a", "arguments": {}, "settings": {}, "priority": 0.0, "policy": {},
    }  # fmt: skip

    def add(connection: Connection) -> None:
        _add_project(connection, "shop")
        number = schedules.add_schedule(connection, "shop", "daily", columns)
        assert number is not None
        start_schedule(connection, number)

    def be_due(connection: Connection, seconds: float) -> None:
        due = schedules.database_time(connection) - seconds
        connection.execute(update(schedule_table).values(next_at=due, due_at=due))

    await database.write(add)
    for step in range(3):
        await database.write(lambda c, step=step: be_due(c, 3.0 - step))  # type: ignore[misc]
        assert await database.write(fire_due) == 1
    rows = await database.read(lambda c: jobs.list_jobs(c, [JobState.PENDING]))
    first, second, third = (row.id for row in rows)
    assert [row.after_job for row in rows] == [None, first, second]
    assert await _take(database, "1") == [first]
    await database.write(lambda c: jobs.record_end(c, first, 1, _GOOD))
    assert await _take(database, "2") == [second]
    assert await _take(database, "3") == []
    await database.write(lambda c: jobs.stop_job(c, third, signal=15))
