"""`gossamer deploy`, `schedule`, `jobs` and `job` in a Scrapy project's folder, on a real server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import crawling
from tests.servers.scrapyd import Scrapyd, scrapyd

_SPIDERS = """
import asyncio
import scrapy

class Words(scrapy.Spider):
    name = "words"

    async def start(self):
        for number in range(int(getattr(self, "n", 3))):
            yield {"number": number}
        if getattr(self, "wait", ""):
            await asyncio.sleep(600)
        if getattr(self, "fail", ""):
            raise RuntimeError("failed on purpose")
"""


class Project:
    """A Scrapy project on disk, and commands run in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        (folder / "shop").mkdir(parents=True)
        (folder / "shop/__init__.py").touch()
        self.write_settings()
        (folder / "shop/spiders.py").write_text(_SPIDERS)
        (folder / "scrapy.cfg").write_text(f"[settings]\ndefault = shop.settings\n\n[deploy]\nurl = {url}\n")

    def write_settings(self, more: str = "") -> None:
        """Write the project's settings, with these lines in addition."""
        text = "SPIDER_MODULES = ['shop.spiders']\nTELNETCONSOLE_ENABLED = False\nREMOTE_CONTROL_ENABLED = False\n"
        (self.folder / "shop/settings.py").write_text(text + more)

    def run(self, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project's folder."""
        done = subprocess.run(
            crawling.command(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=90,
            env={**os.environ, "COLUMNS": "80", **environment},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

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


def test_a_job_is_scheduled_followed_and_its_items_are_read(project: Project) -> None:
    done = project.run("schedule", "words", "-a", "n=2", "-s", "LOG_LEVEL=INFO", "--follow")
    assert "Spider closed (finished)" in done.stdout
    assert "is finished" in done.stdout.splitlines()[-1]
    [job] = [each for each in project.json("jobs") if each["arguments"] == {"n": "2"}]
    assert job["settings"] == {"LOG_LEVEL": "INFO"}
    number = str(job["id"])
    assert project.run("job", number, "--items").stdout == '{"number": 0}\n{"number": 1}\n'
    assert project.run("job", number, "--items", "--format", "csv").stdout.split() == ["number", "0", "1"]
    assert "Spider opened" in project.run("job", job["name"], "--log").stdout
    again = project.json("job", number, "--again", "--wait")
    assert (again["arguments"], again["state"]) == ({"n": "2"}, "finished")
    shown = project.run("jobs", "--state", "finished").stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "words" in shown


def test_a_failed_job_ends_the_command_with_1(project: Project) -> None:
    done = project.run("schedule", "words", "-a", "fail=1", "--wait", code=1)
    assert "is failed: finish_reason: start_error" in done.stdout


def test_a_job_is_cancelled(project: Project) -> None:
    number = str(project.json("schedule", "words", "-a", "wait=1")["id"])
    project.run("job", number, "--cancel")
    assert project.json("job", number, "--wait", code=1)["state"] == "cancelled"


def test_a_broken_deployment_ends_with_1_and_changes_nothing(project: Project, server: Scrapyd) -> None:
    project.write_settings("raise RuntimeError('broken on purpose')\n")
    try:
        done = project.run("deploy", "--version", "2.0", code=1)
    finally:
        project.write_settings()
    assert "RuntimeError: broken on purpose" in done.stderr
    assert server.get("listversions", project="shop")["versions"] == ["1.0"]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("schedule", "nothing"), 2, "spider 'nothing' not found"),
        (("schedule", "words", "-a", "n"), 2, "-a: cannot read 'n'"),
        (("jobs", "--target", "http://127.0.0.1:1"), 4, "cannot be reached: connection refused"),
        (("jobs", "--target", "elsewhere"), 2, "there is no target 'elsewhere'"),
        (("job", "999999"), 2, "job 999999 not found"),
        (("job", "nameless"), 2, "there is no job with the name 'nameless'"),
        (("job", "1", "--items", "--format", "pdf"), 2, "there is no format 'pdf'"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(project: Project, command: tuple[str, ...], code: int, said: str) -> None:
    assert said in project.run(*command, code=code).stderr


def test_without_a_project_the_command_tells_where_to_go(tmp_path: Path) -> None:
    done = subprocess.run(
        crawling.command("deploy"), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "no scrapy.cfg here or above" in done.stderr


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
