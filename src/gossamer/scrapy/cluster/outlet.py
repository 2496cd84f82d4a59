"""The bus, as one Scrapy process writes to it: its pages, and its part of the cluster's statistics."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self
from weakref import WeakKeyDictionary

from scrapy.crawler import Crawler

from gossamer.commit.patience import Patience
from gossamer.control.counters import Counters
from gossamer.model.record import Output
from gossamer.settings import Settings
from gossamer.telemetry.tally import Tally
from gossamer.telemetry.troubles import Troubles
from gossamer.valkey.shards import Shards
from gossamer.wiring.service import make_bus, make_bus_sink
from gossamer.worker.reporting import Reporting


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
        self._patience = Patience(Troubles())
        self._reporting = Reporting(Counters(shards, prefix=settings.prefix), lambda: self.tally, [spider])
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
        await self._patience.output(lambda: self._sink.write([output]))

    async def close(self) -> None:
        """Tell the last figures, and let go."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await self._reporting.tell()
        await self._sink.close()
        await self._bus.close()
        await self._shards.close()


OUTLETS: "WeakKeyDictionary[Crawler, Outlet]" = WeakKeyDictionary()
"""Of the crawlers of this process whose scheduler is the cluster's."""
