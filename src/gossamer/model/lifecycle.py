"""Life cycle of a request in the frontier: its statuses, and every step that one can take to another.

The frontier's scripts take the steps. The header of each script names those that it may take (`-- transition:`). Tests
compare these lines with the table below, and with what the scripts do in the tests of the frontier's contract. A change
of one of the three needs the other two.
"""

from enum import StrEnum

from gossamer.errors import IllegalTransition


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
    """The worker reports the outcome `fetched`. The outcomes below it have the names of their events, too."""
    FAIL = "fail"
    DROP = "drop"
    RETRY = "retry"
    POSTPONE = "postpone"
    RETURN = "return"
    FORWARD = "forward"
    RECLAIM = "reclaim"
    """Its worker left, or was declared dead."""
    SUSPECT = "suspect"
    """The last worker that it may cost was declared dead. It waits, because that worker may still send a heartbeat."""
    DUE = "due"
    """Its time has come."""
    STOP = "stop"
    """Its crawl, or its spider's part of the crawl, was stopped or given up."""
    EXPIRE = "expire"
    """The time of its submission, or of its spider's part of the crawl, is over."""
    EXHAUST = "exhaust"
    """The page budget of its crawl, or of its crawl on its domain, is used up."""


_S, _E = RequestStatus, RequestEvent

TRANSITIONS: dict[tuple[RequestStatus, RequestEvent], RequestStatus] = {
    (_S.NEW, _E.ADD): _S.QUEUED,
    (_S.QUEUED, _E.LEASE): _S.LEASED,
    (_S.QUEUED, _E.STOP): _S.DROPPED,
    (_S.QUEUED, _E.EXPIRE): _S.DROPPED,
    (_S.QUEUED, _E.EXHAUST): _S.DROPPED,
    (_S.LATER, _E.DUE): _S.QUEUED,
    (_S.LATER, _E.STOP): _S.DROPPED,
    (_S.LATER, _E.EXPIRE): _S.DROPPED,
    (_S.LATER, _E.EXHAUST): _S.DROPPED,
    (_S.LEASED, _E.FETCH): _S.FETCHED,
    (_S.LEASED, _E.FAIL): _S.FAILED,
    (_S.LEASED, _E.DROP): _S.DROPPED,
    (_S.LEASED, _E.RETRY): _S.LATER,
    (_S.LEASED, _E.POSTPONE): _S.LATER,
    (_S.LEASED, _E.RETURN): _S.QUEUED,
    (_S.LEASED, _E.FORWARD): _S.QUEUED,
    (_S.LEASED, _E.RECLAIM): _S.QUEUED,
    (_S.LEASED, _E.SUSPECT): _S.LATER,
    (_S.LEASED, _E.STOP): _S.DROPPED,
    (_S.LEASED, _E.EXPIRE): _S.DROPPED,
}
"""A step that is not in the table cannot happen. The last two: the request comes back from its worker, and finds that
its crawl, or its spider's part, has ended. It cannot find the page budget used up, because it holds a page of it."""

FINAL = frozenset({RequestStatus.FETCHED, RequestStatus.FAILED, RequestStatus.DROPPED})
"""A request that has one of these statuses keeps it."""


def advance(status: RequestStatus, event: RequestEvent) -> RequestStatus:
    """Return the status after `event`. Raises IllegalTransition for a step that the table does not have."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise IllegalTransition(f"{status} by {event}") from None
