"""A cluster whose consumers follow Scrapy Cluster 1.0: every answer has its form, wherever it was asked for."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.servers import crawling
from tests.servers.service import Up, talking, up

OLD = {"GOSSAMER_TOPICS__WIRE": "1.0"}
CRAWL = {
    "appid": "testapp",
    "crawlid": "one",
    "url": "https://site0.test/",
    "spiderid": "elsewhere",
    "wait_for_spider": True,
    "priority": 7,
}
INFO = {"appid": "testapp", "crawlid": "one", "spiderid": "elsewhere", "action": "info"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), command="serve", environment=OLD) as running:
        yield running


def fed(service: Up, request: dict[str, Any]) -> Any:
    """The data of /feed's answer."""
    answer = httpx.post(f"{service.api}/feed", json=request, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def command(service: Up, *arguments: str) -> str:
    done = crawling.gossamer(*arguments, cwd=service.folder, env=OLD)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_every_answer_has_the_form_of_1_0(service: Up) -> None:
    assert fed(service, CRAWL) is None
    async with talking(service) as talk:
        await talk.say({**INFO, "uuid": "bus"})
        await talk.say({**INFO, "uuid": "old"}, topic=talk.topics.inbound_actions)
        found = {
            "bus": await talk.answer("bus"),
            "old": await talk.answer("old"),
            "rest": fed(service, {**INFO, "uuid": "rest"}),
        }
    for name, answer in found.items():
        assert "domains" not in answer, name
        assert (answer["total_pending"], answer["high_priority"], answer["low_priority"]) == (1, 7, 7), name
    assert "waiting 1 on 1 domain" in command(service, "crawls", "show", "testapp/one")


def test_the_index_has_the_id_that_the_statistics_name(service: Up) -> None:
    own = httpx.get(service.api).json()["my_id"]
    nodes = fed(service, {"uuid": "s", "appid": "testapp", "stats": "rest"})["nodes"]
    assert [own] in nodes.values()
