"""Patterns of URLs: what remains of a URL without the parts that grow in pages without end, such as calendars.

Patterns are compared within a process and shown to people, never stored.
"""

import re
from collections import Counter
from typing import NamedTuple

from gossamer.model.crawl import Terms
from gossamer.policy.urls import is_address

DEFAULT_PATH_REPEATS = 5
"""Segments of a path that may repeat earlier ones, unless a crawl says otherwise. Documentation sites have 1 at most,
shops with a segment for each filter (`/all/all/all`) up to about 5. May be raised; lower loses pages of such sites."""

MANY_REPEATS = 3
"""Repeated segments from which the pattern is the segment that is repeated most."""
_MOST_PARAMETERS = 3
"""Query parameters that a pattern names; more combine to too many patterns."""
_DIGITS = re.compile(r"\d+")
_TOKEN = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[0-9A-Za-z]{12,}|(?=[A-Fa-f-]*\d)[0-9A-Fa-f-]{16,}")
"""A session, a hash or an identifier, not a word with a number."""
_RUN = re.compile(r"(.)\1{4,}")
"""A character that is repeated: a path that grows by it."""


def allowed_repeats(terms: Terms) -> int:
    """Return how many segments of a path may repeat earlier ones under these terms."""
    return DEFAULT_PATH_REPEATS if terms.path_repeats is None else terms.path_repeats


class Signs(NamedTuple):
    """Parts of a URL that suggest pages without end."""

    repeats: int
    """See `path_repeats`."""
    token: str
    """Name of a query parameter whose value is a token, such as a session. Empty: there is none."""
    has_many_parameters: bool
    """It has more parameters than patterns name."""


def signs_of(url: str) -> Signs:
    """Return the signs of a canonical URL."""
    query = url.partition("?")[2]
    if not query:
        return Signs(path_repeats(url), "", False)
    parameters = [parameter.partition("=") for parameter in query.split("&")]
    token = next((name for name, _, value in parameters if _TOKEN.fullmatch(value)), "")
    return Signs(path_repeats(url), token, len(parameters) > _MOST_PARAMETERS)


def path_repeats(url: str) -> int:
    """Return how many segments of a canonical URL's path repeat an earlier one. Numbers count as equal."""
    segments = _segments(url)
    return len(segments) - len(set(segments))


def url_pattern(url: str) -> str:
    """Return the pattern of a canonical URL: `http://a.test/cal/N/N`, `http://a.test/list?page=*`, or, where many
    segments of the path are repeated, `http://a.test/…/news/…`.

    N stands for a number, * for a token or the value of a query parameter, … for any characters.
    """
    path, _, query = url.partition("?")
    scheme, slashes, rest = path.partition("//")
    name, _, path = rest.partition("/")
    if not is_address(name.partition(":")[0]):
        name, colon, port = name.partition(":")
        name = f"{'.'.join(map(_shape, name.split('.')))}{colon}{port}"
    site = f"{scheme}{slashes}{name}"
    segments = _segments(url)
    if len(segments) - len(set(segments)) >= MANY_REPEATS:
        (segment, _), *_ = Counter(segments).most_common(1)
        return f"{site}/…/{segment}/…"
    names = sorted({parameter.partition("=")[0] for parameter in query.split("&")} - {""})
    shown = "&".join(f"{name}=*" for name in names) if len(names) <= _MOST_PARAMETERS else "…"
    return f"{site}/{'/'.join(map(_shape, path.split('/')))}{'?' if names else ''}{shown}"


def _segments(url: str) -> list[str]:
    """Return the segments of the path, with N for numbers, without the empty one at its end."""
    path = url.partition("?")[0].partition("//")[2].partition("/")[2]
    return [_DIGITS.sub("N", segment) for segment in path.removesuffix("/").split("/")] if path else []


def _shape(part: str) -> str:
    """Return a label or a segment without its numbers and tokens."""
    if not part or part.isalpha():
        return _RUN.sub(r"\1…", part) if len(part) > 4 else part
    return "*" if _TOKEN.fullmatch(part) else _RUN.sub(r"\1…", _DIGITS.sub("N", part))
