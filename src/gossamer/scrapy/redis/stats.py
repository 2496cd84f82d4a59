"""Statistics collector that merges the statistics of all processes in a Redis hash, which users and monitors read.

Fixed: the names of methods, which are Scrapy's; the default key and the format of the values; and the arguments of the
script `merge_stats` (`set`, `add`, `max` or `min`, name, value).
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from gossamer.errors import BadInput, BadSetting, GossamerError
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.options import abort, runs_alone
from gossamer.scrapy.redis.connection import SCRIPTS, connection_of, get_redis_from_settings
from gossamer.scrapy.redis.settings import STATS_KEY

log = logging.getLogger(__name__)

_MERGE_SECONDS = 1.0
"""Seconds between two merges. Longer means that a killed process loses more (one second is documented), shorter costs
calls."""
_KEEP_SECONDS = 7 * 86400
"""Seconds that the hash is kept after the last merge. The docstring below and the meaning of STATS_KEY in
redis/settings.py promise a week."""


class RedisStatsCollector(StatsCollector):
    """Keeps this process's statistics in memory and merges the changes into `<spider>:stats` once a second.

    In the hash, counts are sums over all processes, `max_value` and `min_value` hold for all of them, and of other
    values the last one counts. Numbers may be floats; dates are ISO 8601. No process deletes the hash; Redis deletes it
    a week after the last change. Without SCHEDULER_PERSIST, a new run of the crawl starts with an empty hash. A process
    that is killed loses the statistics of one second.
    """

    def __init__(self, crawler: Crawler, spider: Spider | None = None) -> None:
        super().__init__(crawler)
        self.crawler = crawler
        name = spider.name if spider else getattr(crawler.spidercls, "name", None) or "scrapy"
        self.stats_key = crawler.settings.get("STATS_KEY") or STATS_KEY
        self._adds: dict[str, int | float] = {}
        """Sums of counts since the last merge, by name. They are sent after `_others`, so `set_value` removes them."""
        self._others: dict[tuple[str, str], Any] = {}
        """Values set since the last merge, by `set`, `max` or `min` and name."""
        self._task: asyncio.Future[None] | None = None
        self._persist = crawler.settings.getbool("SCHEDULER_PERSIST")
        self._generation = 0
        """Number that grows when a run of the crawl starts with nothing seen. The script empties the hash of an earlier
        one, and drops what processes of an earlier one send. 0: the hash is never emptied."""
        try:
            self._key = self.stats_key % {"spider": name}
            if runs_alone(crawler):
                return
            connection_of(crawler).before_close.append(self._finish)
        except BadInput as error:
            abort(error)
        except (KeyError, ValueError, TypeError):
            abort(BadSetting(f"STATS_KEY: {self.stats_key!r} is not a key; %(spider)s stands for the spider's name"))
        crawler.signals.connect(self._begin, signal=signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RedisStatsCollector":
        """Return a collector. For a project's own code; Scrapy calls the class."""
        return cls(crawler)

    @property
    def server(self) -> Any:
        """A redis-py client. It blocks."""
        return get_redis_from_settings(self.crawler.settings)

    def set_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """Set a value. In the hash, the last process's value counts."""
        super().set_value(key, value)
        self._adds.pop(key, None)
        self._others["set", key] = value

    def set_stats(self, stats: dict[str, Any], spider: Spider | None = None) -> None:
        """Replace this process's statistics. In the hash, the last value of each counts."""
        super().set_stats(stats)
        for key, value in stats.items():
            self._adds.pop(key, None)
            self._others["set", key] = value

    def inc_value(self, key: str, count: int | float = 1, start: int | float = 0, spider: Spider | None = None) -> None:
        """Add to a count. The hash has the sum; `start` counts once for each process."""
        first = start if key not in self._stats else 0
        super().inc_value(key, count, start)  # type: ignore[arg-type]
        self._adds[key] = self._adds.get(key, 0) + first + count

    def max_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """Raise a maximum. The hash has the highest of all processes."""
        super().max_value(key, value)
        self._others["max", key] = self._stats[key]

    def min_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """Lower a minimum. The hash has the lowest of all processes."""
        super().min_value(key, value)
        self._others["min", key] = self._stats[key]

    def _begin(self) -> None:
        """Start merging. The scheduler, which is open by now, knows the run's generation."""
        if not self._persist:
            self._generation = getattr(EngineAdapter(self.crawler.engine).scheduler, "generation", 0)
        self._task = asyncio.ensure_future(self._merge_regularly())

    async def _merge_regularly(self) -> None:
        """Merge the changes every second, until cancelled. An outage is logged once."""
        is_waiting = False  # True: the server did not answer, and a warning was logged
        while True:
            await asyncio.sleep(_MERGE_SECONDS)
            try:
                await self._merge()
            except GossamerError as error:
                if not is_waiting:
                    log.warning("Statistics wait for their server: %s", error)
                is_waiting = True
            else:
                is_waiting = False

    async def _finish(self) -> None:
        """Merge the last changes, before the connection is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._merge()

    async def _merge(self) -> None:
        """Send the changes since the last merge; keep them for the next one if the server does not answer."""
        adds, self._adds = self._adds, {}
        others, self._others = self._others, {}
        rows = [part for (how, key), value in others.items() for part in (how, key, _text(value))]
        rows += [part for key, value in adds.items() for part in ("add", key, repr(value))]
        if not rows:
            return
        try:
            shards = await connection_of(self.crawler).shards()
            await shards.call(0, SCRIPTS["merge_stats"], [self._key], [_KEEP_SECONDS, self._generation, *rows])
        except BaseException:
            # Keep the unsent changes for the next merge. If only the reply was lost, counts are then added twice; the
            # alternative would be to lose them. A value that was set during the call replaces an unsent count.
            unsent_adds = {key: count for key, count in adds.items() if ("set", key) not in self._others}
            self._others = others | self._others
            self._adds = _sum(unsent_adds, self._adds)
            raise


def _sum(one: Mapping[str, int | float], other: Mapping[str, int | float]) -> dict[str, int | float]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def _text(value: Any) -> str:
    """Return a value as the hash has it. Users read the format: fixed."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
