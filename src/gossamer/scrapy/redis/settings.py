"""Table of scrapy-redis's settings: which are supported, which are refused, and why.

Fixed: the names and defaults, which are scrapy-redis's: a project that sets nothing must find its keys in Redis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from scrapy import Spider
from scrapy.settings import BaseSettings

from gossamer.errors import BadSetting

THEIRS = "scrapy_redis."
OURS = "gossamer.scrapy.redis."
"""Beginnings of the paths of classes, before and after a project's move. The module names after them are the same."""

# scrapy-redis's names of keys in Redis. Projects' data are stored under them: fixed.
ITEMS_KEY = "%(spider)s:items"
STATS_KEY = "%(spider)s:stats"
START_KEY = "%(name)s:start_urls"
QUEUE_KEY = "%(spider)s:requests"
DUPEFILTER_KEY = "%(spider)s:dupefilter"


class Option(NamedTuple):
    """One setting of scrapy-redis."""

    default: Any
    """Only for the reference page; the code that reads the setting has the default itself."""
    meaning: str
    refusal: Callable[[Any], str] | None = None
    """Returns why a value is refused; empty: the value is supported. None: every value is."""


# Functions for `Option.refusal`.


def _refuse_serializer(value: Any) -> str:
    return "requests are stored as MessagePack, never pickled; remove the setting" if value else ""


def _refuse_debug(value: Any) -> str:
    is_on = str(value).strip().lower() not in ("", "0", "false", "none")
    return "the frontier drops duplicates in batches; see the stat dupefilter/filtered" if is_on else ""


def _refuse_filter(value: Any) -> str:
    """Accept scrapy-redis's dupefilter and Scrapy's, by class or dotted path."""
    path = value if isinstance(value, str) else f"{value.__module__}.{value.__qualname__}"
    if path in (OURS + "dupefilter.RFPDupeFilter", "scrapy.dupefilters.RFPDupeFilter"):
        return ""
    return (
        f"{path} would never be called, because the frontier drops duplicates; set a REQUEST_FINGERPRINTER_CLASS to "
        "decide which requests are the same"
    )


def _refuse_negative(value: Any) -> str:
    try:
        return "" if int(value) >= 0 else f"{value!r} is negative"
    except (TypeError, ValueError):
        return f"{value!r} is not a number"


def _refuse_below_one(value: Any) -> str:
    try:
        return "" if int(value) >= 1 else f"{value!r} is less than 1"
    except (TypeError, ValueError):
        return f"{value!r} is not a number"


def _refuse_unreleased(value: Any) -> str:
    return "no release of scrapy-redis had it; new messages are seen within a tenth of a second" if value else ""


# The tenth of a second is `_POLL_SECONDS` in redis/feeder.py.
_UNRELEASED = "Refused: no release of scrapy-redis had it, and new messages are seen within a tenth of a second"
_IN_ADDRESS = "of the server, where REDIS_URL has none"

OPTIONS: dict[str, Option] = {
    "SCHEDULER": Option("", "`gossamer.scrapy.redis.scheduler.Scheduler`"),
    "DUPEFILTER_CLASS": Option(
        "", "Accepted for compatibility. The frontier drops duplicates; a class of your own is refused", _refuse_filter,
    ),
    "SCHEDULER_PERSIST": Option(
        False, "True: the next run of a finished crawl skips what earlier runs have seen",
    ),
    "SCHEDULER_FLUSH_ON_START": Option(
        False, "Start with nothing queued and nothing seen. Only the first process flushes; a process that joins "
        "others (with a heartbeat within half a minute), or that was started before they flushed, does not",
    ),
    "SCHEDULER_IDLE_BEFORE_CLOSE": Option(
        0, "Seconds that a spider without work waits before it closes", _refuse_negative,
    ),
    "SCHEDULER_QUEUE_KEY": Option(
        QUEUE_KEY, "Names the crawl, as GOSSAMER_CRAWL_ID does. Requests that other programs push into this key are "
"read while spiders run",
    ),
    "SCHEDULER_QUEUE_CLASS": Option(
        OURS + "queue.PriorityQueue", "Order of the requests: PriorityQueue, FifoQueue, LifoQueue, or their old names",
    ),
    "SCHEDULER_DUPEFILTER_KEY": Option(
        DUPEFILTER_KEY, "Key of the fingerprints that scrapy-redis left. It is never written",
    ),
    "SCHEDULER_DUPEFILTER_CLASS": Option("", "No effect, as in scrapy-redis", _refuse_filter),
    "SCHEDULER_SERIALIZER": Option(
        "", "Refused: requests are stored as MessagePack, never pickled", _refuse_serializer,
    ),
    "DUPEFILTER_DEBUG": Option(
        False, "Refused when true: the stat `dupefilter/filtered` counts duplicates", _refuse_debug,
    ),
    "REDIS_URL": Option(
        "", "Server of the start keys, items and statistics, and of the frontier without GOSSAMER_FRONTIER",
    ),
    "REDIS_HOST": Option("localhost", f"Host {_IN_ADDRESS}"),
    "REDIS_PORT": Option(6379, f"Port {_IN_ADDRESS}", _refuse_below_one),
    "REDIS_DB": Option(0, f"Database {_IN_ADDRESS}", _refuse_negative),
    "REDIS_ENCODING": Option("utf-8", "Encoding of start messages"),
    "REDIS_DECODE_RESPONSES": Option(
        False, "`make_request_from_data` and `self.server` get text instead of bytes",
    ),
    "REDIS_PARAMS": Option(
        {}, "Parameters of redis-py: address, user and password, TLS, and the two timeouts; others affect "
"`self.server` only. `redis_cls` is refused",
    ),
    "REDIS_ITEMS_KEY": Option(ITEMS_KEY, "Key of the list to which RedisPipeline appends items"),
    "REDIS_ITEMS_SERIALIZER": Option(
        "", "Path of a function that turns an item into text or bytes. Empty: Scrapy's JSON encoder",
    ),
    "STATS_CLASS": Option(
        "", "`gossamer.scrapy.redis.stats.RedisStatsCollector`: merges into the hash once a second; counts are sums of "
        "all processes, and start again with a new crawl",
    ),
    "STATS_KEY": Option(
        STATS_KEY, "Key of the merged statistics, for a week after the last change",
    ),
    "REDIS_START_URLS_KEY": Option(START_KEY, "Key of the start messages"),
    "REDIS_START_URLS_AS_SET": Option(
        False, "The start key is a set, if it is empty; otherwise its actual type counts",
    ),
    "REDIS_START_URLS_AS_ZSET": Option(
        False, "The start key is a sorted set, highest score first, if it is empty",
    ),
    "REDIS_START_URLS_BATCH_SIZE": Option(
        None, "Maximum number of start messages taken at once. Unset: CONCURRENT_REQUESTS", _refuse_below_one,
    ),
    "MAX_IDLE_TIME_BEFORE_CLOSE": Option(
        0, "Seconds without work in the whole crawl after which a RedisSpider closes. 0: never", _refuse_negative,
    ),
    "REDIS_KEY_CHECK_INTERVAL": Option(None, "No effect: all keys are looked at, in their order, every time"),
    "REDIS_IDLE_BACKOFF_ENABLED": Option(None, _UNRELEASED, _refuse_unreleased),
    "REDIS_IDLE_BACKOFF_MIN": Option(None, _UNRELEASED, _refuse_unreleased),
    "REDIS_IDLE_BACKOFF_MAX": Option(None, _UNRELEASED, _refuse_unreleased),
    "REDIS_IDLE_BACKOFF_FACTOR": Option(None, _UNRELEASED, _refuse_unreleased),
}  # fmt: skip
"""All settings by name. `check` looks at them in this order and reports the first that is refused."""


def check(settings: BaseSettings) -> None:
    """Raise BadInput, with the setting's name, for the first setting that is refused."""
    for name, option in OPTIONS.items():
        value = settings.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, str) and value.startswith(THEIRS) and name != "SCHEDULER_SERIALIZER":
            raise BadSetting(f"{name}: {value} works with scrapy-redis only; write {OURS}{value.removeprefix(THEIRS)}")
        if option.refusal is not None and (why := option.refusal(value)):
            raise BadSetting(f"{name}: {why}")
    for path in settings.getdict("ITEM_PIPELINES"):
        if isinstance(path, str) and path.startswith(THEIRS):
            raise BadSetting(
                f"ITEM_PIPELINES: {path} works with scrapy-redis only; write {OURS}{path.removeprefix(THEIRS)}"
            )


def check_spider(spider: Spider) -> None:
    """Raise BadInput for a spider that still has a base class of scrapy-redis.

    That class would take messages away before their requests are in the frontier.
    """
    for kind in type(spider).__mro__:
        path = f"{kind.__module__}.{kind.__qualname__}"
        if path.startswith(THEIRS):
            raise BadSetting(
                f"the spider {spider.name} is a {path}, which works with scrapy-redis only; import "
                f"{kind.__qualname__} from {OURS}{kind.__module__.removeprefix(THEIRS)}"
            )
