"""Projects with users of their own, on a server that runs as root: a hostile project reaches nothing of another one."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.fernet import Fernet

from tests.servers.open_python import OpenPython, open_python
from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.scrapyd import Scrapyd, egg, spider, until

_FIRST = 71_000
_LOGIN = ("admin", "pw-5d3a91")
_LIMIT = 1024 * 1024
_VICTIM = spider("sleepy", "yield {'card': '4000 1234'}\nawait asyncio.sleep(600)") + spider("quick")
_HOSTILE = (Path(__file__).parent / "hostile_spiders.py").read_text()


def _require_root() -> None:
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("CI must run these tests as root")
        pytest.skip("only root can give projects users of their own")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that every user may enter; those of pytest belong to its user."""
    _require_root()
    folder = Path(tempfile.mkdtemp(prefix="gossamer-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def python(place: Path) -> OpenPython:
    return open_python(place, uid=_FIRST)


class Site(NamedTuple):
    """A server with the two projects."""

    server: Scrapyd
    victim: int
    """Number of the victim's job, which runs."""
    victim_pid: int


@pytest.fixture(scope="module")
def site(place: Path, python: OpenPython) -> Iterator[Site]:
    folder = place / "site"
    folder.mkdir()
    (folder / "keys").write_text(Fernet.generate_key().decode())
    (folder / "keys").chmod(0o600)
    environment = {**python.environment, "GOSSAMER_SECRET_KEYS_FILE": str(folder / "keys"), "NODE_SECRET": "x"}
    conf = _conf(f"{_FIRST}-{_FIRST + 9}") + "\njobs_dir = jobs"
    server = Scrapyd(folder, conf=conf, environment=environment, python=python.path)
    (folder / "scrapyd.conf").chmod(0o600)
    server.client.auth = _LOGIN
    try:
        server.start()
        for project, value in (("victim", "hunter2"), ("hostile", "mine")):
            path = f"/v1/projects/{project}/variables/API_KEY"
            assert server.client.put(path, json={"value": value, "secret": True}).status_code == 200
        assert server.deploy(egg(_VICTIM, name="victim"), project="victim")["status"] == "ok"
        assert server.deploy(egg(_HOSTILE, name="hostile"), project="hostile")["status"] == "ok", server.said()
        assert _run(server, "victim", "quick")["state"] == "finished"
        victim = _create(server, "victim", "sleepy")
        until(lambda: server.client.get(f"/v1/jobs/{victim}/items").json()["items"], what=server.said)
        yield Site(server, victim, server.client.get(f"/v1/jobs/{victim}").json()["pid"])
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
        server.kill_jobs()
        server.client.close()


def _conf(users: str) -> str:
    return f"username = {_LOGIN[0]}\npassword = {_LOGIN[1]}\nproject_users = {users}\nmax_proc = 4"


def _create(server: Scrapyd, project: str, name: str, **fields: Any) -> int:
    answer = server.client.post("/v1/jobs", json={"project": project, "spider": name, **fields})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def _run(server: Scrapyd, project: str, name: str, **fields: Any) -> Any:
    number = _create(server, project, name, **fields)
    found: list[Any] = []

    def has_ended() -> bool:
        found[:] = [server.client.get(f"/v1/jobs/{number}").json()]
        return found[0]["state"] in ("finished", "failed", "cancelled")

    until(has_ended, what=lambda: f"{found}\n{server.said()}")
    return found[0]


def _uid(path: Path) -> int:
    return path.stat().st_uid


def _private_places(site: Site) -> list[Path]:
    """Everything that only the server, or only the victim, may read."""
    folder = site.server.folder
    state, node = folder / "dbs/gossamer", folder / "dbs/gossamer/node"
    places = [
        *(folder / "logs", folder / "items", folder / "eggs", folder / "jobs"),
        *(folder / "scrapyd.conf", folder / "keys", folder / "dbs"),
        *(state / "state.db", state / "state.db-wal", state / "uploads", state / "lock"),
        *(node / "users.json", node / "attempts", node / "artefacts", node / "homes"),
    ]
    found = [*places]
    for base in (folder / "logs/victim", folder / "items/victim", folder / "eggs/victim", folder / "jobs/victim"):
        found += [base, *base.rglob("*")]
    homes = [home for home in (node / "homes").iterdir() if _uid(home) != _hostile_uid(site)]
    attempts = [each for each in (node / "attempts").iterdir() if each.name.startswith(f"{site.victim}-")]
    copies = [each for each in (node / "artefacts").iterdir() if each.name != str(_hostile_uid(site))]
    for base in (*homes, *attempts, *copies):
        found += [base, *base.rglob("*")]
    assert len(attempts) == 1
    assert len(copies) == 1
    return found


def _hostile_uid(site: Site) -> int:
    return int(json.loads((site.server.folder / "dbs/gossamer/node/users.json").read_text())["hostile"])


def test_a_hostile_project_reaches_nothing_that_is_not_its_own(site: Site, place: Path) -> None:
    server = site.server
    assert server.process is not None
    # A program with the setuid bit, as any system has some.
    setuid = place / "id"
    shutil.copy(shutil.which("id") or "/usr/bin/id", setuid)
    setuid.chmod(0o4755)
    users = json.loads((server.folder / "dbs/gossamer/node/users.json").read_text())
    copies = (server.folder / f"dbs/gossamer/node/artefacts/{users['hostile']}").iterdir()
    shims = [int(Path(f"/proc/{site.victim_pid}/stat").read_text().rpartition(")")[2].split()[1])]
    plan = {
        "read": [str(path) for path in _private_places(site)],
        "append": [*map(str, copies), *(str(path) for path in _private_places(site) if path.is_file())],
        "processes": [site.victim_pid, server.process.pid, *shims],
        "other": users["victim"],
        "url": f"http://127.0.0.1:{server.port}/v1/jobs",
        "length": _LIMIT + 65 * 1024 * 1024,
        "id": str(setuid),
    }
    job = _run(server, "hostile", "hostile", arguments={"plan": json.dumps(plan)}, file_limit=_LIMIT)
    assert job["state"] == "finished", server.client.get(f"/v1/jobs/{job['id']}/log").text
    items = server.client.get(f"/v1/jobs/{job['id']}/items", params={"limit": 1000}).json()["items"]
    attempts = {item["attempt"]: item["outcome"] for item in items if "attempt" in item}
    assert len(attempts) > 80
    assert attempts.pop("long") == "OSError"
    assert attempts.pop("call") == "HTTPError"
    assert {name: found for name, found in attempts.items() if found != "PermissionError"} == {}
    [allowed] = [item["allowed"] for item in items if "allowed" in item]
    assert allowed == {
        "uid": users["hostile"],
        "setuid program": str(users["hostile"]),
        "no new privileges": "1",
        "capabilities": "0000000000000000",
        "home": "done: None",
        "tmp": "done: None",
        "kill": "done: None",
        "secret": "mine",
        "hidden": [],
    }
    [escaped] = [item["escaped"] for item in items if "escaped" in item]
    assert not Path(f"/proc/{escaped}").exists()
    assert server.client.get(f"/v1/jobs/{site.victim}").json()["state"] == "running"


def test_spiders_are_listed_by_the_projects_user(site: Site) -> None:
    refused = site.server.deploy(
        egg("", name="hostile", settings="import os\nraise RuntimeError(f'user {os.getuid()} {os.geteuid()}')"),
        project="hostile",
        version="2",
    )
    assert f"user {_hostile_uid(site)} {_hostile_uid(site)}" in refused["message"]


def test_a_project_keeps_its_user_and_its_job_runs_on_after_a_restart(site: Site) -> None:
    server = site.server
    before = json.loads((server.folder / "dbs/gossamer/node/users.json").read_text())
    server.kill()
    server.start()
    job = server.client.get(f"/v1/jobs/{site.victim}").json()
    assert (job["state"], job["pid"]) == ("running", site.victim_pid)
    assert _uid(Path(f"/proc/{site.victim_pid}")) == before["victim"]
    assert _run(server, "victim", "quick")["state"] == "finished"
    assert json.loads((server.folder / "dbs/gossamer/node/users.json").read_text()) == before
    server.client.post(f"/v1/jobs/{site.victim}/cancel", params={"signal": signal.SIGKILL})
    until(lambda: not Path(f"/proc/{site.victim_pid}").exists(), what=server.said)


def test_a_second_server_with_the_same_users_is_refused(site: Site, place: Path, python: OpenPython) -> None:
    refused = _refused(place / "second", python, _conf(f"{_FIRST + 5}-{_FIRST + 20}"))
    assert f"another node of this machine gives users from {_FIRST + 5} to {_FIRST + 20}" in refused


def _refused(folder: Path, python: OpenPython, conf: str, **options: Any) -> str:
    """What a server writes that does not start."""
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "scrapyd.conf").write_text(f"[scrapyd]\nhttp_port = 0\n{conf}\n")
    (folder / "scrapyd.conf").chmod(options.pop("mode", 0o600))
    done = subprocess.run(
        [python.path, "-m", "gossamer", "scrapyd"],
        cwd=folder,
        env={**os.environ, **python.environment, "HOME": "/"},
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )
    assert done.returncode == 2, done
    return done.stderr


def test_what_would_not_separate_projects_is_refused(place: Path, python: OpenPython) -> None:
    users = f"{_FIRST + 100}-{_FIRST + 110}"
    assert "only if the server has a password" in _refused(place / "open", python, f"project_users = {users}")
    assert "chmod o= " in _refused(place / "readable", python, _conf(users), mode=0o644)
    as_other = {"user": 65534, "group": 65534, "extra_groups": [], "mode": 0o644}
    assert "only a node that runs as root" in _refused(place / "other", python, _conf(users), **as_other)


def test_a_python_that_only_root_can_run_is_refused_with_its_folder(place: Path, python: OpenPython) -> None:
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copytree(Path(python.path).parents[1], hidden / "python", symlinks=True)
    if not python.environment:
        pytest.skip("the Python of the tests was not copied")
    copied = OpenPython(
        str(hidden / "python/bin" / Path(python.path).name),
        {**python.environment, "LD_LIBRARY_PATH": str(hidden / "python/lib")},
    )
    refused = _refused(place / "closed", copied, _conf(f"{_FIRST + 100}-{_FIRST + 110}"))
    assert f"because only its owner may enter {hidden}" in refused


def test_a_node_that_runs_as_root_separates_the_projects_of_its_manager(place: Path, python: OpenPython) -> None:
    conf = place / "manager.conf"
    keys = place / "manager.keys"
    keys.write_text(Fernet.generate_key().decode())
    conf.write_text(f"[scrapyd]\nusername = {_LOGIN[0]}\npassword = {_LOGIN[1]}\nsecret_keys_file = {keys}\n")
    for file in (conf, keys):
        file.chmod(0o600)
    manager = RunningManager(place / "manager", "--scrapyd-conf", str(conf), limit_seconds=20)
    manager.client.auth = _LOGIN
    with running(manager):
        token = manager.client.post("/v1/tokens", json={"name": "node one", "scope": "node"}).json()["token"]
        users = ("--project-users", f"{_FIRST + 200}-{_FIRST + 210}")
        node = RunningNode(place / "node", [manager.url], "--token", token, *users, name="one", python=python)
        with running(node):
            manager.when_node("one", "online")
            folder = place / "node/gossamer-node"
            looks = "for path in self.paths.split():\n    try:\n        os.listdir(path)\n"
            looks += "        yield {'path': path}\n    except PermissionError:\n        pass\n"
            looks += "yield {'uid': os.getuid(), 'secret': os.environ['API_KEY']}"
            spiders = spider("looks", looks) + spider("sleepy", "yield {'a': 1}\nawait asyncio.sleep(600)")
            secret = {"value": "over the wire", "secret": True}
            assert manager.client.put("/v1/projects/two/variables/API_KEY", json=secret).status_code == 200
            for project in ("one", "two"):
                manager.deploy(egg(spiders, name=project), project=project)
            victim = manager.create("sleepy", project="one")
            manager.when(victim, "running")
            mapping = json.loads((folder / "users.json").read_text())
            assert sorted(mapping.values()) == [_FIRST + 201, _FIRST + 202]
            paths = [folder, *folder.iterdir(), *(folder / "attempts").iterdir(), *(folder / "files").iterdir()]
            listed = " ".join(str(path) for path in paths if path.is_dir())
            job = manager.ended(manager.create("looks", project="two", arguments={"paths": listed}))
            assert job["state"] == "finished", node.said()
            items = manager.client.get(f"/v1/jobs/{job['id']}/items").json()["items"]
            assert items == [{"uid": mapping["two"], "secret": "over the wire"}]
            assert "over the wire" not in node.said() + manager.said()
            assert _uid(folder / f"files/{victim}-1/log") == mapping["one"]
            assert _uid(Path(f"/proc/{manager.job(victim)['pid']}")) == mapping["one"]


def test_a_node_says_that_a_manager_without_a_password_is_open_to_its_jobs(place: Path, python: OpenPython) -> None:
    manager = RunningManager(place / "open-manager", limit_seconds=20)
    with running(manager):
        users = ("--project-users", f"{_FIRST + 300}-{_FIRST + 310}")
        node = RunningNode(place / "open-node", [manager.url], *users, name="one", python=python)
        with running(node):
            assert node.wait() == 2
            assert f"jobs could use {manager.url} as administrators" in node.said()
