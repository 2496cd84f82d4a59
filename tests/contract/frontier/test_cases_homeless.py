"""A shard that holds a run of which the home shard knows nothing (any more) ends it, but not before it is certain."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.request import Outcome, Settlement
from gossamer.valkey.scripts import Script

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

SHARDS = 3
HOME, HERE, THERE = range(SHARDS)
CRAWL = next(CrawlId("app", f"c{n}") for n in range(100) if home_shard(CrawlId("app", f"c{n}").token, SHARDS) == HOME)
DOMAINS = [next(f"d{n}.test" for n in range(100) if shard_of(f"d{n}.test", SHARDS) == shard) for shard in range(SHARDS)]
RETENTION = 3600.0
HEARTBEAT = 20.0
LISTS = ("idle", "idle-until", "opened", "ending", "purge")
HASHES = ("forgotten", "stopping", "purging")


class Scene:
    """A crawl with two requests each on HERE and THERE, and none on its home shard."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clock = Clock()
        self.frontier: ValkeyFrontier

    async def prepare(self) -> None:
        options = {"clock": self.clock, "retention_seconds": RETENTION, "dead_after_seconds": HEARTBEAT}
        self.frontier = await self.stage.frontier(**options)
        await self.frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))

    async def begin(self, **options: Any) -> Run:
        run = await self.frontier.open_crawl(a_crawl(CRAWL.crawlid, **options))
        batches = [a_batch(DOMAINS[shard], range(2)) for shard in (HERE, THERE)]
        await self.frontier.add(run, Terms(), batches, seeds=True)
        return run

    async def work(self, count: int, *, shard: int | None = None) -> None:
        """Fetch so many requests, of a shard (None: of any); give the others back."""
        holder = await self.frontier.open_leaseholder(pool="shared", spiders=["link"])
        while count:
            self.clock.now += 1
            for lease in await holder.lease(limit=10):
                is_meant = count > 0 and shard in (None, lease.shard)
                await holder.settle([Settlement(lease, Outcome.FETCHED if is_meant else Outcome.RETURNED)])
                count -= is_meant
        await holder.close()

    async def maintain_for(self, seconds: float) -> None:
        """As services do: again and again."""
        for _ in range(5):
            await self.frontier.maintain()
            self.clock.now += seconds / 5
        await self.frontier.maintain()

    def base(self, shard: int) -> str:
        return f"{self.stage.prefix}:{{{shard}}}:"

    async def ask(self, shard: int, *command: str | int | bytes) -> Any:
        return await self.stage.connections[0].command(self.base(shard), *command)

    async def forget_home(self) -> bytes:
        """The home shard loses its record; returned in the form in which `remember_home` takes it."""
        key = f"{self.base(HOME)}h:{CRAWL.token}"
        record = await self.ask(HOME, "DUMP", key)
        await self.ask(HOME, "DEL", key)
        return bytes(record)

    async def remember_home(self, record: bytes) -> None:
        await self.ask(HOME, "RESTORE", f"{self.base(HOME)}h:{CRAWL.token}", 0, record)

    async def kept(self, shard: int) -> set[str]:
        """Kinds of keys that the shard has of the crawl, and lists there that name it."""
        base = self.base(shard)
        own = [key.removeprefix(base) for key in await self.stage.keys() if key.startswith(base)]
        kinds = {key.partition(":")[0] for key in own if CRAWL.token in key}
        sorted_sets = [name for name in LISTS if await self.ask(shard, "ZSCORE", base + name, CRAWL.token)]
        hashes = [name for name in HASHES if await self.ask(shard, "HEXISTS", base + name, CRAWL.token)]
        return {*kinds, *sorted_sets, *hashes}


@pytest.fixture
async def scene(stage_of: Callable[[int], Stage]) -> AsyncIterator[Scene]:
    scene = Scene(stage_of(SHARDS))
    await scene.prepare()
    yield scene
    await scene.stage.leave()


async def test_a_run_whose_home_shard_lost_it_ends_after_the_retention(scene: Scene) -> None:
    """Once it stayed on the other shards for ever."""
    await scene.begin()
    await scene.work(3)
    await scene.forget_home()
    await scene.work(1)
    await scene.maintain_for(RETENTION - 10)
    for shard in (HERE, THERE):
        assert {"c", "forgotten"} <= await scene.kept(shard), "the record may still come back"
    await scene.maintain_for(20)
    for shard in range(SHARDS):
        assert await scene.kept(shard) == set()


async def test_a_record_that_comes_back_decides_as_if_it_had_never_been_away(scene: Scene) -> None:
    await scene.begin()
    await scene.work(3)
    record = await scene.forget_home()
    await scene.work(1)
    await scene.maintain_for(RETENTION - 10)
    await scene.remember_home(record)
    await scene.maintain_for(20)
    info = await scene.frontier.crawl_info(CRAWL)
    assert info is not None
    assert (info.state, info.total().fetched) == (CrawlState.FINISHED, 4)
    assert [event.crawl for event in await scene.frontier.pending_events(limit=10)] == [CRAWL]
    await scene.maintain_for(RETENTION - 30)
    for shard in (HERE, THERE):
        kept = await scene.kept(shard)
        assert {"c", "ending"} <= kept, "the retention begins with the end"
        assert not kept & {"idle", "forgotten"}
    await scene.maintain_for(40)
    assert await scene.kept(HERE) == await scene.kept(THERE) == set()


async def test_a_run_that_goes_on_elsewhere_is_remembered(scene: Scene) -> None:
    """What it has seen here would be fetched again, when a page there links to it."""
    run = await scene.begin()
    await scene.work(2, shard=HERE)
    await scene.forget_home()
    await scene.maintain_for(3 * RETENTION)
    added = await scene.frontier.add(run, Terms(), [a_batch(DOMAINS[HERE], range(3))])
    assert (added.added, added.duplicates) == (1, 2)
    await scene.work(3)
    await scene.maintain_for(RETENTION - 10)
    assert "c" in await scene.kept(HERE)
    await scene.maintain_for(20)
    assert await scene.kept(HERE) == await scene.kept(THERE) == set()


async def test_what_comes_in_meanwhile_starts_the_time_again(scene: Scene) -> None:
    run = await scene.begin()
    await scene.work(3)
    await scene.forget_home()
    await scene.work(1)
    await scene.maintain_for(RETENTION - 10)
    await scene.frontier.add(run, Terms(), [a_batch(DOMAINS[HERE], ["more"])])
    await scene.work(1)
    await scene.maintain_for(RETENTION - 10)
    assert "c" in await scene.kept(HERE)
    await scene.maintain_for(20)
    assert await scene.kept(HERE) == set()


@pytest.mark.parametrize("begun_again", [False, True])
async def test_a_shard_that_was_away_when_the_run_ended(scene: Scene, begun_again: bool) -> None:
    """It comes back as it was before, when the home shard has deleted its record, or has begun the crawl anew."""
    await scene.begin()
    base = scene.base(HERE)
    before = {key: await scene.ask(HERE, "DUMP", key) for key in await scene.stage.keys() if key.startswith(base)}
    await scene.work(4)
    await scene.maintain_for(RETENTION + 10)
    assert await scene.kept(HOME) == await scene.kept(HERE) == set()
    if begun_again:
        run = await scene.frontier.open_crawl(a_crawl(CRAWL.crawlid))
        await scene.frontier.add(run, Terms(), [a_batch(DOMAINS[THERE], range(2))], seeds=True)
    for key, value in before.items():
        await scene.ask(HERE, "DEL", key)
        await scene.ask(HERE, "RESTORE", key, 0, value)
    await scene.work(2, shard=HERE)
    await scene.maintain_for(RETENTION - 10)
    assert "c" in await scene.kept(HERE)
    await scene.maintain_for(20)
    assert await scene.kept(HERE) == set()
    if begun_again:
        info = await scene.frontier.crawl_info(CRAWL)
        assert info is not None
        assert (info.state, info.total().queued) == (CrawlState.RUNNING, 2)


async def test_requests_that_wait_in_vain_for_the_page_budget_are_dropped(scene: Scene) -> None:
    await scene.begin(max_pages=2)
    await scene.work(1)
    await scene.forget_home()
    await scene.frontier.maintain()
    holder = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    for _ in range(5):
        scene.clock.now += 2
        await holder.settle([Settlement(lease, Outcome.FETCHED) for lease in await holder.lease(limit=10)])
    await holder.close()
    await scene.maintain_for(RETENTION - 10)
    assert "q" in await scene.kept(HERE) | await scene.kept(THERE)
    await scene.maintain_for(RETENTION)
    for shard in range(SHARDS):
        assert await scene.kept(shard) == set()
        assert not await scene.ask(shard, "EXISTS", f"{scene.base(shard)}backlog", f"{scene.base(shard)}app:app")


async def test_a_shard_to_which_nothing_was_added_learns_of_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The addition to it failed, and so did the call that ends the run there. Once nothing was left to repeat that."""
    connection = scene.stage.connections[0]
    original = connection.call

    async def without_there(shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        if shard == THERE and script.name in ("add", "add_many", "stop_shard"):
            raise FrontierUnavailable("it is away")
        return await original(shard, script, *arguments, **options)

    with monkeypatch.context() as away:
        away.setattr(connection, "call", without_there)
        with pytest.raises(FrontierUnavailable):
            await scene.begin()
        await scene.work(2)
        await scene.frontier.maintain()
    info = await scene.frontier.crawl_info(CRAWL)
    assert info is not None
    assert info.state is CrawlState.FINISHED
    assert "c" in await scene.kept(THERE)
    await scene.maintain_for(RETENTION + 10)
    assert await scene.kept(THERE) == set()
