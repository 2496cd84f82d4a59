"""Whose robots.txt cannot be had now: what the requests of those origins wait for, so that a person can be told."""

import time
from collections.abc import Callable

from gossamer.telemetry.tally import Tally, Wait
from gossamer.telemetry.troubles import Troubles

_TROUBLE = "robots"
_KEPT = 10_000
_SHOWN = 20
_GRACE_SECONDS = 60.0
"""An origin that was not heard of for so long after it was due is another worker's by now, or nobody's."""


class Waits:
    """Origins whose robots.txt is waited for, as far as this worker met them. Bounded."""

    def __init__(self, troubles: Troubles, *, now: Callable[[], float] = time.time) -> None:
        self._troubles = troubles
        self._now = now
        self._by_origin: dict[str, Wait] = {}

    def __bool__(self) -> bool:
        return bool(self._by_origin)

    def begin(self, origin: str, reason: str, until: float) -> None:
        """It could not be had; `until`: epoch seconds when it is asked again. May be repeated."""
        if origin in self._by_origin or len(self._by_origin) < _KEPT:
            self._by_origin[origin] = Wait(reason, until)
        self._troubles.begin(
            _TROUBLE,
            f"The robots.txt of {origin} cannot be had ({reason}). "
            "Until it can, the site's pages wait; after a day they are dropped.",
        )

    def end(self, origin: str) -> None:
        """It was had, or is given up."""
        if self._by_origin.pop(origin, None) is not None and not self._by_origin:
            self._over()

    def show(self, tally: Tally) -> None:
        """Put the first of them into the tally, the next to be asked at the front."""
        tally.waits = {}
        if not self._by_origin:
            return
        gone = self._now() - _GRACE_SECONDS
        self._by_origin = {origin: wait for origin, wait in self._by_origin.items() if wait.until > gone}
        if not self._by_origin:
            self._over()
        first = sorted(self._by_origin.items(), key=lambda pair: pair[1].until)[:_SHOWN]
        tally.waits = dict(first)

    def _over(self) -> None:
        self._troubles.end(_TROUBLE, "No robots.txt is waited for any more.")
