"""Spacing of the requests of one domain that a process sends after they were delayed together.

Times are in seconds, on one monotonic clock. The words are those of `lateness.py`.
"""

from gossamer.policy.lateness import SHORTEST_START_DELAY, is_late

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
