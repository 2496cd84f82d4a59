"""`gossamer deploy` and `jobs` in a Scrapy project's folder, on a real server."""

import contextlib
import csv
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers import crawling, valkey
from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.real_scrapyd import real_scrapyd
from tests.servers.scrapyd import FETCHES_NOTHING, SERVES_NOTHING, Scrapyd, scrapyd, until

_SPIDERS = """
import asyncio
import os
import scrapy

class Words(scrapy.Spider):
    name = "words"

    async def start(self):
        for number in range(int(getattr(self, "n", 3))):
            yield {"number": number}
        if getattr(self, "error", ""):
            self.logger.error(self.error)
            self.logger.info("the next line")
        if getattr(self, "dies", ""):
            self.logger.critical(self.dies)
            os._exit(2)
        if getattr(self, "wait", ""):
            await asyncio.sleep(600)
        if getattr(self, "fail", ""):
            raise RuntimeError("failed on purpose")
"""


class Project:
    """A Scrapy project on disk, and commands run in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.port = int(url.rpartition(":")[2])
        (folder / "shop").mkdir(parents=True)
        (folder / "shop/__init__.py").touch()
        self.write_settings()
        (folder / "shop/spiders.py").write_text(_SPIDERS)
        (folder / "scrapy.cfg").write_text(f"[settings]\ndefault = shop.settings\n\n[deploy]\nurl = {url}\n")

    def write_settings(self, more: str = "", *, usual: str = FETCHES_NOTHING) -> None:
        """Write the project's settings, with the lines `more` in addition."""
        (self.folder / "shop/settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{usual}{more}")

    def run(self, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project's folder."""
        done = crawling.gossamer(*arguments, cwd=self.folder, env={"COLUMNS": "80", **environment})
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def show(self, *arguments: str) -> str:
        """Run a command in a terminal, and return what it shows there."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(crawling.command(*arguments), cwd=self.folder, stdout=theirs, stderr=theirs):
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # EIO: the command has ended
                while part := os.read(ours, 65536):
                    shown += part
            os.close(ours)
        return shown.decode()

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command, and return what it prints."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("scrapyd")) as running:
        yield running


@pytest.fixture(scope="module")
def project(server: Scrapyd, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is deployed."""
    made = Project(tmp_path_factory.mktemp("projects") / "shop", f"http://127.0.0.1:{server.port}")
    assert made.json("deploy", "--version", "1.0")["spiders"] == ["words"]
    return made


def test_items_that_the_server_does_not_have_are_an_error(project: Project, server: Scrapyd) -> None:
    job = project.json("jobs", "start", "words", "-a", "n=3", "--wait")
    number, name = job["id"], job["name"]
    (server.folder / f"items/{job['project']}/{job['spider']}/{name}.jl").unlink()
    done = project.run("jobs", "items", str(number), code=1)
    assert f"the server has no items of job {number}, which has scraped 3" in done.stderr
    assert "items_dir = items" in done.stderr


def test_what_retention_has_deleted_is_an_error_that_names_the_setting(project: Project, server: Scrapyd) -> None:
    number = str(project.json("jobs", "start", "words", "--wait")["id"])
    state = server.folder / "dbs/gossamer/state.db"
    with contextlib.closing(sqlite3.connect(state, isolation_level=None)) as connection:
        connection.execute(f"UPDATE job SET log_deleted = 1, items_deleted = 1, has_files = 0 WHERE id = {number}")
    for kind, suffix in (("logs", "log"), ("items", "jl")):
        for path in (server.folder / kind).rglob(f"{project.json('jobs', 'show', number)['name']}.{suffix}"):
            path.unlink()
    assert "retention has deleted the log" in project.run("jobs", "log", number, code=1).stderr
    assert "jobs_to_keep below [scrapyd]" in project.run("jobs", "items", number, code=1).stderr
    assert server.client.patch("/v1/projects/shop", json={"keep_logs_jobs": 500}).status_code == 200
    assert "shop has keep_logs_jobs = 500" in project.run("jobs", "log", number, "-f", code=1).stderr
    assert server.client.patch("/v1/projects/shop", json={"keep_logs_jobs": None}).status_code == 200


def test_a_finished_job_shows_its_last_error_and_is_not_cancelled(project: Project) -> None:
    number = str(project.json("jobs", "start", "words", "-a", "error=no price", "--wait")["id"])
    done = project.run("jobs", "cancel", number)
    assert re.search(r"^errors +1 *$", done.stdout, re.MULTILINE)
    assert "last error" in done.stdout
    assert "ERROR: no price" in " ".join(done.stdout.split())
    assert re.search(rf"job {number} had ended before \(finished, [0-9:]+ \w+\)", done.stderr)


def test_a_job_whose_process_dies_shows_the_last_error_of_its_log(project: Project, server: Scrapyd) -> None:
    number = str(project.json("jobs", "start", "words", "-a", "dies=no server", "--wait", code=1)["id"])
    shown = project.json("jobs", "show", number)
    assert ("log_count/CRITICAL" in shown["stats"], shown["exit_code"]) == (False, 2)
    assert "CRITICAL: no server" in shown["last_error"]
    why = project.run("jobs", "show", number, COLUMNS="200").stdout
    assert "A setting or an argument is wrong, as the end of its log says. Such a job is not tried again." in why
    overview = server.client.get("/ui/").text
    assert "A setting or an argument is wrong, as the end of its log says." in overview
    assert "exit_code: 2" not in overview
    page = server.client.get("/ui/job", params={"id": number}, headers={"Accept-Language": "de"}).text
    assert "Eine Einstellung oder ein Argument ist falsch, wie das Ende seines Logs zeigt." in page


def test_a_job_is_scheduled_followed_and_its_items_are_read(project: Project) -> None:
    done = project.run("jobs", "start", "words", "-a", "n=2", "-s", "LOG_LEVEL=INFO", "--follow")
    assert "Spider closed (finished)" in done.stdout
    assert "is finished" in done.stdout.splitlines()[-1]
    [job] = [each for each in project.json("jobs") if each["arguments"] == {"n": "2"}]
    assert job["settings"] == {"LOG_LEVEL": "INFO"}
    number = str(job["id"])
    assert project.run("jobs", "items", number).stdout == '{"number": 0}\n{"number": 1}\n'
    assert project.run("jobs", "items", number, "--format", "csv").stdout.split() == ["number", "0", "1"]
    guarded = project.run("jobs", "items", number, "--format", "csv", "--csv-guard").stdout
    assert guarded.split() == ['"number"', "0", "1"]
    assert "Write --format csv" in project.run("jobs", "items", number, "--csv-guard", code=2).stderr
    assert "Spider opened" in project.run("jobs", "log", job["name"]).stdout
    again = project.json("jobs", "rerun", number, "--wait")
    assert (again["arguments"], again["state"]) == ({"n": "2"}, "finished")
    shown = project.run("jobs", "--state", "finished").stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "words" in shown


def test_a_failed_job_ends_the_command_with_1(project: Project) -> None:
    done = project.run("jobs", "start", "words", "-a", "fail=1", "--wait", code=1)
    assert re.search(r"Job \d+ has failed after .*: finish_reason: start_error", done.stdout)
    assert "Scrapy closed the spider with the reason start_error." in done.stderr
    [job] = project.json("jobs", "--state", "failed", "-n", "1")
    shown = project.run("jobs", "show", str(job["id"])).stdout
    assert re.search(r"^items +3 *$", shown, re.MULTILINE)
    assert re.search(r"^ended +[0-9:]+ \w+ *$", shown, re.MULTILINE)


def test_the_log_of_a_job_does_not_act_on_a_terminal(project: Project) -> None:
    """Sites and spiders write what is in a log: a control sequence could forge lines or the title of the window."""
    error = "\x1b]0;forged\x07\x9b2Jgrüße"
    shown = [project.show("jobs", "start", "words", "-a", f"error={error}", "--follow")]
    number = str(project.json("jobs", "-n", "1")[0]["id"])
    shown += [project.show("jobs", "log", number), project.show("jobs", "log", number, "-f")]
    for each in shown:
        assert "grüße" in each
        assert not {"\x1b", "\x07", "\x9b"} & set(each)
    assert error in project.run("jobs", "log", number).stdout


def test_an_attempt_that_fails_is_told_while_the_job_waits_and_its_log_is_there(project: Project) -> None:
    project.run("projects", "set", "retries=1", "retry_seconds=3")
    done = project.run("jobs", "start", "words", "-a", "fail=1", "--wait", code=1)
    told = r"attempt 1 of job (\d+) has failed: finish_reason: start_error\. The job waits for its next attempt, in"
    assert re.search(told, done.stderr)
    followed = project.run("jobs", "start", "words", "-a", "fail=1", "--follow", code=1)
    assert len(re.findall(told, followed.stderr)) == 1
    project.run("projects", "set", "retry_seconds=600")
    number = str(project.json("jobs", "start", "words", "-a", "fail=1")["id"])
    until(lambda: project.json("jobs", "show", number)["earlier_attempts"])
    listed = project.run("jobs", "-n", "1", COLUMNS="200").stdout
    assert re.search(r"pending .* next attempt at [0-9: -]+, after finish_reason: start_error", listed)
    assert "failed on purpose" in project.run("jobs", "log", number).stdout
    assert re.search(r"failed +attempt 1: finish_reason: start_error", project.run("jobs", "show", number).stdout)
    project.run("jobs", "cancel", number)
    assert "failed on purpose" in project.run("jobs", "log", number).stdout
    project.run("projects", "set", "retries=0", "retry_seconds=")


def test_a_job_is_cancelled(project: Project) -> None:
    number = str(project.json("jobs", "start", "words", "-a", "wait=1")["id"])
    project.run("jobs", "cancel", number)
    assert project.json("jobs", "show", number, "--wait", code=1)["state"] == "cancelled"


def test_a_project_whose_only_version_is_broken_says_so_until_that_is_deleted(project: Project) -> None:
    project.write_settings("raise RuntimeError('broken on purpose')\n")
    try:
        project.run("deploy", "--version", "1.0", "-p", "ruined", code=1)
    finally:
        project.write_settings()
    said = project.run("jobs", "start", "words", "-p", "ruined", code=2).stderr
    assert "its version 1.0 is broken: RuntimeError: broken on purpose" in " ".join(said.split())
    said = " ".join(project.run("jobs", "-p", "ruined").stderr.split())
    assert "project ruined has no jobs yet. Its version 1.0 is broken: RuntimeError: broken on purpose. Correct" in said
    project.run("versions", "delete", "1.0", "-p", "ruined")
    assert "It has no version: deploy one" in project.run("jobs", "-p", "ruined").stderr
    assert project.json("versions", "list", "-p", "ruined") == []
    assert "broken" not in project.run("jobs", "start", "words", "-p", "ruined", code=2).stderr


def test_a_broken_deployment_ends_with_1_and_changes_nothing(project: Project, server: Scrapyd) -> None:
    project.write_settings("raise RuntimeError('broken on purpose')\n")
    try:
        done = project.run("deploy", "--version", "2.0", code=1)
    finally:
        project.write_settings()
    assert done.stderr.endswith("other versions are as they were. RuntimeError: broken on purpose\n")
    assert server.get("listversions", project="shop")["versions"] == ["1.0"]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("jobs", "start", "nothing"), 2, "spider 'nothing' not found. The project has words."),
        (
            ("jobs", "start", "words", "-p", "nowhere"),
            2,
            "project 'nowhere' not found. Deploy it first: gossamer deploy",
        ),
        (("jobs", "-p", "nowhere"), 0, "project nowhere has no jobs yet."),
        (("jobs", "--state", "done"), 2, "--state: there is no state 'done'. Write one of pending"),
        (
            ("projects", "set", "memory_limit=much"),
            2,
            "setting memory_limit: cannot read 'much'. Write a number of bytes",
        ),
        (("projects", "set", "retrys=2"), 2, "retrys: unknown field"),
        (("jobs", "7"), 2, "No such command '7'. Did you mean 'show 7'?"),
        (("projects", "show", "-p", "nowhere"), 2, "there is no project 'nowhere'"),
        (("jobs", "--spider", "none"), 0, "project shop has no such jobs."),
        (("jobs", "start", "words", "-a", "n"), 2, "-a: cannot read 'n'"),
        (
            ("jobs", "start", "words", "--processes", "1"),
            0,
            "Warning: neither -s nor the project's variables nor its settings",
        ),
        (("jobs", "--target", "http://127.0.0.1:1"), 4, "cannot be reached: connection refused"),
        (("jobs", "--target", "elsewhere"), 2, "there is no target 'elsewhere'"),
        (("jobs", "show", "999999"), 2, "there is no job 999999. `gossamer jobs` lists jobs with their numbers."),
        (("jobs", "items", "999999"), 2, "there is no job 999999. `gossamer jobs` lists"),
        (("jobs", "cancel", "g999999"), 2, "there is no group g999999. `gossamer jobs show N` names the group"),
        (("jobs", "show", "nameless"), 2, "there is no job with the name 'nameless'"),
        (("jobs", "items", "1", "--format", "pdf"), 2, "there is no format 'pdf'"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(project: Project, command: tuple[str, ...], code: int, said: str) -> None:
    assert said in project.run(*command, code=code).stderr


def test_without_a_project_the_command_tells_where_to_go(tmp_path: Path) -> None:
    done = crawling.gossamer("deploy", cwd=tmp_path)
    assert done.returncode == 2
    assert "no scrapy.cfg here or above" in done.stderr


def test_a_deployment_to_all_targets_names_the_project_of_each(server: Scrapyd, tmp_path: Path) -> None:
    project = Project(tmp_path / "folder", f"http://127.0.0.1:{server.port}")
    configured = project.folder / "scrapy.cfg"
    target = f"url = http://127.0.0.1:{server.port}\nproject = "
    configured.write_text(
        f"[settings]\ndefault = shop.settings\n[deploy:a]\n{target}apples\n[deploy:b]\n{target}pears\n"
    )
    said = project.run("deploy", "--all", "--version", "1.0").stderr
    assert re.findall(r"^Egg of (.+): [0-9.]+ kB$", said, re.MULTILINE) == ["apples", "pears"]
    (project.folder / "setup.py").write_text(
        "from setuptools import setup\n"
        "setup(name='x', version='1', packages=['shop'], entry_points={'scrapy': ['settings = shop.settings']})\n"
    )
    said = project.run("deploy", "a", "--version", "2.0").stderr
    assert re.search(r"^Egg of apples by setup\.py: [0-9.]+ kB$", said, re.MULTILINE)


def test_a_server_with_a_password_takes_the_token_of_the_environment(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="username = me\npassword = secret") as server:
        url = f"http://127.0.0.1:{server.port}"
        project = Project(tmp_path / "shop", url)
        assert "A token is needed" in project.run("deploy", code=2).stderr
        answer = server.client.post("/v1/tokens", json={"name": "ci", "scope": "deploy"}, auth=("me", "secret"))
        token = answer.json()["token"]
        assert "is ready" in project.run("deploy", GOSSAMER_PLATFORM_URL=url, GOSSAMER_PLATFORM_TOKEN=token).stdout
        assert "was refused" in project.run("deploy", GOSSAMER_PLATFORM_TOKEN="wrong", code=2).stderr
        with_password = url.replace("//", "//me:secret@")
        (project.folder / "scrapy.cfg").write_text(
            f"[settings]\ndefault=shop.settings\n[deploy]\nurl={with_password}\n"
        )
        assert "secret" not in project.run("deploy", "--version", "GIT", code=2).stderr


class _EmptyServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = b'{"jobs": [], "next": null}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


def test_a_command_waits_for_a_server_that_is_starting(tmp_path: Path) -> None:
    [port] = valkey.free_ports(1)
    command = crawling.command("jobs", "--target", f"http://127.0.0.1:{port}")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "waiting up to" in waiting.stderr.readline()
        with ThreadingHTTPServer(("127.0.0.1", port), _EmptyServer) as server:
            threading.Thread(target=server.serve_forever).start()
            assert "has no jobs yet" in waiting.stderr.read()
            server.shutdown()
    assert waiting.returncode == 0


def test_any_scrapyd_is_a_target(tmp_path: Path) -> None:
    with real_scrapyd(tmp_path / "real") as theirs:
        project = Project(tmp_path / "shop", str(theirs.base_url).rstrip("/"))
        assert project.json("deploy", "--version", "1.0")["spiders"] == ["words"]
        name = project.json("jobs", "start", "words", "-a", "n=2", "-s", "LOG_LEVEL=INFO")["name"]
        until(lambda: [job["id"] for job in project.json("monitor", "default")[0]["finished"]] == [name])
        assert theirs.get(f"/items/shop/words/{name}.jl").text.count("number") == 2
        project.write_settings("raise RuntimeError('broken on purpose')\n")
        assert "broken on purpose" in project.run("deploy", "--version", "2.0", code=1).stderr
        assert "is a Scrapyd" in project.run("jobs", code=2).stderr
        assert "is a Scrapyd" in project.run("jobs", "start", "words", "--wait", code=2).stderr


def test_a_project_with_a_setup_py_is_built_without_traces_of_earlier_builds(project: Project) -> None:
    (project.folder / "setup.py").write_text(
        "from setuptools import find_packages, setup\n"
        "setup(name='shop', packages=find_packages(), entry_points={'scrapy': ['settings = shop.settings']})\n"
    )
    (project.folder / "build/lib/shop").mkdir(parents=True)
    (project.folder / "build/lib/shop/old.py").touch()
    before = sorted(project.folder.rglob("*"))
    try:
        project.run("deploy", "--build", "../made.egg")
        assert sorted(project.folder.rglob("*")) == before
    finally:
        (project.folder / "setup.py").unlink()
    with zipfile.ZipFile(project.folder.parent / "made.egg") as egg:
        assert "shop/spiders.py" in egg.namelist()
        assert "shop/old.py" not in egg.namelist()
        assert "settings = shop.settings" in egg.read("EGG-INFO/entry_points.txt").decode()


def test_a_deployed_project_finds_what_it_finds_in_its_folder(project: Project) -> None:
    """Modules beside scrapy.cfg, and data files beside the code, opened by their path."""
    spiders = project.folder / "shop/spiders.py"
    try:
        (project.folder / "helper.py").write_text("WORDS = ['helped']\n")
        (project.folder / "shop/data.txt").write_text("from a file")
        spiders.write_text(
            "import pathlib, scrapy, helper\n\nclass Words(scrapy.Spider):\n    name = 'words'\n\n"
            "    async def start(self):\n        text = pathlib.Path(__file__).with_name('data.txt').read_text()\n"
            "        yield {'words': [*helper.WORDS, text]}\n"
        )
        project.json("deploy", "--version", "0.9.1")
        number = str(project.json("jobs", "start", "words", "--wait", "--version", "0.9.1")["id"])
        assert '["helped", "from a file"]' in project.run("jobs", "items", number).stdout
    finally:
        spiders.write_text(_SPIDERS)
        (project.folder / "helper.py").unlink()
        (project.folder / "shop/data.txt").unlink()


@pytest.mark.parametrize(
    ("own", "advice"),
    [
        ("helper.py", "helper.py is not in what was deployed. Name it in setup.py"),
        ("helper/__init__.py", "helper is not in what was deployed. Name it in setup.py"),
        ("helper/code.py", "helper is not in what was deployed, because it has no __init__.py"),
        ("", "helper is not on the server. If it is a package of others: name the distribution"),
    ],
)
def test_the_advice_for_a_missing_module_names_the_projects_own(project: Project, own: str, advice: str) -> None:
    (project.folder / "setup.py").write_text(
        "from setuptools import setup\n"
        "setup(name='shop', packages=['shop'], entry_points={'scrapy': ['settings = shop.settings']})\n"
    )
    project.write_settings("import helper\n")
    if own:
        (project.folder / own).parent.mkdir(exist_ok=True)
        (project.folder / own).touch()
    try:
        shown = " ".join(project.run("deploy", "--version", "0.9.2", code=1).stderr.split())
        assert "ModuleNotFoundError: No module named 'helper'" in shown
        assert advice in shown
    finally:
        (project.folder / "setup.py").unlink()
        project.write_settings()
        for path in (project.folder / "helper.py", project.folder / own) if own else ():
            path.unlink(missing_ok=True)
        shutil.rmtree(project.folder / "helper", ignore_errors=True)


def test_limits_of_a_project_and_a_spider_are_set_and_shown(project: Project, server: Scrapyd) -> None:
    without_scheme = ("--target", f"localhost:{server.port}")
    shown = project.run("projects", "set", "memory_limit=1.5GB", "retries=2", *without_scheme).stdout
    assert re.search(r"^memory_limit +1\.5 GB *$", shown, re.MULTILINE)
    assert re.search(r"^retries +2 *$", shown, re.MULTILINE)
    assert project.json("projects", "set", "--spider", "words", "time_limit=2h")["time_limit"] == 7200
    both = project.json("projects", "set", "--spider", "words", "good_reasons=finished, cancelled")
    assert (both["time_limit"], both["good_reasons"]) == (7200, ["finished", "cancelled"])
    number = str(project.json("jobs", "start", "words", "--wait")["id"])
    shown = project.run("jobs", "show", number).stdout
    assert "time_limit 2:00 h" in shown
    assert "memory_limit 1.5 GB" in shown
    assert "1.0 (the project's default when it started)" in shown
    project.run("projects", "set", "memory_limit=0", "retries=0")
    server.client.delete("/v1/projects/shop/policies/words")


# --- schedules, versions, nodes, monitors -----------------------------------------------------------------------------


def test_schedules_are_added_paused_run_and_removed(project: Project) -> None:
    added = project.run("schedules", "add", "nightly", "words", "--cron", "30 2 * * *", TZ="Asia/Tokyo").stdout
    assert "The next times" in added
    assert re.search(r"02:30\+00:00 \(\S+ 11:30\+09:00 on this machine\)", added)
    assert "exactly one of --cron" in project.run("schedules", "add", "none", "words", code=2).stderr
    assert "cannot read '15x'" in project.run("schedules", "add", "x", "words", "--every", "15x", code=2).stderr
    taken = project.run("schedules", "add", "nightly", "words", "--every", "1d", code=2).stderr
    assert "already. To replace it, remove it first: gossamer schedules remove nightly" in taken
    missing = project.run("schedules", "add", "x", "wrds", "--every", "1d", code=2).stderr
    assert "spider 'wrds' not found. The project has words." in missing
    assert "minute '61'" in project.run("schedules", "add", "x", "words", "--cron", "61 * * * *", code=2).stderr
    shown = project.run("schedules", "list", TZ="Europe/Berlin").stdout
    assert "02:30+00:00" in shown  # as in the zone of the rule
    assert "30 2 * * * UTC" in shown
    project.run("schedules", "pause", "nightly")
    [found] = project.json("schedules", "list")
    assert (found["name"], found["paused"]) == ("nightly", True)
    project.run("schedules", "resume", "nightly")
    assert "Job " in project.run("schedules", "run", "nightly").stdout
    shown = project.run("schedules", "show", "nightly").stdout
    assert "30 2 * * * UTC" in shown
    assert "words" in shown
    [job] = project.json("schedules", "show", "nightly")["latest"]
    assert job["schedule_id"] == found["id"]
    project.run("schedules", "remove", "nightly")
    assert "has no schedule 'nightly'" in project.run("schedules", "remove", "nightly", code=2).stderr


def test_schedules_of_crawl_requests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The crawl service is away: what is added is shown, and why nothing is submitted."""
    folder = tmp_path_factory.mktemp("crawls")
    manager = RunningManager(folder / "manager", "--crawl-service", "http://127.0.0.1:1", limit_seconds=60)
    with running(manager):
        project = Project(folder / "project", manager.url)
        for faulty, reason in (
            (("--crawl", "nothing"), "'nothing' is neither a URL nor"),
            (("words", "--crawl", "https://example.com"), "either a spider"),
            (("words", "--depth", "1"), "belong to --crawl"),
            (("--crawl", '{"url": "https://a.example", "colour": 1}'), "crawl.colour: "),
            (("--crawl", '{"url": "https://a.example"}', "--depth", "1"), "has maxdepth"),
            (("--crawl", "https://example.com", "-a", "x=1"), "arguments: for schedules of jobs only"),
            (("--crawl", "https://example.com", "--if-running", "skip"), "a crawl that runs is joined"),
        ):
            assert reason in project.run("schedules", "add", "bad", *faulty, "--every", "1d", code=2).stderr
        (project.folder / "requests.jsonl").write_text('{"url": "https://a.example"}\n\n{"url": "https://b.example"}\n')
        said = project.run("schedules", "add", "many", "--crawl", "requests.jsonl", "--every", "1d").stdout
        assert "Schedule many submits crawl shop/many." in said
        project.run("schedules", "add", "one", "--crawl", "https://a.example", "--depth", "2", "--cron", "@daily")
        assert "schedules show one" in project.run("schedules", "run", "one").stdout
        until(lambda: project.json("schedules", "show", "one")["latest"][0]["result"])
        shown = project.run("schedules", "show", "one", COLUMNS="200").stdout
        assert "https://a.example to the crawl shop/one (fresh=true, maxdepth=2)" in shown
        assert "http://127.0.0.1:1 cannot be reached" in shown
        assert "http://127.0.0.1:1/v1/crawls/shop/one" in shown


def test_versions_are_pinned_and_deleted_and_a_node_is_drained(project: Project) -> None:
    project.run("deploy", "--version", "0.9", "-p", "versions")
    project.run("deploy", "--version", "1.0", "-p", "versions")
    project.run("versions", "rollback", "-p", "versions")
    assert "pinned" in project.run("versions", "list", "-p", "versions").stdout
    project.run("versions", "unpin", "-p", "versions")
    assert "1.0" in project.run("versions", "delete", "1.0", "-p", "versions", code=2).stderr  # it is the default
    project.run("versions", "delete", "0.9", "-p", "versions")
    said = project.run("versions", "pin", "0.9", "-p", "versions", code=2).stderr
    assert "versions has no version '0.9'. It has 1.0" in said
    assert [each["name"] for each in project.json("versions", "list", "-p", "versions")] == ["1.0"]
    [node] = project.json("nodes", "drain", "local")
    assert node["state"] == "draining"
    [node] = project.json("nodes", "undrain", "local")
    assert node["state"] == "online"


def test_a_monitor_shows_the_jobs_of_each_target_and_which_is_down(project: Project) -> None:
    project.run("jobs", "start", "words")
    here, away = f"http://127.0.0.1:{project.port}", "http://127.0.0.1:1"
    shown = project.run("monitor", here, away, "--once").stdout.splitlines()
    assert all(len(line) <= 80 for line in shown)
    assert any(" words " in line for line in shown)
    assert shown[-2:] == [f"{away}: DOWN", "  cannot be reached: connection refused"]
    up, down = project.json("monitor", here, away)
    assert (up["trouble"], bool(down["trouble"])) == ("", True)


def test_a_project_command_does_the_same_for_the_targets_of_scrapy_cfg(project: Project) -> None:
    project.write_settings("COMMANDS_MODULE = 'gossamer.scrapy.monitor'\n")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "monitor", "--once"],
            cwd=project.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        project.write_settings()
    assert done.returncode == 0, done.stderr
    assert "default: " in done.stdout


# --- groups of jobs ---------------------------------------------------------------------------------------------------

_SHARDED = """
import contextlib
import csv
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = ["data:,never"]

    def parse(self, response):
        yield {"text": response.text}

class Rows(scrapy.Spider):
    name = "rows"

    async def start(self):
        for row in csv.DictReader(open(self.file)):
            yield row
"""


@pytest.fixture(scope="module")
def sharded(server: Scrapyd, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A deployed project whose spiders know nothing of parts, and a table with seven rows, one over two lines."""
    made = Project(tmp_path_factory.mktemp("projects") / "sharded", f"http://127.0.0.1:{server.port}")
    (made.folder / "shop/spiders.py").write_text(_SHARDED)
    with (made.folder / "urls.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["title", "url"], *([f"a,\n{number}", f"data:,://{number}"] for number in range(7))]
        )
    made.run("deploy", "--project", "sharded")
    return made


def test_a_file_is_split_over_jobs_of_an_unmodified_spider(sharded: Project) -> None:
    options = ("--split-file", "urls.csv", "--parts", "2", "-p", "sharded")
    done = sharded.run("jobs", "start", "pages", *options, "--wait", "--json")
    group = json.loads(done.stdout)
    assert group["jobs"] == {"finished": 2}
    assert f"group g{group['id']}: 0 of 2 jobs have ended (" in done.stderr  # while it waits
    items = sharded.run("jobs", "items", f"g{group['id']}").stdout.splitlines()
    assert sorted(json.loads(item)["text"] for item in items) == [f"://{number}" for number in range(7)]
    jobs = sharded.json("jobs", "-p", "sharded", "--group", f"g{group['id']}")
    again = sharded.json("jobs", "rerun", str(jobs[0]["id"]))
    assert again["input"] == jobs[0]["input"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--split-file", "urls.csv"), "add --parts N"),
        (("--split-file", "urls.csv", "--parts", "2", "--column", "x"), "has no column 'x'; it has title, url"),
    ],
)
def test_a_file_that_cannot_be_split_is_refused(sharded: Project, options: tuple[str, ...], said: str) -> None:
    before = len(sharded.json("jobs", "-p", "sharded"))
    assert said in sharded.run("jobs", "start", "pages", "-p", "sharded", *options, code=2).stderr
    assert len(sharded.json("jobs", "-p", "sharded")) == before


def test_a_group_is_cancelled_together(project: Project) -> None:
    (project.folder / "words.txt").write_text("http://a.test/\nhttp://b.test/\n")
    group = project.json("jobs", "start", "words", "-a", "wait=1", "--split-file", "words.txt", "--parts", "9")
    assert sum(group["jobs"].values()) == 2  # as many as there are rows, whether or not they start already
    project.run("jobs", "cancel", f"g{group['id']}")
    assert project.json("jobs", "show", f"g{group['id']}", "--wait", code=1)["jobs"] == {"cancelled": 2}


def test_a_node_elsewhere_gets_its_part_and_its_log_is_followed(tmp_path: Path) -> None:
    manager = RunningManager(tmp_path / "manager", limit_seconds=60)
    node = RunningNode(tmp_path / "node", [manager.url], name="one")
    with running(manager, node):
        manager.when_node("one", "online")
        project = Project(tmp_path / "shop", manager.url)
        (project.folder / "shop/spiders.py").write_text(_SHARDED)
        project.run("deploy")
        (project.folder / "rows.tsv").write_text("".join(f"{row}\tx{row}\n" for row in ("id", 1, 2, 3)))
        options = ("--split-file", "rows.tsv", "--parts", "2", "--split-as", "file")
        group = project.json("jobs", "start", "rows", *options, "--wait")
        assert group["jobs"] == {"finished": 2}
        items = project.run("jobs", "items", f"g{group['id']}").stdout
        assert items == '{"id\\txid": "1\\tx1"}\n{"id\\txid": "2\\tx2"}\n{"id\\txid": "3\\tx3"}\n'
        done = project.run("jobs", "start", "pages", "--follow")
        assert "Spider closed (finished)" in done.stdout
        assert project.json("jobs")[0]["node"] == "one"


_WALK = """
import scrapy

class Walk(scrapy.Spider):
    name = "walk"
    custom_settings = {"DOWNLOAD_DELAY": 0.05, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}

    async def start(self):
        yield scrapy.Request(self.url + "0", dont_filter=True)  # as for start_urls

    def parse(self, response):
        yield {"url": response.url}
        number = int(response.url.rsplit("/", 1)[1])
        for following in range(3 * number + 1, 3 * number + 4):
            if following < 60:
                yield response.follow(f"/{following}")
"""


def test_jobs_of_a_group_share_one_frontier_and_one_may_be_killed(
    server: Scrapyd, tmp_path: Path, shared_web: str, frontier: str
) -> None:
    project = _walking(tmp_path, server)
    options = ("-a", f"url={shared_web}", "-s", f"GOSSAMER_FRONTIER={frontier}", "-s", "GOSSAMER_WORKER__HEARTBEAT=2")
    number = project.json("jobs", "start", "walk", "-p", "walk", "--processes", "2", *options)["id"]

    def seen() -> list[str]:
        items = project.run("jobs", "items", f"g{number}").stdout.splitlines()
        return [json.loads(item)["url"] for item in items]

    until(lambda: len(seen()) > 5)
    running = project.json("jobs", "--all", "--group", f"g{number}", "--state", "running")
    os.kill(running[0]["pid"], signal.SIGKILL)
    ended = project.json("jobs", "show", f"g{number}", "--wait", code=1)
    assert ended["jobs"] == {"finished": 1, "failed": 1}
    assert set(seen()) == {f"{shared_web}{page}" for page in range(60)}


def test_a_job_that_starts_after_the_crawl_of_its_group_fetches_nothing(
    tmp_path: Path, shared_web: str, frontier: str
) -> None:
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        project = _walking(tmp_path, server)
        options = ("-a", f"url={shared_web}", "-s", f"GOSSAMER_FRONTIER={frontier}")
        number = project.json("jobs", "start", "walk", "-p", "walk", "--processes", "2", *options)["id"]
        assert project.json("jobs", "show", f"g{number}", "--wait")["jobs"] == {"finished": 2}
        assert _item_counts(project, number) == [60, 0]
        again = project.json("jobs", "rerun", f"g{number}", "--wait")
        assert again["jobs"] == {"finished": 2}
        assert _item_counts(project, again["id"]) == [60, 0]


def test_a_crawl_that_groups_name_begins_again_with_each_group(tmp_path: Path, shared_web: str, frontier: str) -> None:
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        project = _walking(tmp_path, server)
        options = ("-a", f"url={shared_web}", "-s", f"GOSSAMER_FRONTIER={frontier}", "-s", "GOSSAMER_CRAWL_ID=mine")
        scheduled = ("jobs", "start", "walk", "-p", "walk", "--processes", "2", *options)
        numbers = [project.json(*scheduled)["id"] for _ in range(2)]  # both wait for the one slot
        for number in numbers:
            assert project.json("jobs", "show", f"g{number}", "--wait")["jobs"] == {"finished": 2}
            assert _item_counts(project, number) == [60, 0]


def _walking(folder: Path, server: Scrapyd) -> Project:
    """Return a deployed project with the spider `walk`."""
    project = Project(folder / "walk", f"http://127.0.0.1:{server.port}")
    project.write_settings(usual=SERVES_NOTHING)
    (project.folder / "shop/spiders.py").write_text(_WALK)
    project.run("deploy", "--project", "walk")
    return project


def _item_counts(project: Project, group: int) -> list[int]:
    """Return how many items each job of a group has scraped, the first job first."""
    jobs = project.json("jobs", "--all", "--group", f"g{group}")
    items = [project.run("jobs", "items", str(job["id"])).stdout for job in sorted(jobs, key=lambda job: job["id"])]
    return [len(text.splitlines()) for text in items]


@pytest.fixture
def shared_web() -> Iterator[str]:
    """Address of a web whose pages are all there."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>a page</p>")

        def log_message(self, *given: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}/"
        web.shutdown()


@pytest.fixture
def frontier() -> Iterator[str]:
    with valkey.standalone() as server:
        yield server.address


def test_deploy_says_that_it_replaces_a_version(project: Project) -> None:
    options = ("--project", "replaced", "--version", "1.0")
    assert "replaces" not in project.run("deploy", *options).stderr
    again = project.run("deploy", *options).stderr
    assert re.search(r"It replaces the version 1\.0 that replaced had, deployed .", again)


def test_deploy_says_that_jobs_run_another_version(project: Project) -> None:
    name = "sorted"
    assert "Jobs of" not in project.run("deploy", "--project", name, "--version", "2.0").stderr
    done = project.run("deploy", "--project", name, "--version", "1.0")
    assert f"Jobs of {name} still run 2.0, which is sorted after it" in done.stderr
    project.run("versions", "pin", "2.0", "--project", name)
    done = project.run("deploy", "--project", name, "--version", "3.0")
    assert f"Jobs of {name} still run 2.0, which is pinned. To run this one: gossamer versions pin 3.0" in done.stderr
