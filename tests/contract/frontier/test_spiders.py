"""Announced spiders, and the fingerprints of requests to them."""

import pytest

from gossamer.frontier.base import Lane
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.policy.scrapy_urls import scrapy_fingerprint
from gossamer.policy.urls import fingerprint, spider_seed
from tests.servers.valkey import Server

from .pair import Clock

ONE, OTHER = "http://a.test/?a=1&b=2", "http://a.test/?b=2&a=1"


@pytest.fixture
def clock(one_server: Server) -> Clock:
    one_server.command("FLUSHALL")
    return Clock()


async def connected(server: Server, clock: Clock) -> ValkeyFrontier:
    return await ValkeyFrontier.connect(server.address, shards=3, clock=clock)


async def test_a_scrapy_spiders_requests_have_scrapys_fingerprint(one_server: Server, clock: Clock) -> None:
    announcing, asking = await connected(one_server, clock), await connected(one_server, clock)
    await announcing.spiders.announce(Lane.SCRAPY, ["shop"])
    await asking.spiders.refresh(["shop"])
    expected = fingerprint(scrapy_fingerprint(ONE), seed=spider_seed(asking.secret, "shop"))
    assert asking.spiders.fingerprint("shop", ONE) == asking.spiders.fingerprint("shop", OTHER) == expected
    await announcing.close()
    await asking.close()


async def test_other_spiders_requests_are_known_by_their_canonical_url(one_server: Server, clock: Clock) -> None:
    frontier = await connected(one_server, clock)
    await frontier.spiders.announce(Lane.FAST, ["link", "both"])
    await frontier.spiders.announce(Lane.SCRAPY, ["both"])
    for spider in ("link", "both", "unheard-of"):
        expected = fingerprint(ONE, seed=spider_seed(frontier.secret, spider))
        assert frontier.spiders.fingerprint(spider, ONE) == expected != frontier.spiders.fingerprint(spider, OTHER)
    assert frontier.spiders.lanes("both") == {Lane.FAST, Lane.SCRAPY}
    await frontier.close()


async def test_an_unknown_spider_is_asked_for_at_once(one_server: Server, clock: Clock) -> None:
    announcing, asking = await connected(one_server, clock), await connected(one_server, clock)
    await asking.spiders.refresh(["shop"])
    assert not asking.spiders.lanes("shop")
    await announcing.spiders.announce(Lane.SCRAPY, ["shop"])
    await asking.spiders.refresh(["shop"])
    assert asking.spiders.lanes("shop") == {Lane.SCRAPY}
    await announcing.close()
    await asking.close()


async def test_an_announcement_holds_for_thirty_days(one_server: Server, clock: Clock) -> None:
    frontier = await connected(one_server, clock)
    await frontier.spiders.announce(Lane.SCRAPY, ["shop"])
    clock.now += 29 * 86400
    await frontier.spiders.announce(Lane.SCRAPY, ["news"])
    assert frontier.spiders.lanes("shop") == {Lane.SCRAPY}
    clock.now += 2 * 86400
    await frontier.spiders.announce(Lane.SCRAPY, ["news"])
    assert not frontier.spiders.lanes("shop")
    assert frontier.spiders.lanes("news") == {Lane.SCRAPY}
    await frontier.close()
