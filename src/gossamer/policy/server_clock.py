"""Comparison of a server's clock with the process's own, to notice that the server's was set. Times are in seconds."""

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
