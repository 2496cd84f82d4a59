"""How late a hit is used: it is charged when the frontier hands a request out, and meant for then.

Neither side's clock is the other's. What is known is when the frontier was asked, how long its answer took, and how
long its answers usually take: what this one took beyond that, it was held up, perhaps after the charge.
"""

START_WITHIN_SECONDS = 0.1
"""A lease that could not be started so soon after its charge goes back; its hit was meant for then, not for later."""

SEND_WITHIN_SECONDS = 0.15
"""What has no connection so soon after its charge is not sent on it. The rest of 0.2 s is the network's."""

_GROWTH = 1.5
_STEP_SECONDS = 0.005


def usual_seconds(before: float, took: float) -> float:
    """What an answer usually takes, from what it was taken for before (0: nothing is known) and the last one.

    Quickly down, slowly up: one that was held up is not believed, a way that has become longer is after some calls.
    """
    return min(took, before * _GROWTH + _STEP_SECONDS)


def send_by(charged: float) -> float:
    """The latest moment, on the clock of `charged`, at which a request may be sent on that hit."""
    return charged + SEND_WITHIN_SECONDS


def is_late(charged: float, *, now: float) -> bool:
    """Whether what was charged then (both on one monotonic clock) may no longer begin."""
    return now - charged > START_WITHIN_SECONDS
