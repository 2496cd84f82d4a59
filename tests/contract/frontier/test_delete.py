"""What the frontier's contract promises of a crawl that is deleted: nothing of it is left on any shard."""

from gossamer.model.crawl import Terms
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

DOMAINS = [f"d{number}.test" for number in range(6)]
PLAIN = Terms()


async def test_a_crawl_that_runs_is_not_deleted_and_a_stopped_one_leaves_no_key(stage: Stage) -> None:
    clock = Clock()
    frontier = await stage.frontier(clock=clock)
    before = set(await stage.keys())
    gone, stays = a_crawl("gone"), a_crawl("stays")
    for crawl in (gone, stays):
        run = await frontier.open_crawl(crawl)
        await frontier.add(run, PLAIN, [a_batch(domain, range(40)) for domain in DOMAINS], seeds=True)
    worker = await frontier.open_leaseholder(pool=gone.pool, spiders=["link"])
    leases = await worker.lease(limit=5)
    await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])

    assert not await frontier.delete_crawl(gone.id)
    info = await frontier.crawl_info(gone.id)
    assert info is not None
    assert info.total().queued

    await frontier.stop_crawl(gone.id)
    assert await frontier.delete_crawl(gone.id)
    assert await frontier.crawl_info(gone.id) is None
    left = set(await stage.keys()) - before
    assert not [key for key in left if gone.id.token in key]
    other = await frontier.crawl_info(stays.id)
    assert other is not None
    assert other.total().added == 40 * len(DOMAINS)
    assert await frontier.delete_crawl(gone.id)  # once more: there is nothing to delete

    again = await frontier.open_crawl(gone)
    added = await frontier.add(again, PLAIN, [a_batch(domain, range(40)) for domain in DOMAINS], seeds=True)
    assert added.added == 40 * len(DOMAINS)
    await worker.close()
    await frontier.close()
