"""The historian on a real frontier, bus and database: it may be killed anywhere, and run several times."""

import asyncio
import contextlib
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.stats import Counters
from gossamer.errors import FrontierError, HistoryUnavailable
from gossamer.frontier.base import Submission
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.database import HistoryDatabase
from gossamer.history.store import HistoryStore
from gossamer.history.tables import ends
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.json_codec import decode, encode_value
from gossamer.model.messages.history import CrawlEnded, RequestFailed
from gossamer.model.request import Batch
from gossamer.policy.urls import fingerprint, spider_seed
from gossamer.services.crawl_sampler import CrawlSampler
from gossamer.services.domain_sampler import DomainSampler
from gossamer.services.historian import Historian
from gossamer.services.maintenance import Finisher
from gossamer.services.outbound import OutboundPublisher
from gossamer.services.service_sampler import ServiceSampler
from gossamer.sinks.history import HistoryTopic
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.valkey.shards import Shards
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.valkey import Server, standalone

_numbers = itertools.count()
PROGRAM = """
import asyncio, sys
from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.stats import Counters
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.store import HistoryStore
from gossamer.services.historian import Historian
from gossamer.telemetry.metrics import ServiceMetrics
from gossamer.valkey.shards import Shards

async def main(address, prefix, url):
    shards = await Shards.connect(address)
    frontier = await ValkeyFrontier.from_connection(shards, prefix=prefix)
    bus = StreamsBus(shards, prefix=prefix, claim_seconds=0.5)
    role = Historian(
        frontier, bus, Topics(), HistoryStore(url), ServiceMetrics(),
        counters=Counters(shards, prefix=prefix), owner=sys.argv[4], retention_seconds=1e6,
    )
    print("up", flush=True)
    while True:
        await role.run_once()

asyncio.run(main(*sys.argv[1:4]))
"""


@pytest.fixture(scope="session")
def one_database_server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("one_database_server")
        return server.new_database()
    return f"sqlite:///{tmp_path}/history.db"


@dataclass
class Cluster:
    """A frontier with its bus, a history, and a finisher that publishes the ends of crawls."""

    server: Server
    prefix: str
    frontier: ValkeyFrontier
    bus: StreamsBus
    finisher: Finisher
    url: str
    history: HistoryStore

    def historian(self, owner: str, *, history: HistoryStore | None = None) -> Historian:
        store = history or self.history
        counters = Counters(self.frontier.connection, prefix=self.prefix)
        return Historian(
            self.frontier,
            self.bus,
            Topics(),
            store,
            ServiceMetrics(),
            counters=counters,
            owner=owner,
            retention_seconds=1e6,
        )

    async def begin(self, *names: str) -> None:
        await begin(self.frontier, *names)

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.frontier.stop_crawl(CrawlId("shop", name))

    async def recorded_ends(self) -> list[tuple[str, str]]:
        """Token and kind of each end in the history."""
        database = HistoryDatabase(self.url)
        try:
            query = select(ends.c.token, ends.c.kind)
            return await database.read(lambda c: [(row.token, row.kind) for row in c.execute(query)])
        finally:
            await database.close()


@pytest.fixture
async def cluster(bus: StreamsBus, one_server: Server, blobs: BlobStore, url: str) -> AsyncIterator[Cluster]:
    prefix = f"h{next(_numbers)}"
    frontier = await ValkeyFrontier.from_connection(bus.shards, prefix=prefix)
    bus = StreamsBus(bus.shards, prefix=prefix, claim_seconds=0.5)
    troubles = Troubles()
    outbound = OutboundPublisher(bus, Topics(), blobs, troubles)
    topic = HistoryTopic(bus, Topics(), is_used=True)
    counters = Counters(bus.shards, prefix=prefix)
    finisher = Finisher(frontier, outbound, counters, ServiceMetrics(), troubles, history=topic, now=time.time)
    history = HistoryStore(url)
    yield Cluster(one_server, prefix, frontier, bus, finisher, url, history)
    await finisher.close()
    await outbound.close()
    await history.close()


async def begin(frontier: ValkeyFrontier, *names: str, appid: str = "shop") -> None:
    """Begin crawls of three requests each."""
    submissions = []
    for name in names:
        crawl = Crawl(id=CrawlId(appid, name), max_pages=50)
        urls = [f"http://a.test/{name}/{number}" for number in range(3)]
        fingerprints = [fingerprint(url, seed=spider_seed(frontier.secret, "link")) for url in urls]
        submissions.append(Submission(crawl, Terms(), [Batch("link", "a.test", 1, 0, urls, fingerprints)]))
    await frontier.submit(submissions)


def end_of(name: str, *, run: int = 1) -> CrawlEnded:
    return CrawlEnded(event_id=f"{name}-{run}"[:32], kind="finished", appid="shop", crawlid=name, run=run, at=1.0)


async def run_until(step: Callable[[], Awaitable[object]], done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(90):
        while not await done():
            await step()


async def state_of(history: HistoryStore, name: str) -> str:
    row = await history.crawl(CrawlId("shop", name))
    return row.state if row else ""


async def test_a_crawl_is_remembered_after_the_frontier_has_forgotten_it(cluster: Cluster) -> None:
    role = cluster.historian("a")
    await cluster.begin("one", "two")

    async def is_sampled() -> bool:
        return await state_of(cluster.history, "one") == await state_of(cluster.history, "two") == "running"

    await run_until(role.run_once, is_sampled)
    await cluster.stop("one")
    await cluster.finisher.run_once()

    async def is_ended() -> bool:
        return await state_of(cluster.history, "one") == "stopped"

    await run_until(role.run_once, is_ended)
    row = await cluster.history.crawl(CrawlId("shop", "one"))
    assert row is not None
    assert row.info.total().dropped == {"stopped": 3}
    [end] = await cluster.history.ends(CrawlId("shop", "one"))
    assert (end.kind, end.run, end.purged) == ("stopped", 1, 3)
    # A frontier without any of them, as after the loss of its data.
    cluster.frontier = await ValkeyFrontier.from_connection(cluster.bus.shards, prefix=f"{cluster.prefix}-new")
    again = cluster.historian("b")
    await role.close()

    async def is_lost() -> bool:
        return await state_of(cluster.history, "two") == "lost"

    await run_until(again.run_once, is_lost)
    rows, _ = await cluster.history.crawls(limit=9)
    assert sorted((row.info.crawl.crawlid, row.state) for row in rows) == [("one", "stopped"), ("two", "lost")]
    await again.close()


async def test_a_crawl_that_ended_before_any_sample_is_there_with_its_counts(cluster: Cluster) -> None:
    await cluster.begin("quick")
    await cluster.stop("quick")
    await cluster.finisher.run_once()
    role = cluster.historian("a")

    async def is_there() -> bool:
        return await state_of(cluster.history, "quick") == "stopped"

    await run_until(role.run_once, is_there)
    row = await cluster.history.crawl(CrawlId("shop", "quick"))
    assert row is not None
    assert (row.info.total().added, row.info.options and row.info.options.max_pages) == (3, 50)
    await role.close()


async def test_how_much_of_a_domains_limits_is_used_is_remembered_by_the_minute(cluster: Cluster) -> None:
    """Of domains that a policy names, and of those where most requests wait."""
    now = 6000.0
    sampler = DomainSampler(cluster.frontier, cluster.history, now=lambda: now, monotonic=lambda: now)
    await cluster.begin("one")  # three requests wait on a.test
    await cluster.frontier.set_domain_policy("named.test", DomainPolicy(hits=10, window_seconds=60), expected=None)
    await cluster.frontier.set_domain_policy("a.test", DomainPolicy(hits=2, window_seconds=1000), expected=None)
    worker = await cluster.frontier.open_leaseholder(pool="shared", spiders=["link"])
    await sampler.sample()
    await sampler.sample()  # not due
    assert len(await worker.lease(limit=1)) == 1
    now += 30
    await sampler.sample()
    assert await cluster.history.domain_use("a.test") == []
    now += 31
    await sampler.sample()
    [minute] = await cluster.history.domain_use("a.test")
    assert (minute.minute, minute.used, minute.most, minute.hits, minute.window) == (100, 0.5, 1, 2, 1000.0)
    [named] = await cluster.history.domain_use("named.test")
    assert (named.used, named.hits, named.window) == (0.0, 10, 60.0)
    await worker.close()


async def test_the_speed_of_the_whole_service_is_remembered_by_the_minute(cluster: Cluster) -> None:
    now = 6000.0
    counters = Counters(cluster.frontier.connection, prefix=cluster.prefix)
    sampler = ServiceSampler(cluster.frontier, counters, cluster.history, now=lambda: now, monotonic=lambda: now)
    await cluster.begin("one", "two")
    for pages in (10.0, 30.0):
        await counters.report_facts("host:1", {"name": "a", "pages_per_second": pages})
        await counters.report_facts("host:2", {"name": "b", "pages_per_second": 2.5})
        await counters.report_facts("host:3", {"pages_per_second": "of another form"})
        await sampler.sample()
        await sampler.sample()  # not due
        now += 30
    assert await cluster.history.service_rates(100) == []
    await sampler.sample()
    [minute] = await cluster.history.service_rates(100)
    waiting = sum(backlog.queued for backlog in await cluster.frontier.backlog())
    assert waiting > 0
    assert minute == (100, 22.5, waiting)


async def test_what_an_outage_interrupts_goes_on(url: str) -> None:
    """The first sweep takes over what ended before there was a history, also where the frontier is away at first."""
    history = HistoryStore(url)
    with standalone(options={"appendonly": "yes", "appendfsync": "always"}) as server:
        shards = await Shards.connect(server.address)
        frontier = await ValkeyFrontier.from_connection(shards)
        await begin(frontier, "early")
        await frontier.stop_crawl(CrawlId("shop", "early"))
        sampler = CrawlSampler(frontier, history, owner="a")
        server.kill()
        with pytest.raises(FrontierError):
            await sampler.sample()
        server.start()

        async def sample() -> None:
            with contextlib.suppress(FrontierError):  # until it has loaded its data
                await sampler.sample()

        async def is_there() -> bool:
            return await state_of(history, "early") == "stopped"

        await run_until(sample, is_there)
        await shards.close()
    await history.close()


async def test_what_the_database_refuses_is_set_aside_and_the_rest_goes_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be refused for ever: a message becomes a dead letter, and a crawl is left out."""
    # PostgreSQL's indexes take no application of this length; SQLite's do.
    long_one = "".join(random.Random(1).choices([chr(number) for number in range(0x4E00, 0x9FFF)], k=4000))
    await cluster.begin("before")
    await begin(cluster.frontier, "x", appid=long_one)
    await cluster.begin("after")
    good = [end_of(name) for name in ("a", "b", "c", "d", "e")]
    bad = [end_of("a", run=2**70), end_of("b", run=2**63)]
    values = [encode_value(message) for message in (*good[:2], bad[0], *good[2:], bad[1])]
    role = cluster.historian("a")
    await role.run_once()  # makes the topic
    await cluster.bus.publish(Topics().history, values)

    async def is_done() -> bool:
        states = [await state_of(cluster.history, name) for name in ("before", "after")]
        return len(await cluster.recorded_ends()) == len(good) and states == ["running"] * 2

    await run_until(role.run_once, is_done)
    reader = await cluster.bus.read([Topics().dead_letter], from_beginning=True)
    letters = [decode(message.value) for message in await reader.take(at_most=9, wait_seconds=5)]
    await reader.close()
    assert [letter["message"].encode() for letter in letters] == [encode_value(message) for message in bad]
    assert all(letter["topic"] == Topics().history and letter["reason"] for letter in letters)
    await role.run_once()
    again = await cluster.bus.consume([Topics().history], group=f"{Topics().prefix}-historian")
    assert await again.lag() == 0
    await again.close()
    refused = [record.message for record in caplog.records if record.message.startswith("history_refused the crawl")]
    assert len(refused) == (1 if cluster.url.startswith("postgresql") else 0)
    await role.close()


async def test_two_historians_count_once(cluster: Cluster) -> None:
    """Both take messages of one group, both sample, and both get messages again that the other has taken."""
    stores = [cluster.history, HistoryStore(cluster.url)]
    roles = [cluster.historian(name, history=store) for name, store in zip("ab", stores, strict=True)]
    names = [f"c{number}" for number in range(40)]
    failed = [
        RequestFailed(
            appid="shop", crawlid=name, spider="link", request_id=name, url=f"http://a.test/{name}", status=503,
            reason="http_503", error="", at=time.time(),
        )
        for name in names
    ]  # fmt: skip

    async def act() -> None:
        for first in range(0, len(names), 8):
            some = names[first : first + 8]
            await cluster.begin(*some)
            await cluster.stop(*some)
            await cluster.finisher.run_once()
            messages = [encode_value(message) for message in failed[first : first + 8]]
            await cluster.bus.publish(Topics().history, messages * 2)

    async def is_done() -> bool:
        found = [await state_of(cluster.history, name) for name in names]
        examples = [await cluster.history.failures(CrawlId("shop", name), since=0) for name in names]
        return set(found) == {"stopped"} and all(len(one.get("http_503", [])) == 1 for one in examples)

    acting = asyncio.create_task(act())
    await run_until(lambda: asyncio.gather(*(role.run_once() for role in roles)), is_done)
    await acting
    assert len(await cluster.recorded_ends()) == len(names)
    rows, _ = await cluster.history.crawls(limit=99)
    assert {row.info.crawl.crawlid: row.info.total().dropped for row in rows} == {
        name: {"stopped": 3} for name in names
    }
    for role in roles:
        await role.close()
    await stores[1].close()


async def test_a_historian_that_is_killed_anywhere_loses_no_end_and_tells_none_twice(cluster: Cluster) -> None:
    """Crawls begin and end all the time, while the process is killed at random moments and started again."""
    chance = random.Random(20)
    names = [f"c{number}" for number in range(160)]
    finished = asyncio.Event()

    async def act() -> None:
        for first in range(0, len(names), 4):
            await cluster.begin(*names[first : first + 4])
            await cluster.stop(*names[first : first + 4])
            await cluster.finisher.run_once()
            await asyncio.sleep(0.1)  # the pace of the crawls, which the kills fall between
        finished.set()

    def start(number: int) -> subprocess.Popen[bytes]:
        arguments = [cluster.server.address, cluster.prefix, cluster.url, f"p{number}"]
        return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE)

    acting = asyncio.create_task(act())
    kills = 0
    while not finished.is_set() or kills < 5:
        process = start(kills)
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"up\n"
        await asyncio.sleep(chance.uniform(0, 0.7))  # the moment of the kill
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kills += 1
    await acting
    role = cluster.historian("last")
    await role.run_once()  # makes the tables, if each process was killed before it did

    async def is_done() -> bool:
        return len(await cluster.recorded_ends()) >= len(names)

    await run_until(role.run_once, is_done)
    found = await cluster.recorded_ends()
    assert sorted(found) == sorted((CrawlId("shop", name).token, "stopped") for name in names)

    async def has_states() -> bool:
        try:
            rows, _ = await cluster.history.crawls(limit=999)
        except HistoryUnavailable:  # a slow disk has no answer in time
            return False
        return sorted(row.info.crawl.crawlid for row in rows if row.state == "stopped") == sorted(names)

    await run_until(role.run_once, has_states)
    rows, _ = await cluster.history.crawls(limit=999)
    assert all(row.info.total().dropped == {"stopped": 3} for row in rows)
    await role.close()
