"""A request for a spider that nobody runs is refused on every way in, unless it says that it waits."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gossamer.frontier.base import Lane
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.valkey.datadir import running_address
from tests.servers import crawling
from tests.servers.service import Up, talking, up


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), command="serve") as served:
        yield served


def a_crawl(crawlid: str, spider: str, **fields: Any) -> dict[str, Any]:
    return {"appid": "testapp", "crawlid": crawlid, "url": "https://a.test/", "spiderid": spider, **fields}


async def announce(service: Up, spider: str) -> None:
    address = running_address(service.folder / ".gossamer")
    assert address is not None
    frontier = await ValkeyFrontier.connect(address)
    try:
        await frontier.spiders.announce(Lane.FAST, [spider])
    finally:
        await frontier.close()


def post(service: Up, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{service.api}{path}", json=body, timeout=30)


def feed(service: Up, request: dict[str, Any]) -> tuple[int, str]:
    done = crawling.gossamer("feed", json.dumps(request), cwd=service.folder)
    return done.returncode, done.stderr


async def test_it_is_refused_with_the_spiders_there_are(service: Up) -> None:
    await announce(service, "shop")
    async with talking(service) as talk:
        await talk.say(a_crawl("bus", "typo"))
        messages = await talk.until(talk.topics.outbound_to("testapp"), lambda found: len(found) == 1)
    assert (messages[0]["action"], messages[0]["field"]) == ("rejected", "spiderid")
    answer = post(service, "/v1/crawls", a_crawl("rest", "typo"))
    assert answer.status_code == 400
    batch = post(service, "/v1/crawls", [a_crawl("rest", "typo"), a_crawl("rest", "link")]).json()
    assert [(item["status"], item["field"]) for item in batch["items"]] == [(400, "spiderid"), (201, "")]
    old = post(service, "/feed", a_crawl("feed", "typo"))
    assert old.status_code == 400
    code, said = feed(service, a_crawl("command", "typo"))
    assert code == 2
    for words in (messages[0]["reason"], answer.text, batch["items"][0]["reason"], old.text, said):
        assert "no worker has announced the spider typo; the known ones are link, shop, wandering" in words


@pytest.mark.parametrize(("spider", "fields"), [("link", {}), ("wandering", {}), ("late", {"wait_for_spider": True})])
def test_it_is_accepted_where_it_comes_with_gossamer_or_waits(service: Up, spider: str, fields: dict[str, Any]) -> None:
    answer = post(service, "/v1/crawls", a_crawl(f"ok-{spider}", spider, **fields))
    assert answer.status_code == 201
    assert feed(service, a_crawl(f"ok2-{spider}", spider, **fields))[0] == 0


async def test_it_is_accepted_as_soon_as_a_worker_has_announced_it(service: Up) -> None:
    refused = post(service, "/v1/crawls", a_crawl("soon", "new"))
    await announce(service, "new")
    taken = post(service, "/v1/crawls", a_crawl("soon", "new"))
    assert (refused.status_code, taken.status_code) == (400, 201)
