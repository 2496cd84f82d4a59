"""Every setting of scrapy-redis is honoured, or refused by its name."""

from typing import Any

import pytest
import scrapy_redis.spiders
from scrapy import Spider
from scrapy.settings import BaseSettings

from gossamer.errors import BadInput
from gossamer.model.crawl import Order
from gossamer.scrapy.redis import queue
from gossamer.scrapy.redis.connection import server_address
from gossamer.scrapy.redis.settings import OPTIONS, check, check_spider

TAKEN: dict[str, list[Any]] = {
    "SCHEDULER": ["gossamer.scrapy.redis.scheduler.Scheduler"],
    "DUPEFILTER_CLASS": ["gossamer.scrapy.redis.dupefilter.RFPDupeFilter", "scrapy.dupefilters.RFPDupeFilter"],
    "SCHEDULER_PERSIST": [True, False],
    "SCHEDULER_FLUSH_ON_START": [True, False],
    "SCHEDULER_IDLE_BEFORE_CLOSE": [0, 5, "5"],
    "SCHEDULER_QUEUE_KEY": ["%(spider)s:requests"],
    "SCHEDULER_QUEUE_CLASS": ["gossamer.scrapy.redis.queue.LifoQueue"],
    "SCHEDULER_DUPEFILTER_KEY": ["%(spider)s:dupefilter"],
    "SCHEDULER_DUPEFILTER_CLASS": ["gossamer.scrapy.redis.dupefilter.RFPDupeFilter"],
    "SCHEDULER_SERIALIZER": ["", None],
    "DUPEFILTER_DEBUG": [False, "0"],
    "REDIS_URL": ["redis://localhost:6379"],
    "REDIS_HOST": ["localhost"],
    "REDIS_PORT": [6379, "6379"],
    "REDIS_DB": [0, 3],
    "REDIS_ENCODING": ["latin-1"],
    "REDIS_DECODE_RESPONSES": [True],
    "REDIS_PARAMS": [{"password": "x"}],
    "REDIS_ITEMS_KEY": ["%(spider)s:items"],
    "REDIS_ITEMS_SERIALIZER": ["json.dumps"],
    "STATS_CLASS": ["gossamer.scrapy.redis.stats.RedisStatsCollector"],
    "STATS_KEY": ["%(spider)s:stats"],
    "REDIS_START_URLS_KEY": ["%(name)s:start_urls"],
    "REDIS_START_URLS_AS_SET": [True],
    "REDIS_START_URLS_AS_ZSET": [True],
    "REDIS_START_URLS_BATCH_SIZE": [1, 16],
    "MAX_IDLE_TIME_BEFORE_CLOSE": [0, 12],
    "REDIS_KEY_CHECK_INTERVAL": [None, 5],
    "REDIS_IDLE_BACKOFF_ENABLED": [None, False],
    "REDIS_IDLE_BACKOFF_MIN": [None],
    "REDIS_IDLE_BACKOFF_MAX": [None],
    "REDIS_IDLE_BACKOFF_FACTOR": [None],
}

REFUSED: list[tuple[str, Any, str]] = [
    ("SCHEDULER_SERIALIZER", "scrapy_redis.picklecompat", "never pickled"),
    ("SCHEDULER_SERIALIZER", "json", "never pickled"),
    ("DUPEFILTER_DEBUG", True, "dupefilter/filtered"),
    ("DUPEFILTER_CLASS", "scrapy.dupefilters.BaseDupeFilter", "REQUEST_FINGERPRINTER_CLASS"),
    ("DUPEFILTER_CLASS", "scrapy_redis.dupefilter.RFPDupeFilter", "gossamer.scrapy.redis.dupefilter.RFPDupeFilter"),
    ("SCHEDULER_QUEUE_CLASS", "scrapy_redis.queue.FifoQueue", "gossamer.scrapy.redis.queue.FifoQueue"),
    ("STATS_CLASS", "scrapy_redis.stats.RedisStatsCollector", "gossamer.scrapy.redis.stats.RedisStatsCollector"),
    ("SCHEDULER_IDLE_BEFORE_CLOSE", -1, "negative"),
    ("MAX_IDLE_TIME_BEFORE_CLOSE", "soon", "not a number"),
    ("REDIS_PORT", "x", "not a number"),
    ("REDIS_START_URLS_BATCH_SIZE", 0, "less than 1"),
    ("REDIS_IDLE_BACKOFF_ENABLED", True, "release"),
    ("ITEM_PIPELINES", {"scrapy_redis.pipelines.RedisPipeline": 1}, "gossamer.scrapy.redis.pipelines.RedisPipeline"),
]


def test_every_row_is_tried() -> None:
    assert set(TAKEN) == set(OPTIONS)
    assert all(row.meaning for row in OPTIONS.values())


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_honoured_is_taken(name: str) -> None:
    for value in TAKEN[name]:
        check(BaseSettings({name: value}))


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_what_is_refused_is_named(name: str, value: Any, reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check(BaseSettings({name: value}))
    assert name in str(refusal.value)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "redis://localhost:6379/0"),
        ({"REDIS_HOST": "far", "REDIS_PORT": "7000", "REDIS_DB": 2}, "redis://far:7000/2"),
        ({"REDIS_URL": "redis://url:1/3", "REDIS_HOST": "host"}, "redis://url:1/3"),
        ({"REDIS_URL": "redis://url:1", "REDIS_PARAMS": {"password": "a/b", "db": 4}}, "redis://:a%2Fb@url:1/4"),
        ({"REDIS_PARAMS": {"host": "h", "username": "u", "password": "p", "ssl": True}}, "rediss://u:p@h:6379/0"),
        ({"REDIS_PARAMS": {"unix_socket_path": "/s.sock"}}, "unix:///s.sock?db=0"),
        ({"GOSSAMER_FRONTIER": "redis://ours:1"}, "redis://ours:1"),
        ({"GOSSAMER_FRONTIER": "redis://ours:1", "REDIS_HOST": "theirs"}, "redis://theirs:6379/0"),
    ],
)
def test_the_address(settings: dict[str, Any], address: str) -> None:
    assert server_address(BaseSettings(settings)) == address


@pytest.mark.parametrize(
    ("parameters", "reason"), [({"redis_cls": "a.B"}, "redis+cluster://"), ({"colour": 1}, "colour is not known")]
)
def test_parameters_of_other_clients_are_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match="REDIS_PARAMS") as refusal:
        server_address(BaseSettings({"REDIS_PARAMS": parameters}))
    assert reason in str(refusal.value)


def test_the_three_orders_and_their_old_names() -> None:
    assert queue.SpiderPriorityQueue.order is Order.FIFO
    assert queue.SpiderPriorityQueue.priorities
    assert (queue.SpiderQueue.order, queue.SpiderQueue.priorities) == (Order.FIFO, False)
    assert (queue.SpiderStack.order, queue.SpiderStack.priorities) == (Order.LIFO, False)


class Moved(Spider):
    name = "moved"


class Forgotten(scrapy_redis.spiders.RedisCrawlSpider):  # type: ignore[misc]
    name = "forgotten"


def test_a_spider_that_was_not_moved_is_refused() -> None:
    check_spider(Moved())
    with pytest.raises(BadInput, match=r"import RedisCrawlSpider from gossamer\.scrapy\.redis\.spiders"):
        check_spider(Forgotten())
