"""Every change of the state of a job or a version: the only module that writes the columns `state`.

A change names the row, the states from which the event applies (from the table in `lifecycle.py`) and, for a job, the
number of its attempt, and looks at the number of rows that changed. So of two processes that act on one job at the same
time, one changes it and the other learns that it came too late. Nothing here may be done in another way: a statement
that names only the id overwrites the end of a job that has just been reported.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform.lifecycle import (
    ENDED,
    JOB_STEPS,
    VERSION_STEPS,
    JobEvent,
    JobState,
    VersionEvent,
    VersionState,
)
from gossamer_platform.state.events import report_broken_version, report_job_end
from gossamer_platform.state.tables import jobs, versions


def change_job(
    connection: Connection, job_id: int, event: JobEvent, *, of_attempt: int, **columns: Any
) -> JobState | None:
    """Apply an event to a job whose last attempt has this number, and set `columns` with it.

    Return the new state; None: the event does not apply any more, and nothing was changed. The first event that ends a
    job also sets its end, unless `columns` has `ended_at`.
    """
    for target in dict.fromkeys(after for (_, what), after in JOB_STEPS.items() if what is event):
        before = [state for (state, what), after in JOB_STEPS.items() if what is event and after is target]
        ends: Mapping[str, Any] = {"ended_at": DatabaseNow()} if target in ENDED else {}
        statement = (
            update(jobs)
            .where(jobs.c.id == job_id, jobs.c.attempt == of_attempt, jobs.c.state.in_(before))
            .values(**{**ends, **columns, "state": target.value})
        )
        if connection.execute(statement).rowcount:
            if target in (JobState.FINISHED, JobState.FAILED):
                report_job_end(connection, job_id)
            return target
    return None


def change_version(
    connection: Connection, version_id: int, event: VersionEvent, *conditions: ColumnElement[bool], **columns: Any
) -> VersionState | None:
    """Apply an event to a version that meets the conditions, and set `columns` with it.

    Return the new state; None: the event does not apply any more, and nothing was changed.
    """
    for target in dict.fromkeys(after for (_, what), after in VERSION_STEPS.items() if what is event):
        before = [state for (state, what), after in VERSION_STEPS.items() if what is event and after is target]
        statement = (
            update(versions)
            .where(versions.c.id == version_id, versions.c.state.in_(before), *conditions)
            .values(**{**columns, "state": target.value})
        )
        if connection.execute(statement).rowcount:
            if target is VersionState.BROKEN:
                report_broken_version(connection, version_id)
            return target
    return None
