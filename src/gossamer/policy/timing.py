"""Decisions about time: late requests, pauses between requests, missed heartbeats, and clocks of servers.

Each hit is charged for a certain moment. A request that is sent much later would come together with requests that were
charged for later moments.

A worker cannot compare its clock with the frontier's. It knows when it sent a call, how long the reply took, and how
long replies usually take. The reply may have been delayed by the difference, possibly after the hit was charged, so the
worker counts that difference as lateness. All times are in seconds; those of one call are on one monotonic clock.
"""

START_WITHIN_SECONDS = 0.1
"""Longest time after its start time in which a lease may be started; later, it goes back to its queue. With the limit
for sending, which depends on it, it bounds how much closer together a site may see hits than they were charged."""

_SEND_WITHIN = 1.5
"""A request that has no connection this many times `max_start_delay` after its start time is not sent. The rest of the
0.2 s, by which a site may see hits closer together than they were charged, is left for the network."""

_SHARE = 2 / 3
"""Share of the even gap by which a request may be late. Below 1, three requests in a row cannot come together."""
_LEAST_SECONDS = 0.02
"""Punctuality of an event loop; a busy one is less punctual. Where hits are closer together, returning late leases
could not keep them apart, and a busy worker would return most of its leases. There only `Pacing` spaces the
requests."""

_KEPT_SHARE = 0.6
"""Share of the time between two start times that is always kept. That time is at least nine tenths of the even gap, so
at least half the gap is kept."""
_DOMAINS_KEPT = 10_000
_GROWTH = 1.5
_STEP_SECONDS = 0.005


def round_trip_estimate(before: float, took: float) -> float:
    """Return a new estimate of the round-trip time, from the old one (0: none) and the time of the last reply.

    It falls at once and rises slowly, so that one delayed reply does not raise it, but a longer route does after some
    calls.
    """
    return min(took, before * _GROWTH + _STEP_SECONDS)


def max_start_delay(spacing: float) -> float:
    """Return how late a request may start where hits are `spacing` seconds apart (0: they may come together)."""
    if spacing < _LEAST_SECONDS:
        return START_WITHIN_SECONDS
    return min(START_WITHIN_SECONDS, max(_LEAST_SECONDS, _SHARE * spacing))


def send_by(start: float, spacing: float = 0.0) -> float:
    """Return the latest time at which a request may be sent whose hit was charged for `start`."""
    return start + _SEND_WITHIN * max_start_delay(spacing)


def is_late(start: float, spacing: float = 0.0, *, now: float) -> bool:
    """Return whether it is too late to begin a request whose hit was charged for `start`."""
    return now - start > max_start_delay(spacing)


class Pacing:
    """Spaces the requests that one process sends to a domain, also when several were delayed together.

    After a pause of the process, or when several requests waited for one robots.txt, all may be due at once. Each of
    them then keeps a share of the time that lies between its start time and that of the request before it. Hits of one
    scope have start times that are an even gap apart. Hits of two scopes (for example of two spiders) may have the same
    start time, and their requests start together.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        """By domain: the start time of its last request, and the time at which that started."""

    def next_start(self, domain: str, start: float, spacing: float, *, now: float) -> float | None:
        """Return the time at which a request with this start time may start, and reserve it.

        None: that time is too late for the request's hit.
        """
        at = max(now, start)
        last_start, last_at = self._last.get(domain, (start, at))
        if start > last_start:
            at = max(at, last_at + _KEPT_SHARE * (start - last_start))
        if is_late(start, spacing, now=at):
            return None
        if spacing and start >= last_start:
            if len(self._last) >= _DOMAINS_KEPT:
                self._last.clear()
            self._last[domain] = start, at
        return at


HEARTBEATS_BEFORE_DEATH = 3
"""Heartbeats that a worker sends in the time after which it is declared dead: two of them may be lost. Every interval
between heartbeats is computed from this. May be larger, at more calls; must be at least 3, or the timing of
`HeartbeatThread` in commit/worker_session.py fails."""


class LivenessJudge:
    """Tracks one process's connection to a shard of the frontier, to decide whether missed heartbeats count as deaths.

    While the frontier is unreachable, no worker can send heartbeats. After an outage every worker therefore gets
    `dead_after_seconds` before its silence counts as a death. A new process does not know whether there has just been
    an outage, so it declares no worker dead until `dead_after_seconds` after the first reply that it gets.
    """

    def __init__(self, dead_after_seconds: float) -> None:
        """`dead_after_seconds`: time without a heartbeat after which a worker counts as dead."""
        self._dead_after_seconds = dead_after_seconds
        self._disconnected = True
        self._trusted_from = float("-inf")

    def on_failure(self) -> None:
        """Record that a call to the frontier failed."""
        self._disconnected = True

    def on_reply(self, *, now: float, sent_at: float | None = None) -> None:
        """Record a reply.

        `sent_at`: time at which a call was sent whose reply takes no time to compute. If that took longer than the
        interval between two heartbeats, it counts as the end of an outage.
        """
        interval = self._dead_after_seconds / HEARTBEATS_BEFORE_DEATH
        if self._disconnected or (sent_at is not None and now - sent_at > interval):
            self._disconnected = False
            self._trusted_from = now + self._dead_after_seconds

    def may_declare_dead(self, now: float) -> bool:
        """Return whether workers without a recent heartbeat may be declared dead."""
        return not self._disconnected and now >= self._trusted_from


_CLOCK_SET_SECONDS = 1.0
"""Difference from the expected time beyond which a server's clock counts as set by a person or a time service."""
_COMPARE_SECONDS = 2.0
"""Time between two comparisons of the clocks."""
_DRIFT = 0.001
"""Seconds per second by which two clocks drift apart at most."""


class ServerClock:
    """One process's estimate of one server's clock, to notice when that clock is set.

    `now`, `sent` and `received` are readings of a monotonic clock of this process.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._error = 0.0
        self.compared_at = float("-inf")
        """Time at which the clocks were last compared."""
        self.corrections = 0
        """Number of corrections of the server's time, as of the last comparison."""

    def is_due(self, now: float) -> bool:
        """Return whether the server should be asked for its time again."""
        return now - self.compared_at >= _COMPARE_SECONDS

    def expected(self, now: float) -> float | None:
        """Return the time that the server's clock should have now. None before the first comparison."""
        return None if self._ahead is None else now + self._ahead

    def compare(self, *, sent: float, received: float, server_time: float, corrections: int) -> float:
        """Compare a reply with the server's time. Returns the seconds by which that time must be corrected.

        That is 0, unless the server's clock was set since the last comparison and no process has corrected its time.
        """
        middle, error = (sent + received) / 2, (received - sent) / 2
        ahead, elapsed = server_time - middle, received - self.compared_at
        if self._ahead is None or corrections > self.corrections:
            self._ahead, self._error = ahead, error
        else:
            jump = ahead - self._ahead
            if abs(jump) > _CLOCK_SET_SECONDS + error + self._error:
                return -jump
            known = self._error + _DRIFT * elapsed
            if error <= known:
                self._ahead, self._error = ahead, error
            else:
                self._error = known
        self.compared_at, self.corrections = received, corrections
        return 0.0

    def adopt(self, *, sent: float, received: float, server_time: float, corrections: int) -> None:
        """Take the server's time as correct, whatever was expected."""
        self._ahead, self._error = server_time - (sent + received) / 2, (received - sent) / 2
        self.compared_at, self.corrections = received, corrections
