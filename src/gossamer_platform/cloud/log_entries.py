"""Entries of a job's log, read from its text: time, level and message, as Scrapy Cloud shows them.

An entry begins with a line in Scrapy's format; lines in another form belong to the entry before. Each line before the
first entry, and each that would make a message too long, is an entry of its own with the level INFO. The number of an
entry is that of its first line, so numbers grow but have gaps, and reading can begin anywhere without counting entries
from the start. Fixed: numbers, which are part of keys that clients keep.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from gossamer_platform.v1.items import ItemLine

_LEVELS: Final = {"CRITICAL": 50, "ERROR": 40, "WARNING": 30, "WARN": 30, "INFO": 20, "DEBUG": 10}
_INFO: Final = 20
_BEGIN: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))? (?:(\[[^\]]{0,300}\]) )?"
    r"(CRITICAL|ERROR|WARNING|WARN|INFO|DEBUG): (.*)",
    re.DOTALL,
)
"""Begin of an entry in Scrapy's format, LOG_FORMAT and LOG_DATEFORMAT, as most projects have it."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MAX_MESSAGE: Final = 64 * 1024
"""Characters of a message. One message is in memory."""
MAX_LINES: Final = 1000
"""Lines of a message. So many are read before the place where reading begins."""
_CRAWLED: Final = re.compile(r"\[scrapy\.core\.engine\] Crawled \((\d{3})\) <([A-Z]+) (\S+?)>")
"""Message of Scrapy about a response, at the level DEBUG."""


class LogEntry(NamedTuple):
    """An entry."""

    number: int
    """Number of its first line, from 0."""
    time: int
    """Milliseconds since 1970. A log names no time zone; the manager's is assumed."""
    level: int
    """Python's number."""
    message: str

    def row(self) -> dict[str, Any]:
        """Return it in Scrapy Cloud's form."""
        return {"time": self.time, "level": self.level, "message": self.message}


def log_entries(lines: Iterable[ItemLine], *, starts_at: float, hold_last: bool = False) -> Iterator[LogEntry]:
    """Yield the entries. To read from a line on, begin `MAX_LINES` before it, and skip entries with lower numbers.

    `starts_at`: time in seconds of entries before the first one that has a time. `hold_last`: leave the last entry out,
    because its further lines may still be written.
    """
    current: LogEntry | None = None
    parts: list[str] = []
    length, at = 0, round(1000 * starts_at)
    for line in lines:
        text = _text(line.content)
        found = _BEGIN.match(text)
        if found is None and current is not None and length + len(text) < _MAX_MESSAGE and len(parts) < MAX_LINES:
            parts.append(text)
            length += len(text) + 1
            continue
        if current is not None:
            yield current._replace(message="\n".join(parts).rstrip())
            current = None
        if found is not None:
            at = _time(found[1], found[2], at)
            current = LogEntry(line.number, at, _LEVELS[found[4]], "")
            parts = [f"{found[3]} {found[5]}" if found[3] else found[5]]
            length = len(parts[0])
        elif text.strip():
            yield LogEntry(line.number, at, _INFO, text)
    if current is not None and not hold_last:
        yield current._replace(message="\n".join(parts).rstrip())


def response_of(entry: LogEntry) -> dict[str, Any] | None:
    """Return the request that an entry of Scrapy's engine tells of, in Scrapy Cloud's form. None: it tells of none."""
    found = _CRAWLED.match(entry.message)
    if found is None:
        return None
    return {"time": entry.time, "url": found[3], "method": found[2], "status": int(found[1]), "rs": 0, "duration": 0}


def _text(content: bytes) -> str:
    return _COLOURS.sub("", content[: 4 * _MAX_MESSAGE].decode(errors="replace")).rstrip("\r")[:_MAX_MESSAGE]


def _time(seconds: str, fraction: str | None, before: int) -> int:
    """Return the time in milliseconds. `before`: time of the entry before, for a date that does not exist."""
    try:
        whole = datetime.fromisoformat(seconds).timestamp()
    except (ValueError, OverflowError, OSError):
        return before
    return round(1000 * (whole + float(f"0.{fraction or 0}")))
