"""Counts of the links that the expressions of a crawl refuse: which expression, how many URLs, and one of them.

Fixed: everything here is bounded, however many URLs a crawl refuses.
"""

from collections.abc import Collection

import msgspec

from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.option_names import named
from gossamer.policy.words import counted

_URLS_KNOWN = 20_000
"""URLs that a process counts once. With more take memory, about 100 bytes each; for further ones, it does not count."""
_NAMED = 5
"""Expressions of each kind that the sentences name. More make the summary longer."""

_OF_SESSIONS = frozenset(f"deny {text}" for text in NEVER_FOLLOWED)
"""Expressions that no person has written, by their keys."""
NOT_ALLOWED = "allow"
"""Key of the count of URLs that no expression of --allow matches."""


class FilterCount(msgspec.Struct):
    """Different URLs that one expression refused."""

    urls: int = 0
    is_exact: bool = True
    """False: they are at least so many, because several processes, or too many URLs, were counted."""
    example: str = ""
    """One of these URLs."""

    def plus(self, other: "FilterCount") -> "FilterCount":
        """Return what is known of two processes together as a new object: they may have refused the same URLs."""
        most, least = (self, other) if self.urls >= other.urls else (other, self)
        return FilterCount(most.urls, most.is_exact and least.is_exact and not least.urls, most.example)


class FilterCounts:
    """Counts the decisions of a crawl's expressions in one process."""

    def __init__(self) -> None:
        self._counts: dict[str, FilterCount] = {}
        """By `deny EXPRESSION`, and NOT_ALLOWED."""
        self._unused: dict[str, None] = {}
        """Expressions that have matched no URL so far: `deny EXPRESSION`, `allow EXPRESSION`."""
        self._begun: set[str] = set()
        self._known: set[int] = set()
        """Hashes of the URLs that are counted."""

    def begin(self, allow: Collection[str], deny: Collection[str]) -> None:
        """Count these expressions, too. May be repeated."""
        for name in (*(f"allow {text}" for text in allow), *(f"deny {text}" for text in deny)):
            if name not in self._begun:
                self._begun.add(name)
                if name not in _OF_SESSIONS:
                    self._unused[name] = None

    def count(self, kind: str, text: str | None, url: str) -> None:
        """Count a decision about this URL. `kind`: `deny` or `allow`, whose expression `text` matches; None: none of
        --allow does."""
        if self._unused and text is not None:
            self._unused.pop(f"{kind} {text}", None)
        if kind == "allow" and text is not None:
            return
        name = NOT_ALLOWED if text is None else f"{kind} {text}"
        found = self._counts.get(name)
        if found is None:
            found = self._counts[name] = FilterCount(example=url)
        key = hash(url)
        if key in self._known:
            return
        if len(self._known) >= _URLS_KNOWN:
            found.is_exact = False
            return
        self._known.add(key)
        found.urls += 1

    def shown(self) -> dict[str, FilterCount]:
        """Return the counts by expression (`deny EXPRESSION`, `allow EXPRESSION`, or NOT_ALLOWED); those that have
        matched no URL have a count of 0."""
        return {**self._counts, **{name: FilterCount() for name in self._unused}}


def merged(mine: dict[str, FilterCount], theirs: dict[str, FilterCount]) -> dict[str, FilterCount]:
    """Return the counts of two processes together. An expression of --allow has a count only where no process has
    found it in a URL."""
    names = [
        name
        for name in mine | theirs
        if ((name in mine or not mine) and (name in theirs or not theirs)) or not name.startswith("allow ")
    ]
    return {name: mine.get(name, _NONE).plus(theirs.get(name, _NONE)) for name in names}


_NONE = FilterCount()


def filter_sentences(counts: dict[str, FilterCount], *, are_all: bool) -> list[str]:
    """Return a line for each expression that refused links, those with most URLs first, and one for each that matched
    none. They have no full stop. `are_all`: the counts are those of the whole crawl; otherwise nothing is said of
    expressions that matched none here."""
    lines = []
    refused = sorted((name for name in counts if counts[name].urls), key=lambda name: (-counts[name].urls, name))
    for name in refused[:_NAMED]:
        count = counts[name]
        least = "" if count.is_exact else "at least "
        lines.append(f"{_option(name)}: {least}{counted(count.urls, 'different URL')}, for example {count.example}")
    unused = sorted(name for name, count in counts.items() if are_all and count.is_exact and not count.urls)
    lines += [f"{_option(name)} matched no link" for name in unused[:_NAMED]]
    left = max(0, len(refused) - _NAMED) + max(0, len(unused) - _NAMED)
    return [*lines, *([f"and {counted(left, 'expression')} more"] if left else [])]


def _option(name: str) -> str:
    if name in _OF_SESSIONS:
        return f"not followed with {named('session')}"
    return f"matched by no {named('allow')}" if name == NOT_ALLOWED else named(*name.split(" ", 1))
