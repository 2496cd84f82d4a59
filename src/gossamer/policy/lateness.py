"""Decisions on when a request is too late for the hit that was charged for it. Words:

- hit: one request that a site gets
- start time: the moment for which the frontier, the cluster's store of requests, charges a hit to the site's budget
- lease: a request that the frontier has handed to a worker; a worker returns a lease whose request it cannot send in
  time, and the request goes back to its queue for another hit

Times are in seconds; those of one call are on one monotonic clock. The limits may become stricter, at the cost that
their docstrings name; looser ones break what docs/explanation/guarantees.md promises to sites.
"""


# A request that is sent long after its start time would reach the site together with requests whose start times are
# later. With hits 1 s apart (start times 0 s, 1 s, 2 s ...), the limits below mean for the first one:
#
#   0.00 s  its start time
#   0.10 s  until then, the worker may begin with it (`is_late`); later, the worker returns its lease
#   0.15 s  until then, it may be sent if connecting took that long (`send_by`); later, its lease is returned, too
#   1.00 s  the start time of the next one, which reaches the site at least 0.85 s after the first
#
# With hits 0.06 s apart, the limits are 0.04 s and 0.06 s.
#
# A worker cannot compare its clock with the frontier's, so it estimates the start time. It knows when it sent a call,
# how long the reply took, and how long replies usually take (`round_trip_estimate`). Example: replies usually take
# 2 ms, and this one took 300 ms. If only the reply was held up, the hit was charged nearly 300 ms ago. The worker
# assumes this worst case and counts the hit as that late. Time for which the worker's own process stood still while it
# waited is no part of how long replies take: it has held the reply up.

START_WITHIN_SECONDS = 0.1
"""Longest time after its start time in which a request may be begun. With a shorter one, busy workers return more
leases."""

_SEND_WITHIN_FACTOR = 1.5
"""The longest time until a request is sent, as a multiple of the longest time until it is begun (`max_start_delay`
below). Below 1, or no time is left for connecting.

The product with START_WITHIN_SECONDS is the longest lateness, 0.15 s. So if one request is that late and the next is
punctual, they are sent 0.15 s closer together than their start times. Sites are promised at most 0.2 s; the remaining
0.05 s are left for differences of the network."""

_MAX_DELAY_SHARE = 2 / 3
"""Share of the even gap (the time between two hits that follow each other evenly) by which a request may begin late.

_SEND_WITHIN_FACTOR times this must not exceed 1, and is 1 now: a request is sent at the latest at the next start time.
Example, with start times 0, 60 and 120 ms: the first may be sent at 60 ms, together with the second; the third is not
sent before 120 ms. So two may come together, but never three."""
_EVENT_LOOP_SECONDS = 0.02
"""Delay that every request may have, because a busy event loop is not more punctual.

Where hits are closer together than this, returning late leases could not keep them apart, and a busy worker would
return most of its leases. There the limit is START_WITHIN_SECONDS again, and only `Pacing` keeps the requests apart.
Busy workers then return more leases."""

# One reply raises the estimate of the round-trip time to at most the old estimate times this factor, plus these
# seconds. Larger values let one delayed reply hide that its request is late; with smaller ones a worker returns
# requests for longer after the network has become slower.
_RISE_FACTOR = 1.5
_RISE_SECONDS = 0.005


def round_trip_estimate(before: float, took: float) -> float:
    """Return a new estimate of the round-trip time, from the old one (0: none) and the time of the last reply, without
    stalls of this process.

    The estimate falls at once and rises slowly: one delayed reply raises it only a little, a longer route raises it to
    the new time within some calls. The first estimate is at most 5 ms: the first reply, too, may have been delayed.
    """
    return min(took, before * _RISE_FACTOR + _RISE_SECONDS)


SHORTEST_START_DELAY = min(_EVENT_LOOP_SECONDS, START_WITHIN_SECONDS)
"""The least that `max_start_delay` returns: a request that begins within this time of its start is never late."""


def max_start_delay(spacing: float) -> float:
    """Return how late a request may begin where hits are `spacing` seconds apart (0: they may come together)."""
    if spacing < _EVENT_LOOP_SECONDS:
        return START_WITHIN_SECONDS  # longer than for a spacing just above: see _EVENT_LOOP_SECONDS
    return min(START_WITHIN_SECONDS, max(_EVENT_LOOP_SECONDS, _MAX_DELAY_SHARE * spacing))


def send_by(start: float, spacing: float = 0.0) -> float:
    """Return the latest time at which a request with this start time may be sent."""
    return start + _SEND_WITHIN_FACTOR * max_start_delay(spacing)


def is_late(start: float, spacing: float = 0.0, *, now: float) -> bool:
    """Return whether it is too late to begin a request with this start time."""
    return now - start > max_start_delay(spacing)
