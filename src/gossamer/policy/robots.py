"""What an answer to a request for robots.txt means (RFC 9309, section 2.3.1), and how long to wait without one."""

from enum import StrEnum

LIFETIME_SECONDS = 24 * 3600.0
"""How long an answer holds (RFC 9309, section 2.4: at most 24 hours)."""

UNREACHABLE_LIMIT_SECONDS = 24 * 3600.0
"""After this long without an answer the origin's requests are dropped rather than kept waiting."""

MAX_BYTES = 500 * 1024
"""As much of a file as is read (RFC 9309, section 2.5: at least 500 KiB)."""

MAX_REDIRECTS = 5
"""As many in a row as are followed (RFC 9309, section 2.3.1.2: at least five)."""

CRAWL_DELAY_CAP_SECONDS = 60.0
"""The longest Crawl-delay that is honoured."""


class RobotsPolicy(StrEnum):
    """Whether robots.txt counts: the operator's choice, for all crawls of a worker."""

    OBEY = "obey"
    """It does, whatever a crawl asks for."""
    ALLOW_OVERRIDE = "allow-override"
    """It does, but for crawls that ask to ignore it."""
    IGNORE = "ignore"
    """It is not asked for."""

    def applies(self, ignore: bool) -> bool:
        """Whether robots.txt is asked for a crawl; `ignore`: the crawl's terms would rather not."""
        return self is RobotsPolicy.OBEY or (self is RobotsPolicy.ALLOW_OVERRIDE and not ignore)


class RobotsOutcome(StrEnum):
    """What the answer says about the origin."""

    RULES = "rules"
    """The body holds the rules."""
    ALLOW_ALL = "allow_all"
    """There is no robots.txt: everything may be fetched."""
    DISALLOW_ALL = "disallow_all"
    """Nothing may be fetched, and asking again soon would change nothing."""
    UNREACHABLE = "unreachable"
    """Nothing may be fetched until there is an answer."""


def classify_status(status: int) -> RobotsOutcome:
    """Of a status that ends a chain of redirects; a redirect that leads nowhere or too far counts as absent.

    429 is not among the 4xx that allow everything: a server that is asked too much has not said that it has no rules.
    """
    if 200 <= status < 300:
        return RobotsOutcome.RULES
    if status >= 500 or status == 429 or status < 200:
        return RobotsOutcome.UNREACHABLE
    return RobotsOutcome.ALLOW_ALL


def unreachable_delay(attempt: int, *, retry_after_seconds: float | None = None) -> float:
    """Seconds to block an unreachable origin after the `attempt`-th failure in a row: 60 s doubling to 1 h.

    The first failure is attempt 1. `retry_after_seconds`, what the server wished, can only lengthen it, up to
    the same hour.
    """
    backoff = 60.0 * 2.0 ** min(max(attempt, 1) - 1, 6)
    return min(max(backoff, retry_after_seconds or 0.0), 3600.0)


def crawl_delay(value: str) -> float | None:
    """Seconds that a Crawl-delay line asks for, up to the cap; None when it is no number, negative, or not finite."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(seconds, CRAWL_DELAY_CAP_SECONDS) if 0 <= seconds < float("inf") else None


def product_token(user_agent: str) -> str:
    """The word that a robots.txt would address this user agent by, in lower case (RFC 9309, section 2.2.1).

    The leading word of the product; where that is the `Mozilla` every browser begins with, the one that follows
    `compatible;`, as search engines' crawlers write it. Empty when there is none: only `*` applies then.
    """
    text = user_agent.strip()
    if text.lower().startswith("mozilla/") and "compatible;" in text.lower():
        text = text[text.lower().index("compatible;") + len("compatible;") :].strip()
    return leading_word(text)


def leading_word(text: str) -> str:
    """The token at the beginning of the text, in lower case. Digits and dots are taken too: `bot2` is not `bot`."""
    end = 0
    while end < len(text) and text[end].isascii() and (text[end].isalnum() or text[end] in "-_."):
        end += 1
    return text[:end].lower()
