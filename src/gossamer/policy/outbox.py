"""Time that links of finished pages wait for those of other pages, so that one call adds them to a shard.

Shards are the servers that the frontier, the store of the requests that wait, is divided into. A call costs a server
far more than one more link in it. So links wait where a server is busy, and not at all where it has time.
"""

OUTBOX_SECONDS = 0.2
"""Longest wait. A longer one saves few calls more, and delays requests of sites whose turn comes soon."""
OUTBOX_LINKS = 1280
"""Links that wait for a shard at most. More would not fit into one call."""
_IDLE_LOAD, _BUSY_LOAD = 0.4, 0.6
"""Shares of a core that a server uses. Up to the first, links do not wait; from the second on, they wait longest. The
wait rises evenly between them: it lowers the load, so that a sudden change would make both swing."""


def outbox_wait(load: float) -> float:
    """Return how many seconds links wait where a server uses this share of a core."""
    share = (load - _IDLE_LOAD) / (_BUSY_LOAD - _IDLE_LOAD)
    return OUTBOX_SECONDS * min(1.0, max(0.0, share))
