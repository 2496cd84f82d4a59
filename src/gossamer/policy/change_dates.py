"""Dates of the last change that sites announce in sitemaps: their form, which of them mean something, and trust.

Most sites that have such dates are truthful; the common lie is the time at which the sitemap was made, on all entries.
So the dates of a sitemap that are all equal, or all of today, tell nothing, and the trust in a site is learned: the
share of its announced changes that a fetch has found. Times are Unix times. Nothing here reads a clock.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

LEAST_TRUST: Final = 0.2
"""Trust below which announced changes do not make pages due. Their pages are visited as others, by which trust can
grow again."""
FIRST_TRUST: Final = 0.5
"""Trust in a site of which nothing is known."""
_LEARNED_SHARE: Final = 0.05
"""Weight of one announced change in the trust."""
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)?\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_DAY_SECONDS: Final = 86_400
_MOST_AHEAD_SECONDS: Final = 3600.0
"""Time by which the clock of a site may be ahead."""


def change_time(text: str) -> int | None:
    """Return the time of a W3C date, such as `2026-11-26` or `2026-11-26T10:00:00+01:00`. A time without a zone is UTC.
    None: it is no such date."""
    read = _DATE.fullmatch(text.strip())
    if read is None:
        return None
    zone = (read[7] or "Z").upper().replace(":", "")
    parts = f"{read[1]}-{read[2]}-{read[3]}T{read[4] or '00'}:{read[5] or '00'}:{read[6] or '00'}"
    try:
        return int(datetime.strptime(f"{parts}{zone.replace('Z', '+0000')}", "%Y-%m-%dT%H:%M:%S%z").timestamp())
    except (ValueError, OverflowError):
        return None


def announced_changes(dates: Mapping[str, str], *, now: float) -> dict[str, int]:
    """Return the times of the last changes that a sitemap announces, by URL, without those that tell nothing: dates in
    the future; and all of them, if several entries have one date, or are all of the last day."""
    times = {url: time for url, text in dates.items() if (time := change_time(text)) is not None}
    if len(times) > 1:
        distinct = set(times.values())
        if len(distinct) == 1 or min(distinct) > now - _DAY_SECONDS:
            return {}
    return {url: time for url, time in times.items() if 0 < time <= now + _MOST_AHEAD_SECONDS}


def learned_trust(trust: float, *, was_true: bool) -> float:
    """Return the trust in a site after a fetch of a page whose change it had announced."""
    return trust + _LEARNED_SHARE * (was_true - trust)
