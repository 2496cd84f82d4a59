"""Watches jobs: lets those fail that no node has started within their limit, and reports those that have become slow.

Any number of managers may do this at the same time on one database.
"""

import asyncio
import logging
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gossamer.pauses import happens_within
from gossamer_platform.state import events, jobs
from gossamer_platform.state.database import StateDatabase

log = logging.getLogger("gossamer.platform.manager")

_LOOK_SECONDS: Final = 2.0
"""Pause between two looks at jobs that wait. A job fails so much later than its limit says."""
_SLOW_LOOKS: Final = 5
"""Looks after which running jobs are compared with earlier ones."""


async def watch_jobs(database: StateDatabase, stopping: asyncio.Event) -> None:
    """Watch jobs until `stopping` is set."""
    reported: set[int] = set()
    looks = 0
    while not stopping.is_set():
        try:
            if await database.read(jobs.has_overdue) and (failed := await database.write(jobs.fail_overdue)):
                log.warning("%d jobs have failed, because no node started them within their pending_limit", failed)
            if looks % _SLOW_LOOKS == 0:
                reported = await report_slow_jobs(database, reported)
            looks += 1
        except SQLAlchemyError as error:
            log.warning("jobs cannot be looked at: %s", str(error).partition("\n")[0])
        await happens_within(stopping, _LOOK_SECONDS)


async def report_slow_jobs(database: StateDatabase, reported: set[int]) -> set[int]:
    """Report the running jobs that have become slow, without those that this manager has reported. Return all that are
    reported now."""
    slow = set(await database.read(events.find_slow_jobs))
    for job in sorted(slow - reported):
        await database.write(lambda connection, job=job: events.report_slow_job(connection, job))  # type: ignore[misc]
    return slow
