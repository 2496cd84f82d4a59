"""Crawl requests fed to a running service, worked on by Scrapy spiders; what comes out on the bus."""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.bus.streams import StreamsBus
from gossamer.fakeweb import Answer, FakeWeb, WebSpec
from gossamer.fakeweb.answer import html, redirect
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, DomainPolicy, WhenBlacklisted
from gossamer.model.record import PageRecord
from gossamer.valkey.datadir import running_address
from tests.integration.scrapy_lane.lane import HOST, at, page
from tests.servers.heard import listening
from tests.servers.kafka import broker
from tests.servers.scraping import ROOT, Scraper
from tests.servers.service import Talk, Up, talking, up
from tests.servers.valkey import wait_until

FILE = ROOT / "tests" / "integration" / "scrapy_lane" / "cluster_spiders.py"
PAGES = "demo.crawled_firehose"
ALLOWED = "127.0.0.0/8"
SHOWN = {"GOSSAMER_RECORDS__SECRETS": "keep"}
"""Records have the values of cookies."""
HANDING = """
from gossamer.worker.spider import Follow, Spider

class Handing(Spider):
    async def parse(self, page):
        headers, attrs = {"X-Own": "yes"}, {"n": 1}
        yield Follow(url="/given", spider="walker", method="POST", body=b"b=1", headers=headers, attrs=attrs)
        yield Follow(url=page.url, spider="walker")
"""
"""A spider of the fast worker that hands everything to one of Scrapy's, the very page at hand among it."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    environment = {"GOSSAMER_FETCH__RESOLVE": '{"*.test": "127.0.0.1"}', "GOSSAMER_ALLOW_NETWORKS": f'["{ALLOWED}"]'}
    package = tmp_path_factory.mktemp("package")
    described = package / "handing-1.dist-info"
    described.mkdir()
    (package / "handing.py").write_text(HANDING)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: handing\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[gossamer.spiders]\nhanding = handing:Handing\n")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    with up(tmp_path_factory.mktemp("up"), environment=environment) as running_service:
        yield running_service


@pytest.fixture
async def talk(service: Up) -> AsyncIterator[Talk]:
    async with talking(service) as found:
        yield found


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=3, pages=40, page_bytes=3000, out_degree=10)) as found:
        yield found


def lane(folder: Path, service: Up, spider: str, **settings: Any) -> Scraper:
    data = service.folder / ".gossamer"
    own = {
        "EXTENSIONS": "{}",
        "GOSSAMER_FRONTIER": running_address(data),
        "GOSSAMER_DATA_DIR": data,
        "GOSSAMER_WORKER__HEARTBEAT": "2",
        "GOSSAMER_RETRY_BASE": "0.02",
        "RETRY_TIMES": "3",
    }
    return Scraper(folder, spider, frontier=None, name=spider, settings=own | settings, file=FILE)


def feed(service: Up, **request: Any) -> None:
    """As a person would who does not wait for the spider to be there."""
    text = msgspec.json.encode({"appid": "testapp", "wait_for_spider": True, **request}).decode()
    data = str(service.folder / ".gossamer")
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", "feed", text, "--data-dir", data],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


async def pages(talk: Talk, crawlid: str, count: int) -> list[dict[str, Any]]:
    """The crawl's records, when there are so many."""

    def mine(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for one in found if one["crawlid"] == crawlid]

    return mine(await talk.until(PAGES, lambda found: len(mine(found)) >= count))


@contextlib.asynccontextmanager
async def asking(service: Up) -> AsyncIterator[ValkeyFrontier]:
    """The service's frontier."""
    frontier = await ValkeyFrontier.connect(running_address(service.folder / ".gossamer") or "")
    try:
        yield frontier
    finally:
        await frontier.close()


async def waiting(service: Up, crawlid: str, count: int) -> None:
    """Until so many of the crawl's requests wait in the frontier."""
    async with asking(service) as frontier:
        while True:
            info = await frontier.crawl_info(CrawlId("testapp", crawlid))
            if info is not None and info.total().queued == count:
                return
            await asyncio.sleep(0.02)


async def one_a_minute(talk: Talk, domain: str) -> None:
    uuid = secrets.token_hex(4)
    policy = {"domain": domain, "action": "domain-update", "hits": 1, "window": 60}
    await talk.say({"uuid": uuid, "appid": "testapp", **policy})
    await talk.answer(uuid)


async def test_a_crawl_request_is_crawled_by_a_scrapy_spider_with_every_field(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb
) -> None:
    web.mount(HOST, "/a", page("/b", "/denied", "/picture.png", "http://site1.test/away", "/hop"))
    web.mount(HOST, "/b", page("/c"))
    web.mount(HOST, "/c", page())
    web.mount(HOST, "/hop", redirect("/end"))
    web.mount(HOST, "/end", page())
    with lane(tmp_path, service, "walker", **SHOWN) as scraper:
        feed(
            service, crawlid="all", spiderid="walker", url=at(web, "/a"), maxdepth=1, priority=50, attrs={"x": [1]},
            useragent="custom/1.0", cookie="a=1; b=2", headers={"X-Own": "yes"}, deny_regex=["denied"],
            allowed_domains=[HOST],
        )  # fmt: skip
        event = await talk.event("finished", "all")
        found = {one["url"]: one for one in await pages(talk, "all", 3)}
        scraper.interrupt()
        assert scraper.finish().exit_code == 0, scraper.log
    assert set(found) == {at(web, path) for path in ("/a", "/b", "/hop")}, scraper.log
    seed, child, hop = (found[at(web, path)] for path in ("/a", "/b", "/hop"))
    assert set(seed) >= {field.name for field in msgspec.structs.fields(PageRecord)}
    assert (seed["appid"], seed["crawlid"], seed["spiderid"]) == ("testapp", "all", "walker")
    assert (seed["status_code"], seed["status_msg"], seed["success"], seed["depth"]) == (200, "OK", True, 0)
    assert seed["attrs"] == child["attrs"] == {"x": [1]}
    assert child["depth"] == 1
    assert {"url": at(web, "/b"), "text": "/b"} in seed["links"]
    assert '<a href="/b">' in seed["body"]
    assert seed["ip"] == "127.0.0.1"
    for one in (seed, child):
        sent = one["request_headers"]
        assert (sent["User-Agent"], sent["Cookie"], sent["X-Own"]) == (["custom/1.0"], ["a=1; b=2"], ["yes"])
    assert seed["response_headers"]["Content-Type"]
    assert hop["response_url"] == at(web, "/end")
    assert [one["url"] for one in hop["redirects"]] == [at(web, "/hop")]
    assert hop["redirects"][0]["status"] in (301, 302, 303, 307, 308)
    assert event["crawlid"] == "all"


async def test_a_topic_that_cannot_be_written_stops_only_its_application(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb
) -> None:
    """Its own pages come when its topic is back."""
    assert isinstance(talk.bus, StreamsBus)
    key = f"{{{talk.bus.prefix}:bus:{talk.topics.crawled_by('bad')}}}"
    for number in range(200):
        web.mount(HOST, f"/bad/{number}", page())
    web.mount(HOST, "/bad", page(*(f"/bad/{number}" for number in range(200))))
    web.mount(HOST, "/good", page("/good/1"))
    web.mount(HOST, "/good/1", page())
    await talk.bus.shards.command(key, "SET", key, "no stream")
    with lane(tmp_path, service, "walker") as scraper:
        feed(service, appid="bad", crawlid="stuck", spiderid="walker", url=at(web, "/bad"), maxdepth=1)
        await pages(talk, "stuck", 1)  # on the topic of all
        feed(service, appid="good", crawlid="going", spiderid="walker", url=at(web, "/good"), maxdepth=1)
        await talk.event("finished", "going", appid="good")
        assert len(await talk.until(talk.topics.crawled_by("good"), lambda found: len(found) >= 2)) == 2
        await talk.bus.shards.command(key, "DEL", key)
        await talk.event("finished", "stuck", appid="bad")
        found = await talk.until(talk.topics.crawled_by("bad"), lambda found: len({one["url"] for one in found}) >= 201)
        assert {one["success"] for one in found} == {True}
        scraper.interrupt()
        assert scraper.finish().exit_code == 0, scraper.log


@pytest.mark.parametrize("spider", ["walker", "link"])
async def test_secrets_go_to_the_domain_of_the_request_and_to_those_it_names_in_both_lanes(
    spider: str, tmp_path: Path, service: Up, talk: Talk
) -> None:
    """Links and redirects to other domains carry the other headers only; records show no secret."""
    answers: dict[str, bytes] = {}
    bodies: dict[str, bytes] = {}
    secret = {"cookie": "sid=s3cret", "authorization": "Bearer s3cret", "x-key": "s3cret"}
    async with listening(answers, bodies) as (port, heard):
        links = ("site0.test:{0}/in", "site1.test:{0}/link", "site0.test:{0}/away", "site2.test:{0}/named")
        bodies["/start"] = "".join(f'<a href="http://{link.format(port)}">x</a>' for link in links).encode()
        answers["/away"] = f"302 Found\r\nLocation: http://site1.test:{port}/moved".encode()
        with lane(tmp_path, service, "walker") as scraper:
            feed(
                service, crawlid=f"secret-{spider}", spiderid=spider, url=f"http://site0.test:{port}/start", maxdepth=1,
                cookie="sid=s3cret", secret_headers=["X-Key"], headers_for=["site2.test"],
                headers={"Authorization": "Bearer s3cret", "X-Key": "s3cret", "Accept-Language": "de"},
            )  # fmt: skip
            await talk.event("finished", f"secret-{spider}")
            records = await pages(talk, f"secret-{spider}", 5)
    plain = {"accept-language": "de"}
    sent = {
        one.head.split(" ", 2)[1]: {name: one.header(name) for name in secret | plain if one.header(name)}
        for one in heard
    }
    assert sent == {
        "/start": secret | plain, "/in": secret | plain, "/away": secret | plain, "/named": secret | plain,
        "/link": plain, "/moved": plain,
    }, scraper.log  # fmt: skip
    [first] = [one for one in records if one["url"].endswith("/start")]
    shown = {name.lower(): values for name, values in first["request_headers"].items()}
    assert [shown[name] for name in secret] == [["<redacted>"]] * len(secret)
    assert "s3cret" not in str(records)


async def test_failures_are_records_and_retries_go_back_to_the_frontier(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb
) -> None:
    web.mount(HOST, "/f", page("/gone", "/busy", "http://127.0.0.1:1/"))
    web.mount(HOST, "/gone", Answer(status=404, body=b"gone"))
    web.mount(HOST, "/busy", Answer(status=503, body=b"busy"))
    with lane(tmp_path, service, "walker", RETRY_TIMES="1"):
        feed(service, crawlid="bad", spiderid="walker", url=at(web, "/f"), maxdepth=1)
        await talk.event("finished", "bad")
        found = {one["url"]: one for one in await pages(talk, "bad", 4)}
    outcome = {
        one["url"]: (one["success"], one["reason"], one["attempt"], one["status_code"]) for one in found.values()
    }
    assert outcome == {
        at(web, "/f"): (True, "", 0, 200),
        at(web, "/gone"): (False, "http_404", 0, 404),
        at(web, "/busy"): (False, "http_503", 1, 503),
        "http://127.0.0.1:1/": (False, "connect", 1, 0),
    }
    assert found[at(web, "/gone")]["body"] == "gone"


async def test_requests_of_a_blacklisted_domain_are_dropped_with_a_record(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb
) -> None:
    dropped = DomainPolicy(blacklisted=True, when_blacklisted=WhenBlacklisted.DROPPED)
    async with asking(service) as frontier:
        await frontier.set_domain_policy("bad.test", dropped)
    web.mount(HOST, "/good", page(f"http://bad.test:{web.port}/linked"))
    with lane(tmp_path, service, "walker"):
        feed(service, crawlid="black", spiderid="walker", url=at(web, "/good"), maxdepth=1)
        await talk.event("finished", "black")
        found = {one["url"]: (one["success"], one["reason"]) for one in await pages(talk, "black", 2)}
    assert found == {at(web, "/good"): (True, ""), f"http://bad.test:{web.port}/linked": (False, "blacklisted")}
    assert not any(entry.path == "/linked" for entry in web.log())


async def test_private_addresses_are_refused(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    with lane(tmp_path, service, "shy"):
        feed(service, crawlid="private", spiderid="shy", url=at(web, "/secret"))
        [one] = await pages(talk, "private", 1)
    assert (one["success"], one["reason"], one["status_code"]) == (False, "blocked_address", 0)
    assert not any(entry.path == "/secret" for entry in web.log())


async def test_lanes_hand_over_to_each_other(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount(HOST, "/in", html('<form><input type="password"></form>'))
    web.mount(HOST, "/inside", page())
    web.mount(HOST, "/out", page("/fast"))
    web.mount(HOST, "/fast", page("/fast2"))
    web.mount(HOST, "/fast2", page())
    with lane(tmp_path, service, "finder") as finder, lane(tmp_path, service, "login", **SHOWN):
        feed(service, crawlid="in", spiderid="finder", url=at(web, "/in"), maxdepth=1, attrs={"a": 1}, cookie="c=1")
        feed(service, crawlid="out", spiderid="finder", url=at(web, "/out"), maxdepth=2, attrs={"a": 2})
        await talk.event("finished", "in")
        await talk.event("finished", "out")
        records = await pages(talk, "in", 4)
        into = {(one["url"], one["spiderid"]): one for one in records if one["type"] == "page"}
        out = {(one["url"], one["spiderid"]): one for one in await pages(talk, "out", 3)}
    assert set(into) == {(at(web, "/in"), "finder"), (at(web, "/in"), "login"), (at(web, "/inside"), "login")}, (
        finder.log
    )
    handed = into[at(web, "/in"), "login"]
    assert (handed["depth"], handed["attrs"], handed["request_headers"]["Cookie"]) == (
        0, {"from": at(web, "/in")}, ["c=1"],
    )  # fmt: skip
    assert [one["item"] for one in records if one["type"] == "item"] == [{"logged_in": at(web, "/in")}]
    assert set(out) == {(at(web, "/out"), "finder"), (at(web, "/fast"), "link"), (at(web, "/fast2"), "link")}
    assert [one["attrs"] for one in out.values()] == [{"a": 2}] * 3


async def test_the_fast_worker_hands_over_to_scrapy(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount(HOST, "/hand", page())
    web.mount(HOST, "/given", page("/more"))
    web.mount(HOST, "/more", page())
    with lane(tmp_path, service, "walker", **SHOWN) as walker:
        feed(service, crawlid="handed", spiderid="handing", url=at(web, "/hand"), maxdepth=2, priority=40, cookie="c=1")
        await talk.event("finished", "handed")
        found = {(one["url"], one["spiderid"]): one for one in await pages(talk, "handed", 4)}
        walker.process.terminate()
        assert walker.finish().exit_code == 0
    assert set(found) == {
        (at(web, "/hand"), "handing"), (at(web, "/hand"), "walker"), (at(web, "/given"), "walker"),
        (at(web, "/more"), "walker"),
    }  # fmt: skip
    given = found[at(web, "/given"), "walker"]
    assert (given["attrs"], given["depth"]) == ({"n": 1}, 1)
    sent = given["request_headers"]
    assert (sent["X-Own"], sent["Cookie"]) == (["yes"], ["c=1"])
    assert [record.method for record in web.log() if record.path == "/given"] == ["POST"]
    assert found[at(web, "/more"), "walker"]["depth"] == 2


async def test_a_request_from_outside_is_the_same_as_scrapys_own(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb
) -> None:
    """Whoever adds it: the service, a fast worker, or another Scrapy spider."""
    web.mount(HOST, "/fed?b=2&a=1", page("/fed?a=1&b=2", "/after?x"))
    web.mount(HOST, "/after?x", page("/after?x=", "/fed?a=1&b=2"))
    web.mount(HOST, "/hand?b=2&a=1", page("/hand?a=1&b=2"))
    web.mount(HOST, "/given", page())
    web.mount(HOST, "/pass?b=2&a=1", page("/pass?a=1&b=2"))
    with lane(tmp_path, service, "walker") as walker, lane(tmp_path, service, "passing"):
        wait_until(lambda: "Waiting for crawl requests" in walker.log, "the spider to be announced")
        feed(service, crawlid="same", spiderid="walker", url=at(web, "/fed?b=2&a=1"), maxdepth=3)
        feed(service, crawlid="same2", spiderid="handing", url=at(web, "/hand?b=2&a=1"), maxdepth=3)
        feed(service, crawlid="same3", spiderid="passing", url=at(web, "/pass?b=2&a=1"), maxdepth=3)
        found = {}
        for crawl in ("same", "same2", "same3"):
            await talk.event("finished", crawl)
        for crawl, count in (("same", 2), ("same2", 3), ("same3", 2)):
            records = await pages(talk, crawl, count)
            found[crawl] = sorted((one["url"].removeprefix(at(web, "/")), one["spiderid"]) for one in records)
    assert found == {
        "same": [("after?x", "walker"), ("fed?b=2&a=1", "walker")],
        "same2": [("given", "walker"), ("hand?b=2&a=1", "handing"), ("hand?b=2&a=1", "walker")],
        "same3": [("pass?b=2&a=1", "passing"), ("pass?b=2&a=1", "walker")],
    }


async def test_what_one_crawl_has_seen_another_has_not(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount(HOST, "/both", page("/leaf"))
    web.mount(HOST, "/leaf", page())
    with lane(tmp_path, service, "walker"):
        for crawl in ("first", "second"):
            feed(service, crawlid=crawl, spiderid="walker", url=at(web, "/both"), maxdepth=1)
            found = await pages(talk, crawl, 2)
            assert [one["url"] for one in found] == [at(web, "/both"), at(web, "/leaf")]


async def test_stop_is_obeyed_and_the_spider_stays(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount(HOST, "/later", page())
    web.mount("site2.test", "/slow", page(*(f"/slow{number}" for number in range(5))))
    with lane(tmp_path, service, "walker") as scraper:
        await one_a_minute(talk, "site2.test")
        feed(service, crawlid="stopped", spiderid="walker", url=f"http://site2.test:{web.port}/slow", maxdepth=3)
        await pages(talk, "stopped", 1)
        await waiting(service, "stopped", 5)  # a page is out before its links are in
        await talk.say({
            "uuid": "stop", "appid": "testapp", "spiderid": "walker", "crawlid": "stopped", "action": "stop",
        })  # fmt: skip
        assert (await talk.answer("stop"))["total_purged"] == 5
        feed(service, crawlid="next", spiderid="walker", url=at(web, "/later"))
        assert len(await pages(talk, "next", 1)) == 1
        assert len(await pages(talk, "stopped", 1)) == 1
        scraper.interrupt()
        assert scraper.finish().exit_code == 0


async def test_its_answers_count_in_the_statistics(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount(HOST, "/stroll", page("/step"))
    web.mount(HOST, "/step", page())
    with lane(tmp_path, service, "stroller") as scraper:
        feed(service, crawlid="stroll", spiderid="stroller", url=at(web, "/stroll"), maxdepth=3)
        steps = {one["url"]: one["attrs"]["step"] for one in await pages(talk, "stroll", 2)}
        scraper.interrupt()
        scraper.finish()
    assert steps == {at(web, "/stroll"): 0, at(web, "/step"): 1}
    await talk.say({"uuid": "figures", "appid": "testapp", "stats": "spider"})
    figures = (await talk.answer("figures"))["spiders"]["stroller"]
    assert figures["200"]["lifetime"] == 2


@pytest.mark.parametrize("spider", ["stroller", "wandering"])
async def test_a_walk_goes_on_whatever_the_depth_until_it_is_stopped(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb, spider: str
) -> None:
    """`wandering` is the fast worker's, `stroller` Scrapy's."""
    web.mount(HOST, "/round", page("/about"))
    web.mount(HOST, "/about", page("/round"))
    scraper = lane(tmp_path, service, spider) if spider == "stroller" else contextlib.nullcontext()
    with scraper as running_spider:
        asked = {"crawlid": f"walk-{spider}", "spiderid": spider, "url": at(web, "/round")}
        feed(service, **asked, maxdepth=0, attrs={"mine": 1})
        found = await pages(talk, asked["crawlid"], 12)
        assert [(one["attrs"]["step"], one["attrs"]["mine"]) for one in found[:12]] == [(n, 1) for n in range(12)]
        await talk.say(
            {
                "uuid": asked["crawlid"],
                "appid": "testapp",
                "action": "stop",
                "crawlid": asked["crawlid"],
                "spiderid": spider,
            }
        )
        assert (await talk.answer(asked["crawlid"]))["action"] == "stop"
        await talk.event("stopped", asked["crawlid"])
        if running_spider is not None:
            running_spider.interrupt()
            running_spider.finish()


async def test_a_killed_process_loses_nothing(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    """What it held goes on in the other. Nothing else is published twice."""
    paths = [f"/held{number}" for number in range(60)]
    web.mount(HOST, "/holding", page(*paths))
    for path in paths:
        web.mount(HOST, path, page())
    many = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}
    with lane(tmp_path / "a", service, "walker", **many) as one, lane(tmp_path / "b", service, "walker", **many) as two:
        feed(service, crawlid="killed", spiderid="walker", url=at(web, "/holding"), maxdepth=1)
        await pages(talk, "killed", 15)
        async with asking(service) as frontier:
            one.process.send_signal(signal.SIGSTOP)
            workers = {worker.name.split("-")[-2]: worker for worker in await frontier.workers()}
        one.kill()
        await talk.event("finished", "killed")
        found = await pages(talk, "killed", 61)
        two.interrupt()
        assert two.finish().exit_code == 0
    assert {one["url"] for one in found} == {at(web, path) for path in ("/holding", *paths)}
    assert len(found) - 61 <= workers[str(one.process.pid)].leased


async def test_an_expired_crawl_ends_with_its_event(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    web.mount("site2.test", "/short", page(*(f"/short{number}" for number in range(5))))
    with lane(tmp_path, service, "walker") as scraper:
        await one_a_minute(talk, "site2.test")
        await talk.say({
            "appid": "testapp", "crawlid": "short", "spiderid": "walker", "wait_for_spider": True, "maxdepth": 1,
            "url": f"http://site2.test:{web.port}/short", "expires": int(time.time()) + 4,
        })  # fmt: skip
        event = await talk.event("expired", "short")
        scraper.interrupt()
        assert scraper.finish().exit_code == 0
    assert event["total_expired"] in (1, 5)  # whether the domain's minute let the seed through before


async def test_without_a_reactor(tmp_path: Path, service: Up, talk: Talk, web: FakeWeb) -> None:
    """Addresses are judged by what the system's resolver says."""
    web.mount("localhost", "/bare", page())
    bare = f"http://localhost:{web.port}/bare"
    none = {"TWISTED_REACTOR_ENABLED": False}
    with (
        lane(tmp_path / "a", service, "walker", **none) as open_one,
        lane(tmp_path / "b", service, "shy", **none) as shy,
    ):
        feed(service, crawlid="bare", spiderid="walker", url=bare)
        feed(service, crawlid="refused", spiderid="shy", url=bare)
        [found] = await pages(talk, "bare", 1)
        [refused] = await pages(talk, "refused", 1)
        for scraper in (open_one, shy):
            scraper.interrupt()
            assert scraper.finish().exit_code == 0
    assert (found["status_code"], found["success"]) == (200, True)
    assert (refused["reason"], refused["success"]) == ("blocked_address", False)


async def test_on_kafka(tmp_path: Path, web: FakeWeb) -> None:
    web.mount(HOST, "/kafka", page("/topics"))
    web.mount(HOST, "/topics", page())
    with broker() as kafka:
        address = f"kafka://{kafka.servers}"
        own = {"GOSSAMER_ALLOW_NETWORKS": f'["{ALLOWED}"]'}
        with (
            up(tmp_path, "--bus", address, environment=own) as service,
            lane(tmp_path, service, "walker", GOSSAMER_BUS=address) as scraper,
        ):
            async with talking(service, kafka=kafka.servers) as talk:
                await talk.say({
                    "appid": "testapp", "crawlid": "kafka", "spiderid": "walker", "url": at(web, "/kafka"),
                    "maxdepth": 1, "wait_for_spider": True,
                })  # fmt: skip
                await talk.event("finished", "kafka")
                found = {one["url"]: one["depth"] for one in await pages(talk, "kafka", 2)}
            scraper.interrupt()
            assert scraper.finish().exit_code == 0
    assert found == {at(web, "/kafka"): 0, at(web, "/topics"): 1}


SHOP = """
from scrapy.resolver import dnscache
from gossamer.scrapy import ClusterSpider

dnscache["site0.test"] = "127.0.0.1"

class Shop(ClusterSpider):
    name = "shop"

    def parse(self, response):
        yield self.page(response)
"""
SHOPS_SETTINGS = """
SPIDER_MODULES = ["shop"]
GOSSAMER_ALLOW_NETWORKS = "127.0.0.0/8"
REMOTE_CONTROL_ENABLED = False
"""
OTHER = """
ITEM_PIPELINES = {"shop.Other": 50}
"""
OTHERS_CLASS = """
class Other:
    def process_item(self, item):
        item["attrs"] = {"other": "was here"}
        return item
"""


@pytest.mark.parametrize("other", [False, True])
async def test_scrapy_crawl_in_a_project_publishes(
    tmp_path: Path, service: Up, talk: Talk, web: FakeWeb, other: bool
) -> None:
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop_settings\n")
    (tmp_path / "shop_settings.py").write_text(SHOPS_SETTINGS + OTHER * other)
    (tmp_path / "shop.py").write_text(SHOP + OTHERS_CLASS)
    data = service.folder / ".gossamer"
    crawlid = f"project-{other}"
    web.mount(HOST, "/start", page())
    feed(service, crawlid=crawlid, spiderid="shop", url=at(web, "/start"))
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "scrapy", "crawl", "shop"],
        cwd=tmp_path,
        env={
            **os.environ,
            "GOSSAMER_FRONTIER": str(running_address(data)),
            "GOSSAMER_DATA_DIR": str(data),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        },
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            [record] = await pages(talk, crawlid, 1)
        finally:
            process.kill()
    assert record["success"]
    assert record["attrs"] == ({"other": "was here"} if other else None)


def test_without_its_pipeline_a_cluster_spider_is_refused(tmp_path: Path, service: Up) -> None:
    with lane(tmp_path, service, "unpublished") as running_spider:
        done = running_spider.finish()
    assert "BusPipeline no page would be published" in done.log
