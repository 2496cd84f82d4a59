"""The life of a request: one table, and nothing else decides it (design: the life of a request)."""

from enum import StrEnum

from gossamer.errors import IllegalTransition


class Status(StrEnum):
    DISCOVERED = "discovered"
    LEASED = "leased"
    LATER = "later"
    FETCHED = "fetched"
    FAILED = "failed"
    DROPPED = "dropped"


class Event(StrEnum):
    LEASE = "lease"
    SETTLE_FETCHED = "settle_fetched"
    SETTLE_FAILED = "settle_failed"
    SETTLE_DROPPED = "settle_dropped"
    RETRY = "retry"
    DUE = "due"
    RETURN = "return"
    RECLAIM = "reclaim"
    WORKER_DIED = "worker_died"
    STOP = "stop"
    EXPIRE = "expire"
    EXHAUST = "exhaust"


NEXT: dict[tuple[Status, Event], Status] = {
    (Status.DISCOVERED, Event.LEASE): Status.LEASED,
    (Status.LEASED, Event.SETTLE_FETCHED): Status.FETCHED,
    (Status.LEASED, Event.SETTLE_FAILED): Status.FAILED,
    (Status.LEASED, Event.SETTLE_DROPPED): Status.DROPPED,
    (Status.LEASED, Event.RETRY): Status.LATER,
    (Status.LATER, Event.DUE): Status.DISCOVERED,
    (Status.LEASED, Event.RETURN): Status.DISCOVERED,
    (Status.LEASED, Event.RECLAIM): Status.DISCOVERED,
    (Status.LEASED, Event.WORKER_DIED): Status.FAILED,
    (Status.DISCOVERED, Event.STOP): Status.DROPPED,
    (Status.LATER, Event.STOP): Status.DROPPED,
    (Status.DISCOVERED, Event.EXPIRE): Status.DROPPED,
    (Status.LATER, Event.EXPIRE): Status.DROPPED,
    (Status.DISCOVERED, Event.EXHAUST): Status.DROPPED,
    (Status.LATER, Event.EXHAUST): Status.DROPPED,
}
"""What is not in the table cannot happen. EXHAUST: the crawl's page budget is used up."""

ENDS = frozenset({Status.FETCHED, Status.FAILED, Status.DROPPED})


def advance(status: Status, event: Event) -> Status:
    """The state after `event`; raises IllegalTransition where the table has no such step."""
    try:
        return NEXT[status, event]
    except KeyError:
        raise IllegalTransition(f"{status} by {event}") from None
