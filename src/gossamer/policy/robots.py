"""Decisions about robots.txt (RFC 9309): the meaning of a response, its lifetime, and the wait without a response."""

from enum import StrEnum

LIFETIME_SECONDS = 24 * 3600.0
"""Time for which a response is cached (RFC 9309, section 2.4: at most 24 hours)."""

UNREACHABLE_LIMIT_SECONDS = 24 * 3600.0
"""Time without a response after which the origin's requests are dropped instead of waiting."""

MAX_BYTES = 500 * 1024
"""Length up to which a file is read. It may be larger, not smaller (RFC 9309, section 2.5: at least 500 KiB)."""

MAX_REDIRECTS = 5
"""Number of redirects that are followed in a row. It may be larger, not smaller (RFC 9309, section 2.3.1.2)."""

CRAWL_DELAY_CAP_SECONDS = 60.0
"""Longest Crawl-delay that is obeyed."""


class RobotsPolicy(StrEnum):
    """The operator's choice whether robots.txt is obeyed, for all crawls of a worker."""

    OBEY = "obey"
    """Always obeyed, whatever a crawl requests."""
    ALLOW_OVERRIDE = "allow-override"
    """Obeyed, except by crawls that request to ignore it."""
    IGNORE = "ignore"
    """Never fetched."""

    def applies(self, ignore: bool) -> bool:
        """Return whether robots.txt is obeyed for a crawl. `ignore`: the crawl's terms request to ignore it."""
        return self is RobotsPolicy.OBEY or (self is RobotsPolicy.ALLOW_OVERRIDE and not ignore)


class RobotsOutcome(StrEnum):
    """Meaning of a response to a request for robots.txt."""

    RULES = "rules"
    """The body holds the rules."""
    ALLOW_ALL = "allow_all"
    """There is no robots.txt: everything may be fetched."""
    DISALLOW_ALL = "disallow_all"
    """Nothing may be fetched, and asking again soon would change nothing."""
    UNREACHABLE = "unreachable"
    """Nothing may be fetched until there is a response."""


def classify_status(status: int) -> RobotsOutcome:
    """Return the meaning of the status at the end of a chain of redirects (RFC 9309, section 2.3.1).

    A redirect that leads nowhere, or too far, counts as an absent file. 429 is not among the 4xx that allow everything:
    a server that gets too many requests has not said that it has no rules.
    """
    if 200 <= status < 300:
        return RobotsOutcome.RULES
    if status >= 500 or status == 429 or status < 200:
        return RobotsOutcome.UNREACHABLE
    return RobotsOutcome.ALLOW_ALL


def unreachable_delay(attempt: int, *, retry_after_seconds: float | None = None) -> float:
    """Return the seconds to block an unreachable origin after the `attempt`-th failure in a row: 60 s doubling to 1 h.

    The first failure is attempt 1. `retry_after_seconds` is the server's Retry-After; it can only lengthen the delay,
    up to the same hour.
    """
    backoff = 60.0 * 2.0 ** min(max(attempt, 1) - 1, 6)
    return min(max(backoff, retry_after_seconds or 0.0), 3600.0)


def crawl_delay(value: str) -> float | None:
    """Return the seconds of a Crawl-delay line, up to the cap; None if it is no number, negative, or not finite."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(seconds, CRAWL_DELAY_CAP_SECONDS) if 0 <= seconds < float("inf") else None


def product_token(user_agent: str) -> str:
    """Return the token by which a robots.txt names this user agent, in lower case (RFC 9309, section 2.2.1).

    It is the first token of the user agent. If that is `Mozilla`, with which every browser begins, it is the token
    after `compatible;`, where search engines put their name. Empty if there is none: then only the group `*` applies.
    """
    text = user_agent.strip()
    if text.lower().startswith("mozilla/") and "compatible;" in text.lower():
        text = text[text.lower().index("compatible;") + len("compatible;") :].strip()
    return leading_word(text)


def leading_word(text: str) -> str:
    """Return the token at the beginning of the text, in lower case. It may have digits and dots: `bot2` is not
    `bot`."""
    end = 0
    while end < len(text) and text[end].isascii() and (text[end].isalnum() or text[end] in "-_."):
        end += 1
    return text[:end].lower()
