"""Decisions on whether a worker that is silent counts as dead.

Times are in seconds, on one monotonic clock of the process that decides. Nothing here is stored, so workers of two
versions may run side by side.
"""

HEARTBEATS_BEFORE_DEATH = 3
"""Heartbeats that a worker sends in the time after which it is declared dead: one less may be lost. Every interval
between heartbeats is computed from this. With less than 3, the pauses of the heartbeat thread
(commit/worker_session.py) would be longer than that time allows."""

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
