"""A server that has carried out half of a script: what it left is corrected, and what is gone is counted."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gossamer.frontier.valkey.keys import KeyPattern, shard_of
from gossamer.model.crawl import BudgetScope, CrawlState, DomainPolicy, Rate, Run, Terms
from gossamer.model.request import DropReason, Outcome, Settlement

from .asking import a_batch, a_crawl
from .pair import Clock
from .stage import Stage

DOMAIN = "a.test"
PATHS = 8
HEARTBEAT_SECONDS = 20.0


class Scene:
    """A crawl with requests in a queue, to be queued later, and leased by a worker that lives."""

    def __init__(self, stage: Stage, clock: Clock, *, render: bool = False) -> None:
        self.stage = stage
        self.render = render
        self.clock = clock
        self.shard = shard_of(DOMAIN, stage.shards)
        self.base = f"{stage.prefix}:{{{self.shard}}}:"

    async def begin(self, **crawl: Any) -> None:
        self.frontier = await self.stage.frontier(clock=self.clock, dead_after_seconds=HEARTBEAT_SECONDS)
        self.said: list[str] = []
        self.frontier.on_repair(self.said.append)
        await self.frontier.set_domain_policy(
            None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False, concurrency=3)
        )
        self.run: Run = await self.frontier.open_crawl(a_crawl("torn", **crawl))
        terms = Terms(domain_max_pages=100)
        await self.frontier.add(self.run, terms, [a_batch(DOMAIN, list(range(PATHS)), render=self.render)], seeds=True)
        self.holder = await self.frontier.open_leaseholder(
            pool="shared", spiders=["link"], plain=not self.render, browser=self.render
        )
        first, *_ = await self.holder.lease(limit=1)
        await self.holder.settle([Settlement(first, Outcome.RETRY, "why", 1.0)])
        self.leases = await self.holder.lease(limit=2)
        assert len(self.leases) == 2

    async def command(self, *words: Any) -> Any:
        return await self.stage.connections[0].command(self.base, *words)

    def key(self, kind: str) -> str:
        """Return a key; in the name of one of the spider, the lane of the requests is added."""
        return self.base + kind.replace("|link", "|link,browser" if self.render else "|link")

    @property
    def token(self) -> str:
        return self.run.crawl.id.token

    @property
    def queue(self) -> str:
        return self.key(f"q:{self.token}|link|{DOMAIN}|0")

    async def counters(self, *fields: str) -> list[int]:
        row = await self.command("HMGET", self.key(f"c:{self.token}"), *fields)
        return [int(value or 0) for value in row]

    async def work_off(self) -> int:
        """Fetch everything; returns how many requests were fetched. The run must be finished then."""
        await self.holder.settle([Settlement(lease, Outcome.FETCHED) for lease in self.leases])
        fetched = len(self.leases)
        for _ in range(10):
            self.clock.now += 1.5 * HEARTBEAT_SECONDS
            await self.holder.heartbeat()
            await self.frontier.maintain()
            while leases := await self.holder.lease(limit=10):
                await self.holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
                fetched += len(leases)
        info = await self.frontier.crawl_info(self.run.crawl.id)
        assert info is not None
        assert info.state is CrawlState.FINISHED, info
        total = info.total()
        assert (total.fetched, total.leased, total.waiting) == (fetched, 0, 0)
        assert total.added == total.done
        assert await self.frontier.backlog() == []
        return fetched

    async def close(self) -> None:
        await self.holder.close()
        await self.stage.leave()


@pytest.fixture(params=["plain", "browser"])
async def scene(stage: Stage, request: pytest.FixtureRequest) -> Any:
    scene = Scene(stage, Clock(), render=request.param == "browser")
    await scene.begin()
    yield scene
    await scene.close()


Break = Callable[[Scene], Awaitable[Any]]


def remove(kind: str) -> Break:
    return lambda scene: scene.command("DEL", scene.key(kind.format(token=scene.token)))


def count(key: str, field: str, number: int) -> Break:
    def change(scene: Scene) -> Awaitable[Any]:
        name = field.replace(":link", ":link,browser") if scene.render else field
        return scene.command("HINCRBY", scene.key(key.format(token=scene.token)), name, number)

    return change


async def without_a_record_of_hits(scene: Scene) -> None:
    """Of the requests in flight."""
    await scene.command("DEL", scene.key(f"w:{DOMAIN}"))


async def waiting_for_nothing(scene: Scene) -> None:
    """The domain waits for the end of a request in flight, but its rate limit does not know that."""
    await scene.command("ZADD", scene.key("r:shared|link|5"), "inf", DOMAIN)


HARMLESS: dict[str, Break] = {
    "a queue without an agenda": remove(f"a:shared|link|{DOMAIN}"),
    "a domain in no ready set": remove("r:shared|link|5"),
    "neither": lambda s: s.command("DEL", s.key(f"a:shared|link|{DOMAIN}"), s.key("r:shared|link|5")),
    "a domain that waits for nothing": waiting_for_nothing,
    "no share": remove("d:{token}"),
    "a group that is not listed": remove("groups"),
    "a negative count": count("c:{token}", "h:link", -10),
    "a count of more leases": count("c:{token}", "h:link", 10),
    "a count of fewer queued": count("c:{token}", "q:link", -3),
    "a priority with a wrong count": count("c:{token}", "p:link:0", 2),
    "an unknown priority": count("c:{token}", "p:link:7", 2),
    "a count of more later": count("c:{token}", "l:link", 4),
    "fewer added": count("c:{token}", "A", -1),
    "more done": count("c:{token}", "Z", 1),
    "more domains": count("c:{token}", "doms", 3),
    "no backlog": remove("backlog"),
    "a backlog of nothing": count("backlog", "shared|other", 5),
    "no waiting requests of the application": remove("app:app"),
    "no record of what is in flight": without_a_record_of_hits,
}


@pytest.mark.parametrize("what", HARMLESS)
async def test_what_is_derived_is_made_again(scene: Scene, what: str) -> None:
    await HARMLESS[what](scene)
    assert await scene.frontier.repair()
    assert len(scene.said) == 1
    assert "Corrected: " in scene.said[0]
    assert "Gone" not in scene.said[0]
    assert not await scene.frontier.repair(), "there is nothing left to correct"
    assert await scene.work_off() == PATHS


async def test_a_repair_of_one_crawl_finds_its_queues(scene: Scene) -> None:
    await scene.command("DEL", scene.key(f"d:{scene.token}"))
    await HARMLESS["neither"](scene)
    assert await scene.frontier.repair(scene.run.crawl.id)
    assert not await scene.frontier.repair(scene.run.crawl.id)
    assert await scene.work_off() == PATHS


@pytest.mark.parametrize("wrong", [-1, 1])
async def test_a_rate_limit_counts_again_what_is_in_flight(scene: Scene, wrong: int) -> None:
    """Or it would allow too few requests at once for ever, or too many."""
    await scene.holder.settle([Settlement(lease, Outcome.FETCHED) for lease in scene.leases])
    before = await scene.holder.lease(limit=3)
    assert len(before) == 3
    assert await scene.holder.lease(limit=3) == []
    record = await scene.command("GET", scene.key(f"w:{DOMAIN}"))
    assert record[1] == 3
    await scene.command("SETRANGE", scene.key(f"w:{DOMAIN}"), 1, bytes([3 + wrong]))
    assert await scene.frontier.repair()
    assert (await scene.command("GET", scene.key(f"w:{DOMAIN}")))[1] == 3
    await scene.holder.settle([Settlement(before[0], Outcome.FETCHED)])
    assert len(await scene.holder.lease(limit=3)) == 1
    scene.leases = []


async def test_leases_of_a_worker_that_the_shard_does_not_know_are_taken_back(scene: Scene) -> None:
    await scene.command("ZREM", scene.key("workers"), scene.holder.session_name(scene.shard))
    assert await scene.frontier.repair()
    assert "1 worker whose requests" in scene.said[0]
    assert await scene.frontier.maintain() == 2
    scene.leases = []
    scene.holder = await scene.frontier.open_leaseholder(
        pool="shared", spiders=["link"], plain=not scene.render, browser=scene.render
    )
    assert await scene.work_off() == PATHS


async def lose_a_queue(scene: Scene) -> int:
    length = await scene.command("LLEN", scene.queue)
    await scene.command("DEL", scene.queue)
    return int(length)


async def lose_an_entry(scene: Scene) -> int:
    await scene.command("LPOP", scene.queue)
    return 1


async def lose_a_retry(scene: Scene) -> int:
    await scene.command("DEL", scene.key("later"))
    return 1


async def lose_a_lease(scene: Scene) -> int:
    lease = scene.leases.pop()
    await scene.command("HDEL", scene.key(f"l:{scene.holder.session_name(scene.shard)}"), lease.id)
    return 1


async def lose_all(scene: Scene) -> int:
    return sum([await lose(scene) for lose in (lose_a_queue, lose_a_retry, lose_a_lease)])


@pytest.mark.parametrize("lose", [lose_a_queue, lose_an_entry, lose_a_retry, lose_a_lease, lose_all])
@pytest.mark.parametrize("whole", [True, False])
async def test_requests_that_are_gone_count_as_lost_and_the_run_ends(
    scene: Scene, lose: Callable[[Scene], Awaitable[int]], whole: bool
) -> None:
    lost = await lose(scene)
    assert await scene.frontier.repair(None if whole else scene.run.crawl.id)
    assert f"Gone: {lost} request" in scene.said[0]
    assert await scene.work_off() == PATHS - lost
    info = await scene.frontier.crawl_info(scene.run.crawl.id)
    assert info is not None
    assert info.total().dropped == {DropReason.LOST: lost}
    assert info.total().added == PATHS


async def test_urls_that_are_seen_and_were_never_queued_count_as_lost(scene: Scene) -> None:
    """Half of an addition: it marks URLs as seen before it queues them."""
    [bucket] = await scene.command("KEYS", scene.key(f"s:{scene.token}:*"))
    await scene.command("SADD", bucket, 1, 2, 3)
    assert await scene.frontier.repair(scene.run.crawl.id)
    assert not await scene.frontier.repair()
    assert await scene.work_off() == PATHS
    info = await scene.frontier.crawl_info(scene.run.crawl.id)
    assert info is not None
    assert (info.seen, info.total().added, info.total().dropped) == (PATHS + 3, PATHS + 3, {DropReason.LOST: 3})
    assert info.repairs == 1


async def test_a_domain_that_starves_for_nothing_goes_on(scene: Scene) -> None:
    """It waits for a page of its budget, and no request in flight has one."""
    await scene.holder.settle([Settlement(lease, Outcome.RETRY, "why", 1.0) for lease in scene.leases])
    scene.leases = []
    await scene.command("DEL", scene.key(f"a:shared|link|{DOMAIN}"), scene.key("r:shared|link|5"))
    await scene.command("SADD", scene.key(f"z:{scene.token}"), DOMAIN)
    await scene.frontier.repair()
    assert await scene.work_off() == PATHS


async def test_a_domain_is_placed_for_each_egress_address(scene: Scene) -> None:
    await scene.frontier.set_domain_policy(DOMAIN, DomainPolicy(hits=1000, window_seconds=1.0, scope=BudgetScope.IP))
    assert await scene.holder.lease(limit=1)
    keys = await scene.command("KEYS", scene.key("r:*"))
    await scene.command("DEL", *keys)
    assert await scene.frontier.repair()
    assert "1 queue that no worker" in scene.said[-1]
    assert not await scene.frontier.repair()
    scene.clock.now += 1
    assert await scene.holder.lease(limit=1)


async def test_turns_of_crawls_on_a_domain_go_on(scene: Scene) -> None:
    """Whatever was in flight for another crawl there, which lost it."""
    other = await scene.frontier.open_crawl(a_crawl("other", rate=Rate(10, 1.0)))
    await scene.frontier.add(other, Terms(), [a_batch(DOMAIN, ["other"], render=scene.render)], seeds=True)
    got = []
    for _ in range(4):
        scene.clock.now += 1
        got += await scene.holder.lease(limit=1)
    await scene.command("DEL", scene.key(f"l:{scene.holder.session_name(scene.shard)}"))
    scene.leases = []
    lost = len(got) + 2
    assert await scene.frontier.repair()
    assert f"Gone: {lost} requests" in scene.said[-1]
    total = 0
    for _ in range(10):
        scene.clock.now += 1.5
        leases = await scene.holder.lease(limit=10)
        await scene.holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        await scene.holder.heartbeat()
        total += len(leases)
    assert total == PATHS + 1 - lost


async def test_requests_that_are_there_twice_are_fetched_twice_and_the_run_ends(scene: Scene) -> None:
    """Half of an addition, and the same addition again: a queue has more than is counted."""
    await scene.command("RPUSH", scene.queue, await scene.command("LINDEX", scene.queue, 0))
    await scene.command("HINCRBY", scene.key(f"c:{scene.token}"), "Z", 1)
    assert await scene.frontier.repair()
    assert await scene.work_off() == PATHS + 1


async def test_a_page_budget_is_counted_again(stage_of: Callable[[int], Stage]) -> None:
    """Pages that nobody holds are free again, and the queues that waited for them go on."""
    scene = Scene(stage_of(1), Clock())
    await scene.begin(max_pages=PATHS)
    await scene.command("HINCRBY", scene.key(f"c:{scene.token}"), "R", PATHS)
    assert await scene.holder.lease(limit=1) == []  # its queue is set aside
    assert await scene.frontier.repair()
    assert await scene.work_off() == PATHS
    await scene.close()


async def test_a_queue_that_is_gone_does_not_keep_a_lease_call_busy(scene: Scene) -> None:
    """It is taken from its agenda by the first call that finds nothing in it."""
    await scene.command("DEL", scene.queue)
    assert await scene.holder.lease(limit=5) == []
    assert await scene.command("ZCARD", scene.key(f"a:shared|link|{DOMAIN}")) == 0


async def test_maintenance_repairs_after_a_start_of_a_server_that_keeps_half_transactions(scene: Scene) -> None:
    """Once for each start, whichever process is the first; servers that do not are never looked at."""
    shards = scene.frontier._commands.shards
    await HARMLESS["neither"](scene)
    await scene.frontier.maintain()
    assert scene.said == []
    shards.keeps_torn = True
    await scene.frontier.maintain()
    assert len(scene.said) == 1
    await HARMLESS["neither"](scene)
    await scene.frontier.maintain()
    assert len(scene.said) == 1, "the server has not started again"
    await scene.command("HSET", scene.key(KeyPattern.META), "process", "another")
    await scene.frontier.maintain()
    assert len(scene.said) == 1, "its connection has not ended"
    shards.epoch.begin()
    await scene.frontier.maintain()
    assert len(scene.said) == 2
    assert await scene.work_off() == PATHS
