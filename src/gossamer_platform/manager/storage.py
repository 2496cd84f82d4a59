"""Opens the storage of a platform, and refuses one that belongs to another.

Several managers on one database must use one storage: what one keeps, the others must read. Two folders of the same
name on two machines look alike, so the storage has a marker with a random identity, which the database has too.
"""

import asyncio
import json
import uuid
from typing import Final

from gossamer.errors import BadInput
from gossamer.storage.objects import MARKER, ObjectMissing, ObjectStorage, StorageUnavailable, open_storage
from gossamer_platform.state import chunks
from gossamer_platform.state.database import StateDatabase

_CHECK: Final = "The managers of one database must use one folder or address, which each of them can reach"


async def open_platform_storage(database: StateDatabase, address: str) -> ObjectStorage:
    """Return the storage at a folder or an fsspec address, which the first manager of a database marks as its own.

    Raises BadInput if it belongs to another database, if the database's storage is elsewhere, or if it cannot be used.
    """
    storage = open_storage(address)
    row = await database.write(lambda connection: chunks.storage_row(connection, new=uuid.uuid4().hex))
    try:
        found = await asyncio.to_thread(_identity, storage)
        if not found and not row.is_marked:
            # The marker has the row's identity, so two managers that start at once write the same one.
            await asyncio.to_thread(storage.put, MARKER, json.dumps({"platform": row.identity}).encode())
            found = await asyncio.to_thread(_identity, storage)
    except StorageUnavailable as error:
        raise BadInput(f"--store: {error.detail}") from None
    if not found:
        raise BadInput(
            f"--store: {storage.address} has no {MARKER}, but this database has used a storage before. {_CHECK}. "
            "If its files were moved, move that file too"
        )
    if found != row.identity:
        raise BadInput(f"--store: {storage.address} belongs to another database, as its {MARKER} says. {_CHECK}")
    await database.write(chunks.record_marker)
    return storage


def _identity(storage: ObjectStorage) -> str:
    """Return what the marker says. Empty: there is none."""
    try:
        content = storage.read(MARKER)
    except ObjectMissing:
        return ""
    try:
        return str(json.loads(content)["platform"])
    except (ValueError, LookupError, TypeError):
        raise BadInput(f"--store: {storage.address}/{MARKER} cannot be read") from None
