"""Scrapy items to the bus."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.control.stats import Counters, StatsReporter
from gossamer.model.record import Output
from gossamer.scrapy.cluster.records import RawResponseItem, item_output, page_output
from gossamer.scrapy.live import CURRENT
from gossamer.settings import Settings
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.valkey.shards import Shards
from gossamer.wiring.service import make_bus, make_bus_sink


class Outlet:
    """Implements Sink, for the scheduler and the pipeline of one crawler, who share it."""

    wants_wire = False

    def __init__(self, shards: Shards, settings: Settings, spider: str) -> None:
        self.tally = Tally()
        self.redact = settings.records.secrets == "redact"
        """Whether records hide the values of secret request headers."""
        self._shards = shards
        self._bus = make_bus(settings, shards)
        self._sink = make_bus_sink(settings, self._bus)
        self._retrier = Retrier(Troubles())
        self._reporting = StatsReporter(Counters(shards, prefix=settings.prefix), lambda: self.tally, [spider])
        self._task = asyncio.ensure_future(self._reporting.run())

    @classmethod
    async def open(cls, settings: Settings, spider: str) -> Self:
        """Raises FrontierUnavailable, BadInput, BusUnavailable."""
        return cls(await Shards.connect(settings.frontier), settings, spider)

    async def write(self, outputs: Sequence[Output]) -> None:
        """Raises SinkError; what it returns from is durable."""
        await self._sink.write(outputs)

    async def publish(self, output: Output) -> None:
        """Return when it is durable, however long that takes."""
        await self._retrier.write_output(lambda: self._sink.write([output]))

    async def close(self) -> None:
        """Tell the last figures, and let go."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await self._reporting.report()
        await self._sink.close()
        await self._bus.close()
        await self._shards.close()


OUTLETS: "WeakKeyDictionary[Crawler, Outlet]" = WeakKeyDictionary()
"""Of the crawlers of this process whose scheduler is the cluster's."""


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
