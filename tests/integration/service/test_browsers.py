"""A request to be rendered is rejected on every way in while no worker has a browser, unless it says that it waits."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.rendering import RenderTerms
from gossamer.valkey.datadir import running_address
from tests.servers import crawling
from tests.servers.service import Up, talking, up


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up"), command="serve") as served:
        yield served


@asynccontextmanager
async def connected(service: Up) -> AsyncIterator[ValkeyFrontier]:
    address = running_address(service.folder / ".gossamer")
    assert address is not None
    frontier = await ValkeyFrontier.connect(address)
    try:
        yield frontier
    finally:
        await frontier.close()


def a_crawl(crawlid: str, **fields: Any) -> dict[str, Any]:
    return {"appid": "testapp", "crawlid": crawlid, "url": "https://a.test/", "render": True, **fields}


def post(service: Up, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{service.api}{path}", json=body, timeout=30)


def details(service: Up, crawlid: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{service.api}/v1/crawls/testapp/{crawlid}", timeout=30).json()
    return found


def page_of(service: Up, crawlid: str) -> str:
    """The dashboard's page about a crawl."""
    return httpx.get(f"{service.api}/ui/crawl", params={"appid": "testapp", "crawlid": crawlid}, timeout=30).text


def why_page(service: Up, crawlid: str, url: str) -> str:
    """The dashboard's page that explains a URL."""
    query = {"appid": "testapp", "crawlid": crawlid, "url": url}
    return httpx.get(f"{service.api}/ui/crawl/why", params=query, timeout=30).text


def form_of(service: Up, crawlid: str) -> str:
    """The dashboard's form, filled for a repetition of a crawl."""
    like = {"like": "again", "appid": "testapp", "crawlid": crawlid}
    return httpx.get(f"{service.api}/ui/crawls/new", params=like, timeout=30).text


def submitted_form(service: Up, form: dict[str, str]) -> str:
    """The dashboard's answer to a form."""
    headers = {"Origin": service.api}
    return httpx.post(f"{service.api}/ui/crawls/submit", data=form, headers=headers, timeout=30).text


def said_by(service: Up, *arguments: str) -> tuple[int, str]:
    done = crawling.gossamer(*arguments, cwd=service.folder)
    return done.returncode, done.stdout + done.stderr


async def test_it_is_rejected_while_no_worker_has_a_browser(service: Up) -> None:
    async with talking(service) as talk:
        await talk.say(a_crawl("bus"))
        messages = await talk.until(talk.topics.outbound_to("testapp"), lambda found: len(found) == 1)
    assert (messages[0]["action"], messages[0]["field"]) == ("rejected", "render")
    answer = post(service, "/v1/crawls", a_crawl("rest"))
    assert answer.status_code == 400
    batch = post(service, "/v1/crawls", [a_crawl("rest"), a_crawl("rest", render=False)]).json()
    assert [(item["status"], item["field"]) for item in batch["items"]] == [(400, "render"), (201, "")]
    old = post(service, "/feed", a_crawl("feed"))
    assert old.status_code == 400
    code, said = said_by(service, "feed", json.dumps(a_crawl("command")))
    assert code == 2
    for words in (messages[0]["reason"], answer.text, batch["items"][0]["reason"], old.text, said):
        assert "no worker has a browser" in words
        assert "gossamer worker --render" in words


@pytest.mark.parametrize("fields", [{"render": "always"}, {"render": "auto"}, {"render": False, "render_match": ["/"]}])
async def test_so_is_one_whose_pages_may_be_rendered(service: Up, fields: dict[str, Any]) -> None:
    answer = post(service, "/v1/crawls", a_crawl("perhaps", **fields))
    assert answer.status_code == 400
    assert "no worker has a browser" in answer.text


WRONG = {
    "render": {"render": "sometimes"},
    "render_step": {"render_step": ["jump"]},
    "render_match": {"render": "auto", "render_match": ["(?=x)"]},
    "render_seconds": {"render_seconds": 121},
    "render_screenshot": {"render_screenshot": "a::text"},
    "render_capture": {"render_capture": ["("]},
    "render_load.0": {"render_load": ["everything"]},
}
STEPS = ("click ..x", "wait 61", "wait 30", "scroll .x")


async def test_rules_that_cannot_hold_are_rejected_on_every_way_in(service: Up) -> None:
    wrong = list(WRONG.items())
    wrong += [("render_step", {"render_step": [step]}) for step in STEPS]
    wrong += [("render_step", {"render": False, "render_step": ["scroll"]})]
    requests = [a_crawl("wrong", wait_for_browser=True, **fields) for _, fields in wrong]
    answers = post(service, "/v1/crawls", requests).json()["items"]
    assert [answer["field"] for answer in answers] == [field for field, _ in wrong]
    async with talking(service) as talk:
        await talk.say(*({**request, "crawlid": "wrong-bus"} for request in requests))
        topic = talk.topics.outbound_to("testapp")
        of_bus = [
            message
            for message in await talk.until(topic, lambda found: len(_of(found, "wrong-bus")) == len(requests))
            if message.get("crawlid") == "wrong-bus"
        ]
    assert [(message["action"], message["field"]) for message in of_bus] == [("rejected", field) for field, _ in wrong]
    (service.folder / "wrong.jsonl").write_text("\n".join(map(json.dumps, requests)))
    code, said = said_by(service, "feed", "wrong.jsonl", "--json")
    assert code == 2
    faults = json.loads(said)["faults"]
    form = {"appid": "testapp", "crawlid": "wrong", "url": "a.test", "render": "always", "render_step": "click ..x"}
    shown = submitted_form(service, form)
    assert "cannot parse the CSS selector" in shown
    assert 'value="click ..x"' in shown or "click ..x</textarea>" in shown
    for answer, message, fault in zip(answers, of_bus, faults, strict=True):
        assert answer["reason"] == message["reason"]
        assert answer["reason"] in fault
        assert "\n" not in answer["reason"]


def _of(messages: list[dict[str, Any]], crawlid: str) -> list[dict[str, Any]]:
    return [message for message in messages if message.get("crawlid") == crawlid]


async def test_the_rules_of_a_request_reach_the_worker_and_a_repetition(service: Up) -> None:
    rules = {
        "render_step": ["consent #a", "scroll 3", "wait .x 2"], "render_match": ["/shop/"], "render_capture": ["/api/"],
        "render_screenshot": "page", "render_seconds": 20, "render_load": ["images"], "render_other_sites": "none",
    }  # fmt: skip
    request = a_crawl("rules", wait_for_browser=True, **rules) | {"render": "auto"}
    assert post(service, "/v1/crawls", request).is_success
    async with connected(service) as frontier:
        seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        [lease] = [lease for lease in await seat.lease(limit=9) if lease.run.crawl.id.crawlid == "rules"]
        await seat.close()
    terms = lease.terms
    assert (lease.render, terms.render, terms.render_auto, terms.render_match) == (False, False, True, ("/shop/",))
    assert [step.action for step in terms.render_steps] == ["consent", "scroll", "wait"]
    assert terms.render_terms == RenderTerms(seconds=20, other_sites="none", load=("images",))
    again = details(service, "rules/request")["request"]
    assert {name: again[name] for name in rules} == rules
    assert again["render"] == "auto"
    form = form_of(service, "rules")
    assert "<option selected>auto" in form
    assert "consent #a\nscroll 3\nwait .x 2</textarea>" in form


async def test_it_waits_where_it_says_so_and_the_service_says_what_for(service: Up) -> None:
    answer = post(service, "/v1/crawls", a_crawl("waits", wait_for_browser=True))
    assert answer.status_code == 201
    shown = details(service, "waits")
    assert (shown["to_render"], shown["without_browser"], shown["total"]["queued"]) == (1, 1, 1)
    code, said = said_by(service, "crawls", "show", "testapp/waits")
    assert code == 0
    assert "1 request waits for a worker with a browser, and there is none." in said
    assert said.count("Start one: gossamer worker --render") == 1
    assert "Waiting for a worker with a browser, and there is none: 1." in page_of(service, "waits")
    code, said = said_by(
        service, "why", "https://a.test/", "--app", "testapp", "--crawl-id", "waits", "--resolve", "*:127.0.0.1"
    )
    assert code == 0
    assert "for a worker with a browser, and there is none. Start one: gossamer worker --render" in said
    explained = details(service, "waits/url?url=https://a.test/")
    assert explained["without_browser"] == "gossamer worker --render"
    assert "gossamer worker --render</code>" in why_page(service, "waits", "https://a.test/")
    _, said = said_by(service, "diagnose")
    assert "testapp/waits: 1 request waits for a worker with a browser, and there is none." in said
    async with connected(service) as frontier:
        await frontier.announce_browser(pool="shared", worker="one", seconds=60)
        shown = details(service, "waits")
        assert (shown["to_render"], shown["without_browser"]) == (1, 0)
        assert "browser" not in said_by(service, "crawls", "show", "testapp/waits")[1]
        assert details(service, "waits/url?url=https://a.test/")["without_browser"] == ""
        await frontier.announce_browser(pool="shared", worker="one", seconds=0)


async def test_a_crawl_that_expires_meanwhile_ends_with_the_count(service: Up) -> None:
    async with talking(service) as talk:
        topic = talk.topics.outbound_to("testapp")
        await talk.say(a_crawl("late", wait_for_browser=True, expires=int(time.time()) + 2))
        [ended] = _of(await talk.until(topic, lambda found: bool(_of(found, "late"))), "late")
    assert (ended["action"], ended["total_expired"]) == ("expired", 1)


async def test_it_is_accepted_while_a_worker_has_a_browser(service: Up) -> None:
    async with connected(service) as frontier:
        await frontier.announce_browser(pool="another", worker="one", seconds=60)
        assert post(service, "/v1/crawls", a_crawl("now")).status_code == 400, "that worker does not work for services"
        await frontier.announce_browser(pool="shared", worker="one", seconds=60)
        assert post(service, "/v1/crawls", a_crawl("now")).status_code == 201
        seat = await frontier.open_leaseholder(pool="shared", spiders=["link"], plain=False, browser=True)
        leases = [lease for lease in await seat.lease(limit=9) if lease.run.crawl.id.crawlid == "now"]
        assert [(lease.render, lease.terms.render) for lease in leases] == [(True, True)]
        await seat.close()
        await frontier.announce_browser(pool="shared", worker="one", seconds=0)
