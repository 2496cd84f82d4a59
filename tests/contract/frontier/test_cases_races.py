"""Two clients at once, in the order that hurts; replies that one shard of several never gives."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gossamer.errors import BadInput, CrawlRefused, FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import home_shard
from gossamer.frontier.valkey.runs import sweep
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.request import Outcome, Settlement
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards

from .asking import a_batch, a_crawl, declare_dead, fetched_count
from .pair import Clock
from .stage import Stage

PLAIN = Terms()
ONE = CrawlId("app", "one")
DOMAINS = [f"d{number}.test" for number in range(8)]


class HeldUpConnection:
    """Connections on which the calls of a script wait until something else has happened, once."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}
        self.calls: list[str] = []
        self._gates: dict[str, asyncio.Future[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shards, name)

    async def _wait(self, script: Script) -> None:
        self.calls.append(script.name)
        if (event := self.before.pop(script.name, None)) is not None:
            self._gates[script.name] = asyncio.ensure_future(event())
        if (gate := self._gates.get(script.name)) is not None:
            await gate

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        await self._wait(script)
        return await self._shards.call(shard, script, *arguments, **options)


class Scene:
    """A frontier with a quick client and a slow one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clock = Clock()

    async def set(self) -> None:
        self.quick = await self.stage.frontier(clock=self.clock)
        self.slow, self.wire = await self.another()

    async def another(self) -> tuple[ValkeyFrontier, HeldUpConnection]:
        wire = HeldUpConnection(await Shards.connect(self.stage.server.address))
        frontier = await ValkeyFrontier.from_connection(wire, prefix=self.stage.prefix, clock=self.clock)  # type: ignore[arg-type]
        return frontier, wire

    async def work(self) -> list[str]:
        """Fetch all there is; the URLs."""
        seat = await self.quick.open_leaseholder(pool="shared", spiders=["link"])
        urls: list[str] = []
        for _ in range(3):
            self.clock.now += 5
            while leases := await seat.lease(limit=50):
                await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
                urls += [lease.url for lease in leases]
            await self.quick.maintain()
        await seat.close()
        return urls

    async def consistent(self) -> CrawlState:
        """An ended run has nothing left anywhere."""
        info = await self.quick.crawl_info(ONE)
        assert info is not None
        whole = info.total()
        assert whole.added == whole.queued + whole.later + whole.leased + whole.done
        if info.state is not CrawlState.RUNNING:
            assert whole.added == whole.done, f"{info.state} while requests wait"
        return info.state


class RememberingShards(Shards):
    """They know what was sent, to send it again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sent: list[tuple[Any, ...]] = []

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        self.sent.append((shard, script, *arguments))
        return await super().call(shard, script, *arguments, **options)


async def test_a_question_for_work_that_was_held_up_on_its_way_gets_none(stage_of: Callable[[int], Stage]) -> None:
    """It was sent again and answered. A copy that a network kept and brings now would get requests under the numbers of
    those that were handed out then, and nobody would know of them."""
    stage = stage_of(1)
    await stage.frontier()
    wire = await RememberingShards.connect(stage.server.address)
    frontier = await ValkeyFrontier.from_connection(wire, prefix=stage.prefix)
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch(domain, ["x"]) for domain in DOMAINS])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    first = await seat.lease(limit=2)
    copy = next(sent for sent in wire.sent if sent[1].name == "lease")
    second = await seat.lease(limit=2)
    await wire.call(*copy)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in (*first, *second)])
    rest = await seat.lease(limit=len(DOMAINS))
    assert sorted(lease.domain for lease in (*first, *second, *rest)) == DOMAINS
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in rest])
    info = await frontier.crawl_info(ONE)
    assert info is not None
    assert info.total().fetched == len(DOMAINS)
    await seat.close()
    await frontier.close()
    await stage.leave()


class SlowShards(Shards):
    """The answers of one of them to a settlement wait."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shard = -1
        self.answer = asyncio.Event()
        self.answered: list[int] = []

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        reply = await super().call(shard, script, *arguments, **options)
        if script.name == "settle":
            self.answered.append(shard)
            if shard == self.shard:
                await self.answer.wait()
        return reply


async def test_a_late_settlement_retires_only_the_name_it_was_leased_under(stage_of: Callable[[int], Stage]) -> None:
    """It is reported on one shard while the worker has begun anew on another, and what is leased since is kept."""
    stage = stage_of(8)
    await stage.frontier()
    wire = await SlowShards.connect(stage.server.address)
    frontier = await ValkeyFrontier.from_connection(wire, prefix=stage.prefix)
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    run = await frontier.open_crawl(a_crawl())
    await frontier.add(run, PLAIN, [a_batch(domain, ["x"]) for domain in DOMAINS])
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    first = await seat.lease(limit=len(DOMAINS))
    early, late = first[0], next(lease for lease in first if lease.shard != first[0].shard)
    dead = (early.shard, late.shard)
    for shard in dead:
        await declare_dead(frontier, shard, seat.session_name(shard))
    # It hears that from one shard and begins anew there. The answer of the other one is slow.
    wire.shard = late.shard
    settling = asyncio.create_task(seat.settle([Settlement(late, Outcome.FETCHED)]))
    while not wire.answered:  # noqa: ASYNC110 - the shard has answered then, and is not heard yet
        await asyncio.sleep(0)
    await seat.heartbeat(early.shard)
    again = await seat.lease(limit=len(DOMAINS))
    assert early.url in {lease.url for lease in again}
    wire.answer.set()
    await settling
    await seat.settle([Settlement(early, Outcome.FETCHED)])
    assert await fetched_count(frontier, run) == 0, "both were reported under names that are dead"
    assert all(seat.session_name(lease.shard) != lease.worker for lease in (early, late))
    alive = [*again, *(lease for lease in first if lease.shard not in dead)]
    assert all(seat.holds(lease) for lease in alive)
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in alive])
    assert await fetched_count(frontier, run) == len(alive)
    await seat.close()
    await frontier.close()
    await stage.leave()


@pytest.fixture(params=[1, 5], ids=["single", "sharded"])
async def scene(request: pytest.FixtureRequest, stage_of: Callable[[int], Stage]) -> AsyncIterator[Scene]:
    scene = Scene(stage_of(request.param))
    await scene.set()
    yield scene
    await scene.slow.close()
    await scene.stage.leave()


async def test_a_run_that_finishes_while_seeds_are_on_their_way(scene: Scene) -> None:
    """They asked the home shard in time, and come too late: they begin the next run, or were part of this one."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
    scene.wire.before["add"] = scene.work
    mine = await scene.slow.open_crawl(a_crawl())
    answer = await scene.slow.add(mine, PLAIN, [a_batch(d, ["late"]) for d in DOMAINS], seeds=True)
    assert answer.added == len(DOMAINS)
    await scene.consistent()
    assert sorted(await scene.work()) == sorted(f"https://{d}/late" for d in DOMAINS)
    assert await scene.consistent() is CrawlState.FINISHED


async def test_a_run_that_finishes_while_a_closed_shard_is_asked_again(scene: Scene) -> None:
    """An outlink's `add` finds the shard closed, asks, and before it comes back the run is decided."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    mine = await scene.slow.open_crawl(a_crawl())
    await scene.slow.add(mine, PLAIN, [a_batch(d, ["y"]) for d in DOMAINS])
    await scene.work()
    assert await scene.consistent() is CrawlState.FINISHED
    answer = await scene.slow.add(mine, PLAIN, [a_batch(d, ["late"]) for d in DOMAINS])
    assert (answer.added, answer.rejected_by_reason) == (0, {"stopped": len(DOMAINS)})
    again = await scene.slow.add(mine, PLAIN, [a_batch(d, ["late"]) for d in DOMAINS], seeds=True)
    assert again.added == len(DOMAINS)
    assert len(await scene.work()) == len(DOMAINS)
    assert await scene.consistent() is CrawlState.FINISHED


@pytest.mark.parametrize("spider", [None, "link"])
async def test_a_stop_while_an_addition_is_on_its_way(scene: Scene, spider: str | None) -> None:
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)

    async def stop() -> None:
        assert await scene.quick.stop_crawl(ONE, spider=spider) == 1

    scene.wire.before["add"] = stop
    mine = await scene.slow.open_crawl(a_crawl())
    answer = await scene.slow.add(mine, PLAIN, [a_batch(d, ["late"]) for d in DOMAINS])
    assert (answer.added, answer.rejected_by_reason) == (0, {"stopped": len(DOMAINS)})
    assert await scene.work() == []
    await scene.consistent()


async def test_a_stop_that_housekeeping_carries_out_tells_all_it_purged(scene: Scene) -> None:
    """Whoever tells the shards: who asked for the stop learns what it dropped."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, range(3)) for d in DOMAINS], seeds=True)
    scene.wire.before["halt"] = scene.quick.maintain
    assert await scene.slow.stop_crawl(ONE) == 3 * len(DOMAINS)
    assert await scene.slow.stop_crawl(ONE) == 0
    assert await scene.consistent() is CrawlState.STOPPED


async def test_seeds_with_an_old_handle_join_the_run_that_is_on(scene: Scene) -> None:
    old = await scene.slow.open_crawl(a_crawl())
    await scene.slow.add(old, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    await scene.work()
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, ["y"]) for d in DOMAINS], seeds=True)
    answer = await scene.slow.add(old, PLAIN, [a_batch(d, ["z"]) for d in DOMAINS], seeds=True)
    assert answer.added == len(DOMAINS)
    assert (await scene.slow.add(old, PLAIN, [a_batch("d0.test", ["outlink"])])).rejected_by_reason == {"stopped": 1}
    info = await scene.quick.crawl_info(ONE)
    assert info is not None
    assert (info.run, info.total().queued) == (2, 2 * len(DOMAINS))


async def test_a_crawl_that_was_forgotten_here_and_not_there_begins_anew(scene: Scene) -> None:
    """Its home shard was swept, the others not yet: run 1 is not taken for an old one."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    await scene.work()
    again = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(again, PLAIN, [a_batch(d, ["y"]) for d in DOMAINS], seeds=True)
    await scene.work()
    scene.clock.now += 86400 + 60
    commands = scene.quick._commands
    await sweep(commands, home_shard(ONE.token, commands.count), retention_ms=86_400_000)
    assert await scene.quick.crawl_info(ONE) is None
    run = await scene.slow.open_crawl(a_crawl())
    assert run.number == 1
    answer = await scene.slow.add(run, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    assert answer.added == len(DOMAINS)
    assert len(await scene.work()) == len(DOMAINS)
    assert await scene.consistent() is CrawlState.FINISHED
    for _ in range(2):
        scene.clock.now += 31 * 86400
        await scene.quick.maintain()
    stays = {key.split("}:")[1] for key, ttl in (await scene.stage.keys()).items() if ttl == -1}
    assert stays <= {"meta", "n"}, f"without an end: {sorted(stays)}"


async def test_a_long_submission_that_begins_with_duplicates_is_one_run(scene: Scene) -> None:
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, range(700)) for d in DOMAINS], seeds=True)
    await scene.quick.stop_crawl(ONE, state=CrawlState.FINISHED)
    run = await scene.quick.open_crawl(a_crawl())
    assert run.number == 2
    answer = await scene.quick.add(run, PLAIN, [a_batch(d, range(701)) for d in DOMAINS])
    assert (answer.added, answer.duplicates) == (len(DOMAINS), 700 * len(DOMAINS))
    assert len(await scene.work()) >= 1
    info = await scene.quick.crawl_info(ONE)
    assert info is not None
    assert info.run == 2


async def test_a_long_submission_of_duplicates_ends_at_once(scene: Scene) -> None:
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, range(700)) for d in DOMAINS], seeds=True)
    await scene.quick.stop_crawl(ONE, state=CrawlState.FINISHED)
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, range(700)) for d in DOMAINS], seeds=True)
    assert await scene.consistent() is CrawlState.FINISHED


async def test_a_fresh_run_is_begun_once_however_often_it_is_asked_for(scene: Scene) -> None:
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch("d0.test", ["x"])], seeds=True)
    with pytest.raises(CrawlRefused, match="running"):
        await scene.quick.open_crawl(a_crawl(), fresh=True)
    await scene.work()
    scene.stage.connections[0].countdown = 0
    with pytest.raises(FrontierUnavailable):
        await scene.quick.open_crawl(a_crawl(), fresh=True)
    second = await scene.quick.open_crawl(a_crawl(), fresh=True)
    assert (second.number, second.generation > run.generation) == (2, True)
    with pytest.raises(CrawlRefused, match="running"):
        await scene.quick.open_crawl(a_crawl(), fresh=True)
    with pytest.raises(CrawlRefused, match="running"):
        await scene.slow.open_crawl(a_crawl(), fresh=True)


@pytest.mark.parametrize("nth", range(5))
async def test_what_the_other_shards_gave_is_not_stranded(scene: Scene, nth: int) -> None:
    """One shard's reply is lost, the others' arrived: every request is handed out once, within the limit."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    seat = await scene.quick.open_leaseholder(pool="shared", spiders=["link"])
    scene.stage.connections[0].countdown = nth
    found = []
    for limit in [50] + [3] * 10:
        try:
            leases = await seat.lease(limit=limit)
        except FrontierUnavailable:
            continue
        assert len(leases) <= limit
        found += leases
    assert sorted(lease.domain for lease in found) == DOMAINS
    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in found])
    await scene.quick.maintain()
    assert await scene.consistent() is CrawlState.FINISHED
    await seat.close()


async def test_large_payloads_travel_a_few_at_a_time(scene: Scene) -> None:
    """One call stays within some megabytes, whatever the batch."""
    run = await scene.slow.open_crawl(a_crawl())
    payloads = [bytes([number]) * 500_000 for number in range(30)]
    scene.wire.calls.clear()
    answer = await scene.slow.add(run, PLAIN, [a_batch("d0.test", range(30), payloads=payloads)])
    assert answer.added == 30
    assert scene.wire.calls.count("add") >= 4
    with pytest.raises(BadInput, match="payload"):
        await scene.slow.add(run, PLAIN, [a_batch("d0.test", ["big"], payloads=[bytes((1 << 20) + 1)])])


async def test_two_who_finish_decide_once(scene: Scene) -> None:
    """However many look whether a run is over, its end is one."""
    run = await scene.quick.open_crawl(a_crawl())
    await scene.quick.add(run, PLAIN, [a_batch(d, ["x"]) for d in DOMAINS], seeds=True)
    seat = await scene.quick.open_leaseholder(pool="shared", spiders=["link"])
    leases = await seat.lease(limit=50)
    await asyncio.gather(*(seat.settle([Settlement(lease, Outcome.FETCHED)]) for lease in leases))
    await asyncio.gather(*(frontier.maintain() for frontier in (scene.quick, scene.slow) for _ in range(3)))
    assert await scene.consistent() is CrawlState.FINISHED
    await seat.close()
