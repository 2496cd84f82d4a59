"""A crawl delay that the frontier did not take is sent again with the next request of the domain."""

import pytest

from gossamer.commit.retrier import Retrier
from gossamer.errors import FrontierError
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.robots_service import RobotsService
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.policy.robots import RobotsPolicy
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.valkey.shards import Shards
from gossamer.worker.robots import MemoryRobotsStore, RobotsChecker, RobotsWaits
from tests.servers.valkey import standalone

URL = "https://site.test/"


async def no_fetch(_: FetchRequest) -> FetchResponse:
    raise AssertionError("nothing is fetched here")


async def test_a_crawl_delay_that_the_frontier_did_not_take_is_sent_again() -> None:
    with standalone(tcp=True) as server:
        address = f"redis://127.0.0.1:{server.port}"
        frontier, shards = await ValkeyFrontier.connect(address), await Shards.connect(address)
        troubles = Troubles()
        checker = RobotsChecker(
            frontier,
            RobotsService(no_fetch, MemoryRobotsStore()),
            Retrier(troubles),
            RobotsWaits(troubles),
            Tally(),
            RobotsPolicy.OBEY,
        )
        key = frontier._commands.keys[0].key(KeyPattern.BLOCK, domain="site.test")
        try:
            await shards.command(key, "RPUSH", key, "not what belongs here")
            with pytest.raises(FrontierError, match="WRONGTYPE"):
                await checker._set_crawl_delay(URL, 5.0)
            await shards.command(key, "DEL", key)
            await checker._set_crawl_delay(URL, 5.0)
            assert await shards.command(key, "TYPE", key) == b"string"
        finally:
            await shards.close()
            await frontier.close()
