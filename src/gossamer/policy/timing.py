"""Decides whether a hit may still be used.

Each hit is charged for a certain moment. Used much later, it would come together with hits that were charged for later
moments.

Neither side's clock is the other's. What is known is when the frontier was asked, how long its answer took, and how
long its answers usually take: what this one took beyond that, it was held up, perhaps after the charge.
"""

START_WITHIN_SECONDS = 0.1
"""A lease that could not be started so soon after its start time goes back."""

_SEND_WITHIN = 1.5
"""A request that has no connection this many times `max_start_delay` after its start time is not sent. The rest of the
0.2 s, by which a site may see hits closer together than they were charged, is left for the network."""

_SHARE = 2 / 3
"""Of the even gap: three requests in a row cannot come together while none is later than the gap."""
_LEAST_SECONDS = 0.02
"""An event loop is not more punctual than this, and a busy one less. Where hits are closer, giving late leases back
could not keep them apart, and a busy worker would give back most of its leases: `Pacing` alone spaces them."""

_KEPT_SHARE = 0.6
"""Of the distance between two start times, which is nine tenths of the even gap or more: half the gap is kept."""
_DOMAINS_KEPT = 10_000
_GROWTH = 1.5
_STEP_SECONDS = 0.005


def round_trip_estimate(before: float, took: float) -> float:
    """What an answer usually takes, from what it was taken for before (0: nothing is known) and the last one.

    Quickly down, slowly up: one that was held up is not believed, a way that has become longer is after some calls.
    """
    return min(took, before * _GROWTH + _STEP_SECONDS)


def max_start_delay(spacing: float) -> float:
    """How many seconds a request may start late where hits are `spacing` seconds apart (0: they may come together)."""
    if spacing < _LEAST_SECONDS:
        return START_WITHIN_SECONDS
    return min(START_WITHIN_SECONDS, max(_LEAST_SECONDS, _SHARE * spacing))


def send_by(start: float, spacing: float = 0.0) -> float:
    """The latest moment, on the clock of `start`, at which a request may be sent on the hit for `start`."""
    return start + _SEND_WITHIN * max_start_delay(spacing)


def is_late(start: float, spacing: float = 0.0, *, now: float) -> bool:
    """Whether a request that was to start then (both on one monotonic clock) may no longer begin."""
    return now - start > max_start_delay(spacing)


class Pacing:
    """Keeps the requests that one process sends to a domain apart, also when several were held up together.

    After a pause of the process, or a robots.txt that several requests waited for, they may all be due at once. Each
    then keeps a share of the time by which it was to start after the one before it. The hits of one scope have start
    times that are an even gap apart; those of two scopes (of two spiders, say) may have the same, and go together.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        """By domain, of its last request: when it was to start, and when it started."""

    def next_start(self, domain: str, start: float, spacing: float, *, now: float) -> float | None:
        """Return when a request that was to start at `start` may start, and take that moment. None: by then it is too
        late for its hit."""
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


HEARTBEATS_PER_LIFETIME = 3
"""Heartbeats that a worker sends in the time after which it is declared dead: two of them may be lost. Every interval
between heartbeats is computed from this."""


class LivenessJudge:
    """Tracks one process's connection to a shard of the frontier, to decide whether missed heartbeats count as deaths.

    While the frontier is away, no worker can send a heartbeat. After an outage every worker therefore gets one
    heartbeat interval before its silence counts as a death. A new process does not know whether there was an outage a
    moment ago: until a heartbeat interval after its first answer it declares no worker dead.
    """

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._cut_off = True
        self._fair_from = float("-inf")

    def failed(self) -> None:
        """The frontier did not answer."""
        self._cut_off = True

    def answered(self, *, now: float, asked: float | None = None) -> None:
        """It answered. `asked`: something small, at that time; an answer that took longer than a third of a heartbeat,
        the time between two signs of life, came through an outage."""
        if self._cut_off or (asked is not None and now - asked > self._heartbeat_seconds / HEARTBEATS_PER_LIFETIME):
            self._cut_off = False
            self._fair_from = now + self._heartbeat_seconds

    def is_fair(self, now: float) -> bool:
        """Whether those who were not heard of by now count as dead."""
        return not self._cut_off and now >= self._fair_from


STEP_SECONDS = 1.0
"""A server's clock that differs by more from what was expected has been set."""
_LOOK_SECONDS = 2.0
_DRIFT = 0.001
"""Two clocks drift apart by at most this many seconds a second."""


class ServerClock:
    """What one process knows of one server's clock.

    `now`, `sent` and `received` are readings of a clock of this process that is never set.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._error = 0.0
        self.looked = float("-inf")
        """When the server's time was last asked for and taken in."""
        self.corrections = 0
        """How often the server's time was corrected, as of the last look."""

    def is_due(self, now: float) -> bool:
        """Return whether the server should be asked for its time again."""
        return now - self.looked >= _LOOK_SECONDS

    def expected(self, now: float) -> float | None:
        """Return what the server's clock shows now. None: it was never looked at."""
        return None if self._ahead is None else now + self._ahead

    def look(self, *, sent: float, received: float, shown: float, corrections: int) -> float:
        """Take in an answer with the server's time. Returns the seconds by which that time must be corrected.

        Not 0 when the server's clock was set since the last look, and nobody has corrected its time since.
        """
        middle, error = (sent + received) / 2, (received - sent) / 2
        ahead, elapsed = shown - middle, received - self.looked
        if self._ahead is None or corrections > self.corrections:
            self._ahead, self._error = ahead, error
        else:
            jump = ahead - self._ahead
            if abs(jump) > STEP_SECONDS + error + self._error:
                return -jump
            known = self._error + _DRIFT * elapsed
            if error <= known:
                self._ahead, self._error = ahead, error
            else:
                self._error = known
        self.looked, self.corrections = received, corrections
        return 0.0

    def adopt(self, *, sent: float, received: float, shown: float, corrections: int) -> None:
        """Believe the server's time, whatever was known of it before."""
        self._ahead, self._error = shown - (sent + received) / 2, (received - sent) / 2
        self.looked, self.corrections = received, corrections
