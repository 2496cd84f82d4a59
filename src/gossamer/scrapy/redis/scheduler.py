"""scrapy-redis's scheduler, by its settings: the lane's own underneath."""

import asyncio
import logging
import os
from dataclasses import replace

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from gossamer.errors import BadSetting
from gossamer.frontier.base import Frontier
from gossamer.model.crawl import Crawl, CrawlId, Run
from gossamer.model.request import Batch
from gossamer.scrapy.entries import EntryEncoder, FrontierEntry, RequestKey
from gossamer.scrapy.options import LaneOptions
from gossamer.scrapy.options import read as read_options
from gossamer.scrapy.redis import queue
from gossamer.scrapy.redis.connection import address_of, link
from gossamer.scrapy.redis.dupefilter import LegacyFingerprints
from gossamer.scrapy.redis.presence import IdleWaiter, ProcessPresence
from gossamer.scrapy.redis.pushed import PushedRequests
from gossamer.scrapy.redis.settings import DUPEFILTER_KEY, QUEUE_KEY, check, check_spider
from gossamer.scrapy.scheduler import Scheduler as Lane

log = logging.getLogger(__name__)


class Scheduler(Lane):
    """`SCHEDULER = "gossamer.scrapy.redis.scheduler.Scheduler"`: the project's scrapy-redis settings do the rest."""

    def __init__(self, crawler: Crawler) -> None:
        self._legacy: LegacyFingerprints | None = None
        self.generation = 0
        """Grows with every run that begins with nothing seen. 0: not joined yet."""
        super().__init__(crawler)
        settings = crawler.settings
        assert crawler.spider is not None
        self._idle = IdleWaiter(crawler, settings.getint("SCHEDULER_IDLE_BEFORE_CLOSE"))
        kind = _queue(settings)
        self._priorities = kind.priorities
        name = crawler.spider.name
        self._pushed = PushedRequests(
            link(crawler),
            _formatted(settings, "SCHEDULER_QUEUE_KEY", QUEUE_KEY, name),
            kind="zset" if kind.priorities else "list",
            spider=crawler.spider,
            stats=self._stats,
        )
        self._reading: asyncio.Future[None] | None = None

    def _read(self, crawler: Crawler) -> LaneOptions:
        assert crawler.spider is not None
        settings = crawler.settings
        check(settings)
        check_spider(crawler.spider)
        link(crawler)
        wanted: dict[str, object] = {}
        if not (settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")):
            wanted["GOSSAMER_FRONTIER"] = address_of(settings)
        if not settings.get("GOSSAMER_QUEUE_ORDER"):
            wanted["GOSSAMER_QUEUE_ORDER"] = str(_queue(settings).order)
        key = _formatted(settings, "SCHEDULER_QUEUE_KEY", QUEUE_KEY, crawler.spider.name)
        if key != QUEUE_KEY % {"spider": crawler.spider.name} and not settings.get("GOSSAMER_CRAWL_ID"):
            wanted["GOSSAMER_CRAWL_ID"] = key
        merged = BaseSettings({str(name): settings[name] for name in settings} | wanted)
        return read_options(merged, crawler.spider)

    async def _about_to_join(self, frontier: Frontier) -> None:
        crawl = self.options.crawl
        key = _formatted(self._crawler.settings, "SCHEDULER_DUPEFILTER_KEY", DUPEFILTER_KEY, self._spider.name)
        legacy = LegacyFingerprints(link(self._crawler), key)
        if await legacy.is_there():
            self._legacy = legacy
        presence = ProcessPresence(link(self._crawler), crawl.id)
        number, flushed = await presence.come(flush=self._crawler.settings.getbool("SCHEDULER_FLUSH_ON_START"))
        if flushed:
            log.info("SCHEDULER_FLUSH_ON_START: %s begins with nothing", crawl.id)
            await frontier.stop_crawl(_numbered(crawl, number - 1).id)
            await self._pushed.clear()
        self.options = replace(self.options, crawl=_numbered(crawl, number))

    async def _joined(self, run: Run, entries: EntryEncoder) -> EntryEncoder:
        self.generation = run.generation
        # A crawl that began anew after it was finished has seen nothing, as if the set had been deleted then.
        if self.options.fresh and run.number > 1:
            self._legacy = None
        if self._legacy is not None:
            log.info("What is in %s counts as seen", self._legacy.key)
        return _Entries(entries, priorities=self._priorities, legacy=self._legacy)

    async def _open(self, spider: Spider) -> None:
        await super()._open(spider)
        if not self.closing:
            self._reading = asyncio.ensure_future(self._pushed.run(self, self.options.crawl.id))

    async def _close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await super()._close()

    def _is_idle(self) -> bool:
        return super()._is_idle() and self._pushed.is_empty

    async def _sift(self, batches: list[Batch]) -> list[Batch]:
        if self._legacy is None:
            return batches
        left, seen = await self._legacy.unseen(batches)
        if seen:
            self._stats.inc_value("dupefilter/filtered", seen)
        return left

    def enqueue_request(self, request: Request) -> bool:
        """As the lane does, with scrapy-redis's stats too."""
        taken = super().enqueue_request(request)
        if taken:
            self._stats.inc_value("scheduler/enqueued/redis")
        return taken

    def next_request(self) -> Request | None:
        """As the lane does, with scrapy-redis's stats too."""
        request = super().next_request()
        if request is not None:
            self._idle.over()
            self._stats.inc_value("scheduler/dequeued/redis")
        return request

    def _spider_idle(self) -> None:
        super()._spider_idle()
        self._idle.wait()


class _Entries(EntryEncoder):
    """Those of the lane, without priorities where the queue never had any, known to the old dupefilter."""

    def __init__(self, entries: EntryEncoder, *, priorities: bool, legacy: LegacyFingerprints | None) -> None:
        self.__dict__.update(entries.__dict__)
        self._priorities = priorities
        self._legacy = legacy

    def of(self, request: Request, name: RequestKey) -> FrontierEntry:
        entry = super().of(request, name)
        if self._legacy is not None and not request.dont_filter:
            self._legacy.note(entry.fingerprint, request)
        return entry if self._priorities else replace(entry, priority=0)


def _queue(settings: BaseSettings) -> type[queue.Base]:
    path = settings.get("SCHEDULER_QUEUE_CLASS") or queue.PriorityQueue
    try:
        found = load_object(path)
    except (ImportError, NameError, ValueError, TypeError):
        found = None
    if not (isinstance(found, type) and issubclass(found, queue.Base)):
        raise BadSetting(
            f"SCHEDULER_QUEUE_CLASS: {path!r} is none of PriorityQueue, FifoQueue and LifoQueue of "
            "gossamer.scrapy.redis.queue"
        )
    return found


def _formatted(settings: BaseSettings, setting: str, default: str, spider: str) -> str:
    try:
        return str(settings.get(setting) or default) % {"spider": spider}
    except (KeyError, ValueError, TypeError):
        raise BadSetting(f"{setting}: {settings.get(setting)!r} is no key; %(spider)s stands for the name") from None


def _numbered(crawl: Crawl, number: int) -> Crawl:
    """The crawl after so many flushes: another one by name."""
    if not number:
        return crawl
    identity = CrawlId(crawl.id.appid, f"{crawl.id.crawlid}~{number}")
    pool = f"scrapy-{identity.token}" if crawl.pool == f"scrapy-{crawl.id.token}" else crawl.pool
    return Crawl(
        id=identity, pool=pool, order=crawl.order, max_pages=crawl.max_pages, rate=crawl.rate,
        concurrency=crawl.concurrency,
    )  # fmt: skip
