"""The warning names the attributes of a spider that pages change, and no others."""

import asyncio
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pytest
from scrapy import Spider
from scrapy.extensions.spiderstate import SpiderState
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider
from scrapy.utils.test import get_crawler

from gossamer.scrapy.spider_attributes import SpiderAttributes


class Plain(Spider):
    """What spiders have before any page."""

    name = "plain"
    custom_settings = {"USER_AGENT": "x"}  # noqa: RUF012 (as projects write it)
    shared: set[str] = set()  # noqa: RUF012
    total = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pages = 0
        self.ratio = float("nan")
        self.token: str | None = None
        self.since = datetime(2026, 1, 1, tzinfo=UTC)
        self.urls: list[str] = []
        self.seen: set[str] = set()
        self.recent: deque[str] = deque(["one"], maxlen=1)
        self.counts = {"good": 0, "bad": 0}
        self.by_site: defaultdict[str, list[int]] = defaultdict(list)
        self.words: Counter[str] = Counter("a")
        self.pair = (0, 0)
        self.numbers = itertools.count()
        self.extractor = LinkExtractor()
        self.lock: Any = None
        self.large = dict.fromkeys(range(100))

    @cached_property
    def suffixes(self) -> list[str]:
        return [".test"]


def change(spider: Plain, name: str, value: Any) -> None:
    setattr(spider, name, value)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("pages", lambda spider: change(spider, "pages", spider.pages + 1)),
        ("total", lambda spider: change(spider, "total", spider.total + 1)),
        ("new", lambda spider: change(spider, "new", 1)),
        ("ratio", lambda spider: change(spider, "ratio", 0.5)),
        ("token", lambda spider: change(spider, "token", "secret")),
        ("since", lambda spider: change(spider, "since", spider.since + timedelta(1))),
        ("urls", lambda spider: spider.urls.append("a")),
        ("seen", lambda spider: spider.seen.add("a")),
        ("shared", lambda spider: spider.shared.add("a")),
        ("recent", lambda spider: spider.recent.append("two")),
        ("counts", lambda spider: spider.counts.update(good=1)),
        ("by_site", lambda spider: spider.by_site["a"].append(1)),
        ("words", lambda spider: spider.words.update("a")),
        ("pair", lambda spider: change(spider, "pair", (1, 0))),
        ("numbers", lambda spider: next(spider.numbers)),
        ("large", lambda spider: spider.large.popitem()),
    ],
)
def test_an_attribute_that_a_page_changes_is_found(name: str, page: Callable[[Plain], Any]) -> None:
    Plain.shared.clear()
    spider = Plain.from_crawler(get_crawler(Plain))
    attributes = SpiderAttributes(spider)
    for number in range(3):
        before = attributes.before_page()
        assert before is not None
        if number:
            page(spider)
        assert attributes.after_page(before) == (number == 1), "once"
    assert list(attributes.changed) == [name]


def test_what_pages_do_not_change_is_not_found() -> None:
    crawler = get_crawler(Plain)
    spider = Plain.from_crawler(crawler)
    SpiderState().spider_opened(spider)
    attributes = SpiderAttributes(spider)
    for _ in range(3):
        before = attributes.before_page()
        assert before is not None
        spider.logger.info("a line")
        spider.crawler.stats.inc_value("pages")
        assert spider.suffixes
        assert spider.ratio != spider.ratio
        spider.extractor.allow_domains.add("a.test")
        spider.lock = spider.lock or asyncio.Lock()
        assert not attributes.after_page(before)
    assert not attributes.changed


@pytest.mark.parametrize("kind", [CrawlSpider, XMLFeedSpider, CSVFeedSpider, SitemapSpider])
def test_scrapys_spiders_change_nothing(kind: type[Spider]) -> None:
    own = type("Own", (kind,), {"name": "own", "rules": [Rule(LinkExtractor())], "start_urls": ["http://a.test/"]})
    spider = own.from_crawler(get_crawler(own))
    attributes = SpiderAttributes(spider)
    before = attributes.before_page()
    assert before is not None
    assert not attributes.after_page(before)


def test_pages_are_compared_at_the_beginning_only() -> None:
    attributes = SpiderAttributes(Plain())
    assert sum(attributes.before_page() is not None for _ in range(1000)) == 200
