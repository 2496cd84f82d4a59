"""Logs and items of jobs on nodes elsewhere: read while the jobs run and after, through every interface, whatever is
killed or away meanwhile."""

import json
from pathlib import Path
from typing import Any

from tests.servers.platform import RunningManager, RunningNode, running
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
        job = manager.create("steady", arguments={"count": "150"})
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
        assert [item["n"] for item in _items(manager, job)] == list(range(150))
        log = _log(manager, job)
        assert [f": line {n}\n" in log for n in range(150)] == [True] * 150
        assert log.count(": line ") == 150
