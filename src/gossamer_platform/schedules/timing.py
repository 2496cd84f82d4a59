"""Rules of schedules: the instants at which a cron line, an interval or a single time makes a job.

Pure: no I/O and no clock. Instants are in seconds since 1970. A cron line counts in its time zone, as Debian's cron
does: what falls into the hour that is left out in spring happens once, at its end; what falls into the hour that is
repeated in autumn happens once, unless minute or hour begin with `*`.

Names beginning with `@` may be added. Fixed: the words of kinds, which are stored; and that only the five fields of
cron are accepted: a sixth field or `R` mean different things in different programs.
"""

import hashlib
import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from gossamer.errors import BadInput

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
_LATEST: Final = 32_503_680_000.0
"""Time from which on there are no instants: the year 3000. Python's last year is 9999."""
_OWN_ZONES: Final = frozenset({"localtime", "posixrules"})
"""Names of files among the time zones that mean another one on each machine. Two managers would fire twice."""
_MAX_STEPS: Final = 100
"""Steps to an instant that is later than the given one. cronsim may begin before it, in an hour that is repeated."""


class RuleKind(StrEnum):
    """Kind of a rule. Stored: a word must not change."""

    CRON = "cron"
    EVERY = "every"
    ONCE = "once"


class ScheduleRule(NamedTuple):
    """Instants of a schedule."""

    kind: RuleKind
    text: str
    """The cron line; the seconds of an interval; empty for a single time, which is `start`."""
    zone: str
    """Name of the time zone of a cron line, such as Europe/Berlin."""
    start: float
    """No instant is before this one. Intervals are counted from it."""
    end: float | None = None
    """No instant is after this one. None: there is no end."""

    def next_after(self, instant: float) -> float | None:
        """Return the first instant of the rule that is later than the given one. None: there is none."""
        found = self._next(instant)
        return None if found is None or (self.end is not None and found > self.end) else found

    def _next(self, instant: float) -> float | None:
        if self.kind is RuleKind.ONCE or (self.kind is RuleKind.EVERY and instant < self.start):
            return self.start if instant < self.start else None
        if self.kind is RuleKind.EVERY:
            seconds = float(self.text)
            passed = math.floor((instant - self.start) / seconds) + 1
            found = self.start + seconds * passed
            return found if found > instant else found + seconds  # the quotient was rounded down
        # An instant that is exactly the start counts.
        after = max(instant, math.ceil(self.start) - 1)
        begin = datetime.fromtimestamp(after, UTC).astimezone(ZoneInfo(self.zone))
        steps = CronSim(_line(self.text), begin)
        for _ in range(_MAX_STEPS):
            try:
                found = next(steps).timestamp()
            except StopIteration:
                return None
            if found > after:
                return found
        return None


def checked_rule(rule: ScheduleRule) -> ScheduleRule:
    """Return the rule. Raises BadInput with every fault of it."""
    _check_zone(rule.zone)
    for name, at in (("start" if rule.kind is not RuleKind.ONCE else "at", rule.start), ("end", rule.end)):
        if at is not None and not 0 <= at < _LATEST:
            raise BadInput(f"{name}: it is not from the year 1970 to 2999")
    if rule.kind is RuleKind.CRON:
        _check_cron(rule.text)
    elif rule.kind is RuleKind.EVERY and not 1 <= float(rule.text) <= 366 * 86400:
        raise BadInput(f"every: {rule.text} is not from 1 second to 366 days")
    if rule.end is not None and rule.end < rule.start:
        raise BadInput("end is before start")
    return rule


def jitter_of(schedule: int, instant: float, most: float) -> float:
    """Return by how many seconds an instant is postponed: always the same for one, from 0 up to `most`."""
    digest = hashlib.sha256(f"{schedule}:{instant!r}".encode()).digest()
    return most * int.from_bytes(digest[:8]) / 2**64


def _check_zone(name: str) -> None:
    try:
        if name in _OWN_ZONES:
            raise ValueError(name)
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # KeyError: ZoneInfoNotFoundError is one
        raise BadInput(f"time_zone: {name!r} is unknown; write a name such as Europe/Berlin or UTC") from None


def _line(text: str) -> str:
    return _NAMED.get(text.strip().lower(), text)


def _check_cron(text: str) -> None:
    if len(text) > _MAX_CRON_LENGTH:
        raise BadInput(f"cron: the line is longer than {_MAX_CRON_LENGTH} characters")
    fields = _line(text).split()
    if len(fields) != len(_FIELDS):
        names = ", ".join(name for name, _ in _FIELDS)
        raise BadInput(
            f"cron: {text!r} has {len(fields)} fields, not five ({names}), and is none of {', '.join(_NAMED)}"
        )
    faults = [
        f"{name} {field!r} is not made of {allowed}"
        for place, (field, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True))
        if not _is_field(field, place)
    ]
    if faults:
        raise BadInput(f"cron: {'; '.join(faults)}")
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        raise BadInput(f"cron: {text!r} names a day that none of its months has") from None


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
