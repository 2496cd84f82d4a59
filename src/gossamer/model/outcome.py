"""How a request can end, and the words that say why. Counters, records, messages and metrics all use these."""

from enum import StrEnum


class Outcome(StrEnum):
    """What a worker reports of a lease. The first three end a request; the others send it back."""

    FETCHED = "fetched"
    FAILED = "failed"
    DROPPED = "dropped"
    RETRY = "retry"
    """Try again later, at lower priority; counts as an attempt."""
    POSTPONED = "postponed"
    """Not now, and not its fault (robots.txt cannot be had): later, at its priority, and not as an attempt."""
    RETURNED = "returned"
    """Not started; back to the front of its queue, and no attempt. Its hit is free again: nothing used it."""
    FORWARDED = "forwarded"
    """Back to the front of its domain with a new payload (a redirect that has no free hit yet)."""


class Dropped(StrEnum):
    """Why a request that entered the system, or a link that was found, is not fetched."""

    DUPLICATE = "duplicate"
    OFFSITE = "offsite"
    DEPTH = "depth"
    ROBOTS = "robots"
    BUDGET = "budget"
    STOPPED = "stopped"
    EXPIRED = "expired"
    BLACKLISTED = "blacklisted"
    BLOCKED_ADDRESS = "blocked_address"
    EXTENSION = "extension"
    FILTERED = "filtered"
    """Refused by allow or deny regex."""
    UNKNOWN_SPIDER = "unknown_spider"
    """For a spider that nobody runs."""
    NOFOLLOW = "nofollow"
    SCHEME = "scheme"
    BAD_URL = "bad_url"
    MOVED = "moved"
    """A redirect went on as another entry of the same request, under its own domain."""


class Settled(StrEnum):
    """What `settle` answers for each lease."""

    SETTLED = "settled"
    ALREADY = "already"
    """This worker settled it before: nothing happened now."""
    STALE_WORKER = "stale_worker"
    """The worker was taken for dead; its leases belong to others."""
