"""/v1/domains: one policy, the default, all of them; two editors at once."""

import asyncio
import itertools
from typing import Any

import pytest
import yaml

from gossamer.control.domains import Blacklist, blacklisted_among
from gossamer.model.crawl import DomainPolicy

from .conftest import Service, in_session

YAML = {"Content-Type": "application/yaml"}
PROBLEM = "application/problem+json"


async def test_a_domain_is_set_changed_and_forgotten(service: Service) -> None:
    path = "/v1/domains/a.example"
    assert (await service.http.get(path)).json()["policy"] == {}
    answer = await service.http.put(path, json={"hits": 10, "window": 60})
    assert answer.json()["policy"] == {"hits": 10, "window": 60.0}
    assert answer.json()["in_force"]["moderated"] is True
    answer = await service.http.patch(path, json={"hits": None, "scale": 0.5, "blacklisted": True})
    assert answer.json()["policy"] == {"window": 60.0, "scale": 0.5, "blacklisted": True}
    assert await service.frontier.domain_policy("a.example") == DomainPolicy(
        window_seconds=60.0, scale=0.5, blacklisted=True
    )
    assert (await service.http.put(path, json={"hits": 3})).json()["policy"] == {"hits": 3}
    for _ in range(2):
        assert (await service.http.delete(path)).status_code == 204
    assert await service.frontier.domain_policy("a.example") == DomainPolicy()


async def test_the_default_is_a_star(service: Service) -> None:
    answer = await service.http.put("/v1/domains/*", json={"hits": 5, "window": 2})
    assert answer.json()["domain"] == "*"
    assert (await service.http.get("/v1/domains/b.example")).json()["in_force"]["hits"] == 5
    assert await service.frontier.domain_policy(None) == DomainPolicy(hits=5, window_seconds=2.0)


async def test_a_page_of_policies_can_be_put_back(service: Service) -> None:
    for n in range(5):
        await service.http.put(f"/v1/domains/d{n}.example", json={"hits": n + 1, "blacklisted": n == 3})
    first = await service.http.get("/v1/domains", params={"limit": 3})
    assert list(first.json()["domains"]) == ["d0.example", "d1.example", "d2.example"]
    rest = await service.http.get("/v1/domains", params={"limit": 3, "cursor": first.json()["cursor"]})
    assert list(rest.json()["domains"]) == ["d3.example", "d4.example"]
    assert rest.json()["cursor"] == ""
    assert first.headers["etag"] == rest.headers["etag"]
    blacklist = await service.http.get("/v1/domains", params={"blacklisted": True})
    assert list(blacklist.json()["domains"]) == ["d3.example"]

    everything = await service.http.get("/v1/domains")
    etag = {"If-Match": everything.headers["etag"]}
    refused = await service.http.put("/v1/domains", json=first.json(), headers=etag)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "cursor")
    answer = await service.http.put("/v1/domains", json=everything.json(), headers=etag)
    assert (answer.status_code, answer.json()["domains"]) == (200, 5)
    again = (await service.http.get("/v1/domains")).json()
    assert (again["domains"], again["version"]) == (everything.json()["domains"], answer.json()["version"])


async def test_all_of_it_as_yaml_there_and_back(service: Service) -> None:
    text = (
        "default: {hits: 2, window: 1}\ndomains:\n  a.example: {window: 60, hits: 60}\n"
        "  b.example: {window: 60, hits: 30, scale: 0.5}\nblacklist: [c.example]\n"
    )
    answer = await service.http.put("/v1/domains", content=text, headers={**YAML, "If-Match": "*"})
    assert answer.status_code == 200, answer.text
    back = await service.http.get("/v1/domains", headers={"Accept": "application/yaml"})
    assert back.headers["content-type"].startswith("application/yaml")
    assert yaml.safe_load(back.text) == yaml.safe_load(text)
    assert back.headers["etag"] == answer.headers["etag"]


async def test_two_editors_of_everything_never_lose_an_update(service: Service) -> None:
    """Each adds its own domains, one at a time, by reading all and putting all back."""

    async def edit(name: str) -> int:
        conflicts = 0
        for n in range(5):
            while True:
                there = await service.http.get("/v1/domains")
                body = there.json()
                body["domains"][f"{name}{n}.example"] = {"hits": n + 1}
                answer = await service.http.put("/v1/domains", json=body, headers={"If-Match": there.headers["etag"]})
                if answer.status_code == 200:
                    break
                assert (answer.status_code, answer.headers["content-type"]) == (412, PROBLEM)
                conflicts += 1
        return conflicts

    await asyncio.gather(edit("a"), edit("b"))
    found = (await service.http.get("/v1/domains")).json()["domains"]
    assert set(found) == {f"{name}{n}.example" for name in "ab" for n in range(5)}


async def test_an_old_version_changes_nothing(service: Service) -> None:
    there = await service.http.get("/v1/domains")
    one = await service.http.get("/v1/domains/a.example")
    await service.http.put("/v1/domains/a.example", json={"hits": 7})
    stale = {"If-Match": there.headers["etag"]}
    assert (await service.http.put("/v1/domains", json={}, headers=stale)).status_code == 412
    for method in ("PUT", "PATCH", "DELETE"):
        answer = await service.http.request(
            method, "/v1/domains/a.example", json={"hits": 1}, headers={"If-Match": one.headers["etag"]}
        )
        assert (answer.status_code, answer.headers["content-type"]) == (412, PROBLEM)
    assert (await service.http.get("/v1/domains/a.example")).json()["policy"] == {"hits": 7}


@in_session
async def test_everything_is_not_replaced_blindly(shared: Service) -> None:
    answer = await shared.http.put("/v1/domains", json={})
    assert (answer.status_code, answer.headers["content-type"]) == (428, PROBLEM)


async def test_changes_of_different_fields_at_once_are_all_kept(service: Service) -> None:
    changes: list[dict[str, Any]] = [{"hits": 9}, {"window": 3}, {"scale": 0.5}, {"concurrency": 2}]
    answers = await asyncio.gather(*(service.http.patch("/v1/domains/a.example", json=change) for change in changes))
    assert [answer.status_code for answer in answers] == [200] * 4
    found = (await service.http.get("/v1/domains/a.example")).json()["policy"]
    assert found == {"hits": 9, "window": 3.0, "scale": 0.5, "concurrency": 2}


@in_session
@pytest.mark.parametrize(
    ("method", "path", "sent", "detail"),
    [
        ("PUT", "/v1/domains/a.example", b'{"hits": 0}', "hits: must be a whole number"),
        ("PUT", "/v1/domains/a.example", b'{"colour": 1}', "colour: unknown field"),
        ("PATCH", "/v1/domains/a.example", b'{"scale": 2}', "scale: must be a number from 0 to 1"),
        ("PATCH", "/v1/domains/a.example", b"[]", "must be a JSON object"),
        ("PATCH", "/v1/domains/a.example", b"{", "not JSON"),
        ("PUT", "/v1/domains/www.a.example", b"{}", "is a part of a.example"),
        ("GET", "/v1/domains/a%20b", b"", "not a domain"),
        ("PUT", "/v1/domains", b'{"domains": {"a.example": {"hits": "x"}}}', "hits: must be"),
        ("PUT", "/v1/domains", b'{"other": 1}', "other: unknown"),
        ("PUT", "/v1/domains", b"[" * 100_000, "levels deep"),
    ],
)
async def test_what_is_not_valid_is_named(shared: Service, method: str, path: str, sent: bytes, detail: str) -> None:
    answer = await shared.http.request(method, path, content=sent, headers={"If-Match": "*"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert detail in answer.json()["detail"]


@in_session
@pytest.mark.parametrize(
    "text", ["a: [", "a: &x [1]\nb: *x", "[" * 50_000, "domains: {a.example: {hits: .inf}}", "\x00", "!!python/x {}"]
)
async def test_yaml_that_is_not_valid_is_refused(shared: Service, text: str) -> None:
    answer = await shared.http.put("/v1/domains", content=text, headers={**YAML, "If-Match": "*"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)


async def test_a_blacklist_has_the_domain_that_requests_are_for(service: Service) -> None:
    """IDNA 2003 spells `straße` as `strasse`, another site. It is blocked by REST, a message, and YAML."""

    async def is_held(url: str) -> bool:
        answer = await service.http.post("/v1/crawls", json={"appid": "app", "crawlid": "c", "url": url})
        assert answer.status_code == 201, answer.text
        return answer.json()["blacklisted"] == "held"

    async def by_path() -> None:
        await service.http.patch("/v1/domains/straße.example", json={"blacklisted": True})

    async def by_request() -> None:
        await service.feed({"uuid": "u", "appid": "app", "domain": "straße.example", "action": "blacklist-update"})

    async def by_text() -> None:
        text = "blacklist: [straße.example]\n"
        await service.http.put("/v1/domains", content=text.encode(), headers={**YAML, "If-Match": "*"})

    for change in (by_path, by_request, by_text):
        await change()
        assert list((await service.http.get("/v1/domains")).json()["domains"]) == ["xn--strae-oqa.example"]
        assert await is_held(f"http://straße.example/{change.__name__}")
        assert not await is_held(f"http://strasse.example/{change.__name__}")
        assert (await service.http.delete("/v1/domains/STRAßE.example")).status_code == 204
        assert (await service.http.get("/v1/domains")).json()["domains"] == {}


async def test_policies_are_listed_while_they_change_all_the_time(service: Service) -> None:
    """A file of thousands of policies is applied one by one. A list that waited for its end would stand still."""
    frontier, stopping = service.frontier, asyncio.Event()

    async def change() -> None:
        for number in itertools.count():
            if stopping.is_set():
                return
            await service.http.put(f"/v1/domains/d{number % 50}.test", json={"hits": 1 + number % 9})

    changing = [asyncio.create_task(change()) for _ in range(4)]
    try:
        async with asyncio.timeout(30):
            for _ in range(5):
                answer = await service.http.get("/v1/domains", params={"limit": 7})
                assert answer.status_code == 200
    finally:
        stopping.set()
        await asyncio.gather(*changing)
    # What is kept in memory follows every change, of any process.
    names, cursor = [], ""
    while cursor or not names:
        page = (await service.http.get("/v1/domains", params={"limit": 7, "cursor": cursor})).json()
        names, cursor = [*names, *page["domains"]], page["cursor"]
    _, policies = await frontier.domain_policies()
    assert names == sorted(policies)
    await frontier.replace_policies(DomainPolicy(), {"only.test": DomainPolicy(hits=3)},
                                    expected_version=await frontier.policies_version())  # fmt: skip
    assert list((await service.http.get("/v1/domains")).json()["domains"]) == ["only.test"]


async def test_a_look_at_a_few_domains_finds_what_the_whole_blacklist_has(service: Service) -> None:
    """Pages about a crawl look at the domains that they show, and do not read all policies."""
    frontier, names = service.frontier, ["held.test", "dropped.test", "fast.test", "none.test"]
    policies = [{"blacklisted": True}, {"blacklisted": True, "when_blacklisted": "dropped"}, {"hits": 9}]
    for name, policy in zip(names, policies, strict=False):
        assert (await service.http.put(f"/v1/domains/{name}", json=policy)).is_success
    for default in ({}, {"blacklisted": True}):
        assert (await service.http.put("/v1/domains/*", json=default)).is_success
        found = await blacklisted_among(frontier, names)
        assert found == await Blacklist(frontier).among(names)
        assert [name for name in names if name in found] == (names if default else names[:2])
    assert await blacklisted_among(frontier, []) == {}
