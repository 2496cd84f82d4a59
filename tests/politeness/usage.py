"""How much of what was allowed was used: pure. A crawler that is only ever too slow is polite, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.politeness.checker import GRACE_SECONDS, Change, Hit

Interval = tuple[float, float]
"""From, to; in seconds. To before from: empty."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums, so that those of several domains can be added up."""

    used: float = 0.0
    allowed: float = 0.0
    seconds: float = 0.0
    """What the two were measured over, all scopes together. 0: nothing could be measured."""

    @property
    def share(self) -> float:
        """1: every hit was used as soon as it was free."""
        return self.used / self.allowed if self.allowed else 1.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.used + other.used, self.allowed + other.allowed, self.seconds + other.seconds)


def usage(
    timeline: Sequence[Change],
    hits: Sequence[Hit],
    *,
    span: Interval,
    spiders: Sequence[str],
    egresses: Sequence[str],
    holds: Sequence[Interval] = (),
    outages: Mapping[str, Sequence[Interval]] | None = None,
) -> Usage:
    """Of one domain that always has work, in `span`: how full its rolling windows were, on average over time.

    Left out are windows that reach back to before a change's grace or into what the rule before left behind (a smaller
    budget waits until the larger one's hits are out of the window), into a hold (a dead worker has requests of this
    domain in flight) or, where the budget is per egress, into an outage of that egress.
    """
    total = Usage()
    for number, change in enumerate(timeline):
        rule = change.rule
        if rule.off:
            continue
        begin = max(span[0], change.answered + GRACE_SECONDS + rule.window) + rule.window
        end = min(span[1], timeline[number + 1].asked if number + 1 < len(timeline) else span[1])
        if end <= begin:
            continue
        starts: dict[tuple[str, str], list[float]] = {key: [] for key in rule.keys(spiders, egresses)}
        for hit in hits:
            starts.setdefault(rule.key(hit.spider, hit.egress), []).append(hit.at)
        for key, times in starts.items():
            gone = [*holds, *((outages or {}).get(key[1], ()) if rule.by_egress else ())]
            for interval in without((begin, end), [(since, until + rule.window) for since, until in gone]):
                seconds = interval[1] - interval[0]
                total += Usage(_filled(times, rule.window, interval), rule.hits * seconds, seconds)
    return total


def _filled(times: Sequence[float], window: float, interval: Interval) -> float:
    """The integral, over the interval's moments, of how many of `times` lie in the window that ends there."""
    begin, end = interval
    return sum(max(0.0, min(time + window, end) - max(time, begin)) for time in times)


def without(interval: Interval, gone: Sequence[Interval]) -> list[Interval]:
    """What of an interval is in none of the others, in order."""
    left = []
    at, end = interval
    for since, until in sorted(gone):
        if until <= since:
            continue
        if since > at:
            left.append((at, min(since, end)))
        at = max(at, until)
    left.append((at, end))
    return [(since, until) for since, until in left if until > since]
