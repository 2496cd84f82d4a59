"""Statistics that RedisStatsCollector sends: a value that is set replaces what was counted before."""

from typing import Any

import pytest
from scrapy import Spider
from scrapy.utils.test import get_crawler

from gossamer.errors import FrontierUnavailable
from gossamer.scrapy.redis import stats
from gossamer.scrapy.redis.stats import RedisStatsCollector


class Server:
    """Keeps the rows of each merge; fails while `during_failure` is set, after calling that."""

    def __init__(self) -> None:
        self.merges: list[list[Any]] = []
        self.during_failure: Any = None

    async def shards(self) -> "Server":
        return self

    async def call(self, shard: int, script: object, keys: list[str], arguments: list[Any]) -> None:
        if self.during_failure is not None:
            self.during_failure()
            raise FrontierUnavailable("away")
        self.merges.append(arguments[2:])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(stats, "runs_alone", lambda _: True)
    monkeypatch.setattr(stats, "connection_of", lambda _: server)
    return server


async def test_set_stats_replaces_earlier_counts(server: Server) -> None:
    collector = RedisStatsCollector(get_crawler(Spider))
    collector.inc_value("pages", 3)
    collector.set_stats({"pages": 10})
    collector.inc_value("pages")
    await collector._merge()
    assert server.merges == [["set", "pages", "10", "add", "pages", "1"]]


async def test_a_value_set_during_a_failed_merge_replaces_earlier_counts(server: Server) -> None:
    collector = RedisStatsCollector(get_crawler(Spider))
    collector.inc_value("pages", 3)
    collector.inc_value("items", 2)
    server.during_failure = lambda: collector.set_value("pages", 10)
    with pytest.raises(FrontierUnavailable):
        await collector._merge()
    server.during_failure = None
    await collector._merge()
    assert server.merges == [["set", "pages", "10", "add", "items", "2"]]
