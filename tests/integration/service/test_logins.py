"""Logins of a service: requests that name one, a login that fails, is corrected and deleted, and who says so."""

import asyncio
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet

from gossamer.cli.commands.logins import sealed_login
from gossamer.fakeweb.serving import serve
from gossamer.fakeweb.spec import WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Terms, login_pool
from gossamer.valkey.datadir import running_address
from gossamer_fakeweb.members import ACCOUNTS, Members
from tests.servers.crawling import command, gossamer
from tests.servers.crawls import open_crawl
from tests.servers.service import Talk, Up, talking, up

SESSION = """
accounts:
  alice: {{user: alice, password: {{env: ALICE}}}}
login:
  form: {base}/login
  fields: {{user: user, password: password}}
"""
ENVIRONMENT = {"GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode(), "ALICE": ACCOUNTS["alice"]}
FLAGS = ("--allow-network", "127.0.0.0/8", "--resolve", "members.test:127.0.0.1", "--processes", "1")


async def said(service: Up, *words: str, **environment: str) -> str:
    """What a command says about the service, as soon as it has ended."""
    done = await asyncio.to_thread(gossamer, *words, cwd=service.folder, env={**ENVIRONMENT, **environment})
    return done.stdout + done.stderr


async def store(frontier: ValkeyFrontier, name: str, file: Path, password: str) -> None:
    """Store a login as the command does."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**ENVIRONMENT, "ALICE": password}.items():
            patch.setenv(variable, value)
        await frontier.logins.put(name, sealed_login(name, file, now=time.time(), days=1))


async def posted(service: Up, **fields: object) -> dict[str, Any]:
    """The API's answer to one request."""
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(f"{service.api}/v1/crawls", json=[{"appid": "testapp", **fields}])
    item: dict[str, Any] = answer.json()["items"][0]
    return item


async def put(service: Up, name: str, login: dict[str, Any]) -> None:
    """Store a login by the API."""
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.put(f"{service.api}/v1/logins/{name}", json=login)
    assert answer.status_code == 200, answer.text


def secrets_of(user: str) -> dict[str, str]:
    return {"user": user, "password": ACCOUNTS[user]}


async def shown(service: Up, path: str, **query: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=30) as client:
        found: dict[str, Any] = (await client.get(f"{service.api}{path}", params=query)).json()
    return found


@asynccontextmanager
async def connected(service: Up) -> AsyncIterator[ValkeyFrontier]:
    address = running_address(service.folder / ".gossamer")
    assert address
    frontier = await ValkeyFrontier.connect(address)
    try:
        yield frontier
    finally:
        await frontier.close()


async def trouble(service: Up, *words: str) -> str:
    """What the API says of the crawl's login, as soon as it has these words."""
    async with asyncio.timeout(30):
        while True:
            found: str = (await shown(service, "/v1/crawls/testapp/one"))["login_trouble"]
            if all(word in found for word in words):
                return found
            await asyncio.sleep(0.05)


def all_bytes(folder: Path) -> bytes:
    """The contents of all files in a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(120)
async def test_a_login_that_fails_is_named_everywhere_and_the_crawl_goes_on_when_it_is_corrected(
    tmp_path: Path,
) -> None:
    async with serve(WebSpec(members=12)) as web:
        site = web.extra_site_of("members.test")
        assert isinstance(site, Members)
        base = web.site.base("members.test")
        (tmp_path / "shop.yaml").write_text(SESSION.format(base=base))
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "ALICE"}
        with up(tmp_path, *FLAGS, environment=environment) as service:
            async with talking(service) as talk, connected(service) as frontier:
                await passes_through_its_life(service, talk, frontier, site, base)
            assert service.stop() == 0
    assert site.logouts == 0
    left = all_bytes(tmp_path)
    assert not any(secret.encode() in left for secret in (ACCOUNTS["alice"], *site.session_names))


async def passes_through_its_life(service: Up, talk: Talk, frontier: ValkeyFrontier, site: Members, base: str) -> None:
    url, file, fields = f"{base}/", service.folder / "shop.yaml", {"url": f"{base}/", "maxdepth": 9}
    unknown = await posted(service, **fields, crawlid="one", login="shop")
    assert (unknown["status"], unknown["field"]) == (400, "login")
    assert "there is none. Store one with: gossamer logins put shop FILE" in unknown["reason"]
    assert "shop: members.test, with alice" in await said(service, "logins", "put", "shop", "shop.yaml", ALICE="no")
    other = await posted(service, **fields, crawlid="one", login="shops")
    assert "there are shop. Store one" in other["reason"]
    by_proxy = await posted(service, **fields, crawlid="one", login="shop", proxy="http://p.test:1")
    assert by_proxy["field"] == "proxy"

    assert (await posted(service, **fields, crawlid="one", login="shop"))["status"] == 201
    words = ("has failed as alice; so requests wait.", "shows the form again", "gossamer logins retry shop")
    text = await trouble(service, *words)
    assert site.logins == []
    assert text in await said(service, "crawls", "show", "testapp/one")
    assert (await shown(service, "/v1/crawls/testapp/one/url", url=url))["login_trouble"] == text
    await store(frontier, "other", file, "no")
    joined = await posted(service, **fields, crawlid="one", login="other")
    assert joined["reason"].startswith("the crawl runs without this login")
    await is_refused_what_its_login_is_not_for(service, talk, frontier, base)

    login = {"form": f"{base}/login", "fields": {"user": "user", "password": "password"}}
    await put(service, "shop", {"accounts": {"alice": secrets_of("alice")}, "login": login})
    finished = await talk.event("finished", "one")
    assert (finished["fetched"], "login_failed" in finished) == (12, False)
    counts = await frontier.crawl_info(CrawlId("testapp", "one"))
    assert counts
    assert counts.total().failed == {"bad_request": 1}, "what was sent while the crawl began is no page of a visitor"
    assert site.logins == ["alice"]

    await store(frontier, "shop", file, "no")
    assert (await posted(service, **fields, crawlid="two", login="shop"))["status"] == 201
    await frontier.logins.delete("shop")
    await frontier.stop_crawl(CrawlId("testapp", "two"))
    stopped = await talk.event("stopped", "two")
    assert stopped["login_failed"].startswith("The login shop is not stored any more")


async def is_refused_what_its_login_is_not_for(service: Up, talk: Talk, frontier: ValkeyFrontier, base: str) -> None:
    """A request without the login of its crawl, and one for another site; on the bus, too, and by the command."""
    without = {"appid": "testapp", "crawlid": "one", "url": f"{base}/p/1"}
    elsewhere = {"appid": "testapp", "crawlid": "other", "url": "http://www.other.test/", "login": "shop"}
    reasons = {
        "one": 'the crawl runs with the login shop. Send the request with "login": "shop", or for another crawl',
        "other": "it logs in to members.test, and http://www.other.test/ is at other.test",
    }
    for request in (without, elsewhere):
        answer = await posted(service, **request)
        assert (answer["status"], answer["field"]) == (400, "login")
        assert answer["reason"] == reasons[request["crawlid"]]
        fed = await said(service, "feed", json.dumps(request))
        assert f"login: {answer['reason']}" in fed
    mixed = [{**without, "crawlid": "mixed", **login} for login in ({"login": "shop"}, {}, {"login": "shop"})]
    await talk.say(without, elsewhere, *mixed)
    letters = await talk.until(talk.topics.dead_letter, lambda found: len(found) == 3)
    assert {letter["reason"] for letter in letters} == set(reasons.values())
    await frontier.stop_crawl(CrawlId("testapp", "mixed"))
    beginning = Crawl(id=CrawlId("testapp", "one"), pool=login_pool("shop"))
    await open_crawl(frontier, [f"{base}/p/1?visitor"], Terms(), crawl=beginning)


@contextmanager
def worker_with_the_key(folder: Path) -> Iterator[None]:
    """A further worker of the service in this folder."""
    words = command("worker", *FLAGS, "-q", "-o", "pages.jsonl", "--data-dir", ".gossamer")
    worker = subprocess.Popen(words, cwd=folder, env={**os.environ, **ENVIRONMENT})
    try:
        yield
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("keys", "reason"),
    [("", "it has no key. Set GOSSAMER_SECRET_KEYS_FILE"), ("short", "a key for secrets is not valid")],
)
async def test_a_crawl_says_that_it_waits_for_a_worker_with_the_key(tmp_path: Path, keys: str, reason: str) -> None:
    async with serve(WebSpec(members=3)) as web:
        base = web.site.base("members.test")
        (tmp_path / "shop.yaml").write_text(SESSION.format(base=base))
        with up(tmp_path, *FLAGS, environment={"GOSSAMER_SECRET_KEYS": keys}) as service:
            async with talking(service) as talk, connected(service) as frontier:
                await store(frontier, "shop", tmp_path / "shop.yaml", ACCOUNTS["alice"])
                request = {"crawlid": "one", "url": f"{base}/", "maxdepth": 9, "login": "shop"}
                assert (await posted(service, **request))["status"] == 201
                text = await trouble(service, "The worker ", f"cannot use the login shop: {reason}")
                assert text.endswith(" Requests wait for a worker that can.")
                assert text in await said(service, "crawls", "show", "testapp/one")
                why = ("why", request["url"], "--app", "testapp", "--crawl-id", "one")
                assert text in await said(service, *why, "--resolve", "members.test:127.0.0.1")
                with worker_with_the_key(tmp_path):
                    assert (await talk.event("finished", "one"))["fetched"] == 3


@pytest.mark.timeout(120)
async def test_each_account_of_a_service_has_a_budget_of_its_own(tmp_path: Path) -> None:
    """Of 12 hits in an hour: together the accounts get more, none of them does."""
    policies = "default: {hits: 1000, window: 1}\ndomains: {members.test: {hits: 12, window: 3600, moderated: false}}\n"
    async with serve(WebSpec(members=60)) as web:
        site = web.extra_site_of("members.test")
        assert isinstance(site, Members)
        base = web.site.base("members.test")
        login = {"form": f"{base}/login", "fields": {"user": "user", "password": "password"}}
        flags = (*FLAGS[:-1], "2")
        with up(tmp_path, *flags, environment=ENVIRONMENT, policies=policies) as service:
            accounts = {user: secrets_of(user) for user in ACCOUNTS}
            await put(service, "shop", {"accounts": accounts, "login": login, "budget": "account"})
            async with talking(service) as talk:
                request = {"appid": "testapp", "crawlid": "one", "login": "shop", "maxdepth": 0}
                await talk.say(*({**request, "url": f"{base}/p/{number}"} for number in range(1, 60)))
                async with asyncio.timeout(40):
                    while True:
                        if len(site.visits) > 12 and len({visit.user for visit in site.visits}) == 2:
                            break
                        await asyncio.sleep(0.05)
    counted = Counter(visit.user for visit in site.visits)
    assert all(count <= 12 for count in counted.values())
    assert sorted(site.logins) == ["alice", "bob"]
