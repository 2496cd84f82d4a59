"""Publishes the items of Scrapy spiders on the bus (Kafka, or Redis streams), where a service's clients read them.

Fixed: an item is passed on only after it is durable on the bus, because the request is settled (reported as done) after
that; the name of BusPipeline, which projects write into ITEM_PIPELINES; and that one crawler has one sink, which its
scheduler and its pipeline share (`SINKS`).
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler

from gossamer.commit.own_outputs import OUTPUT_AWAY, OwnOutputs
from gossamer.commit.retrier import Retrier
from gossamer.control.stats import Counters, StatsReporter
from gossamer.model.record import Output
from gossamer.model.request import Outcome
from gossamer.scrapy.cluster.records import RawResponseItem, item_output, page_output
from gossamer.scrapy.leasing import CURRENT_LEASE
from gossamer.settings import Settings
from gossamer.sinks.base import SplitWrite
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.valkey.shards import Shards
from gossamer.wiring.service import make_bus, make_bus_sink

_CLOSE_SECONDS = 3.0
"""Longest time for reporting the last statistics of a closing process. Longer delays the end in an outage, shorter
loses counts."""


class CrawlerBusSink:
    """The bus as the sink of one crawler, shared by its scheduler and its pipeline. Implements Sink.

    It also counts and reports the crawler's statistics. `open` creates it.
    """

    wants_wire = False
    wants_text = True
    """Part of Sink. False: its records need no copy of the raw HTTP messages."""

    def __init__(self, shards: Shards, settings: Settings, spider: str) -> None:
        """Must be called in a running event loop: starts the task that reports the statistics."""
        self.tally = Tally()
        """Counts since the process started. The scheduler counts pages, and the pipeline items."""
        self.redact = settings.records.secrets == "redact"
        """True: records hide the values of secret request headers."""
        self.own_outputs: OwnOutputs | None = None
        """Writes to the topics of single applications. The scheduler sets it."""
        self._shards = shards
        self._bus = make_bus(settings, shards)
        self._sink = make_bus_sink(settings, self._bus)
        troubles = Troubles()
        self._retrier = Retrier(troubles)
        counters = Counters(shards, prefix=settings.prefix)
        self._reporter = StatsReporter(counters, lambda: self.tally, [spider], troubles.current)
        self._task = asyncio.ensure_future(self._reporter.run())

    @classmethod
    async def open(cls, settings: Settings, spider: str) -> Self:
        """Connect to the frontier's server (which may also carry the bus) and to the bus.

        Raises FrontierUnavailable, BadInput, BusUnavailable."""
        return cls(await Shards.connect(settings.frontier), settings, spider)

    async def write(self, outputs: Sequence[Output]) -> None:
        """Return when the outputs are durable. Raises SinkError."""
        await self._sink.write(outputs)

    def split(self, outputs: Sequence[Output]) -> SplitWrite:
        return self._sink.split(outputs)

    async def check(self) -> None:
        await self._sink.check()

    async def publish(self, output: Output) -> float:
        """Return 0 when the output is durable; else the seconds after which its request should be made again, because
        its application's topic cannot be written."""
        if self.own_outputs is not None:
            return await self.own_outputs.publish(output)
        await self._retrier.write_output(lambda: self._sink.write([output]))
        return 0.0

    async def close(self) -> None:
        """Report the last statistics and disconnect, also if reporting fails.

        The order must stay: the reporter, the sink and the bus use what is closed after them."""
        async with contextlib.AsyncExitStack() as closing:  # calls back in reverse order, all in any case
            closing.push_async_callback(self._shards.close)
            closing.push_async_callback(self._bus.close)
            closing.push_async_callback(self._sink.close)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._reporter.close()


SINKS: "WeakKeyDictionary[Crawler, CrawlerBusSink]" = WeakKeyDictionary()
"""Sinks of this process's crawlers. The scheduler of gossamer.scrapy.cluster sets and removes them; crawlers with
another scheduler have none."""


class BusPipeline:
    """Item pipeline that publishes each item, and passes it on once it is durable on the bus.

    The request is settled after that, so a killed process loses no item. If the topic of the item's application cannot
    be written for long, the request is made again later; other applications do not wait. A RawResponseItem becomes a
    page record, any other item an item record. Outside a crawl (`scrapy parse`) it passes items on without publishing
    them.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        """Publish the item and return it. Raises msgspec.ValidationError for a page with a field of a wrong type."""
        active, sink = CURRENT_LEASE.get(), SINKS.get(self._crawler)
        if active is None or sink is None:
            return item
        if isinstance(item, RawResponseItem):
            output = page_output(item, active, now=time.time(), redact=sink.redact)
        else:
            output = item_output(ItemAdapter(item).asdict(), active, now=time.time())
            sink.tally.items += 1  # pages are counted by the scheduler, when their requests are settled
        delay = await sink.publish(output)
        if delay:
            active.outcome, active.reason, active.retry_delay_seconds = Outcome.POSTPONED, OUTPUT_AWAY, delay
            sink.tally.retry(OUTPUT_AWAY)
        return item
