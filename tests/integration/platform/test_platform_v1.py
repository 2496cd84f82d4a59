"""The platform's own API on a running server: jobs, limits, retries, logs, items, tokens."""

import csv
import io
import json
import os
import resource
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_FLAKY = """
yield {'first': not os.path.exists('seen')}
if not os.path.exists('seen'):
    while not os.path.exists('items/shop/flaky/again.jl'):
        await asyncio.sleep(0.05)
    open('seen', 'w').close()
    os._exit(9)
"""
_SPIDERS = "".join(
    [
        spider("good", "yield {'a': 1, 'name': 'x'}\nyield {'a': 2, 'b': ['<&>', None]}"),
        spider("numbers", "for number in range(int(self.count)):\n    yield {'number': number}"),
        spider("sleepy", "yield {'awake': 1}\nawait asyncio.sleep(600)"),
        spider("hungry", "eaten = bytearray(os.urandom(1024)) * 200_000\nawait asyncio.sleep(600)"),
        spider("flaky", _FLAKY),
        spider("broken", "os._exit(5)"),
        spider("limits", "import resource\nyield {'files': resource.getrlimit(resource.RLIMIT_NOFILE)}"),
        spider("talks", "while True:\n    print('x' * 10_000)\n    await asyncio.sleep(0.01)"),
        spider("scrapes", "while True:\n    yield {'text': 'x' * 10_000}\n    await asyncio.sleep(0.01)"),
    ]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("platform"), conf="max_proc = 3") as running:
        answer = running.client.post("/v1/versions", params={"project": "shop", "version": "1"}, content=egg(_SPIDERS))
        assert answer.status_code == 201, answer.text
        assert answer.json()["spiders"] == [
            "broken",
            "flaky",
            "good",
            "hungry",
            "limits",
            "numbers",
            "scrapes",
            "sleepy",
            "talks",
        ]
        yield running


def _create(server: Scrapyd, spider_name: str, **fields: Any) -> Any:
    answer = server.client.post("/v1/jobs", json={"project": "shop", "spider": spider_name, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def _when(server: Scrapyd, job: int, *states: str) -> Any:
    """The job once it is in one of the states."""
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = [server.client.get(f"/v1/jobs/{job}").json()]
        return found[0]["state"] in states

    until(is_there, what=lambda: f"{found}\n{server.said()}")
    return found[0]


def _ended(server: Scrapyd, job: int) -> Any:
    return _when(server, job, "finished", "failed", "cancelled")


def test_a_job_from_its_creation_to_its_items(server: Scrapyd) -> None:
    created = _create(server, "good", arguments={"x": "1"}, settings={"LOG_LEVEL": "INFO"}, priority=2.5)
    job = _ended(server, created["id"])
    assert (job["state"], job["reason"], job["attempt"], job["exit_code"]) == ("finished", "", 1, 0)
    assert (job["arguments"], job["settings"], job["priority"]) == ({"x": "1"}, {"LOG_LEVEL": "INFO"}, 2.5)
    assert (created["requested_version"], created["version"], created["incarnation"]) == (None, None, "")
    assert (job["requested_version"], job["version"], len(job["incarnation"])) == (None, "1", 32)
    assert job["created_at"] <= job["started_at"] <= job["ended_at"]
    address = f"/v1/jobs/{job['id']}"
    assert server.client.get(f"{address}/items").json() == {
        "items": [{"a": 1, "name": "x"}, {"a": 2, "b": ["<&>", None]}],
        "next": None,
        "end": "51",
    }
    log = server.client.get(f"{address}/log")
    assert "Spider closed (finished)" in log.text
    assert log.headers["x-next-start"] == str(len(log.content))
    assert server.client.get(f"{address}/log", params={"tail": 20}).content == log.content[-20:]
    assert server.client.get(f"{address}/log", params={"start": 5}).content == log.content[5:]
    assert server.client.get(f"{address}/log", params={"start": 10**12}).content == b""


def test_items_in_every_format(server: Scrapyd) -> None:
    job = _ended(server, _create(server, "good")["id"])
    address = f"/v1/jobs/{job['id']}/items"
    exported = {form: server.client.get(f"{address}.{form}").content for form in ("jsonl", "json", "csv", "xml")}
    items = [{"a": 1, "name": "x"}, {"a": 2, "b": ["<&>", None]}]
    assert [json.loads(line) for line in exported["jsonl"].splitlines()] == items
    assert json.loads(exported["json"]) == items
    assert list(csv.DictReader(io.StringIO(exported["csv"].decode()))) == [
        {"a": "1", "name": "x", "b": ""},
        {"a": "2", "name": "", "b": '["<&>",null]'},
    ]
    fields = ElementTree.fromstring(exported["xml"]).findall("./item[2]/field")
    assert [field.get("name") for field in fields] == ["a", "b"]
    assert [value.text for value in fields[1]] == ["<&>", None]
    assert server.client.get(f"{address}.exe").status_code == 404


def test_items_page_by_page(server: Scrapyd) -> None:
    job = _ended(server, _create(server, "numbers", arguments={"count": "25"})["id"])
    seen, cursor, pages = [], "", 0
    while cursor is not None:
        page = server.client.get(f"/v1/jobs/{job['id']}/items", params={"limit": 10, "after": cursor}).json()
        seen += [item["number"] for item in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert (seen, pages) == (list(range(25)), 3)


def test_jobs_page_by_page_and_by_filter(server: Scrapyd) -> None:
    created = [_create(server, "numbers", name=f"page{number}", arguments={"count": "0"})["id"] for number in range(5)]
    for number in created:
        _ended(server, number)
    seen: list[int] = []
    cursor = ""
    while cursor is not None and len(seen) < 100:
        page = server.client.get("/v1/jobs", params={"limit": 2, "after": cursor, "spider": "numbers"}).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert seen == sorted(seen, reverse=True)
    assert set(created) <= set(seen)
    [found] = server.client.get("/v1/jobs", params={"name": "page3"}).json()["jobs"]
    assert found["id"] == created[3]
    assert server.client.get("/v1/jobs", params={"state": ["pending", "stopping"]}).json()["jobs"] == []


def test_a_request_that_is_repeated_with_its_key_creates_one_job(server: Scrapyd) -> None:
    body = {"project": "shop", "spider": "good", "arguments": {"x": "1"}}
    answers = [server.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    sent = server.client.post("/v1/inputs", params={"project": "shop"}, content=b"http://a.test/").json()
    others = ({"spider": "numbers"}, {"input": {"digest": sent["digest"]}}, {"label": "big"}, {"time_limit": 5})
    for change in (*others, {"is_urgent": True}):
        other = server.client.post("/v1/jobs", json={**body, **change}, headers={"Idempotency-Key": "k1"})
        assert (other.status_code, other.json()["type"]) == (409, "urn:gossamer:problem:job-conflict"), change


@pytest.mark.parametrize(("path", "size"), [("jobs", {}), ("groups", {"processes": 2})])
def test_a_repeated_request_is_answered_when_its_project_is_gone(
    server: Scrapyd, path: str, size: dict[str, int]
) -> None:
    project = f"gone-{path}"
    server.deploy(egg(spider("good")), project=project)
    body = {"project": project, "spider": "good", **size}
    first = server.client.post(f"/v1/{path}", json=body, headers={"Idempotency-Key": "k"})
    assert server.client.post("/delproject.json", data={"project": project}).json()["status"] == "ok"
    again = server.client.post(f"/v1/{path}", json=body, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200), again.text
    assert first.json()["id"] == again.json()["id"]


def test_a_second_job_of_one_name_is_refused(server: Scrapyd) -> None:
    _create(server, "good", name="unique")
    again = server.client.post("/v1/jobs", json={"project": "shop", "spider": "good", "name": "unique"})
    assert again.status_code == 409
    assert "has a job unique already" in again.json()["detail"]


def test_the_audit_has_deployments_that_end_badly(server: Scrapyd) -> None:
    broken = egg(spider("good"), settings="raise ValueError('broken')")
    assert server.deploy(broken, project="audited1")["status"] == "error"
    sent = server.client.post("/v1/versions", params={"project": "audited2", "version": "2"}, content=broken)
    assert sent.status_code == 422
    form = {"project": "778899", "version": "3"}
    server.client.post("/cloud/api/scrapyd/addversion.json", data=form, files={"egg": ("project.egg", broken)})
    entries = {(entry["action"], entry["subject"]) for entry in server.client.get("/v1/audit").json()}
    assert {
        ("scrapyd.addversion", "audited1 1"),
        ("version.deploy", "audited2 2"),
        ("cloud.deploy", "778899 3"),
    } <= entries


def test_the_key_of_a_group_belongs_to_the_group(server: Scrapyd) -> None:
    digests = []
    for content in (b"a", b"b"):
        sent = server.client.post("/v1/inputs", params={"project": "shop"}, content=content)
        digests.append(sent.json()["digest"])
    body = {"project": "shop", "spider": "good", "arguments": {"x": "1"}, "inputs": digests}
    key = {"Idempotency-Key": "g1"}
    answers = [server.client.post("/v1/groups", json=body, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200], answers[1].text
    assert answers[0].json()["id"] == answers[1].json()["id"]
    others = ({"spider": "numbers"}, {"arguments": {}}, {"inputs": digests[::-1]}, {"inputs": digests[:1]})
    for change in (*others, {"inputs": [], "processes": 2}):
        other = server.client.post("/v1/groups", json={**body, **change}, headers=key)
        assert (other.status_code, other.json()["type"]) == (409, "urn:gossamer:problem:job-conflict"), change


def test_the_key_of_processes_belongs_to_their_group(server: Scrapyd) -> None:
    body = {"project": "shop", "spider": "good", "processes": 2}
    key = {"Idempotency-Key": "g2"}
    answers = [server.client.post("/v1/groups", json=body, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200], answers[1].text
    assert server.client.post("/v1/groups", json={**body, "processes": 3}, headers=key).status_code == 409


def test_no_job_of_a_group_has_the_name_of_another_job(server: Scrapyd) -> None:
    _create(server, "good", name="parts-2")
    group = {"project": "shop", "spider": "good", "name": "parts", "processes": 3}
    again = server.client.post("/v1/groups", json=group)
    assert again.status_code == 409
    assert "has a job parts-2 already" in again.json()["detail"]
    assert server.client.get("/v1/jobs", params={"name": "parts-1"}).json()["jobs"] == []


def test_a_running_job_is_cancelled(server: Scrapyd) -> None:
    number = _create(server, "sleepy")["id"]
    _when(server, number, "running")
    assert server.client.post(f"/v1/jobs/{number}/cancel", params={"signal": 9}).status_code == 202
    assert _ended(server, number)["state"] == "cancelled"
    assert server.client.post(f"/v1/jobs/{number}/cancel").json()["state"] == "cancelled"


def test_a_job_that_failed_comes_with_the_end_of_its_log(server: Scrapyd) -> None:
    job = _ended(server, _create(server, "talks", file_limit=100_000)["id"])
    assert 0 < sum(map(len, job["last_log_lines"])) < 16 * 1024  # however long its lines are
    job = _ended(server, _create(server, "broken")["id"])
    assert job["reason"] == "exit_code: 5"
    assert 0 < len(job["last_log_lines"]) <= 20
    log = server.client.get(f"/v1/jobs/{job['id']}/log").text
    assert log.splitlines()[-len(job["last_log_lines"]) :] == job["last_log_lines"]
    assert _ended(server, _create(server, "good")["id"])["last_log_lines"] is None


def test_a_job_that_takes_too_long_has_failed(server: Scrapyd) -> None:
    job = _ended(server, _create(server, "sleepy", time_limit=3)["id"])
    assert (job["state"], job["reason"]) == ("failed", "timed_out")


def test_a_job_that_takes_too_much_memory_has_failed(server: Scrapyd) -> None:
    limit = 150 * 1024 * 1024
    job = _ended(server, _create(server, "hungry", memory_limit=limit)["id"])
    assert (job["state"], job["reason"]) == ("failed", "out_of_memory")
    assert _ended(server, _create(server, "good", memory_limit=limit)["id"])["state"] == "finished"


def test_a_job_may_have_so_many_files_open_as_it_says_or_its_spider_or_its_project(server: Scrapyd) -> None:
    def given(**fields: Any) -> Any:
        job = _ended(server, _create(server, "limits", version="1", **fields)["id"])
        assert (job["state"], job["requested_version"], job["version"]) == ("finished", "1", "1")
        [item] = server.client.get(f"/v1/jobs/{job['id']}/items").json()["items"]
        return job["open_files_limit"], item["files"]

    own = list(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert given() == (0, own)
    policy = "/v1/projects/shop/policies/limits"
    assert server.client.put(policy, json={"open_files_limit": 200}).json()["open_files_limit"] == 200
    try:
        assert given() == (200, [200, 200])
        assert given(open_files_limit=190) == (190, [190, 190])
    finally:
        server.client.delete(policy)
    shown = server.client.patch("/v1/projects/shop", json={"open_files_limit": 210}).json()
    try:
        assert shown["open_files_limit"] == 210
        assert given() == (210, [210, 210])
        assert given(open_files_limit=2**31 - 1)[1][1] >= own[1]  # as many as the machine permits
    finally:
        server.client.patch("/v1/projects/shop", json={"open_files_limit": 0})


@pytest.mark.parametrize(("name", "what"), [("talks", "log"), ("scrapes", "items")])
def test_a_job_that_writes_too_much_has_failed(server: Scrapyd, name: str, what: str) -> None:
    job = _ended(server, _create(server, name, file_limit=300_000)["id"])
    assert (job["state"], job["reason"]) == ("failed", f"file_limit: {what}")


def test_a_job_that_failed_is_tried_again_and_keeps_the_files_of_each_attempt(server: Scrapyd) -> None:
    job = _ended(server, _create(server, "flaky", retries=2, retry_seconds=0.1, name="again")["id"])
    assert (job["state"], job["attempt"], job["retries_left"]) == ("finished", 2, 1)
    [earlier] = job["earlier_attempts"]
    assert (earlier["attempt"], earlier["reason"]) == (1, "exit_code: 9")
    items = f"/v1/jobs/{job['id']}/items"
    assert server.client.get(items).json()["items"] == [{"first": False}]
    assert server.client.get(items, params={"attempt": 1}).json()["items"] == [{"first": True}]
    assert server.client.get(f"/v1/jobs/{job['id']}/log", params={"attempt": 3}).status_code == 404
    files = server.folder / "items/shop/flaky"
    assert sorted(os.listdir(files)) == ["again.attempt-2.jl", "again.jl"]
    [row] = [row for row in server.jobs()["finished"] if row["id"] == "again"]
    assert server.client.get(row["items_url"]).json() == {"first": False}


def test_a_project_runs_no_more_jobs_than_it_may(server: Scrapyd) -> None:
    server.client.post("/v1/versions", params={"project": "slow", "version": "1"}, content=egg(_SPIDERS))
    changed = server.client.patch("/v1/projects/slow", json={"max_running": 1})
    assert (changed.status_code, changed.json()["max_running"]) == (200, 1)
    first, second = (
        server.client.post("/v1/jobs", json={"project": "slow", "spider": "sleepy"}).json()["id"] for _ in range(2)
    )
    _when(server, first, "running")
    other = _create(server, "good")["id"]  # a slot is free for it, so one was free for the second, too
    assert _ended(server, other)["state"] == "finished"
    pending = server.client.get(f"/v1/jobs/{second}").json()
    assert (pending["state"], pending["waits_for"]) == ("pending", "the limit of slow: max_running is 1")
    server.client.post(f"/v1/jobs/{first}/cancel", params={"signal": 9})
    _when(server, second, "running")
    server.client.post(f"/v1/jobs/{second}/cancel", params={"signal": 9})
    assert _ended(server, second)["state"] == "cancelled"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/v1/jobs", {"project": "shop"}, 400, "spider"),
        ("POST", "/v1/jobs", {"project": "shop", "spider": "good", "time_limt": 5}, 400, "time_limt"),
        ("POST", "/v1/jobs", {"project": "shop", "spider": "good", "retries": -1}, 400, "retries"),
        ("POST", "/v1/jobs", {"project": "shop", "spider": "good", "priority": "NaN"}, 400, "priority"),
        ("POST", "/v1/jobs", {"project": "shop", "spider": "good", "name": "../x"}, 400, "../x"),
        ("POST", "/v1/jobs", {"project": "shop", "spider": "none"}, 404, "spider 'none' not found"),
        ("POST", "/v1/jobs", {"project": "none", "spider": "good"}, 404, "project 'none' not found"),
        ("PATCH", "/v1/projects/none", {"retries": 1}, 404, "project 'none' not found"),
        ("GET", "/v1/jobs/99999999", None, 404, "job 99999999 not found"),
        ("GET", "/v1/jobs?after=x", None, 400, "is no cursor"),
        ("GET", "/v1/jobs?limit=0", None, 400, "limit"),
        ("GET", "/v1/jobs?state=failed&state=done", None, 400, "state (entry 2): Input should be"),
        ("GET", "/v1/nothing", None, 404, "/v1/nothing"),
        ("DELETE", "/v1/jobs", None, 405, "Method Not Allowed"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(
    server: Scrapyd, method: str, path: str, body: Any, status: int, said: str
) -> None:
    answer = server.client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("allow" in answer.headers) == (status == 405)  # RFC 9110, section 15.5.6
    assert said in answer.json()["detail"]


def test_a_broken_version_is_refused_with_the_reason(server: Scrapyd) -> None:
    broken = {"project": "shop", "version": "2"}
    answer = server.client.post("/v1/versions", params=broken, content=egg("import nothing_of_this_name"))
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:gossamer:problem:broken-version")
    assert "nothing_of_this_name" in answer.json()["detail"]
    versions = server.client.get("/v1/versions", params={"project": "shop"}).json()
    assert [(row["name"], row["state"]) for row in versions] == [("1", "ready"), ("2", "broken")]
    assert server.client.post("/v1/versions", params=broken, content=b"no zip").status_code == 400


def test_a_body_that_is_too_long_is_refused(server: Scrapyd) -> None:
    answer = server.client.post("/v1/jobs", content=b'"' + b"x" * 2_000_000 + b'"')
    assert answer.status_code == 413


def _token(server: Scrapyd, **fields: Any) -> httpx.Client:
    """A client that sends a new token."""
    answer = server.client.post("/v1/tokens", json={"name": "test", **fields})
    assert answer.status_code == 201, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    return httpx.Client(base_url=server.client.base_url, timeout=60, headers=headers)


def test_a_token_permits_what_its_scope_says(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="username = admin\npassword = secret") as server:
        server.client.auth = ("admin", "secret")
        assert server.deploy(egg(_SPIDERS))["status"] == "ok"
        job = {"project": "shop", "spider": "good"}
        calls = {
            "read": lambda client: client.get("/v1/jobs"),
            "run": lambda client: client.post("/v1/jobs", json=job),
            "deploy": lambda client: client.delete("/v1/versions", params={"project": "shop", "version": "none"}),
            "admin": lambda client: client.get("/v1/tokens"),
        }
        for place, scope in enumerate(calls):
            with _token(server, scope=scope) as client:
                refused = [name for name, call in calls.items() if call(client).status_code == 403]
            assert refused == list(calls)[place + 1 :]
        with httpx.Client(base_url=server.client.base_url) as stranger:
            for headers in ({}, {"Authorization": "Bearer gsm_wrong"}):
                answer = stranger.get("/v1/jobs", headers=headers)
                assert (answer.status_code, answer.json()["status"]) == (401, 401)
        with _token(server, scope="read") as reader:
            assert reader.get("/daemonstatus.json").status_code == 200
            assert reader.post("/schedule.json", data=job).status_code == 403
        with _token(server, scope="run") as runner:
            assert (
                runner.post("/schedule.json", data={**job, "jobid": "audited", "secret": "x"}).json()["status"] == "ok"
            )
        entries = server.client.get("/v1/audit").json()
        assert {"token.make", "job.create", "scrapyd.addversion"} <= {entry["action"] for entry in entries}
        assert (entries[0]["actor"], entries[0]["action"]) == ("test", "scrapyd.schedule")
        assert entries[0]["subject"] == "shop good audited"


def test_a_token_of_one_project_sees_no_other(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        for project in ("mine", "other"):
            server.deploy(egg(_SPIDERS), project=project)
        other = server.client.post("/v1/jobs", json={"project": "other", "spider": "good"}).json()["id"]
        with _token(server, scope="admin", project="mine") as client:
            mine = client.post("/v1/jobs", json={"project": "mine", "spider": "good"}).json()["id"]
            assert [job["id"] for job in client.get("/v1/jobs").json()["jobs"]] == [mine]
            assert [row["name"] for row in client.get("/v1/projects").json()] == ["mine"]
            answers = [
                client.get("/v1/jobs", params={"project": "other"}),
                client.get(f"/v1/jobs/{other}"),
                client.get(f"/v1/jobs/{other}/log"),
                client.post(f"/v1/jobs/{other}/cancel"),
                client.post("/v1/jobs", json={"project": "other", "spider": "good"}),
                client.get("/v1/versions", params={"project": "other"}),
                client.patch("/v1/projects/other", json={"retries": 1}),
                client.get("/v1/audit"),
            ]
            assert {answer.status_code for answer in answers} == {404}
            assert client.post("/v1/tokens", json={"name": "x", "project": "other"}).status_code == 400
            assert client.get("/listprojects.json").status_code == 403


def test_a_revoked_token_and_one_whose_time_is_over_are_refused(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        with _token(server) as client:
            assert client.get("/v1/jobs").status_code == 200
            [token] = server.client.get("/v1/tokens").json()
            assert server.client.delete(f"/v1/tokens/{token['id']}").status_code == 204
            assert client.get("/v1/jobs").status_code == 401
        with _token(server, valid_seconds=0.001) as client:
            until(lambda: client.get("/v1/jobs").status_code == 401)
        assert server.client.delete(f"/v1/tokens/{token['id']}").status_code == 404


def test_no_web_page_uses_the_api_of_a_server_without_a_password(server: Scrapyd) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        answer = server.client.post("/v1/tokens", json={"name": "x"}, headers=headers)
        assert answer.status_code == 403


def _events(server: Scrapyd, job: int, last: str = "") -> list[dict[str, Any]]:
    """The events of a job until its end."""
    headers = {"Last-Event-ID": last} if last else {}
    with server.client.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = "".join(answer.iter_text()).split("\n\n")
    found = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


def _text(events: list[dict[str, Any]]) -> str:
    return "".join(event["data"]["text"] for event in events if event["event"] == "log")


def test_a_job_is_followed_from_its_begin_to_its_end(server: Scrapyd) -> None:
    job = _create(server, "good")["id"]
    events = _events(server, job)
    log = server.client.get(f"/v1/jobs/{job}/log").text
    assert _text(events) == log
    states = [event["data"]["state"] for event in events if event["event"] == "state"]
    assert states[-1] == "finished"
    assert events[-1]["event"] == "end"
    middle = next(event["id"] for event in events if event["event"] == "log")
    assert _text(_events(server, job, middle)) == log[int(middle.partition(":")[2]) :]
    assert _text(_events(server, job, "9:0")) == log
    assert server.client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_job_that_is_tried_again_is_followed_through_all_attempts(server: Scrapyd) -> None:
    job = _create(server, "broken", retries=1, retry_seconds=0.1)["id"]
    events = _events(server, job, "1:0")
    logs = [server.client.get(f"/v1/jobs/{job}/log", params={"attempt": number}).text for number in (1, 0)]
    assert _text(events) == "".join(logs)
    assert "attempt" in events[0]["data"]
    last = [event["id"] for event in events if event["event"] == "log"][-1]
    assert last == f"2:{len(logs[1].encode())}"


def test_a_schedule_makes_jobs_until_it_is_paused(server: Scrapyd) -> None:
    body = {"project": "shop", "spider": "good", "name": "often", "every": 1, "arguments": {"x": "1"}}
    created = server.client.post("/v1/schedules", json=body)
    assert created.status_code == 201, created.text
    schedule = created.json()
    assert len(schedule["next"]) == 5
    address = f"/v1/schedules/{schedule['id']}"
    until(lambda: server.client.get(address).json()["last_result"].startswith("job "))
    number = int(server.client.get(address).json()["last_result"].removeprefix("job "))
    paused = server.client.patch(address, json={"paused": True}).json()
    assert (paused["paused"], paused["next"]) == (True, [])
    job = _ended(server, number)
    assert (job["state"], job["arguments"]) == ("finished", {"x": "1"})
    assert job["name"].startswith("often-")
    assert server.client.post("/v1/schedules", json=body).status_code == 409
    assert server.client.patch(address, json={"paused": False}).json()["next"] != []
    assert server.client.delete(address).status_code == 204
    assert server.client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"cron": "60 24 32 13 8"}, 400, "month '13'"),
        ({"cron": "@daily", "every": 5}, 400, "exactly one of cron, every and at, not cron and every"),
        ({}, 400, "exactly one of cron, every and at, not none"),
        ({"cron": "@daily", "time_zone": "Nowhere"}, 400, "time_zone: 'Nowhere' is unknown"),
        ({"every": 0.1}, 400, "every: 0.1 is not from 1 second"),
        ({"at": "2001-01-01T00:00:00Z"}, 400, "no time that is still to come"),
        ({"at": "2001-01-01T00:00:00"}, 400, "at"),
        ({"cron": "@daily", "name": "a/b"}, 400, "a/b"),
        ({"cron": "@daily", "spider": "none"}, 404, "spider 'none' not found"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(server: Scrapyd, fields: Any, status: int, said: str) -> None:
    answer = server.client.post("/v1/schedules", json={"project": "shop", "spider": "good", "name": "x", **fields})
    assert answer.status_code == status, answer.text
    assert said in answer.json()["detail"]


def test_a_spiders_policy_counts_for_its_new_jobs(server: Scrapyd) -> None:
    path = "/v1/projects/shop/policies/good"
    answer = server.client.put(path, json={"min_items": 3, "max_running": 1})
    assert answer.status_code == 200, answer.text
    assert server.client.get("/v1/projects/shop/policies").json() == [answer.json()]
    job = _ended(server, _create(server, "good")["id"])
    assert (job["state"], job["reason"], job["stats"]["item_scraped_count"]) == ("failed", "few_items: 2", 2)
    assert server.client.delete(path).status_code == 204
    assert server.client.delete(path).status_code == 404
    assert _ended(server, _create(server, "good")["id"])["state"] == "finished"


def test_a_running_job_shows_scrapys_counters(server: Scrapyd) -> None:
    job = _create(server, "sleepy")["id"]
    until(lambda: (server.client.get(f"/v1/jobs/{job}").json()["stats"] or {}).get("item_scraped_count") == 1)
    server.client.post(f"/v1/jobs/{job}/cancel", params={"signal": 9})
    assert _ended(server, job)["state"] == "cancelled"


def test_a_schedule_is_changed_and_run(server: Scrapyd) -> None:
    fields = {"project": "shop", "spider": "numbers", "name": "changing", "cron": "0 3 * * *"}
    number = server.client.post("/v1/schedules", json={**fields, "arguments": {"count": "1"}}).json()["id"]
    path = f"/v1/schedules/{number}"
    changed = server.client.patch(path, json={"every": 3600, "arguments": {"count": "4"}, "retries": 2}).json()
    assert (changed["kind"], changed["rule"], changed["arguments"]) == ("every", "3600.0", {"count": "4"})
    assert changed["spider"] == "numbers"
    first = server.client.post(f"{path}/run", headers={"Idempotency-Key": "x"})
    again = server.client.post(f"{path}/run", headers={"Idempotency-Key": "x"})
    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 200, first.json()["id"])
    job = _ended(server, first.json()["id"])
    assert (job["state"], job["stats"]["item_scraped_count"], job["retries_left"]) == ("finished", 4, 2)
    refused = server.client.patch(path, json={"cron": "61 25 0 13 9"})
    assert refused.status_code == 400
    assert all(name in refused.json()["detail"] for name in ("minute", "hour", "day of the month", "month", "week"))
    assert server.client.get(path).json()["rule"] == "3600.0"
    assert server.client.delete(path).status_code == 204
