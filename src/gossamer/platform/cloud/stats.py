"""Counters of a job that has ended, from the end of its log, where Scrapy writes them.

Numbers and texts are read; other values, such as times, are left out. Safe to change: how much of the log is read.
"""

import re
from typing import Any, Final

from sqlalchemy import Row

from gossamer.platform.manager.files import FileKind, JobFiles
from gossamer.platform.v1.reading import in_reader

_END_BYTES: Final = 64 * 1024
"""Bytes of the log's end that are read. May be changed."""
_HEADING: Final = "Dumping Scrapy stats:"
_VALUE: Final = re.compile(r"^[ {]'([^']{1,200})': (-?\d+(?:\.\d+)?|'[^']{0,500}')[,}]", re.MULTILINE)


async def scrapy_stats(files: JobFiles, job: Row[Any]) -> dict[str, Any]:
    """Return the counters by name. Empty: the log does not have them."""
    end = await in_reader(_end_of_log, files, job)
    _, found, counters = end.rpartition(_HEADING)
    return {name: _parse(value) for name, value in _VALUE.findall(counters)} if found else {}


def _end_of_log(files: JobFiles, job: Row[Any]) -> str:
    file = files.open(job, FileKind.LOG, 0)
    if file is None:
        return ""
    try:
        length = file.length()
        return file.read(max(0, length - _END_BYTES), length).decode(errors="replace")
    finally:
        file.close()


def _parse(value: str) -> int | float | str:
    if value.startswith("'"):
        return value[1:-1]
    return float(value) if "." in value else int(value)
