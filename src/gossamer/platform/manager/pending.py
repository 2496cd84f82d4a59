"""Lets jobs fail that no node has started within their limit.

Any number of managers may do this at the same time on one database. May be changed: the pause.
"""

import asyncio
import contextlib
import logging
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from gossamer.platform.state import jobs
from gossamer.platform.state.database import StateDatabase

log = logging.getLogger("gossamer.platform.manager")

_LOOK_SECONDS: Final = 2.0
"""Pause between two looks. May be changed; a job fails so much later than its limit says."""


async def watch_pending(database: StateDatabase, stopping: asyncio.Event) -> None:
    """Look for jobs that have waited too long until `stopping` is set."""
    while not stopping.is_set():
        try:
            if await database.read(jobs.has_overdue) and (failed := await database.write(jobs.fail_overdue)):
                log.warning("%d jobs have failed, because no node started them within their pending_limit", failed)
        except SQLAlchemyError as error:
            log.warning("jobs that wait cannot be looked at: %s", str(error).partition("\n")[0])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stopping.wait()
