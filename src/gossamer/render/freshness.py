"""Freshness of responses (RFC 9111): the time for which one may be used again without asking the server."""

from collections.abc import Iterable
from email.utils import parsedate_to_datetime

from gossamer.fetch.exchange import first_header, header_lines

_CACHEABLE = frozenset({200, 203, 301, 308, 404, 410})
"""Statuses that may be kept without an explicit lifetime (RFC 9110, section 15.1), of those that pages meet."""
_HEURISTIC = 0.1
"""Part of the time since Last-Modified for which a response without a lifetime is fresh (RFC 9111, section 4.2.2)."""
LONGEST_SECONDS = 24 * 3600.0
_HARMLESS_VARY = frozenset({"accept-encoding", "user-agent", "origin", "accept-language"})
"""Request headers that are the same for all requests of a crawl, and the one that the cache distinguishes, too."""


def fresh_seconds(status: int, headers: Iterable[tuple[str, str]], *, now: float) -> float:
    """Return the seconds for which a response to a GET may be used again; 0: it may not. `now`: Unix time."""
    headers = list(headers)
    directives = _directives(headers)
    if directives.keys() & {"no-store", "no-cache"} or status not in _CACHEABLE:
        return 0.0
    vary = {name.strip().lower() for line in header_lines(headers, "vary") for name in line.split(",")}
    if vary - _HARMLESS_VARY - {""}:
        return 0.0
    if "max-age" in directives:
        age = _number(first_header(headers, "age") or "0")
        return min(max(_number(directives["max-age"]) - age, 0.0), LONGEST_SECONDS)
    if expires := first_header(headers, "expires"):
        return min(max(_time(expires) - now, 0.0), LONGEST_SECONDS)
    if modified := first_header(headers, "last-modified"):
        return min(max(_HEURISTIC * (now - _time(modified, unknown=now)), 0.0), LONGEST_SECONDS)
    return 0.0


def _directives(headers: list[tuple[str, str]]) -> dict[str, str]:
    """Return the directives of Cache-Control by their lower-case names."""
    found = {}
    for line in header_lines(headers, "cache-control"):
        for directive in line.split(","):
            name, _, value = directive.strip().partition("=")
            found[name.lower()] = value.strip('" ')
    return found


def _number(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _time(text: str, *, unknown: float = 0.0) -> float:
    """Return the Unix time of a date; `unknown` for one that cannot be read."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return unknown
