"""How far ahead of Scrapy requests are leased."""

import math

_WINDOW_SECONDS = 0.1
"""A request that is leased ahead starts within about this long: half of what a lease may wait for its start."""
_WEIGHT = 0.2


class Pace:
    """How often Scrapy starts a request, smoothed. As fast as it is, so many are ready when it asks."""

    def __init__(self) -> None:
        self._gap = math.inf
        self._last = -math.inf

    def started(self, now: float) -> None:
        """A request was handed to Scrapy, at this monotonic time."""
        gap = min(now - self._last, 1.0)
        self._last = now
        self._gap = gap if self._gap == math.inf else self._gap + _WEIGHT * (gap - self._gap)

    def ahead(self, most: int) -> int:
        """How many requests may wait for their start, at most `most`."""
        if self._gap <= 0:
            return most
        return min(most, int(_WINDOW_SECONDS / self._gap))
