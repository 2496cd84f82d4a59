"""Loop that carries out what rows of the database ask for, each leased to one manager for a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gossamer.pauses import happens_within
from gossamer_platform.state.database import StateDatabase

R = TypeVar("R")

log = logging.getLogger("gossamer.platform.delivery")

_AT_ONCE: Final = 16
"""Rows that a manager works on at a time."""
_LOOK_SECONDS: Final = 1.0
"""Pause between two looks for rows."""
_RETRY_SECONDS: Final = 5.0
"""Pause after the database could not answer."""


class LeasedRows(NamedTuple, Generic[R]):
    """Rows to work on."""

    what: str
    """Their name, for the log."""
    has_due: Callable[[Connection], bool]
    """Returns whether any is due. Does not write."""
    lease: Callable[[Connection, int], list[R]]
    """Leases rows that are due, up to a number, and returns them."""
    carry_out: Callable[[R], Awaitable[None]]
    """Does what a row asks for, and records the result. Raises SQLAlchemyError, nothing else."""


async def work_on_leases(database: StateDatabase, rows: LeasedRows[R], stopping: asyncio.Event) -> None:
    """Carry out what is due until `stopping` is set. What is under way then is left to the next manager."""
    running: set[asyncio.Task[None]] = set()

    async def carry_out(row: R) -> None:
        try:
            await rows.carry_out(row)
        except SQLAlchemyError as error:
            log.warning("the result of %s cannot be recorded: %s", rows.what, _first_line(error))

    async def start_due() -> float:
        """Start what is due. Return the pause until the next look."""
        free = _AT_ONCE - len(running)
        try:
            if free > 0 and await database.read(rows.has_due):
                for row in await database.write(lambda connection: rows.lease(connection, free)):
                    task = asyncio.create_task(carry_out(row))
                    running.add(task)
                    task.add_done_callback(running.discard)
        except SQLAlchemyError as error:
            log.warning("%s cannot be sent at present: %s", rows.what, _first_line(error))
            return _RETRY_SECONDS
        return _LOOK_SECONDS

    try:
        while not stopping.is_set():
            pause = await start_due()
            await happens_within(stopping, pause)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
