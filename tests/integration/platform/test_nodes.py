"""Managers and nodes as real processes: jobs run on nodes, survive what happens to both, and never run twice."""

from pathlib import Path

from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.scrapyd import egg, spider

_LIMIT_SECONDS = 3.0


def _manager(folder: Path) -> RunningManager:
    return RunningManager(folder / "manager", limit_seconds=_LIMIT_SECONDS)


def test_a_job_that_is_scheduled_at_the_manager_runs_on_a_node(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    node = RunningNode(tmp_path / "one", [manager.url], name="one")
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(spider("good")))
        answer = manager.client.post("/schedule.json", data={"project": "shop", "spider": "good"}).json()
        assert answer["status"] == "ok"
        job = manager.ended(1)
        assert (job["state"], job["finish_reason"], job["node"]) == ("finished", "finished", "one")
        bad = manager.ended(manager.create("good", settings={"SPIDER_MODULES": "nowhere"}))
        assert (bad["state"], bad["reason"]) == ("failed", "exit_code: 1")
