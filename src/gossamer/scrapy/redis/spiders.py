"""Spiders whose start requests come from Redis."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.spiders import CrawlSpider

from gossamer.errors import BadInput, BadSetting
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.live import refuse, runs_alone
from gossamer.scrapy.redis.connection import get_redis_from_settings, link
from gossamer.scrapy.redis.feeder import Feeder, read, requests_of
from gossamer.scrapy.redis.presence import IdleWaiter, StartKey
from gossamer.scrapy.redis.settings import START_KEY, check

_NOT_CALLED = ("schedule_next_requests", "count_size", "pop_list_queue", "pop_priority_queue")
"""Methods of scrapy-redis's spiders: here a task feeds, not they."""


class RedisMixin:
    """What is fed to `redis_key` is crawled within a fraction of a second, by one of the processes; none is lost.

    Override `make_request_from_data` to read other messages than URLs and JSON objects, or `next_requests` to decide
    which requests are next.
    """

    name: str
    crawler: Crawler
    redis_key: str | list[str] | None = None
    """The key, or several, those in front first. None: REDIS_START_URLS_KEY. `%(name)s` stands for the spider."""
    redis_batch_size: int | None = None
    """Messages taken at once. None: CONCURRENT_REQUESTS."""
    redis_encoding: str | None = None
    """None: REDIS_ENCODING."""
    max_idle_time: int | None = None
    """Seconds without work after which it closes. 0: never; None: MAX_IDLE_TIME_BEFORE_CLOSE."""
    redis_key_check_interval: float | None = None
    """Taken, and of no effect: all keys are looked at every time."""

    _server: Any = None
    _idle: IdleWaiter | None = None
    _feeder: Feeder | None = None
    _feeding: "asyncio.Future[None] | None" = None

    @property
    def server(self) -> Any:
        """A redis-py client, made when it is first asked for. It blocks: not for callbacks."""
        if self._server is None:
            self._server = get_redis_from_settings(self.crawler.settings)
        return self._server

    @server.setter
    def server(self, client: Any) -> None:
        self._server = client

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Raises BadInput, with the setting's or the attribute's name."""
        spider = super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]
        try:
            spider.setup_redis(crawler)
        except BadInput as error:
            refuse(error)
        return spider  # type: ignore[no-any-return]

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Read the settings; read the keys from when the spider opens. Raises BadInput."""
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise BadSetting("crawler is required")
        settings = crawler.settings
        check(settings)
        for name in _NOT_CALLED:
            if hasattr(self, name):
                raise BadSetting(f"{type(self).__name__}.{name} is never called; override make_request_from_data")
        asked = settings.get("REDIS_START_URLS_KEY") or START_KEY if self.redis_key is None else self.redis_key
        several = list(asked) if isinstance(asked, (list, tuple)) else [asked]
        keys = list(dict.fromkeys(_named(key, self.name) for key in several))
        if not keys:
            raise BadSetting("redis_key list is empty")
        self.redis_key = keys if isinstance(asked, (list, tuple)) else keys[0]
        batch = settings.get("REDIS_START_URLS_BATCH_SIZE") or settings.getint("CONCURRENT_REQUESTS") or 16
        self.redis_batch_size = _whole("redis_batch_size", batch, self.redis_batch_size, least=1)
        self.max_idle_time = _whole(
            "max_idle_time", settings.get("MAX_IDLE_TIME_BEFORE_CLOSE") or 0, self.max_idle_time, least=0
        )
        interval = settings.get("REDIS_KEY_CHECK_INTERVAL")
        _whole("redis_key_check_interval", interval or 0, self.redis_key_check_interval, least=0)
        self.redis_encoding = self.redis_encoding or settings.get("REDIS_ENCODING") or "utf-8"
        self._as_text = settings.getbool("REDIS_DECODE_RESPONSES")
        if runs_alone(crawler):
            return
        kind = "set" if settings.getbool("REDIS_START_URLS_AS_SET") else "list"
        kind = "zset" if settings.getbool("REDIS_START_URLS_AS_ZSET") and kind == "list" else kind
        self._start_keys = [StartKey(link(crawler), key, kind=kind) for key in keys]
        crawler.signals.connect(self._begin_to_feed, signal=signals.spider_opened)
        crawler.signals.connect(self._end_feeding, signal=signals.spider_closed)
        crawler.signals.connect(self.spider_idle, signal=signals.spider_idle)

    async def start(self) -> AsyncIterator[Any]:
        """Nothing: all start requests come from Redis."""
        return
        yield

    def make_request_from_data(self, data: Any) -> Any:
        """The request of a message (bytes; text with REDIS_DECODE_RESPONSES), or several; None or []: it asks for none.

        What it raises sends the message to the dead letters, `<key>:dead`, with the reason."""
        return read(data, self.redis_encoding or "utf-8", self)  # type: ignore[arg-type]

    def next_requests(self) -> Iterable[Any]:
        """Yield the requests of the next messages, of at most `redis_batch_size`.

        An override is called in a thread again and again, so it may block; what it raises sends the messages that it
        fetched to the dead letters. Without one this method is not called.
        """
        for data in self.fetch_data(self.redis_key, self.redis_batch_size):
            try:
                made = requests_of(self.make_request_from_data(data))
            except Exception as fault:
                assert self._feeder is not None
                self._feeder.bury(data.encode(self.redis_encoding or "utf-8") if isinstance(data, str) else data, fault)
            else:
                yield from made

    def fetch_data(self, redis_key: Any, batch_size: Any) -> list[Any]:
        """Return messages of the key, for `next_requests`. They are not lost if this process dies before their requests
        are in the frontier."""
        if self._feeder is None:
            raise RuntimeError("fetch_data is called by next_requests while the spider runs")
        found = self._feeder.fetch([redis_key] if isinstance(redis_key, str) else list(redis_key), int(batch_size))
        return [one.decode(self.redis_encoding or "utf-8") for one in found] if self._as_text else list(found)

    def spider_idle(self) -> None:
        """Stay open for what may still be fed, until `max_idle_time`."""
        if self._feeding is None or self._feeding.done() or self._idle is None:
            return  # nothing will be fed any more
        if getattr(EngineDoor(self.crawler.engine).scheduler, "stopped", False):
            return
        self._idle.wait()
        if not self.max_idle_time:
            raise DontCloseSpider

    def _begin_to_feed(self) -> None:
        self._idle = IdleWaiter(self.crawler, self.max_idle_time or 0)
        kind = type(self)
        overridden = kind.next_requests is not RedisMixin.next_requests or kind.fetch_data is not RedisMixin.fetch_data
        self._feeder = Feeder(
            self.crawler,
            self._start_keys,
            most=self.redis_batch_size or 1,
            make=self._make,
            worked=self._idle.over,
            own=self.next_requests if overridden else None,
        )
        self._feeding = asyncio.ensure_future(self._feeder.run())

    def _make(self, data: bytes) -> Any:
        return self.make_request_from_data(data.decode(self.redis_encoding or "utf-8") if self._as_text else data)

    async def _end_feeding(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feeding


class RedisSpider(RedisMixin, Spider):
    """A spider whose start requests come from Redis."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """A spider with rules whose start requests come from Redis."""


def _named(key: Any, name: str) -> str:
    try:
        text = str(key) % {"name": name, "spider": name}
    except (KeyError, ValueError, TypeError):
        raise BadSetting(f"redis_key: {key!r} is no key; %(name)s stands for the spider's name") from None
    if not text.strip():
        raise BadSetting("redis_key must not be empty")
    return text


def _whole(name: str, default: Any, given: Any, *, least: int) -> int:
    try:
        number = int(default if given is None else given)
    except (TypeError, ValueError):
        raise BadSetting(f"{name} must be an integer") from None
    if number < least:
        raise BadSetting(f"{name}: {number} is less than {least}")
    return number
