"""Deletes logs, items and jobs that are older, or more, than their project keeps.

Only files of jobs that the database knows and that have ended are deleted: files of others, and of jobs that run, stay,
whatever their age. A reader that has begun reads to the end. Fixed: files are deleted before the row says so, because
what the row has forgotten would stay for ever.
"""

import asyncio
import logging
import re
from functools import partial
from typing import Final

from gossamer.errors import BadInput
from gossamer.storage.objects import StorageUnavailable
from gossamer_platform.manager.files import FileKind, JobFiles
from gossamer_platform.state import retention
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.retention import KeepLimits, KeptKind, RetentionPolicy

log = logging.getLogger("gossamer.platform.manager")

_BATCH: Final = 200
"""Jobs that are deleted in one transaction."""
_FILES: Final = {
    KeptKind.LOGS: (FileKind.LOG,),
    KeptKind.ITEMS: (FileKind.ITEMS,),
    KeptKind.JOBS: (FileKind.LOG, FileKind.ITEMS),
}
_FORM: Final = re.compile(r"(?:(?P<days>\d+(?:\.\d+)?)d)?,?(?:(?P<jobs>\d+))?")


def parse_limits(text: str) -> KeepLimits:
    """Return the limits that a person has written: `30d` (days), `100` (jobs of a spider), `30d,100` or `all`. Raises
    BadInput."""
    found = _FORM.fullmatch(text)
    if text == "all":
        return KeepLimits()
    if not text or found is None or text.endswith(",") or text.startswith(","):
        raise BadInput(f"cannot read {text!r}. Write 30d for days, 100 for the latest jobs of a spider, 30d,100 or all")
    return KeepLimits(float(found["days"] or 0), int(found["jobs"] or 0))


async def delete_outdated(
    database: StateDatabase, files: JobFiles, default: RetentionPolicy, *, stopping: asyncio.Event | None = None
) -> None:
    """Delete what no project keeps any more, until `stopping` is set. Raises SQLAlchemyError."""
    for kind, limits in zip(KeptKind, (default.logs, default.items, default.jobs), strict=True):
        while True:
            find = partial(retention.outdated_jobs, kind=kind, default=limits, limit=_BATCH)
            rows = await database.read(find)
            deleted = []
            for row in rows:
                if stopping is not None and stopping.is_set():
                    break
                try:
                    for file in _FILES[kind]:
                        await asyncio.to_thread(files.delete, row, file)
                    deleted.append(row.id)
                except (OSError, StorageUnavailable) as error:
                    log.warning("the %s of job %d cannot be deleted: %s", kind, row.id, error)
            if deleted:
                await database.write(partial(retention.record_deleted, kind=kind, job_ids=deleted))
                log.info("retention: deleted the %s of %d jobs", kind, len(deleted))
            if len(deleted) < _BATCH:
                break
