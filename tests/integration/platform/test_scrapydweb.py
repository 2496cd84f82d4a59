"""ScrapydWeb 1.6 works unchanged with two `gossamer scrapyd`: its pages, deployment, runs on several servers, timer
tasks, alert poller, and LogParser."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, egg, scrapyd, spider, until
from tests.servers.scrapydweb import ScrapydWeb, scrapydweb

_SPIDERS = "".join(
    [
        spider("good", "yield {'arg1': self.arg1, 'delay': self.settings['DOWNLOAD_DELAY']}"),
        spider("plain"),
        spider("sleepy", "await asyncio.sleep(600)"),
        spider("deaf", "signal.signal(signal.SIGINT, signal.SIG_IGN)\nyield {'deaf': 1}\nawait asyncio.sleep(600)"),
        # LogParser reads a line only when another one follows.
        spider("alarming", "self.logger.critical('bad')\nself.logger.info('next')\nawait asyncio.sleep(600)"),
    ]
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scrapyd, Scrapyd]]:
    """The second one has a password."""
    folder = tmp_path_factory.mktemp("servers")
    (folder / "open").mkdir()
    (folder / "closed").mkdir()
    with scrapyd(folder / "open") as first, scrapyd(folder / "closed", conf="username = u\npassword = p") as second:
        second.client.auth = ("u", "p")
        yield first, second


@pytest.fixture(scope="module")
def web(servers: tuple[Scrapyd, Scrapyd], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapydWeb]:
    first, second = servers
    addresses = [f"127.0.0.1:{first.port}", f"u:p@127.0.0.1:{second.port}"]
    with scrapydweb(tmp_path_factory.mktemp("web"), addresses, logs=first.folder / "logs") as started:
        yield started


@pytest.fixture(scope="module")
def server(servers: tuple[Scrapyd, Scrapyd]) -> Scrapyd:
    """The first one, with a project and with the jobs for which tests wait longest: LogParser looks every ten
    seconds."""
    assert servers[0].deploy(egg(_SPIDERS))["spiders"] == 5
    for name in ("plain", "alarming", "deaf"):
        servers[0].post("schedule", project="shop", spider=name, jobid=f"early-{name}")
    return servers[0]


def _project(name: str) -> dict[str, str]:
    return {
        "scrapy.cfg": f"[settings]\ndefault = {name}.settings\n[deploy]\nproject = {name}\n",
        f"{name}/__init__.py": "",
        f"{name}/settings.py": f"SPIDER_MODULES = ['{name}.spiders']\n{FETCHES_NOTHING}",
        f"{name}/spiders.py": f"import asyncio, signal\nimport scrapy\n{_SPIDERS}",
    }


def _row(web: ScrapydWeb, job: str) -> Any:
    """What ScrapydWeb has read of a job on the page /jobs of the first server; None: nothing."""
    rows = web.client.get("/1/jobs/", params={"listjobs": "True"}).json()
    return next((row for row in rows if row["job"] == job), None)


def test_it_starts_with_both_servers(web: ScrapydWeb) -> None:
    assert re.findall(r" (True|False)_+ ", web.said()) == ["True", "True"]  # its table of connectivity
    for node in (1, 2):
        assert web.api("daemonstatus", node=node)["status"] == "ok"


@pytest.mark.parametrize(
    "page",
    ["servers/", "jobs/", "nodereports/", "clusterreports/", "tasks/", "deploy/", "schedule/", "projects/", "logs/",
     "items/", "sendtext/", "parse/upload/", "settings/"],
)  # fmt: skip
def test_each_page_of_the_menu(web: ScrapydWeb, page: str) -> None:
    for node in (1, 2):
        answer = web.client.get(f"/{node}/{page}")
        assert answer.status_code == 200
        assert "Something went wrong" not in answer.text


def test_a_project_is_packed_and_deployed_to_both_servers(web: ScrapydWeb, servers: tuple[Scrapyd, Scrapyd]) -> None:
    for path, content in _project("packed").items():
        (web.projects / "packed" / path).parent.mkdir(parents=True, exist_ok=True)
        (web.projects / "packed" / path).write_text(content)
    assert "'packed'" in web.page("deploy/")
    fields = {"1": "on", "2": "on", "checked_amount": "2", "folder": "packed", "project": "packed", "version": "1-0"}
    said = web.post("deploy/upload/", fields)
    assert re.search(r"<td>packed</td>\s*<td>1-0</td>\s*<td>5</td>", said), said
    # The page then asks for the other servers, one after the other.
    [rest] = set(re.findall(r"/deploy/xhr/[^'\"]+", said))
    assert web.client.post(f"/2{rest}").json()["spiders"] == 5
    for each in servers:
        assert each.get("listversions", project="packed")["versions"] == ["1-0"]


@pytest.mark.parametrize("kind", ["egg", "zip"])
def test_a_file_is_deployed(web: ScrapydWeb, server: Scrapyd, kind: str) -> None:
    content = io.BytesIO(egg(_SPIDERS))
    if kind == "zip":
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as packed:
            for path, text in _project("uploaded").items():
                packed.writestr(f"uploaded/{path}", text)
    fields = {"project": f"uploaded_{kind}", "version": "2026-01-01T00_00_00"}
    said = web.post("deploy/upload/", fields, file=(f"uploaded.{kind}", content.getvalue()))
    assert "Something went wrong" not in said, said
    assert web.api("listversions", f"uploaded_{kind}")["versions"] == ["2026-01-01T00_00_00"]
    assert len(web.api("listspiders", f"uploaded_{kind}", "2026-01-01T00_00_00")["spiders"]) == 5


def test_a_broken_deployment_is_shown_with_its_reason(web: ScrapydWeb) -> None:
    said = web.post(
        "deploy/upload/", {"project": "broken", "version": "1"}, file=("a.egg", egg("import nothing_there"))
    )
    assert "Fail to deploy project, got status: error" in said
    assert "nothing_there" in said


def test_projects_and_versions_are_listed_and_deleted(web: ScrapydWeb, server: Scrapyd) -> None:
    for version in ("1", "2"):
        server.deploy(egg(_SPIDERS), project="doomed", version=version)
    assert "doomed" in web.api("listprojects")["projects"]
    assert "doomed" in web.page("projects/")
    assert "plain" in web.page("projects/listspiders/doomed/1/")
    assert re.search(r"\b2\b", web.page("projects/listversions/doomed/"))
    assert "/1/api/delversion/doomed/1/" in web.post("multinode/delversion/doomed/1/", {"1": "on"})
    assert web.api("delversion", "doomed", "1")["status"] == "ok"
    assert web.api("listversions", "doomed")["versions"] == ["2"]
    assert "/1/api/delproject/doomed/" in web.post("multinode/delproject/doomed/", {"1": "on"})
    assert web.api("delproject", "doomed")["status"] == "ok"
    assert "doomed" not in web.api("listprojects")["projects"]


def test_a_spider_is_run_on_both_servers(web: ScrapydWeb, server: Scrapyd, servers: tuple[Scrapyd, Scrapyd]) -> None:
    for each in servers:
        each.deploy(egg(_SPIDERS), project="both")
    form = {"project": "both", "_version": "1", "spider": "good", "jobid": "2026-01-01T00_00_00",
            "DOWNLOAD_DELAY": "0.25", "additional": "-d setting=CLOSESPIDER_TIMEOUT=60\r\n-d arg1=val1"}  # fmt: skip
    checked = json.loads(web.post("schedule/check/", form))
    assert "-d setting=DOWNLOAD_DELAY=0.25" in checked["cmd"]
    chosen = {"filename": checked["filename"], "1": "on", "2": "on", "checked_amount": "2"}
    assert "2026-01-01T00_00_00" in web.post("schedule/run/", chosen)
    assert web.client.post(f"/2/schedule/xhr/{checked['filename']}/").json()["status"] == "ok"
    for each in servers:
        row = each.ended("2026-01-01T00_00_00")
        assert each.client.get(row["items_url"]).json() == {"arg1": "val1", "delay": "0.25"}
    assert "2026-01-01T00_00_00" in web.client.get("/schedule/history/").text


def test_the_dashboard_shows_a_job_from_pending_to_its_end(web: ScrapydWeb, server: Scrapyd) -> None:
    server.post("schedule", project="shop", spider="sleepy", jobid="dash")
    pid = server.running("dash")["pid"]
    row = _row(web, "dash")
    assert (row["project"], row["spider"], row["pid"], row["finish"]) == ("shop", "sleepy", str(pid), "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row["start"])
    for style in ("database", "classic"):
        assert "dash" in web.page("jobs/", style=style)
    assert "dash" in web.page("jobs/", ui="mobile")
    web.page("jobs/", style="database")
    assert web.api("stop", "shop", "dash")["prevstate"] == "running"
    server.ended("dash")
    row = _row(web, "dash")
    assert (row["pid"], row["href_items"]) == ("", "")
    assert re.search(r'href="(.+?)"', row["href_log"])[1] == "/logs/shop/sleepy/dash.log"  # type: ignore[index]
    snapshot = web.client.post("/1/jobs/").json()  # ScrapydWeb makes one of each server now and then
    assert any(job["job"] == "dash" and job["finish"] for job in snapshot.values()), snapshot


def test_a_job_that_ignores_the_signal_is_forced_to_stop(web: ScrapydWeb, server: Scrapyd) -> None:
    """ScrapydWeb sends two cancels, two seconds apart; the second one shortens the grace."""
    server.running("early-deaf")
    until((server.folder / "items/shop/deaf/early-deaf.jl").exists)
    answer = web.api("forcestop", "shop", "early-deaf")
    assert (answer["status"], answer["times"]) == ("ok", 2)
    assert server.ended("early-deaf")["state"] == "cancelled"


def test_reports_and_statistics_of_a_log(web: ScrapydWeb, server: Scrapyd) -> None:
    server.ended("early-plain")
    assert "early-plain" in web.page("nodereports/")
    assert "early-plain" in web.page("clusterreports/shop/plain/early-plain/")
    report = json.loads(web.page("log/report/shop/plain/early-plain/"))
    assert (report["status"], report["items"], report["finish_reason"]) == ("ok", 1, "finished")
    assert "Spider closed (finished)" in web.page("log/utf8/shop/plain/early-plain/")
    # Until LogParser has seen it, ScrapydWeb parses the log itself.
    assert "finish_reason" in web.page("log/stats/shop/plain/early-plain/")
    seen = lambda: web.api("liststats").get("datas", {}).get("shop", {}).get("plain", {}).get("early-plain")  # noqa: E731
    until(seen, what=web.said)
    assert seen()["items"] == 1
    assert "LogParser v0.8.4, last updated" in web.page("log/stats/shop/plain/early-plain/")
    assert server.client.get("/logs/shop/plain/early-plain.json").json()["finish_reason"] == "finished"


def test_logs_and_items_are_listed(web: ScrapydWeb, server: Scrapyd) -> None:
    server.ended("early-plain")
    for kind, file in (("logs", "early-plain.log"), ("items", "early-plain.jl")):
        assert "shop/" in web.page(f"{kind}/")
        assert "plain/" in web.page(f"{kind}/shop/")
        page = web.page(f"{kind}/shop/plain/")
        assert f"http://127.0.0.1:{server.port}/{kind}/shop/plain/{file}" in page
    assert "finish_reason" in web.page("log/stats/shop/plain/early-plain.log/", with_ext="True")


def test_a_timer_task_runs_a_spider_on_both_servers(
    web: ScrapydWeb, server: Scrapyd, servers: tuple[Scrapyd, Scrapyd]
) -> None:
    for each in servers:
        each.deploy(egg(_SPIDERS), project="timed")
    form = {"project": "timed", "spider": "plain", "trigger": "cron", "action": "add_fire", "name": "nightly",
            "hour": "3", "minute": "30", "second": "0"}  # fmt: skip
    checked = json.loads(web.post("schedule/check/", form))
    chosen = {"filename": checked["filename"], "1": "on", "2": "on", "checked_amount": "2"}
    web.post("schedule/run/", chosen)
    assert "nightly" in web.page("tasks/")
    # It also fires at once; its jobs have names of their own.
    for each in servers:
        until(lambda each=each: any(job["id"].startswith("task_1_") for job in each.jobs()["finished"]), what=web.said)
    until(lambda: re.search(r"pass_count: ?'?2\b", web.page("tasks/1/")), what=lambda: web.page("tasks/1/")[-4000:])
    assert "task_1_" in web.page("tasks/1/1/")


def test_the_poller_stops_a_job_that_logs_something_critical(web: ScrapydWeb, server: Scrapyd) -> None:
    assert server.ended("early-alarming")["state"] == "cancelled"


def test_a_manager_with_a_node_is_one_server(tmp_path: Path) -> None:
    """Logs and items of the node are read through the manager; LogParser is not needed."""
    manager = RunningManager(tmp_path / "manager", limit_seconds=20.0)
    node = RunningNode(tmp_path / "node", [manager.url], name="one")
    with running(manager, node), scrapydweb(tmp_path / "web", [f"127.0.0.1:{manager.port}"]) as web:
        manager.when_node("one", "online")
        fields = {"project": "shop", "version": "1"}
        assert "Something went wrong" not in web.post("deploy/upload/", fields, file=("shop.egg", egg(_SPIDERS)))
        form = {"project": "shop", "spider": "plain", "jobid": "far", "additional": ""}
        checked = json.loads(web.post("schedule/check/", form))
        web.post("schedule/run/", {"filename": checked["filename"]})
        until(lambda: (_row(web, "far") or {"finish": ""})["finish"], what=web.said)
        assert "Spider closed (finished)" in web.page("log/utf8/shop/plain/far/")
        assert json.loads(web.page("log/report/shop/plain/far/"))["items"] == 1
        for kind, file in (("logs", "far.log"), ("items", "far.jl")):
            assert f"http://127.0.0.1:{manager.port}/{kind}/shop/plain/{file}" in web.page(f"{kind}/shop/plain/")
