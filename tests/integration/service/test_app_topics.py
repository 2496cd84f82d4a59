"""One application's topics fail: those of all others, and the service itself, go on, and nothing is lost."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from gossamer.fakeweb import FakeWeb, WebSpec, html
from tests.servers.crawling import resolving
from tests.servers.kafka import Broker, broker
from tests.servers.program import until
from tests.servers.service import Talk, Up, talking, up

PAGES = 12


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=2, pages=PAGES, page_bytes=4000)) as running:
        yield running


class Topic:
    """A topic of the broker, whose settings a test changes."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.servers})
        self.name = name

    def create(self, **config: str) -> None:
        new = NewTopic(self.name, 1, 1, config={name.replace("_", "."): value for name, value in config.items()})
        self._admin.create_topics([new])[self.name].result(20)

    def set(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(20)

    def delete(self) -> None:
        self._admin.delete_topics([self.name], operation_timeout=20)[self.name].result(20)

    def exists(self) -> bool:
        return self.name in self._admin.list_topics(timeout=10).topics


def a_crawl(web: FakeWeb, appid: str, *, host: int, **fields: Any) -> dict[str, Any]:
    return {"appid": appid, "crawlid": "c", "url": web.seeds()[host], "maxdepth": 50, **fields}


def ask(service: Up, path: str) -> dict[str, Any]:
    """What the API answers."""
    answer = httpx.get(f"{service.api}{path}", timeout=30)
    assert answer.status_code == 200, "a probe that fails would take the service from all applications"
    return answer.json()  # type: ignore[no-any-return]


def ready(service: Up) -> dict[str, Any]:
    """What the readiness probe says, and the state."""
    return {**ask(service, "/readyz"), "state": ask(service, "/")["node_health"]}


async def pages_of(talk: Talk, appid: str, count: int = PAGES) -> list[dict[str, Any]]:
    """The pages on an application's topic, once there are so many different ones."""
    return await talk.until(
        talk.topics.crawled_by(appid), lambda found: len({page["url"] for page in found}) >= count, seconds=150
    )


async def test_topics_that_cannot_be_written_stop_only_their_application(
    one_broker: Broker, web: FakeWeb, tmp_path: Any
) -> None:
    """Pages, answers and events of the others come; health says what is wrong; and when it is mended, all is there."""
    prefix = "unwritable"
    pages, answers = Topic(one_broker, f"{prefix}.crawled_bad"), Topic(one_broker, f"{prefix}.outbound_bad")
    for topic in (pages, answers):
        topic.create(cleanup_policy="compact")  # no message without a key is accepted
    flags = ["--bus", f"kafka://{one_broker.servers}", *resolving(web.resolve_overrides())]
    environment = {"GOSSAMER_TOPICS__PREFIX": prefix, "GOSSAMER_KAFKA__PARTITIONS": "1"}
    with up(tmp_path, *flags, environment=environment) as service:
        async with talking(service, kafka=one_broker.servers, prefix=prefix) as talk:
            info = {"action": "info", "crawlid": "c", "spiderid": "link"}
            await talk.say(a_crawl(web, "bad", host=0), {**info, "appid": "bad", "uuid": "b"})
            until(lambda: "app_output" in ready(service)["troubles"], "the trouble")
            await talk.say(a_crawl(web, "good", host=1), {**info, "appid": "good", "uuid": "g"})
            await talk.answer("g", appid="good")
            assert len(await pages_of(talk, "good")) == PAGES
            await talk.event("finished", "c", appid="good")
            until(lambda: "app_answers" in ready(service)["troubles"], "the other trouble")
            state = ready(service)
            assert (state["status"], state["state"], state["bus"]) == ("degraded", "YELLOW", True)
            workers = ask(service, "/v1/workers")
            assert any(t["name"] == "app_output" and "bad" in t["message"] for t in workers["troubles"])
            for topic in (pages, answers):
                topic.set("cleanup.policy", "delete")
            await pages_of(talk, "bad")
            await talk.event("finished", "c", appid="bad")
            until(lambda: ready(service)["state"] == "GREEN", "the end of the troubles")
            assert ready(service)["status"] == "ready"
            # Its answer waited for its topic, or is a dead letter with the reason: it is not gone.
            await _collected(
                talk,
                answers.name,
                f"{prefix}.dead_letter",
                wanted=lambda found: any(one.get("uuid") == "b" for one in found),
            )


async def _collected(
    talk: Talk, *topics: str, wanted: Callable[[list[dict[str, Any]]], bool], seconds: float = 60.0
) -> list[dict[str, Any]]:
    """The messages of these topics, and those within dead letters, as soon as they are what is wanted."""
    reader = await talk.bus.read(topics, from_beginning=True)
    found: list[dict[str, Any]] = []
    last = time.monotonic() + seconds
    while not wanted(found):
        assert time.monotonic() < last, f"{topics} have only {found!r:.3000}"
        for message in await reader.take(at_most=1000, wait_seconds=0.2):
            content = msgspec.json.decode(message.value)
            found.append(msgspec.json.decode(content["message"]) if message.topic.endswith("dead_letter") else content)
    await reader.close()
    return found


async def test_topics_that_are_deleted_are_made_again(one_broker: Broker, tmp_path: Any) -> None:
    """Those of an application, those of all, and those of requests. Nothing that comes after is lost."""
    prefix = "deleted"
    page = html("<p>a page</p>")
    flags = ["--bus", f"kafka://{one_broker.servers}", "--resolve", "*.test:127.0.0.1"]
    environment = {"GOSSAMER_TOPICS__PREFIX": prefix, "GOSSAMER_KAFKA__PARTITIONS": "2"}
    with (
        FakeWeb.start(WebSpec(hosts=1, pages=1), mounts={("one.test", "/"): page, ("two.test", "/"): page}) as web,
        up(tmp_path, *flags, environment=environment) as service,
    ):
        url = f"http://{{}}.test:{web.port}/"
        async with talking(service, kafka=one_broker.servers, prefix=prefix) as talk:
            await talk.say({"appid": "bad", "crawlid": "first", "url": url.format("one")})
            await talk.event("finished", "first", appid="bad")
            for name in ("incoming", "crawled_bad", "outbound_bad", "crawled_firehose", "outbound_firehose"):
                Topic(one_broker, f"{prefix}.{name}").delete()
            incoming = Topic(one_broker, f"{prefix}.incoming")
            until(incoming.exists, "the topic of requests")
        async with talking(service, kafka=one_broker.servers, prefix=prefix) as talk:
            for appid in ("bad", "good"):
                await talk.say({"appid": appid, "crawlid": "second", "url": url.format("two")})
            for appid in ("good", "bad"):
                assert [page["crawlid"] for page in await pages_of(talk, appid, 1)] == ["second"]
                await talk.event("finished", "second", appid=appid)
            firehose = await talk.until(talk.topics.crawled, lambda found: len(found) >= 2)
            assert {page["appid"] for page in firehose} == {"bad", "good"}
        until(lambda: ready(service)["state"] == "GREEN", "good health")


async def test_a_small_limit_concerns_only_its_topic_and_a_page_that_fits_nowhere_has_failed(
    one_broker: Broker, web: FakeWeb, tmp_path: Any
) -> None:
    prefix = "limited"
    Topic(one_broker, f"{prefix}.crawled_small").create(max_message_bytes="6000")
    Topic(one_broker, f"{prefix}.crawled_tiny").create(max_message_bytes="1500")
    flags = ["--bus", f"kafka://{one_broker.servers}", *resolving(web.resolve_overrides())]
    environment = {"GOSSAMER_TOPICS__PREFIX": prefix, "GOSSAMER_KAFKA__PARTITIONS": "1"}
    with up(tmp_path, *flags, environment=environment) as service:
        async with talking(service, kafka=one_broker.servers, prefix=prefix) as talk:
            await talk.say(a_crawl(web, "tiny", host=0), a_crawl(web, "small", host=0), a_crawl(web, "good", host=1))
            good, small = await pages_of(talk, "good"), await pages_of(talk, "small")
            assert {bool(page["body"]) for page in good} == {True}
            assert {(page["body"], bool(page.get("body_address"))) for page in small} == {("", True)}
            for appid in ("good", "small", "tiny"):
                await talk.event("finished", "c", appid=appid)
            firehose = await talk.until(talk.topics.crawled, lambda found: len(found) >= 3 * PAGES)
            assert all(page["body"] for page in firehose)
            letters = await _collected(talk, f"{prefix}.dead_letter", wanted=lambda found: len(found) >= PAGES)
            assert {letter["appid"] for letter in letters} == {"tiny"}
            assert len({letter["url"] for letter in letters}) == PAGES
        crawl = ask(service, "/v1/crawls/tiny/c")
        assert crawl["spiders"]["link"]["failed"] == {"record_too_large": PAGES}, crawl
        assert ready(service)["state"] == "GREEN"


async def test_a_limit_that_is_lowered_and_raised_later_is_followed(one_broker: Broker, tmp_path: Any) -> None:
    """Without a restart; no page is lost between."""
    from gossamer.bus import kafka

    topic = Topic(one_broker, "changing.pages")
    bus = kafka.KafkaBus(one_broker.servers, partitions=1)
    first = await bus.message_limit(topic.name)
    await bus.publish(topic.name, [b"x" * first])
    topic.set("max.message.bytes", "20000")

    async def lowered() -> None:
        with pytest.raises(kafka.MessageTooLarge):
            await bus.publish(topic.name, [b"x" * 50_000])

    # The broker applies the change a moment later.
    async with asyncio.timeout(60):
        while await bus.message_limit(topic.name) == first:
            try:
                await bus.publish(topic.name, [b"x" * 50_000])
            except kafka.MessageTooLarge:
                continue
    assert await bus.message_limit(topic.name) < 20_000
    await lowered()
    await bus.publish(topic.name, [b"x" * await bus.message_limit(topic.name)] * 20)
    topic.set("max.message.bytes", str(16 * 1024 * 1024))
    bus._limits[topic.name] = kafka._TopicLimit(bus._limits[topic.name].bytes, float("-inf"))  # its time has come
    async with asyncio.timeout(60):
        while await bus.message_limit(topic.name) != first:
            bus._limits[topic.name] = kafka._TopicLimit(bus._limits[topic.name].bytes, float("-inf"))
    await bus.publish(topic.name, [b"x" * first])
    await bus.close()
