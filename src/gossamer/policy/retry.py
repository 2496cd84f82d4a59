"""Retry decisions: which failures are worth another attempt, and how long to wait.

Nothing here reads a clock or a random number; callers pass both. Fixed: a delay is never shorter than half its full
length (a failing server would be asked again at once), and a server's Retry-After may only lengthen it.
"""

from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import msgspec

from gossamer.model.request import DropReason, Outcome

Failure = str | int
"""The `kind` of a FetchError (such as `dns`), or the status of a response."""

RETRY_AFTER_CAP_SECONDS = 3600.0
"""Longest Retry-After that is obeyed; a longer one is more likely a mistake or an attack. A lower value retries against
the wish of more servers, a higher one lets a broken server keep requests waiting for longer."""

REFUSED = "refused_"
"""Beginning of the reasons of refused pages, before the kind of the refusal. Must not change: records have it."""
MISSING = f"{REFUSED}not_found"
"""Reason of a page with the status 200 that says that there is none. As a 404, it is not tried again."""

WORTH_A_RETRY: dict[Failure, bool] = {
    # Kinds of FetchError.
    "dns": True,  # a resolver may fail for minutes; a name that does not exist costs little, as its failure is cached
    "connect": True,
    "connect_timeout": True,
    "first_byte_timeout": True,
    "idle_timeout": True,
    "total_timeout": True,
    "connection_lost": True,
    "http2_needed": True,  # unless the server has said so
    "proxy": True,
    "fetch": True,  # an error without a more specific kind
    "tls": False,  # a certificate will not be replaced within minutes
    "blocked_address": False,  # another attempt would be another chance for DNS rebinding
    "bad_response": False,
    "headers_too_large": False,
    "not_sent_in_time": False,  # nothing failed: the request goes back to its queue
    "decode": False,
    "decode_bomb": False,
    "login_unanswered": True,
    "browser": False,
    "browser_refused": False,
    "browser_crashed": True,  # once: see BROWSER_ENDS
    "browser_hung": True,
    "browser_not_started": True,  # no attempt: the page was in no browser
    # Statuses. Any other status is a normal response.
    408: True,  # Request Timeout (RFC 9110)
    425: True,  # Too Early (RFC 8470)
    429: True,  # Too Many Requests (RFC 6585)
    500: True,
    502: True,
    503: True,
    504: True,
    520: True,  # 520 to 524: a well-known CDN got no response from the site behind it
    521: True,
    522: True,
    523: True,
    524: True,
}
"""True: the same request may succeed later. False: it would fail again in the same way. Every kind of FetchError must
have a row."""


BROWSER_ENDS: frozenset[Failure] = frozenset(("browser_crashed", "browser_hung"))
"""Failures of which a request has two at most: a page on which a browser ended twice would end each."""


class GiveUp(StrEnum):
    """Decision against another attempt, with its reason."""

    NOT_WORTH_IT = "not_worth_it"
    """The result is not a failure, or the failure would come again."""
    EXHAUSTED = "exhausted"
    """The failure is worth another attempt, but there were enough attempts."""


class Retry(msgspec.Struct, frozen=True):
    """Decision for another attempt, `delay_seconds` from now or later."""

    delay_seconds: float


def is_worth_a_retry(failure: Failure) -> bool:
    """Return whether a failure is worth another attempt. An unknown kind or status is not."""
    return WORTH_A_RETRY.get(failure, False)


def is_unanswered(outcome: Outcome, reason: str, status: int | None) -> bool:
    """Return whether a person who starts the crawl again expects another attempt: no whole response came (`status` is
    None, or the reason is the kind of a FetchError), or one that is worth a retry. What was dropped is a decision,
    except that a host may have got another address; and a site that refused may let the crawler in."""
    if outcome is Outcome.DROPPED:
        return reason == DropReason.BLOCKED_ADDRESS
    refused = reason.startswith(REFUSED) and reason != MISSING
    return status is None or refused or reason in WORTH_A_RETRY or is_worth_a_retry(status)


def is_answer(reason: str) -> bool:
    """Return whether a failure of this reason is an answer that another attempt would not change: `http_404`."""
    status = reason.removeprefix("http_")
    return reason == MISSING or (status != reason and not is_worth_a_retry(int(status)))


_LONGEST_DELAY_SECONDS = 600.0
"""Longest delay before a request is fetched again, unless its server asked for a longer one. A longer delay spares a
server that is down, and finishes a crawl with such a server later."""

# First and longest pause between calls to a service of the cluster that does not answer. Shorter pauses load a service
# that is starting again; a process may notice only after the longest pause that an outage is over.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0

_MOST_DOUBLINGS = 64
"""Must stay below 1024: 2.0 to that power is an OverflowError. Any base has reached any cap long before."""


def retry_delay(attempt: int, *, random: float, base_seconds: float, cap_seconds: float) -> float:
    """Return the seconds to wait after the `attempt`-th attempt (1 is the first): doubling from the base up to the cap.

    `random` in [0, 1) spreads the delay over the upper half of that ("equal jitter"), so that requests that failed
    together are not repeated together, and none is repeated at once. Raises ValueError for an attempt below 1.
    """
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, not {attempt}")
    full = min(cap_seconds, base_seconds * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))
    return full * (0.5 + 0.5 * random)


def outage_pause(failures: int, *, random: float) -> float:
    """Return the seconds to wait after the `failures`-th failure in a row (1 is the first) of a call to one of the
    cluster's own services: from the first pause, doubling to the longest, jittered as in `retry_delay`."""
    return retry_delay(failures, random=random, base_seconds=_FIRST_PAUSE_SECONDS, cap_seconds=_LONGEST_PAUSE_SECONDS)


def decide(
    failure: Failure,
    attempt: int,
    retries: int,
    *,
    random: float,
    base_seconds: float,
    retry_after_seconds: float | None = None,
) -> Retry | GiveUp:
    """Decide whether a request is tried again after its `attempt`-th attempt (1 is the first) ended in `failure`.

    `retries`: number of attempts that may follow the first; 0 means none. `base_seconds`: delay after the first
    attempt. `retry_after_seconds`: what the server asked for (see `parse_retry_after`); the delay is at least that, up
    to RETRY_AFTER_CAP_SECONDS.
    """
    if not is_worth_a_retry(failure):
        return GiveUp.NOT_WORTH_IT
    if attempt > retries:
        return GiveUp.EXHAUSTED
    delay = retry_delay(attempt, random=random, base_seconds=base_seconds, cap_seconds=_LONGEST_DELAY_SECONDS)
    return Retry(max(delay, min(retry_after_seconds or 0.0, RETRY_AFTER_CAP_SECONDS)))


def longest_retrying(attempt: int, retries: int, *, base_seconds: float, first_seconds: float) -> float:
    """Return the seconds after which the last retry begins at the latest, if the `attempt`-th attempt (1 is the first)
    has failed and so do all others. `first_seconds`: the delay before the next one. The rest as for `decide`."""
    later = range(attempt + 1, retries + 1)
    # `random` is 1: the full delay.
    return first_seconds + sum(
        retry_delay(one, random=1.0, base_seconds=base_seconds, cap_seconds=_LONGEST_DELAY_SECONDS) for one in later
    )


def parse_retry_after(value: str, *, now: float) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), from 0 to RETRY_AFTER_CAP_SECONDS.

    `value` is a number of seconds or a date in any of HTTP's three formats; `now` is Unix time in seconds. A date in
    the past gives 0.0. Returns None for a header that cannot be parsed.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        # However many digits there are: float() makes infinity of them, where int() would refuse thousands.
        return min(float(text), RETRY_AFTER_CAP_SECONDS)
    moment = _parse_http_date(text)
    return None if moment is None else min(max(moment - now, 0.0), RETRY_AFTER_CAP_SECONDS)


def _parse_http_date(text: str) -> float | None:
    """Return the Unix time of a date; None if it cannot be parsed."""
    from email.utils import parsedate_tz  # late: it loads slowly, and few servers send a date

    try:
        fields = parsedate_tz(text)
        if fields is None:
            return None
        year, month, day, hour, minute, second, *_, offset_seconds = fields
        zone = UTC if offset_seconds is None else timezone(timedelta(seconds=offset_seconds))
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
