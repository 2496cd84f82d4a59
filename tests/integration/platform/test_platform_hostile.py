"""A manager against clients, nodes and jobs that send what they should not, on both databases.

The node of these tests is the test itself: it makes a node's calls, so that it can report what no real one would.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet

from tests.servers.platform import RunningManager, running
from tests.servers.postgresql import postgresql
from tests.servers.scrapyd import WAIT_SECONDS, egg, until

_SPIDER = "spy"


class FakeNode:
    """A node that says what a test wants."""

    def __init__(self, manager: RunningManager, name: str = "fake", *, headers: dict[str, str] | None = None) -> None:
        sent = {"Gossamer-Node": name, "Gossamer-Incarnation": uuid.uuid4().hex, **(headers or {})}
        self.client = httpx.Client(base_url=f"{manager.url}/nodes/v1/", headers=sent, timeout=WAIT_SECONDS)

    def call(self, which: str, /, content: bytes = b"", **fields: Any) -> httpx.Response:
        """The answer to a call. `content`: the body, where it cannot be written as fields."""
        return self.client.post(which, content=content) if content else self.client.post(which, json=fields)

    def register(self) -> None:
        """Announce it."""
        assert self.call("register", folder=uuid.uuid4().hex, slots=1000).status_code == 200

    def take(self, job: int) -> Any:
        """Take all jobs that wait, and return the assignment of one."""
        found = self.call("turn", free=1000).json()["jobs"]
        return next(each for each in found if each["id"]["job"] == job)


class Platform:
    """A manager, a node, and a project with something of each kind in it."""

    def __init__(self, manager: RunningManager) -> None:
        self.manager = manager
        self.client = manager.client
        self.node = FakeNode(manager)
        self.node.register()
        self.deploy("shop", "1")
        job = {"project": "shop", "spider": _SPIDER}
        self.created("/v1/schedules", {**job, "name": "nightly", "cron": "@yearly"})
        self.created("/v1/groups", {**job, "processes": 1, "name": "shop-group"})
        hook = {"project": "shop", "url": "https://shop.example/", "events": ["job.failed"]}
        self.created("/v1/webhooks", hook)
        self.created("/v1/tokens", {"name": "theirs", "project": "shop"})
        answer = self.client.put("/v1/projects/shop/variables/SHOP_NAME", json={"value": "x"})
        assert answer.status_code == 200, answer.text

    def created(self, path: str, body: Any, **headers: str) -> Any:
        """What was created."""
        answer = self.client.post(path, json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def deploy(self, project: str, version: str, *, spiders: Sequence[str] = (_SPIDER,)) -> None:
        """Deploy a version whose spiders the node lists."""
        fields = {"project": project, "version": version, "wait_seconds": "0"}
        answer = self.client.post("/v1/versions", params=fields, content=egg(""))
        assert answer.status_code == 202, answer.text
        for listing in self.node.call("turn", free=0).json()["listings"]:
            self.node.call("listed", version_id=listing["version_id"], result={"spiders": spiders})

    def job(self, **fields: Any) -> int:
        """The number of a new job of a project that has no other one."""
        return int(self.created("/v1/jobs", {"project": "shop", "spider": _SPIDER, **fields})["id"])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GOSSAMER_SECRET_KEYS", Fernet.generate_key().decode())
        if request.param == "sqlite":
            manager = RunningManager(folder, limit_seconds=600.0)
            with _platform(manager) as found:
                yield found
            return
        with postgresql() as server:
            manager = RunningManager(folder, "--database", server.new_database(), limit_seconds=600.0)
            with _platform(manager) as found:
                yield found


@contextlib.contextmanager
def _platform(manager: RunningManager) -> Iterator[Platform]:
    with running(manager):
        found = Platform(manager)
        try:
            yield found
        finally:
            found.node.client.close()


# --- tokens of one project --------------------------------------------------------------------------------------------

_JOB = {"project": "shop", "spider": _SPIDER}
_BODIES: dict[tuple[str, str], Any] = {
    ("post", "/v1/jobs"): _JOB,
    ("post", "/v1/groups"): {**_JOB, "processes": 1},
    ("post", "/v1/schedules"): {**_JOB, "name": "theirs", "cron": "@daily"},
    ("patch", "/v1/schedules/{schedule_id}"): {"paused": True},
    ("patch", "/v1/projects/{project}"): {"retries": 1},
    ("put", "/v1/projects/{project}/policies/{spider}"): {"retries": 1},
    ("put", "/v1/projects/{project}/variables/{name}"): {"value": "theirs"},
    ("post", "/v1/webhooks"): {"project": "shop", "url": "https://thief.example/", "events": ["job.failed"]},
    ("patch", "/v1/webhooks/{webhook_id}"): {"url": "https://thief.example/"},
    ("patch", "/v1/nodes/{name}"): {"draining": True},
    ("put", "/v1/labels/{name}"): {"max_running": 0},
}
"""Bodies with which the requests would be carried out for a client who may make them."""
_LISTS = ("jobs", "groups", "schedules", "projects", "webhooks", "tokens", "project-names")
"""Resources that such a client may list: its own ones."""
_OF_NO_PROJECT = ("/v1/openapi.json", "/v1/schedules/times")
"""Paths whose answers are the same for all clients: they read nothing that is stored."""
_ELSEWHERE = (
    "GET /listjobs.json",
    "GET /listprojects.json",
    "GET /daemonstatus.json",
    "POST /cancel.json",
    "GET /jobs",
    "GET /logs/shop",
    "GET /cloud/jobq/1/list",
    "GET /cloud/jobs/1/1/1",
    "GET /cloud/items/1/1/1",
    "POST /cloud/jobs/1/1/1",
    "GET /cloud/activity/1",
    "GET /cloud/api/spiders/list.json?project=1",
    "POST /cloud/api/run.json?project=1&spider=spy",
    "POST /cloud/api/jobs/stop.json?project=1&job=1/1/1",
    "POST /cloud/api/jobs/update.json?project=1&spider=spy&add_tag=x",
    "GET /cloud/api/eggs/bundle.zip?project=1",
    "GET /cloud/projects/jobsummaries",
    "GET /cloud/api/listprojects.json",
)
"""The same through the interfaces of Scrapyd and Scrapy Cloud."""


def _requests(platform: Platform) -> Iterator[tuple[str, str, dict[str, str], Any]]:
    """Each operation of the API on what the project has: method, path as it is described, parameters, body."""
    for path, operations in platform.client.get("/v1/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            names = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
            values = {"project": "shop", "version": "1"}
            yield method, path, {name: values[name] for name in values if name in names}, _BODIES.get((method, path))


def test_a_token_of_one_project_neither_sees_nor_changes_another(platform: Platform) -> None:
    """Every operation of the API, with the widest token that is for another project."""
    made = platform.created("/v1/tokens", {"name": "guest", "scope": "admin", "project": "other"})
    theirs = {"Authorization": f"Bearer {made['token']}"}
    values = {
        "job_id": "1",
        "group_id": "1",
        "schedule_id": "1",
        "webhook_id": "1",
        "delivery_id": "1",
        "token_id": "1",
    }
    values |= {"project": "shop", "spider": _SPIDER, "form": "jsonl"}
    permitted = []
    for method, path, parameters, body in _requests(platform):
        if path in _OF_NO_PROJECT or (not parameters and path in [f"/v1/{name}" for name in _LISTS]):
            continue
        address = path.format(**values, name={"/v1/nodes/{name}": "fake"}.get(path, "SHOP_NAME"))
        answer = platform.client.request(method, address, params=parameters, json=body, headers=theirs)
        if answer.status_code not in (403, 404):
            permitted.append((method, path, answer.status_code, answer.text[:200]))
    assert permitted == []
    for name in _LISTS:
        answer = platform.client.get(f"/v1/{name}", headers=theirs)
        assert (answer.status_code, "shop" in answer.text) == (200, False), name
    urgent = {"project": "other", "spider": _SPIDER, "is_urgent": True}
    assert platform.client.post("/v1/jobs", json=urgent, headers=theirs).status_code == 403


def test_a_token_of_one_project_makes_nobody_a_node(platform: Platform) -> None:
    """A node is given the jobs and the secrets of all projects."""
    made = platform.created("/v1/tokens", {"name": "guest", "scope": "admin", "project": "other"})
    spy = FakeNode(platform.manager, "spy", headers={"Authorization": f"Bearer {made['token']}"})
    fields = {"folder": "x", "slots": 1, "free": 1, "attempts": [], "cursor": "", "seconds": 0}
    with spy.client:
        for call in ("register", "beat", "turn", "progress", "wait"):
            assert spy.call(call, **fields).status_code == 403
        assert spy.client.put("attempts/1/1/log", params={"offset": 0}, content=b"x").status_code == 403


def test_a_token_of_one_project_sees_no_other_through_the_other_interfaces(platform: Platform) -> None:
    made = platform.created("/v1/tokens", {"name": "guest", "scope": "admin", "project": "other"})
    for request in _ELSEWHERE:
        method, path = request.split(" ")
        # Clients of Scrapy Cloud send a token as the name of basic authentication.
        auth: Any = (made["token"], "") if path.startswith("/cloud/") else None
        headers = {} if auth else {"Authorization": f"Bearer {made['token']}"}
        answer = platform.client.request(method, path, auth=auth, headers=headers)
        nothing = ("", "[]\n", '{"status":"ok","projects":[]}')
        assert answer.status_code >= 400 or answer.text in nothing, (request, answer.text)


# --- values -----------------------------------------------------------------------------------------------------------

_UNSTORABLE = (r'"a\u0000b"', r'"\ud800"')
_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1", "9223372036854775808", "1" + 40 * "0")
_VALID: dict[tuple[str, str], Any] = {
    **_BODIES,
    ("post", "/v1/tokens"): {"name": "x"},
    ("post", "/v1/jobs"): {**_JOB, "arguments": {}},
}
_LISTED = (
    *(f"/v1/{name}?limit=1000" for name in ("jobs", "groups", "schedules", "audit")),
    *(f"/v1/{name}" for name in ("projects", "webhooks", "tokens", "nodes", "labels", "projects/shop/variables")),
    *("/v1/projects/shop/policies", "/v1/versions?project=shop", "/v1/webhooks/1/deliveries"),
    *("/listjobs.json", "/jobs", "/", "/cloud/jobq/1/list", "/cloud/jobq/1/summary", "/cloud/activity/1"),
)
"""What clients read again and again. A row that cannot be shown would spoil it for all."""


def _lists_work(platform: Platform) -> None:
    broken = [(path, answer) for path in _LISTED if (answer := platform.client.get(path)).status_code != 200]
    assert broken == [], broken[0][1].text


def _spoilt(schema: Any, schemas: Any) -> Iterator[str]:
    """JSON texts for a field that are not valid."""
    for each in schema.get("anyOf", [schema]):
        found = schemas[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if found.get("type") == "array":
            yield from (f"[{value}]" for value in _spoilt(found["items"], schemas))
        elif found.get("type") == "string":
            yield from _UNSTORABLE
        elif found.get("type") == "object" and "properties" not in found:
            yield from (f'{{"k": {value}}}' for value in _UNSTORABLE)
            yield from (f'{{{value}: "v"}}' for value in _UNSTORABLE)


def _odd_numbers(schema: Any, schemas: Any) -> Sequence[str]:
    kinds = [each.get("type") for each in schema.get("anyOf", [schema])]
    return _NUMBERS if {"number", "integer"} & set(kinds) else ()


def _spoilt_bodies(platform: Platform, values: Any) -> Iterator[tuple[str, str, str]]:
    """Method, path, and a body of which one field is spoilt, for each field of each request. `values`: makes texts of
    JSON from a field's schema."""
    described = platform.client.get("/v1/openapi.json").json()
    schemas = described["components"]["schemas"]
    for (method, path), body in _VALID.items():
        content = described["paths"][path][method]["requestBody"]["content"]
        fields = schemas[content["application/json"]["schema"]["$ref"].rpartition("/")[2]]["properties"]
        for name, schema in fields.items():
            rest = {key: value for key, value in body.items() if key != name}
            for value in values(schema, schemas):
                text = ", ".join(
                    [*(f"{json.dumps(key)}: {json.dumps(rest[key])}" for key in rest), f'"{name}": {value}']
                )
                yield method, path.format(**_PLACES), f"{{{text}}}"


_PLACES = {"project": "shop", "spider": _SPIDER, "name": "fake", "schedule_id": "1", "webhook_id": "1"}


def _send(platform: Platform, method: str, path: str, body: str) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return platform.client.request(method, path, content=body.encode(), headers=headers)


def test_text_that_no_database_stores_is_refused_wherever_a_client_sends_it(platform: Platform) -> None:
    for method, path, body in _spoilt_bodies(platform, _spoilt):
        answer = _send(platform, method, path, body)
        assert answer.status_code == 400, (method, path, body, answer.text)
        assert "character" in answer.json()["detail"], (body, answer.text)
    for path, operations in platform.client.get("/v1/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                values = {**_PLACES, "job_id": "1", "group_id": "1", "delivery_id": "1", "token_id": "1", "form": "xml"}
                if parameter["in"] == "path":
                    address = path.format(**{**values, parameter["name"]: "a%00b"})
                elif parameter["in"] == "query":
                    address = f"{path.format(**values)}?{parameter['name']}=a%00b"
                else:
                    continue
                answer = platform.client.request(method, address, json=_VALID.get((method, path)))
                assert answer.status_code == 400, (method, address, answer.text)
    _lists_work(platform)


def test_numbers_that_nothing_can_be_made_of_break_nothing(platform: Platform) -> None:
    for method, path, body in _spoilt_bodies(platform, _odd_numbers):
        answer = _send(platform, method, path, body)
        assert answer.status_code < 500, (method, path, body, answer.text)
    for body in (b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"a":' + b"[" * 100_000):
        for method, path in _VALID:
            answer = platform.client.request(method, path.format(**_PLACES), content=body)
            assert answer.status_code == 400, (method, path, body[:10], answer.text)
    _lists_work(platform)


def test_scrapyds_interface_refuses_the_same(platform: Platform) -> None:
    for name in ("project", "spider", "_version", "jobid", "setting", "argument", "a%00b"):
        fields = {"project": "shop", "spider": _SPIDER}
        pairs = [f"{key}={value}" for key, value in fields.items() if key != name]
        content = "&".join([*pairs, f"{name}=LOG_LEVEL%3Da%00b"])
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = platform.client.post("/schedule.json", content=content, headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (200, "error"), name
        assert "NUL character" in answer.json()["message"], answer.text
        cloud = content.replace("project=shop", "project=1")
        answer = platform.client.post("/cloud/api/run.json", content=cloud, headers=headers)
        assert answer.status_code == 400, (name, answer.text)
    _lists_work(platform)


@pytest.mark.parametrize("value", [*_UNSTORABLE, "NaN", "1e999", r'{"a\u0000": 1}', "[" * 10_000])
def test_scrapy_clouds_interface_refuses_the_same(platform: Platform, value: str) -> None:
    for body in (f'{{"note": {value}}}', value):
        answer = platform.client.post("/cloud/jobs/1/1/1", content=body.encode())
        assert answer.status_code == 400, answer.text
    for field in ("meta", "job_settings"):
        data = {"project": "1", "spider": _SPIDER, field: f'{{"x": {value}}}'}
        answer = platform.client.post("/cloud/api/run.json", data=data)
        assert answer.status_code == 400, answer.text
    _lists_work(platform)


def test_numbers_that_no_column_has_are_refused_by_scrapy_clouds_interface(platform: Platform) -> None:
    for path in ("jobs/1/1/{}", "items/1/{}/1", "jobq/1/{}/summary", "jobq/{}/list", "jobs/{}/1/1"):
        answer = platform.client.get(f"/cloud/{path.format(10**30)}")
        assert answer.status_code in (400, 404) or answer.text == "", (path, answer.text)


# --- reports of jobs --------------------------------------------------------------------------------------------------

_ODD_STATS = (
    r'{"item_scraped_count": "many", "log_count/ERROR": null, "a\u0000b": "\ud800", "nan": NaN, "inf": Infinity, '
    r'"big": 1e999, "long": 1' + "0" * 400 + ', "good": 5, "list": [1], "log_count/INFO": "x"}'
)


def test_the_end_of_a_job_is_known_whatever_it_reports(platform: Platform) -> None:
    job = platform.job()
    taken = platform.node.take(job)
    attempt = json.dumps(taken["id"])
    assert platform.node.call("started", attempt=taken["id"], pid=5).status_code == 200
    progress = f'{{"attempts": [{{"id": {attempt}, "stats": {_ODD_STATS}}}]}}'
    assert platform.node.call("progress", progress.encode()).status_code == 200
    _lists_work(platform)
    line = rb'{"text": "\ud800", "nan": NaN, "nul": "\u0000", "good": 5}' + b"\n"
    sent = platform.node.client.put(f"attempts/{job}/1/items", params={"offset": 0}, content=line)
    assert sent.json() == {"end": len(line)}
    end = f'{{"exit_code": 0, "finish_reason": "a\\u0000\\ud800", "ago_seconds": 1e15, "stats": {_ODD_STATS}}}'
    answer = platform.node.call("ended", f'{{"attempt": {attempt}, "end": {end}}}'.encode())
    assert answer.status_code == 200, answer.text
    found = platform.client.get(f"/v1/jobs/{job}").json()
    assert (found["state"], found["finish_reason"]) == ("failed", "a\ufffd\ufffd")
    assert found["stats"]["good"] == 5
    assert found["created_at"] <= found["started_at"] <= found["ended_at"]
    items = platform.client.get(f"/v1/jobs/{job}/items").json()["items"]
    assert items == [{"text": "\ufffd", "nan": None, "nul": "\ufffd", "good": 5}]
    for form in ("json", "csv", "xml"):
        exported = platform.client.get(f"/v1/jobs/{job}/items.{form}")
        assert exported.status_code == 200
        assert "good" in exported.text
    _lists_work(platform)
    for path in (f"/v1/jobs/{job}/events", f"/v1/jobs/{job}/items?filter=text", "/v1/jobs?state=failed"):
        assert platform.client.get(path).status_code == 200


def test_a_report_of_any_length_is_kept_in_part(platform: Platform) -> None:
    taken = platform.node.take(platform.job())
    stats = {f"{number} {'x' * 500}": "y" * 1000 for number in range(5000)} | {"item_scraped_count": 7}
    long = "z" * 1_000_000
    report = {"id": taken["id"], "stats": stats}
    assert platform.node.call("progress", attempts=[report]).status_code == 200
    end = {"exit_code": 1, "finish_reason": long, "fault": long, "stats": stats}
    assert platform.node.call("ended", attempt=taken["id"], end=end).status_code == 200
    found = platform.client.get(f"/v1/jobs/{taken['id']['job']}")
    assert (found.json()["state"], found.json()["stats"]["item_scraped_count"]) == ("failed", 7)
    assert len(found.content) < 200_000


@pytest.mark.parametrize(
    ("spiders", "state"),
    [
        ([f"spider {number} {'x' * 150}" for number in range(19_000)], "ready"),
        (["x"] * 30_000, "broken"),
        (["x" * 2000], "broken"),
    ],
)
def test_a_version_may_have_many_spiders_but_not_any_number(platform: Platform, spiders: list[str], state: str) -> None:
    project = f"many-{len(spiders)}"
    platform.deploy(project, "1", spiders=spiders)
    [version] = platform.client.get("/v1/versions", params={"project": project}).json()
    assert version["state"] == state, version["reason"]


def test_what_a_node_says_of_the_attempts_of_another_has_no_effect(platform: Platform) -> None:
    taken = platform.node.take(platform.job())
    job = taken["id"]["job"]
    other = FakeNode(platform.manager, "other")
    end = {"exit_code": 0, "finish_reason": "finished"}
    with other.client:
        other.register()
        assert other.call("started", attempt=taken["id"], pid=5).status_code == 200
        assert other.call("progress", attempts=[{"id": taken["id"], "stats": {"x": 1}}]).status_code == 200
        assert other.call("returned", attempt=taken["id"]).status_code == 200
        assert other.call("ended", attempt=taken["id"], end=end).status_code == 200
    found = platform.client.get(f"/v1/jobs/{job}").json()
    assert (found["state"], found["stats"], found["pid"]) == ("starting", None, None)
    assert platform.node.call("started", attempt=taken["id"], pid=2**40).status_code == 400
    assert platform.node.call("ended", attempt=taken["id"], end={"exit_code": 2**40}).status_code == 400
    assert platform.node.call("ended", attempt=taken["id"], end=end).status_code == 200
    assert platform.client.get(f"/v1/jobs/{job}").json()["state"] == "finished"


def test_a_manager_that_stops_answers_those_who_wait_for_a_build(tmp_path: Path) -> None:
    """The build goes on at the node, and its result is known after the restart."""
    manager = RunningManager(tmp_path, limit_seconds=600.0)
    with running(manager), ThreadPoolExecutor(2) as threads:
        node = FakeNode(manager)
        with node.client:
            node.register()
            fields = {"project": "shop", "version": "1"}
            ours = threads.submit(manager.client.post, "/v1/versions", params=fields, content=egg(""))
            listings: list[Any] = []
            until(lambda: listings.extend(node.call("turn", free=0).json()["listings"]) or listings)
            assert manager.stop() == 0
            answer = ours.result()
            assert (answer.status_code, answer.json()["state"]) == (202, "building")
            assert "Traceback" not in manager.said()
            manager.start()
            node.call("listed", version_id=listings[0]["version_id"], result={"spiders": ["a"]})
            [version] = manager.client.get("/v1/versions", params={"project": "shop"}).json()
            assert version["state"] == "ready"


# --- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"at": "9999-12-31T23:59:59-14:00"}, "at: it is not from the year 1970 to 2999"),
        ({"every": 60, "start": "9999-12-31T23:59:59Z"}, "start: it is not from"),
        ({"cron": "@daily", "start": "9999-12-31T23:59:59Z"}, "start: it is not from"),
        ({"cron": "@daily", "start": "0001-01-01T00:00:00+14:00"}, "start: it is not from"),
        ({"cron": "@daily", "end": "9999-12-31T23:59:59-14:00"}, "end: it is not from"),
        ({"every": 60, "time_zone": "Nowhere"}, "time_zone: 'Nowhere' is unknown"),
        ({"at": "2999-01-01T00:00:00Z", "time_zone": "../x"}, "time_zone: '../x' is unknown"),
        ({"cron": "@daily", "time_zone": "localtime"}, "time_zone: 'localtime' is unknown"),
        ({"every": 1e300}, "every: 1e+300 is not from 1 second to 366 days"),
    ],
)
def test_a_schedule_that_no_calendar_has_is_refused(platform: Platform, fields: Any, said: str) -> None:
    answer = platform.client.post("/v1/schedules", json={**_JOB, "name": "odd", **fields})
    assert (answer.status_code, answer.json()["detail"].startswith(said)) == (400, True), answer.text
    assert platform.client.patch("/v1/schedules/1", json=fields).status_code == 400
    _lists_work(platform)


def test_a_project_that_is_deleted_pauses_its_schedules_and_says_so(platform: Platform) -> None:
    for delete in ("delproject", "delversion"):
        platform.deploy("gone", "1")
        fields = {"project": "gone", "spider": _SPIDER, "cron": "@yearly", "name": delete}
        number = platform.created("/v1/schedules", fields)["id"]
        answer = platform.client.post(f"/{delete}.json", data={"project": "gone", "version": "1"}).json()
        assert answer["status"] == "ok"
        assert answer.get("paused_schedules") == ([delete] if delete == "delproject" else None)
        found = platform.client.get(f"/v1/schedules/{number}").json()
        assert found["paused"]
        assert found["last_result"].startswith("paused: the ")


# --- pages of other sites ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_no_page_of_another_site_changes_anything(platform: Platform, headers: dict[str, str]) -> None:
    for path in (
        "/v1/projects/shop/rollback",
        "/cancel.json",
        "/cloud/api/run.json",
        "/cloud/api/scrapyd/addversion.json",
        "/cloud/jobs/1/1/1",
        "/nodes/v1/turn",
    ):
        for auth in (None, ("x", "y")):
            answer = platform.client.post(path, headers=headers, auth=auth, data={"project": "shop", "job": "x"})
            assert answer.status_code == 403, (path, answer.text)
