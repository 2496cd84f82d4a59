"""Every step of the life cycle that a script's header declares is one that the script takes."""

from collections.abc import Callable

import pytest

from gossamer.frontier.base import RestoredRequest, Submission
from gossamer.frontier.exported import ExportHeader
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import home_shard, shard_of
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import CrawlId, CrawlState, DomainPolicy, Run, Terms
from gossamer.model.request import MAX_DEATHS, Batch, Lease, Outcome, Settlement
from gossamer.valkey.scripts import Script

from .asking import a_batch, a_crawl
from .observer import DECLARED, StepObserver
from .pair import Clock
from .stage import Stage

PLAIN = Terms()
FAST = DomainPolicy(hits=100, window_seconds=1.0, moderated=False)
HEARTBEAT_SECONDS = 20.0
LATER_SECONDS = 1e6


class Steps:
    """One frontier, and the crawls of one request for each spider that take its steps."""

    def __init__(self, stage: Stage, frontier: ValkeyFrontier, clock: Clock) -> None:
        self.stage = stage
        self.frontier = frontier
        self.clock = clock
        self.names = 0

    async def add(self, *spiders: str, terms: Terms = PLAIN, domain: str = "", **options: object) -> Run:
        """A crawl of its own with a request for each spider."""
        self.names += 1
        run = await self.frontier.open_crawl(a_crawl(f"c{self.names}", pool=f"p{self.names}", **options))
        batches = [a_batch(domain or f"d{self.names}.test", [0], spider=spider) for spider in spiders]
        await self.frontier.add(run, terms, batches, seeds=True)
        return run

    async def lease(self, run: Run, spider: str = "link") -> tuple[ValkeyLeaseholder, Lease]:
        self.clock.now += 2
        holder = await self.frontier.open_leaseholder(pool=run.crawl.pool, spiders=[spider])
        (lease,) = await holder.lease(limit=5) or await holder.lease(limit=5)
        return holder, lease

    async def settle(self, run: Run, outcome: Outcome, spider: str = "link", *, delay: float = LATER_SECONDS) -> None:
        holder, lease = await self.lease(run, spider)
        await holder.settle([Settlement(lease, outcome, "why", delay)])
        await holder.close()

    async def one_queued_one_later(self) -> Run:
        run = await self.add("link", "other")
        await self.settle(run, Outcome.RETRY, "other")
        return run

    def other_batches(self) -> list[Batch]:
        """More for the last crawl."""
        return [a_batch(f"d{self.names}.test", ["more"], spider=spider) for spider in ("link", "other")]

    async def forget_home(self, run: Run) -> None:
        """The home shard loses the crawl, as after a failover, so the next run knows nothing of this one."""
        token = run.crawl.id.token
        base = f"{self.stage.prefix}:{{{home_shard(token, self.stage.shards)}}}:"
        await self.stage.connections[0].command(base, "DEL", f"{base}h:{token}")
        self.clock.now += 5


async def outcomes(steps: Steps) -> None:
    await steps.frontier.submit([Submission(a_crawl("submitted"), PLAIN, [a_batch("a.test", ["page"])])])
    for outcome in Outcome:
        await steps.settle(await steps.add("link"), outcome)


async def requests_that_are_due_again(steps: Steps) -> None:
    run = await steps.add("link", domain="blocked.test")
    await steps.settle(run, Outcome.POSTPONED, delay=1.0)
    await steps.frontier.block_domain("blocked.test", seconds=100)
    steps.clock.now += 2
    holder = await steps.frontier.open_leaseholder(pool=run.crawl.pool, spiders=["link"])
    assert await holder.lease(limit=5) == []
    await holder.close()


async def limits(steps: Steps) -> None:
    run = await steps.add("link", terms=Terms(expires=steps.clock.now + 1))
    steps.clock.now += 2
    holder = await steps.frontier.open_leaseholder(pool=run.crawl.pool, spiders=["link"])
    assert await holder.lease(limit=5) == []
    await holder.close()
    run = await steps.add("link", "other", terms=Terms(domain_max_pages=1))
    await steps.settle(run, Outcome.FETCHED)
    holder = await steps.frontier.open_leaseholder(pool=run.crawl.pool, spiders=["other"])
    assert await holder.lease(limit=5) == []
    await holder.close()


async def page_budgets(steps: Steps) -> None:
    run = await steps.add("link", "queued", "later", max_pages=1)
    await steps.settle(run, Outcome.RETRY, "later")
    await steps.settle(run, Outcome.FETCHED)
    await steps.frontier.maintain()


async def ends(steps: Steps) -> None:
    for state in (CrawlState.STOPPED, CrawlState.EXPIRED):
        await steps.frontier.stop_crawl((await steps.one_queued_one_later()).crawl.id, state=state)
        run = await steps.add("link")
        holder, lease = await steps.lease(run)
        await steps.frontier.stop_crawl(run.crawl.id, state=state)
        await holder.settle([Settlement(lease, Outcome.RETURNED)])
        await holder.close()
        run = await steps.add("link")
        holder, _ = await steps.lease(run)
        await steps.frontier.stop_crawl(run.crawl.id, state=state)
        await holder.close()


async def deaths(steps: Steps) -> None:
    run = await steps.add("link")
    for _ in range(MAX_DEATHS):
        await steps.lease(run)  # and the worker is silent
        steps.clock.now += 2 * HEARTBEAT_SECONDS
        await steps.frontier.maintain()


async def runs_that_were_given_up(steps: Steps) -> None:
    run = await steps.one_queued_one_later()
    await steps.forget_home(run)
    again = await steps.frontier.open_crawl(run.crawl)
    await steps.frontier.add(again, PLAIN, [a_batch("new.test", ["a"])], seeds=True)
    run = await steps.one_queued_one_later()
    await steps.forget_home(run)
    await steps.frontier.submit([Submission(run.crawl, PLAIN, steps.other_batches())])
    run = await steps.add("link")
    await steps.settle(run, Outcome.FETCHED)
    run = await steps.frontier.open_crawl(run.crawl)
    await steps.frontier.add(run, PLAIN, steps.other_batches(), seeds=True)
    await steps.settle(run, Outcome.RETRY, "other")
    await steps.forget_home(run)
    assert (
        await steps.frontier.open_crawl(run.crawl)
    ).number < run.number  # and the client dies before it adds anything
    steps.clock.now += 86400 + 5
    await steps.frontier.maintain()


async def runs_that_were_forgotten(steps: Steps) -> None:
    run = await steps.add("link", "queued", "later", max_pages=1)
    await steps.settle(run, Outcome.RETRY, "later")
    holder, _ = await steps.lease(run)  # and the worker is silent
    await steps.forget_home(run)
    other = await steps.frontier.open_leaseholder(pool=run.crawl.pool, spiders=["queued"])
    assert await other.lease(limit=5) == []  # it waits for a page of the budget
    for seconds in (0, 86400 + 5):
        steps.clock.now += seconds
        await steps.frontier.maintain(may_declare_dead=lambda: False)
    await holder.close()
    await other.close()


async def failures_that_are_retried(steps: Steps) -> None:
    for outcome in (Outcome.FAILED, Outcome.DROPPED):
        run = await steps.add("link", "other", keep_failed=True)
        holder, lease = await steps.lease(run)
        await holder.settle([Settlement(lease, outcome, "why", unanswered=True)])
        await holder.close()
        _, retried = await steps.frontier.retry_failed(run, PLAIN)
        assert retried == 1
    run = await steps.one_queued_one_later()
    shard = shard_of(f"d{steps.names}.test", steps.stage.shards)
    await steps.forget_home(run)
    # A client opens the run on this shard, and dies before it adds anything there.
    await steps.frontier._adder._open(run.crawl, touch=[shard])
    await steps.frontier.retry_failed(run, PLAIN)


async def requests_that_the_server_lost(steps: Steps) -> None:
    for status in ("queued", "later", "leased"):
        run = await steps.add("link")
        base = f"{steps.stage.prefix}:{{{shard_of(f'd{steps.names}.test', steps.stage.shards)}}}:"
        connection = steps.stage.connections[0]
        match status:
            case "queued":
                await connection.command(base, "DEL", f"{base}q:{run.crawl.id.token}|link|d{steps.names}.test|0")
            case "later":
                await steps.settle(run, Outcome.RETRY)
                members = await connection.command(base, "ZRANGE", f"{base}later", 0, -1)
                mine = [member for member in members if run.crawl.id.token.encode() in member]
                await connection.command(base, "ZREM", f"{base}later", *mine)
            case "leased":
                holder, lease = await steps.lease(run)
                await connection.command(base, "HDEL", f"{base}l:{holder.session_name(lease.shard)}", lease.id)
        assert await steps.frontier.repair(run.crawl.id)


async def requests_that_are_restored(steps: Steps) -> None:
    run = await steps.one_queued_one_later()
    await steps.forget_home(run)
    restorer = steps.frontier.restorer(run.crawl, PLAIN)
    again = await restorer.open()
    domain = f"d{steps.names}.test"
    for number, end in enumerate((Outcome.DROPPED, Outcome.FETCHED, Outcome.FAILED, Outcome.DROPPED)):
        await restorer.enter(again, [RestoredRequest("link", domain, number, end, "why")])
    await restorer.release(again)


async def crawls_that_are_imported(steps: Steps) -> None:
    for end in (Outcome.FETCHED, Outcome.FAILED, Outcome.DROPPED, Outcome.RETRY):
        await _import(steps, end)


async def _import(steps: Steps, end: Outcome) -> None:
    """The second run of a crawl, in which one request has ended so and one waits, into a frontier that still has a part
    of the first."""
    run = await steps.add("queued", "later", keep_failed=True)
    await steps.settle(run, Outcome.RETRY, "later")
    source = await Stage(steps.stage.server, 1).frontier(clock=steps.clock)
    await source.set_domain_policy(None, FAST)
    worker = await source.open_leaseholder(pool=run.crawl.pool, spiders=["link"])
    for urls, outcome in ((["first"], Outcome.FETCHED), ([1, 2], end)):
        opened = await source.open_crawl(run.crawl)
        await source.add(opened, PLAIN, [a_batch(f"d{steps.names}.test", urls)], seeds=True)
        steps.clock.now += 2
        (lease,) = await worker.lease(limit=1) or await worker.lease(limit=1)
        delay = LATER_SECONDS if outcome is Outcome.RETRY else 0.0
        await worker.settle(
            [Settlement(lease, outcome, "why", delay, unanswered=outcome in (Outcome.FAILED, Outcome.DROPPED))]
        )
    assert await source.set_paused(run.crawl.id, paused=True)
    lines = [line async for line in (await source.export(run.crawl.id)).lines()]
    await worker.close()
    await source.close()
    await steps.forget_home(run)
    header = lines[0]
    assert isinstance(header, ExportHeader)
    importer, restorer = steps.frontier.importer(header), steps.frontier.restorer(run.crawl, PLAIN)
    again = await importer.open()
    await restorer.hold(again)
    for number, line in enumerate(lines, 1):
        await importer.enter(number, line)
    await restorer.release(again)


SCENARIOS = (
    outcomes, requests_that_are_due_again, limits, page_budgets, ends, deaths, runs_that_were_given_up,
    runs_that_were_forgotten, failures_that_are_retried, requests_that_the_server_lost, requests_that_are_restored,
    crawls_that_are_imported,
)  # fmt: skip


async def test_scripts_take_the_steps_that_they_declare(stage_of: Callable[[int], Stage]) -> None:
    observer = StepObserver()
    for shards in (1, 3):
        stage, clock = stage_of(shards), Clock()
        options = {"dead_after_seconds": HEARTBEAT_SECONDS, "clock": clock, "observer": observer}
        frontier = await stage.frontier(**options)
        await frontier.set_domain_policy(None, FAST)
        steps = Steps(stage, frontier, clock)
        for scenario in SCENARIOS:
            await scenario(steps)
        await stage.leave()
    missing = {(name, *step) for name, steps_ in DECLARED.items() for step in steps_ - observer.seen[name]}
    assert missing == set(), "declared, and never seen"


async def test_a_step_that_is_not_declared_is_noticed(stage_of: Callable[[int], Stage]) -> None:
    stage, clock = stage_of(1), Clock()
    frontier = await stage.frontier(clock=clock, observer=StepObserver())
    run = await frontier.open_crawl(a_crawl("one"))
    await frontier.add(run, PLAIN, [a_batch("a.test", ["page"])], seeds=True)
    token = CrawlId("app", "one").token
    wrong = Script("heartbeat", f'redis.call("HINCRBY", KEYS[1] .. "c:{token}", "h:link", 1) return 1')
    with pytest.raises(AssertionError, match="without a status, or with two"):
        await stage.connections[0].call(0, wrong, [f"{stage.prefix}:{{0}}:"], [])
    wrong = Script("settle", f'redis.call("HSET", KEYS[1] .. "c:{token}", "q:link", 0, "f:link", 1) return 1')
    with pytest.raises(AssertionError, match="does not declare"):
        await stage.connections[0].call(0, wrong, [f"{stage.prefix}:{{0}}:"], [])
    await stage.leave()
