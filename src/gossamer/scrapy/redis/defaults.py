"""scrapy-redis's module of default values, for projects whose code reads them.

Names and values must stay equal to those of scrapy-redis, with this package's paths in place of its own; a test
compares them. Nothing in Gossamer reads this module, so a change here changes no behaviour of a crawl.
"""

from typing import Any

from gossamer.scrapy.redis.connection import DEFAULTS
from gossamer.scrapy.redis.settings import DUPEFILTER_KEY as SCHEDULER_DUPEFILTER_KEY
from gossamer.scrapy.redis.settings import ITEMS_KEY as PIPELINE_KEY
from gossamer.scrapy.redis.settings import OURS, STATS_KEY
from gossamer.scrapy.redis.settings import QUEUE_KEY as SCHEDULER_QUEUE_KEY
from gossamer.scrapy.redis.settings import START_KEY as START_URLS_KEY

__all__ = [
    "DUPEFILTER_KEY",
    "MAX_IDLE_TIME",
    "PIPELINE_KEY",
    "REDIS_CONCURRENT_REQUESTS",
    "REDIS_ENCODING",
    "REDIS_KEY_CHECK_INTERVAL",
    "REDIS_PARAMS",
    "SCHEDULER_DUPEFILTER_CLASS",
    "SCHEDULER_DUPEFILTER_KEY",
    "SCHEDULER_PERSIST",
    "SCHEDULER_QUEUE_CLASS",
    "SCHEDULER_QUEUE_KEY",
    "START_URLS_AS_SET",
    "START_URLS_AS_ZSET",
    "START_URLS_KEY",
    "STATS_KEY",
]

# scrapy-redis's values, as the first lines say: none may be changed.
DUPEFILTER_KEY = "dupefilter:%(timestamp)s"
REDIS_ENCODING = "utf-8"
REDIS_PARAMS = dict(DEFAULTS)
REDIS_CONCURRENT_REQUESTS = 16
SCHEDULER_QUEUE_CLASS = OURS + "queue.PriorityQueue"
SCHEDULER_DUPEFILTER_CLASS = OURS + "dupefilter.RFPDupeFilter"
SCHEDULER_PERSIST = False
START_URLS_AS_SET = False
START_URLS_AS_ZSET = False
REDIS_KEY_CHECK_INTERVAL = None
MAX_IDLE_TIME = 0


def __getattr__(name: str) -> Any:
    """Return REDIS_CLS, imported at its first use: redis-py may be missing, and nothing else here needs it."""
    if name == "REDIS_CLS":
        import redis

        return redis.Redis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
