"""Base classes of spiders whose start requests come from messages in Redis keys.

Fixed: the names of classes, methods and attributes, and which setting each default comes from. They are scrapy-redis's,
and projects override or read them. Gossamer does not support the methods in `_NOT_CALLED`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.settings import BaseSettings
from scrapy.spiders import CrawlSpider

from gossamer.errors import BadInput, BadSetting
from gossamer.scrapy.engine import EngineAdapter
from gossamer.scrapy.options import abort, runs_alone
from gossamer.scrapy.redis.connection import connection_of, get_redis_from_settings
from gossamer.scrapy.redis.feeder import Feeder, MessageKey, as_requests, parse_message
from gossamer.scrapy.redis.replacements import refuse
from gossamer.scrapy.redis.scheduler import IdleWaiter
from gossamer.scrapy.redis.settings import START_KEY, check

_NOT_CALLED = ("schedule_next_requests", "count_size", "pop_list_queue", "pop_priority_queue")
"""Methods of scrapy-redis's spiders that are never called here. A spider with one of them is refused, because its code
would have no effect. Remove a name only when the method is called."""
_DEFAULT_BATCH_SIZE = 16
"""Messages taken at once where neither REDIS_START_URLS_BATCH_SIZE nor CONCURRENT_REQUESTS is set. scrapy-redis's
value."""


class RedisMixin:
    """Makes a spider take its start requests from messages in Redis keys.

    One of the crawl's processes takes each message within a fraction of a second, and none is lost.
    Override `make_request_from_data` to read other messages than URLs and JSON objects, or `next_requests` to decide
    which requests are next.
    """

    name: str
    crawler: Crawler
    redis_key: str | list[str] | None = None
    """The key, or several, the first ones preferred. `%(name)s` stands for the spider. None: REDIS_START_URLS_KEY."""
    redis_batch_size: int | None = None
    """Maximum number of messages taken at once. None: REDIS_START_URLS_BATCH_SIZE, else CONCURRENT_REQUESTS."""
    redis_encoding: str | None = None
    """Encoding of the messages. None: REDIS_ENCODING."""
    max_idle_time: int | None = None
    """Seconds without work after which the spider closes. 0: never. None: MAX_IDLE_TIME_BEFORE_CLOSE."""
    redis_key_check_interval: float | None = None
    """Seconds. Accepted for scrapy-redis's sake and checked, but without effect: all keys are looked at every time."""

    _server: Any = None
    _idle: IdleWaiter | None = None
    _feeder: Feeder | None = None
    _feeding: "asyncio.Future[None] | None" = None

    @property
    def server(self) -> Any:
        """A redis-py client, created at its first use. It blocks, so callbacks must not use it."""
        if self._server is None:
            self._server = get_redis_from_settings(self.crawler.settings)
        return self._server

    @server.setter
    def server(self, client: Any) -> None:
        self._server = client

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        """Return the spider, ready to read its keys. An invalid setting or attribute is logged and ends the program:
        the `scrapy` command with exit code 2, another program with BadInput (see `abort`)."""
        spider = super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]
        try:
            spider.setup_redis(crawler)
        except BadInput as error:
            abort(error)
        return spider  # type: ignore[no-any-return]

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Read the settings, and prepare to read the keys while the spider is open. Raises BadInput."""
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise BadSetting("crawler is required")
        settings = crawler.settings
        check(settings)
        own = type(self)
        for name in _NOT_CALLED:
            if hasattr(self, name):
                raise BadSetting(f"{own.__name__}.{name} is never called; override make_request_from_data")
        if own.start_requests is not RedisMixin.start_requests and own.start is RedisMixin.start:
            refuse(f"{own.__name__}.start_requests", "start_requests")
        keys = self._read_keys(settings)
        # The spider's own attributes come before the settings.
        batch_size = settings.get("REDIS_START_URLS_BATCH_SIZE") or settings.getint("CONCURRENT_REQUESTS")
        self.redis_batch_size = _integer(
            "redis_batch_size", batch_size or _DEFAULT_BATCH_SIZE, self.redis_batch_size, minimum=1
        )
        self.max_idle_time = _integer(
            "max_idle_time", settings.get("MAX_IDLE_TIME_BEFORE_CLOSE") or 0, self.max_idle_time, minimum=0
        )
        interval = settings.get("REDIS_KEY_CHECK_INTERVAL")
        # It has no effect, but a wrong value should be noticed.
        _integer("redis_key_check_interval", interval or 0, self.redis_key_check_interval, minimum=0)
        self.redis_encoding = self.redis_encoding or settings.get("REDIS_ENCODING") or "utf-8"
        self._as_text = settings.getbool("REDIS_DECODE_RESPONSES")
        if runs_alone(crawler):  # `scrapy shell` and the like, which read no messages
            return
        if settings.getbool("REDIS_START_URLS_AS_SET"):  # looked at first, as in scrapy-redis
            kind = "set"
        elif settings.getbool("REDIS_START_URLS_AS_ZSET"):
            kind = "zset"
        else:
            kind = "list"
        self._message_keys = [MessageKey(connection_of(crawler), key, kind=kind) for key in keys]
        crawler.signals.connect(self._start_feeding, signal=signals.spider_opened)
        crawler.signals.connect(self._stop_feeding, signal=signals.spider_closed)
        crawler.signals.connect(self.spider_idle, signal=signals.spider_idle)

    def _read_keys(self, settings: BaseSettings) -> list[str]:
        """Return the keys, each once, and write them into `redis_key`: as a list if several were given. Raises
        BadInput."""
        given = self.redis_key
        if given is None:
            given = settings.get("REDIS_START_URLS_KEY") or START_KEY
        is_list = isinstance(given, (list, tuple))
        keys = list(dict.fromkeys(_format_key(key, self.name) for key in (given if is_list else [given])))
        if not keys:
            raise BadSetting("redis_key list is empty")
        self.redis_key = keys if is_list else keys[0]
        return keys

    async def start(self) -> AsyncIterator[Any]:
        """Yield nothing: all start requests come from Redis."""
        return
        yield  # never reached; it makes the method a generator

    def start_requests(self) -> Any:
        """Refuse scrapy-redis's method, which is never called here. Raises BadSetting."""
        refuse(f"{type(self).__name__}.start_requests", "start_requests")

    def make_request_from_data(self, data: Any) -> Any:
        """Return the request of a message, or several; None or [] for no request.

        `data` is bytes, or text with REDIS_DECODE_RESPONSES. An exception sends the message to the dead letters,
        `<key>:dead`, with the reason.
        """
        return parse_message(data, self.redis_encoding or "utf-8", self)  # type: ignore[arg-type]

    def next_requests(self) -> Iterable[Any]:
        """Yield the requests of the next messages, at most `redis_batch_size`.

        An override is called again and again in a thread, so it may block. An exception sends the messages that it
        fetched to the dead letters. Without an override this method is not called.
        """
        for data in self.fetch_data(self.redis_key, self.redis_batch_size):
            try:
                requests = as_requests(self.make_request_from_data(data))
            except Exception as fault:
                assert self._feeder is not None
                self._feeder.bury(data.encode(self.redis_encoding or "utf-8") if isinstance(data, str) else data, fault)
            else:
                yield from requests

    def fetch_data(self, redis_key: Any, batch_size: Any) -> list[Any]:
        """Return messages of the key, for `next_requests`.

        Other processes get them if this one dies before their requests are in the frontier."""
        if self._feeder is None:
            raise RuntimeError("fetch_data is called by next_requests while the spider runs")
        messages = self._feeder.fetch([redis_key] if isinstance(redis_key, str) else list(redis_key), int(batch_size))
        return [one.decode(self.redis_encoding or "utf-8") for one in messages] if self._as_text else list(messages)

    def spider_idle(self) -> None:
        """Keep the spider open for further messages, until `max_idle_time` is over. Scrapy's signal handler: it keeps
        the spider open by raising DontCloseSpider."""
        if self._feeding is None or self._feeding.done() or self._idle is None:
            return  # no further message will be fed
        if getattr(EngineAdapter(self.crawler.engine).scheduler, "is_stopped", False):
            return
        self._idle.wait()  # raises DontCloseSpider until `max_idle_time` is over
        if not self.max_idle_time:
            raise DontCloseSpider

    def _start_feeding(self) -> None:
        """Start the task that feeds the messages. It calls `next_requests` only for a spider that overrides it, or
        `fetch_data`; else it takes the messages itself."""
        self._idle = IdleWaiter(self.crawler, self.max_idle_time or 0)
        kind = type(self)
        is_overridden = (
            kind.next_requests is not RedisMixin.next_requests or kind.fetch_data is not RedisMixin.fetch_data
        )
        self._feeder = Feeder(
            self.crawler,
            self._message_keys,
            batch_size=self.redis_batch_size or 1,
            make_requests=self._make_requests,
            on_work=self._idle.reset,
            next_requests=self.next_requests if is_overridden else None,
        )
        self._feeding = asyncio.ensure_future(self._feeder.run())

    def _make_requests(self, data: bytes) -> Any:
        """Return the requests that the spider makes of a pushed message. Some spiders take it as text."""
        return self.make_request_from_data(data.decode(self.redis_encoding or "utf-8") if self._as_text else data)

    async def _stop_feeding(self) -> None:
        """End the task that reads the start key."""
        if self._feeding is not None:
            self._feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feeding


class RedisSpider(RedisMixin, Spider):
    """Spider whose start requests come from Redis."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """CrawlSpider, with rules, whose start requests come from Redis."""


def _format_key(key: Any, name: str) -> str:
    """Return the key with the spider's name in place of `%(name)s`. Raises BadInput."""
    try:
        text = str(key) % {"name": name, "spider": name}
    except (KeyError, ValueError, TypeError):
        raise BadSetting(f"redis_key: {key!r} is not a key; %(name)s stands for the spider's name") from None
    if not text.strip():
        raise BadSetting("redis_key must not be empty")
    return text


def _integer(name: str, default: Any, given: Any, *, minimum: int) -> int:
    """Return an attribute's value as an integer, or the default where it is None. Raises BadInput."""
    try:
        number = int(default if given is None else given)
    except (TypeError, ValueError):
        raise BadSetting(f"{name} must be an integer") from None
    if number < minimum:
        raise BadSetting(f"{name}: {number} is less than {minimum}")
    return number
