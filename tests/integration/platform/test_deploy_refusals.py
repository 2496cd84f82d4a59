"""What a server refuses at deployment and at the start of a job, and what it says: a full disk, settings of a job."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider
from tests.servers.small_disk import a_disk

_KB = 1024


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    """A server that permits the scope `run` one setting."""
    conf = "username = me\npassword = secret\nrun_settings = LOG_LEVEL\n"
    with scrapyd(tmp_path_factory.mktemp("restricted"), conf=conf) as server:
        server.client.auth = ("me", "secret")
        server.deploy(egg(spider("good")))
        yield server


def _as(server: Scrapyd, scope: str) -> httpx.Client:
    token = server.client.post("/v1/tokens", json={"name": scope, "scope": scope}).json()["token"]
    return httpx.Client(base_url=server.client.base_url, headers={"Authorization": f"Bearer {token}"})


_FEEDS = {"FEEDS": '{"/etc/cron.d/x": {"format": "json"}}'}


@pytest.mark.parametrize("settings", [_FEEDS, {"LOG_LEVEL": "INFO", "LOG_FILE": "/etc/x"}, {"JOBDIR": "/"}])
def test_the_scope_run_gives_no_setting_but_those_that_are_permitted(
    restricted: Scrapyd, settings: dict[str, str]
) -> None:
    job: dict[str, Any] = {"project": "shop", "spider": "good", "settings": settings}
    form = {"project": "shop", "spider": "good", "setting": [f"{name}={value}" for name, value in settings.items()]}
    [refused] = sorted(set(settings) - {"LOG_LEVEL"})
    with _as(restricted, "run") as client:
        for path, body in (
            ("/v1/jobs", job),
            ("/v1/groups", {**job, "processes": 2}),
            ("/v1/schedules", {**job, "name": "each", "every": 3600}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == 403, (path, answer.text)
            assert f"setting {refused}: run_settings of this server permits LOG_LEVEL" in answer.json()["detail"]
        answer = client.post("/schedule.json", data=form)
        assert f"setting {refused}" in answer.json()["message"]
        permitted = client.post("/v1/jobs", json={**job, "settings": {"LOG_LEVEL": "INFO"}})
        assert permitted.status_code == 201, permitted.text
    with _as(restricted, "deploy") as client:
        assert client.post("/v1/jobs", json=job).status_code == 201


def test_a_schedule_is_not_given_such_a_setting_later(restricted: Scrapyd) -> None:
    with _as(restricted, "run") as client:
        schedule = {"project": "shop", "spider": "good", "name": "later", "every": 3600}
        number = client.post("/v1/schedules", json=schedule).json()["id"]
        assert client.patch(f"/v1/schedules/{number}", json={"settings": _FEEDS}).status_code == 403
        assert client.patch(f"/v1/schedules/{number}", json={"settings": {"LOG_LEVEL": "INFO"}}).status_code == 200


@pytest.mark.parametrize("size", [300 * _KB, 700 * _KB])
def test_a_full_disk_is_named(tmp_path: Path, size: int) -> None:
    """The disk has no room for the body, or for the artefact behind the body."""
    (tmp_path / "dbs/gossamer").mkdir(parents=True)
    content = egg(spider("good", body=f"    filler = '{os.urandom(size // 2).hex()}'"))
    large = content + bytes(max(0, size - len(content)))
    with a_disk(tmp_path / "dbs/gossamer/uploads", "512k"), scrapyd(tmp_path) as server:
        answer = server.client.post("/v1/versions", params={"project": "shop", "version": "1"}, content=large)
        assert answer.status_code == 503, answer.text
        assert "No space left on device" in answer.json()["detail"]
        if size > 512 * _KB:  # Scrapyd's interface keeps the body in memory
            assert "No space left on device" in server.deploy(large)["message"]
        assert server.get("listprojects")["projects"] == []
        assert server.deploy(egg(spider("good")))["status"] == "ok"
        server.stop()


def test_a_name_that_cannot_be_used_is_refused_with_the_reason(restricted: Scrapyd) -> None:
    for project, reason in (("a/b", "'a/b' has a slash"), ("ä" * 101, "202 bytes; 200 are allowed")):
        answer = restricted.client.post(
            "/v1/versions", params={"project": project, "version": "1"}, content=egg(spider("good"))
        )
        assert answer.status_code == 400, answer.text
        assert reason in answer.json()["detail"]
