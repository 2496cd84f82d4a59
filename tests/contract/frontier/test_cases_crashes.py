"""A client dies after every single step of what takes several: whoever comes later puts it right."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gossamer.errors import CrawlRefused
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Batch, Lease, Outcome, Settlement
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

PLAIN = Terms()
ONE = CrawlId("app", "one")
HEARTBEAT_SECONDS = 20.0
DOMAINS = [f"d{number}.test" for number in range(8)]
MOST_STEPS = 200
"""More than anything here takes."""


class Died(Exception):
    """The client is no more."""


class MortalConnection:
    """Connections of a client that dies right after so many scripts were carried out; None: it lives."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.steps: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shards, name)

    def _live(self, cost: int = 0) -> None:
        if self.steps is not None:
            if self.steps <= 0:
                raise Died
            self.steps -= cost

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        self._live()
        reply = await self._shards.call(shard, script, *arguments, **options)
        self._live(1)
        return reply

    async def command(self, key: str, *command: Any) -> Any:
        self._live()
        return await self._shards.command(key, *command)


class Scene:
    """A frontier with a client that lives and one that dies."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clock = Clock()

    async def set(self) -> None:
        options = {"dead_after_seconds": HEARTBEAT_SECONDS, "clock": self.clock}
        self.living = await self.stage.frontier(**options)
        self.connection = MortalConnection(await Shards.connect(self.stage.server.address))
        self.mortal = await ValkeyFrontier.from_connection(self.connection, prefix=self.stage.prefix, **options)  # type: ignore[arg-type]

    async def submit(self, *batches: Batch, frontier: ValkeyFrontier | None = None, **options: Any) -> None:
        frontier = frontier or self.living
        run = await frontier.open_crawl(a_crawl(**options))
        await frontier.add(run, PLAIN, batches or [a_batch(d, range(2)) for d in DOMAINS], seeds=True)

    async def die_in(self, act: Callable[[], Awaitable[Any]], *, after: int) -> bool:
        """Whether it died; else it was done before."""
        self.connection.steps = after
        try:
            await act()
        except Died:
            return True
        finally:
            self.connection.steps = 0 if self.connection.steps == 0 else None
        return False

    async def info(self) -> CrawlInfo:
        info = await self.living.crawl_info(ONE)
        assert info is not None
        whole = info.total()
        assert whole.added == whole.queued + whole.later + whole.leased + whole.done, info
        return info

    async def drain(self) -> list[Lease]:
        """Work until the crawl is over; what was leased."""
        seat = await self.living.open_leaseholder(pool="shared", spiders=["link"])
        found: list[Lease] = []
        for _ in range(40):
            self.clock.now += HEARTBEAT_SECONDS / 2 + 1
            await seat.heartbeat() if found else None
            await self.living.maintain()
            while leases := await seat.lease(limit=50):
                await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
                found += leases
            if (await self.info()).state is not CrawlState.RUNNING:
                break
        await seat.close()
        return found

    async def nothing_stays(self) -> None:
        for _ in range(2):
            self.clock.now += 31 * 86400
            await self.living.maintain()
        assert await self.living.crawl_info(ONE) is None
        stays = {key.split("}:")[1] for key, ttl in (await self.stage.keys()).items() if ttl == -1}
        assert stays <= {"meta", "n", "policy"}, f"without an end: {sorted(stays)}"


@pytest.fixture(params=[1, 5], ids=["single", "sharded"])
async def scenes(request: pytest.FixtureRequest, stage_of: Callable[[int], Stage]) -> AsyncIterator[Any]:
    """Makes scenes, one after the other."""
    made: list[Scene] = []

    async def make() -> Scene:
        await leave()
        scene = Scene(stage_of(request.param))
        await scene.set()
        made.append(scene)
        return scene

    async def leave() -> None:
        while made:
            scene = made.pop()
            await scene.mortal.close()
            await scene.stage.leave()

    yield make
    await leave()


Scenes = Callable[[], Awaitable[Scene]]


async def every_death(
    scenes: Scenes, prepare: Callable[[Scene], Awaitable[Callable[[], Awaitable[Any]]]], *, stride: int = 1
) -> AsyncIterator[Scene]:
    """A scene for each step (or some of them) after which the client can die, as it is then."""
    for after in range(1, MOST_STEPS, stride):
        scene = await scenes()
        act = await prepare(scene)
        died = await scene.die_in(act, after=after)
        yield scene
        if not died:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("state", [CrawlState.STOPPED, CrawlState.EXPIRED])
async def test_a_stop_is_carried_out(scenes: Scenes, state: CrawlState) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit()
        return lambda: scene.mortal.stop_crawl(ONE, state=state)

    async for scene in every_death(scenes, prepare):
        await scene.living.maintain()
        seat = await scene.living.open_leaseholder(pool="shared", spiders=["link"])
        assert await seat.lease(limit=50) == []
        info = await scene.info()
        assert (info.state, info.total().queued, info.total().dropped) == (state, 0, {state.value: 16})
        with pytest.raises(CrawlRefused):
            await scene.submit()
        await seat.close()
        await scene.nothing_stays()


async def test_the_stop_of_a_spiders_part_is_carried_out(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(*[a_batch(d, range(2), spider=s) for d in DOMAINS for s in ("link", "other")])
        return lambda: scene.mortal.stop_crawl(ONE, spider="other")

    async for scene in every_death(scenes, prepare):
        await scene.living.maintain()
        seat = await scene.living.open_leaseholder(pool="shared", spiders=["other"])
        assert await seat.lease(limit=50) == []
        await seat.close()
        assert len(await scene.drain()) == 16
        assert (await scene.info()).state is CrawlState.FINISHED
        await scene.nothing_stays()


async def test_an_end_is_noticed(scenes: Scenes) -> None:
    """The worker that settles the last pages dies with it: the run finishes all the same, once and completely."""

    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(*[a_batch(d, ["x"]) for d in DOMAINS])
        seat = await scene.mortal.open_leaseholder(pool="shared", spiders=["link"])
        leases = await seat.lease(limit=50)
        assert len(leases) == len(DOMAINS)

        async def settle() -> None:
            try:
                await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            finally:
                seat._joined = list  # type: ignore[method-assign]  # the dead do not say good-bye
                await seat.close()

        return settle

    async for scene in every_death(scenes, prepare):
        await scene.drain()
        info = await scene.info()
        assert (info.state, info.total().fetched) == (CrawlState.FINISHED, len(DOMAINS))
        await scene.submit(a_batch("d0.test", ["y"]))
        assert (await scene.info()).run == 2
        assert [lease.url for lease in await scene.drain()] == ["https://d0.test/y"]
        await scene.nothing_stays()


async def test_a_submission_may_be_made_again(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        return lambda: scene.submit(frontier=scene.mortal)

    async for scene in every_death(scenes, prepare):
        await scene.living.maintain()
        await scene.submit()
        leases = await scene.drain()
        assert len({lease.url for lease in leases}) == len(leases) == 16
        assert (await scene.info()).state is CrawlState.FINISHED
        await scene.nothing_stays()


async def test_a_submission_that_nobody_makes_again_ends(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        return lambda: scene.submit(frontier=scene.mortal)

    async for scene in every_death(scenes, prepare):
        await scene.drain()
        scene.clock.now += 86400 + 1
        await scene.living.maintain()
        info = await scene.living.crawl_info(ONE)
        assert info is None or info.state is CrawlState.FINISHED
        await scene.nothing_stays()


async def test_nothing_of_a_run_that_was_given_up_is_found_in_the_next(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit()
        return lambda: scene.mortal.stop_crawl(ONE, state=CrawlState.FINISHED)

    async for scene in every_death(scenes, prepare):
        run = await scene.living.open_crawl(a_crawl(), fresh=True)
        await scene.living.add(run, PLAIN, [a_batch(d, ["new"]) for d in DOMAINS[:2]], seeds=True)
        leases = await scene.drain()
        assert sorted(lease.url for lease in leases) == ["https://d0.test/new", "https://d1.test/new"]
        assert {lease.run.number for lease in leases} == {2}
        assert (await scene.info()).state is CrawlState.FINISHED
        await scene.nothing_stays()


async def test_a_page_budget_is_neither_lost_nor_exceeded(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.submit(max_pages=5)

        async def work() -> None:
            seat = await scene.mortal.open_leaseholder(pool="shared", spiders=["link"])
            try:
                for _ in range(6):
                    scene.clock.now += 5
                    leases = await seat.lease(limit=3)
                    await seat.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            finally:
                seat._joined = list  # type: ignore[method-assign]
                await seat.close()

        return work

    async for scene in every_death(scenes, prepare, stride=5):
        await scene.drain()
        info = await scene.info()
        assert (info.state, info.total().fetched) == (CrawlState.FINISHED, 5)
        await scene.nothing_stays()


async def test_a_change_of_the_default_policy_reaches_every_domain(scenes: Scenes) -> None:
    async def prepare(scene: Scene) -> Callable[[], Awaitable[Any]]:
        await scene.living.set_domain_policy(None, DomainPolicy(blacklisted=True))
        await scene.submit()
        return lambda: scene.mortal.set_domain_policy(None, None)

    async for scene in every_death(scenes, prepare):
        await scene.living.set_domain_policy("d0.test", DomainPolicy(hits=2))
        await scene.living.maintain()
        if scene.connection.steps == 0:  # it did not get to all shards: the operator asks again
            await scene.living.set_domain_policy(None, None)
        assert len(await scene.drain()) == 16
        await scene.nothing_stays()
