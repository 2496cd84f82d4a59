"""Decides whether a hit may still be used.

Each hit is charged for a certain moment. Used much later, it would come together with hits that were charged for later
moments.

Neither side's clock is the other's. What is known is when the frontier was asked, how long its answer took, and how
long its answers usually take: what this one took beyond that, it was held up, perhaps after the charge.
"""

START_WITHIN_SECONDS = 0.1
"""A lease that could not be started so soon after its start time goes back."""

_SEND_WITHIN = 1.5
"""A request that has no connection when so many times `start_within` have passed since its start time is not sent. The
rest of the 0.2 s, by which a site may see hits closer together than they were charged, is the network's."""

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


def usual_seconds(before: float, took: float) -> float:
    """What an answer usually takes, from what it was taken for before (0: nothing is known) and the last one.

    Quickly down, slowly up: one that was held up is not believed, a way that has become longer is after some calls.
    """
    return min(took, before * _GROWTH + _STEP_SECONDS)


def start_within(spacing: float) -> float:
    """How many seconds a request may start late where hits are `spacing` seconds apart (0: they may come together)."""
    if spacing < _LEAST_SECONDS:
        return START_WITHIN_SECONDS
    return min(START_WITHIN_SECONDS, max(_LEAST_SECONDS, _SHARE * spacing))


def send_by(start: float, spacing: float = 0.0) -> float:
    """The latest moment, on the clock of `start`, at which a request may be sent on the hit for `start`."""
    return start + _SEND_WITHIN * start_within(spacing)


def is_late(start: float, spacing: float = 0.0, *, now: float) -> bool:
    """Whether a request that was to start then (both on one monotonic clock) may no longer begin."""
    return now - start > start_within(spacing)


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
