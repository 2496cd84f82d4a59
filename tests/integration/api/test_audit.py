"""The audit of a crawl service: each change is in it before it is made, without secrets, with how it ended."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from cryptography.fernet import Fernet
from fastapi.routing import APIRoute

from gossamer.api.app import _ROUTERS
from gossamer.api.audit import NOT_AUDITED
from gossamer.fresh.store import IndexStore
from gossamer.fresh.subscriptions import CALLBACKS
from gossamer.history import audit as history_audit
from gossamer.history.audit import HistoryAudit
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import CrawlId
from gossamer.storage.audit import AuditedChange
from gossamer.storage.secret_keys import KEYS_VARIABLE
from gossamer.web.access import SAFE_METHODS

from .conftest import Service, Start

PASSWORD = "hunter2-of-a-proxy"
CRAWL = {"appid": "shop", "crawlid": "spring", "url": f"http://me:{PASSWORD}@a.test/?token={PASSWORD}", "maxdepth": 2}
STOP = {"uuid": "s", "appid": "shop", "crawlid": "spring", "spiderid": "link", "action": "stop"}
LETTER = {"topic": "demo.incoming", "message": json.dumps(CRAWL)}
LOGIN = {"site": "a.test", "accounts": {"me": {"user": "me", "password": PASSWORD}}, "login": {"basic": True}}
ANNOUNCED = {"host": "a.test", "urlList": ["http://a.test/"]}


class Asked(NamedTuple):
    """A request that changes something, and the entry that it must have."""

    method: str
    path: str
    body: Any
    action: str
    subject: str
    outcome: str = "done"


REQUESTS = {
    "submit": Asked("POST", "/v1/crawls", CRAWL, "crawl.submit", "shop/spring"),
    "stop_crawl": Asked("DELETE", "/v1/crawls/shop/spring", None, "crawl.stop", "shop/spring"),
    "retry_crawl": Asked("POST", "/v1/crawls/shop/a%20b/retry", None, "crawl.retry", "shop/a%20b", "refused"),
    "announce_changes": Asked(
        "POST", "/v1/crawls/shop/spring/changed", ANNOUNCED, "changes.announce", "shop/spring", "refused"
    ),
    "replace_domains": Asked("PUT", "/v1/domains", {"default": {"hits": 3, "window": 1}}, "domains.replace", "*"),
    "set_domain": Asked("PUT", "/v1/domains/a.test", {"hits": 4, "window": 1}, "domain.set", "a.test"),
    "change_domain": Asked("PATCH", "/v1/domains/a.test", {"blacklisted": True}, "domain.change", "a.test"),
    "remove_domain": Asked("DELETE", "/v1/domains/a.test", None, "domain.remove", "a.test"),
    "put_login": Asked("PUT", "/v1/logins/shop", LOGIN, "login.put", "shop"),
    "retry_login": Asked("POST", "/v1/logins/a%20b/retry", None, "login.retry", "a%20b", "refused"),
    "delete_login": Asked("DELETE", "/v1/logins/none", None, "login.delete", "none", "refused"),
    "dead_letter_replay": Asked("POST", "/v1/dead-letters/replay", LETTER, "dead_letter.replay", "demo.incoming"),
    "classic_feed": Asked("POST", "/feed", CRAWL, "crawl.submit", "shop/spring"),
}
"""By the operation's name. A new route with a method that may change something belongs here, or in `NOT_AUDITED`."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, Fernet.generate_key().decode())


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[HistoryStore]:
    store = HistoryStore(f"sqlite:///{tmp_path}/history.db")
    await store.audit(limit=1)  # makes the tables
    yield store
    await store.close()


class WatchedAudit(HistoryAudit):
    """An audit that notes when it gets an entry."""

    def __init__(self, history: HistoryStore) -> None:
        super().__init__(history)
        self.asked = asyncio.Event()

    async def begin(self, change: AuditedChange) -> int:
        self.asked.set()
        return await super().begin(change)


@pytest.fixture
async def trail(history: HistoryStore) -> WatchedAudit:
    return WatchedAudit(history)


@pytest.fixture
async def audited(start: Start, history: HistoryStore, trail: WatchedAudit, tmp_path: Path) -> AsyncIterator[Service]:
    indexes = IndexStore(str(tmp_path / "indexes"))
    async with start(history=history, audit=trail, indexes=indexes) as service:
        yield service


async def ask(service: Service, asked: Asked) -> httpx.Response:
    headers = {"If-Match": "*"} if asked.path == "/v1/domains" else {}
    body = {} if asked.body is None else {"json": asked.body}
    return await service.http.request(asked.method, asked.path, headers=headers, **body)


async def entries(service: Service, **chosen: Any) -> list[dict[str, Any]]:
    answer = await service.http.get("/v1/audit", params=chosen)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_every_route_that_may_change_something_is_tried_here_or_only_reads() -> None:
    found = {route.operation_id for route in all_routes() if not route.methods <= SAFE_METHODS}
    assert found == REQUESTS.keys() | NOT_AUDITED


def all_routes() -> Iterator[APIRoute]:
    """Yield every route, also those that the description leaves out."""
    for router in _ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield route


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_change_has_an_entry_without_secrets(audited: Service, name: str) -> None:
    asked = REQUESTS[name]
    await audited.feed({**CRAWL, "url": "http://b.test/"})
    before = len(await entries(audited))
    answer = await ask(audited, asked)
    found = await entries(audited)
    assert len(found) == before + 1
    entry = found[0]
    assert (entry["actor"], entry["origin"], entry["action"], entry["subject"], entry["outcome"]) == (
        "local", "127.0.0.1", asked.action, asked.subject, asked.outcome,
    )  # fmt: skip
    assert entry["status"] == answer.status_code
    assert bool(entry["reason"]) == (asked.outcome == "refused")
    assert PASSWORD not in json.dumps(found)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_change_waits_for_its_entry(
    audited: Service, trail: WatchedAudit, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a kill at any moment leaves no change without an entry: while none can be written, nothing has changed."""
    monkeypatch.setattr(history_audit, "_WAIT_SECONDS", 60.0)
    await audited.feed({**CRAWL, "url": "http://b.test/"})
    await audited.http.patch("/v1/domains/a.test", json={"concurrency": 1})

    async def state() -> Any:
        info = await audited.frontier.crawl_info(CrawlId("shop", "spring"))
        topics = {topic.name: topic.messages for topic in await audited.context.bus.topics()}
        logins = await audited.frontier.logins.all()
        return info and (info.state, info.total().added), await audited.frontier.domain_policies(), topics, logins

    before = await state()
    holder = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    trail.asked.clear()
    asking = asyncio.create_task(ask(audited, REQUESTS[name]))
    await trail.asked.wait()
    assert await state() == before
    holder.execute("ROLLBACK")
    holder.close()
    await asking
    if REQUESTS[name].outcome == "done":
        assert await state() != before


async def test_a_policy_is_in_its_entry_as_it_was_and_as_it_is(audited: Service) -> None:
    await audited.http.put("/v1/domains/a.test", json={"hits": 4, "window": 1})
    await audited.http.patch("/v1/domains/a.test", json={"hits": 9})
    update = {"uuid": "d", "appid": "shop", "domain": "a.test", "action": "domain-update", "hits": 7, "window": 2}
    await audited.feed(update)
    await audited.feed({**update, "domain": "no domain"})
    refused, by_feed, patched, _ = await entries(audited)
    assert (patched["details"]["before"]["hits"], patched["details"]["after"]["hits"]) == (4, 9)
    assert (by_feed["details"]["before"]["hits"], by_feed["details"]["after"]["hits"]) == (9, 7)
    assert (refused["outcome"], refused["status"]) == ("refused", 400)
    assert "is not a domain" in refused["reason"]
    await audited.http.put("/v1/domains", headers={"If-Match": "*"}, json={"domains": {"b.test": {"hits": 1}}})
    replaced = (await entries(audited, action="domains"))[0]["details"]
    assert replaced["changed"] == 2
    assert replaced["before"]["a.test"]["hits"] == 7
    assert replaced["after"] == {"a.test": {}, "b.test": {"hits": 1}}


async def test_what_only_reads_or_is_not_valid_has_no_entry(audited: Service) -> None:
    await audited.feed({**STOP, "action": "info"})
    await audited.feed({"uuid": "i", "appid": "shop", "stats": "all"})
    await audited.http.post("/poll", json={"poll_id": "x"})
    await audited.http.post("/")
    await audited.http.post(f"{CALLBACKS}crawl/{'0' * 32}", content=b"a push of a stranger")
    await audited.http.post("/v1/crawls", json={"appid": "shop"})
    await audited.http.get("/v1/crawls")
    assert await entries(audited) == []


async def test_a_batch_has_one_entry(audited: Service) -> None:
    batch = [{**CRAWL, "crawlid": f"c{number}"} for number in range(5)]
    await audited.http.post("/v1/crawls", json=[*batch, {"appid": "x"}])
    [entry] = await entries(audited)
    assert entry["subject"] == "shop/c0 shop/c1 shop/c2"
    details = entry["details"]
    assert (details["requests"], details["crawls"], details["added"], details["refused"]) == (5, 5, 5, 1)


async def test_pages_are_newest_first_and_can_be_filtered(audited: Service) -> None:
    for number in range(5):
        await audited.http.patch(f"/v1/domains/d{number}.test", json={"hits": 1})
    await audited.http.post("/v1/crawls", json=CRAWL)
    names, cursor = [], ""
    while True:
        page = (await audited.http.get("/v1/audit", params={"limit": 2, "cursor": cursor, "action": "domain"})).json()
        names += [entry["subject"] for entry in page["items"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert names == [f"d{number}.test" for number in (4, 3, 2, 1, 0)]
    assert [e["action"] for e in await entries(audited, subject="spring")] == ["crawl.submit"]
    assert await entries(audited, actor="token") == []
    assert (await audited.http.get("/v1/audit", params={"cursor": "x"})).status_code == 400


async def test_the_page_names_parameters_that_are_no_filters(audited: Service) -> None:
    await audited.http.patch("/v1/domains/a.test", json={"hits": 1})
    page = (await audited.http.get("/ui/audit", params={"who": "nobody", "crawls": "9"})).text
    assert "change nothing: who. Filters are actor, action, subject." in page
    assert "change nothing" not in (await audited.http.get("/ui/audit?actor=local&part=live")).text


async def test_a_service_with_a_token_names_it_and_one_without_a_history_has_no_audit(
    start: Start, history: HistoryStore
) -> None:
    headers = {"Authorization": "Bearer secret"}
    async with start(history=history, audit=HistoryAudit(history), token="secret") as service:
        assert (await service.http.get("/v1/audit")).status_code == 401
        assert (await service.http.post("/v1/crawls", json=CRAWL)).status_code == 401
        service.http.headers.update(headers)
        await service.http.post("/v1/crawls", json=CRAWL)
        assert [entry["actor"] for entry in await entries(service)] == ["token"]
    async with start() as plain:
        answer = await plain.http.get("/v1/audit")
        assert (answer.status_code, "history.database" in answer.text) == (404, True)


async def test_a_change_is_made_while_the_audit_is_away_and_the_log_has_it(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = HistoryStore(f"sqlite:///{tmp_path}/no-such-folder/history.db")
    async with start(history=away, audit=HistoryAudit(away)) as service:
        assert (await service.http.post("/v1/crawls", json=CRAWL)).status_code == 201
        assert (await service.http.delete("/v1/crawls/shop/spring")).status_code == 200
    said = [record.message for record in caplog.records if record.message.startswith("audit_incomplete")]
    assert [line.split()[1:3] for line in said] == [["crawl.submit", "shop/spring"], ["crawl.stop", "shop/spring"]]
    assert PASSWORD not in "".join(said)
    await away.close()


async def test_an_entry_that_comes_late_is_completed_too(
    audited: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would say for ever that the service was killed."""
    monkeypatch.setattr(history_audit, "_WAIT_SECONDS", 0.05)
    holder = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    changes = [audited.http.patch(f"/v1/domains/d{number}.test", json={"hits": 1}) for number in range(3)]
    changes.append(audited.http.post("/v1/crawls/shop/no/retry"))
    assert sorted(answer.status_code for answer in await asyncio.gather(*changes)) == [200, 200, 200, 404]
    assert await entries(audited) == []
    monkeypatch.setattr(history_audit, "_WAIT_SECONDS", 60.0)
    holder.execute("ROLLBACK")
    holder.close()
    async with asyncio.timeout(60):
        while not (found := await entries(audited)) or "begun" in [entry["outcome"] for entry in found]:
            pass
    await audited.http.patch("/v1/domains/after.test", json={"hits": 1})  # the audit is not taken for away any more
    assert (await entries(audited))[0]["subject"] == "after.test"
