"""Counts of fetched pages by the pattern of their URL, to notice pages without end while a crawl goes on.

Only pages that may belong to such a trap are counted: those far from the start, those whose path repeats directories,
and those with sessions or many parameters in their query.

Fixed: everything here is bounded, and a page of
none of these kinds costs almost nothing.
"""

import heapq
from enum import StrEnum

import msgspec

from gossamer.option_names import named
from gossamer.policy.patterns import MANY_REPEATS, Signs, signs_of, url_pattern
from gossamer.policy.urls import origin

_DEEP = 25
"""Links from the start of the crawl from which pages are counted. Few sites need so many steps to all of their pages,
but those whose pages only lead to the next one."""
_MANY_SLASHES = 3 + 2 * MANY_REPEATS - 1
"""Slashes of the shortest URL in which so many directories are repeated."""
_PATTERNS_COUNTED = 2000
"""Patterns that a process counts at once."""


class Growth(StrEnum):
    """Reason to think that the pages of a pattern have no end."""

    DEEP = "deep"
    """They are many links away from the start."""
    REPEATS = "repeats"
    """Their paths repeat directories."""
    SESSIONS = "sessions"
    """A parameter has another token on each page."""
    PARAMETERS = "parameters"
    """Many parameters are combined."""


_SHOWN_FROM = {Growth.DEEP: 200, Growth.REPEATS: 100, Growth.SESSIONS: 500, Growth.PARAMETERS: 1000}
"""Pages of a pattern from which it is named."""


class PatternCount(msgspec.Struct):
    """Pages of one pattern."""

    growth: Growth
    pages: int = 0
    depth: int = 0
    """Most links between the start of the crawl and one of them."""
    example: str = ""
    """URL of the latest of them."""

    def plus(self, other: "PatternCount") -> "PatternCount":
        """Return the sum as a new object."""
        depth, pages = max(self.depth, other.depth), self.pages + other.pages
        return PatternCount(self.growth, pages, depth, other.example or self.example)


class PatternCounts:
    """Counts the fetched pages of one process that may belong to pages without end."""

    def __init__(self) -> None:
        self._counts: dict[str, PatternCount] = {}

    def count(self, url: str, depth: int) -> None:
        """Count a fetched page, if its canonical URL or its depth asks for it. Called for every page."""
        if depth < _DEEP and "?" not in url and url.count("/") < _MANY_SLASHES:
            return
        signs = signs_of(url)
        growth = _growth(signs, depth)
        if growth is None:
            return
        pattern = url_pattern(url)
        count = self._counts.get(pattern)
        if count is None:
            if len(self._counts) >= _PATTERNS_COUNTED:
                leading = heapq.nlargest(_PATTERNS_COUNTED // 2, self._counts.items(), key=lambda pair: pair[1].pages)
                self._counts = dict(leading)
            count = self._counts[pattern] = PatternCount(growth)
        count.pages += 1
        count.depth = max(count.depth, depth)
        count.example = url

    def shown(self) -> dict[str, PatternCount]:
        """Return the patterns that have so many pages that a person should know of them."""
        return {pattern: count for pattern, count in self._counts.items() if count.pages >= _SHOWN_FROM[count.growth]}


def _growth(signs: Signs, depth: int) -> Growth | None:
    """Return why a page may belong to pages without end; None: nothing says so."""
    if signs.repeats >= MANY_REPEATS:
        return Growth.REPEATS
    if signs.token:
        return Growth.SESSIONS
    if signs.has_many_parameters:
        return Growth.PARAMETERS
    return Growth.DEEP if depth >= _DEEP else None


def leading_patterns(counts: dict[str, PatternCount]) -> dict[str, PatternCount]:
    """Return the pattern with most pages of each site and kind of growth, the largest first."""
    found: dict[tuple[str, Growth], str] = {}
    for pattern, count in sorted(counts.items(), key=lambda pair: -pair[1].pages):
        found.setdefault((origin(count.example), count.growth), pattern)
    return {pattern: counts[pattern] for pattern in found.values()}


def growth_sentence(pattern: str, count: PatternCount) -> str:
    """Return what grows, and what a person can do if it has no end."""
    begin = f"{pattern} may have no end: {count.pages:,} pages so far, "
    example = f", for example {count.example}."
    match count.growth:
        case Growth.REPEATS:
            return (
                f"{begin}whose paths repeat a directory{example} Relative links without end do that. "
                f"{named('path_repeats', 1)} follows fewer of them, {named('deny')} none."
            )
        case Growth.SESSIONS:
            return (
                f"{begin}each with another {signs_of(count.example).token}{example} If it only names a session, "
                f"{named('drop_parameter', signs_of(count.example).token)} leaves it out."
            )
        case Growth.PARAMETERS:
            return (
                f"{begin}with ever more combinations of parameters{example} "
                f"{named('pattern_max_pages', 'N')} bounds such pages, {named('deny')} leaves them out."
            )
        case Growth.DEEP:
            return (
                f"{begin}up to {count.depth:,} links from the start{example} "
                f"{named('pattern_max_pages', 'N')} bounds the pages whose URLs differ only in numbers, as "
                f"those of calendars do; {named('deny')} leaves them out."
            )
