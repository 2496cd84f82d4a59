"""Answers and events of an application whose topic fails: others do not wait for it, and nothing is forgotten."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control.admission import RequestValidator
from gossamer.control.dispatcher import RequestDispatcher, built_in_handlers
from gossamer.control.stats import Counters
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.messages.reader import MessageReader
from gossamer.model.request import Outcome, Settlement
from gossamer.services.intake import Intake
from gossamer.services.maintenance import Finisher
from gossamer.services.outbound import DeliveryLimits, OutboundPublisher
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import ServiceMetrics
from tests.servers import crawls
from tests.servers.schemas import check_outgoing

_numbers = itertools.count()


class Stage:
    """The services that publish answers and events; any application's topic of them can be broken."""

    def __init__(self, bus: StreamsBus, blobs: BlobStore, frontier: ValkeyFrontier) -> None:
        self.bus = bus
        self.topics = Topics()
        self.frontier = frontier
        self.troubles = Troubles()
        self._blobs = blobs
        self._counters = Counters(bus.shards, prefix=f"o{next(_numbers)}")
        self._open: list[Any] = []

    def publisher(self, **limits: float) -> OutboundPublisher:
        chosen = DeliveryLimits(**{"prompt_seconds": 0.05, "patience_seconds": 60.0, "pause_seconds": 60.0, **limits})  # type: ignore[arg-type]
        self._open.append(OutboundPublisher(self.bus, self.topics, self._blobs, self.troubles, limits=chosen))
        return self._open[-1]  # type: ignore[no-any-return]

    def intake(self, publisher: OutboundPublisher) -> Intake:
        handlers = built_in_handlers(self.frontier, self._counters, now=time.time)
        validator = RequestValidator(now=time.time)
        dispatcher = RequestDispatcher(self.frontier, MessageReader(), validator, handlers, now=time.time)
        self._open.append(
            Intake(
                self.bus, self.topics, dispatcher, publisher, self._counters, ServiceMetrics(), group="g", batch_size=10
            )
        )
        return self._open[-1]  # type: ignore[no-any-return]

    def finisher(self, publisher: OutboundPublisher) -> Finisher:
        parts = (self.frontier, publisher, self._counters, ServiceMetrics(), self.troubles)
        self._open.append(Finisher(*parts, now=time.time))
        return self._open[-1]  # type: ignore[no-any-return]

    def _key(self, appid: str) -> str:
        return f"{{{self.bus.prefix}:bus:{self.topics.outbound_to(appid)}}}"

    async def break_topic(self, appid: str) -> None:
        await self.bus.shards.command(self._key(appid), "SET", self._key(appid), "no stream")

    async def mend_topic(self, appid: str) -> None:
        await self.bus.shards.command(self._key(appid), "DEL", self._key(appid))

    async def read(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic."""
        reader = await self.bus.read([topic], from_beginning=True)
        messages = await reader.take(at_most=1000, wait_seconds=0.01)
        await reader.close()
        found = [msgspec.json.decode(message.value) for message in messages]
        for message in found:
            check_outgoing(message)
        return found

    async def sent_to(self, appid: str) -> list[dict[str, Any]]:
        return await self.read(self.topics.outbound_to(appid))

    async def unread(self) -> int:
        """Requests that were not acknowledged."""
        key = f"{{{self.bus.prefix}:bus:{self.topics.incoming}}}"
        return int(await self.bus.shards.command(key, "XLEN", key))

    async def close(self) -> None:
        for part in reversed(self._open):
            await part.close()


@pytest.fixture
async def stage(bus: StreamsBus, blobs: BlobStore) -> AsyncIterator[Stage]:
    stage = Stage(bus, blobs, await ValkeyFrontier.from_connection(bus.shards, prefix=f"of{next(_numbers)}"))
    yield stage
    await stage.close()


def asked(appid: str, uuid: str = "u") -> bytes:
    return msgspec.json.encode({"uuid": uuid, "appid": appid, "stats": "rest"})


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - deliveries go on by themselves
            await asyncio.sleep(0.01)


async def test_requests_of_others_are_answered_and_those_of_the_application_kept_until_it_is(stage: Stage) -> None:
    intake = stage.intake(stage.publisher())
    await stage.break_topic("bad")
    for turn in range(3):
        await stage.bus.publish(stage.topics.incoming, [asked("bad", f"b{turn}"), asked("good", f"g{turn}")])
        await intake.run_once()
        assert [answer["uuid"] for answer in await stage.sent_to("good")] == [f"g{n}" for n in range(turn + 1)]
    assert await stage.unread() >= 3
    assert list(stage.troubles.current) == ["app_answers"]
    await stage.mend_topic("bad")

    async def all_acknowledged() -> bool:
        await intake.run_once()
        return await stage.unread() == 0

    await until(all_acknowledged)
    assert {answer["uuid"] for answer in await stage.sent_to("bad")} == {"b0", "b1", "b2"}
    assert await stage.read(stage.topics.dead_letter) == []
    assert not stage.troubles.current


@pytest.mark.parametrize("limits", [{"patience_seconds": 0.1}, {"waiting_messages": 1}], ids=["time", "number"])
async def test_what_waits_too_long_or_is_too_much_becomes_dead_letters(stage: Stage, limits: dict[str, float]) -> None:
    """With the message, its topic and the reason. The requests are acknowledged then, and not answered again."""
    intake = stage.intake(stage.publisher(**limits))
    await stage.break_topic("bad")
    await stage.bus.publish(stage.topics.incoming, [asked("bad", "first"), asked("good")])
    await intake.run_once()
    await stage.bus.publish(stage.topics.incoming, [asked("bad", "later")])
    await intake.run_once()

    async def buried() -> bool:
        return "later" in {msgspec.json.decode(one["message"])["uuid"] for one in await letters()}

    async def letters() -> list[dict[str, Any]]:
        return await stage.read(stage.topics.dead_letter)

    await until(buried)
    assert {letter["topic"] for letter in await letters()} == {stage.topics.outbound_to("bad")}
    assert all(letter["reason"] for letter in await letters())
    if "patience_seconds" in limits:

        async def all_acknowledged() -> bool:
            await intake.run_once()
            return await stage.unread() == 0

        await until(all_acknowledged)
        before = len(await letters())
        # The topic is known to be away: its messages do not wait again.
        await stage.bus.publish(stage.topics.incoming, [asked("bad", "next")])
        await until(all_acknowledged)
        assert len(await letters()) == before + 1


async def test_the_end_of_a_crawl_has_the_numbers_of_fetched_and_refused_pages(stage: Stage) -> None:
    finisher = stage.finisher(stage.publisher())
    crawl = CrawlId("good", "refused")
    seeds = [f"https://{name}.test/" for name in "abcd"]
    await crawls.open_crawl(stage.frontier, seeds, Terms(), crawl=Crawl(id=crawl))
    holder = await stage.frontier.open_leaseholder(pool="shared", spiders=["link"])
    ends = {"a.test": "", "b.test": "refused_captcha", "c.test": "refused_denied", "d.test": "http_404"}

    async def all_settled() -> bool:
        leases = await holder.lease(limit=10)
        reasons = [ends.pop(lease.domain) for lease in leases]
        outcomes = [Outcome.FAILED if reason else Outcome.FETCHED for reason in reasons]
        await holder.settle([Settlement(*each) for each in zip(leases, outcomes, reasons, strict=True)])
        return not ends

    await until(all_settled)

    async def told() -> bool:
        await finisher.run_once()
        return bool(await stage.sent_to("good"))

    await until(told)
    [event] = [event for event in await stage.sent_to("good") if not event["spiderid"]]
    assert (event["action"], event["fetched"], event["refused"]) == ("finished", 1, 2)


async def test_events_of_others_are_published_and_those_of_the_application_stay(stage: Stage) -> None:
    """However many it has, more than one step of the service takes."""
    finisher = stage.finisher(stage.publisher())
    await stage.break_topic("bad")
    many = [CrawlId("bad", f"c{number}") for number in range(120)]
    good = CrawlId("good", "c")

    async def end(crawl: CrawlId) -> None:
        await crawls.open_crawl(stage.frontier, ["https://a.test/"], Terms(), crawl=Crawl(id=crawl))
        await stage.frontier.stop_crawl(crawl)

    for crawl in many:
        await end(crawl)
    await finisher.run_once()
    await end(good)

    async def told() -> bool:
        await finisher.run_once()
        return bool(await stage.sent_to("good"))

    await until(told)
    assert {event.crawl.appid for event in await stage.frontier.pending_events(limit=1000)} == {"bad"}
    await stage.mend_topic("bad")

    async def all_told() -> bool:
        await finisher.run_once()
        return not await stage.frontier.pending_events(limit=1000)

    await until(all_told)
    sent = [event["event_id"] for event in await stage.sent_to("bad")]
    assert len(sent) == len(set(sent)) == len(many)


async def test_a_message_that_no_limit_of_its_topic_takes_is_a_dead_letter_and_holds_up_nothing(
    bus: StreamsBus, blobs: BlobStore
) -> None:
    """Its fields are short, but many."""
    topics, publisher = Topics(), OutboundPublisher(bus, Topics(), blobs, Troubles(), firehose=False)
    large = {"appid": "bad", "uuid": "u", **{f"field{number}": "x" * 900 for number in range(200)}}
    assert await publisher.send([large, {"appid": "good", "uuid": "u"}]) == {}
    found = {}
    for topic in (topics.outbound_to("good"), topics.outbound_to("bad"), topics.dead_letter):
        reader = await bus.read([topic], from_beginning=True)
        found[topic] = [msgspec.json.decode(m.value) for m in await reader.take(at_most=9, wait_seconds=0.01)]
        await reader.close()
    assert [len(messages) for messages in found.values()] == [1, 0, 1]
    [letter] = found[topics.dead_letter]
    assert letter["whole_address"]
    assert "larger even when shortened" in letter["reason"]
    await publisher.close()
