"""Requests that other programs push into `<spider>:requests`, as scrapy-redis stored them."""

import asyncio
import logging

from scrapy import Request, Spider
from scrapy.statscollectors import StatsCollector

from gossamer.commit.retrier import Retrier
from gossamer.control.scrapy_redis import forget_imported, read_request
from gossamer.errors import BadInput, GossamerError
from gossamer.model.crawl import CrawlId
from gossamer.scrapy.redis.connection import RedisLink
from gossamer.scrapy.redis.presence import StartKey, TakenMessage
from gossamer.scrapy.scheduler import Scheduler
from gossamer.scrapy.stored import restore
from gossamer.telemetry.logs import Troubles

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_MOST = 100
"""Requests taken at once."""


class PushedRequests:
    """Brings them into the frontier while the spider runs. A request is lost neither with this process nor with the
    server: it stays in the processing key until it is in the frontier. One that cannot be read goes to `<key>:dead`."""

    def __init__(self, link: RedisLink, key: str, *, kind: str, spider: Spider, stats: StatsCollector) -> None:
        """`kind`: zset or list, as the project's queue class has it."""
        self._link = link
        self._key = StartKey(link, key, kind=kind)
        self._spider = spider
        self._stats = stats
        self._retrier = Retrier(Troubles())
        self.is_empty = False
        """Whether nothing waited there when it was last looked at."""

    async def clear(self) -> None:
        """Delete what waits there. Raises FrontierUnavailable."""
        await (await self._link.shards()).command(self._key.key, "DEL", self._key.key)

    async def run(self, scheduler: Scheduler, crawl: CrawlId) -> None:
        """Run until it is cancelled, the spider closes, or the key turns out to hold something else."""
        try:
            while not scheduler.closing:
                if not await self._round(scheduler, crawl):
                    await asyncio.sleep(_LOOK_SECONDS)
        except BadInput as error:
            log.critical("%s. Nothing is read from it", error)
        finally:
            self.is_empty = True

    async def _round(self, scheduler: Scheduler, crawl: CrawlId) -> bool:
        """Bring in some of them. False: there are none, or the crawl takes none."""
        if scheduler.stopped:
            self.is_empty = True
            return False
        taken = await self._retrier.call_frontier(lambda: self._key.take(_MOST))
        self.is_empty = not taken
        good: list[TakenMessage] = []
        requests: list[Request] = []
        for one in taken:
            try:
                if not await self._was_imported(scheduler, crawl, one):
                    stored = read_request(one.message)
                    requests.append(restore(stored.payload, self._spider, url=stored.url, priority=stored.priority))
            except GossamerError as fault:
                await self._bury(one, fault.detail or str(fault))
            else:
                good.append(one)
        if not taken or scheduler.closing:
            await self._give_back(good)
            return False
        for request in requests:
            scheduler.enqueue_request(request)
        self._stats.inc_value("gossamer/pushed_requests", len(requests))
        if not await scheduler.stored():
            await self._give_back(good)
            return False
        await self._retrier.call_frontier(lambda: self._key.done(good))
        return True

    async def _was_imported(self, scheduler: Scheduler, crawl: CrawlId, one: TakenMessage) -> bool:
        async def look() -> bool:
            shards = await self._link.shards()
            secret = scheduler.frontier.secret
            return await forget_imported(shards, self._key.key, one.message, secret=secret, crawl=crawl)

        return await self._retrier.call_frontier(look)

    async def _give_back(self, taken: list[TakenMessage]) -> None:
        if taken:
            await self._retrier.call_frontier(lambda: self._key.give_back(taken))

    async def _bury(self, one: TakenMessage, reason: str) -> None:
        log.error("A request of %s goes to %s: %s", self._key.key, self._key.dead, reason)
        self._stats.inc_value("gossamer/pushed_requests/dead")
        await self._retrier.call_frontier(lambda: self._key.bury(one, reason))
