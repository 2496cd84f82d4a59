"""Locks that keep a second server out of a folder or a database.

Fixed: the locks come first, because two processes with one state would run every job twice.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from pathlib import Path
from typing import Final

from gossamer.errors import BadInput
from gossamer.pauses import happens_within
from gossamer_platform.state.database import StateDatabase

log = logging.getLogger("gossamer.platform.serving")

_LOCK_SECONDS: Final = 5.0
"""Time for which a process waits for the lock of one that has just been killed."""
_DATABASE_SECONDS: Final = 15.0
"""Time for which a server waits at its start for a database that starts at the same time."""
_TRY_SECONDS, _SAY_SECONDS = 0.5, 3.0
"""Pauses between two tries to reach it, and between two lines that say so."""
_OWNER_SECONDS: Final = 2.0
"""Pause between two looks whether the database is still this process's own."""


async def open_database(closing: contextlib.AsyncExitStack, url: str, *, command: str) -> StateDatabase:
    """Return the database at a SQLAlchemy URL, and lock the file of SQLite, which a server of another kind may know,
    too. Raises BadInput. `command`: name of this command."""
    database = StateDatabase(url)
    closing.push_async_callback(database.close)
    if database.file is not None:
        file = database.file.absolute()
        await lock_folder(closing, file.with_name(f"{file.name}.lock"), command=command, what=f"the database {file}")
    return database


async def lock_folder(closing: contextlib.AsyncExitStack, file: Path, *, command: str, what: str) -> None:
    """Keep other processes that lock this file out until this one ends, and wait for one that has just been killed.

    Raises BadInput if one stays: `command` is its name, `what` names the thing that it uses.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    closing.callback(os.close, descriptor)
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
                raise BadInput(
                    f"another `{command}` (process {owner or 'unknown'}) uses {what}. Stop it, or start this one in "
                    "another folder"
                ) from None
            if not is_told:
                log.warning("waiting up to %.0f seconds for another `%s`, which uses %s", _LOCK_SECONDS, command, what)
                is_told = True
            await asyncio.sleep(0.1)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return


async def wait_for_database(
    database: StateDatabase, stopping: asyncio.Event, *, seconds: float = _DATABASE_SECONDS
) -> bool:
    """Wait until the database can be reached, and log a line every few seconds. Return False if `stopping` came first.

    Raises BadInput with the reason if it cannot be reached within `seconds`. Every reason may pass: a server that has
    just been started refuses connections first, and may have neither the user nor the database yet.
    """
    clock = asyncio.get_running_loop().time
    deadline, say_at = clock() + seconds, clock()
    while True:
        try:
            await database.check()
            return True
        except BadInput as error:
            if clock() > deadline:
                raise BadInput(f"{error} (tried for {seconds:g} seconds)") from None
            if clock() >= say_at:
                say_at = clock() + _SAY_SECONDS
                log.warning("waiting for the database, for up to %.0f seconds: %s", deadline - clock(), error)
        if await happens_within(stopping, _TRY_SECONDS):
            return False


async def own_database(database: StateDatabase, *, command: str, shared: bool) -> None:
    """Wait for the database of a process that has just been killed. Raises BadInput if another one uses it that does
    not share it. `command`: name of this command."""
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while not await database.own(shared=shared):
        if asyncio.get_running_loop().time() > deadline:
            raise BadInput(
                f"another `{command}` uses the database of database_url. Stop it, or give this one a database of "
                "its own"
            )
        await asyncio.sleep(0.1)


async def stay_owner(database: StateDatabase, stopping: asyncio.Event, *, command: str, shared: bool) -> None:
    """Own the database again after an outage. Raises BadInput if a process came first that does not share it."""
    while not await happens_within(stopping, _OWNER_SECONDS):
        try:
            is_owner = await database.own(shared=shared)
        except BadInput as error:  # it cannot be reached at present
            log.warning("%s", error)
            continue
        if not is_owner:
            raise BadInput(f"another `{command}` has taken the database of database_url over")
