"""The clock of the frontier's server is set while workers crawl: budgets hold, no worker is declared dead."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.frontier.base import RunFinished
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.commands import SCRIPTS
from gossamer.frontier.valkey.keys import KeyPattern
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, DomainPolicy, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement
from gossamer.policy.urls import fingerprint
from gossamer.telemetry import logs as names
from tests.servers import crawls
from tests.servers.faked_clock import FakedClock
from tests.servers.program import missing
from tests.servers.valkey import Server, standalone

HITS = 20
EVEN, TOGETHER = "even.test", "together.test"
BLUR_SECONDS = 0.2
GOES_ON_SECONDS = 15.0
"""Much longer than it takes, and shorter than every step."""


@pytest.fixture
def server() -> Iterator[Server]:
    if not FakedClock.library:
        missing("libfaketime is not installed; run tests/servers/install")
    with standalone(faked_clock=True) as one:
        yield one


@pytest.fixture
async def frontier(server: Server) -> AsyncIterator[ValkeyFrontier]:
    one = await ValkeyFrontier.connect(server.address, dead_after_seconds=10.0)
    for domain, moderated in ((EVEN, True), (TOGETHER, False)):
        policy = DomainPolicy(hits=HITS, window_seconds=1.0, moderated=moderated, concurrency=100)
        await one.set_domain_policy(domain, policy)
    await crawls.open_crawl(one, [f"http://{domain}/{n}" for domain in (EVEN, TOGETHER) for n in range(2000)], Terms())
    yield one
    await one.close()


@pytest.fixture
async def holder(frontier: ValkeyFrontier) -> AsyncIterator[ValkeyLeaseholder]:
    one = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    yield one
    await one.close()


def set_clock(server: Server, seconds: float) -> None:
    assert server.clock is not None
    server.clock.set(seconds)


async def fetch(holder: ValkeyLeaseholder, starts: dict[str, list[float]], *, more: int) -> None:
    """Until so many more requests of each domain have been handed out; their start times are added."""
    wanted = {domain: len(times) + more for domain, times in starts.items()}
    async with asyncio.timeout(GOES_ON_SECONDS):
        while any(len(starts[domain]) < count for domain, count in wanted.items()):
            leases = await holder.lease(limit=100)
            for lease in leases:
                starts[lease.domain].append(lease.start)
            await holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            if not leases:
                await holder.wait_for_work(timeout_seconds=0.1)


def most_in_a_window(times: list[float]) -> int:
    return max(sum(at - (1.0 - BLUR_SECONDS) < other <= at for other in times) for at in times)


@pytest.mark.parametrize("step", [3600.0, -20.0, -7200.0])
async def test_a_step_is_noticed_at_once_and_changes_nothing(
    server: Server, frontier: ValkeyFrontier, holder: ValkeyLeaseholder, step: float, caplog: pytest.LogCaptureFixture
) -> None:
    other = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    held = await other.lease(limit=2)
    starts: dict[str, list[float]] = {EVEN: [], TOGETHER: []}
    await fetch(holder, starts, more=2 * HITS)
    for seconds in (step, 0.0):
        caplog.clear()
        set_clock(server, seconds)
        with caplog.at_level(logging.WARNING):
            await fetch(holder, starts, more=2 * HITS)
        assert len([line for line in caplog.messages if line.startswith(names.CLOCK_SET)]) == 1
    assert max(map(most_in_a_window, starts.values())) <= HITS
    assert await frontier.maintain() == 0
    await other.heartbeat()
    await other.settle([Settlement(lease, Outcome.RETURNED) for lease in held])
    assert {other.session_name(lease.shard) for lease in held} == {lease.worker for lease in held}
    await other.close()


@pytest.mark.parametrize("away", [0.0, 86400.0])
async def test_a_clock_that_was_set_back_while_no_process_looked_stops_nothing(
    server: Server, frontier: ValkeyFrontier, holder: ValkeyLeaseholder, away: float
) -> None:
    """`away`: so long no process called the server."""
    starts: dict[str, list[float]] = {EVEN: [], TOGETHER: []}
    await fetch(holder, starts, more=4 * HITS)
    set_clock(server, away)
    for _ in range(3):  # with the first one it reads its clock; what has expired by then is gone
        server.command("EXISTS", frontier._commands.keys[0].key(KeyPattern.CLOCKS))
    set_clock(server, -7200.0)
    late = await ValkeyFrontier.connect(server.address)
    newcomer = await late.open_leaseholder(pool="shared", spiders=["link"])
    await fetch(newcomer, starts, more=HITS)
    await newcomer.close()
    await late.close()


async def test_a_process_that_stood_still_with_its_clock_does_not_set_the_time_back(
    frontier: ValkeyFrontier,
) -> None:
    shards, keys = frontier._commands.shards, [frontier._commands.keys[0].base]

    async def ask(process: str, expected: float | str, wanted: float | str = "") -> tuple[float, int, float]:
        time, corrections, corrected = await shards.call(
            0, SCRIPTS["clock"], keys, ["", "gossamer", process, expected, wanted, 0]
        )
        return float(time), corrections, float(corrected)

    now, *_ = await ask("paused", "")
    now, *_ = await ask("awake", now)
    assert (await ask("paused", now - 60_000, -60_000))[1:] == (0, 0.0)
    assert (await ask("awake", now, 5_000))[1:] == (1, 5_000.0)


async def test_processes_that_are_started_after_a_step_back_begin_the_next_run(
    server: Server, frontier: ValkeyFrontier
) -> None:
    crawl, url = Crawl(id=CrawlId("tests", "again")), "http://again.test/"
    worker = await frontier.open_leaseholder(pool="shared", spiders=["again"])

    async def finish_one(number: int) -> None:
        run = await frontier.open_crawl(crawl)
        assert run.number == number
        await frontier.add(run, Terms(), [Batch("again", "again.test", 1, 0, [url], [number])])
        async with asyncio.timeout(GOES_ON_SECONDS):
            while not (leases := await worker.lease(limit=10)):
                await worker.wait_for_work(timeout_seconds=0.1)
            await worker.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
            while (info := await frontier.crawl_info(crawl.id)) is None or info.state is CrawlState.RUNNING:
                await worker.wait_for_work(timeout_seconds=0.1)

    for number, step in enumerate((-7200.0, -14400.0, 0.0), start=1):
        await finish_one(number)
        set_clock(server, step)
        with pytest.raises(RunFinished):  # it was started before that run ended
            await frontier.open_crawl(crawl, process_age_seconds=60.0)
    await finish_one(4)
    await worker.close()


async def test_what_expires_does_so_by_the_servers_own_clock(server: Server, frontier: ValkeyFrontier) -> None:
    now = float(server.command("TIME")[0])
    for name, seconds in (("soon", 1800.0), ("later", 7200.0)):
        run = await frontier.open_crawl(Crawl(id=CrawlId("tests", name)))
        url = f"http://{name}.test/"
        batch = Batch("timed", f"{name}.test", 1, 0, [url], [fingerprint(url, seed=1)])
        await frontier.add(run, Terms(expires=now + seconds), [batch])
    set_clock(server, 3600.0)
    holder = await frontier.open_leaseholder(pool="shared", spiders=["timed"])
    leases: list[Lease] = []
    async with asyncio.timeout(GOES_ON_SECONDS):
        while not leases:
            leases = await holder.lease(limit=10)
            await holder.wait_for_work(timeout_seconds=0.1)
    assert [lease.domain for lease in leases] == ["later.test"]
    await holder.close()
