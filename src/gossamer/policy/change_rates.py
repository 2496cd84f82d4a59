"""Estimates how often a page changes from what its fetches found.

Model: a page changes by a Poisson process of rate r, so that a fetch t seconds after the one before finds a change with
probability 1 - exp(-r t). Times are in seconds, rates in changes per second. Nothing here reads a clock.

Sources: Cho, Garcia-Molina, "Estimating frequency of change", ACM TOIT 2003: several changes between two fetches count
once, so the quotient of changes and time is too low, and unequal intervals need the maximum of the likelihood. Fixed:
the form of `History`, which page indexes store.
"""

import math
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

REMEMBERED: Final = 24
"""Entries that a history keeps. Fewer make estimates worse (with 20 fetches at the best interval, half of them are
within 19 %), more take two bytes each and follow a page that has changed its habits more slowly."""
PRIOR_SPREAD: Final = 2.0
"""Standard deviation of the logarithm of rates around the expected one: most pages of a site lie within a factor of
seven of their mean. Without a prior, a page that always changed would be estimated as infinitely fast, and one that
never did as eternal. A smaller one draws pages to the mean for longer."""
LOWEST_RATE: Final = 1 / (100 * 365 * 86_400)
"""Once in a hundred years: lower rates are taken for this one, so that quotients of rates stay finite."""
HIGHEST_RATE: Final = 1.0
"""Once a second."""
_EXACT_SECONDS: Final = 1.0
"""Interval of an observation for a change at a known moment; short beside any time between two fetches."""


class Observation(NamedTuple):
    """Result of one fetch: the time since the fetch before it, and whether the page had changed meanwhile."""

    seconds: float
    changed: bool


def dated(seconds: float, age_seconds: float) -> tuple[Observation, ...]:
    """Return the observations of a fetch that found a change, where the page truthfully says when it changed last.

    `age_seconds`: time since then. The page stood still for that time, and changed at its beginning; what was before it
    is not known. A date outside of the interval is of no use: the fetch counts as one without a date.
    """
    if not _EXACT_SECONDS < age_seconds < seconds:
        return (Observation(seconds, True),)
    return Observation(age_seconds, False), Observation(_EXACT_SECONDS, True)


def estimated_rate(observations: Iterable[Observation], *, expected: float) -> float:
    """Return the most likely number of changes per second.

    `expected`: the rate to assume without observations, such as the mean of similar pages. Its weight is small: rates
    have a log-normal prior around it, with PRIOR_SPREAD.
    """
    quiet = 0.0
    intervals: dict[float, int] = {}
    for seconds, changed in observations:
        if changed and seconds > 0:
            intervals[seconds] = intervals.get(seconds, 0) + 1
        elif not changed:
            quiet += max(seconds, 0.0)
    return _estimated(intervals, quiet, expected)


def _estimated(intervals: dict[float, int], quiet: float, expected: float) -> float:
    """Return `estimated_rate` of observations that are summed up as for `_most_likely`."""
    expected = min(max(expected, LOWEST_RATE), HIGHEST_RATE)
    return _most_likely(intervals, quiet, math.log(expected)) if intervals or quiet else expected


def _most_likely(intervals: dict[float, int], quiet: float, expected: float) -> float:
    """Return the rate r of the greatest posterior: sum over changed of x / (exp(x) - 1), with x = r t, is r times
    `quiet`, the time of fetches without a change, plus what the prior asks for.

    `intervals`: number of changed observations by their t. `expected`: logarithm. The difference of both sides falls
    with r, so a bracket of log r catches the steps of Newton's method that leave it."""
    low, high = math.log(LOWEST_RATE), math.log(HIGHEST_RATE)
    pull = 1 / PRIOR_SPREAD**2
    at = expected
    for _ in range(60):
        rate = math.exp(at)
        excess = -rate * quiet - pull * (at - expected)
        slope = -rate * quiet - pull
        for seconds, count in intervals.items():
            x = rate * seconds
            if x < 500:  # beyond, exp would overflow, and the term is zero
                grown = math.expm1(x)
                term = count * x / grown
                excess += term
                slope += term * (1 - x * (1 + 1 / grown))
        low, high = (at, high) if excess > 0 else (low, at)
        following = at - excess / slope
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - at) < 1e-7:
            return math.exp(following)
        at = following
    return math.exp(at)


_STEPS = 1000
"""Steps of a stored interval for each doubling: intervals are stored with an error below 0.04 %. Fixed."""
_CHANGED = 1 << 15
"""Bit of a stored observation that found a change. Fixed."""


class History:
    """The last observations of a page, two bytes each. Fetches without a change one after the other are one entry: only
    their total time counts, so a page that seldom changes is known by more fetches than REMEMBERED."""

    __slots__ = ("_codes",)

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._codes = array("H")
        for observation in observations:
            self.add(observation)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the history that `pack` has written."""
        history = cls()
        history._codes.frombytes(packed)
        if _IS_BIG_ENDIAN:
            history._codes.byteswap()
        return history

    def pack(self) -> bytes:
        """Return the history as bytes: a number of 16 bits for each observation, little-endian, oldest first."""
        if not _IS_BIG_ENDIAN:
            return self._codes.tobytes()
        swapped = array("H", self._codes)
        swapped.byteswap()
        return swapped.tobytes()

    def add(self, observation: Observation) -> None:
        """Add an observation. Beyond REMEMBERED, the oldest entry is forgotten. One without time tells nothing."""
        seconds, changed = observation
        if seconds < _EXACT_SECONDS:
            return
        codes = self._codes
        if not changed and codes and not codes[-1] & _CHANGED:
            seconds += 2 ** (codes.pop() / _STEPS)
        code = min(round(_STEPS * math.log2(seconds)), _CHANGED - 1)
        codes.append(code | (_CHANGED if changed else 0))
        del codes[:-REMEMBERED]

    def observations(self) -> list[Observation]:
        """Return the observations, oldest first; those without a change as one where they follow each other."""
        return [Observation(2 ** ((code & ~_CHANGED) / _STEPS), bool(code & _CHANGED)) for code in self._codes]

    def rate(self, *, expected: float) -> float:
        """Return the estimated number of changes per second; see `estimated_rate`."""
        quiet = 0.0
        changed: dict[int, int] = {}
        for code in self._codes:
            if code & _CHANGED:
                changed[code ^ _CHANGED] = changed.get(code ^ _CHANGED, 0) + 1
            else:
                quiet += 2 ** (code / _STEPS)
        return _estimated({2 ** (code / _STEPS): count for code, count in changed.items()}, quiet, expected)

    def __len__(self) -> int:
        return len(self._codes)


_IS_BIG_ENDIAN = array("H", [1]).tobytes() == b"\0\1"
