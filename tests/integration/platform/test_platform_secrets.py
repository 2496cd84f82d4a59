"""Environment variables and secrets of projects: what jobs get, and where a secret's value is found afterwards."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from gossamer.fakeweb import WebSpec, serve
from tests.servers import crawling
from tests.servers.forwarding import ForwardingProxy, run_forwarding
from tests.servers.ftp import ftp_server
from tests.servers.scrapyd import SERVES_NOTHING, Scrapyd, egg, scrapyd, spider, until

_VALUE = "hunter2-\u00e4-1f9c27d0"
_SHOWS = "yield {name: os.environ.get(name) for name in ('COLOR', 'API_KEY', 'GOSSAMER_SECRET_KEYS')}"
_SPIDERS = spider("shows", _SHOWS) + spider("sleepy", "yield {'awake': 1}\nawait asyncio.sleep(600)")
_VARIABLES = "/v1/projects/shop/variables"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    folder = tmp_path_factory.mktemp("secrets")
    keys = {"GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode()}
    with scrapyd(folder, conf="max_proc = 3", environment=keys) as running:
        _put(running, "API_KEY", _VALUE, secret=True)
        # The project needs its secret to be imported at all.
        content = egg(_SPIDERS, settings="import os\nos.environ['API_KEY']")
        assert running.deploy(content)["status"] == "ok"
        yield running


def _put(server: Scrapyd, name: str, value: str, *, secret: bool = False) -> Any:
    answer = server.client.put(f"{_VARIABLES}/{name}", json={"value": value, "secret": secret})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _run(server: Scrapyd, spider_name: str) -> Any:
    """An ended job."""
    job = server.client.post("/v1/jobs", json={"project": "shop", "spider": spider_name}).json()
    return _ended(server, job["id"])


def _ended(server: Scrapyd, job: int) -> Any:
    found: list[Any] = []

    def has_ended() -> bool:
        found[:] = [server.client.get(f"/v1/jobs/{job}").json()]
        return found[0]["state"] in ("finished", "failed", "cancelled")

    until(has_ended, what=lambda: f"{found}\n{server.said()}")
    return found[0]


def _items(server: Scrapyd, job: int) -> Any:
    return server.client.get(f"/v1/jobs/{job}/items").json()["items"]


def _files_with(folder: Path, value: str) -> list[Path]:
    forms = [value.encode(), json.dumps(value)[1:-1].encode()]
    return [path for path in folder.rglob("*") if path.is_file() and any(form in path.read_bytes() for form in forms)]


def test_a_job_gets_variables_and_secrets_of_its_project(server: Scrapyd) -> None:
    _put(server, "COLOR", "red")
    job = _run(server, "shows")
    assert job["state"] == "finished", server.said()
    assert _items(server, job["id"]) == [{"COLOR": "red", "API_KEY": _VALUE, "GOSSAMER_SECRET_KEYS": None}]


def test_a_secret_is_in_no_answer_no_log_of_the_server_and_no_file(server: Scrapyd) -> None:
    known = _files_with(server.folder, _VALUE)  # items of other tests, which are their projects' own business
    shown = _put(server, "API_KEY", _VALUE, secret=True)
    assert (shown["secret"], shown["value"]) == (True, None)
    job = server.client.post("/v1/jobs", json={"project": "shop", "spider": "sleepy"}).json()["id"]
    until(lambda: _items(server, job), what=server.said)
    for path in (_VARIABLES, "/v1/projects", f"/v1/jobs/{job}", "/v1/jobs", "/v1/audit", "/listjobs.json"):
        assert _VALUE not in server.client.get(path).text
    # The job runs now: its environment is where it belongs, and nowhere else.
    assert _VALUE.encode() in Path(f"/proc/{server.client.get(f'/v1/jobs/{job}').json()['pid']}/environ").read_bytes()
    assert _files_with(server.folder, _VALUE) == known
    server.client.post(f"/v1/jobs/{job}/cancel", params={"signal": 9})
    assert _ended(server, job)["state"] == "cancelled"
    assert _files_with(server.folder, _VALUE) == known
    actions = [(entry["action"], entry["subject"]) for entry in server.client.get("/v1/audit").json()]
    assert ("secret.set", "shop API_KEY") in actions


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("A-B", "x", "A-B is no name of an environment variable"),
        ("1A", "x", "1A is no name"),
        ("SCRAPY_PROJECT", "x", "set by the platform itself"),
        ("A", "x\0y", "value has a NUL character"),
        ("A", "\u00e4" * 9000, "longer than 16384 bytes"),
        ("A", "x" * 17000, "value: String should have at most"),
    ],
)
def test_a_variable_that_no_process_can_have_is_refused(server: Scrapyd, name: str, value: str, reason: str) -> None:
    answer = server.client.put(f"{_VARIABLES}/{name}", json={"value": value, "secret": True})
    assert answer.status_code == 400
    assert reason in answer.json()["detail"]
    assert value not in answer.text or value == "x"


def test_keys_change_and_a_job_whose_secret_cannot_be_decrypted_fails_with_its_name(tmp_path: Path) -> None:
    old, new, other = (Fernet.generate_key().decode() for _ in range(3))
    keys = tmp_path / "keys"
    environment = {"GOSSAMER_SECRET_KEYS_FILE": str(keys)}

    def tokens() -> list[str]:
        with sqlite3.connect(tmp_path / "dbs/gossamer/state.db") as database:
            return [token for (token,) in database.execute("SELECT value FROM variable WHERE is_secret")]

    keys.write_text(old)
    with scrapyd(tmp_path, environment=environment, quick=True) as server:
        _put(server, "API_KEY", _VALUE, secret=True)
        assert server.deploy(egg(_SPIDERS))["status"] == "ok"
    keys.write_text(f"{new}\n{old}\n")
    with scrapyd(tmp_path, environment=environment, quick=True) as server:
        before = tokens()
        assert server.client.post("/v1/secrets/rotate").json() == {"rotated": 1, "unreadable": []}
        assert tokens() != before
        assert json.loads(Fernet(new).decrypt(tokens()[0])) == ["shop", "API_KEY", _VALUE]
    keys.write_text(other)
    with scrapyd(tmp_path, environment=environment, quick=True) as server:
        job = _run(server, "quick")
        assert job["state"] == "failed"
        assert job["reason"].startswith("secret_unreadable: API_KEY: none of the manager's keys decrypts it")
        assert "jobs of project shop will fail: secret API_KEY" in server.said()
        assert server.client.post("/v1/secrets/rotate").json() == {"rotated": 0, "unreadable": ["shop/API_KEY"]}
        broken = server.deploy(egg(_SPIDERS), version="2")
        assert "secret API_KEY: none of the manager's keys decrypts it" in broken["message"]


def test_a_project_that_is_deleted_takes_its_secrets_along(server: Scrapyd) -> None:
    variables = "/v1/projects/gone/variables"
    server.client.put(f"{variables}/API_KEY", json={"value": _VALUE, "secret": True})
    assert server.deploy(egg(_SPIDERS, name="gone"), project="gone")["status"] == "ok"
    assert len(server.client.get(variables).json()) == 1
    assert server.post("delproject", project="gone")["status"] == "ok"
    assert server.client.get(variables).json() == []


def _command(server: Scrapyd, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """What a command prints that is run against the server."""
    done = crawling.gossamer(*arguments, "--target", str(server.client.base_url), cwd=server.folder, stdin=stdin)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def test_variables_and_secrets_are_set_listed_and_deleted_by_commands(server: Scrapyd) -> None:
    project = ("--project", "commands")
    _command(server, "variables", "set", "CURRENCY", "EUR", *project)
    _command(server, "variables", "set", "PASSWORD", "--secret", *project, stdin=f"{_VALUE}\n")
    shown = json.loads(_command(server, "variables", "list", "--json", *project))
    assert [(each["name"], each["value"]) for each in shown] == [("CURRENCY", "EUR"), ("PASSWORD", None)]
    assert "(secret)" in _command(server, "variables", "list", *project)
    assert "read a command line" in _command(server, "variables", "set", "X", "typed", "--secret", *project, code=2)
    assert "no other key is needed" in _command(server, "variables", "rotate")
    _command(server, "variables", "delete", "PASSWORD", *project)
    assert len(json.loads(_command(server, "variables", "list", "--json", *project))) == 1


def test_a_manager_without_a_key_is_named_before_a_secret_is_asked_for(tmp_path: Path) -> None:
    """Standard input has no value, which would be the error if it was read first."""
    with scrapyd(tmp_path, quick=True) as server:
        refused = _command(server, "variables", "set", "PASSWORD", "--secret", "--project", "shop", code=2)
    assert "the manager has no key for secrets" in refused
    assert "no value" not in refused


def test_tokens_are_made_listed_and_revoked_by_commands_and_the_audit_has_it(server: Scrapyd) -> None:
    token = _command(server, "tokens", "make", "nightly", "--scope", "run", "--project", "shop", "--days", "1").strip()
    header = {"Authorization": f"Bearer {token}"}
    assert server.client.get("/v1/jobs", headers=header).status_code == 200
    assert server.client.put(f"{_VARIABLES}/X", json={"value": "x"}, headers=header).status_code == 403
    [shown] = json.loads(_command(server, "tokens", "list", "--json"))
    assert (shown["name"], shown["scope"], shown["project"]) == ("nightly", "run", "shop")
    assert shown["expires_at"] is not None
    assert token not in json.dumps(shown)
    _command(server, "tokens", "revoke", str(shown["id"]))
    assert server.client.get("/v1/jobs", headers=header).status_code == 401
    audit = [(entry["action"], entry["subject"]) for entry in server.client.get("/v1/audit").json()]
    assert audit[:2] == [("token.revoke", f"{shown['id']} nightly"), ("token.make", f"{shown['id']} nightly run shop")]
    assert "none of read, run" in _command(server, "tokens", "make", "x", "--scope", "all", code=2)


_FETCH = """
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"gossamer.scrapy.ProxyPoolMiddleware": 740}, "LOG_LEVEL": "DEBUG"}

    def parse(self, response):
        yield {"url": response.url, "proxy": response.meta["gossamer_proxy"]}
"""


def test_the_log_of_a_job_has_no_password_of_a_feed(server: Scrapyd, tmp_path: Path) -> None:
    with ftp_server(tmp_path / "ftp") as address:
        assert ":secret@" in address
        feeds = json.dumps({f"{address}/items.jl": {"format": "jsonlines"}})
        job = {"project": "shop", "spider": "shows", "settings": {"FEEDS": feeds}}
        ended = _ended(server, server.client.post("/v1/jobs", json=job).json()["id"])
    log = server.client.get(f"/v1/jobs/{ended['id']}/log").text
    assert f"Stored jsonlines feed (1 items) in: {address.replace(':secret@', ':***@')}/items.jl" in log
    assert ":secret@" not in log


async def test_a_project_has_proxies_of_its_own_as_a_secret(server: Scrapyd) -> None:
    """The list with its password is the variable GOSSAMER_PROXIES; one of the proxies is away."""
    away, good = ForwardingProxy(), ForwardingProxy(password="Basic a2V5dXNlcjpwYXNzLTQ3MTE=")
    async with serve(WebSpec(hosts=1, pages=20)) as web, run_forwarding(good):
        async with run_forwarding(away):
            pass
        text = f"{away.url} http://keyuser:pass-4711@127.0.0.1:{good.port}"
        url = f"http://site0.test:{web.port}/p/1"
        deployed = egg(
            spider("fetches", f"yield scrapy.Request({url!r})", _FETCH), name="proxied", usual=SERVES_NOTHING
        )

        def run() -> tuple[Any, str, str]:
            path = "/v1/projects/proxied/variables/GOSSAMER_PROXIES"
            assert server.client.put(path, json={"value": text, "secret": True}).status_code == 200
            assert server.deploy(deployed, project="proxied")["status"] == "ok"
            number = server.client.post("/v1/jobs", json={"project": "proxied", "spider": "fetches"}).json()["id"]
            job = _ended(server, number)
            pages = [f"/v1/jobs/{number}", f"/v1/jobs/{number}/items", f"/v1/jobs/{number}/log", f"/jobs/{number}"]
            return job, _items(server, number), "".join(server.client.get(page).text for page in pages)

        job, items, shown = await asyncio.to_thread(run)
    assert job["state"] == "finished", shown
    assert items == [{"url": url, "proxy": 2}]
    assert good.pages("site0.test") == 1
    assert "Proxy 1 of 2 could not be used" in shown
    for secret in ("pass-4711", "keyuser", "a2V5dXNlc", f":{good.port}", f":{away.port}"):
        assert secret not in shown
    assert _files_with(server.folder, "pass-4711") == []
