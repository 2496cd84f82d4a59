"""Links that are handed over: what a job of a batch gets of them, and what the store of links promises."""

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.test import get_crawler

from gossamer.errors import BadInput
from gossamer.platform_client.batches import LinkStore
from gossamer.scrapy.batches import LinkBatches

PAGE = HtmlResponse("http://shop.test/index#top", request=Request("http://shop.test/index"))


class Shop(CrawlSpider):
    name = "shop"
    rules = (Rule(LinkExtractor(allow="index")), Rule(LinkExtractor(), callback="parse_page"))

    def request(self, path: str, **fields: Any) -> Request:
        """A request of the second rule, as its `process_request` may have changed it."""
        meta = {"rule": 1, "link_text": "more", "depth": 2, **fields.pop("meta", {})}
        own = {"callback": self._callback, "errback": self._errback, "meta": meta}
        made = Request(f"http://shop.test/{path}", **{**own, **fields})
        made.headers.setdefault("Referer", "http://shop.test/index")
        return made


def crawl(folder: Path | None = None, **settings: Any) -> tuple[Crawler, Shop, LinkBatches]:
    given = {"DISTRIBUTED_TARGET_RULE": 1, "DISTRIBUTED_TARGET_HOSTS": ["127.0.0.1:1"], "JOBDIR": folder, **settings}
    crawler = get_crawler(Shop, {name: value for name, value in given.items() if value is not None})
    spider = crawler.spider = Shop.from_crawler(crawler)
    crawler._apply_settings()
    return crawler, spider, LinkBatches.from_crawler(crawler)


def followed(middleware: LinkBatches, requests: list[Request], *, fails: bool = False) -> list[Request]:
    """The requests that the middleware leaves to the crawl."""

    async def result() -> AsyncIterator[Request]:
        for request in requests:
            yield request
        if fails:
            raise ValueError("the page has no price")

    async def run() -> list[Request]:
        return [one async for one in middleware.process_spider_output(PAGE, result())]

    return asyncio.run(run())


def stored(folder: Path, middleware: LinkBatches) -> list[Any]:
    """The links that a crawl left in its folder."""
    assert middleware._store is not None
    middleware._store.close()
    store = LinkStore(folder)
    store.make_batches(1000, everything=True)
    links = [link for batch in store.waiting() for link in store.load(batch).links]
    store.close()
    return links


def test_the_job_of_a_batch_makes_the_requests_that_a_rule_has_changed(tmp_path: Path) -> None:
    _, spider, middleware = crawl(tmp_path)
    changed = spider.request(
        "p/2",
        method="POST",
        headers={"X-Shop": ["a", "é"], "Accept": "text/html"},
        cookies={"currency": "EUR"},
        body="q=é",
        meta={"proxy": "http://127.0.0.1:3128", "page": {"number": 2}},
        cb_kwargs={"colour": "red"},
        dont_filter=True,
    )
    assert followed(middleware, [spider.request("p/1"), changed]) == []
    links = stored(tmp_path, middleware)
    assert links[0] == "http://shop.test/p/1"

    _, spider, job = crawl(DISTRIBUTED_START_URLS=json.dumps(links))

    async def start() -> list[Request]:
        async def none() -> AsyncIterator[Any]:
            for nothing in ():
                yield nothing

        return [one async for one in job.process_start(none())]

    plain, made = asyncio.run(start())
    assert (plain.url, plain.method, plain.headers, plain.dont_filter) == (links[0], "GET", {}, False)
    del changed.headers["Referer"], changed.meta["depth"]
    for field in ("url", "method", "headers", "cookies", "body", "cb_kwargs", "dont_filter"):
        assert getattr(made, field) == getattr(changed, field), field
    assert made.meta == {**changed.meta, "link_text": ""}
    assert (made.callback, made.errback) == (spider._callback, spider._errback)


def test_requests_that_json_cannot_hold_are_followed_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crawler, spider, middleware = crawl(tmp_path)
    whole = [
        spider.request("p/1", meta={"place": (1, 2), "page": 3}),
        spider.request("p/2", meta={"place": (3, 4)}),
        spider.request("p/3", method="POST", body=b"\xff"),
        spider.request("p/4", callback=print),
        spider.request("p/5", method="POST", body="x" * 64_000),
    ]
    with caplog.at_level(logging.WARNING):
        assert followed(middleware, whole) == whole
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["meta['place']", "body", "callback", "more than 64000 bytes"]
    assert crawler.stats is not None
    assert crawler.stats.get_value("distributed/followed") == 5
    assert stored(tmp_path, middleware) == []


def test_links_before_the_error_of_a_callback_are_kept(tmp_path: Path) -> None:
    _, spider, middleware = crawl(tmp_path)
    with pytest.raises(ValueError, match="no price"):
        followed(middleware, [spider.request("p/1")], fails=True)
    assert stored(tmp_path, middleware) == ["http://shop.test/p/1"]


def test_one_crawl_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    store = LinkStore(tmp_path)
    with pytest.raises(BadInput, match="another crawl"):
        LinkStore(tmp_path)
    store.close()
    LinkStore(tmp_path).close()


def test_a_batch_that_failed_waits_behind_the_others() -> None:
    store = LinkStore(None)
    store.add([(None, f"http://shop.test/{number}") for number in range(3)])
    store.make_batches(1, everything=True)
    first, second, third = store.waiting()
    store.postpone(first.number)
    assert [batch.number for batch in store.waiting()] == [second.number, third.number, first.number]
    store.close()


def test_a_store_that_cannot_be_opened_keeps_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "distributed.db").write_bytes(b"not a database" * 100)
    for _ in range(2):  # the second time, the folder is not in use
        with pytest.raises(BadInput, match=r"distributed.db cannot be used: file is not a database"):
            LinkStore(tmp_path)
    gc.collect()  # a connection that is open warns from Python 3.13 on


def test_batches_with_the_same_number_and_other_links_have_other_names(tmp_path: Path) -> None:
    """A folder that was restored from a copy makes its next batch a second time."""
    names = set()
    for number in range(2):
        store = LinkStore(tmp_path)
        store.add([(None, f"http://shop.test/{number}")])
        store.make_batches(1, everything=True)
        [batch] = store.waiting()
        names.add(store.load(batch).name)
        store._connection.execute("DELETE FROM batch")
        store._connection.execute("DELETE FROM link")
        store.close()
    assert len(names) == 2


def test_a_rule_that_the_spider_does_not_have_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for rule, warnings in ((1, 0), (2, 1)):
        _, spider, middleware = crawl(tmp_path / str(rule), DISTRIBUTED_TARGET_RULE=rule)
        middleware._opened(spider)
        middleware._finish()
        assert caplog.text.count(f"shop has no rule {rule}") == warnings
