"""Decisions about robots.txt (RFC 9309): the meaning of a response, its lifetime, and the wait without a response.

`classify_status` may become stricter than RFC 9309, never more permissive. Fixed: the values of both enumerations,
because the frontier (the cluster's store) keeps them, or operators write them into their settings.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

LIFETIME_SECONDS = 24 * 3600.0
"""Time for which a response is cached. May be shortened, which costs sites more fetches of robots.txt, but not
lengthened (RFC 9309, section 2.4: at most 24 hours)."""

UNREACHABLE_LIMIT_SECONDS = 24 * 3600.0
"""Time during which an origin (scheme, host and port) is unreachable, as RobotsOutcome describes it, after which its
requests fail instead of waiting. A longer time keeps a crawl of a dead site running, a shorter one loses pages to an
outage."""

COMMAND_PATIENCE_SECONDS = 300.0
"""Time of the same kind in a crawl that a person started and waits for, unless the person sets another. RFC 9309
(section 2.3.1.4) demands only that nothing is fetched meanwhile."""

MAX_BYTES = 500 * 1024
"""Length up to which a file is read. It may be larger, which costs memory and space in the frontier, but not smaller
(RFC 9309, section 2.5: at least 500 KiB)."""

MAX_REDIRECTS = 5
"""Number of redirects that are followed in a row. It may be larger, but not smaller (RFC 9309, section 2.3.1.2)."""

CRAWL_DELAY_CAP_SECONDS = 60.0
"""Longest Crawl-delay that is obeyed; a longer one counts as this one. A lower value disregards the wish of more sites,
a higher one lets a site slow its crawl down to a standstill. RFC 9309 does not define the field."""

_FIRST_BLOCK_SECONDS = 60.0
"""Time for which an unreachable origin is blocked at first, before robots.txt is fetched again; each further block is
twice as long. A shorter time loads a failing server more."""
_LONGEST_BLOCK_SECONDS = 3600.0
"""Longest of these times. Must be well below UNREACHABLE_LIMIT_SECONDS, so that an origin gets several chances before
its requests fail."""


class RobotsPolicy(StrEnum):
    """The operator's choice whether robots.txt is obeyed, for all crawls of a worker."""

    OBEY = "obey"
    """Always obeyed, whatever a crawl requests."""
    ALLOW_OVERRIDE = "allow-override"
    """Obeyed, except by crawls that request to ignore it."""
    IGNORE = "ignore"
    """Never fetched."""

    def applies(self, ignore: bool) -> bool:
        """Return whether robots.txt is obeyed for a crawl. `ignore`: the crawl requests to ignore it."""
        return self is RobotsPolicy.OBEY or (self is RobotsPolicy.ALLOW_OVERRIDE and not ignore)


class RobotsOutcome(StrEnum):
    """Meaning of a response to a request for robots.txt."""

    RULES = "rules"
    """The body holds the rules."""
    ALLOW_ALL = "allow_all"
    """There is no robots.txt: everything may be fetched."""
    DISALLOW_ALL = "disallow_all"
    """Nothing may be fetched: robots.txt is at an address to which connections are forbidden."""
    UNREACHABLE = "unreachable"
    """Nothing may be fetched until there is a useful response: there was none, or one with status 429 or 5xx."""


def classify_status(status: int) -> RobotsOutcome:
    """Return the meaning of the status at the end of a chain of redirects (RFC 9309, section 2.3.1).

    The caller follows redirects first. A redirect that leads nowhere, or too far, is passed on with its own status
    (3xx), and counts as an absent file. 429 is not among the 4xx that allow everything: a server that gets too many
    requests has not said that it has no rules.
    """
    if 200 <= status < 300:
        return RobotsOutcome.RULES
    if status >= 500 or status == 429 or status < 200:  # below 200 is no final status: the server is broken
        return RobotsOutcome.UNREACHABLE
    return RobotsOutcome.ALLOW_ALL  # 3xx and 4xx


def unreachable_delay(attempt: int, *, retry_after_seconds: float | None = None) -> float:
    """Return the seconds to block an unreachable origin after the `attempt`-th failure in a row; each block is twice as
    long as the one before.

    The first failure is attempt 1. `retry_after_seconds` is the server's Retry-After; it can only lengthen the block,
    up to _LONGEST_BLOCK_SECONDS.
    """
    # Sixteen doublings exceed the longest block by far; thousands would be an OverflowError.
    backoff = _FIRST_BLOCK_SECONDS * 2.0 ** min(max(attempt, 1) - 1, 16)
    return min(max(backoff, retry_after_seconds or 0.0), _LONGEST_BLOCK_SECONDS)


def crawl_delay(value: str) -> float | None:
    """Return the seconds of a Crawl-delay line, up to CRAWL_DELAY_CAP_SECONDS; None if they are not a finite number or
    are negative."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(seconds, CRAWL_DELAY_CAP_SECONDS) if 0 <= seconds < float("inf") else None


def product_token(user_agent: str) -> str:
    """Return the token by which a robots.txt names this user agent, in lower case (RFC 9309, section 2.2.1).

    It is the first token of the user agent. If that is `Mozilla`, with which the user agent of every browser begins, it
    is the token after `compatible;`, where search engines put their name. Empty if there is no such token: then only
    the group `*` applies. Fixed by RFC 9309: with another token, crawlers obey other rules.
    """
    text = user_agent.strip()
    if text.lower().startswith("mozilla/") and "compatible;" in text.lower():
        text = text[text.lower().index("compatible;") + len("compatible;") :].strip()
    return leading_word(text)


def asks_nofollow(lines: Iterable[str], user_agent: str) -> bool:
    """Return whether lines of `X-Robots-Tag` ask this user agent not to follow the links of a page.

    `nofollow` and `none` do. Directives behind `name:` are for the user agents with that token only, up to the end of
    the line; those for all hold beside them.
    """
    token = product_token(user_agent)
    for line in lines:
        agent = "*"
        for part in line.lower().split(","):
            match = _FOR_AGENT.match(part)
            if match is not None and match["agent"] not in _WITH_VALUE:
                agent, part = match["agent"], part[match.end() :]
            if agent in ("*", token) and not _NOFOLLOW.isdisjoint(part.split()):
                return True
    return False


_NOFOLLOW = frozenset(("nofollow", "none"))
_FOR_AGENT = re.compile(r"\s*(?P<agent>\*|[\w.-]+)(?:/[^\s:]*)?\s*:")
"""Beginning of directives that are for one user agent, in lower case."""
_WITH_VALUE = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))
"""Directives that have a value behind a colon, as the name of a user agent has directives."""

_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
"""Token of a user agent. RFC 9309 allows letters, `_` and `-`; here digits and dots count, too, so that the rules for
`bot` are not applied to `bot2`. Should not be changed: with another token, crawlers obey other rules."""


def leading_word(text: str) -> str:
    """Return the token at the beginning of the text, in lower case; empty if there is none."""
    found = _TOKEN.match(text)
    return found[0].lower() if found else ""
