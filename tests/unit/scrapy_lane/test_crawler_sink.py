"""The sink of a crawler in a Scrapy project: it disconnects whatever its last report raises."""

from typing import Any

import pytest

from gossamer.scrapy.cluster import pipelines
from gossamer.scrapy.cluster.pipelines import CrawlerBusSink
from gossamer.settings import Settings


class Part:
    """A part of the sink that notes when it is closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name = name
        self._closed = closed

    async def close(self) -> None:
        self._closed.append(self._name)
        if self._name == "sink":
            raise RuntimeError("a bug in the sink")


class BrokenReporter:
    """A reporter with a bug."""

    def __init__(self, *_: Any) -> None:
        pass

    async def run(self) -> None:
        return

    async def close(self) -> None:
        raise ValueError("a bug in the report")


async def test_everything_is_closed_in_order_if_the_last_report_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(pipelines, "make_bus", lambda *_: Part("bus", closed))
    monkeypatch.setattr(pipelines, "make_bus_sink", lambda *_: Part("sink", closed))
    monkeypatch.setattr(pipelines, "StatsReporter", BrokenReporter)
    sink = CrawlerBusSink(Part("shards", closed), Settings(), "link")  # type: ignore[arg-type]
    with pytest.raises((ValueError, RuntimeError), match="a bug"):
        await sink.close()
    assert closed == ["sink", "bus", "shards"]
