"""Who may take workers for dead: whoever could have heard them. Times in seconds, on one monotonic clock."""


class Witness:
    """What one process knows of the way to the frontier.

    When the frontier was away, no worker could give a sign of life. Whoever is back first must not take the others for
    dead: it waits until they have had a heartbeat's time to speak.
    """

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._cut_off = False
        self._fair_from = float("-inf")

    def failed(self) -> None:
        """The frontier did not answer."""
        self._cut_off = True

    def answered(self, *, now: float, asked: float | None = None) -> None:
        """It answered. `asked`: something small, at that time; an answer that took longer than a third of a heartbeat,
        the time between two signs of life, came through an outage."""
        if self._cut_off or (asked is not None and now - asked > self._heartbeat_seconds / 3):
            self._cut_off = False
            self._fair_from = now + self._heartbeat_seconds

    def is_fair(self, now: float) -> bool:
        """Whether those who were not heard of by now count as dead."""
        return not self._cut_off and now >= self._fair_from
