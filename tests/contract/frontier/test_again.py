"""Links that are followed again although they were seen, of a page that is committed more than once."""

from gossamer.commit.outlinks import FinishedLease, Outlinks
from gossamer.commit.retrier import Retrier
from gossamer.model.crawl import Terms
from gossamer.model.request import Batch, Outcome, Settlement
from gossamer.telemetry.logs import Troubles

from .asking import a_batch, a_crawl
from .stage import Stage


def again(*paths: int, payload: bytes | None = None) -> Batch:
    """A batch as a worker makes it anew each time it reads the page."""
    batch = a_batch("a.test", paths, depth=1, unfiltered=True)
    batch.payloads = None if payload is None else [payload for _ in paths]
    return batch


async def test_a_page_that_is_read_again_after_a_crash_adds_them_once(stage: Stage) -> None:
    frontier = await stage.frontier()
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, Terms(), [a_batch("a.test", [0])], seeds=True)
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await seat.lease(limit=10)

    async def commit(*batches: Batch) -> int:
        """Add the page's links, as before a crash that leaves it leased; how many were ever added to the crawl."""
        finished = FinishedLease(Settlement(lease, Outcome.FETCHED), batches=list(batches))
        await Outlinks([finished], frontier, Retrier(Troubles())).ensure_added([finished])
        info = await frontier.crawl_info(run.crawl.id)
        assert info is not None
        return info.total().queued

    assert await commit(again(1)) == 1
    assert await commit(again(1)) == 1
    assert await commit(again(1), again(1)) == 2  # the page had one more link to the same URL this time
    assert await commit(again(2)) == 3
    assert await commit(again(2, payload=b"other")) == 4
    await seat.close()
    await stage.leave()
