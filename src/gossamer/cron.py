"""Cron lines: the instants that the five fields of cron name in a time zone, and windows of minutes.

Pure: no I/O and no clock. Instants are in seconds since 1970. A line counts in its time zone, as Debian's cron does:
what falls into the hour that is left out in spring happens once, at its end; what falls into the hour that is repeated
in autumn happens once, unless minute or hour begin with `*`.

Names beginning with `@` may be added. Fixed: that only the five fields of cron are accepted: a sixth field or `R` mean
different things in different programs.
"""

import math
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from gossamer.errors import BadInput
from gossamer.extras import install_advice

try:
    from cronsim import CronSim, CronSimError
except ModuleNotFoundError:  # an extra that need not be installed
    CronSim = None  # type: ignore[assignment, misc]

_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Cron's own names for lines. Fixed."""
_FIELDS: Final = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12 or JAN to DEC"),
    ("day of the week", "0 to 7 or SUN to SAT; 0 and 7 are Sunday"),
)
_MAX_CRON_LENGTH: Final = 200
"""Characters of a cron line."""
_OWN_ZONES: Final = frozenset({"localtime", "posixrules"})
"""Names of files among the time zones that mean another one on each machine. Two processes would differ."""
_MAX_STEPS: Final = 100
"""Steps to an instant that is later than the given one. cronsim may begin before it, in an hour that is repeated."""
_MAX_MINUTES: Final = 180
"""Minutes in which an instant is looked for one by one. Must exceed an hour that is repeated, with its rest."""
_MINUTE_SECONDS: Final = 60
_DAY_SECONDS: Final = 86_400
_NEVER_SECONDS: Final = 100 * 365 * 86_400.0
"""Time until a window opens that never does."""
_KNOWN_OPENINGS: Final = 4096
"""Minutes whose opening a window remembers: most moments that are asked for lie in a few days."""


def next_instant(text: str, zone: str, after: float) -> float | None:
    """Return the first instant of a cron line that is later than the given one. None: there is none. `text`, `zone`: as
    `check_cron` and `check_zone` accept them."""
    line, place = _line(text), ZoneInfo(zone)
    first = math.floor(after) // _MINUTE_SECONDS * _MINUTE_SECONDS
    # Where an hour that is repeated does not begin at minute 0, cronsim goes round in it for ever, unless it begins
    # immediately before the instant. So the next minutes are tried one by one.
    for begin in (after, *(first + minutes * _MINUTE_SECONDS - 1 for minutes in range(1, _MAX_MINUTES))):
        steps = CronSim(line, datetime.fromtimestamp(begin, UTC).astimezone(place))
        for _ in range(_MAX_STEPS):
            try:
                found = next(steps).timestamp()
            except StopIteration:
                return None
            if found > after:
                return found
    return None


class CronWindow:
    """The minutes that a cron line names: `* 1-5 * * *` is open from 1:00 to 5:59."""

    def __init__(self, text: str, zone: str) -> None:
        """`text`, `zone`: as `check_cron` and `check_zone` accept them. Raises BadInput where cronsim is not installed:
        a worker may run on another machine than the one that checked them."""
        _check_installed()
        self._text, self._zone = text, zone
        self._openings: dict[int, float] = {}
        """First open moment from the begin of a minute on."""
        self._open = (0, 0)
        """Moments from the first one up to the second are in the window."""

    def closing(self, moment: float) -> float:
        """Return the first moment that is not in the window: this one, or a later one, at most a day."""
        begin, end = self._open
        if not begin <= moment < end:
            begin = end = math.floor(moment) // _MINUTE_SECONDS * _MINUTE_SECONDS
        while end < moment + _DAY_SECONDS and self.opening(end) == end:
            end += _MINUTE_SECONDS
        self._open = begin, end
        return max(end, moment)

    def opening(self, moment: float) -> float:
        """Return the first moment in the window: this one, or a later one."""
        minute = math.floor(moment) // _MINUTE_SECONDS * _MINUTE_SECONDS
        found = self._openings.get(minute)
        if found is None:
            if len(self._openings) >= _KNOWN_OPENINGS:
                self._openings.clear()
            found = next_instant(self._text, self._zone, minute - 1) or minute + _NEVER_SECONDS
            self._openings[minute] = found
        return max(found, moment)


def check_zone(name: str) -> None:
    """Raise BadInput for a name of no time zone."""
    try:
        if name in _OWN_ZONES:
            raise ValueError(name)
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # KeyError: ZoneInfoNotFoundError is one
        raise BadInput(f"{name!r:.80} is unknown; write a name such as Europe/Berlin or UTC") from None


def check_cron(text: str) -> None:
    """Raise BadInput for a text that is no cron line, with all of its faults, and where cronsim is not installed."""
    _check_installed()
    if len(text) > _MAX_CRON_LENGTH:
        raise BadInput(f"the line is longer than {_MAX_CRON_LENGTH} characters")
    fields = _line(text).split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(name for name, _ in _FIELDS)
        raise BadInput(f"{text!r} has {len(fields)} fields, not five ({names}), and is none of {', '.join(_NAMED)}")
    faults = [
        f"{name} {field!r} is not made of {allowed}"
        for place, (field, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True))
        if not _is_field(field, place)
    ]
    if faults:
        raise BadInput("; ".join(faults))
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        raise BadInput(f"{text!r} names a day that none of its months has") from None


def _check_installed() -> None:
    if CronSim is None:
        raise BadInput(f"cron lines need cronsim. {install_advice('cron')}")


def _line(text: str) -> str:
    return _NAMED.get(text.strip().lower(), text)


def _is_field(field: str, place: int) -> bool:
    # cronsim also takes L, W and #, which other programs read differently or not at all.
    if any(term.upper().strip("0123456789") in ("L", "LW") or "#" in term for term in field.split(",")):
        return False
    line = ["*"] * len(_FIELDS)
    line[place] = field
    try:
        CronSim(" ".join(line), datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError, ValueError):
        # 30 and 31 are days of some months, although not of every one.
        return False
    return True
