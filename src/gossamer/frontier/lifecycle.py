"""Life cycle of a request in the frontier: its statuses, and every step that one can take to another.

The frontier's Lua scripts take the steps. The header of each script names those that it may take (`-- transition:`);
a test compares these lines with TRANSITIONS, and the reference model in the contract tests takes its steps from this
table alone.
"""

from enum import StrEnum


class IllegalTransition(Exception):
    """A request cannot go from this status by this event."""


class RequestStatus(StrEnum):
    """Status of a request."""

    NEW = "new"
    """The frontier does not have it yet."""
    QUEUED = "queued"
    """In the queue of its crawl, spider, domain and priority."""
    LATER = "later"
    """Waits for a time before it may be queued again."""
    LEASED = "leased"
    """Leased by a worker."""
    FETCHED = "fetched"
    FAILED = "failed"
    DROPPED = "dropped"


class RequestEvent(StrEnum):
    """Event in the life of a request."""

    ADD = "add"
    LEASE = "lease"
    FETCH = "fetch"
    """The worker reports the outcome `fetched`. The events from here to SWITCH are the outcomes that a worker can
    report (`Outcome` in model/request.py)."""
    FAIL = "fail"
    DROP = "drop"
    RETRY = "retry"
    POSTPONE = "postpone"
    RETURN = "return"
    FORWARD = "forward"
    SWITCH = "switch"
    """It goes on in the other lane: rendered in a browser, or no longer."""
    RECLAIM = "reclaim"
    """Its worker left, or was declared dead."""
    SUSPECT = "suspect"
    """As many workers as MAX_DEATHS were declared dead while they held it. It waits before it is given up, because the
    last of them may be late only, and send a heartbeat."""
    DUE = "due"
    """Its time has come."""
    STOP = "stop"
    """Its crawl, or its spider's part of the crawl, was stopped or given up."""
    EXPIRE = "expire"
    """The time of its submission, or of its spider's part of the crawl, is over."""
    EXHAUST = "exhaust"
    """The page budget of its crawl, or of its crawl on its domain, is used up."""
    LOSE = "lose"
    """The server lost it with a part of its writes."""
    REVIVE = "revive"
    """A person starts its crawl again: what got no answer is fetched once more."""
    FETCHED_BEFORE = "fetched_before"
    """A record shows that it was fetched before the frontier lost it. So do the next two for their statuses."""
    FAILED_BEFORE = "failed_before"
    DROPPED_BEFORE = "dropped_before"
    LATER_BEFORE = "later_before"
    """It waits for a time, and its crawl was moved here from another frontier."""


TRANSITIONS: dict[tuple[RequestStatus, RequestEvent], RequestStatus] = {
    (RequestStatus.NEW, RequestEvent.ADD): RequestStatus.QUEUED,
    (RequestStatus.NEW, RequestEvent.LATER_BEFORE): RequestStatus.LATER,
    (RequestStatus.NEW, RequestEvent.FETCHED_BEFORE): RequestStatus.FETCHED,
    (RequestStatus.NEW, RequestEvent.FAILED_BEFORE): RequestStatus.FAILED,
    (RequestStatus.NEW, RequestEvent.DROPPED_BEFORE): RequestStatus.DROPPED,
    (RequestStatus.QUEUED, RequestEvent.LEASE): RequestStatus.LEASED,
    (RequestStatus.QUEUED, RequestEvent.STOP): RequestStatus.DROPPED,
    (RequestStatus.QUEUED, RequestEvent.EXPIRE): RequestStatus.DROPPED,
    (RequestStatus.QUEUED, RequestEvent.EXHAUST): RequestStatus.DROPPED,
    (RequestStatus.LATER, RequestEvent.DUE): RequestStatus.QUEUED,
    (RequestStatus.LATER, RequestEvent.STOP): RequestStatus.DROPPED,
    (RequestStatus.LATER, RequestEvent.EXPIRE): RequestStatus.DROPPED,
    (RequestStatus.LATER, RequestEvent.EXHAUST): RequestStatus.DROPPED,
    (RequestStatus.LEASED, RequestEvent.FETCH): RequestStatus.FETCHED,
    (RequestStatus.LEASED, RequestEvent.FAIL): RequestStatus.FAILED,
    (RequestStatus.LEASED, RequestEvent.DROP): RequestStatus.DROPPED,
    (RequestStatus.LEASED, RequestEvent.RETRY): RequestStatus.LATER,
    (RequestStatus.LEASED, RequestEvent.POSTPONE): RequestStatus.LATER,
    (RequestStatus.LEASED, RequestEvent.RETURN): RequestStatus.QUEUED,
    (RequestStatus.LEASED, RequestEvent.FORWARD): RequestStatus.QUEUED,
    (RequestStatus.LEASED, RequestEvent.SWITCH): RequestStatus.QUEUED,
    (RequestStatus.LEASED, RequestEvent.RECLAIM): RequestStatus.QUEUED,
    (RequestStatus.LEASED, RequestEvent.SUSPECT): RequestStatus.LATER,
    (RequestStatus.LEASED, RequestEvent.STOP): RequestStatus.DROPPED,
    (RequestStatus.LEASED, RequestEvent.EXPIRE): RequestStatus.DROPPED,
    (RequestStatus.QUEUED, RequestEvent.LOSE): RequestStatus.DROPPED,
    (RequestStatus.LATER, RequestEvent.LOSE): RequestStatus.DROPPED,
    (RequestStatus.LEASED, RequestEvent.LOSE): RequestStatus.DROPPED,
    (RequestStatus.FAILED, RequestEvent.REVIVE): RequestStatus.QUEUED,
    (RequestStatus.DROPPED, RequestEvent.REVIVE): RequestStatus.QUEUED,
}
"""Status after each step. A step that is not in the table cannot happen. LEASED by STOP or EXPIRE: the request comes
back from its worker, and finds that its crawl, or its spider's part, has ended. It cannot find the page budget used up,
because it holds a page of it."""

FINAL = frozenset({RequestStatus.FETCHED, RequestStatus.FAILED, RequestStatus.DROPPED})
"""Statuses of a request that has ended. Only REVIVE leads out of them."""


def advance(status: RequestStatus, event: RequestEvent) -> RequestStatus:
    """Return the status after `event`. Raises IllegalTransition for a step that the table does not have."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise IllegalTransition(f"{status} by {event}") from None
