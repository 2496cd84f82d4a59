"""Stats of all processes together, in a Redis hash."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from gossamer.errors import BadInput, BadSetting, GossamerError
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.live import refuse, runs_alone
from gossamer.scrapy.redis.connection import get_redis_from_settings, link
from gossamer.scrapy.redis.presence import SCRIPTS
from gossamer.scrapy.redis.settings import STATS_KEY

log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
_LIFE_SECONDS = 7 * 86400


class RedisStatsCollector(StatsCollector):
    """This process's stats as ever, in memory; once a second what changed is merged into `<spider>:stats`.

    There counts are the sum, `max_value` and `min_value` hold for all, of other values the last counts. Numbers may be
    floats; dates are ISO 8601. The hash lives for a week after the last change: no process deletes what others counted.
    Without SCHEDULER_PERSIST, a crawl that begins anew begins its stats anew.
    A second's worth is lost with a process that is killed.
    """

    def __init__(self, crawler: Crawler, spider: Spider | None = None) -> None:
        super().__init__(crawler)
        self.crawler = crawler
        name = spider.name if spider else getattr(crawler.spidercls, "name", None) or "scrapy"
        self.stats_key = crawler.settings.get("STATS_KEY") or STATS_KEY
        self._adds: dict[str, int | float] = {}
        self._others: dict[tuple[str, str], Any] = {}
        self._task: asyncio.Future[None] | None = None
        self._persist = crawler.settings.getbool("SCHEDULER_PERSIST")
        self._generation = 0
        try:
            self._key = self.stats_key % {"spider": name}
            if runs_alone(crawler):
                return
            link(crawler).at_the_end.append(self._finish)
        except BadInput as error:
            refuse(error)
        except (KeyError, ValueError, TypeError):
            refuse(BadSetting(f"STATS_KEY: {self.stats_key!r} is no key; %(spider)s stands for the name"))
        crawler.signals.connect(self._begin, signal=signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RedisStatsCollector":
        """For those who make one themselves; Scrapy calls the class."""
        return cls(crawler)

    @property
    def server(self) -> Any:
        """A redis-py client; it blocks."""
        return get_redis_from_settings(self.crawler.settings)

    def set_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """For all: the last one counts."""
        super().set_value(key, value)
        self._adds.pop(key, None)
        self._others["set", key] = value

    def set_stats(self, stats: dict[str, Any], spider: Spider | None = None) -> None:
        """Replace this process's; for all, the last of each counts."""
        super().set_stats(stats)
        for key, value in stats.items():
            self._others["set", key] = value

    def inc_value(self, key: str, count: int | float = 1, start: int | float = 0, spider: Spider | None = None) -> None:
        """For all: the sum. `start` counts once for each process."""
        first = start if key not in self._stats else 0
        super().inc_value(key, count, start)  # type: ignore[arg-type]
        self._adds[key] = self._adds.get(key, 0) + first + count

    def max_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """The highest of all."""
        super().max_value(key, value)
        self._others["max", key] = self._stats[key]

    def min_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        """The lowest of all."""
        super().min_value(key, value)
        self._others["min", key] = self._stats[key]

    def _begin(self) -> None:
        if not self._persist:
            self._generation = getattr(EngineDoor(self.crawler.engine).scheduler, "generation", 0)
        self._task = asyncio.ensure_future(self._for_ever())

    async def _for_ever(self) -> None:
        waiting = False
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                await self._merge()
            except GossamerError as error:
                if not waiting:
                    log.warning("Stats wait for their server: %s", error)
                waiting = True
            else:
                waiting = False

    async def _finish(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._merge()

    async def _merge(self) -> None:
        adds, self._adds = self._adds, {}
        others, self._others = self._others, {}
        rows = [part for (how, key), value in others.items() for part in (how, key, _text(value))]
        rows += [part for key, value in adds.items() for part in ("add", key, repr(value))]
        if not rows:
            return
        try:
            shards = await link(self.crawler).shards()
            await shards.call(0, SCRIPTS["merge_stats"], [self._key], [_LIFE_SECONDS, self._generation, *rows])
        except BaseException:
            # Not merged, as far as anybody knows: with the next. A lost answer counts twice rather than not at all.
            self._others = others | self._others
            self._adds = _sum(adds, self._adds)
            raise


def _sum(one: Mapping[str, int | float], other: Mapping[str, int | float]) -> dict[str, int | float]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
