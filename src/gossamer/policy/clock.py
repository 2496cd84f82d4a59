"""Compares a server's clock with a steady one, and notices when the server's clock is set. All times in seconds."""

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
