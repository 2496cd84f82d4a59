"""A server that forgot its last steps: one that failed over before they reached the replica, or was restored."""

from collections.abc import Callable

from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, a_crawl, declare_dead, fetched_count, of_living
from .stage import Stage

CRAWL = CrawlId("app", "one")


class Memory:
    """All keys of a stage's server as they were."""

    def __init__(self, stage: Stage) -> None:
        self._ask = stage.server.command  # type: ignore[union-attr]
        self._keys = {key: self._ask("DUMP", key) for key in self._ask("KEYS", f"{stage.prefix}:*")}
        self._pattern = f"{stage.prefix}:*"

    def restore(self) -> None:
        """Whatever happened since is forgotten."""
        for key in self._ask("KEYS", self._pattern):
            self._ask("DEL", key)
        for key, value in self._keys.items():
            self._ask("RESTORE", key, 0, value)


def fetched(leases: list[Lease]) -> list[Settlement]:
    return [Settlement(lease, Outcome.FETCHED) for lease in leases]


async def test_a_settlement_that_was_forgotten_is_no_lease_for_ever(stage_of: Callable[[int], Stage]) -> None:
    stage = stage_of(1)
    frontier = await stage.frontier()
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, Terms(), [a_batch("d.test", range(5))], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    first = await seat.lease(limit=3)
    before = Memory(stage)
    await seat.settle(fetched(first[:2]))
    assert await fetched_count(frontier, run) == 2
    before.restore()
    await seat.heartbeat()
    again = await seat.lease(limit=10)
    assert {lease.url for lease in first[:2]} <= {lease.url for lease in again}, "they are to be done again"
    assert first[2].url not in {lease.url for lease in again}, "what is still held here stays"
    await seat.settle(fetched([first[2], *again]))
    info = await frontier.crawl_info(CRAWL)
    assert info is not None
    assert (info.state, info.total().fetched, info.total().leased) == (CrawlState.FINISHED, 5, 0)
    await seat.close()
    await stage.leave()


async def test_a_lease_that_was_forgotten_does_not_end_another(stage_of: Callable[[int], Stage]) -> None:
    """No lease has the name of an earlier one, even where the server does not know that it gave that."""
    stage = stage_of(1)
    frontier = await stage.frontier()
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl())
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    assert await seat.lease(limit=1) == []
    await frontier.add(run, Terms(), [a_batch("d.test", range(2))], seeds=True)
    before = Memory(stage)
    forgotten = await seat.lease(limit=2)
    before.restore()
    again = await seat.lease(limit=2)
    assert [lease.url for lease in again] == [lease.url for lease in forgotten]
    swapped = [Settlement(lease, Outcome.RETRY, payload=b"of this one only") for lease in forgotten]
    await seat.settle(swapped)
    info = await frontier.crawl_info(CRAWL)
    assert info is not None
    assert (info.total().leased, info.total().later) == (2, 0), "leases of these names are known to be none"
    await seat.settle(fetched(again))
    info = await frontier.crawl_info(CRAWL)
    assert info is not None
    assert (info.state, info.total().fetched) == (CrawlState.FINISHED, 2)
    await seat.close()
    await stage.leave()


async def test_a_lease_of_an_earlier_name_does_not_end_one_of_this(stage: Stage) -> None:
    """A worker that was taken for dead may still be about to settle what it held."""
    frontier = await stage.frontier()
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, Terms(), [a_batch("d.test", range(6))], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    before = await all_of(seat, 3)
    for shard in {lease.shard for lease in before}:
        await declare_dead(frontier, shard, seat.session_name(shard))
    now = await all_of(seat, 6)
    assert {lease.url for lease in before} < {lease.url for lease in now}
    await seat.settle(fetched(before))
    assert await fetched_count(frontier, run) == 0
    assert of_living(seat, before) == []
    assert all(seat.holds(lease) for lease in now)
    await seat.settle(fetched(now))
    assert await fetched_count(frontier, run) == 6
    await seat.close()
    await stage.leave()


async def all_of(seat: ValkeyLeaseholder, count: int) -> list[Lease]:
    """So many leases, from whichever shard has them."""
    found: list[Lease] = []
    while len(found) < count:
        found += await seat.lease(limit=count - len(found))
    return found
