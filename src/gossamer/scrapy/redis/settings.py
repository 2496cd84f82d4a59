"""scrapy-redis's settings: which are honoured, and which are refused for what reason."""

from collections.abc import Callable
from typing import Any, NamedTuple

from scrapy import Spider
from scrapy.settings import BaseSettings

from gossamer.errors import BadSetting

PREFIX = "scrapy_redis."
OURS = "gossamer.scrapy.redis."

ITEMS_KEY = "%(spider)s:items"
STATS_KEY = "%(spider)s:stats"
START_KEY = "%(name)s:start_urls"
QUEUE_KEY = "%(spider)s:requests"
DUPEFILTER_KEY = "%(spider)s:dupefilter"


class Option(NamedTuple):
    """What becomes of one setting."""

    default: Any
    meaning: str
    fault: Callable[[Any], str] | None = None
    """Why a value is refused; empty: it is taken."""


def _pickled(value: Any) -> str:
    return "requests are stored as MessagePack, never pickled; remove the setting" if value else ""


def _debug(value: Any) -> str:
    on = str(value).strip().lower() not in ("", "0", "false", "none")
    return "duplicates are dropped in batches by the frontier; see the stat dupefilter/filtered" if on else ""


def _filter(value: Any) -> str:
    path = value if isinstance(value, str) else f"{value.__module__}.{value.__qualname__}"
    if path in (OURS + "dupefilter.RFPDupeFilter", "scrapy.dupefilters.RFPDupeFilter"):
        return ""
    return (
        f"{path} is not asked: dedupe is one step of the frontier. A REQUEST_FINGERPRINTER_CLASS says what is the same"
    )


def _seconds(value: Any) -> str:
    try:
        return "" if int(value) >= 0 else f"{value!r} is negative"
    except (TypeError, ValueError):
        return f"{value!r} is no number of seconds"


def _count(value: Any) -> str:
    try:
        return "" if int(value) >= 1 else f"{value!r} is less than 1"
    except (TypeError, ValueError):
        return f"{value!r} is no number"


def _unmade(value: Any) -> str:
    return "scrapy-redis never had it in a release; new work is seen within a tenth of a second" if value else ""


_NEVER = "Refused: scrapy-redis never released it, and new work is seen within a tenth of a second"
_PART = "of the server's address, where REDIS_URL does not say it"

TABLE: dict[str, Option] = {
    "SCHEDULER": Option("", "`gossamer.scrapy.redis.scheduler.Scheduler`"),
    "DUPEFILTER_CLASS": Option("", "The frontier dedupes; only the name is taken, no class of yours", _filter),
    "SCHEDULER_PERSIST": Option(
        False, "What a finished crawl has seen stays seen. False: the next one after it sees all anew. No process that "
        "closes takes anything away from others",
    ),
    "SCHEDULER_FLUSH_ON_START": Option(
        False, "Begin with nothing queued and nothing seen. Only the first process does: one that joins others at "
        "work, or was started before they flushed, does not",
    ),
    "SCHEDULER_IDLE_BEFORE_CLOSE": Option(0, "Seconds that a spider without work waits before it closes", _seconds),
    "SCHEDULER_QUEUE_KEY": Option(
        QUEUE_KEY, "Names the crawl, as GOSSAMER_CRAWL_ID does: spiders of one key and one name share it. Requests "
        "that other programs push there are read while spiders run",
    ),
    "SCHEDULER_QUEUE_CLASS": Option(
        OURS + "queue.PriorityQueue", "The order: PriorityQueue, FifoQueue or LifoQueue (and their old aliases)",
    ),
    "SCHEDULER_DUPEFILTER_KEY": Option(
        DUPEFILTER_KEY, "Where the fingerprints of scrapy-redis are: what is in them is not fetched again. Nothing is "
        "written there",
    ),
    "SCHEDULER_DUPEFILTER_CLASS": Option("", "scrapy-redis never read it either", _filter),
    "SCHEDULER_SERIALIZER": Option("", "Refused: requests are stored as MessagePack, never pickled", _pickled),
    "DUPEFILTER_DEBUG": Option(False, "Refused when true: the stat `dupefilter/filtered` counts duplicates", _debug),
    "REDIS_URL": Option("", "The server of start keys, items and stats; of the frontier too without GOSSAMER_FRONTIER"),
    "REDIS_HOST": Option("localhost", f"Host {_PART}"),
    "REDIS_PORT": Option(6379, f"Port {_PART}", _count),
    "REDIS_DB": Option(0, f"Database {_PART}", _seconds),
    "REDIS_ENCODING": Option("utf-8", "Of start messages"),
    "REDIS_DECODE_RESPONSES": Option(False, "`make_request_from_data` and `self.server` get text instead of bytes"),
    "REDIS_PARAMS": Option(
        {}, "Of redis-py's parameters those that say where and as whom to connect, TLS, and the two time limits; pool "
        "and retry parameters concern `self.server` only; `redis_cls` is refused",
    ),
    "REDIS_ITEMS_KEY": Option(ITEMS_KEY, "The list of RedisPipeline's items"),
    "REDIS_ITEMS_SERIALIZER": Option("", "The path of a function from an item to text or bytes. Empty: Scrapy's JSON"),
    "STATS_CLASS": Option("", "`gossamer.scrapy.redis.stats.RedisStatsCollector`"),
    "STATS_KEY": Option(STATS_KEY, "The hash of the merged stats; it lives for a week after the last process"),
    "REDIS_START_URLS_KEY": Option(START_KEY, "The start key"),
    "REDIS_START_URLS_AS_SET": Option(False, "The start key is a set. What it really is counts in any case"),
    "REDIS_START_URLS_AS_ZSET": Option(False, "The start key is a sorted set, highest score first; as before"),
    "REDIS_START_URLS_BATCH_SIZE": Option(None, "Messages taken at once; CONCURRENT_REQUESTS where not set", _count),
    "MAX_IDLE_TIME_BEFORE_CLOSE": Option(
        0, "A RedisSpider closes when the whole crawl has had no work for so many seconds. 0: never", _seconds,
    ),
    "REDIS_KEY_CHECK_INTERVAL": Option(None, "Several keys are looked at in their order every time; of no effect"),
    "REDIS_IDLE_BACKOFF_ENABLED": Option(None, _NEVER, _unmade),
    "REDIS_IDLE_BACKOFF_MIN": Option(None, _NEVER, _unmade),
    "REDIS_IDLE_BACKOFF_MAX": Option(None, _NEVER, _unmade),
    "REDIS_IDLE_BACKOFF_FACTOR": Option(None, _NEVER, _unmade),
}  # fmt: skip


def check(settings: BaseSettings) -> None:
    """Raises BadInput, with the setting's name, for the first that is not honoured."""
    for name, row in TABLE.items():
        value = settings.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, str) and value.startswith(PREFIX) and name != "SCHEDULER_SERIALIZER":
            raise BadSetting(f"{name}: {value} works with scrapy-redis only; write {OURS}{value.removeprefix(PREFIX)}")
        if row.fault is not None and (fault := row.fault(value)):
            raise BadSetting(f"{name}: {fault}")
    for path in settings.getdict("ITEM_PIPELINES"):
        if isinstance(path, str) and path.startswith(PREFIX):
            raise BadSetting(
                f"ITEM_PIPELINES: {path} works with scrapy-redis only; write {OURS}{path.removeprefix(PREFIX)}"
            )


def check_spider(spider: Spider) -> None:
    """Raises BadInput for a spider that is still one of scrapy-redis's: that would take messages away before their
    requests are in the frontier."""
    for kind in type(spider).__mro__:
        path = f"{kind.__module__}.{kind.__qualname__}"
        if path.startswith(PREFIX):
            raise BadSetting(
                f"the spider {spider.name} is a {path}, which works with scrapy-redis only; import "
                f"{kind.__qualname__} from {OURS}{kind.__module__.removeprefix(PREFIX)}"
            )
