"""Rules of schedules: the instants at which a cron line, an interval or a single time makes a job.

Pure: no I/O and no clock. Instants are in seconds since 1970. `gossamer/cron.py` reads cron lines. Fixed: the words of
kinds, which are stored.
"""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple

from gossamer.cron import check_cron, check_zone, next_instant
from gossamer.errors import BadInput

_LATEST: Final = 32_503_680_000.0
"""Time from which on there are no instants: the year 3000. Python's last year is 9999."""


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
        return next_instant(self.text, self.zone, after)


def checked_rule(rule: ScheduleRule) -> ScheduleRule:
    """Return the rule. Raises BadInput with every fault of it."""
    with _named("time_zone"):
        check_zone(rule.zone)
    for name, at in (("start" if rule.kind is not RuleKind.ONCE else "at", rule.start), ("end", rule.end)):
        if at is not None and not 0 <= at < _LATEST:
            raise BadInput(f"{name}: it is not from the year 1970 to 2999")
    if rule.kind is RuleKind.CRON:
        with _named("cron"):
            check_cron(rule.text)
    elif rule.kind is RuleKind.EVERY and not 1 <= float(rule.text) <= 366 * 86400:
        raise BadInput(f"every: {rule.text} is not from 1 second to 366 days")
    if rule.end is not None and rule.end < rule.start:
        raise BadInput("end is before start")
    return rule


@contextmanager
def _named(field: str) -> Iterator[None]:
    """Let faults name the field of the schedule."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{field}: {error.detail}") from None


def due_at(rule: ScheduleRule, schedule: int, instant: float, jitter: float) -> float:
    """Return when an instant of a schedule is due: postponed by its jitter, but not beyond the instant after it, which
    would be left out otherwise."""
    following = rule.next_after(instant)
    return instant + jitter_of(schedule, instant, jitter if following is None else min(jitter, following - instant))


def jitter_of(schedule: int, instant: float, most: float) -> float:
    """Return by how many seconds an instant is postponed: always the same for one, from 0 up to `most`."""
    digest = hashlib.sha256(f"{schedule}:{instant!r}".encode()).digest()
    return most * int.from_bytes(digest[:8]) / 2**64
