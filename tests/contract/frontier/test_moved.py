"""What the frontier's contract promises of a crawl that is paused, and of one that moves to another frontier."""

from gossamer.frontier.exported import ExportedLine, ExportHeader
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Rate, Terms
from gossamer.model.info import CrawlInfo
from gossamer.model.request import Lease, Outcome, Settlement

from .asking import a_batch, a_crawl
from .observer import StepObserver
from .pair import Clock
from .stage import Stage

FAST = {"rate": Rate(1000, 1.0), "concurrency": 1000}
DOMAINS = [f"d{number}.test" for number in range(6)]
PLAIN, OTHER = Terms(), Terms(useragent="other", domain_max_pages=50)


async def lease_all(frontier: ValkeyFrontier, clock: Clock, *, rounds: int = 40) -> list[Lease]:
    """What a worker gets, all of which it settles as fetched."""
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases: list[Lease] = []
    for _ in range(rounds):
        clock.now += 1
        some = await worker.lease(limit=100)
        await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in some])
        leases += some
    await worker.close()
    return leases


def shape(lease: Lease) -> tuple[object, ...]:
    return lease.request_id, lease.url, lease.depth, lease.priority, lease.attempt, lease.payload, lease.terms


async def info_of(frontier: ValkeyFrontier) -> CrawlInfo:
    info = await frontier.crawl_info(a_crawl().id)
    assert info is not None
    total = info.total()
    assert total.added == total.queued + total.later + total.leased + total.done
    return info


async def test_a_paused_crawl_takes_links_and_settlements_and_hands_out_nothing(stage: Stage) -> None:
    clock = Clock()
    frontier = await stage.frontier(clock=clock, observer=StepObserver())
    crawl, other = a_crawl(**FAST), a_crawl("other", **FAST)
    run = await frontier.open_crawl(crawl)
    await frontier.add(run, PLAIN, [a_batch(domain, range(5)) for domain in DOMAINS], seeds=True)
    others = await frontier.open_crawl(other)
    await frontier.add(others, PLAIN, [a_batch(DOMAINS[0], ["x"])], seeds=True)
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases = await worker.lease(limit=4)
    held = [lease for lease in leases if lease.run.crawl == crawl]
    await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in leases if lease not in held])
    assert await frontier.set_paused(crawl.id, paused=True)
    await frontier.add(run, PLAIN, [a_batch(domain, ["late"], depth=1) for domain in DOMAINS])
    await worker.settle([Settlement(lease, Outcome.RETRY, "dns", delay_seconds=1) for lease in held])
    found = await lease_all(frontier, clock)
    assert {lease.run.crawl.id for lease in found} <= {other.id}
    assert (await info_of(frontier)).is_paused
    assert (await frontier.crawl_info(other.id)).state is CrawlState.FINISHED  # type: ignore[union-attr]
    await frontier.maintain()
    assert await frontier.set_paused(crawl.id, paused=False)
    found = await lease_all(frontier, clock)
    assert len({lease.url for lease in found}) == len(found) == 6 * len(DOMAINS)
    info = await info_of(frontier)
    assert (info.state, info.is_paused) == (CrawlState.FINISHED, False)
    assert not await frontier.set_paused(crawl.id, paused=True)
    await worker.close()
    await stage.leave()


async def half_done(frontier: ValkeyFrontier, clock: Clock) -> None:
    """A crawl of which something waits in queues, something for a time; something has failed and is kept."""
    run = await frontier.open_crawl(a_crawl(keep_failed=True, **FAST), expires={"link": 0})
    payloads = [b"payload"] * 3
    await frontier.add(run, PLAIN, [a_batch(domain, range(10), priority=50) for domain in DOMAINS], seeds=True)
    await frontier.add(run, OTHER, [a_batch(domain, "abc", priority=20, payloads=payloads) for domain in DOMAINS])
    worker = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    leases: list[Lease] = []
    for _ in range(5):
        clock.now += 1
        leases += await worker.lease(limit=5)
    ends = [Outcome.FETCHED, Outcome.FAILED, Outcome.DROPPED, Outcome.RETRY, Outcome.FETCHED]
    await worker.settle(
        [
            Settlement(
                lease,
                end := ends[at % len(ends)],
                "" if end is Outcome.FETCHED else "dns",
                delay_seconds=30.0 if end is Outcome.RETRY else 0.0,
                unanswered=end is Outcome.FAILED,
                drops={"duplicate": 2},
            )
            for at, lease in enumerate(leases)
        ]
    )
    await frontier.add(run, OTHER, [a_batch(domain, "abc", depth=2, priority=10) for domain in DOMAINS])  # duplicates
    await worker.close()
    await frontier.set_domain_policy(DOMAINS[0], DomainPolicy(hits=500, window_seconds=1.0))
    assert await frontier.set_paused(a_crawl().id, paused=True)


async def enter(target: ValkeyFrontier, lines: list[ExportedLine]) -> None:
    header = lines[0]
    assert isinstance(header, ExportHeader)
    await target.adopt_secret(int(header.secret))
    importer = target.importer(header)
    run = await importer.open()
    restorer = target.restorer(run.crawl, PLAIN)
    await restorer.hold(run)
    for number, line in enumerate(lines, 1):
        await importer.enter(number, line)


async def test_a_crawl_moves_with_all_that_waits_and_its_counts(stage: Stage) -> None:
    clock = Clock()
    source = await stage.frontier(clock=clock)
    await half_done(source, clock)
    lines = [line async for line in (await source.export(a_crawl().id)).lines()]
    before = await info_of(source)
    assert before.total().later
    assert before.kept_failed
    for shards in {1, 3, stage.shards}:
        target_stage = Stage(stage.server, shards)
        observed = await target_stage.frontier(clock=clock, observer=StepObserver())
        await enter(observed, lines[: len(lines) // 2])  # and then the process was killed
        assert (await info_of(observed)).is_rebuilt
        await enter(observed, lines)
        await observed.close()
        target = await target_stage.frontier(clock=clock)
        run = await target.latest_run(a_crawl().id)
        assert run is not None
        await target.restorer(run.crawl, PLAIN).release(run)
        after = await info_of(target)
        for name in ("run", "started", "seen", "domains", "kept_failed", "queued_by_priority", "spiders", "options"):
            assert getattr(after, name) == getattr(before, name), name
        assert after.state is CrawlState.RUNNING
        assert await target.domain_policy(DOMAINS[0]) == await source.domain_policy(DOMAINS[0])
        assert not await target.repair()
        moved = {shape(lease) for lease in await lease_all(target, clock)}
        assert len(moved) == before.total().waiting
        run, retried = await target.retry_failed(run, None)
        assert retried == before.kept_failed
        again = await target.add(
            run, PLAIN, [a_batch(domain, range(10), priority=50) for domain in DOMAINS], seeds=True
        )
        assert again.added == 0
        assert len(await lease_all(target, clock)) == retried
        assert (await info_of(target)).state is CrawlState.FINISHED
        await target.close()
        if shards == stage.shards:
            await source.set_paused(a_crawl().id, paused=False)
            assert {shape(lease) for lease in await lease_all(source, clock)} == moved
    await stage.leave()
