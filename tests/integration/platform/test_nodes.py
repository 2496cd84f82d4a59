"""Managers and nodes as real processes: jobs run on nodes, survive what happens to both, and never run twice."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.jobs.judge import Ran, read_notes
from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.scrapyd import egg, spider, until
from tests.servers.valkey import free_ports

_SHORT_SECONDS = 2.5
"""Silence after which a node kills its jobs, where a test waits for that. The node is lost three seconds later."""
_LIMIT_SECONDS = 60.0
"""The same where no node is to be lost, however loaded the machine is."""
_WAKING_SECONDS = 3.0
"""Bound for a machine that stood still: its first heartbeat, and the kill."""


@pytest.fixture
def manager(tmp_path: Path) -> RunningManager:
    return RunningManager(tmp_path / "manager", limit_seconds=_LIMIT_SECONDS)


@pytest.fixture
def judge(tmp_path: Path) -> Path:
    """File in which jobs of the stand-in note when they run."""
    (tmp_path / "judge").touch()
    return tmp_path / "judge"


def _node(manager: RunningManager, name: str, *options: str, slots: int = 1, quick: bool = True) -> RunningNode:
    folder = manager.folder.parent / name
    return RunningNode(folder, [manager.url], *options, name=name, slots=slots, quick=quick)


def _job(manager: RunningManager, judge: Path, name: str, seconds: float, **fields: Any) -> int:
    arguments = {"judge": str(judge), "title": name, "seconds": str(seconds), "end": "good"}
    return manager.create("quick", name=name, arguments=arguments, **fields)


def _ran(judge: Path, name: str) -> list[Ran]:
    return sorted(read_notes(judge).get(name, {}).values(), key=lambda ran: ran.first)


def test_a_job_that_is_scheduled_at_the_manager_runs_on_a_node(manager: RunningManager) -> None:
    node = _node(manager, "one", quick=False)
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(spider("good")))
        answer = manager.client.post("/schedule.json", data={"project": "shop", "spider": "good"}).json()
        assert answer["status"] == "ok"
        job = manager.ended(1)
        assert (job["state"], job["finish_reason"], job["node"]) == ("finished", "finished", "one")


def test_a_job_that_reports_too_much_ends_all_the_same(manager: RunningManager, judge: Path) -> None:
    with running(manager, _node(manager, "one")):
        manager.when_node("one", "online")
        manager.deploy(egg(spider("quick")))
        arguments = {"judge": str(judge), "title": "big", "seconds": "0", "end": "big"}
        job = manager.ended(manager.create("quick", arguments=arguments))
        assert (job["state"], job["stats"]["item_scraped_count"]) == ("finished", 5)
        assert len(job["stats"]) < 600


def test_jobs_of_lost_nodes_run_elsewhere_and_never_twice_at_a_time(tmp_path: Path, judge: Path) -> None:
    """One machine is gone, of one only the agent stands still, one stands still as a whole and wakes up."""
    manager = RunningManager(tmp_path / "manager", limit_seconds=_SHORT_SECONDS)
    nodes = {name: _node(manager, name, slots=3 if name == "gone" else 1) for name in ("gone", "agent", "frozen")}
    with running(manager):
        found: dict[str, int] = {}
        for name, node in nodes.items():
            node.start()
            manager.when_node(name, "online")
            if not found:
                manager.deploy(egg(spider("quick")))
            found[name] = _job(manager, judge, name, 40, retries=1, retry_seconds=0)
            assert manager.when(found[name], "running")["node"] == name
            if name == "gone":
                failing, stopped = (_job(manager, judge, each, 40) for each in ("failing", "stopped"))
                assert manager.when(failing, "running")
                assert manager.when(stopped, "running")
        with running(_node(manager, "other", slots=3)):
            nodes["gone"].crash()
            manager.client.post(f"/v1/jobs/{stopped}/cancel")
            nodes["agent"].signal(signal.SIGSTOP)
            nodes["frozen"].signal_all(signal.SIGSTOP)
            until(lambda: all(manager.job(job)["attempt"] == 2 for job in found.values()), what=manager.said)
            for name in found:
                assert manager.node(name)["state"] == "lost"
                job = manager.when(found[name], "running")
                assert job["node"] == "other"
                assert [earlier["reason"] for earlier in job["earlier_attempts"]] == ["node_lost"]
            failed = manager.ended(failing)  # it has no retries
            assert (failed["state"], failed["reason"]) == ("failed", "node_lost")
            assert manager.ended(stopped)["state"] == "cancelled"
            until(lambda: all(len(_ran(judge, name)) == 2 for name in found))
            for name in ("gone", "agent", "frozen"):
                first, second = _ran(judge, name)
                assert first.last < second.first, name
            for name in ("agent", "frozen"):
                nodes[name].signal_all(signal.SIGCONT)
            woken_at = time.monotonic()
            until(lambda: not (nodes["frozen"].processes() or nodes["agent"].processes()), what=nodes["frozen"].said)
            assert _ran(judge, "frozen")[0].last - woken_at < _WAKING_SECONDS
            for name in ("agent", "frozen"):
                manager.when_node(name, "online")
                # What the node says of the attempt that it has lost changes nothing.
                assert (manager.job(found[name])["state"], manager.job(found[name])["attempt"]) == ("running", 2)
            nodes["agent"].crash()
            nodes["frozen"].crash()
        assert manager.client.delete("/v1/nodes/gone").status_code == 204
        assert manager.node("gone") is None


def test_jobs_run_on_while_the_manager_or_the_agent_is_away(manager: RunningManager, judge: Path) -> None:
    node = _node(manager, "one", slots=3)
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(spider("quick")))
        short, long = _job(manager, judge, "short", 0.5), _job(manager, judge, "long", 2.5)
        waiting = [_job(manager, judge, f"waiting{number}", 0) for number in range(4)]
        manager.when(long, "running")
        manager.kill()
        node.kill()
        node.start()
        manager.start()
        for job in (short, long, *waiting):
            ended = manager.ended(job)
            assert (ended["state"], ended["attempt"]) == ("finished", 1), ended
        assert all(len(_ran(judge, name)) == 1 for name in ("short", "long"))
        assert node.stop() == 0


def test_a_node_that_is_draining_gets_no_jobs_and_runs_its_own_to_the_end(manager: RunningManager, judge: Path) -> None:
    node = _node(manager, "one", slots=2)
    with running(manager, node):
        manager.when_node("one", "online")
        manager.deploy(egg(spider("quick")))
        first = _job(manager, judge, "first", 1)
        manager.when(first, "running")
        assert manager.client.patch("/v1/nodes/one", json={"draining": True}).json()["state"] == "draining"
        second = _job(manager, judge, "second", 0)
        assert manager.ended(first)["state"] == "finished"
        node.stop()
        assert manager.node("one")["state"] == "offline"
        node.start()
        until(lambda: manager.node("one")["silent_seconds"] < 0.2)
        assert (manager.node("one")["state"], manager.job(second)["state"]) == ("draining", "pending")
        manager.client.patch("/v1/nodes/one", json={"draining": False})
        assert manager.ended(second)["state"] == "finished"


def test_a_job_runs_only_on_a_node_that_has_its_label(manager: RunningManager, judge: Path) -> None:
    plain, special = _node(manager, "plain"), _node(manager, "special", "--label", "gpu", slots=2)
    with running(manager, plain):
        manager.when_node("plain", "online")
        manager.deploy(egg(spider("quick")))
        assert manager.client.patch("/v1/projects/shop", json={"label": "gpu"}).json()["label"] == "gpu"
        assert manager.client.put("/v1/labels/gpu", json={"max_running": 1}).status_code == 200
        demanding = [_job(manager, judge, f"demanding{number}", 0.5) for number in range(2)]
        other = _job(manager, judge, "other", 0, label="")
        assert manager.ended(other)["node"] == "plain"
        assert manager.job(demanding[0])["state"] == "pending"
        with running(special):
            assert [manager.ended(job)["node"] for job in demanding] == ["special"] * 2
            first, second = (_ran(judge, f"demanding{number}")[0] for number in range(2))
            assert first.last < second.first  # the limit of the label, although there were two slots


def test_a_second_process_is_refused_where_it_would_run_jobs_twice(manager: RunningManager) -> None:
    """A node of the same name elsewhere, a node in the same folder, a manager on the same SQLite database."""
    node = _node(manager, "one")
    with running(manager, node):
        manager.when_node("one", "online")
        refused = {
            "a node one with another folder is online": RunningNode(
                manager.folder.parent / "two", [manager.url], name="one"
            ),
            "another `gossamer node` (process": RunningNode(
                manager.folder.parent / "one", [manager.url], name="other", output="second"
            ),
            "another `gossamer manager` (process": RunningManager(
                manager.folder, limit_seconds=_LIMIT_SECONDS, output="second"
            ),
        }
        for second in refused.values():
            second.launch()
        for said, second in refused.items():
            assert second.wait() == 2
            assert said in second.said()
            if said.startswith("another "):
                assert "waiting up to 5 seconds for another `gossamer" in second.said()
        assert manager.node("one")["state"] == "online"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_that_has_not_reached_a_manager_ends_when_asked(tmp_path: Path, number: int) -> None:
    [port] = free_ports(1)
    node = RunningNode(tmp_path / "one", [f"http://127.0.0.1:{port}"], name="one", quick=True)
    with running(node):
        until(lambda: "nodes/v1/register" in node.said(), what=node.said)
        node.signal(number)
        assert node.wait() == 0


class _RawNode:
    """Calls of a node, one by one."""

    def __init__(self, manager: RunningManager, incarnation: str, *, name: str = "raw") -> None:
        self._client = manager.client
        self._headers = {"Gossamer-Node": name, "Gossamer-Incarnation": incarnation}

    def call(self, name: str, **fields: Any) -> httpx.Response:
        return self._client.post(f"/nodes/v1/{name}", json=fields, headers=self._headers)

    def register(self) -> Any:
        return self.call("register", folder="folder", slots=2).json()


def test_every_call_of_a_node_may_be_repeated(manager: RunningManager, judge: Path) -> None:
    with running(manager):
        with running(_node(manager, "one")):
            manager.when_node("one", "online")
            manager.deploy(egg(spider("quick")))
            manager.client.patch("/v1/nodes/one", json={"draining": True})
        job = _job(manager, judge, "job", 0)
        raw = _RawNode(manager, "first")
        assert raw.register() == raw.register()
        taken = [raw.call("turn", free=2).json()["jobs"] for _ in range(2)]
        assert taken[0] == taken[1]
        attempt = taken[0][0]["id"]
        assert attempt == {"job": job, "number": 1}
        assert raw.call("turn", free=1, attempts=[attempt]).json() == {"jobs": [], "listings": [], "stops": []}
        again = _RawNode(manager, "second")  # the node has started again, and has not got its answer
        assert again.register()["attempts"] == [{"id": attempt, "was_started": False}]
        beat = {"attempts": [{"id": attempt, "state": "running"}]}
        assert raw.call("beat", **beat).status_code == 409
        assert raw.call("turn", free=2).json()["jobs"] == []
        # Nor does the new process get it again: it may have found the attempt in its folder.
        assert again.call("turn", free=2).json()["jobs"] == []
        assert again.call("beat", **beat).json()["orders"][0]["order"] == "keep"
        for _ in range(2):
            again.call("started", attempt=attempt, pid=7)
            assert manager.job(job)["state"] == "running"
        end = {"exit_code": 0, "finish_reason": "finished"}
        for _ in range(2):
            assert again.call("ended", attempt=attempt, end=end).status_code == 200
            assert manager.job(job)["state"] == "finished"
        again.call("ended", attempt=attempt, end={"exit_code": 1})
        again.call("returned", attempt=attempt)
        assert manager.job(job)["state"] == "finished"
        assert again.call("beat", **beat).json()["orders"][0]["order"] == "unknown"


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("turn", {}, "NodeTurn: Object missing required field `free`"),
        ("turn", {"free": "many"}, "NodeTurn.free: Expected `int`, got `str`"),
        ("turn", {"free": -1}, "NodeTurn.free: Expected `int` >= 0"),
        ("ended", {"attempt": {"job": 1, "number": 1}, "end": 7}, "Ended.end: Expected `object`, got `int`"),
        ("fly", {}, "there is no call fly"),
    ],
)
def test_a_call_that_is_wrong_is_refused(shared: RunningManager, name: str, fields: Any, said: str) -> None:
    answer = _RawNode(shared, "first").call(name, **fields)
    assert answer.status_code in (400, 404)
    assert said in answer.json()["detail"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningManager]:
    started = RunningManager(tmp_path_factory.mktemp("shared"), limit_seconds=_LIMIT_SECONDS)
    with running(started):
        yield started


def test_a_deployment_without_a_node_is_refused(shared: RunningManager) -> None:
    fields = {"project": "shop", "version": "1"}
    answer = shared.client.post("/addversion.json", data=fields, files={"egg": ("p.egg", egg(spider("good")))}).json()
    assert answer["status"] == "error"
    assert "no node is online" in answer["message"]


def test_a_token_of_a_node_permits_nothing_else(shared: RunningManager, tmp_path: Path) -> None:
    def token(scope: str) -> dict[str, str]:
        answer = shared.client.post("/v1/tokens", json={"name": scope, "scope": scope})
        return {"Authorization": f"Bearer {answer.json()['token']}"}

    node, deployer = token("node"), token("deploy")
    names = {"Gossamer-Node": "raw", "Gossamer-Incarnation": "first"}
    body = {"folder": "folder", "slots": 1}
    assert shared.client.post("/nodes/v1/register", json=body, headers={**node, **names}).status_code == 200
    assert shared.client.post("/nodes/v1/register", json=body, headers={**deployer, **names}).status_code == 403
    assert shared.client.get("/v1/jobs", headers=node).status_code == 403
    refused = shared.client.post("/v1/tokens", json={"name": "n", "scope": "node", "project": "shop"})
    assert refused.status_code == 400
    stranger = RunningNode(tmp_path, [shared.url], "--token", "wrong", name="stranger")
    with running(stranger):
        assert stranger.wait() == 2
        assert "the token is unknown" in stranger.said()


def test_a_token_belongs_to_the_node_that_uses_it_first(shared: RunningManager, tmp_path: Path) -> None:
    made = shared.client.post("/v1/tokens", json={"name": "crawler", "scope": "node"}).json()
    authorization = {"Authorization": f"Bearer {made['token']}"}

    def register(name: str) -> int:
        names = {"Gossamer-Node": name, "Gossamer-Incarnation": name}
        body = {"folder": name, "slots": 1}
        return shared.client.post("/nodes/v1/register", json=body, headers={**authorization, **names}).status_code

    def owner() -> str:
        [token] = [each for each in shared.client.get("/v1/tokens").json() if each["id"] == made["id"]]
        return str(token["node"])

    assert owner() == ""
    assert [register("left"), register("right"), register("left"), owner()] == [200, 403, 200, "left"]
    right = RunningNode(tmp_path, [shared.url], "--token", made["token"], name="right")
    with running(right):
        assert right.wait() == 2
        assert "belongs to the node left" in right.said()
        assert f"gossamer tokens release {made['id']}" in right.said()
    assert shared.client.post(f"/v1/tokens/{made['id']}/release").json()["node"] == ""
    assert [register("right"), register("left"), owner()] == [200, 403, "right"]
    assert shared.client.post("/v1/tokens/999/release").status_code == 404


@pytest.fixture
def database() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


def test_two_managers_that_start_at_once_on_an_empty_database_share_the_work(
    tmp_path: Path, judge: Path, database: PostgreSql
) -> None:
    options = ("--database", database.new_database(), "--store", str(tmp_path / "store"))
    first, second = (
        RunningManager(tmp_path / name, *options, limit_seconds=_LIMIT_SECONDS) for name in ("first", "second")
    )
    node = RunningNode(tmp_path / "one", [first.url, second.url], name="one", slots=4, quick=True)
    for each in (first, second):
        each.launch()
    with running(first, second, node):
        for each in (first, second):
            each.when_node("one", "online")
        second.deploy(egg(spider("quick")))  # the node waits at the first one
        long = _job(second, judge, "long", 2.5)
        assert first.when(long, "running")["node"] == "one"
        first.kill()
        quick = _job(second, judge, "quick", 0)
        assert second.ended(quick)["state"] == "finished"
        ended = second.ended(long)
        assert (ended["state"], ended["attempt"]) == ("finished", 1)
        first.start()
        assert first.job(quick)["state"] == "finished"
        assert os.listdir(tmp_path / "store/eggs") == ["shop"]
