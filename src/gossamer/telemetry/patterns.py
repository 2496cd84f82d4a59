"""Counts of fetched pages by the pattern of their URL, to notice pages without end while a crawl goes on.

Only pages that may belong to such a trap are counted: those far from the start, those whose path repeats directories,
and those with sessions or many parameters in their query.

Fixed: everything here is bounded, and a page of
none of these kinds costs almost nothing.
"""

import heapq

import msgspec

from gossamer.model.crawl import CrawlId, Run
from gossamer.model.growth import Growth, PatternCount
from gossamer.model.info import CrawlInfo
from gossamer.policy.patterns import MANY_REPEATS, Signs, signs_of, url_pattern
from gossamer.policy.urls import origin
from gossamer.policy.words import names_for

_DEEP = 25
"""Links from the start of the crawl from which pages are counted. Few sites need so many steps to all of their pages,
but those whose pages only lead to the next one."""
_MANY_SLASHES = 3 + 2 * MANY_REPEATS - 1
"""Slashes of the shortest URL in which so many directories are repeated."""
_PATTERNS_COUNTED = 2000
"""Patterns that a process counts at once."""


_SHOWN_FROM = {Growth.DEEP: 200, Growth.REPEATS: 100, Growth.SESSIONS: 500, Growth.PARAMETERS: 1000}
"""Pages of a pattern from which it is named."""


class CountedPattern(msgspec.Struct):
    """Pages of one pattern that this process has fetched for one crawl."""

    run: Run
    """Run of the crawl in which the latest of them was fetched."""
    pattern: str
    count: PatternCount
    reported: int = 0
    """Pages of which the frontier knows."""

    @property
    def is_shown(self) -> bool:
        """True: there are so many of them that a person should know."""
        return self.count.pages >= _SHOWN_FROM[self.count.growth]


class PatternCounts:
    """Counts the fetched pages of one process that may belong to pages without end."""

    def __init__(self) -> None:
        self._counts: dict[tuple[CrawlId, str], CountedPattern] = {}
        """By crawl and pattern."""

    def count(self, run: Run, url: str, depth: int) -> None:
        """Count a fetched page, if its canonical URL or its depth asks for it. Called for every page."""
        if depth < _DEEP and "?" not in url and url.count("/") < _MANY_SLASHES:
            return
        signs = signs_of(url)
        growth = _growth(signs, depth)
        if growth is None:
            return
        pattern = url_pattern(url)
        key = (run.crawl.id, pattern)
        counted = self._counts.get(key)
        if counted is None:
            if len(self._counts) >= _PATTERNS_COUNTED:
                pairs = self._counts.items()
                self._counts = dict(heapq.nlargest(_PATTERNS_COUNTED // 2, pairs, key=lambda pair: pair[1].count.pages))
            counted = self._counts[key] = CountedPattern(run, pattern, PatternCount(growth))
        elif counted.run.number != run.number:  # the counts of an earlier run are over
            counted.count, counted.reported = PatternCount(growth), 0
        counted.run = run
        count = counted.count
        count.pages += 1
        count.depth = max(count.depth, depth)
        count.example = url

    def shown(self) -> dict[str, PatternCount]:
        """Return the patterns of all crawls that have so many pages that a person should know of them."""
        return {counted.pattern: counted.count for counted in self._counts.values() if counted.is_shown}

    def unreported(self) -> list[CountedPattern]:
        """Return the patterns with so many pages of which the frontier does not know them all."""
        counts = self._counts.values()
        return [counted for counted in counts if counted.is_shown and counted.count.pages > counted.reported]


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


def growth_sentences(info: CrawlInfo) -> list[str]:
    """Return what grows in a crawl that the frontier knows, as `growth_sentence` does: the largest of each site and
    kind."""
    return [growth_sentence(*pair, pool=info.pool) for pair in leading_patterns(info.growing).items()]


def growth_sentence(pattern: str, count: PatternCount, *, pool: str = "") -> str:
    """Return what grows, and what a person can do if it has no end. `pool`: the crawl's group of workers."""
    named = names_for(pool).named
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
