"""A spider that yields the items of a file."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler


class StatsFile:
    """Leaves the process's stats behind for the test."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "StatsFile":
        crawler.signals.connect(cls._save, signal=signals.engine_stopped)
        cls.crawler = crawler
        return cls()

    @classmethod
    def _save(cls) -> None:
        if path := os.environ.get("SPIDER_STATS"):
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            stats = {**cls.crawler.stats.get_stats(), "test/peak_mb": int(peak[1]) / 1024 if peak else 0}
            Path(path).write_bytes(msgspec.json.encode(stats))


class ItemsSpider(scrapy.Spider):
    """Yields the items of a JSON file: those of its part, of so many parts."""

    name = "items"
    part = "0"
    parts = "1"

    # Not from `start`: Scrapy does not end after Ctrl-C while items from there are in pipelines.
    start_urls = ("data:,",)

    def parse(self, response: Any) -> Iterator[Any]:
        yield from json.loads(Path(self.file).read_text())[int(self.part) :: int(self.parts)]
