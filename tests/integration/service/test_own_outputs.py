"""Pages whose application's topic fails: what waits is bounded, nothing is lost, and other applications go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.commit.committer import CommitLimits, Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.own_outputs import OwnOutputLimits
from gossamer.commit.retrier import Retrier
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, DomainPolicy, Terms
from gossamer.model.record import Output
from gossamer.model.request import Batch, Outcome, Settlement
from gossamer.sinks.bus import BusSink
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.shards import Shards
from gossamer.worker.records import bare_record
from tests.servers import crawls
from tests.servers.valkey import standalone

_numbers = count()
BAD, GOOD = CrawlId("bad", "c"), CrawlId("good", "c")
SIZE = 1000


class Stage:
    """A committer on a bus of which one topic can be broken, and finished pages for it."""

    def __init__(self, frontier: ValkeyFrontier, bus: StreamsBus, blobs: BlobStore, holder: ValkeyLeaseholder) -> None:
        self.frontier = frontier
        self.bus = bus
        self.troubles = Troubles()
        self.settled: list[FinishedLease] = []
        self.progress = asyncio.Event()
        self._blobs = blobs
        self._holder = holder
        self._committer: Committer | None = None

    def committer(self, *, firehose: bool = True, **limits: float) -> Committer:
        """The committer, with these limits of what waits."""
        sink = BusSink(self.bus, Topics(), self._blobs, firehose=firehose)
        own = OwnOutputLimits(**{"prompt_seconds": 0.05, "patience_seconds": 60.0, "pause_seconds": 0.2, **limits})  # type: ignore[arg-type]
        committer = Committer(
            self.frontier, self._holder, sink, Retrier(self.troubles), CommitLimits(batch_pages=4, own_outputs=own)
        )
        committer.on_committed = self._committed
        return committer

    def _committed(self, pages: object) -> None:
        self.settled += pages  # type: ignore[operator]
        self.progress.set()

    async def until_settled(self, outcome: Outcome, appid: str, number: int) -> None:
        """Wait for so many pages with this outcome."""
        async with asyncio.timeout(60):
            while self.count(outcome, appid) < number:
                self.progress.clear()
                await self.progress.wait()

    def count(self, outcome: Outcome, appid: str) -> int:
        """How many pages of an application were settled so."""
        return sum(
            page.settlement.outcome is outcome and page.settlement.lease.run.crawl.id.appid == appid
            for page in self.settled
        )

    async def begin(self, crawl: CrawlId, pages: int) -> None:
        """A crawl of so many domains."""
        seeds = [f"https://{crawl.appid}{number}.test/" for number in range(pages)]
        await crawls.open_crawl(self.frontier, seeds, Terms(), crawl=Crawl(id=crawl))

    async def finished(self, number: int) -> list[FinishedLease]:
        """So many pages that were fetched, with a link each."""
        found: list[FinishedLease] = []
        async with asyncio.timeout(60):
            while len(found) < number:
                for lease in await self._holder.lease(limit=number - len(found)):
                    output = Output(record=bare_record(lease, now=0.0, reason="", exception=""))
                    link = Batch("link", lease.domain, 0, 1, urls=[f"{lease.url}linked"], fingerprints=[next(_numbers)])
                    found.append(FinishedLease(Settlement(lease, Outcome.FETCHED), [output], [link], size=SIZE))
        return found

    async def break_topic(self, name: str = "demo.crawled_bad") -> None:
        """Have another kind of value in place of the topic: nothing can be appended."""
        key = f"{{{self.bus.prefix}:bus:{name}}}"
        await self.bus.shards.command(key, "SET", key, "no stream")

    async def mend_topic(self, name: str = "demo.crawled_bad") -> None:
        key = f"{{{self.bus.prefix}:bus:{name}}}"
        await self.bus.shards.command(key, "DEL", key)

    async def published(self, appid: str) -> int:
        """How many messages the topic of an application has."""
        topics = {topic.name: topic.messages for topic in await self.bus.topics()}
        return topics.get(Topics().crawled_by(appid), 0)


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - times of the room are what is waited for
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(committer: Committer) -> AsyncIterator[None]:
    task = asyncio.create_task(committer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def stage(blobs: BlobStore) -> AsyncIterator[Stage]:
    with standalone() as server:
        shards = await Shards.connect(server.address, call_seconds=5)
        frontier = await ValkeyFrontier.from_connection(shards, prefix="f")
        await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        stage = Stage(frontier, StreamsBus(shards, prefix="b"), blobs, holder)
        stage.server = server  # type: ignore[attr-defined]
        yield stage
        await holder.close()
        await shards.close()


@pytest.mark.parametrize("firehose", [True, False])
async def test_pages_of_others_are_settled_and_those_that_wait_are_when_their_topic_is_back(
    stage: Stage, firehose: bool
) -> None:
    """Far more than the batches and the queue of the committer would hold. Their links are added then, not before."""
    await stage.begin(BAD, 8)
    await stage.begin(GOOD, 40)
    pages = await stage.finished(48)
    await stage.break_topic()
    committer = stage.committer(firehose=firehose)
    async with running(committer):
        for page in pages:
            await committer.put(page)
        await stage.until_settled(Outcome.FETCHED, "good", 40)
        assert stage.count(Outcome.FETCHED, "bad") == 0
        assert committer.pending == 8
        assert (await crawls.info(stage.frontier, BAD)).total().added == 8
        assert list(stage.troubles.current) == ["app_output"]
        await stage.mend_topic()
        await stage.until_settled(Outcome.FETCHED, "bad", 8)
        await committer.wait_until_drained()
    assert (await stage.published("good"), await stage.published("bad")) == (40, 8)
    assert (await crawls.info(stage.frontier, BAD)).total().added == 16
    assert not stage.troubles.current


@pytest.mark.parametrize("limits", [{"patience_seconds": 0.1}, {"waiting_bytes": 4.0 * SIZE}], ids=["time", "memory"])
async def test_pages_that_waited_in_vain_go_back_and_are_fetched_again(stage: Stage, limits: dict[str, float]) -> None:
    """After some time, or beyond a share of the memory."""
    await stage.begin(BAD, 8)
    pages = await stage.finished(8)
    await stage.break_topic()
    committer = stage.committer(**limits)
    async with running(committer):
        for page in pages:
            await committer.put(page)
        await stage.until_settled(Outcome.POSTPONED, "bad", 4)
        assert stage.count(Outcome.FETCHED, "bad") == 0
        await stage.mend_topic()
        for page in await stage.finished(stage.count(Outcome.POSTPONED, "bad")):
            await committer.put(page)
        await stage.until_settled(Outcome.FETCHED, "bad", 8)
    total = (await crawls.info(stage.frontier, BAD)).total()
    assert (total.fetched, total.added, await stage.published("bad")) == (8, 16, 8)
    assert total.retried == {"output_away": stage.count(Outcome.POSTPONED, "bad")}


async def test_requests_are_held_while_pages_wait_and_one_is_tried_after_a_pause(stage: Stage) -> None:
    await stage.begin(BAD, 3)
    pages = await stage.finished(3)
    await stage.break_topic()
    committer = stage.committer(patience_seconds=0.2, pause_seconds=0.3)
    own = committer.own_outputs
    assert own is not None
    assert not own.is_any_late
    async with running(committer):
        await committer.put(pages[0])
        await until(lambda: own.hold_seconds("bad"))
        assert own.hold_seconds("good") == 0
        await stage.until_settled(Outcome.POSTPONED, "bad", 1)
        await until(lambda: not own.hold_seconds("bad"))
        assert own.hold_seconds("bad") > 0, "a second trial at once"
        await committer.put(pages[1])
        await stage.until_settled(Outcome.POSTPONED, "bad", 2)
        await stage.mend_topic()
        await until(lambda: not own.hold_seconds("bad"))
        await committer.put(pages[2])
        await stage.until_settled(Outcome.FETCHED, "bad", 1)
        assert own.hold_seconds("bad") == 0


async def test_an_outage_of_a_topic_that_nothing_confirms_is_forgotten(stage: Stage) -> None:
    """Its application may have nothing more to publish; else its health would be bad for ever."""
    await stage.begin(BAD, 1)
    await stage.break_topic()
    committer = stage.committer(patience_seconds=0.1, pause_seconds=0.1)
    async with running(committer):
        for page in await stage.finished(1):
            await committer.put(page)
        await stage.until_settled(Outcome.POSTPONED, "bad", 1)
        assert stage.troubles.current
        await until(lambda: not stage.troubles.current)


@pytest.mark.parametrize("firehose", [True, False])
async def test_an_outage_of_the_whole_bus_is_no_applications_and_no_page_goes_back(
    stage: Stage, firehose: bool
) -> None:
    await stage.begin(GOOD, 8)
    pages = await stage.finished(8)
    committer = stage.committer(firehose=firehose, patience_seconds=0.1)
    async with running(committer):
        stage.server.kill()  # type: ignore[attr-defined]
        for page in pages:
            await committer.put(page)
        await until(lambda: "output" in stage.troubles.current)
        assert "app_output" not in stage.troubles.current
        assert not stage.settled
