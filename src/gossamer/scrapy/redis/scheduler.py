"""Scheduler for projects with scrapy-redis's settings. It adds to gossamer.scrapy's scheduler what scrapy-redis had.

The frontier is the queue, and the memory of seen requests, that all processes of a crawl share; it takes the place of
scrapy-redis's keys. Fixed: the names of settings and statistics, which are scrapy-redis's; the names of keys in Redis,
and of a crawl after a flush (`_crawl_after_flushes`), which are stored; and that a pushed request leaves its key only
when it is in the frontier (`PushedRequests._store`).
"""

import asyncio
import contextlib
import logging
import os
import time
import uuid
from dataclasses import replace
from typing import Any, NoReturn, Self

import msgspec
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.settings import BaseSettings
from scrapy.statscollectors import StatsCollector
from scrapy.utils.misc import load_object

from gossamer.commit.retrier import Retrier
from gossamer.control.scrapy_redis import forget_imported, read_request
from gossamer.errors import BadInput, BadSetting, FrontierUnavailable, GossamerError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Run
from gossamer.model.request import Batch
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.entries import EntryEncoder, FrontierEntry, RequestKey, deserialize
from gossamer.scrapy.options import SchedulerOptions, read_options
from gossamer.scrapy.redis import queue
from gossamer.scrapy.redis.connection import SCRIPTS, RedisConnection, connection_of, server_address
from gossamer.scrapy.redis.dupefilter import LegacyFingerprints
from gossamer.scrapy.redis.feeder import MessageKey, TakenMessage, keep_while
from gossamer.scrapy.redis.replacements import explain, refuse
from gossamer.scrapy.redis.settings import DUPEFILTER_KEY, QUEUE_KEY, check, check_spider
from gossamer.scrapy.scheduler import Scheduler as BaseScheduler
from gossamer.scrapy.start import process_age_seconds
from gossamer.telemetry.logs import Troubles

log = logging.getLogger(__name__)

_PRESENCE_MS = 30_000
"""Milliseconds after which a process that does not renew its presence counts as gone. Longer lets a killed process
prevent a flush for longer (redis/settings.py says half a minute); shorter may take a slow one for gone,
and flush the crawl that it works on."""
_RENEW_SECONDS = _PRESENCE_MS / 1000 / 3
"""Seconds between two renewals. Must stay well below `_PRESENCE_MS`: one of them may fail."""
_FLUSH_COUNT_MS = 365 * 24 * 3600 * 1000
"""Milliseconds that the number of flushes is kept after the last process. May be longer, not shorter: the number is
part of the crawl's name, and requests that wait under a forgotten number are not found again."""


class ProcessPresence:
    """Registers one process at a crawl, so that SCHEDULER_FLUSH_ON_START never takes work away from other processes.

    A flush gives the crawl a new name (see `_crawl_after_flushes`) under which nothing is queued and nothing seen.
    """

    def __init__(self, connection: RedisConnection, crawl: CrawlId) -> None:
        self._connection = connection
        # In the order in which scripts/join_crawl.lua takes them: number of flushes, processes, time of the last flush.
        # The names are stored: fixed.
        self._keys = [f"gossamer:{{{crawl.token}}}:{suffix}" for suffix in ("flushes", "there", "flushed")]
        self._processes_key = self._keys[1]
        self._name = uuid.uuid4().hex
        self._task: asyncio.Task[None] | None = None

    async def enter(self, *, flush: bool) -> tuple[int, bool]:
        """Register the process until its connection closes; flush the crawl if wanted and no other process is present.

        Return how often the crawl was flushed, and whether it was now. Raises FrontierUnavailable.
        """
        answer = await self._register(flush=flush)
        self._task = asyncio.ensure_future(self._renew())
        self._connection.before_close.append(self._leave)
        return answer

    async def _register(self, *, flush: bool) -> tuple[int, bool]:
        """Register or renew. Return the number of flushes, and whether this call flushed."""
        shards = await self._connection.shards()
        age_ms = int(process_age_seconds() * 1000)
        arguments: list[int | str] = [int(flush), self._name, _PRESENCE_MS, age_ms, _FLUSH_COUNT_MS]
        count, flushed = await shards.call(0, SCRIPTS["join_crawl"], self._keys, arguments)
        return int(count), bool(flushed)

    async def _renew(self) -> None:
        """Renew the registration until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with contextlib.suppress(FrontierUnavailable):
                await self._register(flush=False)

    async def _leave(self) -> None:
        """Unregister the process."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        shards = await self._connection.shards()
        await shards.command(self._processes_key, "ZREM", self._processes_key, self._name)


class IdleWaiter:
    """Keeps an idle spider open for some seconds."""

    def __init__(self, crawler: Crawler, seconds: float) -> None:
        self._engine = EngineAdapter(crawler.engine)
        self._seconds = seconds
        self._since: float | None = None
        """Monotonic time of the first `spider_idle` since there was work. None: there was work since."""

    def reset(self) -> None:
        """Start the time again, because there was work."""
        self._since = None

    def wait(self) -> None:
        """Raise DontCloseSpider until the time is over. Call it on every `spider_idle`.

        It wakes the engine at the end of the time; Scrapy alone would ask up to 5 s later."""
        if not self._seconds:
            return
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._engine.wake)
            raise DontCloseSpider


_POLL_SECONDS = 0.5
"""Seconds between two looks for pushed requests. Shorter costs calls."""
_MAX_TAKEN = 100
"""Maximum number of pushed requests taken at once. More make longer calls."""


class PushedRequests:
    """Feeds the requests that other programs push into `<spider>:requests`, as scrapy-redis's queues stored them.

    A request stays in the processing key until it is in the frontier, so neither a dying process nor a restarted server
    loses it. It is leased meanwhile, so no other process takes it. One that cannot be read goes to `<key>:dead`.
    """

    def __init__(
        self, connection: RedisConnection, key: str, *, kind: str, spider: Spider, stats: StatsCollector
    ) -> None:
        """`kind` is the Redis type that the project's queue class used: zset or list."""
        self._connection = connection
        self._key = MessageKey(connection, key, kind=kind)
        self._spider = spider
        self._stats = stats
        self._retrier = Retrier(Troubles())
        self.is_empty = False
        """True if nothing waited in the key at the last look."""

    async def clear(self) -> None:
        """Delete the waiting requests. Raises FrontierUnavailable."""
        await (await self._connection.shards()).command(self._key.key, "DEL", self._key.key)

    async def run(self, scheduler: BaseScheduler, crawl: CrawlId) -> None:
        """Feed until the task is cancelled, the spider closes, or the key turns out to have another type."""
        try:
            while not scheduler.is_closing:
                if not await self._feed_batch(scheduler, crawl):
                    await asyncio.sleep(_POLL_SECONDS)
        except BadInput as error:
            log.critical("%s. Nothing is read from it", error)
        finally:
            self.is_empty = True

    async def _feed_batch(self, scheduler: BaseScheduler, crawl: CrawlId) -> bool:
        """Feed some requests. False: there are none, or the crawl takes none.

        The order must stay: take, store in the frontier, forget. A process killed in between repeats requests."""
        if scheduler.is_stopped:
            self.is_empty = True
            return False
        taken = await self._retrier.call_frontier(lambda: self._key.take(_MAX_TAKEN))
        self.is_empty = not taken
        if not taken:
            return False
        # Storing waits while the frontier is away, perhaps for longer than one lease of the requests.
        return await keep_while(
            self._store(scheduler, crawl, taken), lambda: self._retrier.call_frontier(lambda: self._key.keep(taken))
        )

    async def _store(self, scheduler: BaseScheduler, crawl: CrawlId, taken: list[TakenMessage]) -> bool:
        """Store requests that were taken in the frontier, then forget them. False: the crawl takes none, so they are
        given back.

        Those that cannot be read become dead letters, and those that were imported before are only forgotten."""
        valid: list[TakenMessage] = []
        requests: list[Request] = []
        for message in taken:
            try:
                if not await self._was_imported(scheduler, crawl, message):
                    stored = read_request(message.data)
                    requests.append(deserialize(stored.payload, self._spider, url=stored.url, priority=stored.priority))
            except GossamerError as fault:
                await self._bury(message, fault.detail or str(fault))
            else:
                valid.append(message)
        if scheduler.is_closing:
            await self._give_back(valid)
            return False
        for request in requests:
            scheduler.enqueue_request(request)
        self._stats.inc_value("gossamer/pushed_requests", len(requests))
        if not await scheduler.start_requests_stored():
            await self._give_back(valid)
            return False
        await self._retrier.call_frontier(lambda: self._key.done(valid))
        return True

    async def _was_imported(self, scheduler: BaseScheduler, crawl: CrawlId, message: TakenMessage) -> bool:
        """Return whether `gossamer migrate scrapy-redis` has brought this request into the frontier already."""

        async def ask() -> bool:
            shards = await self._connection.shards()
            secret = scheduler.frontier.secret
            return await forget_imported(shards, self._key.key, message.data, secret=secret, crawl=crawl)

        return await self._retrier.call_frontier(ask)

    async def _give_back(self, taken: list[TakenMessage]) -> None:
        """Put messages back into their key, for another process or a later run."""
        if taken:
            await self._retrier.call_frontier(lambda: self._key.give_back(taken))

    async def _bury(self, message: TakenMessage, reason: str) -> None:
        """Move a message that cannot be read to the dead letters, with the reason."""
        log.error("A request of %s goes to %s: %s", self._key.key, self._key.dead, reason)
        self._stats.inc_value("gossamer/pushed_requests/dead")
        await self._retrier.call_frontier(lambda: self._key.bury(message, reason))


class Scheduler(BaseScheduler):
    """`SCHEDULER = "gossamer.scrapy.redis.scheduler.Scheduler"`, configured by the project's scrapy-redis settings.

    The base class is the scheduler of a shared crawl. It calls the methods that this class overrides: `_read_options`
    to `_close` when it opens and closes, the others for requests. `enqueue_request` and `next_request` are Scrapy's.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return a new object. Raises BadSetting for scrapy-redis's parameters."""
        if named or len(args) != 1 or not isinstance(args[0], Crawler):
            refuse("Scheduler(server, ...)", "scheduler")
        return super().__new__(cls)

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> NoReturn:
        """Refuse scrapy-redis's way to make one. Raises BadSetting."""
        refuse("Scheduler.from_settings", "scheduler")

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse attributes that are not there, those of scrapy-redis's scheduler with their replacement."""
        if name in ("queue", "server"):
            raise AttributeError(explain(f"scheduler.{name}", "queue"))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init__(self, crawler: Crawler) -> None:
        self._legacy: LegacyFingerprints | None = None
        self.generation = 0
        """Number that grows with every run (one life of the crawl) that starts with nothing seen. 0: no run was joined
        yet. `RedisStatsCollector` reads it by this name."""
        super().__init__(crawler)
        settings = crawler.settings
        assert crawler.spider is not None
        self._idle = IdleWaiter(crawler, settings.getint("SCHEDULER_IDLE_BEFORE_CLOSE"))
        self._keeps_priorities = _queue_class(settings).priorities
        self._pushed = PushedRequests(
            connection_of(crawler),
            _format_key(settings, "SCHEDULER_QUEUE_KEY", QUEUE_KEY, crawler.spider.name),
            kind="zset" if self._keeps_priorities else "list",
            spider=crawler.spider,
            stats=self._stats,
        )
        self._pushed_task: asyncio.Future[None] | None = None

    def _read_options(self, crawler: Crawler) -> SchedulerOptions:
        """Derive Gossamer's settings from scrapy-redis's, where the project has not set them. Raises BadInput."""
        assert crawler.spider is not None
        settings = crawler.settings
        check(settings)
        check_spider(crawler.spider)
        connection_of(crawler)  # raises BadInput for an invalid address
        derived: dict[str, object] = {}
        if not (settings.get("GOSSAMER_FRONTIER") or os.environ.get("GOSSAMER_FRONTIER")):
            derived["GOSSAMER_FRONTIER"] = server_address(settings)
        if not settings.get("GOSSAMER_QUEUE_ORDER"):
            derived["GOSSAMER_QUEUE_ORDER"] = str(_queue_class(settings).order)
        # A project's own queue key names another crawl. With the default key, the spider's name does.
        key = _format_key(settings, "SCHEDULER_QUEUE_KEY", QUEUE_KEY, crawler.spider.name)
        if key != QUEUE_KEY % {"spider": crawler.spider.name} and not settings.get("GOSSAMER_CRAWL_ID"):
            derived["GOSSAMER_CRAWL_ID"] = key
        merged = BaseSettings({str(name): settings[name] for name in settings} | derived)
        return read_options(merged, crawler.spider)

    async def _before_join(self, frontier: ValkeyFrontier) -> None:
        """Find the fingerprints that scrapy-redis left, and flush the crawl if the project asks for it."""
        crawl = self.options.crawl
        connection = connection_of(self._crawler)
        key = _format_key(self._crawler.settings, "SCHEDULER_DUPEFILTER_KEY", DUPEFILTER_KEY, self._spider.name)
        legacy = LegacyFingerprints(connection, key)
        if await legacy.exists():
            self._legacy = legacy
        flush = self._crawler.settings.getbool("SCHEDULER_FLUSH_ON_START")
        count, flushed = await ProcessPresence(connection, crawl.id).enter(flush=flush)
        if flushed:
            log.info("SCHEDULER_FLUSH_ON_START: %s starts with nothing queued and nothing seen", crawl.id)
            await frontier.stop_crawl(_crawl_after_flushes(crawl, count - 1).id)
            await self._pushed.clear()
        self.options = replace(self.options, crawl=_crawl_after_flushes(crawl, count))

    async def _after_join(self, run: Run, encoder: EntryEncoder) -> EntryEncoder:
        self.generation = run.generation
        # A run after a finished one has seen nothing: scrapy-redis would have deleted the set when the first finished.
        if self.options.fresh and run.number > 1:
            self._legacy = None
        if self._legacy is not None:
            log.info("The fingerprints in %s count as seen", self._legacy.key)
        return _LegacyEntryEncoder(encoder, keeps_priorities=self._keeps_priorities, legacy=self._legacy)

    async def _open(self, spider: Spider) -> None:
        await super()._open(spider)
        if not self.is_closing:
            self._pushed_task = asyncio.ensure_future(self._pushed.run(self, self.options.crawl.id))
            self._pushed_task.add_done_callback(self._on_task_done)

    async def _close(self) -> None:
        if self._pushed_task is not None:
            self._pushed_task.cancel()
            await asyncio.gather(self._pushed_task, return_exceptions=True)
        await super()._close()

    def _is_idle(self) -> bool:
        return super()._is_idle() and self._pushed.is_empty

    async def _filter_batches(self, batches: list[Batch]) -> list[Batch]:
        """Leave out the requests that scrapy-redis has seen, and count them."""
        if self._legacy is None:
            return batches
        unseen, dropped = await self._legacy.filter_unseen(batches)
        if dropped:
            self._stats.inc_value("dupefilter/filtered", dropped)
        return unseen

    def enqueue_request(self, request: Request) -> bool:
        """Store a request, and count it as scrapy-redis does. False: it is a known duplicate."""
        stored = super().enqueue_request(request)
        if stored:
            self._stats.inc_value("scheduler/enqueued/redis")
        return stored

    def next_request(self) -> Request | None:
        """Return the next request, and count it as scrapy-redis does. None: there is none at the moment."""
        request = super().next_request()
        if request is not None:
            self._idle.reset()
            self._stats.inc_value("scheduler/dequeued/redis")
        return request

    def _on_spider_idle(self) -> None:
        super()._on_spider_idle()
        self._idle.wait()


class _LegacyEntryEncoder(EntryEncoder):
    """Encodes requests without their priorities where the queue class ignores them; registers them for the old set."""

    def __init__(self, encoder: EntryEncoder, *, keeps_priorities: bool, legacy: LegacyFingerprints | None) -> None:
        self.__dict__.update(encoder.__dict__)  # works like the given encoder, in all but `entry`
        self._keeps_priorities = keeps_priorities
        self._legacy = legacy

    def entry(self, request: Request, key: RequestKey) -> FrontierEntry:
        entry = super().entry(request, key)
        if self._legacy is not None and not request.dont_filter:
            self._legacy.register(entry.fingerprint, request)
        return entry if self._keeps_priorities else replace(entry, priority=0)


def _queue_class(settings: BaseSettings) -> type[queue.Base]:
    """Return the class that SCHEDULER_QUEUE_CLASS names. Raises BadInput."""
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


def _format_key(settings: BaseSettings, setting: str, default: str, spider: str) -> str:
    """Return a key's name: the setting's value or the default, with the name of the spider. Raises BadInput."""
    try:
        return str(settings.get(setting) or default) % {"spider": spider}
    except (KeyError, ValueError, TypeError):
        raise BadSetting(
            f"{setting}: {settings.get(setting)!r} is not a key; %(spider)s stands for the spider's name"
        ) from None


def _crawl_after_flushes(crawl: Crawl, count: int) -> Crawl:
    """Return the crawl that replaces this one after so many flushes: the same crawl with another name.

    The names are stored in the frontier: with another spelling, a crawl that was ever flushed would begin anew."""
    if not count:
        return crawl
    identity = CrawlId(crawl.id.appid, f"{crawl.id.crawlid}~{count}")
    pool = f"scrapy-{identity.token}" if crawl.pool == f"scrapy-{crawl.id.token}" else crawl.pool
    return msgspec.structs.replace(crawl, id=identity, pool=pool)
