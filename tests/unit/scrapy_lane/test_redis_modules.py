"""The modules of scrapy-redis that a project's own code imports."""

import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import scrapy_redis.defaults
import scrapy_redis.utils
from scrapy import Request
from scrapy.settings import BaseSettings
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from gossamer.errors import BadInput
from gossamer.scrapy import redis
from gossamer.scrapy.redis import (
    defaults,
    dupefilter,
    picklecompat,
    pipelines,
    queue,
    scheduler,
    settings,
    utils,
)
from gossamer.scrapy.redis.spiders import RedisSpider


@pytest.mark.filterwarnings("ignore:.*retry_on_timeout")
def test_the_package_offers_what_scrapy_redis_offers() -> None:
    client = redis.get_redis(host="one.test", port="7000", db=3)
    assert client.get_connection_kwargs()["host"] == "one.test"
    assert redis.get_redis(url="redis://two.test:1/2").get_connection_kwargs()["db"] == 2
    assert redis.get_redis(redis_cls=dict, host="x") == {"host": "x"}
    assert redis.from_settings is redis.get_redis_from_settings
    found = redis.from_settings(BaseSettings({"REDIS_HOST": "three.test", "REDIS_DECODE_RESPONSES": True}))
    assert (found.get_connection_kwargs()["host"], found.get_connection_kwargs()["decode_responses"]) == (
        "three.test", True,
    )  # fmt: skip


def test_the_defaults_are_the_same() -> None:
    for name in (name for name in dir(scrapy_redis.defaults) if name.isupper()):
        theirs, ours = getattr(scrapy_redis.defaults, name), getattr(defaults, name)
        if isinstance(theirs, str):
            theirs = theirs.replace("scrapy_redis.", "gossamer.scrapy.redis.")
        assert ours == theirs, name


@pytest.mark.parametrize("value", [b"h\xc3\xb6re", "text", 3, None, {b"a": b"b", "c": 1}])
def test_the_helpers_do_the_same(value: Any) -> None:
    assert utils.bytes_to_str(value) == scrapy_redis.utils.bytes_to_str(value)
    assert utils.convert_bytes_to_str(value) == scrapy_redis.utils.convert_bytes_to_str(value)
    for text in ('{"a": 1}', "http://a.test/", "3"):
        assert utils.is_dict(text) == scrapy_redis.utils.is_dict(text)
    assert utils.TextColor.WARNING == scrapy_redis.utils.TextColor.WARNING


def test_a_pickle_of_plain_data_is_read_and_no_other() -> None:
    data = {"url": "http://a.test/", "meta": {"pair": (1, {2})}, "body": b"\xff"}
    assert picklecompat.loads(picklecompat.dumps(data)) == data
    assert pickle.loads(picklecompat.dumps(data)) == data
    with pytest.raises(BadInput, match="not plain data"):
        picklecompat.loads(pickle.dumps(print))


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"redis_key": ""}, "redis_key must not be empty"),
        ({"redis_key": "  "}, "redis_key must not be empty"),
        ({"redis_key": []}, "redis_key list is empty"),
        ({"redis_key": ["a", ""]}, "redis_key must not be empty"),
        ({"redis_batch_size": "x"}, "redis_batch_size must be an integer"),
        ({"max_idle_time": "x"}, "max_idle_time must be an integer"),
        ({"redis_key_check_interval": "x"}, "redis_key_check_interval must be an integer"),
    ],
)
def test_a_wrong_attribute_is_a_value_error_as_in_scrapy_redis(attributes: dict[str, Any], complaint: str) -> None:
    kind = type("Wrong", (RedisSpider,), {"name": "wrong", **attributes})
    with pytest.raises(ValueError, match=complaint):
        kind.from_crawler(get_crawler(kind))


def test_a_spider_without_a_crawler_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="crawler is required"):
        RedisSpider(name="alone").setup_redis()


def made_by_hand() -> dict[str, Callable[[], object]]:
    """As projects' own scripts and extensions make scrapy-redis's objects, or call them."""
    server, crawler = redis.get_redis(host="h.test"), get_crawler(RedisSpider)
    spider = RedisSpider(name="one")
    return {
        "PriorityQueue": lambda: queue.PriorityQueue(server, spider, "one:requests"),
        "FifoQueue": lambda: queue.FifoQueue(server, spider, "one:requests", serializer=picklecompat),
        "LifoQueue": lambda: queue.LifoQueue(server=server, spider=spider, key="one:requests"),
        "SpiderQueue": lambda: queue.SpiderQueue(server, spider, "one:requests"),
        "RFPDupeFilter": lambda: dupefilter.RFPDupeFilter(server, "one:dupefilter"),
        "RFPDupeFilter by names": lambda: dupefilter.RFPDupeFilter(server=server, key="one:dupefilter", debug=True),
        "RFPDupeFilter.from_spider": lambda: dupefilter.RFPDupeFilter.from_spider(spider),
        "RFPDupeFilter.from_settings": lambda: dupefilter.RFPDupeFilter.from_settings(crawler.settings),
        "Scheduler": lambda: scheduler.Scheduler(server, persist=True),
        "Scheduler.from_settings": lambda: scheduler.Scheduler.from_settings(crawler.settings),
        "RedisPipeline": lambda: pipelines.RedisPipeline(server),
        "RedisPipeline.from_settings": lambda: pipelines.RedisPipeline.from_settings(crawler.settings),
        "start_requests": spider.start_requests,
    }


@pytest.mark.parametrize("name", made_by_hand())
def test_an_object_that_a_project_makes_by_hand_names_its_replacement(name: str) -> None:
    replacements = {
        "queue": "crawler.engine.crawl(request)",
        "dupefilter": "scheduler.df.request_seen",
        "scheduler": "SCHEDULER = ",
        "pipeline": "RedisPipeline.from_crawler(crawler)",
        "start_requests": "make_request_from_data",
    }
    kind = next(kind for kind in replacements if kind in name.lower())
    with pytest.raises(ValueError, match="cannot be used with Gossamer") as raised:
        made_by_hand()[name]()
    assert name.partition(" ")[0] in str(raised.value) or "Queue" in name
    assert replacements[kind] in str(raised.value)


def test_attributes_of_scrapy_rediss_scheduler_name_their_replacement() -> None:
    made = object.__new__(scheduler.Scheduler)
    assert not hasattr(made, "queue")
    with pytest.raises(AttributeError, match=r"len\(scheduler\)"):
        len(made.queue)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = made.other


def test_the_dupefilter_is_scrapys_own_for_commands_without_a_frontier() -> None:
    crawler = get_crawler(settings_dict={"DUPEFILTER_CLASS": dupefilter.RFPDupeFilter})
    assert not build_from_crawler(dupefilter.RFPDupeFilter, crawler).request_seen(Request("http://a.test/"))


@pytest.mark.parametrize("kind", ["start_requests", "both"])
def test_a_spider_whose_start_requests_would_never_be_called_is_refused(kind: str) -> None:
    async def start(self: RedisSpider) -> AsyncIterator[Any]:
        yield Request("http://a.test/")

    more = {"start": start} if kind == "both" else {}
    spider = type("Old", (RedisSpider,), {"name": "old", "start_requests": lambda self: iter(()), **more})
    if kind == "both":
        assert spider.from_crawler(get_crawler(spider))
        return
    with pytest.raises(ValueError, match=r"Old\.start_requests cannot be used .* `async def start`"):
        spider.from_crawler(get_crawler(spider))


def test_a_wrong_setting_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="SCHEDULER_SERIALIZER"):
        settings.check(BaseSettings({"SCHEDULER_SERIALIZER": "json"}))
