"""A request to a blacklisted domain: its answer says what becomes of it, and one that is dropped leaves a record."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec, html
from tests.servers import crawling
from tests.servers.service import Up, talking, up

POLICIES = """
default: {hits: 1000, window: 1, moderated: false}
domains:
  dropped.test: {when_blacklisted: dropped}
blacklist: [held.test, dropped.test]
"""


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    links = html('<a href="http://dropped.test/linked">x</a>')
    with FakeWeb.start(WebSpec(hosts=1, pages=1), mounts={("fine.test", "/"): links}) as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, web: FakeWeb) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), "--resolve", "*.test:127.0.0.1", policies=POLICIES) as running:
        yield running


def a_crawl(crawlid: str, url: str, **fields: Any) -> dict[str, Any]:
    return {"appid": "testapp", "crawlid": crawlid, "url": url, **fields}


def say(service: Up, *arguments: str) -> str:
    done = crawling.gossamer(*arguments, cwd=service.folder)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def test_a_dropped_one_leaves_a_record(service: Up, web: FakeWeb) -> None:
    """Submitted, or found as a link."""
    async with talking(service) as talk:
        await talk.say(a_crawl("asked", "http://dropped.test/seed"))
        await talk.say(a_crawl("found", f"http://fine.test:{web.port}/", maxdepth=1))
        await talk.event("finished", "asked")
        await talk.event("finished", "found")
        told = await talk.until(talk.topics.outbound_to("testapp"), lambda found: len(found) >= 3)
        pages = await talk.until(talk.topics.crawled_by("testapp"), lambda found: len(found) >= 3)
    [answer] = [message for message in told if message["action"] == "blacklisted"]
    assert (answer["domain"], answer["result"], answer["crawlid"]) == ("dropped.test", "dropped", "asked")
    reasons = {page["url"]: (page["success"], page["reason"]) for page in pages}
    assert reasons == {
        "http://dropped.test/seed": (False, "blacklisted"),
        "http://dropped.test/linked": (False, "blacklisted"),
        f"http://fine.test:{web.port}/": (True, ""),
    }
    assert not any("dropped.test" in entry.host for entry in web.log())


async def test_every_way_in_says_which(service: Up) -> None:
    def ask() -> None:
        for result in ("held", "dropped"):
            request = a_crawl(f"rest-{result}", f"http://{result}.test/")
            answer = httpx.post(f"{service.api}/v1/crawls", json=request, timeout=30)
            assert (answer.status_code, answer.json()["blacklisted"]) == (201, result)
            old = httpx.post(
                f"{service.api}/feed", json=a_crawl(f"feed-{result}", f"http://{result}.test/"), timeout=30
            )
            assert old.json()["data"]["result"] == result
            said = say(service, "feed", json.dumps(a_crawl(f"command-{result}", f"http://{result}.test/")))
            assert f"{result}.test is on the operator's blacklist: its requests are {result}." in said
        fine = httpx.post(f"{service.api}/v1/crawls", json=a_crawl("fine", "http://fine.test/"), timeout=30)
        assert fine.json()["blacklisted"] == ""
        assert "blacklisted: held" in say(service, "crawls", "show", "testapp/rest-held")
        why = say(service, "why", "http://held.test/", "--app", "testapp", "--crawl-id", "rest-held")
        assert "on the operator's blacklist: its requests are held" in why

    await asyncio.to_thread(ask)


def test_the_command_that_blacklists_says_which(service: Up) -> None:
    assert "its requests are held" in say(service, "domains", "blacklist", "one.example")
    say(service, "domains", "set", "one.example", "--when-blacklisted", "dropped")
    assert "its requests are dropped" in say(service, "domains", "blacklist", "one.example")
    assert "fetched again" in say(service, "domains", "blacklist", "one.example", "--remove")
