"""A project as it was written for scrapy-redis, its dotted paths changed and nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from scrapy import Request, Spider, signals
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import dnscache
from scrapy.spiders import CrawlSpider, Rule

from gossamer.scrapy.redis.spiders import RedisCrawlSpider, RedisSpider

for number in range(100):
    dnscache[f"site{number}.test"] = "127.0.0.1"


class StatsFile:
    """Leaves the process's stats behind for the test."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> "StatsFile":
        path = Path(os.environ["SPIDER_STATS"])

        def save() -> None:
            path.write_bytes(msgspec.json.encode(crawler.stats.get_stats()))

        extension = cls()
        extension.save = save
        crawler.signals.connect(save, signal=signals.spider_closed)
        return extension


class LoadsSlowly:
    """An extension that has loaded when somebody writes into the named pipe LOADS_WHEN."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> "LoadsSlowly":
        Path(crawler.settings["LOADS_WHEN"]).read_bytes()
        return cls()


class ExamplePipeline:
    """Marks what passed it."""

    def process_item(self, item: Any) -> Any:
        item["spider"] = "marked"
        return item


class Directory(CrawlSpider):
    """Follows categories, as an ordinary CrawlSpider that only shares its queue."""

    name = "dmoz"
    rules = (Rule(LinkExtractor(allow="/p/"), callback="parse_directory", follow=True),)

    def __init__(self, seeds: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",")

    def parse_directory(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "name": response.css("title::text").get()}


class MySpider(RedisSpider):
    """Reads URLs from myspider:start_urls."""

    name = "myspider_redis"
    redis_key = "myspider:start_urls"
    max_idle_time = 7

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "meta": response.meta.get("job"), "method": response.request.method}


class MyCrawler(RedisCrawlSpider):
    """Reads URLs from mycrawler:start_urls, and follows all links."""

    name = "mycrawler_redis"
    redis_key = "mycrawler:start_urls"
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def parse_page(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Choosing(MySpider):
    """Decides itself which requests are next: those of its key, marked, and those of another source that blocks."""

    name = "choosing"
    redis_key = "choosing:start_urls"

    def next_requests(self) -> Iterator[Any]:
        for request in super().next_requests():
            request.meta["job"] = "chosen"
            yield request
        if extra := self.server.lpop("choosing:extra"):
            yield Request(extra.decode(), dont_filter=True)


class Numbers(RedisSpider):
    """Its messages are numbers of pages; its own reading of them, with mistakes in it."""

    name = "numbers"

    def make_request_from_data(self, data: bytes) -> Any:
        number = int(data)
        return [Request(f"{self.base}/n/{number}", dont_filter=True), Request(f"{self.base}/n/{number}0")]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Moved(CrawlSpider):
    """Goes on with what an old queue held."""

    name = "old"

    def note(self, response: Response, number: int = 1000) -> Iterator[Any]:
        yield {"url": response.url, "number": number, "pair": repr(response.meta.get("pair"))}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.note)


class Overriding(MySpider):
    """Changes what is done here otherwise."""

    name = "overriding"

    def schedule_next_requests(self) -> list[Request]:
        return []


class Prioritised(Spider):
    """Asks at once for pages of priorities that go up and down."""

    name = "prioritised"

    def __init__(self, seed: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [seed]

    def parse(self, response: Response) -> Iterator[Any]:
        for number, priority in enumerate((0, 5, -5, 5, 0)):
            yield response.follow(f"/o/{number}", self.note, priority=priority)

    def note(self, response: Response) -> Iterator[Any]:
        yield {"number": int(response.url[-1])}
