"""A service that is killed, and a broker that is, while requests come in: nothing is lost, repeats are known by ids."""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.kafka import Broker, broker
from tests.servers.service import Talk, Up, talking, up

REQUESTS = int(os.environ.get("CHAOS_REQUESTS", "240"))
KILLS = 2
MISSED_SOON = {"GOSSAMER_KAFKA__OPTIONS": '{"session.timeout.ms": "4000"}'}
"""After each kill, its successor waits so long for what the killed one had taken from Kafka."""


@pytest.fixture
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


def requests(seeds: list[str]) -> list[dict[str, Any]]:
    """Crawls of one page each, some of them asked for twice or wrong, and questions among them."""
    chance = random.Random(7)
    found: list[dict[str, Any]] = []
    for n in range(REQUESTS):
        url = f"{seeds[n % len(seeds)]}p/{n // len(seeds) + 1}"
        found.append({"appid": "testapp", "crawlid": f"c{n % 50}", "url": url, "attrs": {"n": n}})
        if chance.random() < 0.05:
            found.append({"appid": "testapp", "crawlid": f"bad{n}", "url": "http://a b/", "maxdepth": -1})
        if chance.random() < 0.05:
            found.append({"uuid": f"i{n}", "appid": "testapp", "spiderid": "link", "action": "info", "crawlid": "c1"})
    return found


@pytest.mark.parametrize("kind", ["streams", "kafka"])
@pytest.mark.timeout(240)
async def test_every_request_is_answered_or_crawled(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    kafka: Broker | None = request.getfixturevalue("one_broker") if kind == "kafka" else None
    flags = ["--allow-network", "127.0.0.0/8", *(["--bus", f"kafka://{kafka.servers}"] if kafka else [])]
    with FakeWeb.start(WebSpec(hosts=6, pages=400, page_bytes=2000)) as web:
        for override in web.resolve_overrides():
            flags += ["--resolve", override]
        wanted = requests(web.seeds())
        with up(tmp_path, *flags, environment=MISSED_SOON) as service:
            await feed_and_kill(service, kafka, wanted)
            async with talking(service, kafka=kafka.servers if kafka else "") as talk:
                await nothing_is_lost(talk, wanted)
            assert service.stop() == 0


async def feed_and_kill(service: Up, kafka: Broker | None, wanted: list[dict[str, Any]]) -> None:
    """A third of the requests before each kill; the rest after the last."""
    part = len(wanted) // (KILLS + 1)
    for number in range(KILLS + 1):
        async with talking(service, kafka=kafka.servers if kafka else "") as talk:
            await talk.listen(talk.topics.outbound_to("testapp"))  # refusals make no topic
            last = None if number == KILLS else (number + 1) * part
            await talk.say(*wanted[number * part : last])
            if number < KILLS:  # in the middle of it
                await talk.until(talk.topics.crawled, lambda found, n=number: len(found) > 5 + 20 * n)  # type: ignore[misc]
        if number < KILLS:
            service.kill()
            if kafka is not None and number == 1:
                await asyncio.to_thread(kafka.kill)
                await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(service.start)


async def nothing_is_lost(talk: Talk, wanted: list[dict[str, Any]]) -> None:
    crawls = [r for r in wanted if "url" in r and "maxdepth" not in r]
    urls = {r["url"] for r in crawls}
    pages = await talk.until(
        talk.topics.crawled_by("testapp"), lambda found: urls <= {page["url"] for page in found}, seconds=90
    )
    assert {page["url"] for page in pages} == urls
    by_id = {page["request_id"]: page for page in pages}
    assert len(by_id) == len(urls), "a request went under two ids"
    for question in [r for r in wanted if "uuid" in r]:
        await talk.answer(question["uuid"])
    ids = {r["crawlid"] for r in crawls}
    bad = {r["crawlid"] for r in wanted if "maxdepth" in r}
    answers = await talk.until(
        talk.topics.outbound_to("testapp"),
        lambda found: (
            ids <= {m["crawlid"] for m in found if m.get("action") == "finished"}
            and bad <= {m.get("crawlid") for m in found if m.get("action") == "rejected"}
        ),
    )
    assert not [message for message in answers if message.get("action") == "duplicate"], "each was sent once"
    events: dict[str, dict[str, Any]] = {}
    for message in answers:
        if "event_id" in message:
            assert events.setdefault(message["event_id"], message) == message
    runs = [(event["crawlid"], event["run"]) for event in events.values() if event["action"] == "finished"]
    assert len(runs) == len(set(runs)), "a run's end was told under two ids"
    letters = await talk.until(talk.topics.dead_letter, lambda found: len(found) >= len(bad))
    assert {letter["field"] for letter in letters} == {"maxdepth"}
