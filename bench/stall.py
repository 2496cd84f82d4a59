"""A Scrapy extension that looks at its event loop's clock every millisecond: the stat `stall_ms` is the longest gap."""

import asyncio
import time

from scrapy import signals
from scrapy.crawler import Crawler


class Stall:
    """From the first answer on: what starting costs is no stall."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._last = 0.0
        self._worst = 0.0
        self._timer: asyncio.TimerHandle | None = None
        crawler.signals.connect(self._begin, signal=signals.response_received)
        crawler.signals.connect(self._end, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Stall":
        return cls(crawler)

    def _begin(self) -> None:
        if self._timer is None:
            self._last = time.monotonic()
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        self._worst = max(self._worst, now - self._last - 0.001)
        self._last = now
        self._timer = asyncio.get_running_loop().call_later(0.001, self._tick)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._crawler.stats.set_value("stall_ms", self._worst * 1000)  # type: ignore[union-attr]
