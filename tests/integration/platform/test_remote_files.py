"""Logs and items of jobs on nodes elsewhere: read while the jobs run and after, through every interface, whatever is
killed or away meanwhile."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.platform import PlatformProcess, RunningManager, RunningNode, running
from tests.servers.s3 import S3Server, s3_server
from tests.servers.scrapyd import egg, spider, until

_SPIDERS = "".join(
    [
        spider("good", "for n in range(1000):\n    self.logger.info('line %d', n)\n    yield {'n': n}"),
        spider(
            "steady",
            "for n in range(int(self.count)):\n"
            "    self.logger.info('line %d', n)\n    yield {'n': n, 'pad': 'x' * 200}\n    await asyncio.sleep(0.05)",
        ),
    ]
)


def _manager(folder: Path, *options: str) -> RunningManager:
    return RunningManager(folder / "manager", *options, limit_seconds=20.0)


def _items(manager: RunningManager, job: int) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while cursor is not None:
        page = manager.client.get(f"/v1/jobs/{job}/items", params={"after": cursor, "limit": 300}).json()
        found += page["items"]
        cursor = page["next"]
    return found


def _log(manager: RunningManager, job: int, **parameters: Any) -> str:
    return manager.client.get(f"/v1/jobs/{job}/log", params=parameters).text


def test_every_interface_reads_what_a_node_has_sent(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    node = RunningNode(tmp_path / "one", [manager.url], name="one")
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(_SPIDERS))
        answer = manager.client.post("/schedule.json", data={"project": "shop", "spider": "good", "jobid": "first"})
        assert answer.json()["status"] == "ok"
        assert manager.ended(1)["state"] == "finished"
        expected = [{"n": n} for n in range(1000)]
        assert _items(manager, 1) == expected
        page = manager.client.get("/v1/jobs/1/items", params={"start": 990, "limit": 5}).json()
        assert page["items"] == expected[990:995]
        exported = manager.client.get("/v1/jobs/1/items.jsonl", params={"filter": "n>=998"}).text
        assert [json.loads(line) for line in exported.splitlines()] == expected[998:]
        log = _log(manager, 1)
        assert log.count(": line ") == 1000
        assert "Spider closed (finished)" in log
        assert _log(manager, 1, contains="line 77").count("\n") == 11
        assert _log(manager, 1, start=10, stop=20) == log[10:20]
        events = manager.client.get("/v1/jobs/1/events").text
        assert events.count("line 9") == log.count("line 9")
        # Scrapyd's pages
        listed = manager.client.get("/listjobs.json", params={"project": "shop"}).json()["finished"][0]
        assert (listed["log_url"], listed["items_url"]) == ("/logs/shop/good/first.log", "/items/shop/good/first.jl")
        assert manager.client.get(listed["log_url"]).text == log
        part = manager.client.get(listed["items_url"], headers={"Range": "bytes=0-8"})
        assert (part.status_code, part.text) == (206, '{"n": 0}\n')
        for path, name in (("/logs/", "shop/"), ("/logs/shop/", "good/"), ("/items/shop/good/", "first.jl")):
            assert f'<a href="{name}">' in manager.client.get(path).text
        for path in (
            "/logs/none/",
            "/logs/shop/good/none.log",
            "/logs/shop/good/first.jl",
            "/logs/shop/good/first.log/",
        ):
            assert manager.client.get(path).status_code == 404
        # The node keeps nothing that the manager has.
        until(lambda: not list((node.folder / "gossamer-node/files").iterdir()), what=node.said)


def test_nothing_is_lost_when_manager_and_node_are_killed(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    node = RunningNode(tmp_path / "one", [manager.url], name="one")
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(_SPIDERS))
        job = manager.create("steady", arguments={"count": "200"})
        until(lambda: len(_items(manager, job)) > 5, what=manager.said)
        assert manager.job(job)["state"] == "running"
        seen = len(_items(manager, job))
        manager.kill()
        manager.start()
        until(lambda: len(_items(manager, job)) > seen, what=node.said)
        node.kill()
        node.start()
        until(lambda: len(_items(manager, job)) > seen + 10, what=node.said)
        assert manager.ended(job)["state"] == "finished"
        assert [item["n"] for item in _items(manager, job)] == list(range(200))
        log = _log(manager, job)
        assert [f": line {n}\n" in log for n in range(200)] == [True] * 200
        assert log.count(": line ") == 200


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_versions_logs_and_items_at_an_s3_address_that_is_away_for_a_while(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    quick = {"connect_timeout": 2, "read_timeout": 2, "retries": {"max_attempts": 0}}
    monkeypatch.setenv("FSSPEC_S3", json.dumps({"config_kwargs": quick}))
    options = ("--store", "s3://platform/prefix", "--database", f"sqlite:///{tmp_path}/state.db")
    manager = _manager(tmp_path, *options)
    node = RunningNode(tmp_path / "one", [manager.url], name="one")
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(_SPIDERS))
        job = manager.create("steady", arguments={"count": "60"})
        until(lambda: _items(manager, job), what=manager.said)
        s3.freeze()
        # The API answers: what needs no storage at once, what needs it with a problem that names it.
        assert manager.job(job)["state"] == "running"
        refused = manager.client.get(f"/v1/jobs/{job}/log", params={"start": 0})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert refused.json()["type"] == "urn:gossamer:problem:storage-unavailable"
        assert manager.client.get("/logs/shop/steady/none.log").status_code == 404
        s3.wake()
        assert manager.ended(job)["state"] == "finished"
        until(lambda: len(_items(manager, job)) == 60, what=node.said)
        assert [item["n"] for item in _items(manager, job)] == list(range(60))
        assert _log(manager, job).count(": line ") == 60
        # Another manager finds the version's artefact at the address.
        manager.kill()
        manager.start()
        shutil.rmtree(node.folder / "gossamer-node/artefacts")
        assert manager.ended(manager.create("good"))["state"] == "finished"


def test_an_address_as_the_store_needs_a_database(tmp_path: Path) -> None:
    manager = _manager(tmp_path, "--store", "memory://user:secret@x")
    PlatformProcess.start(manager)
    assert manager.wait() == 2
    assert "--store memory://user:***@x needs --database" in manager.said()
