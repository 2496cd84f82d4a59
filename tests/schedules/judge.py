"""Compares the jobs that schedules have made with the instants at which they should have."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LATE_SECONDS = 60.0
"""Delay from which on an instant counts as missed, and makes no job: the policy that docs/howto/schedules.md names."""


class Firing(NamedTuple):
    """A job that a schedule has made."""

    schedule: str
    instant: int
    """Its time, in seconds since 1970."""
    created_at: float


@dataclass
class Verdict:
    """Result of a run."""

    faults: list[str]
    """Broken promises. Empty: none."""
    firings: int
    missed: int
    """Instants without a job that the policy leaves out, because the managers were more than a minute late."""
    latest: float
    """Longest delay of a job behind its instant, in seconds."""


def judge_firings(
    instants: Mapping[str, Sequence[int]], fired: Sequence[Firing], ends_missed: Mapping[str, int]
) -> Verdict:
    """Return the verdict. `instants`: by schedule, the times at which it must have made one job. `ends_missed`: by
    schedule whose last time was missed, as the platform says, this time."""
    counts = Counter((each.schedule, each.instant) for each in fired)
    faults: list[str] = []
    missed = 0
    for schedule, times in instants.items():
        for gap, following in _gaps(times, {instant for name, instant in counts if name == schedule}):
            # After an instant that is late, all that have come in the meantime are left out.
            is_late = following - gap[0] > LATE_SECONDS if following else ends_missed.get(schedule) == gap[0]
            missed += len(gap) if is_late else 0
            faults += [] if is_late else [f"{schedule} made no job at {instant}" for instant in gap]
    for (schedule, instant), count in sorted(counts.items()):
        if instant not in instants.get(schedule, ()):
            faults.append(f"{schedule} made a job at {instant}, which is none of its times")
        if count > 1:
            faults.append(f"{schedule} made {count} jobs at {instant}")
    delays = {each: each.created_at - each.instant for each in fired}
    faults += [
        f"{each.schedule} made the job of {each.instant} {-delay:.3f} s before its time"
        for each, delay in delays.items()
        if delay < 0
    ]
    return Verdict(faults, len(fired), missed, max(delays.values(), default=0.0))


def _gaps(times: Sequence[int], made: set[int]) -> list[tuple[list[int], int | None]]:
    """Return the runs of instants without a job, each with the next instant that has one. None: there is none."""
    runs = [(is_made, list(group)) for is_made, group in itertools.groupby(times, made.__contains__)]
    following = [group[0] for _, group in runs[1:]] + [None]
    return [(group, after) for (is_made, group), after in zip(runs, following, strict=True) if not is_made]
