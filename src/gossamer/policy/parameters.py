"""Query parameters that a crawl leaves out of URLs, such as those that only say where a link was clicked.

Fixed: the rules by which a name matches, because running crawls have the patterns in their stored terms.
"""

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote_plus

from gossamer.errors import BadInput

MAX_PARAMETERS = 100
"""Most patterns of a crawl. Equals `maxItems` in the schema `crawl`."""
MAX_PARAMETER_LENGTH = 100
"""Longest pattern in characters. Equals `maxLength` in the schema `crawl`."""


class DroppedParameters:
    """Names of query parameters to leave out: `ref`, or with a `*` for any characters `utm_*`. Case matters."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raises BadInput for a pattern that no name can match, for one that matches all, and for too many."""
        self.patterns = tuple(patterns)
        if len(self.patterns) > MAX_PARAMETERS:
            raise BadInput(f"{len(self.patterns)} parameters; at most {MAX_PARAMETERS} are taken")
        for pattern in self.patterns:
            if not pattern.strip("*") or len(pattern) > MAX_PARAMETER_LENGTH or any(mark in pattern for mark in "&=#?"):
                raise BadInput(
                    f"{pattern!r:.200} is no name of a query parameter; write one like ref, or utm_* for all names "
                    "that begin so"
                )
        self._names = frozenset(pattern for pattern in self.patterns if "*" not in pattern)
        self._globs = [pattern.split("*") for pattern in self.patterns if "*" in pattern]

    def matches(self, name: str) -> bool:
        """Return whether a parameter of this name is left out."""
        return name in self._names or any(_glob_matches(parts, name) for parts in self._globs)

    def remove(self, url: str) -> str:
        """Return a canonical URL without these parameters, with the others as they are. The very same object: it has
        none of them."""
        path, mark, query = url.partition("?")
        if not query:
            return url
        parameters = query.split("&")
        kept = [parameter for parameter in parameters if not self.matches(_name(parameter))]
        if len(kept) == len(parameters):
            return url
        return f"{path}{mark}{'&'.join(kept)}" if any(kept) else path


def _glob_matches(parts: list[str], name: str) -> bool:
    """Return whether a name consists of these parts with anything between. Linear, unlike a regular expression."""
    first, *middle, last = parts
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _name(parameter: str) -> str:
    """Return the name of a parameter, decoded as forms are."""
    name = parameter.partition("=")[0]
    return unquote_plus(name) if "%" in name or "+" in name else name


@lru_cache(maxsize=1000)
def dropped_parameters(patterns: tuple[str, ...]) -> DroppedParameters:
    """Return compiled patterns, which are remembered: many requests of a service have the same."""
    return DroppedParameters(patterns)
