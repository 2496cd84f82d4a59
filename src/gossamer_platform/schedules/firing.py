"""Fires schedules: makes the job of each instant that has come, and steps to the next instant. `delivery/crawls.py`
submits the crawl requests of those that have some in place of a job.

Any number of managers may do this at the same time on one database. Fixed: that the time is the database's, because the
clocks of managers differ.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gossamer.pauses import happens_within
from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform.schedules.timing import RuleKind, ScheduleRule, due_at
from gossamer_platform.state import crawl_firings, schedules
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.events import report_missed_schedule
from gossamer_platform.state.schedules import DueSchedule, Schedule

log = logging.getLogger("gossamer.platform.schedules")

_LATE_SECONDS: Final = 60.0
"""Delay up to which an instant counts as kept. A later one was missed, because no manager ran or the schedule was
paused. docs/howto/schedules.md names it."""
_MAX_QUEUE: Final = 100
"""Jobs of a schedule that wait until the one before has ended. docs/howto/schedules.md names it."""
_POLL_SECONDS: Final = 1.0
"""Longest pause between looks: another manager may have added a schedule."""
_SET_BACK_SECONDS: Final = 10.0
"""Step of the database's clock that counts; smaller ones only delay."""
_RETRY_SECONDS: Final = 5.0
"""Pause after the database could not answer."""


def rule_of(row: Schedule) -> ScheduleRule:
    """Return the rule of a schedule's row."""
    return ScheduleRule(RuleKind(row.kind), row.rule, row.time_zone, row.start_at, row.end_at)


def start_schedule(connection: Connection, schedule_id: int) -> None:
    """Set the first instant of a schedule, or its next one from now on. Missed ones are left out."""
    row = schedules.find_schedule(connection, schedule_id)
    if row is not None:
        _step(connection, row, schedules.database_time(connection))


def fire_due(connection: Connection) -> int:
    """Fire the schedules that are due, each for one instant. Return the number of schedules."""
    due = schedules.due_schedules(connection)
    for row in due:
        try:
            with connection.begin_nested():
                _fire(connection, row)
        except SQLAlchemyError:
            raise
        except Exception as error:  # its time zone was removed from this machine, say; the others are not to wait
            log.exception("schedule %d cannot be fired, and is paused", row.id)
            result = f"paused: {type(error).__name__}: {error}"
            schedules.change_schedule(connection, row.id, paused=True, last_result=result)
    return len(due)


def _fire(connection: Connection, row: DueSchedule) -> None:
    """Do what the schedule's present instant needs, and step to the next."""
    assert row.next_at is not None
    assert row.due_at is not None
    was_missed = row.now - row.due_at > _LATE_SECONDS
    if was_missed and row.missed == "skip":
        result = "missed"
    elif row.crawl is not None:
        crawl_firings.add_firing(connection, row, instant=row.next_at)
        result = crawl_firings.SUBMITTING
    elif row.if_running == "run":
        result = f"job {schedules.fire(connection, row)}"
    else:
        result = _fire_in_turn(connection, row)
    if was_missed:
        report_missed_schedule(connection, row, result)
    instant = row.now if was_missed else row.next_at
    _step(connection, row, instant, last_at=row.next_at, last_result=result)


def _fire_in_turn(connection: Connection, row: Schedule) -> str:
    """Make the job of a schedule whose jobs do not run beside each other. Return the result."""
    live = schedules.live_jobs(connection, row.id)
    if live and row.if_running == "skip":
        return "skipped: the job before has not ended"
    if len(live) > _MAX_QUEUE:
        return f"skipped: {_MAX_QUEUE} jobs of this schedule wait"
    return f"job {schedules.fire(connection, row, after_job=live[-1] if live else None)}"


def _step(connection: Connection, row: Schedule, instant: float, **columns: Any) -> None:
    """Set the schedule's next instant, the first one after the given one, and `columns` with it."""
    rule = rule_of(row)
    following = rule.next_after(instant)
    if following is None:
        columns |= {"next_at": None, "due_at": None, "ended_at": DatabaseNow()}
    else:
        due = due_at(rule, row.id, following, row.jitter)
        columns |= {"next_at": following, "due_at": due, "ended_at": None}
    schedules.change_schedule(connection, row.id, **columns)


def step_back(connection: Connection) -> None:
    """Give the schedules whose next instant is too far ahead, or that have ended in a time to come, the next one from
    now on. This happens when the database's clock was ahead, fired or left out what was not due, and was set right. An
    instant whose job exists makes no second one."""
    now = schedules.database_time(connection)
    for row in schedules.waiting_schedules(connection, now):
        with contextlib.suppress(OSError, ValueError, KeyError):  # its time zone was removed; `fire_due` pauses it
            following = rule_of(row).next_after(now)
            if following is not None and (row.next_at is None or following < row.next_at):
                log.warning("schedule %d: the clock was set back; it goes on", row.id)
                _step(connection, row, now)


class ClockWatch:
    """Notices when the database's clock is set back, by the monotonic clock of this process."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def may_have_changed(self, database_time: float, monotonic: float) -> bool:
        """Return whether the clock was set back since the last call. True at the first call: nothing is known yet."""
        ahead, before = database_time - monotonic, self._ahead
        self._ahead = ahead
        return before is None or ahead < before - _SET_BACK_SECONDS


async def fire_schedules(database: StateDatabase, wake_nodes: Callable[[], None], stopping: asyncio.Event) -> None:
    """Fire schedules until `stopping` is set. `wake_nodes` is called after jobs were made."""
    watch = ClockWatch()
    while not stopping.is_set():
        try:
            now, left = await database.read(lambda c: (schedules.database_time(c), schedules.seconds_to_next(c)))
            if watch.may_have_changed(now, time.monotonic()):
                await database.write(step_back)
                left = await database.read(schedules.seconds_to_next)
            fired = await database.write(fire_due) if left is not None and left <= 0 else 0
            if fired:
                wake_nodes()
                continue
            # Overdue, but not to be fired: another manager is at it.
            pause = _POLL_SECONDS if left is None or left <= 0 else min(left, _POLL_SECONDS)
        except SQLAlchemyError as error:
            log.warning("schedules cannot be fired at present: %s", error)
            pause = _RETRY_SECONDS
        await happens_within(stopping, pause)
