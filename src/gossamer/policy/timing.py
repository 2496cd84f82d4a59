"""Decisions about time: late requests, pauses between requests, missed heartbeats, and clocks of servers.

Five parts, each with a comment above it: when a request is too late; `Pacing` keeps requests of one domain apart;
`SlowHosts` allows for hosts where connecting takes long; `LivenessJudge` decides whether a silent worker counts as
dead; `ServerClock` notices that a server's clock was set. All times are in seconds; those of one call are on one
monotonic clock. Words:

- hit: one request that a site gets
- start time: the moment for which the frontier, the cluster's store of requests, charges a hit to the site's budget
- lease: a request that the frontier has handed to a worker; a worker returns a lease whose request it cannot send in
  time, and the request goes back to its queue for another hit

Nothing here is stored, so workers of two versions may run side by side. The limits of lateness and spacing may become
stricter, at the cost that their docstrings name; looser ones break what docs/explanation/guarantees.md promises to
sites.
"""

from typing import NamedTuple

# --- when a request is too late ---------------------------------------------------------------------------------------
#
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
"""Longest time after its start time in which a request may be begun. Busy workers then return more leases."""

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


# --- requests that were delayed together ------------------------------------------------------------------------------

_KEPT_SHARE = 0.6
"""Share of the time between two start times that `Pacing` always keeps. The frontier's scripts hand out start times at
least 0.9 of the even gap apart (CATCH_UP in windows.lua), so 0.54 of the gap is kept: more than the half that is
promised. At most 1; with larger ones, more requests become too late after a stall."""
_MAX_PACED_DOMAINS = 10_000
"""Domains whose last request `Pacing` remembers. More take memory; when there are more, all are forgotten, and two
requests of each may come closer together once."""


class Pacing:
    """Spaces the requests that one process sends to a domain, also when several were delayed together.

    After a pause of the process, or when several requests waited for one robots.txt, all may be due at once. Each of
    them then keeps a share of the time that lies between its start time and that of the request before it. Example:
    requests are charged for 0, 10 and 20 ms, and the process pauses until 50 ms. They start at 50, 56 and 62 ms.

    Hits of one budget have start times that are an even gap apart. Hits of two budgets of the domain (for example of
    two spiders) may have the same start time, and their requests start together.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        """By domain: the start time of its last request, and the time at which that request really started."""

    def next_start(self, domain: str, start: float, spacing: float, *, now: float) -> float | None:
        """Return the time at which a request with this start time may start, and reserve it.

        None: that time is too late for the request's hit.
        """
        # Comparisons instead of `max`, which takes longer, because this runs for every request.
        at = start if start > now else now
        last = self._last.get(domain)
        if last is not None and start > last[0]:
            earliest = last[1] + _KEPT_SHARE * (start - last[0])
            if earliest > at:
                at = earliest
        if at - start > SHORTEST_START_DELAY and is_late(start, spacing, now=at):
            return None
        if spacing and (last is None or start >= last[0]):
            if len(self._last) >= _MAX_PACED_DOMAINS:
                self._last.clear()
            self._last[domain] = start, at
        return at


# --- hosts that connect slowly ----------------------------------------------------------------------------------------
#
# A request that could not be sent in time leaves its new connection to the next request to the host. But the host may
# close this connection first. Then the next request has to connect again, and could not be sent in time, either: a host
# where connecting always takes long would never be fetched. Therefore requests to such a host get an allowance: they
# may be sent later, by about the time that connecting takes there. Since all of them are late by about the same time,
# they still reach the site apart from each other. Example, for a host where connecting takes 0.4 s:
#
#   first request     may be sent until 0.15 s after its start time; it connects until 0.4 s and is not sent
#   allowance         the smaller of 1.25 * 0.4 s and 0.2 s: 0.2 s
#   second request    may be sent until 0.35 s; it connects until 0.4 s and is not sent
#   allowance         the smaller of 1.25 * 0.4 s and 2 * 0.2 s + 0.2 s: 0.5 s
#   third request     may be sent until 0.65 s; it connects until 0.4 s and is sent
#
# Only the time that connecting takes the network and the server counts: the HTTP client subtracts stalls of its own
# process (telemetry/stalls.py). After a stall of the network, connecting has taken long at every host. Requests that
# were held up so must not be sent together afterwards. So the allowance rises in steps, and only once for one stall.

_SLOW_HOST_SECONDS = 10.0
"""Time for which a host is known to connect slowly. Must be long enough for a request whose lease was returned to be
leased again, or a host that always connects slowly is never fetched."""
_MAX_SLOW_HOSTS = 10_000
"""Slow hosts that are known at once. When there are more, all are forgotten."""
_ALLOWANCE_STEP_SECONDS = 0.2
"""The allowance of a slow host rises at most to twice the last one and this much more: to 0.2 s, then 0.6 s, then 1.4
s. With a larger step, fewer leases are returned until the allowance suffices, but after a stall of the network,
requests that were connecting may come closer together by as much as this step."""

_VARIATION = 1.25
"""Allowance as a multiple of the time that connecting took, because it never takes the same. With less, more leases are
returned; with more, requests may come closer together after a stall."""


class _SlowHost(NamedTuple):
    """A host where connecting takes long. Times on the monotonic clock."""

    allowance: float
    """Seconds by which a request may be sent later."""
    raised_at: float
    """Time at which the allowance was raised last."""
    known_until: float
    """Time at which the host is forgotten."""


class SlowHosts:
    """Hosts where requests were not sent in time because connecting took too long, each with its allowance.

    The comment above has the reason and an example. The allowance follows the time that connecting takes. A request
    that takes much longer than the allowance was held up by something else, and is not sent.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _SlowHost] = {}

    def __bool__(self) -> bool:
        return bool(self._hosts)

    def allowance(self, host: str, *, now: float) -> float:
        """Return by how many seconds more a request to this host may be late; 0 for a host that connects in time."""
        known = self._hosts.get(host)
        if known is None:
            return 0.0
        if now < known.known_until:
            return known.allowance
        del self._hosts[host]
        return 0.0

    def on_late(self, host: str, *, took: float, allowed: float, began: float, now: float) -> None:
        """Record that a request was not sent in time, because connecting took so long.

        `took`: seconds that connecting took, without stalls of this process. `allowed`: the request's allowance.
        `began`: when the request asked for that allowance. Of the requests that were connecting at once, only the first
        one raises the allowance: the others began before it was raised. So a single stall does not raise it several
        times.
        """
        allowance, raised_at, _ = self._hosts.get(host, (0.0, float("-inf"), 0.0))
        if began >= raised_at:  # the allowance was not raised while this request was connecting
            allowance, raised_at = min(_VARIATION * took, 2 * allowed + _ALLOWANCE_STEP_SECONDS), now
        if len(self._hosts) >= _MAX_SLOW_HOSTS:
            self._hosts.clear()
        self._hosts[host] = _SlowHost(allowance, raised_at, now + _SLOW_HOST_SECONDS)

    def on_connected(self, host: str, *, took: float, now: float) -> None:
        """Record that a request was sent in time on a new connection. If connecting took less than half of the host's
        allowance, the allowance is lowered. Does nothing for a host that is not known."""
        known = self._hosts.get(host)
        if known is not None:
            allowance = known.allowance if took > known.allowance / 2 else _VARIATION * took
            self._hosts[host] = _SlowHost(allowance, known.raised_at, now + _SLOW_HOST_SECONDS)


# --- silent workers ---------------------------------------------------------------------------------------------------

HEARTBEATS_BEFORE_DEATH = 3
"""Heartbeats that a worker sends in the time after which it is declared dead: one less may be lost. Every interval
between heartbeats is computed from this. With less than 3, the pauses of the
heartbeat thread (commit/worker_session.py) would be longer than that time allows."""

_STALL_SHARE = 1 / 4
"""Share of `dead_after_seconds` after which a call without a reply counts as an outage. May be lower, which delays the
detection of deaths on slow connections. May be higher, but must stay below 0.26, as this example shows.

Let `dead_after_seconds` be 10 s. The longest interval between two heartbeats is then 3.7 s: a third, plus the 10 % by
which intervals vary (_JITTER in commit/worker_session.py). An outage delays all calls without breaking connections:

     0.0 s  another worker sends its last heartbeat before the outage
     3.7 s  the outage begins, just before that worker's next heartbeat; this process has just had a reply
     7.4 s  this process sends its next call, one interval later; no reply comes
    10.0 s  the other worker counts as dead, although it lives; this process has waited for 2.6 s
    10.1 s  the outage ends: this process gets its reply, and may find that worker before its heartbeat arrives

At 10.0 s this process must already take its 2.6 s without a reply for an outage. It does so after 2.5 s."""


class LivenessJudge:
    """Tracks one process's connection to a shard of the frontier, to decide whether missed heartbeats count as deaths.

    While the frontier is unreachable, no worker can send heartbeats. After an outage every worker therefore gets
    `dead_after_seconds` before its silence counts as a death. A new process does not know whether there has just been
    an outage, so it declares no worker dead until `dead_after_seconds` after the first reply that it gets. An outage
    may also delay calls without breaking a connection: a call without a reply for _STALL_SHARE of the time counts as
    one.
    """

    def __init__(self, dead_after_seconds: float) -> None:
        """`dead_after_seconds`: time without a heartbeat after which a worker counts as dead."""
        self._dead_after_seconds = dead_after_seconds
        self._disconnected = True
        self._trusted_from = float("-inf")
        self._sent_at: float | None = None
        """When the call that has no reply yet was sent."""

    def on_call(self, now: float) -> None:
        """Record that a call is sent now. Only for calls that the server answers at once, and one at a time."""
        self._sent_at = now

    def on_failure(self) -> None:
        """Record that a call to the frontier failed."""
        self._disconnected = True
        self._sent_at = None

    def on_reply(self, now: float) -> None:
        """Record a reply. If it took too long, it counts as the end of an outage."""
        if self._disconnected or self._is_stalled(now):
            self._disconnected = False
            self._trusted_from = now + self._dead_after_seconds
        self._sent_at = None

    def may_declare_dead(self, now: float) -> bool:
        """Return whether workers without a recent heartbeat may be declared dead. To be asked immediately before they
        are: an answer from before a wait may be outdated."""
        return not self._disconnected and now >= self._trusted_from and not self._is_stalled(now)

    def _is_stalled(self, now: float) -> bool:
        """Return whether the call without a reply was sent too long ago."""
        return self._sent_at is not None and now - self._sent_at > self._dead_after_seconds * _STALL_SHARE


# --- clocks of servers ------------------------------------------------------------------------------------------------

_CLOCK_SET_SECONDS = 1.0
"""Difference from the expected time beyond which a server's clock counts as set by a person or a time service. Must
equal CLOCK_STEP in the frontier's shard.lua, whose scripts refuse calls with a larger difference."""
_COMPARE_SECONDS = 2.0
"""Time between two comparisons of the clocks. A shorter time costs calls; over a longer one the clocks drift apart
further, which must stay far below _CLOCK_SET_SECONDS."""
_DRIFT = 0.001
"""Seconds per second by which two clocks drift apart at most. Comparisons by slow replies are then believed sooner. Not
below 0.0005, by which time services correct a clock."""


class ServerClock:
    """One process's estimate of one server's time, to notice when the server's clock is set.

    The server's time is its clock plus an offset that the server stores. When the clock is set back by a minute, one
    process corrects the offset by a minute, so that the server's time goes on evenly for all. `corrections` is how
    often that has been done; the server returns it with its time. `now`, `sent` and `received` are readings of a
    monotonic clock of this process.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        """Seconds by which the server's time is ahead of this process's clock."""
        self._error = 0.0
        """Seconds by which `_ahead` may be wrong, as of the last comparison."""
        self.compared_at = float("-inf")
        """Time at which the clocks were last compared."""
        self.corrections = 0
        """Number of corrections of the server's time, as of the last comparison."""

    def is_due(self, now: float) -> bool:
        """Return whether the server should be asked for its time again."""
        return now - self.compared_at >= _COMPARE_SECONDS

    def expected(self, now: float) -> float | None:
        """Return what the server's time should be now. None before the first comparison."""
        return None if self._ahead is None else now + self._ahead

    def compare(self, *, sent: float, received: float, server_time: float, corrections: int) -> float:
        """Compare the server's time in a reply with the expected one. Returns the seconds by which the server's time
        must be corrected: 0, unless its clock was set and no process has corrected its time since.

        There are four cases:
        - first comparison, or a process has corrected the server's time since the last one: the reply is believed
        - the time has jumped by more than the clocks' errors explain: the correction is returned, nothing is recorded
        - the reply was quick, so that it is more exact than the old estimate by now: it replaces the estimate
        - the reply was slow: the old estimate stays, and has become less exact
        """
        # The server read its clock at some time between `sent` and `received`.
        ahead, error = server_time - (sent + received) / 2, (received - sent) / 2
        if self._ahead is None or corrections > self.corrections:
            self._ahead, self._error = ahead, error
        else:
            jump = ahead - self._ahead
            if abs(jump) > _CLOCK_SET_SECONDS + error + self._error:
                return -jump
            error_by_now = self._error + _DRIFT * (received - self.compared_at)
            if error <= error_by_now:
                self._ahead, self._error = ahead, error
            else:
                self._error = error_by_now
        self.compared_at, self.corrections = received, corrections
        return 0.0

    def adopt(self, *, sent: float, received: float, server_time: float, corrections: int) -> None:
        """Accept the server's time as correct, whatever was expected."""
        self._ahead, self._error = server_time - (sent + received) / 2, (received - sent) / 2
        self.compared_at, self.corrections = received, corrections
