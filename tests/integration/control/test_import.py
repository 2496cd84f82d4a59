"""The import of a scrapy-redis queue into a frontier whose crawl takes no more requests."""

import pickle

import pytest

from gossamer.control.scrapy_redis import ScrapyRedisImport, crawl_of, find_leftovers
from gossamer.errors import CrawlRefused
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Order
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server


async def test_requests_of_a_stopped_spider_are_not_taken_for_imported(one_server: Server, shards: Shards) -> None:
    frontier = await ValkeyFrontier.connect(one_server.address, shards=1)
    crawl = crawl_of(appid="bot", crawlid="old", order=Order.FIFO)

    async def run() -> None:
        keys = {"queue": "old:requests", "dupefilter": "old:dupefilter", "start_urls": "old:start_urls"}
        leftovers = await find_leftovers(shards, **keys)
        await ScrapyRedisImport(shards, leftovers, frontier, crawl, spider="old").run()

    try:
        await shards.command("old:requests", "RPUSH", "old:requests", pickle.dumps({"url": "http://a.test/"}))
        await run()
        await frontier.stop_crawl(crawl.id, spider="old")
        await shards.command("old:requests", "RPUSH", "old:requests", pickle.dumps({"url": "http://a.test/2"}))
        with pytest.raises(CrawlRefused, match="stopped"):
            await run()
        assert await shards.command("old:requests:migrated", "SCARD", "old:requests:migrated") == 1
    finally:
        await frontier.close()
