"""The real clients of Scrapyd work unchanged: scrapyd-deploy, scrapyd-client, python-scrapyd-api, and those that read
the pages with regular expressions."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from tests.servers.pip_programs import program
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, egg, scrapyd, spider
from tests.servers.scrapydweb import FILE_ROW, JOB_ROW

_SPIDERS = spider("good") + spider("sleepy", "await asyncio.sleep(600)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("scrapyd"), conf="username = crawler\npassword = pa:ss\n") as running:
        running.client.auth = ("crawler", "pa:ss")
        yield running


@pytest.fixture
def project(tmp_path: Path, server: Scrapyd) -> Path:
    """A Scrapy project with two targets: one address ends with a slash, the other does not."""
    address = f"http://127.0.0.1:{server.port}"
    login = "username = crawler\npassword = pa:ss\n"
    (tmp_path / "scrapy.cfg").write_text(
        f"[settings]\ndefault = shop.settings\n[deploy:one]\nurl = {address}/\nproject = shop\n{login}"
        f"[deploy:two]\nurl = {address}\nproject = shop2\n{login}"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{FETCHES_NOTHING}")
    (tmp_path / "shop/spiders.py").write_text(f"import asyncio\nimport scrapy\n{_SPIDERS}")
    return tmp_path


def _run(project: Path, command: str, *arguments: str, of: str = "clients") -> str:
    done = subprocess.run(
        [program(of, command), *arguments], cwd=project, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def test_scrapyd_deploy(project: Path, server: Scrapyd) -> None:
    assert '"spiders": 2' in _run(project, "scrapyd-deploy", "one", "--version", "1.9")
    assert '"spiders": 2' in _run(project, "scrapyd-deploy", "one", "--version", "1.10")
    assert server.get("listversions", project="shop")["versions"][-2:] == ["1.9", "1.10"]


def test_scrapyd_deploy_with_dependencies(project: Path, server: Scrapyd) -> None:
    """The egg contains them; the server's environment lacks this one."""
    (project / "requirements.txt").write_text("python-slugify==8.0.4\n")
    with (project / "shop/spiders.py").open("a") as spiders:
        spiders.write("from slugify import slugify\n")
    said = _run(project, "scrapyd-deploy", "one", "-p", "dependent", "--include-dependencies")
    assert '"spiders": 2' in said
    server.post("schedule", project="dependent", spider="good", jobid="dependent")
    assert server.ended("dependent")["state"] == "finished"


def test_scrapyd_deploy_of_a_ready_egg_to_all_targets(project: Path, server: Scrapyd) -> None:
    _run(project, "scrapyd-deploy", "--build-egg", "ready.egg")
    said = _run(project, "scrapyd-deploy", "-a", "-p", "all", "--egg", "ready.egg", "--version", "2")
    assert said.count('"spiders": 2') == 2
    assert server.get("listspiders", project="all")["spiders"] == ["good", "sleepy"]


def test_scrapyd_deploy_names_the_version_by_git(project: Path, server: Scrapyd) -> None:
    for command in ("git init -q", "git add shop", "git -c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(command.split(), cwd=project, check=True)
    _run(project, "scrapyd-deploy", "one", "-p", "git", "--version", "GIT")
    [version] = server.get("listversions", project="git")["versions"]
    assert re.fullmatch(r"r1-\w+|[0-9a-f]{7,}(-\w+)?", version)


def test_scrapyd_client(project: Path, server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), project="client")
    assert "two" in _run(project, "scrapyd-client", "targets")
    for target in ("one", "two"):
        assert "client" in _run(project, "scrapyd-client", "projects", "-t", target)
    assert "sleepy" in _run(project, "scrapyd-client", "spiders", "-t", "two", "-p", "client")
    arguments = ("--arg", "a=1", "--arg", "setting=LOG_LEVEL=INFO", "--arg", "setting=JOB_NUMBER=7")
    said = _run(project, "scrapyd-client", "schedule", "-t", "one", "-p", "client", "good", *arguments)
    [name] = re.findall(r"[0-9a-f]{32}", said)
    assert server.ended(name)["state"] == "finished"


def test_scrapyd_deploy_of_an_earlier_release(project: Path, server: Scrapyd) -> None:
    """It lists targets and projects, which later ones leave to scrapyd-client."""
    said = _run(project, "scrapyd-deploy", "-l", of="scrapyd")
    assert re.findall(r"^(\w+) +http://127.0.0.1", said, re.MULTILINE) == ["one", "two"]
    assert '"spiders": 2' in _run(project, "scrapyd-deploy", "one", "-p", "earlier", of="scrapyd")
    assert "earlier" in _run(project, "scrapyd-deploy", "-L", "one", of="scrapyd").split()


def test_the_classes_of_scrapyd_client(project: Path, server: Scrapyd) -> None:
    """All calls of its Python interface, with both spellings of the address."""
    server.deploy(egg(_SPIDERS), project="classes")
    for slash in ("", "/"):
        script = f"""
import json, time
from scrapyd_client.pyclient import ScrapydClient
client = ScrapydClient('http://127.0.0.1:{server.port}{slash}', 'crawler', 'pa:ss')
said = {{'projects': client.projects(), 'spiders': client.spiders('classes'), 'versions': client.versions('classes')}}
job = client.schedule('classes', 'sleepy', [('setting', 'LOG_LEVEL=INFO'), ('argument', 'x')])
job = job['jobid'] if isinstance(job, dict) else job
while client.status(job, 'classes')['currstate'] != 'running':
    time.sleep(0.1)
said['daemon'], said['jobs'] = client.daemonstatus(), client.jobs('classes')
said['cancelled'] = client.cancel('classes', job)
while client.status(job, 'classes')['currstate'] != 'finished':
    time.sleep(0.1)
print(json.dumps(said))
"""
        said = json.loads(_run(project, "python", "-c", script))
        assert "classes" in said["projects"]
        assert said["spiders"] == ["good", "sleepy"]
        assert "1" in json.dumps(said["versions"])
        assert said["daemon"]["status"] == "ok"
        assert len(said["jobs"]["running"]) == 1
        assert said["cancelled"]["prevstate"] == "running"
    deleting = f"""
from scrapyd_client.pyclient import ScrapydClient
client = ScrapydClient('http://127.0.0.1:{server.port}', 'crawler', 'pa:ss')
client.delversion('classes', '1')
"""
    _run(project, "python", "-c", deleting)
    assert "classes" not in server.get("listprojects")["projects"]


def test_python_scrapyd_api(project: Path, server: Scrapyd) -> None:
    """All its calls."""
    (project / "packed.egg").write_bytes(egg(_SPIDERS))
    script = f"""
import json, time
from scrapyd_api import ScrapydAPI
api = ScrapydAPI('http://127.0.0.1:{server.port}', auth=('crawler', 'pa:ss'))
said = {{}}
said['add'] = api.add_version('api', '1.0', open('packed.egg', 'rb'))
said['versions'], said['spiders'] = api.list_versions('api'), api.list_spiders('api')
said['projects'] = api.list_projects()
job = api.schedule('api', 'sleepy', settings={{'LOG_LEVEL': 'INFO'}}, argument='x')
while api.job_status('api', job) != 'running':
    time.sleep(0.1)
said['cancelled'] = api.cancel('api', job)
while api.job_status('api', job) != 'finished':
    time.sleep(0.1)
said['jobs'] = {{kind: len(rows) for kind, rows in api.list_jobs('api').items()}}
said['deleted'] = api.delete_version('api', '1.0')
print(json.dumps(said))
"""
    said = json.loads(_run(project, "python", "-c", script))
    assert said["add"] == 2
    assert said["versions"] == ["1.0"]
    assert said["spiders"] == ["good", "sleepy"]
    assert "api" in said["projects"]
    assert said["cancelled"] == "running"
    assert {kind: said["jobs"][kind] for kind in ("pending", "running", "finished")} == {
        "pending": 0,
        "running": 0,
        "finished": 1,
    }
    assert said["deleted"] is True


def test_a_percent_encoded_egg_of_many_megabytes(server: Scrapyd, tmp_path: Path) -> None:
    """ScrapydWeb deploys in this way."""
    noise = bytes(range(256)) * 4096 * 20
    content = egg(_SPIDERS)
    large = noise + content  # a zip may have anything before it
    body = f"project=web&version=1&egg={quote_from_bytes(large)}"
    assert len(body) > 50_000_000
    answer = server.client.post(
        "/addversion.json", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    ).json()
    assert answer["spiders"] == 2, answer
    assert (server.folder / "eggs/web/1.egg").read_bytes() == large


def _rows(server: Scrapyd) -> dict[str, dict[str, Any]]:
    page = re.sub(r"<thead>.*?</thead>", "", server.client.get("/jobs").text, flags=re.DOTALL)
    assert "<h1>Jobs</h1>" in page
    return {found["Job"]: found.groupdict() for found in JOB_ROW.finditer(page)}


def test_the_pages_as_scrapydweb_reads_them(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), project="pages")
    server.post("schedule", project="pages", spider="sleepy", jobid="page-running")
    server.post("schedule", project="pages", spider="good", jobid="page-ended")
    server.ended("page-ended")
    pid = server.running("page-running")["pid"]
    rows = _rows(server)
    running, ended = rows["page-running"], rows["page-ended"]
    assert (running["Project"], running["Spider"], running["PID"]) == ("pages", "sleepy", str(pid))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", running["Start"])
    assert running["Finish"] == ""
    assert not ended["PID"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", ended["Finish"])
    assert re.search(r'href="(.*?)"', ended["Log"])[1] == "/logs/pages/good/page-ended.log"  # type: ignore[index]
    assert re.search(r'href="(.*?)"', ended["Items"])[1] == "/items/pages/good/page-ended.jl"  # type: ignore[index]
    # The last cell has the number that `gossamer jobs show` takes; `/` says so.
    page = server.client.get("/jobs").text
    [numbers] = [re.findall(r'href="/ui/job\?id=(\d+)"', row) for row in page.split("</tr>") if ">page-ended<" in row]
    job = server.client.get(f"/v1/jobs/{numbers[0]}").json()
    assert (job["name"], len(numbers)) == ("page-ended", 1)
    assert f"gossamer deploy http://127.0.0.1:{server.port}" in server.client.get("/").text
    server.post("cancel", project="pages", job="page-running", signal="KILL")


def test_the_listings_as_scrapydweb_reads_them(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), project="files")
    server.post("schedule", project="files", spider="good", jobid="file-ended")
    server.ended("file-ended")
    for path in ("/logs/", "/logs/files/", "/logs/files/good/"):
        page = server.client.get(path).text
        assert f"Directory listing for {path}" in page
        assert FILE_ROW.search(page)
    [row] = FILE_ROW.finditer(page)
    assert row["name"] == '<a href="file-ended.log">file-ended.log</a>'
    assert re.fullmatch(r"\d+[BKMG]", row["size"])
    assert server.client.get("/logs").status_code == 302
    assert server.client.get("/logs/files").headers["location"] == "/logs/files/"


def test_a_part_of_a_log(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), project="parts")
    server.post("schedule", project="parts", spider="good", jobid="parts")
    url = server.ended("parts")["log_url"]
    whole = server.client.get(url).content
    for asked, expected in (("bytes=5-9", whole[5:10]), ("bytes=-7", whole[-7:]), ("bytes=10-", whole[10:])):
        part = server.client.get(url, headers={"Range": asked})
        assert (part.status_code, part.content) == (206, expected)
    assert server.client.get(url, headers={"Range": f"bytes={len(whole)}-"}).status_code == 416
    assert server.client.head(url).headers["content-length"] == str(len(whole))


def test_no_web_page_uses_the_password_that_a_browser_knows(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), project="safe")
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    refused = server.client.post("/delproject.json", data={"project": "safe"}, headers=elsewhere)
    assert (refused.status_code, refused.json()["status"]) == (403, "error")
    assert (
        server.client.post("/v1/jobs", json={"project": "safe", "spider": "good"}, headers=elsewhere).status_code == 403
    )
    assert server.client.get("/jobs", headers=elsewhere).status_code == 200  # a link that a person follows
    behind_proxy = {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"}
    cancel = server.client.post("/cancel.json", data={"project": "safe", "job": "x"}, headers=behind_proxy)
    assert cancel.json()["status"] == "ok"  # the button on /jobs


def test_links_of_pages_stay_on_the_server_whatever_prefix_a_client_names(server: Scrapyd) -> None:
    """A cache could show the page to others."""
    for prefix, expected in (("/below/", "/below/jobs"), ("//evil.test", "/jobs"), ("https://evil.test", "/jobs")):
        answer = server.client.get("/", headers={"X-Forwarded-Prefix": prefix})
        assert f'href="{expected}"' in answer.text
        assert "evil.test" not in answer.text
        assert answer.headers["cache-control"] == "no-store"


def test_a_page_shows_names_as_text(server: Scrapyd) -> None:
    """What a client chose is no markup."""
    server.deploy(egg(_SPIDERS), project="<b>x")
    server.post("schedule", project="<b>x", spider="good", jobid="<script>'\"")
    server.ended("<script>'\"")
    for path in ("/", "/jobs", "/logs/", "/logs/%3Cb%3Ex/", "/logs/%3Cb%3Ex/good/"):
        page = server.client.get(path, headers={"X-Forwarded-Prefix": '/"><i>'}).text
        assert not re.search(r"<b>x|<script>'|\"><i>", page), page
        assert "&lt;b&gt;x" in page
