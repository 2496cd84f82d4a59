"""Holds a log against the rules that were in force: pure, and as strict as a site's owner with a stopwatch.

Two things are forgiven and nothing else. `BLUR_SECONDS`: two requests may come closer than they were let go, by what
starting a request and the network take. `GRACE_SECONDS`: so long after a change was confirmed the rule before it is as
good as the new one.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.politeness.rules import Rule

BLUR_SECONDS = 0.2
GRACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """From `asked` on the rule may be in force, from `answered` on it is, until the next change. All times are of one
    clock, in seconds. The first change of a timeline is asked at minus infinity."""

    rule: Rule
    asked: float = -math.inf
    answered: float = -math.inf


@dataclass(frozen=True, slots=True)
class Hit:
    """One request as the server saw it."""

    at: float
    ended: float
    """When the answer was sent; infinity: never."""
    spider: str
    egress: str
    early: float = 0.0
    """By so many seconds it may have come before `at`: the log itself was kept waiting."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One request too many."""

    at: float
    what: str
    """`budget`, `spacing`, `cap` or `off`."""
    found: float
    allowed: float
    times: tuple[float, ...]
    """The requests of the window, or those in flight; this one is the last."""

    def __str__(self) -> str:
        shown = " ".join(f"{time:.3f}" for time in self.times[-40:])
        return f"{self.what} at {self.at:.3f}: {self.found:g} where {self.allowed:g} are allowed: {shown}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one domain."""

    faults: list[Fault]
    worst_window: float
    """The fullest window as a share of its budget; at most 1 in a polite crawl."""
    worst_cap: float
    """The most in flight at once as a share of the cap."""


def check(timeline: Sequence[Change], hits: Sequence[Hit], *, blur_seconds: float = BLUR_SECONDS) -> Checked:
    """Every request of one domain against every rolling window that ends with it, and what was in flight with it.

    A request is at fault only if every rule that was possible at its time forbids it. A window counts what came before
    a change too: a smaller budget has to wait until the larger one's hits have left the window. Except what nobody
    could know: a longer window looks back no further than the one before it, a new scope begins with nothing.
    """
    ordered = sorted(hits, key=lambda hit: hit.at)
    views = [_View(timeline, number, ordered, blur_seconds) for number in range(len(timeline))]
    faults: list[Fault] = []
    worst_window = worst_cap = 0.0
    for number, hit in enumerate(ordered):
        verdicts = [list(view.judge(number)) for view in views if view.first <= hit.at <= view.last]
        if all(any(found > allowed for _, found, allowed, _ in verdict) for verdict in verdicts):
            faults += [
                Fault(hit.at, what, found, allowed, tuple(times))
                for what, found, allowed, times in verdicts[-1]
                if found > allowed
            ]
        worst_window = max(worst_window, _share(verdicts, "budget"))
        worst_cap = max(worst_cap, _share(verdicts, "cap"))
    return Checked(faults, worst_window, worst_cap)


Finding = tuple[str, float, float, Sequence[float]]
"""What, how much was found, how much is allowed, when."""


def _share(verdicts: Sequence[Sequence[Finding]], what: str) -> float:
    """How much of what is allowed was taken, by the kindest of the possible rules; 0: none says anything of it."""
    return min(
        (found / allowed for verdict in verdicts for kind, found, allowed, _ in verdict if kind == what), default=0
    )


class _View:
    """The log as one rule of a timeline sees it."""

    def __init__(self, timeline: Sequence[Change], number: int, hits: Sequence[Hit], blur: float) -> None:
        self._blur = blur
        self._rule = timeline[number].rule
        self.first = timeline[number].asked
        self.last = timeline[number + 1].answered + GRACE_SECONDS if number + 1 < len(timeline) else math.inf
        self._counts_from, self._known_from = _memory(timeline, number, blur)
        self._hits = hits
        self._places: list[int] = []  # of each request among those of its scope
        self._starts: dict[tuple[str, str], list[float]] = {}
        self._earliest: dict[tuple[str, str], list[float]] = {}
        self._ends: dict[tuple[str, str], list[float]] = {}
        for hit in hits:
            key = self._rule.key(hit.spider, hit.egress)
            starts = self._starts.setdefault(key, [])
            self._places.append(len(starts))
            starts.append(hit.at)
            self._earliest.setdefault(key, []).append(hit.at - hit.early)
            if hit.at > self._counts_from:
                self._ends.setdefault(key, []).append(hit.ended)
        for ends in self._ends.values():
            ends.sort()

    def judge(self, number: int) -> Iterator[Finding]:
        rule, hit = self._rule, self._hits[number]
        if rule.off:
            yield "off", 1.0, 0.0, (hit.at,)
            return
        key = rule.key(hit.spider, hit.egress)
        starts = self._starts[key]
        until = self._places[number] + 1
        since = max(hit.at - max(rule.window - self._blur, 0.0), self._known_from)
        first = bisect_right(starts, since)
        earliest = self._earliest[key]
        window = [starts[place] for place in range(first, until) if earliest[place] > since] or [hit.at]
        yield "budget", len(window), rule.hits, window
        if rule.spacing and until > 1 and starts[until - 2] > self._known_from:
            # Written as a count, like the others: two within the time of one.
            near = hit.at - earliest[until - 2] < rule.spacing - self._blur
            yield "spacing", 2 if near else 1, 1, starts[until - 2 : until]
        ends = self._ends.get(key, [])
        begun = until - bisect_right(starts, self._counts_from)
        # An end at this very moment is before the start.
        flying = begun - bisect_right(ends, hit.at)
        yield "cap", max(1, flying), rule.cap, starts[max(0, until - max(1, flying)) : until]


def _memory(timeline: Sequence[Change], number: int, blur: float) -> tuple[float, float]:
    """(since when requests count under this rule's scope at all, since when they can be known to its window)."""
    counts = known = -math.inf
    before = timeline[0].rule
    window = before.window
    for change in timeline[1 : number + 1]:
        if not change.rule.same_scope(before):
            counts = known = change.answered + GRACE_SECONDS
        elif not change.rule.off:
            # When it came into force is only known to have been before the answer.
            known = max(known, change.answered - window + blur)
        if not change.rule.off:
            window = change.rule.window
        before = change.rule
    return counts, known
