"""The original's quick start, scripted: its JSON goes in by its topics, and every answer has its fields and types."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.kafka import Broker, broker
from tests.servers.service import Talk, talking, up

INT, STR, DICT, LIST = int, str, dict, list

PAGE_1_2 = {
    "appid": STR, "crawlid": STR, "url": STR, "response_url": STR, "status_code": INT, "status_msg": STR,
    "response_headers": DICT, "request_headers": DICT, "body": STR, "links": LIST, "attrs": (DICT, type(None)),
    "encoding": STR, "timestamp": STR,
}  # fmt: skip
PAGE_1_0 = {"headers" if name == "response_headers" else name: kind for name, kind in PAGE_1_2.items()}
INFO = {
    "uuid": STR, "server_time": INT, "appid": STR, "crawlid": STR, "spiderid": STR, "total_pending": INT,
    "total_domains": INT, "domains": DICT,
}  # fmt: skip
INFO_1_0 = {
    "uuid": STR, "server_time": INT, "appid": STR, "crawlid": STR, "spiderid": STR, "total_pending": INT,
    "low_priority": INT, "high_priority": INT,
}  # fmt: skip
APP_INFO = {
    "uuid": STR, "server_time": INT, "appid": STR, "spiderid": STR, "total_pending": INT, "total_crawlids": INT,
    "total_domains": INT, "crawlids": DICT,
}  # fmt: skip
STOP = {
    "action": STR, "spiderid": STR, "appid": STR, "crawlid": STR, "total_purged": INT, "uuid": STR, "server_time": INT,
}  # fmt: skip
EXPIRED = {
    "action": STR, "server_time": INT, "crawlid": STR, "spiderid": STR, "appid": STR, "total_expired": INT,
}  # fmt: skip
DOMAIN = {"uuid": STR, "server_time": INT, "action": STR, "domain": STR, "appid": STR}
STATS_TAIL = {"stats": STR, "appid": STR, "uuid": STR, "server_time": INT}


def has_fields(message: dict[str, Any], fields: dict[str, Any], *, more: bool = False) -> None:
    """These fields of these types; no others, unless `more`."""
    for name, kind in fields.items():
        assert name in message, f"{name} is missing from {message}"
        assert isinstance(message[name], kind), f"{name} is {message[name]!r}"
    if not more:
        assert set(message) == set(fields)


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture
def bus(request: pytest.FixtureRequest) -> str:
    """`streams`, or the broker's address."""
    return "streams" if request.param == "streams" else str(request.getfixturevalue("one_broker").servers)


@pytest.mark.parametrize(("bus", "wire"), [("kafka", "1.2"), ("streams", "1.0")], indirect=["bus"])
async def test_the_quick_start(tmp_path: Path, bus: str, wire: str) -> None:
    old = wire == "1.0"
    prefix = f"demo{wire}"
    flags = ["--prefix", prefix, "--allow-network", "127.0.0.0/8"]
    flags += [] if bus == "streams" else ["--bus", f"kafka://{bus}"]
    with FakeWeb.start(WebSpec(hosts=3, pages=12)) as web:
        for override in web.resolve_overrides():
            flags += ["--resolve", override]
        with up(tmp_path, *flags, environment={"GOSSAMER_TOPICS__WIRE": wire}) as service:
            async with talking(service, kafka="" if bus == "streams" else bus, prefix=prefix) as talk:
                await crawl_a_little(talk, web.seeds(), old=old)
                await ask_for_info(talk, web.seeds(), old=old)
                await ask_for_statistics(talk, old=old)
                await change_domains(talk, old=old)
                await expire(talk, web.seeds(), old=old)
            assert service.stop() == 0
            assert "Traceback" not in service.said()


def crawl_topic(talk: Talk, *, old: bool) -> str:
    return talk.topics.incoming_urls if old else talk.topics.incoming


def action_topic(talk: Talk, *, old: bool) -> str:
    return talk.topics.inbound_actions if old else talk.topics.incoming


async def crawl_a_little(talk: Talk, seeds: list[str], *, old: bool) -> None:
    """feed; the pages come to both topics, and the end is told."""
    request = {"appid": "testapp", "crawlid": "abc123", "url": seeds[0], "maxdepth": 1, "attrs": {"mine": [1, "x"]}}
    plain = {"appid": "testapp", "crawlid": "plain", "url": seeds[1]}
    await talk.say(request, plain, topic=crawl_topic(talk, old=old))
    finished = await talk.event("finished", "abc123")
    assert finished["event_id"]
    await talk.event("finished", "plain")
    pages = await talk.until(
        talk.topics.crawled_by("testapp"),
        lambda found: len(found) >= 10 and set(seeds[:2]) <= {page["url"] for page in found},
    )
    for page in pages:
        has_fields(page, PAGE_1_0 if old else PAGE_1_2, more=True)
        assert page["attrs"] == ({"mine": [1, "x"]} if page["crawlid"] == "abc123" else {} if old else None)
    [seed] = [page for page in pages if page["url"] == seeds[0]]
    assert seed["links"]
    assert set(seed["links"][0]) == {"url", "text"}
    everybody = await talk.until(talk.topics.crawled, lambda found: len(found) >= len(pages))
    assert {page["request_id"] for page in everybody} >= {page["request_id"] for page in pages}


async def ask_for_info(talk: Talk, seeds: list[str], *, old: bool) -> None:
    """info of a crawl and of an application; then stop."""
    host = seeds[2].split("/")[2].partition(":")[0]
    topic = action_topic(talk, old=old)
    domain = {"uuid": "d0", "appid": "testapp", "domain": host, "action": "domain-update", "hits": 1, "window": 30}
    await talk.say(domain)
    await talk.answer("d0")
    slow = {"appid": "testapp", "crawlid": "slow", "url": seeds[2], "maxdepth": 2, "priority": 70}
    await talk.say(slow, topic=crawl_topic(talk, old=old))
    await talk.until(talk.topics.crawled_by("testapp"), lambda found: any(p["crawlid"] == "slow" for p in found))
    ask = {"appid": "testapp", "spiderid": "link"}
    info: dict[str, Any] = {"total_pending": 0}
    for attempt in range(50):  # a page is published before its links are added
        await talk.say({**ask, "uuid": f"i1-{attempt}", "action": "info", "crawlid": "slow"}, topic=topic)
        info = await talk.answer(f"i1-{attempt}")
        has_fields(info, INFO_1_0 if old else INFO)
        if info["total_pending"]:
            break
    assert info["total_pending"] > 0
    if old:
        assert (info["high_priority"], info["low_priority"]) == (60, 60)
    else:
        share = {"total": info["total_pending"], "high_priority": 60, "low_priority": 60}
        assert info["domains"] == {host: share}
    await talk.say({**ask, "uuid": "i2", "action": "info"}, topic=topic)
    app = await talk.answer("i2")
    has_fields(app, APP_INFO)
    assert app["total_crawlids"] == 1
    crawl = app["crawlids"]["slow"]
    assert crawl["total"] == info["total_pending"] == app["total_pending"]
    assert set(crawl) == (
        {"total", "high_priority", "low_priority"} if old else {"total", "distinct_domains", "domains"}
    )
    await talk.say({**ask, "uuid": "s1", "action": "stop", "crawlid": "slow"}, topic=topic)
    stopped = await talk.answer("s1")
    has_fields(stopped, STOP)
    assert (stopped["action"], stopped["total_purged"]) == ("stop", info["total_pending"])
    await talk.event("stopped", "slow")
    await talk.say(slow, topic=crawl_topic(talk, old=old))
    refused = await talk.event("rejected", "slow")
    assert "stopped" in refused["reason"]


async def ask_for_statistics(talk: Talk, *, old: bool) -> None:
    """stats of every kind."""
    del old  # 1.0 had none; its programs may ask all the same
    for kind in ("kafka-monitor", "redis-monitor", "crawler", "spider", "machine", "queue", "rest", "all"):
        await talk.say({"uuid": f"t-{kind}", "appid": "testapp", "stats": kind})
        answer = await talk.answer(f"t-{kind}")
        has_fields(answer, STATS_TAIL, more=True)
        assert answer["stats"] == kind
    monitor = await talk.answer("t-kafka-monitor")
    assert monitor["total"]["900"] >= 5
    assert monitor["plugins"]["ScraperHandler"]["lifetime"] >= 3
    [(_, ids)] = monitor["nodes"].items()
    assert ids
    every = await talk.answer("t-all")
    assert set(every) == {"kafka-monitor", "redis-monitor", "crawler", "rest", *STATS_TAIL}
    queue = await talk.answer("t-queue")
    assert isinstance(queue["queues"]["total_backlog"], int)
    await talk.say({"uuid": "t-default", "appid": "testapp"})
    assert (await talk.answer("t-default"))["stats"] == "all"


async def change_domains(talk: Talk, *, old: bool) -> None:
    """The four requests that went to ZooKeeper."""
    topic = talk.topics.incoming if not old else talk.topics.inbound_actions
    for action in ("domain-update", "domain-remove", "blacklist-update", "blacklist-remove"):
        request: dict[str, Any] = {"uuid": action, "appid": "testapp", "domain": "dmoz.org", "action": action}
        if action == "domain-update":
            request |= {"hits": 60, "window": 60, "scale": 0.9}
        await talk.say(request, topic=topic)
        answer = await talk.answer(action)
        has_fields(answer, DOMAIN)
        assert (answer["action"], answer["domain"]) == (action, "dmoz.org")


async def expire(talk: Talk, seeds: list[str], *, old: bool) -> None:
    """A crawl that is too slow for its time."""
    request = {
        "appid": "testapp", "crawlid": "late", "url": seeds[2], "maxdepth": 2, "expires": int(time.time()) + 3,
    }  # fmt: skip
    await talk.say({**request, "priority": 50}, topic=crawl_topic(talk, old=old))
    expired = await talk.event("expired", "late")
    has_fields(expired, EXPIRED, more=True)
    assert expired["total_expired"] >= 1
