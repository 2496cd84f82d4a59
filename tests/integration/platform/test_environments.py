"""Wheels, isolated environments, and the default version of a project, on a running server."""

import contextlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gossamer_platform.node import build
from gossamer_platform.packages import remove_folder
from tests.servers import crawling
from tests.servers.open_python import open_python
from tests.servers.package_index import package_index, with_uv
from tests.servers.pip_programs import program
from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.scrapyd import Scrapyd, egg, project_wheel, scrapyd, spider, until, wheel
from tests.servers.small_disk import a_disk
from tests.servers.valkey import free_ports

_TELLS = spider("tells", "import coloured\nyield {'colour': coloured.COLOUR, 'python': sys.prefix}")
"""A spider that needs a package which the server does not have."""
_BACKEND = """
import os, time, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    print("compiling slowly", flush=True)
    while not os.path.exists({go!r}):
        time.sleep(0.02)
    name = "slow-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as packed:
        packed.writestr("coloured.py", "COLOUR = 'slow'")
        packed.writestr("slow-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: slow\\nVersion: 1.0\\n")
        packed.writestr("slow-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        packed.writestr("slow-1.0.dist-info/RECORD", "")
    return name
"""
"""Build backend of a package whose build waits for a file."""


def _source_package(index: Path, *, backend: str) -> None:
    """Put a source package into the index that this code builds."""
    project = '[project]\nname = "slow"\nversion = "1.0"\n'
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {
        "pyproject.toml": project + system,
        "backend.py": backend,
        "PKG-INFO": "Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n",
    }
    with tarfile.open(index / "slow-1.0.tar.gz", "w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"slow-1.0/{name}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_index(tmp_path_factory.mktemp("index"))


@contextlib.contextmanager
def _server(folder: Path, index: Path, conf: str = "", **variables: str) -> Iterator[Scrapyd]:
    """A server that finds packages in the folder only, and builds with uv unless variables say otherwise."""
    with scrapyd(folder, environment={**with_uv(index), **variables}, conf=conf) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, index: Path) -> Iterator[Scrapyd]:
    with _server(tmp_path_factory.mktemp("environments"), index) as running:
        yield running


def _deploy(server: Scrapyd, content: bytes, **parameters: Any) -> Any:
    chosen = {"project": "shop", "version": "1", "environment": "isolated", **parameters}
    return server.client.post("/v1/versions", params=chosen, content=content)


def _run(server: Scrapyd, spider_name: str, **fields: Any) -> Any:
    """The job once it has ended, and its items."""
    answer = server.client.post("/v1/jobs", json={"project": "shop", "spider": spider_name, **fields})
    assert answer.status_code == 201, answer.text
    address, found = f"/v1/jobs/{answer.json()['id']}", []

    def has_ended() -> bool:
        found[:] = [server.client.get(address).json()]
        return found[0]["state"] in ("finished", "failed", "cancelled")

    until(has_ended, what=server.said)
    return found[0], server.client.get(f"{address}/items").json()["items"]


def _environment(server: Scrapyd, **parameters: Any) -> Any:
    """The latest environment of a project."""
    found = server.client.get("/v1/environments", params={"project": "shop", **parameters}).json()
    return found[0] if found else {"status": ""}


def _version(server: Scrapyd, name: str, project: str = "shop") -> Any:
    versions = server.client.get("/v1/versions", params={"project": project}).json()
    return next(found for found in reversed(versions) if found["name"] == name)


def test_each_version_runs_in_an_environment_of_its_requirements(server: Scrapyd) -> None:
    for number in ("1", "2"):
        content = project_wheel(_TELLS, requires=[f"coloured=={number}.0"])
        answer = _deploy(server, content, version=number)
        assert answer.status_code == 201, answer.text
        assert (answer.json()["spiders"], answer.json()["environment"]) == (["tells"], "isolated")
    for number, colour in (("1", "red"), ("2", "blue")):
        job, items = _run(server, "tells", version=number)
        assert job["state"] == "finished", server.said()
        assert items[0]["colour"] == colour
        built = _environment(server, version=number)
        assert items[0]["python"].endswith(f"/environments/{built['digest']}")
        assert built["status"] == "ready"
        assert built["requirements"] == [f"coloured=={number}.0", f"scrapy=={version('scrapy')}"]
        assert built["built"].endswith(f"Scrapy {version('scrapy')}, built by uv")
    log = server.client.get("/v1/environments/log", params={"project": "shop", "version": "2"}).text
    assert "+ coloured==2.0" in log


def test_no_file_of_an_environment_has_a_password_of_its_requirements(server: Scrapyd) -> None:
    """All projects of a node can read its environments."""
    line = "--extra-index-url http://user:hidden-pass@127.0.0.1:9/simple"
    answer = _deploy(server, project_wheel(_TELLS, more={"requirements.txt": f"coloured\n{line}\n"}), project="closed")
    assert answer.status_code == 201, answer.text
    found = _environment(server, project="closed")
    folder = server.folder / "dbs/gossamer/node/environments" / found["digest"]
    assert (folder / build.MARK).exists()
    assert [path for path in folder.rglob("*") if path.is_file() and b"hidden-pass" in path.read_bytes()] == []


def test_an_egg_with_requirements_and_the_default_of_a_project(server: Scrapyd) -> None:
    """A client of Scrapyd cannot name the kind of environment, so the project has one."""
    server.deploy(egg(spider("first")), project="eggs")
    changed = server.client.patch("/v1/projects/eggs", json={"environment": "isolated"})
    assert changed.json()["environment"] == "isolated"
    content = io.BytesIO(egg(_TELLS))
    with zipfile.ZipFile(content, "a") as packed:
        packed.writestr("EGG-INFO/requires.txt", "coloured<2\n")
    assert server.deploy(content.getvalue(), project="eggs", version="2")["spiders"] == 1
    assert _run(server, "tells", project="eggs")[1][0]["colour"] == "red"


def test_versions_with_the_same_requirements_share_an_environment(server: Scrapyd) -> None:
    for name in ("a", "b"):
        assert _deploy(server, project_wheel(_TELLS, requires=["coloured"]), project=name).status_code == 201
    one, other = (_environment(server, project=name)["digest"] for name in ("a", "b"))
    assert one == other
    folder = server.folder / "dbs/gossamer/node/environments" / one
    paths = [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o222]
    said = subprocess.run([folder / "bin/python", "-c", "import coloured; print(coloured.COLOUR)"], capture_output=True)
    assert said.stdout == b"blue\n"


def test_a_version_whose_requirements_cannot_be_met_is_broken(server: Scrapyd) -> None:
    assert _deploy(server, project_wheel(_TELLS, requires=["coloured"]), project="picky").status_code == 201
    for requirement in ("coloured==3", "nothing-of-this-name", "coloured<2\nRequires-Dist: coloured>=2"):
        refused = _deploy(server, project_wheel(_TELLS, requires=[requirement]), project="picky", version="2")
        assert refused.status_code == 422, refused.text
        assert "cannot be built from the requirements and scrapy==" in refused.json()["detail"]
        assert requirement.partition("\n")[0].partition("=")[0].partition("<")[0] in refused.json()["detail"]
    for content, reason in (
        (project_wheel(_TELLS, more={"requirements.txt": "-e ."}), "'-e .' is not allowed"),
        (project_wheel(_TELLS, requires=["coloured\nRequires-Python: <3"]), "needs Python <3"),
    ):
        refused = _deploy(server, content, project="picky", version="2")
        assert (refused.status_code, reason in refused.json()["detail"]) == (422, True), refused.text
    assert server.get("listversions", project="picky")["versions"] == ["1"]
    assert _version(server, "2", "picky")["state"] == "broken"
    assert _run(server, "tells", project="picky")[0]["state"] == "finished"


def test_pin_roll_back_and_delete(server: Scrapyd) -> None:
    for name in ("1.9", "1.10", "1.11"):
        source = spider("says", f"yield {{'version': '{name}'}}") + spider("sleepy", "await asyncio.sleep(600)")
        assert _deploy(server, project_wheel(source), project="pins", version=name, environment="shared").is_success

    def default(answer: Any) -> tuple[str, bool]:
        assert answer.status_code == 200, answer.text
        return answer.json()["default_version"], answer.json()["is_pinned"]

    def delete(name: str, **parameters: Any) -> Any:
        return server.client.delete("/v1/versions", params={"project": "pins", "version": name, **parameters})

    projects = {each["name"]: each for each in server.client.get("/v1/projects").json()}
    assert (projects["pins"]["default_version"], projects["pins"]["is_pinned"]) == ("1.11", False)
    address = "/v1/projects/pins"
    assert default(server.client.post(f"{address}/rollback")) == ("1.10", True)
    assert default(server.client.post(f"{address}/rollback")) == ("1.9", True)
    assert server.client.post(f"{address}/rollback").status_code == 404
    assert _run(server, "says", project="pins")[1] == [{"version": "1.9"}]
    assert server.client.put(f"{address}/default", params={"version": "2"}).status_code == 404
    assert default(server.client.put(f"{address}/default", params={"version": "1.10"})) == ("1.10", True)
    assert "pinned as the default" in delete("1.10").json()["detail"]
    assert default(server.client.delete(f"{address}/default")) == ("1.11", False)
    assert "it is the default" in delete("1.11").json()["detail"]

    job = {"project": "pins", "spider": "sleepy", "version": "1.9"}
    running = server.client.post("/v1/jobs", json=job).json()["id"]
    until(lambda: server.client.get(f"/v1/jobs/{running}").json()["state"] == "running", what=server.said)
    server.client.patch(address, json={"max_running": 1})
    waiting = server.client.post("/v1/jobs", json=job).json()["id"]
    rule = {"project": "pins", "name": "nightly", "spider": "says", "version": "1.9", "cron": "0 3 * * *"}
    assert server.client.post("/v1/schedules", json=rule).is_success
    refused = delete("1.9")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gossamer:problem:version-in-use")
    for part in ("1 job runs it", "1 pending job will run it", "the schedules nightly name it"):
        assert part in refused.json()["detail"]
    assert delete("1.9", force=True).status_code == 204
    for number in (waiting, running):
        server.client.post(f"/v1/jobs/{number}/cancel")
    assert server.post("delversion", project="pins", version="1.11")["status"] == "ok"  # Scrapyd's own asks nothing
    assert delete("1.10").status_code == 409
    assert delete("1.10", force=True).status_code == 204


def test_a_wheel_may_replace_an_egg(server: Scrapyd) -> None:
    server.deploy(egg(spider("old")), project="both", version="1")
    settings_by_file = project_wheel(
        spider("new"),
        more={"INFO/entry_points.txt": "", "shop-1.0.data/data/scrapy.cfg": "[settings]\ndefault = shop.settings\n"},
    )
    answer = server.deploy(settings_by_file, project="both", version="1")
    assert answer["status"] == "ok", answer
    assert os.listdir(server.folder / "eggs/both") == ["1.whl"]
    assert server.get("listspiders", project="both")["spiders"] == ["new"]
    server.deploy(egg(spider("old")), project="both", version="1")
    assert os.listdir(server.folder / "eggs/both") == ["1.egg"]


def test_an_egg_that_needs_files_is_unpacked_and_scrapy_cfg_may_name_the_settings(server: Scrapyd) -> None:
    reads = spider("reads", "yield {'text': open(os.path.join(os.path.dirname(__file__), 'data.txt')).read()}")
    for mark in ("zip-safe", "not-zip-safe"):
        content = io.BytesIO(egg(reads, entry_point=False))
        with zipfile.ZipFile(content, "a") as packed:
            packed.writestr("shop/data.txt", "beside the code")
            packed.writestr("scrapy.cfg", "[settings]\ndefault = shop.settings\n")
            packed.writestr(f"EGG-INFO/{mark}", "")
        assert server.deploy(content.getvalue(), project="files", version=mark)["spiders"] == 1
    job, items = _run(server, "reads", project="files", version="not-zip-safe")
    assert (job["state"], items) == ("finished", [{"text": "beside the code"}])
    assert _run(server, "reads", project="files", version="zip-safe")[1] == []  # as with Scrapyd


def test_the_command_deploys_a_folder_with_its_requirements(server: Scrapyd, tmp_path: Path) -> None:
    (tmp_path / "scrapy.cfg").write_text(
        f"[settings]\ndefault = shop.settings\n[deploy]\nurl = {server.client.base_url}\nproject = folder\n"
    )
    (tmp_path / "requirements.txt").write_text("coloured==2.0  # blue\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/settings.py").write_text("SPIDER_MODULES = ['shop.spiders']\n")
    twins = spider("twin") + spider("twin").replace("class Twin", "class Other")
    (tmp_path / "shop/spiders.py").write_text(f"import sys\nimport scrapy\n{_TELLS}{twins}")

    done = crawling.gossamer("deploy", "--version", "1", "--environment", "isolated", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "several spiders with the same name" in done.stderr
    assert _run(server, "tells", project="folder")[1][0]["colour"] == "blue"
    (tmp_path / "requirements.txt").write_text("coloured==3.0\n")
    broken = crawling.gossamer("deploy", "--version", "2", "--environment", "isolated", cwd=tmp_path)
    assert broken.returncode == 1
    assert "coloured==3.0" in broken.stderr
    assert server.get("listversions", project="folder")["versions"] == ["1"]


def test_the_command_says_that_the_server_still_builds_and_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    index = package_index(tmp_path / "index")
    _source_package(index, backend=_BACKEND.format(go=str(tmp_path / "go")))
    (tmp_path / "project/shop").mkdir(parents=True)
    (tmp_path / "project/scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (tmp_path / "project/requirements.txt").write_text("slow\n")
    (tmp_path / "project/shop/__init__.py").touch()
    (tmp_path / "project/shop/settings.py").write_text("SPIDER_MODULES = ['shop.spiders']\n")
    (tmp_path / "project/shop/spiders.py").write_text(f"import sys\nimport scrapy\n{_TELLS}")
    with _server(tmp_path, index) as server:
        deploying = subprocess.Popen(
            crawling.command(
                "deploy", str(server.client.base_url), "--project=shop", "--version=1", "--environment=isolated"
            ),
            cwd=tmp_path / "project",
            stderr=subprocess.PIPE,
            text=True,
        )
        assert deploying.stderr is not None
        said = ""
        while "The server still builds version 1." not in said:
            line = deploying.stderr.readline()
            assert line, said
            said += line
        deploying.send_signal(signal.SIGINT)
        said = deploying.communicate()[1]
        assert "The server goes on with version 1 of shop. To see its state: gossamer versions --project shop" in said
        (tmp_path / "go").touch()
        until(lambda: _version(server, "1")["state"] == "ready", what=lambda: _version(server, "1"))


@contextlib.contextmanager
def _serving(folder: Path, port: int, on_request: Callable[[str], None] = lambda path: None) -> Iterator[None]:
    """An index of packages, as PyPI's. `on_request` is called with the path of each request before it is answered."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            on_request(self.path)
            super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=folder)) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield
        serving.shutdown()
        thread.join()


def test_an_index_that_cannot_be_reached_does_not_break_the_version(tmp_path: Path, index: Path) -> None:
    for path in index.glob("*.whl"):
        name = path.name.partition("-")[0]
        (tmp_path / "simple" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "simple" / name)
    [port] = free_ports(1)
    variables = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    variables["GOSSAMER_PLATFORM_BUILDER"] = "pip"
    address = f"http://user:secret@127.0.0.1:{port}/simple"
    with _server(tmp_path, index, "deploy_wait = 0.1", **variables, PIP_INDEX_URL=address) as server:
        content = project_wheel(_TELLS, requires=["coloured==1.0"])
        said = server.deploy(content)["message"]
        assert said.startswith("version '1' is not built after 0.1 seconds"), said
        server.client.patch("/v1/projects/shop", json={"environment": "isolated"})
        assert _deploy(server, content, wait_seconds=0).status_code == 202
        until(lambda: _version(server, "1")["reason"], what=server.said)
        found = _version(server, "1")
        assert found["state"] == "building"
        assert "No matching distribution" in found["reason"]
        assert _environment(server)["status"] == "failed"
        assert "secret" not in json.dumps([found, _environment(server)])
        with _serving(tmp_path, port):
            until(lambda: _version(server, "1")["state"] == "ready", what=lambda: _version(server, "1"))
        assert (_version(server, "1")["reason"], _environment(server)["status"]) == ("", "ready")
        assert _environment(server)["built"].endswith("built by pip")
        assert _run(server, "tells")[1][0]["colour"] == "red"
        remove_folder(tmp_path / "dbs/gossamer/node/environments" / _environment(server)["digest"])
        waiting = server.client.post("/v1/jobs", json={"project": "shop", "spider": "tells"}).json()["id"]
        until(lambda: server.client.get(f"/v1/jobs/{waiting}").json()["reason"], what=server.said)
        job = server.client.get(f"/v1/jobs/{waiting}").json()
        assert (job["state"], job["reason"].partition(":")[0]) == ("pending", "environment")
        assert server.client.post(f"/v1/jobs/{waiting}/cancel").json()["state"] == "cancelled"


def test_passwords_of_indexes_are_on_no_command_line(tmp_path: Path, index: Path) -> None:
    """The index, while uv asks it, looks at the command lines of all processes, as each user of the machine can."""
    wheels = {path.name.partition("-")[0]: path for path in index.glob("*.whl")}
    for place in ("main/scrapy", "more/coloured", "links", "local"):
        (tmp_path / place).mkdir(parents=True)
    shutil.copy(wheels["scrapy"], tmp_path / "main/scrapy")
    shutil.copy(wheels["coloured"], tmp_path / "more/coloured")
    (tmp_path / "links/linked-1.0-py3-none-any.whl").write_bytes(wheel("linked", {"linked.py": ""}, version="1.0"))
    (tmp_path / "local/owned-1.0-py3-none-any.whl").write_bytes(wheel("owned", {"owned.py": ""}, version="1.0"))
    [port] = free_ports(1)
    asked: set[str] = set()
    shown: list[bytes] = []

    def look(path: str) -> None:
        asked.add(path.split("/")[1])
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (process / "cmdline").read_bytes()
                if b"hidden-pass" in line:
                    shown.append(line)

    server = f"http://user:hidden-pass@127.0.0.1:{port}"
    variables = {
        **os.environ,
        "PIP_INDEX_URL": f"{server}/main",
        "PIP_EXTRA_INDEX_URL": f"{server}/more",
        "PIP_FIND_LINKS": f"{server}/links/ {tmp_path / 'local'}",
        "UV_NO_CACHE": "1",
    }
    job = {
        "new": str(tmp_path / "new"),
        "target": str(tmp_path / "target"),
        "requirements": ["coloured", "linked", "owned", f"scrapy=={version('scrapy')}"],
        "uv": str(program("uv", "uv")),
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    with _serving(tmp_path, port, look):
        done = subprocess.run(
            [sys.executable, "-I", build.__file__, str(tmp_path)], env=variables, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert asked == {"main", "more", "links"}
    assert shown == []


def test_a_full_disk_does_not_break_the_version(tmp_path: Path, index: Path) -> None:
    node = tmp_path / "dbs/gossamer/node"
    node.mkdir(parents=True)
    with a_disk(node / "environments", "24k") as disk, _server(tmp_path, index) as server:
        assert _deploy(server, project_wheel(_TELLS, requires=["coloured"]), wait_seconds=0).status_code == 202
        until(lambda: _version(server, "1")["reason"], what=server.said)
        assert "No space left on device" in _version(server, "1")["reason"]
        assert _version(server, "1")["state"] == "building"
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        until(lambda: _version(server, "1")["state"] == "ready", what=lambda: _version(server, "1"))
        server.stop()


def test_a_build_survives_nothing_and_disturbs_nothing(tmp_path: Path, index: Path) -> None:
    """While a package is compiled: a job waits and can be cancelled; a killed server begins anew and leaves nothing."""
    go, links = tmp_path / "go", tmp_path / "links"
    shutil.copytree(index, links)
    _source_package(links, backend=_BACKEND.format(go=str(go)))
    environments = tmp_path / "dbs/gossamer/node/environments"
    with _server(tmp_path, links) as server:
        assert _deploy(server, project_wheel(_TELLS, requires=["slow"]), wait_seconds=0).status_code == 202
        until(lambda: _environment(server)["status"] == "building", what=server.said)
        server.kill()
        server.start()
        until(
            lambda: len(list(tmp_path.glob("dbs/gossamer/node/attempts/build-*/started.json"))) == 1, what=server.said
        )
        go.touch()
        until(lambda: _version(server, "1")["state"] == "ready", what=server.said)
        assert not list(environments.glob(".new-*"))

        go.unlink()
        # What the killed build has left may still be being deleted.
        until(lambda: len([path for path in environments.iterdir() if path.is_dir()]) == 1, what=server.said)
        [built] = (path for path in environments.iterdir() if path.is_dir())
        built.rename(tmp_path / "gone")  # as on another machine
        answer = server.client.post("/v1/jobs", json={"project": "shop", "spider": "tells"}).json()
        kept = server.client.post("/v1/jobs", json={"project": "shop", "spider": "tells"}).json()
        until(lambda: _environment(server)["status"] == "building", what=server.said)
        cancelled = server.client.post(f"/v1/jobs/{answer['id']}/cancel")
        assert cancelled.status_code == 202, cancelled.text
        until(lambda: server.client.get(f"/v1/jobs/{answer['id']}").json()["state"] == "cancelled", what=server.said)
        assert server.client.get(f"/v1/jobs/{kept['id']}").json()["state"] == "starting"
        go.touch()
        until(lambda: server.client.get(f"/v1/jobs/{kept['id']}").json()["state"] == "finished", what=server.said)


def test_each_node_builds_its_own_copy(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is listed on one node; a job on another one waits for the environment there."""
    for name, value in with_uv(index).items():
        monkeypatch.setenv(name, value)
    manager = RunningManager(tmp_path / "manager", limit_seconds=5.0)
    one, two = (RunningNode(tmp_path / name, [manager.url], name=name) for name in ("one", "two"))
    with running(manager, one):
        manager.when_node("one", "online")
        content = project_wheel(_TELLS, requires=["coloured==1.0"])
        parameters = {"project": "shop", "version": "1", "environment": "isolated"}
        answer = manager.client.post("/v1/versions", params=parameters, content=content)
        assert answer.status_code == 201, answer.text
        one.stop()
        with running(two):
            job = manager.ended(manager.create("tells"))
            assert (job["state"], job["node"]) == ("finished", "two"), two.said()
        found = manager.client.get("/v1/environments", params={"project": "shop"}).json()
        assert [(each["node"], each["status"]) for each in found] == [("two", "ready"), ("one", "ready")]
        assert found[0]["digest"] == found[1]["digest"]


_PRYING = """
import json, os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    said = {"uid": os.getuid(), "reached": []}
    for path in PATHS.split():
        try:
            os.listdir(path) if os.path.isdir(path) else open(path, "a").close()
            said["reached"].append(path)
        except OSError:
            pass
    name = "slow-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as packed:
        packed.writestr("coloured.py", f"COLOUR = {json.dumps(said)!r}")
        packed.writestr("slow-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: slow\\nVersion: 1.0\\n")
        packed.writestr("slow-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        packed.writestr("slow-1.0.dist-info/RECORD", "")
    return name
"""
"""Build backend that looks at the node's files."""
_FIRST = 72_500


def test_a_build_runs_as_a_user_of_its_own_where_projects_have_some(index: Path) -> None:
    """The code of a source package reaches neither the node's files nor other environments."""
    if os.geteuid() != 0:
        pytest.skip("only root can give projects users of their own")
    uv = program("uv", "uv")
    with tempfile.TemporaryDirectory(prefix="gossamer-builder-") as name:
        place = Path(name)
        place.chmod(0o755)
        links = place / "index"
        shutil.copytree(index, links)
        shutil.copy(uv, place / "uv")
        folder = place / "site"
        state, node = folder / "dbs/gossamer", folder / "dbs/gossamer/node"
        prey = [state / "state.db", node / "users.json", node / "attempts", node / "environments", node / "homes"]
        _source_package(links, backend=_PRYING.replace("PATHS", repr(" ".join(map(str, [*prey, folder / "eggs"])))))
        for path in links.iterdir():
            path.chmod(0o644)
        links.chmod(0o755)
        python = open_python(place, uid=_FIRST)
        folder.mkdir()
        variables = {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "UV_OFFLINE": "1", **python.environment}
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links)}
        conf = f"username = a\npassword = b\nproject_users = {_FIRST}-{_FIRST + 9}"
        server = Scrapyd(folder, conf=conf, environment=variables, python=python.path)
        server.client.auth = ("a", "b")
        (folder / "scrapyd.conf").chmod(0o600)
        try:
            server.start()
            victim = _deploy(server, project_wheel(_TELLS, requires=["coloured"]), project="victim")
            assert victim.is_success, victim.text
            answer = _deploy(server, project_wheel(_TELLS, requires=["slow"]))
            assert answer.status_code == 201, answer.text
            job, items = _run(server, "tells")
            assert job["state"] == "finished", server.said()
            assert json.loads(items[0]["colour"]) == {"uid": _FIRST, "reached": []}
            [python_home] = {item["python"] for item in items}
            owners = {path.lstat().st_uid for path in [Path(python_home), *Path(python_home).rglob("*")]}
            assert owners == {0}
        finally:
            server.kill()
            server.kill_jobs()
            server.client.close()
