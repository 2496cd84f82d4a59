"""Scrapy items to the bus."""

import logging
import time
from typing import Any, Self

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler

from gossamer.scrapy.cluster.items import RawResponseItem
from gossamer.scrapy.cluster.outlet import OUTLETS
from gossamer.scrapy.cluster.records import item_output, page_output
from gossamer.scrapy.live import CURRENT

log = logging.getLogger(__name__)


class BusPipeline:
    """Publishes each item, and passes it on when it is durable there, so before its request is settled.

    A RawResponseItem becomes a page's message, any other item an item's. Outside a crawl (`scrapy parse`) it passes
    items on and publishes nothing.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Scrapy's way to make one."""
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        """The item itself. Raises msgspec.ValidationError for a page with a field of the wrong type."""
        live, outlet = CURRENT.get(), OUTLETS.get(self._crawler)
        if live is None or outlet is None:
            return item
        if isinstance(item, RawResponseItem):
            output = page_output(item, live, now=time.time(), redact=outlet.redact)
        else:
            output = item_output(ItemAdapter(item).asdict(), live, now=time.time())
            outlet.tally.items += 1
        await outlet.publish(output)
        return item
