"""What becomes of the requests of a blacklisted domain: held, or handed out to be dropped."""

from gossamer.model.crawl import CrawlState, DomainPolicy, Terms, WhenBlacklisted
from gossamer.model.request import DropReason, Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .stage import Stage

DROPPED = DomainPolicy(when_blacklisted=WhenBlacklisted.DROPPED)
BLACK = DomainPolicy(blacklisted=True)


async def test_held_requests_wait_and_go_on(stage: Stage) -> None:
    frontier = await stage.frontier()
    run = await frontier.open_crawl(a_crawl())
    await frontier.set_domain_policy("a.test", BLACK)
    await frontier.add(run, Terms(), [a_batch("a.test", range(3))], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert await seat.lease(limit=10) == []
    await frontier.set_domain_policy("a.test", DomainPolicy(hits=100))
    [lease, *_] = await seat.lease(limit=10)
    assert not lease.blacklisted
    await seat.close()
    await stage.leave()


async def test_dropped_requests_are_handed_out_at_once_and_charge_nothing(stage: Stage) -> None:
    """Those that wait when the domain is blacklisted, too; whatever its budget, pause and blocks."""
    frontier = await stage.frontier()
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, Terms(), [a_batch("a.test", range(20)), a_batch("b.test", ["b"])], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=100)
    assert sorted(lease.domain for lease in leases) == ["a.test", "b.test"]
    await frontier.set_domain_policy(None, DROPPED)
    await frontier.set_domain_policy("a.test", DomainPolicy(hits=1, window_seconds=3600, blacklisted=True))
    await frontier.block_domain("a.test", seconds=600)
    await frontier.add(run, Terms(), [a_batch("a.test", ["late"])])
    dropped: list[Lease] = []
    while more := await seat.lease(limit=7):
        dropped += more
    assert len(dropped) == 20
    assert all(lease.blacklisted and lease.domain == "a.test" for lease in dropped)
    assert await seat.charge_hit(run, spider="link", domain="a.test") is None
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
    await seat.settle([Settlement(lease, Outcome.DROPPED, DropReason.BLACKLISTED) for lease in dropped])
    info = await frontier.crawl_info(run.crawl.id)
    assert info is not None
    assert (info.state, info.total().dropped) == (CrawlState.FINISHED, {"blacklisted": 20})
    await seat.close()
    await stage.leave()
