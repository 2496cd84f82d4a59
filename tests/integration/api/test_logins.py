"""/v1/logins: stored as by the command, listed without secrets, used again after a failure, deleted."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from gossamer.cli.commands.logins import sealed_login
from gossamer.frontier.valkey.logins import LoginFailure, StoredLogin
from gossamer.session.sealed_login import open_login
from gossamer.session.session_file import SiteLogin
from gossamer.session.vault import open_vault_keys
from gossamer.storage.secret_keys import KEYS_FILE_VARIABLE, KEYS_VARIABLE

from .conftest import Service

PATH = "/v1/logins/shop"
PASSWORD = "hunter2-of-alice"
COOKIES = "#HttpOnly_a.test\tFALSE\t/\tFALSE\t0\tsid\thunter2-of-bob\n"
FORM = {"form": "http://www.a.test/login", "fields": {"email": "user", "pass": "password"}}
LOGIN = {
    "accounts": {
        "alice": {"user": "alice", "password": PASSWORD},
        "bob": {"cookies": COOKIES, "user": "b", "password": "hunter2-2"},
    },
    "login": FORM,
    "never_follow": ["/bye"],
    "budget": "account",
}
FILE = """
accounts:
  alice: {user: alice, password: {env: ALICE}}
  bob: {cookies: cookies.txt, user: b, password: {file: bob}}
login: {form: "http://www.a.test/login", fields: {email: user, pass: password}}
never_follow: [/bye]
budget: account
"""
ACCOUNT = {"user": "me", "password": PASSWORD}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, Fernet.generate_key().decode())
    monkeypatch.setenv("ALICE", PASSWORD)


def opened(login: StoredLogin) -> SiteLogin:
    """A login as workers read it."""
    keys = open_vault_keys(os.environ)
    assert keys
    found = open_login(keys, "shop", login.version, login.sealed)
    assert found
    return found


def comparable(login: SiteLogin) -> Any:
    """All of a login but the time at which its cookies were read."""
    cookies = [[(one.name, one.value, one.domain, one.host_only) for one in each.cookies] for each in login.accounts]
    return login.site, login.steps, login.signs, login.never_follow, [each.values for each in login.accounts], cookies


async def test_a_login_is_stored_as_by_the_command(service: Service, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    (tmp_path / "cookies.txt").write_text(COOKIES)
    (tmp_path / "bob").write_text("hunter2-2\n")
    answer = await service.http.put(PATH, json=LOGIN, params={"days": 30})
    assert answer.status_code == 200, answer.text
    [(name, by_request)] = (await service.frontier.logins.all()).items()
    by_command = sealed_login("shop", tmp_path / "shop.yaml", now=time.time(), days=30)
    public = ("site", "accounts", "never_follow", "budget")
    assert [getattr(by_request, one) for one in public] == [getattr(by_command, one) for one in public]
    assert by_request.expires == pytest.approx(by_command.expires, abs=60)
    assert comparable(opened(by_request)) == comparable(opened(by_command))
    listed = await service.http.get("/v1/logins")
    assert listed.json() == {"items": [answer.json()]}
    assert (name, answer.json()["accounts"], answer.json()["failed"]) == ("shop", ["alice", "bob"], {})
    assert "hunter2" not in answer.text + listed.text
    assert b"hunter2" not in by_request.sealed


async def test_a_login_that_has_failed_is_retried_replaced_and_deleted(service: Service) -> None:
    logins = service.frontier.logins
    request = {"appid": "shop", "crawlid": "c", "url": "http://a.test/", "login": "shop"}
    unknown = (await service.http.post("/v1/crawls", json=request)).json()
    assert unknown["errors"][0]["field"] == "login"
    first = (await service.http.put(PATH, json=LOGIN)).json()
    assert (await service.http.post("/v1/crawls", json=request)).status_code == 201

    async def fail() -> None:
        version = (await logins.all())["shop"].version
        await logins.fail("shop", "alice", LoginFailure(version, time.time(), "The site shows the form again."))
        [shown] = (await service.http.get("/v1/logins")).json()["items"]
        assert shown == {**first, "expires": shown["expires"], "failed": {"alice": "The site shows the form again."}}

    await fail()
    for retried in (True, False):
        assert (await service.http.post(f"{PATH}/retry")).json() == {"name": "shop", "retried": retried}
    await fail()
    assert (await service.http.put(PATH, json=LOGIN)).json()["failed"] == {}
    assert (await service.http.delete(PATH)).status_code == 204
    assert (await service.http.get("/v1/logins")).json() == {"items": []}
    for gone in (await service.http.delete(PATH), await service.http.post(f"{PATH}/retry")):
        assert (gone.status_code, gone.json()["detail"]) == (404, "no login 'shop' is stored. There is none.")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"accounts": {"me": {**ACCOUNT, "password": {"file": "/etc/hosts"}}}}, "a request cannot name files"),
        ({"accounts": {"me": {**ACCOUNT, "password": {"env": "HOME"}}}}, "a request cannot name files"),
        ({"accounts": {"me": {"cookies": {"file": "/etc/hostname"}}}}, "cookies: a request cannot name files"),
        ({"accounts": {"me": {"cookies": "/etc/hostname"}}}, "has no valid cookie of a.test"),
        ({"login": {"spider": "/tmp/shop.py"}}, "name the spider"),
        ({"login": {"spider": "shop.py:Shop"}}, "name the spider"),
        ({"login": {"spider": True}}, "name the spider"),
        ({"login": {**FORM, "form": "http://b.test/"}}, "the login is at b.test"),
        ({"never_follow": ["(?=a)b"]}, "never_follow"),
        ({"accounts": {"me": PASSWORD}}, "Expected `object`"),
        ({"acounts": {}}, "unknown field `acounts`"),
        ({"accounts": {}}, "name an account"),
        ({"login": {**FORM, "form": PASSWORD}}, "This is not an http or https URL"),
        ({"login": {**FORM, "form": f"ftp://me:{PASSWORD}@a.test/"}}, "Only http and https URLs are crawled"),
        ({"login": {**FORM, "form": f"http://{PASSWORD}.test/"}}, "<redacted>.test, which does not belong to the"),
        ({"login": {**FORM, "fields": {"p": "hunter2" * 30}}}, "<redacted>, which the login needs for the field p"),
        ({"login": {**FORM, "select": "hunter2["}}, "select: the CSS selector '<redacted>'"),
        ({"login": {**FORM, "body": "hunter2"}}, "Invalid enum value '<redacted>'"),
        ({"logged_out_when": {"selector": "hunter2["}}, "selector: the CSS selector '<redacted>'"),
    ],
)  # fmt: skip
async def test_a_login_that_no_worker_could_use_is_refused_without_its_secrets(
    service: Service, change: dict[str, Any], reason: str
) -> None:
    base = {"site": "a.test", "accounts": {"me": ACCOUNT}, "login": FORM}
    answer = await service.http.put(PATH, json=base | change)
    assert (answer.status_code, answer.json()["title"]) == (400, "Invalid request")
    assert reason in answer.json()["detail"]
    assert "hunter2" not in answer.text
    assert await service.frontier.logins.all() == {}


async def test_a_service_without_a_key_stores_no_login(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE)
    monkeypatch.delenv(KEYS_FILE_VARIABLE, raising=False)
    answer = await service.http.put(PATH, json=LOGIN)
    assert answer.status_code == 400
    assert "GOSSAMER_SECRET_KEYS_FILE" in answer.json()["detail"]
    bad_name = await service.http.put("/v1/logins/a%20b", json=LOGIN)
    assert "a login cannot have the name" in bad_name.json()["detail"]
    for days in (0, 3651):
        assert (await service.http.put(PATH, json=LOGIN, params={"days": days})).json()["errors"][0]["field"] == "days"
