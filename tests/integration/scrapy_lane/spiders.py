"""Ordinary Scrapy spiders: nothing in them knows of Gossamer."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.resolver import dnscache


class StatsFile:
    """Leaves the process's stats behind for the test."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._save, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "StatsFile":
        return cls(crawler)

    def _save(self) -> None:
        if path := os.environ.get("SPIDER_STATS"):
            stats = dict(self._crawler.stats.get_stats())
            Path(path).write_bytes(msgspec.json.encode(stats))


class LocalSpider(scrapy.Spider):
    """Every host of the fake web is this machine."""

    def __init__(self, seeds: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",") if seeds else []

    async def start(self) -> AsyncIterator[Any]:
        for number in range(100):
            dnscache[f"site{number}.test"] = "127.0.0.1"
        async for request in super().start():
            yield request


class Links(LocalSpider):
    """An item of every page, and every link followed."""

    name = "links"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse)
