"""A process that joins after the run it was started for has finished."""

import pytest

from gossamer.frontier.base import RunFinished
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Outcome, Settlement
from tests.servers.valkey import Server

from .asking import a_batch, a_crawl
from .pair import Clock


@pytest.fixture
def clock(one_server: Server) -> Clock:
    one_server.command("FLUSHALL")
    return Clock()


async def finished(frontier: ValkeyFrontier) -> Run:
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, Terms(), [a_batch("a.test", ["x"])], seeds=True)
    holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await holder.lease(limit=1)
    await holder.settle([Settlement(lease, Outcome.FETCHED)])
    await holder.close()
    while (info := await frontier.crawl_info(run.crawl.id)) is None or info.state != "finished":
        await frontier.maintain()
    return run


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("fresh", [False, True])
async def test_a_process_that_is_older_than_a_runs_end_belongs_to_it(
    one_server: Server, clock: Clock, shards: int, fresh: bool
) -> None:
    frontier = await ValkeyFrontier.connect(one_server.address, shards=shards, clock=clock)
    run = await finished(frontier)
    clock.now += 5
    with pytest.raises(RunFinished) as found:
        await frontier.open_crawl(a_crawl(), fresh=fresh, process_age_seconds=6)
    assert found.value.run == run
    added = await frontier.add(found.value.run, Terms(), [a_batch("a.test", ["x"])], seeds=True)
    assert (added.added, added.duplicates) == (0, 1)
    await frontier.close()


async def test_a_process_that_is_younger_begins_the_next_run(one_server: Server, clock: Clock) -> None:
    frontier = await ValkeyFrontier.connect(one_server.address, clock=clock)
    run = await finished(frontier)
    clock.now += 5
    following = await frontier.open_crawl(a_crawl(), fresh=True, process_age_seconds=4)
    assert following.number == run.number + 1
    assert following.generation != run.generation
    assert await frontier.open_crawl(a_crawl(), process_age_seconds=1000) == following
    await frontier.close()
