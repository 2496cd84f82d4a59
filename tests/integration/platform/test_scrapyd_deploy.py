"""A deployment either makes a version that runs, or changes nothing and says why."""

import io
import os
import sqlite3
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import crawling
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, egg, scrapyd, spider

_BROKEN = {
    "settings that raise": (egg(spider("good"), settings="raise RuntimeError('no settings')"), "no settings"),
    "a spider module that cannot be imported": (egg("import nothing_of_this_name"), "nothing_of_this_name"),
    "no entry point": (egg(spider("good"), entry_point=False), "names no settings module"),
    "no spiders": (egg("x = 1"), "has no spiders"),
    "an exit while the spiders are listed": (egg("os._exit(3)"), "ended with 3"),
    "a project that kills itself": (egg("os.kill(os.getpid(), 9)"), "ended with 9"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("scrapyd")) as running:
        assert running.deploy(egg(spider("good")), version="1")["status"] == "ok"
        yield running


@pytest.mark.parametrize("what", _BROKEN)
def test_a_broken_deployment_changes_nothing(server: Scrapyd, what: str) -> None:
    content, reason = _BROKEN[what]
    for version in ("1", "2"):
        answer = server.deploy(content, version=version)
        assert answer["status"] == "error"
        assert answer["message"].startswith("RunnerError: ")
        assert reason in answer["message"]
    assert server.get("listversions", project="shop")["versions"] == ["1"]
    assert server.get("listspiders", project="shop")["spiders"] == ["good"]
    assert os.listdir(server.folder / "eggs/shop") == ["1.egg"]


def test_what_a_project_prints_is_no_spider(server: Scrapyd) -> None:
    noisy = "print('not a spider' * 100_000)\nprint('x', file=sys.stderr)\n"
    assert server.deploy(egg(noisy + spider("quiet")), project="noisy")["spiders"] == 1
    assert server.get("listspiders", project="noisy")["spiders"] == ["quiet"]


def test_a_broken_module_is_left_out_if_the_project_says_so(server: Scrapyd) -> None:
    settings = "SPIDER_MODULES = ['shop.spiders', 'shop.more']\nSPIDER_LOADER_WARN_ONLY = True"
    content = io.BytesIO(egg(spider("good"), settings=settings))
    with zipfile.ZipFile(content, "a") as packed:
        packed.writestr("shop/more.py", "import nothing_of_this_name")
    assert server.deploy(content.getvalue(), project="warned")["spiders"] == 1


def test_versions_are_ordered_by_their_own_names(server: Scrapyd) -> None:
    for version in ("1.10", "1.9", "1.2"):
        server.deploy(egg(spider(f"of{version.replace('.', '')}")), project="ordered", version=version)
    assert server.get("listversions", project="ordered")["versions"] == ["1.2", "1.9", "1.10"]
    assert server.get("listspiders", project="ordered")["spiders"] == ["of110"]
    server.deploy(egg(spider("ofbranch")), project="ordered", version="branch")
    assert server.get("listspiders", project="ordered")["spiders"] == ["ofbranch"]  # by time: it is no version number
    assert server.post("delversion", project="ordered", version="1_9")["status"] == "ok"  # as its file has it
    assert "1.9" not in server.get("listversions", project="ordered")["versions"]


def test_a_job_keeps_its_version(server: Scrapyd) -> None:
    for version in ("1", "2"):
        server.deploy(egg(spider("says", f"yield {{'version': '{version}'}}")), project="pinned", version=version)
    server.post("schedule", project="pinned", spider="says", jobid="pinned", _version="1")
    server.post("schedule", project="pinned", spider="says", jobid="default")
    for name, version in (("pinned", "1"), ("default", "2")):
        assert server.client.get(server.ended(name)["items_url"]).json() == {"version": version}


def test_names_that_lead_out_of_their_folder_are_refused(server: Scrapyd) -> None:
    assert server.deploy(egg(spider("good")), project="../p")["message"] == "DirectoryTraversalError: ../p"
    for name in ("../x", "a/b", ".."):
        answer = server.post("schedule", project="shop", spider="good", jobid=name)
        assert answer["message"] == f"DirectoryTraversalError: shop/good/{name}.log"


def test_parameters_of_a_wrong_type_are_refused(server: Scrapyd) -> None:
    assert server.post("schedule", project="shop", spider="good", priority="nan")["message"].startswith("priority is")
    for text in ("USR1", "0", "999", "-9", "٩"):
        assert server.post("cancel", project="shop", job="x", signal=text)["message"].startswith("signal is invalid")


def test_the_projects_own_feeds_and_extensions_stay(server: Scrapyd) -> None:
    own = "FEEDS = {'own.csv': {'format': 'csv'}}\nFEED_EXPORT_ENCODING = 'utf-8'"
    body = "    custom_settings = {'EXTENSIONS': {'scrapy.extensions.corestats.CoreStats': 5}}\n"
    server.deploy(egg(spider("good", "yield {'a': 'ä'}", body), settings=own), project="feeds")
    server.post("schedule", project="feeds", spider="good", jobid="feeds")
    assert server.client.get(server.ended("feeds")["items_url"]).content == '{"a": "ä"}\n'.encode()
    assert (server.folder / "own.csv").read_text().split() == ["a", "ä"]


def test_arguments_are_not_on_the_command_line(server: Scrapyd) -> None:
    check = "yield {'seen': self.secret in open('/proc/self/cmdline').read(), 'job': self._job}"
    server.deploy(egg(spider("secretive", check)), project="secret")
    server.post("schedule", project="secret", spider="secretive", jobid="hidden", secret="s3cr3t")
    assert server.client.get(server.ended("hidden")["items_url"]).json() == {"seen": False, "job": "hidden"}


def test_without_a_password_no_web_page_may_deploy(server: Scrapyd) -> None:
    port = server.port
    for headers in (
        {"Host": f"evil.example:{port}"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": f"evil.example@127.0.0.1:{port}"},
        {"Host": f"a.localhost:{port}"},
        {"Host": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port + 1}", "Host": f"localhost:{port}"},
    ):
        refused = server.client.post("/delproject.json", data={"project": "shop"}, headers=headers)
        assert refused.status_code == 403, headers
        assert refused.json()["status"] == "error"
    for headers in ({"Host": f"localhost:{port}"}, {"Host": f"[::1]:{port}"}, {"Origin": f"http://127.0.0.1:{port}"}):
        assert server.client.get("/daemonstatus.json", headers=headers).json()["status"] == "ok"
    assert "shop" in server.get("listprojects")["projects"]


def test_a_deleted_project_ends_its_pending_jobs(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        server.deploy(egg(spider("sleepy", "await asyncio.sleep(600)")))
        for name in ("one", "two"):
            server.post("schedule", project="shop", spider="sleepy", jobid=name)
        server.running("one")
        assert server.post("delproject", project="shop")["status"] == "ok"
        jobs = server.jobs()
        assert [len(jobs[kind]) for kind in ("pending", "running", "finished")] == [0, 1, 0]
        assert not os.listdir(tmp_path / "eggs")


def test_a_job_whose_version_was_deleted_has_failed(tmp_path: Path) -> None:
    """It never ran, but it has ended, and is listed as such."""
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        for version in ("1", "2"):
            server.deploy(egg(spider("sleepy", "await asyncio.sleep(600)")), version=version)
        server.post("schedule", project="shop", spider="sleepy", jobid="one")
        server.running("one")
        server.post("schedule", project="shop", spider="sleepy", jobid="two", _version="1")
        assert server.post("delversion", project="shop", version="1")["status"] == "ok"
        server.post("cancel", project="shop", job="one", signal="KILL")
        row = server.ended("two")
        assert (row["state"], row["reason"]) == ("failed", "no_version: 1")
        assert server.get("status", job="two")["currstate"] == "finished"
        assert {job["id"] for job in server.jobs()["finished"]} == {"one", "two"}
        assert 'class="result failed">failed: no_version: 1<' in server.client.get("/jobs").text


def test_only_the_files_of_old_jobs_are_deleted(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="jobs_to_keep = 2\nfinished_to_keep = 3\nmax_proc = 1") as server:
        server.deploy(egg(spider("good")))
        (tmp_path / "logs/shop/good").mkdir(parents=True)
        (tmp_path / "logs/shop/good/foreign.log").touch()
        os.utime(tmp_path / "logs/shop/good/foreign.log", (1, 1))
        for number in range(5):
            server.post("schedule", project="shop", spider="good", jobid=f"job{number}")
            server.ended(f"job{number}")
        # Two were there when the last one started.
        assert set(os.listdir(tmp_path / "logs/shop/good")) == {"foreign.log", "job2.log", "job3.log", "job4.log"}
        assert set(os.listdir(tmp_path / "items/shop/good")) == {"job2.jl", "job3.jl", "job4.jl"}
        assert [job["id"] for job in server.jobs()["finished"]] == ["job4", "job3", "job2"]


def test_the_folders_of_scrapyd_are_taken_over(tmp_path: Path, state_database: str) -> None:
    """Eggs, waiting jobs and ended ones; a second start adds nothing."""
    (tmp_path / "eggs/shop").mkdir(parents=True)
    (tmp_path / "eggs/shop/1_0.egg").write_bytes(egg(spider("good", "yield {'x': self.x}")))
    (tmp_path / "dbs").mkdir()
    with sqlite3.connect(tmp_path / "dbs/shop.db") as queue:
        queue.execute("CREATE TABLE spider_queue (id integer PRIMARY KEY, priority real key, message blob)")
        message = b'{"name": "good", "_job": "waiting", "settings": {"LOG_LEVEL": "INFO"}, "x": "1"}'
        queue.execute("INSERT INTO spider_queue (priority, message) VALUES (1.5, ?)", (message,))
    with sqlite3.connect(tmp_path / "dbs/jobs.db") as ended:
        ended.execute(
            "CREATE TABLE finished_jobs (id integer PRIMARY KEY, project text, spider text, job text,"
            " start_time datetime, end_time datetime)"
        )
        row = ("shop", "good", "old", "2026-01-01 10:00:00.000000", "2026-01-01 10:00:05.500000")
        ended.execute("INSERT INTO finished_jobs (project, spider, job, start_time, end_time) VALUES (?,?,?,?,?)", row)
    with scrapyd(tmp_path, conf=state_database) as server:
        assert server.get("listversions", project="shop")["versions"] == ["1_0"]
        assert server.client.get(server.ended("waiting")["items_url"]).json() == {"x": "1"}
        assert server.ended("old")["end_time"] == "2026-01-01 10:00:05.500000"
        server.stop()
        server.start()
        assert sorted(job["id"] for job in server.jobs()["finished"]) == ["old", "waiting"]
        assert server.get("listspiders", project="shop")["spiders"] == ["good"]


def test_eggs_that_a_person_changes_are_noticed_at_the_start(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        for version in ("1", "2", "3"):
            server.deploy(egg(spider(f"of{version}")), version=version)
        server.stop()
        (tmp_path / "eggs/shop/1.egg").unlink()
        (tmp_path / "eggs/shop/2.egg").write_bytes(egg(spider("replaced")))
        later = time.time() + 60
        os.utime(tmp_path / "eggs/shop/2.egg", (later, later))
        (tmp_path / "eggs/shop/4.egg").write_bytes(egg(spider("added")))
        server.start()
        assert server.get("listversions", project="shop")["versions"] == ["2", "3", "4"]
        for version, name in (("2", "replaced"), ("3", "of3"), ("4", "added")):
            assert server.get("listspiders", project="shop", _version=version)["spiders"] == [name]


def test_a_project_on_the_python_path(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/__init__.py").touch()
    (tmp_path / "local/settings.py").write_text(f"SPIDER_MODULES = ['local.spiders']\n{FETCHES_NOTHING}")
    (tmp_path / "local/spiders.py").write_text(f"import scrapy\n{spider('here')}")
    with scrapyd(tmp_path, conf="[settings]\nmine = local.settings") as server:
        assert server.get("listprojects")["projects"] == ["mine"]
        assert server.get("listversions", project="mine")["versions"] == []
        assert server.get("listspiders", project="mine")["spiders"] == ["here"]
        server.post("schedule", project="mine", spider="here", jobid="one")
        assert server.ended("one")["state"] == "finished"


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("runner = my.runner", "runner = my.runner"),
        ("[services]\nmine.json = my.Service", "mine.json = my.Service"),
        ("username = a:b", "colon"),
        ("http_port = x", "http_port"),
        ("jobs_to_keep = -1", "jobs_to_keep"),
        ("no section", "cannot be read"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(tmp_path: Path, conf: str, said: str) -> None:
    (tmp_path / "scrapyd.conf").write_text(f"[scrapyd]\n{conf}" if conf != "no section" else "nonsense")
    done = crawling.gossamer("scrapyd", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "dbs").exists()
