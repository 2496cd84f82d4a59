"""A spider without work that waits a while before it closes."""

import asyncio
import time

from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider

from gossamer.scrapy.engine import EngineDoor


class Idle:
    """`wait` on every `spider_idle`; `over` when there was something to do."""

    def __init__(self, crawler: Crawler, seconds: float) -> None:
        self._engine = EngineDoor(crawler.engine)
        self._seconds = seconds
        self._since: float | None = None

    def over(self) -> None:
        """There was work: whatever was waited does not count."""
        self._since = None

    def wait(self) -> None:
        """Raises DontCloseSpider until it has been idle for so long; the engine is woken then, and not 5 s later."""
        if not self._seconds:
            return
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._engine.wake)
            raise DontCloseSpider
