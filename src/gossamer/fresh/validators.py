"""Validators of a response (RFC 9110, section 8.8), by which a server says that a page is as it was.

They are sent back exactly as they were received, weak tags too, because servers compare texts. Dates in the usual form
are stored as numbers, which takes a quarter of the room. Fixed: the stored form.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

_DATE = re.compile(r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""English names, which HTTP's dates have, whatever the locale."""
_MOST_CHARACTERS = 256
"""Longest validator that is kept: it is sent with each request."""


def validators(headers: Mapping[str, list[str]]) -> tuple[str, str]:
    """Return ETag and Last-Modified of a response; empty where it has none, or several."""
    found = {"etag": "", "last-modified": ""}
    for name, values in headers.items():
        if (lower := name.lower()) in found:
            value = values[0] if len(values) == 1 else ""
            found[lower] = value if len(value) <= _MOST_CHARACTERS and value.isprintable() else ""
    return found["etag"], found["last-modified"]


def opaque_tag(etag: str) -> str:
    """Return an entity tag without the mark of a weak one: tags of one content may differ in it."""
    return etag.removeprefix("W/")


def packed_date(text: str) -> int | str:
    """Return a date as Unix time if it can be written again exactly, else as it is; 0 for an empty text."""
    if not text:
        return 0
    if (read := _DATE.fullmatch(text)) is None or read[2] not in _MONTHS:
        return text
    day, month, *rest = read.groups()
    year, hour, minute, second = map(int, rest)
    try:
        date = datetime(year, 1 + _MONTHS.index(month), int(day), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return text
    moment = int(date.timestamp())
    return moment if moment > 0 and text.startswith(_DAYS[date.weekday()]) else text


def date_text(packed: int | str) -> str:
    """Return the text of a date that `packed_date` packed."""
    if isinstance(packed, str) or not packed:
        return packed or ""
    moment = datetime.fromtimestamp(packed, UTC)
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} GMT"


def conditional_headers(etag: str, modified: int | str) -> dict[str, str]:
    """Return the headers of a request that wants the page only if it has changed; empty: it has no validators.
    `modified`: as `packed_date` returns it."""
    headers = {"If-None-Match": etag, "If-Modified-Since": date_text(modified)}
    return {name: value for name, value in headers.items() if value}
