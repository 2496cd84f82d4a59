"""Schedules fire each of their instants once, whatever managers and clocks do."""

import asyncio

from sqlalchemy import Connection, func, select, update

from gossamer_platform.lifecycle import JobState
from gossamer_platform.schedules.firing import ClockWatch, fire_due, fire_schedules, step_back
from gossamer_platform.state import jobs, projects, schedules
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.row_page import ALL_ROWS
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tables import schedules as schedule_table
from tests.servers.schedules import add_schedule

_JOB = {"spider": "a", "policy": {"retries": 1}}


def _add(connection: Connection, name: str, **columns: object) -> int:
    return add_schedule(connection, name, **{**_JOB, **columns})


def _be_due(connection: Connection, seconds: float) -> None:
    """Move the instant of every schedule into the past."""
    due = schedules.database_time(connection) - seconds
    connection.execute(update(schedule_table).values(next_at=due, due_at=due))


async def _jobs(database: StateDatabase) -> int:
    count = select(func.count()).select_from(job_table)
    return await database.read(lambda c: c.scalar(count)) or 0


async def test_a_clock_that_was_ahead_and_is_right_again_stops_no_schedule(database: StateDatabase) -> None:
    """The schedule has fired in a future that is still to come."""
    number = await database.write(lambda c: _add(c, "s", rule="3600.0"))
    right = await database.read(lambda c: schedules.find_schedule(c, number))
    assert right is not None
    ahead = right.next_at + 1000 * 3600.0
    await database.write(lambda c: schedules.change_schedule(c, number, next_at=ahead, due_at=ahead))
    await database.write(step_back)
    found = await database.read(lambda c: schedules.find_schedule(c, number))
    assert found is not None
    assert (found.next_at, found.due_at) == (right.next_at, right.due_at)
    await database.write(step_back)
    assert await database.read(lambda c: schedules.find_schedule(c, number)) == found
    watch = ClockWatch()
    times = [(1000.0, 10.0), (1001.0, 11.0), (2001.0, 12.0), (1003.0, 13.0), (1004.0, 14.0)]
    assert [watch.may_have_changed(*each) for each in times] == [True, False, False, True, False]


async def test_a_single_time_that_a_clock_ahead_has_missed_comes_by_the_right_clock(
    database: StateDatabase,
) -> None:
    at = await database.read(schedules.database_time) + 3600.0
    number = await database.write(lambda c: _add(c, "once", kind="once", rule="", start_at=at))
    found = await database.read(lambda c: schedules.find_schedule(c, number))
    assert found is not None
    assert found.next_at == at
    # As after the instant was looked at a day later, by the clock then.
    await database.write(
        lambda c: schedules.change_schedule(c, number, next_at=None, due_at=None, ended_at=at + 86_400.0)
    )
    await database.write(step_back)
    back = await database.read(lambda c: schedules.find_schedule(c, number))
    assert back is not None
    assert (back.next_at, back.due_at, back.ended_at) == (found.next_at, found.due_at, None)
    # One that has ended by the right clock stays so.
    ended = at - 7200.0
    await database.write(lambda c: schedules.change_schedule(c, number, next_at=None, due_at=None, ended_at=ended))
    await database.write(step_back)
    again = await database.read(lambda c: schedules.find_schedule(c, number))
    assert again is not None
    assert again.next_at is None


async def test_managers_fire_each_instant_once(url: str) -> None:
    """Three managers, and twenty schedules of one second; the managers are stopped one after the other."""
    managers = [StateDatabase(url) for _ in range(3)]
    await managers[0].migrate()
    await managers[0].write(lambda c: [_add(c, f"s{number}", rule="1.0") for number in range(20)])
    stops = [asyncio.Event() for _ in managers]
    loops = [
        asyncio.create_task(fire_schedules(each, lambda: None, stop))
        for each, stop in zip(managers, stops, strict=True)
    ]
    for stop in stops:
        until = await _jobs(managers[0]) + 40
        async with asyncio.timeout(60):
            while await _jobs(managers[0]) < until:  # noqa: ASYNC110 (the state is in another process)
                await asyncio.sleep(0.05)
        stop.set()
    await asyncio.gather(*loops)
    rows = await managers[0].read(lambda c: c.execute(select(job_table.c.schedule_id, job_table.c.request_key)).all())
    assert len({row.request_key for row in rows}) == len(rows) >= 120
    for number in {row.schedule_id for row in rows}:
        # Instants that follow each other, without a gap.
        instants = sorted(float(row.request_key.rpartition(":")[2]) for row in rows if row.schedule_id == number)
        assert instants == [instants[0] + step for step in range(len(instants))]
    for each in managers:
        await each.close()


async def test_an_instant_that_was_missed_fires_once_or_not_at_all(database: StateDatabase) -> None:
    await database.write(lambda c: (_add(c, "skips"), _add(c, "once", missed="once")))
    await database.write(lambda c: _be_due(c, 3600))
    assert await database.write(fire_due) == 2
    rows = await database.read(lambda c: schedules.list_schedules(c, "shop", ALL_ROWS))
    assert [row.last_result.split()[0] for row in rows] == ["missed", "job"]
    assert await _jobs(database) == 1
    assert await database.write(fire_due) == 0  # the next instants are still to come


async def test_a_schedule_that_skips_waits_for_its_job(database: StateDatabase) -> None:
    await database.write(lambda c: _add(c, "careful", if_running="skip"))
    for expected in (1, 1):
        await database.write(lambda c: _be_due(c, 0.1))
        await database.write(fire_due)
        assert await _jobs(database) == expected
    [row] = await database.read(lambda c: schedules.list_schedules(c, "shop", ALL_ROWS))
    assert row.last_result == "skipped: the job before has not ended"
    await database.write(lambda c: jobs.cancel_pending(c, "shop", reason=""))
    await database.write(lambda c: _be_due(c, 0.1))
    await database.write(fire_due)
    assert await _jobs(database) == 2


async def test_a_paused_schedule_makes_nothing(database: StateDatabase) -> None:
    number = await database.write(lambda c: _add(c, "paused"))
    await database.write(lambda c: schedules.change_schedule(c, number, paused=True))
    await database.write(lambda c: _be_due(c, 0.1))
    assert await database.read(schedules.seconds_to_next) is None
    assert await database.write(fire_due) == 0


async def test_a_schedule_that_cannot_be_fired_is_paused_and_the_others_go_on(database: StateDatabase) -> None:
    await database.write(lambda c: (_add(c, "broken"), _add(c, "good")))
    await database.write(
        lambda c: c.execute(
            update(schedule_table)
            .where(schedule_table.c.name == "broken")
            .values(kind="cron", rule="@daily", time_zone="Europe/Nowhere")
        )
    )
    await database.write(lambda c: _be_due(c, 0.1))
    await database.write(fire_due)
    rows = await database.read(lambda c: schedules.list_schedules(c, "shop", ALL_ROWS))
    assert [(row.name, row.paused) for row in rows] == [("broken", True), ("good", False)]
    assert "Europe/Nowhere" in rows[0].last_result
    assert await _jobs(database) == 1


async def test_the_job_has_the_schedules_limits_and_name(database: StateDatabase) -> None:
    await database.write(lambda c: _add(c, "named", policy={"retries": 3, "time_limit": 5.0}, kind="once", rule=""))
    await database.write(lambda c: _be_due(c, 0.1))
    await database.write(fire_due)
    [row] = await database.read(lambda c: jobs.list_jobs(c, [JobState.PENDING], project="shop"))
    assert (row.retries_left, row.time_limit) == (3, 5.0)
    assert row.name.startswith("named-")
    [schedule] = await database.read(lambda c: schedules.list_schedules(c, "shop", ALL_ROWS))
    assert (schedule.next_at, schedule.last_result) == (None, f"job {row.id}")


async def test_a_project_with_a_schedule_stays(database: StateDatabase) -> None:
    await database.write(lambda c: _add(c, "kept"))
    await database.write(projects.forget_versions)
    assert len(await database.read(projects.project_rows)) == 1
