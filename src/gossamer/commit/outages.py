"""Outages of outputs that belong to single applications: for how long one is tried, and when it is tried again."""

import asyncio
import time

import msgspec

from gossamer.telemetry.logs import Troubles

_PAUSES_UNTIL_FORGOTTEN = 3
"""Pauses without a failure after which an outage is forgotten. Must be more than 1: trials are a pause apart."""


class _AppOutage(msgspec.Struct):
    """The output of an application cannot be written."""

    since: float
    """Monotonic time of the first failure."""
    failed_at: float
    """Monotonic time of the latest one."""
    reason: str
    trial_at: float
    """Monotonic time of the next trial, after patience has ended."""


class AppOutages:
    """Outages by application. An output is tried for `patience_seconds`; after that, once in `pause_seconds`.

    An outage that no failure has confirmed for a while is forgotten, because its application may have nothing more to
    write. Must be made in a running event loop.
    """

    def __init__(
        self,
        troubles: Troubles,
        *,
        name: str,
        effect: str,
        end: str,
        patience_seconds: float,
        pause_seconds: float,
    ) -> None:
        """`name`: of the trouble that this process reports while there are outages. `effect`: sentence about the
        applications concerned; `end`: sentence for the end of the last outage."""
        self._troubles = troubles
        self._name = name
        self._effect = effect
        self._end = end
        self._patience_seconds = patience_seconds
        self._pause_seconds = pause_seconds
        self._outages: dict[str, _AppOutage] = {}

    def __contains__(self, appid: str) -> bool:
        return appid in self._outages

    def __bool__(self) -> bool:
        return bool(self._outages)

    def fail(self, appid: str, reason: str) -> bool:
        """Record a failure. Return whether the same should be tried again."""
        now = time.monotonic()
        outage = self._outages.get(appid)
        if outage is None:
            outage = self._outages[appid] = _AppOutage(now, now, reason, now)
            self._forget_later(appid, outage)
            self._report()
        outage.failed_at = now
        if now - outage.since < self._patience_seconds:
            return True
        outage.trial_at = now + self._pause_seconds
        return False

    def end(self, appid: str) -> None:
        """Record a success."""
        if self._outages.pop(appid, None) is not None:
            self._report()

    def reason(self, appid: str) -> str:
        """Return why the output cannot be written; empty: it can."""
        outage = self._outages.get(appid)
        return outage.reason if outage is not None else ""

    def seconds_to_trial(self, appid: str) -> float:
        """Return the time until the output is tried again. 0: it may be tried now."""
        outage = self._outages.get(appid)
        return max(0.0, outage.trial_at - time.monotonic()) if outage is not None else 0.0

    def begin_trial(self, appid: str) -> None:
        """Record that a trial begins: the next one is a pause later."""
        if (outage := self._outages.get(appid)) is not None:
            outage.trial_at = time.monotonic() + self._pause_seconds

    def _forget_later(self, appid: str, outage: _AppOutage) -> None:
        """Forget the outage when it was not confirmed for a while."""
        if self._outages.get(appid) is not outage:
            return
        left = outage.failed_at - time.monotonic() + self._patience_seconds
        left += _PAUSES_UNTIL_FORGOTTEN * self._pause_seconds
        if left <= 0:
            self.end(appid)
        else:
            asyncio.get_running_loop().call_later(left, self._forget_later, appid, outage)

    def _report(self) -> None:
        """Report the outputs that cannot be written, or that all can be."""
        if not self._outages:
            self._troubles.end(self._name, self._end)
            return
        reasons = "; ".join(f"{appid}: {outage.reason.rstrip('.')}" for appid, outage in self._outages.items())
        self._troubles.update(self._name, f"{reasons}. {self._effect}")
