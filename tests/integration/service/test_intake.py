"""What becomes of requests on the bus: a step of the intake at a time, on a real server."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.control import dispatcher as crawls
from gossamer.control.admission import RequestValidator
from gossamer.control.dispatcher import RequestDispatcher, built_in_handlers
from gossamer.control.stats import Counters
from gossamer.control.stops import KeptCrawls
from gossamer.errors import BusUnavailable, FrontierUnavailable, IndexUnavailable, RequestRejected
from gossamer.fetch.request import OWNED
from gossamer.fresh.rounds import KeptCrawl
from gossamer.fresh.store import IndexStore, kept_crawl
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.audit import HistoryAudit
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import (
    BudgetScope,
    Crawl,
    CrawlId,
    CrawlState,
    DomainPolicy,
    RevisitOptions,
    Terms,
    WhenBlacklisted,
)
from gossamer.model.messages.reader import MessageReader, RequestKind
from gossamer.model.request import Outcome, Settlement
from gossamer.services import intake as room
from gossamer.services.bus_audit import BusAudit
from gossamer.services.intake import Intake
from gossamer.services.outbound import OutboundPublisher
from gossamer.sinks.remote import BlobStore, read_blob
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.metrics import ServiceMetrics
from tests.servers.schemas import check_outgoing

_numbers = count()

GREETING = {
    "type": "object",
    "additionalProperties": False,
    "required": ["uuid", "appid", "greet"],
    "properties": {"uuid": {"type": "string"}, "appid": {"type": "string"}, "greet": {"type": "string"}},
}


class Greeter:
    """A plug-in: answers, fails, refuses or hangs, as it is asked."""

    async def handle(self, request: dict[str, Any], *, format_1_0: bool) -> list[dict[str, Any]]:
        match request["greet"]:
            case "fail":
                raise ZeroDivisionError("of its own")
            case "refuse":
                raise RequestRejected("not today", field="greet")
            case "hang":
                await asyncio.Event().wait()
        return [{"appid": request["appid"], "uuid": request["uuid"], "greeting": f"Hello {request['greet']}"}]


class Stage:
    """An intake and all around it; `lose` makes the frontier's next calls fail."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        bus: StreamsBus,
        blobs: BlobStore,
        *,
        default_policy: bool = False,
        kept: KeptCrawls | None = None,
    ) -> None:
        self.frontier = frontier
        self.bus = bus
        self.topics = Topics()
        counters = Counters(bus.shards, prefix=f"c{next(_numbers)}")
        kinds = [RequestKind("greeting", GREETING, 50, lambda given: given)]
        handlers = {
            **built_in_handlers(frontier, counters, now=time.time, allow_default_policy=default_policy, kept=kept),
            "greeting": Greeter(),
        }
        self.metrics = ServiceMetrics()
        self.now: float | None = None
        """Epoch seconds, where it is not the time it is."""
        door = RequestValidator(now=self._clock)
        desk = RequestDispatcher(frontier, MessageReader(kinds), door, handlers, now=self._clock)
        self.intake = Intake(
            bus,
            self.topics,
            desk,
            OutboundPublisher(bus, self.topics, blobs, Troubles()),
            counters,
            self.metrics,
            group="g",
            batch_size=100,
        )

    def _clock(self) -> float:
        return time.time() if self.now is None else self.now

    async def take(self, *requests: dict[str, Any] | bytes, topic: str | None = None) -> None:
        """Publish them and let the intake do one step."""
        values = [r if isinstance(r, bytes) else msgspec.json.encode(r) for r in requests]
        await self.bus.publish(topic or self.topics.incoming, values)
        await self.intake.run_once()

    async def said(self, topic: str | None = None) -> list[dict[str, Any]]:
        reader = await self.bus.read([topic or self.topics.outbound], from_beginning=True)
        messages = await reader.take(at_most=1000, wait_seconds=0.05)
        await reader.close()
        return [msgspec.json.decode(message.value) for message in messages]

    async def waiting(self) -> int:
        return {t.name: t.messages for t in await self.bus.topics()}[self.topics.incoming]


@pytest.fixture
async def stage(bus: StreamsBus, blobs: BlobStore) -> AsyncIterator[Stage]:
    frontier = await ValkeyFrontier.from_connection(bus.shards, prefix=f"f{next(_numbers)}")
    stage = Stage(frontier, bus, blobs)
    yield stage
    await stage.intake.close()


def a_crawl(crawlid: str = "c", path: str = "", **fields: Any) -> dict[str, Any]:
    return {"appid": "app", "crawlid": crawlid, "url": f"https://a.test/{path}", **fields}


def a_stop(crawlid: str = "c") -> dict[str, Any]:
    return {"uuid": f"stop-{crawlid}", "appid": "app", "spiderid": "link", "action": "stop", "crawlid": crawlid}


async def test_an_answer_reaches_its_new_applications_topic_beside_a_rejection(stage: Stage) -> None:
    """Rejections alone make no topic; they must not take an answer of the same batch with them."""
    topic = stage.topics.outbound_to("app")
    await stage.take(a_crawl(maxdepth=-1))
    assert topic not in {one.name for one in await stage.bus.topics()}
    await stage.take(a_crawl(maxdepth=-1), a_crawl("begun"), a_stop("begun"))
    assert sorted(m["action"] for m in await stage.said(topic) if "action" in m) == ["rejected", "stop"]


class _AwayOnce:
    """Indexes whose database is away at the first stop."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self.stops = 0

    def end_visits(self, crawl: CrawlId, *, spider: str | None = None) -> bool:
        self.stops += 1
        if self.stops == 1:
            raise IndexUnavailable("away")
        return self._store.end_visits(crawl, spider=spider)


async def test_a_stop_waits_for_the_database_of_the_page_indexes(
    bus: StreamsBus, blobs: BlobStore, tmp_path: Path
) -> None:
    frontier = await ValkeyFrontier.from_connection(bus.shards, prefix=f"f{next(_numbers)}")
    store = IndexStore(str(tmp_path))
    crawl = Crawl(id=CrawlId("app", "c"))
    store.keep([KeptCrawl(crawl=crawl, spider="link", priority=1, terms=Terms(recrawl=RevisitOptions()))])
    stage = Stage(frontier, bus, blobs, kept=_AwayOnce(store))
    with pytest.raises(IndexUnavailable):
        await stage.take(a_stop())
    await stage.intake.run_once()
    assert [message["action"] for message in await stage.said()] == ["stop"]
    index = store.find(crawl.id)
    assert kept_crawl(index) is None
    index.close()
    store.close()
    await stage.intake.close()


async def test_a_bad_request_is_answered_and_kept_and_holds_up_nobody(stage: Stage) -> None:
    await stage.take(
        a_crawl(path="1"), a_crawl("bad", maxdepth=-1), b"{", b"\xff\xfe", b'"text"', a_crawl(path="2"),
        b'{"attrs": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    )  # fmt: skip
    info = await stage.frontier.crawl_info(CrawlId("app", "c"))
    assert info is not None
    assert info.total().added == 2
    refusals = await stage.said()
    assert [m["action"] for m in refusals] == ["rejected"] * 5
    assert (refusals[0]["field"], refusals[0]["crawlid"]) == ("maxdepth", "bad")
    letters = await stage.said(stage.topics.dead_letter)
    assert [letter["message_encoding"] for letter in letters] == ["text", "text", "base64", "text", "text"]
    assert await stage.waiting() == 0


@pytest.mark.parametrize("name", ["http://shop.test", "//shop.test", "shop.test:80", "shop.test/", "me@shop.test"])
@pytest.mark.parametrize("field", ["allowed_domains", "headers_for"])
async def test_what_is_no_domain_is_refused_and_not_compared_with_hosts_in_vain(
    stage: Stage, field: str, name: str
) -> None:
    await stage.take(a_crawl(**{field: ["fine.test", name]}, cookie="a=1"))
    [refused] = await stage.said()
    assert (refused["action"], refused["field"].partition(".")[0]) == ("rejected", field)
    assert "write it as example.com, without scheme, port or path" in refused["reason"]
    assert await stage.frontier.crawl_info(CrawlId("app", "c")) is None


async def test_a_refused_request_makes_no_topic(stage: Stage) -> None:
    """An application that has one, or listens to it, is told there, too."""
    known, listening = stage.topics.outbound_to("known"), stage.topics.outbound_to("listening")
    await stage.take({"uuid": "u", "appid": "known", "stats": "rest"})
    reader = await stage.bus.read([listening], from_beginning=True)
    await stage.take(*(a_crawl(appid=app, maxdepth=-1) for app in ("known", "listening", "unknown", "\u2028 any")))
    assert [m["action"] for m in await stage.said() if "action" in m] == ["rejected"] * 4
    for topic in (known, listening):
        assert [m["action"] for m in await stage.said(topic) if "action" in m] == ["rejected"]
    topics = {topic.name for topic in await stage.bus.topics()}
    assert topics == {
        known, listening, stage.topics.outbound, stage.topics.dead_letter, *stage.topics.requests,
    }  # fmt: skip
    await reader.close()


async def test_what_is_asked_before_a_stop_is_stopped_and_what_comes_after_is_refused(stage: Stage) -> None:
    await stage.take(a_crawl(path="1"), a_crawl(path="2"), a_stop(), a_crawl(path="3"))
    refused, stopped = await stage.said()
    assert (stopped["action"], stopped["total_purged"]) == ("stop", 2)
    assert refused["action"] == "rejected"
    assert "stopped" in refused["reason"]


async def test_a_url_that_was_seen_is_answered(stage: Stage) -> None:
    await stage.take(a_crawl(path="1"), a_crawl(path="1"), a_crawl(path="2"))
    [answer] = await stage.said()
    assert (answer["action"], answer["url"]) == ("duplicate", "https://a.test/1")
    assert (answer["field"], "seen this URL already" in answer["reason"]) == ("url", True)


@pytest.mark.parametrize(("order", "duplicates"), [("significant", 0), ("ignored", 1)])
async def test_the_order_of_a_query_makes_another_url_unless_it_is_ignored(
    stage: Stage, order: str, duplicates: int
) -> None:
    await stage.take(*(a_crawl(path=f"?{query}", query_order=order) for query in ("a=1&b=2", "b=2&a=1", "b=2&a=2")))
    assert [answer["action"] for answer in await stage.said()] == ["duplicate"] * duplicates
    info = await stage.frontier.crawl_info(CrawlId("app", "c"))
    assert info is not None
    assert info.total().added == 3 - duplicates


async def test_the_metric_has_only_the_documented_results(stage: Stage) -> None:
    await stage.frontier.set_domain_policy("a.test", DomainPolicy(blacklisted=True), expected=DomainPolicy())
    await stage.take(a_crawl(), a_crawl(), a_crawl(maxdepth=-1), a_crawl(path="late", expires=int(time.time()) + 50))
    assert sorted(message["action"] for message in await stage.said()) == [
        "blacklisted", "blacklisted", "duplicate", "rejected"
    ]  # fmt: skip
    text = stage.metrics.render().decode()
    assert 'gossamer_requests_total{kind="crawl",result="accepted"} 2.0' in text
    assert 'gossamer_requests_total{kind="crawl",result="duplicate"} 1.0' in text
    assert 'result="blacklisted"' not in text


async def test_an_outage_of_the_counters_repeats_no_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(self: Counters, group: str, counts: object) -> None:
        raise FrontierUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(Counters, "add", unavailable)
        with pytest.raises(FrontierUnavailable):
            await stage.take(a_crawl(), a_crawl(maxdepth=-1))
    await stage.intake.run_once()
    assert [message["action"] for message in await stage.said()] == ["rejected"]
    assert 'kind="crawl",result="accepted"} 1.0' in stage.metrics.render().decode()


@pytest.mark.parametrize("allowed", [False, True])
async def test_the_policy_of_every_domain_is_changed_only_where_the_operator_allows_that(
    stage: Stage, blobs: BlobStore, allowed: bool
) -> None:
    asked = Stage(stage.frontier, stage.bus, blobs, default_policy=allowed)
    everybody = {"uuid": "d", "appid": "app", "domain": "*"}
    await asked.take(
        {**everybody, "action": "domain-update", "hits": 3, "window": 60}, {**everybody, "action": "blacklist-update"}
    )
    update, blacklist = await asked.said()
    default, policies = await stage.frontier.domain_policies()
    assert ("error" in update, default.hits) == ((False, 3) if allowed else (True, None))
    assert "error" in blacklist
    assert policies == {}
    if allowed:
        await asked.take({**everybody, "action": "domain-remove"})
        assert await stage.frontier.domain_policy(None) == DomainPolicy()
    await asked.intake.close()


async def test_a_domain_request_changes_only_the_fields_that_it_can_name(stage: Stage) -> None:
    """The rest was set by REST, a command or a file, for reasons of the operator's."""
    others = DomainPolicy(
        scope=BudgetScope.IP, moderated=False, elastic=True, concurrency=3, when_blacklisted=WhenBlacklisted.DROPPED
    )
    unset = {field for field in others.__struct_fields__ if getattr(others, field) is None}
    assert unset == {"hits", "window_seconds", "scale", "blacklisted"}, "a new field: set it here, too"
    about = {"uuid": "d", "appid": "app", "domain": "a.test"}
    await stage.frontier.set_domain_policy("a.test", msgspec.structs.replace(others, hits=9, scale=0.2))
    requests: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"action": "domain-update", "hits": 3, "window": 60}, {"hits": 3, "window_seconds": 60.0, "scale": 1.0}),
        ({"action": "blacklist-update"}, {"hits": 3, "window_seconds": 60.0, "scale": 1.0, "blacklisted": True}),
        ({"action": "domain-remove"}, {"blacklisted": True}),
        ({"action": "blacklist-remove"}, {}),
    ]
    for request, expected in requests:
        await stage.take({**about, **request})
        assert await stage.frontier.domain_policy("a.test") == msgspec.structs.replace(others, **expected), request
    assert not [answer for answer in await stage.said() if "error" in answer]


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"hits": 3}, {"hits": 3, "window_seconds": 9.0, "scale": 0.5}),
        ({"window": 60}, {"hits": 7, "window_seconds": 60.0, "scale": 0.5}),
        ({"scale": 0}, {"hits": 7, "window_seconds": 9.0, "scale": 0.0}),
        ({"hits": 3, "scale": 1}, {"hits": 3, "window_seconds": 9.0, "scale": 1.0}),
        ({"hits": 3, "window": 60}, {"hits": 3, "window_seconds": 60.0, "scale": 1.0}),
        ({"hits": 3, "window": 60, "scale": 0.2}, {"hits": 3, "window_seconds": 60.0, "scale": 0.2}),
    ],
)
async def test_a_domain_update_of_some_fields_keeps_the_others(
    stage: Stage, update: dict[str, Any], expected: dict[str, Any]
) -> None:
    """As REST does. With hits and window it sets a whole limit, as in Scrapy Cluster: the scale is 1 unless given."""
    await stage.frontier.set_domain_policy("a.test", DomainPolicy(hits=7, window_seconds=9.0, scale=0.5))
    await stage.take({"uuid": "d", "appid": "app", "domain": "a.test", "action": "domain-update", **update})
    assert not [answer for answer in await stage.said() if "error" in answer]
    assert await stage.frontier.domain_policy("a.test") == DomainPolicy(**expected)


async def test_requests_that_another_service_has_taken_are_no_duplicates_of_themselves(
    stage: Stage, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died, or left, between adding them and acknowledging them. What comes twice is still a duplicate."""
    assert await stage.intake.run_once()
    consumer = stage.intake._consumer
    assert consumer is not None

    async def dies(messages: Any) -> None:
        raise BusUnavailable("the process is gone")

    monkeypatch.setattr(consumer, "acknowledge", dies)
    with pytest.raises(BusUnavailable):
        await stage.take(a_crawl(path="1"), a_crawl(path="2"))
    await stage.intake.close()
    heir = Stage(stage.frontier, stage.bus, blobs)
    await heir.take(a_crawl(path="3"), a_crawl(path="1"))
    while await heir.waiting():
        await heir.intake.run_once()
    answers = await heir.said()
    assert [(answer["action"], answer["url"]) for answer in answers] == [("duplicate", "https://a.test/1")]
    info = await stage.frontier.crawl_info(CrawlId("app", "c"))
    assert info is not None
    assert info.total().added == 3
    await heir.intake.close()


async def test_a_request_that_expires_while_it_waits_on_the_bus_is_answered_as_expired(stage: Stage) -> None:
    """One that had expired before it was sent is refused."""
    values = [a_crawl(expires=1000), a_crawl(path="late", expires=int(time.time()) + 50), a_crawl(path="1")]
    await stage.bus.publish(stage.topics.incoming, [msgspec.json.encode(value) for value in values])
    stage.now = time.time() + 100
    await stage.intake.run_once()
    refused, expired = await stage.said()
    assert (refused["action"], refused["field"]) == ("rejected", "expires")
    assert (expired["action"], expired["run"], expired["total_expired"]) == ("expired", 0, 1)
    assert (expired["crawlid"], expired["spiderid"], expired["url"]) == ("c", "link", "https://a.test/late")
    check_outgoing(expired)
    assert len(await stage.said(stage.topics.dead_letter)) == 1
    info = await stage.frontier.crawl_info(CrawlId("app", "c"))
    assert info is not None
    assert info.total().added == 1


async def test_a_request_that_expires_between_two_attempts_is_answered_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer goes out, its confirmation is lost: the repeat has the same event id."""
    real = stage.bus.publish

    async def lost(topic: str, values: Any, **named: Any) -> None:
        await real(topic, values, **named)
        if topic == stage.topics.outbound:
            monkeypatch.setattr(stage.bus, "publish", real)
            raise BusUnavailable("the answer was lost")

    await stage.bus.publish(stage.topics.incoming, [msgspec.json.encode(a_crawl(expires=int(time.time()) + 50))])
    stage.now = time.time() + 100
    monkeypatch.setattr(stage.bus, "publish", lost)
    with pytest.raises(BusUnavailable):
        await stage.intake.run_once()
    await stage.intake.run_once()
    first, second = await stage.said()
    assert first["event_id"] == second["event_id"]
    assert await stage.frontier.crawl_info(CrawlId("app", "c")) is None


async def test_a_plug_in_answers_and_its_faults_are_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "_HANDLER_SECONDS", 0.5)
    asked = [{"uuid": word, "appid": "app", "greet": word} for word in ("World", "fail", "refuse", "hang")]
    await stage.take(*asked, a_crawl(path="1"))
    said = {message["uuid"]: message for message in await stage.said()}
    assert said["World"]["greeting"] == "Hello World"
    assert "ZeroDivisionError" in said["fail"]["reason"]
    assert said["refuse"]["reason"] == "not today"
    assert "took more than" in said["hang"]["reason"]
    assert (await stage.frontier.crawl_info(CrawlId("app", "c"))).total().added == 1  # type: ignore[union-attr]
    assert "handler_broke" in caplog.text


@pytest.mark.parametrize("away", ["submit", "stop_crawl"])
async def test_a_batch_that_an_outage_cuts_in_two_is_gone_on_with(
    stage: Stage, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carried out, and the answer lost: the next step does not take it for somebody else's."""
    real: Callable[..., Any] = getattr(stage.frontier, away)

    async def lost(*arguments: Any, **named: Any) -> Any:
        await real(*arguments, **named)
        monkeypatch.setattr(stage.frontier, away, real)
        raise FrontierUnavailable("the answer was lost")

    monkeypatch.setattr(stage.frontier, away, lost)
    with pytest.raises(FrontierUnavailable):
        await stage.take(a_crawl(path="1"), a_crawl(path="2"), a_crawl("bad", maxdepth=-1), a_stop())
    assert await stage.waiting() == 4
    await stage.intake.run_once()
    assert await stage.waiting() == 0
    assert sorted(message["action"] for message in await stage.said()) == ["rejected", "stop"]


async def test_batches_are_read_ahead_and_keep_their_order_through_an_outage(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch of a hundred was taken when the first failed: neither is acknowledged, and neither is lost."""
    real = stage.frontier.submit

    async def away(*arguments: Any) -> Any:
        monkeypatch.setattr(stage.frontier, "submit", real)
        raise FrontierUnavailable("away")

    monkeypatch.setattr(stage.frontier, "submit", away)
    with pytest.raises(FrontierUnavailable):
        await stage.take(*(a_crawl(path=f"{number}") for number in range(150)), a_stop(), a_crawl(path="late"))
    assert await stage.waiting() == 152
    async with asyncio.timeout(60):
        while await stage.waiting():
            await stage.intake.run_once()
    said = {message["action"]: message for message in await stage.said()}
    assert said["stop"]["total_purged"] == 150
    assert said["rejected"]["url"] == "https://a.test/late"


async def test_what_was_read_ahead_goes_to_others_when_an_intake_ends(stage: Stage, blobs: BlobStore) -> None:
    await stage.take(*(a_crawl(path=f"{number}") for number in range(150)))
    assert await stage.waiting() == 50
    await stage.intake.close()
    other = Stage(stage.frontier, stage.bus, blobs)
    async with asyncio.timeout(60):
        while await stage.waiting():
            await other.intake.run_once()
    await other.intake.close()
    assert (await stage.frontier.crawl_info(CrawlId("app", "c"))).total().added == 150  # type: ignore[union-attr]
    assert await stage.said() == []


async def test_another_intake_takes_over_what_one_left_undone(
    stage: Stage, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stage.frontier.submit

    async def away(*arguments: Any) -> Any:
        raise FrontierUnavailable("away")

    monkeypatch.setattr(stage.frontier, "submit", away)
    with pytest.raises(FrontierUnavailable):
        await stage.take(a_crawl(path="1"))
    await stage.intake.close()
    monkeypatch.setattr(stage.frontier, "submit", real)
    other = Stage(stage.frontier, stage.bus, blobs)
    async with asyncio.timeout(60):
        while await stage.waiting():
            await other.intake.run_once()
    await other.intake.close()
    assert (await stage.frontier.crawl_info(CrawlId("app", "c"))).total().added == 1  # type: ignore[union-attr]


async def test_actions_of_1_0_are_answered_in_its_form(stage: Stage) -> None:
    await stage.take(a_crawl(path="1", priority=7), topic=stage.topics.incoming_urls)
    info = {"uuid": "i", "appid": "app", "spiderid": "link", "action": "info", "crawlid": "c"}
    await stage.take(info, topic=stage.topics.inbound_actions)
    [answer] = await stage.said()
    assert (answer["total_pending"], answer["high_priority"], answer["low_priority"]) == (1, 7, 7)
    assert "domains" not in answer


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "http://127.0.0.1/"}, "url"),
        ({"url": "http://0x7f.1/"}, "url"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": "ftp://a.test/"}, "url"),
        ({"allow_regex": ["(?=x)"]}, "allow_regex"),
        ({"deny_regex": ["("]}, "deny_regex"),
        ({"allowed_domains": ["http://a.test/"]}, "allowed_domains"),
        ({"expires": 1000}, "expires"),
        ({"expires": -1}, "expires"),
        ({"expires": 10**15}, "expires"),
        ({"ignore_robots": True}, "ignore_robots"),
        ({"proxy": "gopher://x"}, "proxy"),
        ({"headers": {"X": "a\r\nb"}}, "headers"),
        *(({"headers": {name: "x"}}, "headers") for name in sorted(OWNED)),
        ({"crawlid": "a b"}, "crawlid"),
        ({"crawlid": "x" * 1000}, "crawlid"),
        ({"render": True}, "render"),
        ({"colour": "red"}, "colour"),
        ({"body": "x" * 600_000}, "body"),
    ],
)
async def test_the_door_names_the_fault(stage: Stage, fields: dict[str, Any], field: str) -> None:
    big = StreamsBus(stage.bus.shards, prefix=stage.bus.prefix, keep_until_acknowledged=stage.topics.requests)
    await big.publish(stage.topics.incoming, [msgspec.json.encode(a_crawl(**fields))])
    await stage.intake.run_once()
    [answer] = await stage.said()
    assert (answer["action"], answer["field"]) == ("rejected", field), answer


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("not a url", "this is not an http or https URL: 'not a url'"),
        ("ftp://a.test/", "only http and https URLs are crawled: 'ftp://a.test/'"),
        ("/a", "this is not an http or https URL: '/a' (write it as https://host/path)"),
    ],
)
async def test_a_url_that_is_none_is_refused_with_the_reason(stage: Stage, url: str, reason: str) -> None:
    await stage.take(a_crawl(url=url))
    [answer] = await stage.said()
    assert answer["reason"] == reason


async def test_a_refused_message_that_is_too_large_to_be_kept_is_kept_elsewhere(stage: Stage) -> None:
    """It must not hold up the ones behind it for ever."""
    large = msgspec.json.encode(a_crawl(colour='"' * 49_000))
    await stage.take(large, a_crawl(path="1"))
    [letter] = await stage.said(stage.topics.dead_letter)
    assert (letter["field"], letter["message"]) == ("colour", "")
    whole = msgspec.json.decode(await read_blob(letter["whole_address"]))
    assert whole["message"].encode() == large
    assert await stage.waiting() == 0


@pytest.mark.parametrize("old", [False, True])
async def test_information_says_when_a_crawl_expires_in_both_forms(stage: Stage, old: bool) -> None:
    soon = int(time.time()) + 1000
    await stage.take(
        a_crawl("soon", "1", expires=soon), a_crawl("soon", "2", expires=soon + 5),
        a_crawl("never", "1", expires=soon), a_crawl("never", "2"),
    )  # fmt: skip
    ask = {"appid": "app", "spiderid": "link", "action": "info"}
    for crawlid in ("soon", "never"):
        await stage.take(
            {**ask, "uuid": crawlid, "crawlid": crawlid}, topic=stage.topics.inbound_actions if old else None
        )
    await stage.take({**ask, "uuid": "app"}, topic=stage.topics.inbound_actions if old else None)
    one, other, app = await stage.said()
    assert one["expires"] == str(soon + 5)
    assert "expires" not in other
    assert app["crawlids"]["soon"]["expires"] == (str(soon + 5) if old else soon + 5)
    assert "expires" not in app["crawlids"]["never"]
    assert app["total_domains"] == 1


@pytest.mark.parametrize("old", [False, True])
async def test_information_counts_a_request_that_waits_for_a_retry_in_its_domain(stage: Stage, old: bool) -> None:
    await stage.take(a_crawl(priority=20))
    holder = await stage.frontier.open_leaseholder(pool="shared", spiders=["link"])
    [lease] = await holder.lease(limit=1)
    await holder.settle([Settlement(lease, Outcome.RETRY, delay_seconds=600)])
    ask = {"appid": "app", "spiderid": "link", "action": "info"}
    topic = stage.topics.inbound_actions if old else None
    await stage.take({**ask, "uuid": "crawl", "crawlid": "c"}, {**ask, "uuid": "app"}, topic=topic)
    crawl, app = await stage.said()
    assert (crawl["total_pending"], app["total_pending"], app["total_domains"]) == (1, 1, 1)
    shares = [crawl, app["crawlids"]["c"]]
    if not old:
        assert crawl["total_domains"] == app["crawlids"]["c"]["distinct_domains"] == 1
        shares = [*crawl["domains"].values(), *app["crawlids"]["c"]["domains"].values()]
    assert [(share["high_priority"], share["low_priority"]) for share in shares] == [(10, 10), (10, 10)]
    await holder.close()


@pytest.mark.parametrize("old", [False, True])
async def test_information_on_an_application_pages_through_its_crawls_and_totals_all_of_them(
    stage: Stage, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crawls, "_PAGE_SIZE", 40)
    for first in (0, 100):  # a server gives a small set in one page
        await stage.take(*(a_crawl(f"c{n}", url=f"https://d{n % 4}.test/{n}") for n in range(first, first + 100)))
    await stage.take({"uuid": "stop", "appid": "app", "spiderid": "link", "action": "stop", "crawlid": "c0"})
    ask = {"appid": "app", "spiderid": "link", "action": "info"}
    topic = stage.topics.inbound_actions if old else None
    found: dict[str, Any] = {}
    cursor, pages = "", 0
    while pages == 0 or cursor:
        await stage.take({**ask, "uuid": f"page{pages}", "cursor": cursor}, topic=topic)
        app = (await stage.said())[-1]
        assert (app["total_pending"], app["total_crawlids"], app["total_domains"]) == (199, 199, 4)
        found |= app["crawlids"]
        cursor, pages = app.get("cursor", ""), pages + 1
    assert sorted(found) == sorted(f"c{n}" for n in range(1, 200))
    assert pages > 1
    assert {crawl["total"] for crawl in found.values()} == {1}
    await stage.take({**ask, "uuid": "bad", "cursor": "nonsense"}, topic=topic)
    refusal = (await stage.said())[-1]
    assert (refusal["action"], refusal["field"]) == ("rejected", "cursor")


async def test_a_fresh_request_that_the_bus_delivers_again_is_taken_once(stage: Stage) -> None:
    request = a_crawl(fresh=True)
    await stage.take(a_crawl())
    await stage.frontier.stop_crawl(CrawlId("app", "c"), state=CrawlState.FINISHED)
    await stage.take(request)
    await stage.take(request)
    info = await stage.frontier.crawl_info(CrawlId("app", "c"))
    assert info is not None
    assert (info.run, info.total().added) == (2, 1)
    assert [m["action"] for m in await stage.said()] == ["duplicate"]


async def test_a_fresh_request_of_an_intake_that_died_begins_no_second_run(stage: Stage) -> None:
    """The requests were taken and not acknowledged; their run is over when the bus delivers them again."""
    crawl = CrawlId("app", "c")
    await stage.take(a_crawl(path="1"), a_crawl(path="2"))
    await stage.frontier.stop_crawl(crawl, state=CrawlState.FINISHED)
    for path in ("1", "2"):
        await stage.bus.publish(stage.topics.incoming, [msgspec.json.encode(a_crawl(path=path, fresh=True))])
    consumer = await stage.bus.consume(stage.topics.requests, group="g")
    items = await stage.intake._take(consumer, 1.0)
    assert len(items) == 2
    await stage.intake._process(items)
    info = await stage.frontier.crawl_info(crawl)
    assert info is not None
    assert (info.run, info.total().added) == (2, 2)
    await stage.frontier.stop_crawl(crawl, state=CrawlState.FINISHED)
    await stage.intake._process([stage.intake._read(item.message) for item in items])
    info = await stage.frontier.crawl_info(crawl)
    assert info is not None
    assert (info.run, info.state) == (2, CrawlState.FINISHED)
    assert [m for m in await stage.said() if m["action"] == "rejected"] == []


async def test_a_change_that_comes_by_the_bus_is_in_the_audit(stage: Stage, tmp_path: Path) -> None:
    history = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    now = 0.0
    stage.intake.audit = BusAudit(HistoryAudit(history), stage.frontier, actor="kafka", monotonic=lambda: now)

    async def entries() -> list[tuple[str, str, int | None]]:
        """Return the entries, in their order, and delete them."""
        rows = await history.audit(limit=100)
        assert {(row.actor, row.origin) for row in rows} <= {("kafka", stage.topics.incoming)}
        while await history.sweep(before=2e10):
            pass
        return [(row.action, row.subject, row.status) for row in reversed(rows)]

    info = {**a_stop(), "action": "info"}
    await stage.take(a_crawl(path="1"), a_crawl(path="2"), a_crawl("other"), info)
    assert await entries() == [("crawl.submit", "app/c", 200), ("crawl.submit", "app/other", 200)]
    await stage.take(a_crawl(path="3"))
    assert await entries() == []
    now = 60.0
    await stage.take(a_crawl(path="4"), a_stop(), a_crawl("other", maxdepth=-1))
    assert await entries() == [("crawl.submit", "app/c", 200), ("crawl.stop", "app/c", 200)]
    now = 120.0
    await stage.take(a_crawl(path="5"))
    assert await entries() == [("crawl.submit", "app/c", 400)]
    domain = {"uuid": "d", "appid": "app", "domain": "a.test", "action": "blacklist-update"}
    await stage.take(domain, {**domain, "domain": "no domain"}, domain)
    assert await entries() == [
        ("blacklist.add", "a.test", 200), ("blacklist.add", "no%20domain", 400), ("blacklist.add", "a.test", 200),
    ]  # fmt: skip
    await history.close()
