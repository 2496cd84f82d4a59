"""The real clients of Scrapy Cloud work unchanged: shub and the scrapinghub library, which runs in a process of its own
because it is not installed beside Gossamer."""

import json
import os
import re
import subprocess
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.package_index import package_index, with_uv
from tests.servers.pip_programs import LoadedPython, program
from tests.servers.scrapyd import FETCHES_NOTHING, Scrapyd, scrapyd, spider, until

_SPIDERS = (
    spider(
        "good",
        "self.logger.warning('first line\\nsecond line')\n"
        "for number in range(int(getattr(self, 'count', 3))):\n    yield {'number': number, 'name': 'Käse'}",
    )
    + spider("sleepy", "await asyncio.sleep(600)")
    + spider("failing", "raise ValueError('broken')")
    + spider(
        "kinds",
        "yield Quote(text='a')\nyield {'b': 1}\nyield Quote(text='c')\nyield {'_type': 'own'}\n"
        "self.logger.info('four items')\nwhile getattr(self, 'until', '') and not os.path.exists(self.until):\n"
        "    await asyncio.sleep(0.05)\nself.logger.info('the last line')",
    )
    + "class Quote(scrapy.Item):\n    text = scrapy.Field()\n"
)
_COLOURED = "import scrapy\nimport coloured\n" + spider("tells", "yield {'colour': coloured.COLOUR}")
_IMPATIENT = "import time; sleep = time.sleep; time.sleep = lambda seconds: sleep(min(seconds, 0.2))"
"""shub looks for further lines every 15 seconds, and at the state of the job every 60."""
_SHUB = "import sys\nfrom shub.tool import cli\nsys.exit(cli(prog_name='shub'))"
_LIBRARIES = ("click", "dotenv", "msgpack", "pkg_resources", "requests", "setuptools", "yaml")
"""What the clients load of others."""
_PREAMBLE = """
import json, os, sys
from scrapinghub import ScrapinghubClient
from scrapinghub.client.exceptions import BadRequest, Forbidden, NotFound, Unauthorized
def client(key=os.environ["SH_APIKEY"], **options):
    return ScrapinghubClient(key, **options)
project = client().get_project(12345)
"""


class CloudServer:
    """A server with a password, and a folder with a Scrapy project that has been deployed to it by shub."""

    def __init__(
        self,
        server: Scrapyd,
        folder: Path,
        loaded: LoadedPython,
        *,
        project: int = 12345,
        source: str = "",
        requirements: str = "",
    ) -> None:
        self.server = server
        self.folder = folder
        self.loaded = loaded
        address = f"http://127.0.0.1:{server.port}/cloud/"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "HTTPS_PROXY": "http://127.0.0.1:1",  # shub asks for the latest release of its own
            "SHUB_GLOBAL_CONFIG": str(folder / "global.yml"),
            "SHUB_APIURL": f"{address}api/",
            "SHUB_STORAGE": address,
            "SHUB_APIKEY": "crawler:pass",
            "SH_APIKEY": "crawler:pass",
            "PYTHONWARNINGS": "ignore",
        }
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
        (folder / "scrapinghub.yml").write_text(
            f"project: {project}\nversion: 1.0\n"  # or shub runs setup.py for many a command
            f"endpoints:\n  default: {address}api/\napikeys:\n  default: crawler:pass\n"
            + ("requirements:\n  file: requirements.txt\n" if requirements else "")
        )
        if requirements:
            (folder / "requirements.txt").write_text(requirements)
        (folder / "shop").mkdir()
        (folder / "shop/__init__.py").touch()
        (folder / "shop/settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{FETCHES_NOTHING}")
        (folder / "shop/spiders.py").write_text(source or f"import asyncio, os\nimport scrapy\n{_SPIDERS}")

    def shub(self, *arguments: str, code: int = 0, **environment: str) -> str:
        """What shub prints."""
        done = self.loaded.run(_SHUB, *arguments, environment={**self.environment, **environment}, folder=self.folder)
        assert done.returncode == code, done.stdout + done.stderr + self.server.said()
        return done.stdout + done.stderr

    def python(self, code: str, **environment: str) -> Any:
        """What a program prints that has `client` and `project`, as JSON."""
        done = self.loaded.run(
            _PREAMBLE + textwrap.dedent(code), environment={**self.environment, **environment}, folder=self.folder
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.server.said()
        return json.loads(done.stdout)

    def run(self, spider: str, **arguments: str) -> str:
        """Run a spider to its end, and return the key of the job."""
        given = [part for name, value in arguments.items() for part in ("-a", f"{name}={value}")]
        said = self.shub("schedule", spider, *given)
        [key] = {word.strip(",.") for word in said.split() if re.match(r"[0-9]+/[0-9]+/[0-9]", word)}
        until(lambda: self.metadata(key)["state"] == "finished", what=self.server.said)
        return key

    def items(self, key: str) -> list[Any]:
        """The items of a job as shub shows them, without their keys."""
        rows = [json.loads(line) for line in self.shub("items", key).splitlines()]
        assert [row.pop("_key") for row in rows] == [f"{key}/{number}" for number in range(len(rows))]
        return rows

    def metadata(self, key: str) -> Any:
        """The metadata of a job."""
        return self.server.client.get(f"/cloud/jobs/{key}").json()


@pytest.fixture(scope="module")
def loaded() -> Iterator[LoadedPython]:
    """The Python of the clients."""
    running = LoadedPython("cloud", _LIBRARIES, environment={**os.environ, "PYTHONWARNINGS": "ignore"})
    yield running
    running.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedPython) -> Iterator[CloudServer]:
    packages = with_uv(package_index(tmp_path_factory.mktemp("index")))
    conf = "username = crawler\npassword = pass\n"
    with scrapyd(tmp_path_factory.mktemp("scrapyd"), conf=conf, environment=packages) as server:
        server.client.auth = ("crawler", "pass")
        cloud = CloudServer(server, tmp_path_factory.mktemp("project"), loaded)
        assert '"spiders": 4' in cloud.shub("deploy", "--version", "1.0")
        yield cloud


@pytest.fixture(scope="module")
def good(cloud: CloudServer) -> str:
    """The key of a job that has ended well, with five items."""
    return cloud.run("good", count="5")


def test_shub_items_and_log(cloud: CloudServer, good: str) -> None:
    items = [json.loads(line) for line in cloud.shub("items", good).splitlines()]
    assert [item["number"] for item in items] == [0, 1, 2, 3, 4]
    assert items[0]["name"] == "Käse"
    log = cloud.shub("log", good)
    assert "first line\nsecond line" in log
    assert "Spider closed (finished)" in log
    assert "Spider closed (finished)" in cloud.shub("log", "-n", "2", good)
    assert "Spider opened" not in cloud.shub("log", "-n", "2", good)
    cloud.shub("requests", good)


def test_items_have_their_types(cloud: CloudServer, good: str) -> None:
    key = cloud.run("kinds")
    shown = cloud.items(key)
    assert shown == [
        {"text": "a", "_type": "Quote"},
        {"b": 1, "_type": "dict"},
        {"text": "c", "_type": "Quote"},
        {"_type": "own"},
    ]
    found = cloud.python(f"""
        items = client().get_job("{key}").items
        print(json.dumps([[item["_type"] for item in items.iter()], items.get(2), items.get(1),
                          len(items.list(filter=[("_type", "=", ["Quote"])]))]))
    """)
    assert found == [["Quote", "dict", "Quote", "own"], shown[2], shown[1], 2]
    # The platform's own items are what the spider made.
    number = cloud.server.client.get("/v1/jobs", params={"spider": "kinds"}).json()["jobs"][0]["id"]
    own = cloud.server.client.get(f"/v1/jobs/{number}/items").json()["items"]
    assert own == [{"text": "a"}, {"b": 1}, {"text": "c"}, {"_type": "own"}]
    # An item of the first class is a line as Scrapy's feed has it.
    page = cloud.server.client.get("/v1/jobs", params={"spider": "good"}).json()["jobs"][-1]
    text = cloud.server.client.get(f"/v1/jobs/{page['id']}/items.jsonl").text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_shub_follows_a_log_to_the_end_of_the_job(cloud: CloudServer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    said = cloud.shub("schedule", "kinds", "-a", f"until={go}")
    [key] = {word.strip(",.") for word in said.split() if word.startswith("12345/")}
    until(lambda: cloud.metadata(key)["state"] == "running", what=cloud.server.said)
    code = f"{_IMPATIENT}\nimport shub.utils as utils\nfrom shub.tool import cli\nlive = utils.job_live\n"
    code += "utils.job_live = lambda job: live(job, refresh_meta_after=0)\ncli()"
    output = tmp_path / "output"
    with output.open("wb") as file:
        following = subprocess.Popen(
            [program("cloud", "python"), "-u", "-c", code, "log", "-f", key],
            env=cloud.environment, cwd=cloud.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        until(lambda: "four items" in output.read_text(), what=lambda: output.read_text() + cloud.server.said())
        assert following.poll() is None
        typed = [{"text": "a", "_type": "Quote"}, {"b": 1, "_type": "dict"}]
        until(lambda: cloud.items(key)[:2] == typed, what=cloud.server.said)  # while it runs
        go.touch()
        assert following.wait(60) == 0
    finally:
        following.kill()
        following.wait()
    lines = [line for line in output.read_text().splitlines() if "four items" in line]
    assert len(lines) == 1  # nothing comes twice


def test_shub_deploys_requirements_into_an_environment(cloud: CloudServer, tmp_path: Path) -> None:
    other = CloudServer(
        cloud.server, tmp_path, cloud.loaded, project=777, source=_COLOURED, requirements="coloured==1.0\n"
    )
    assert '"spiders": 1' in other.shub("deploy", "--version", "1.0")
    assert other.items(other.run("tells")) == [{"colour": "red", "_type": "dict"}]
    (tmp_path / "requirements.txt").unlink()
    other.shub("migrate-eggs", "777")
    assert (tmp_path / "requirements.txt").read_text() == "coloured==1.0\n"
    (tmp_path / "requirements.txt").write_text("coloured==9.9\n")
    said = other.shub("deploy", "--version", "2.0", code=76)
    assert "coloured==9.9" in said


def test_shub_copies_a_version_to_another_project(cloud: CloudServer, tmp_path: Path) -> None:
    cloud.shub("copy-eggs", "--source_project", "12345", "--new_project", "888")  # there are no dependencies
    cloud.shub("copy-eggs", "--source_project", "12345", "--new_project", "888", "--copy-main")
    [version] = cloud.server.client.get("/v1/versions", params={"project": "888"}).json()
    assert (version["name"], version["state"], len(version["spiders"])) == ("1.0", "ready", 4)
    said = cloud.shub("deploy-egg", code=76)
    assert "name the packages in requirements.txt" in said


def test_shub_cancels_a_running_job(cloud: CloudServer) -> None:
    said = cloud.shub("schedule", "sleepy", "--tag", "slow")
    [key] = {word.strip(",.") for word in said.split() if word.startswith("12345/")}
    until(lambda: cloud.metadata(key)["state"] == "running", what=cloud.server.said)
    assert cloud.metadata(key)["tags"] == ["slow"]
    [page] = re.findall(r"http://\S+/p/[\d/]+", said)  # "watch it running in … web interface"
    for address in (page, page.replace("/cloud/", "/")):
        shown = cloud.server.client.get(address, follow_redirects=True)
        assert re.search(r"/ui/job\?id=\d+$", str(shown.url)), shown.url
        assert "<h1>sleepy " in shown.text
    cloud.shub("cancel", "-f", "12345", "/".join(key.split("/")[1:]))
    until(lambda: cloud.metadata(key)["state"] == "finished", what=cloud.server.said)
    assert cloud.metadata(key)["close_reason"] == "cancelled"


def test_shub_shows_what_is_wrong(cloud: CloudServer, good: str) -> None:
    assert "Authentication failed" in cloud.shub("schedule", "good", code=76, SHUB_APIKEY="wrong")
    assert "spider 'none' not found" in cloud.shub("schedule", "none", code=76)
    assert "does not exist" in cloud.shub("items", "12345/1/9999", code=69)
    assert "no variables of its own" in cloud.shub("schedule", "good", "-e", "A=1", code=76)


def test_shub_fetches_the_version_and_its_requirements_and_logs_in(cloud: CloudServer) -> None:
    cloud.shub("migrate-eggs", "12345")
    assert (cloud.folder / "requirements.txt").read_text() == ""
    cloud.shub("fetch-eggs", "12345")
    with zipfile.ZipFile(cloud.folder / "eggs-12345.zip") as bundle:
        assert bundle.namelist() == ["./__main__.egg"]
    known = httpx.get(f"http://127.0.0.1:{cloud.server.port}/cloud/api/v2/users/me", params={"apikey": "crawler:pass"})
    assert known.status_code == 200
    unknown = httpx.get(f"http://127.0.0.1:{cloud.server.port}/cloud/api/v2/users/me", params={"apikey": "x"})
    assert unknown.status_code == 403


def test_a_broken_version_changes_nothing(cloud: CloudServer, tmp_path: Path) -> None:
    broken = tmp_path / "broken.egg"
    broken.write_bytes(b"no zip")
    assert "Deploy failed" in cloud.shub("deploy", "--version", "2.0", "--egg", str(broken), code=76)
    assert cloud.python("print(json.dumps([s['id'] for s in project.spiders.list()]))") == [
        "failing",
        "good",
        "kinds",
        "sleepy",
    ]


def test_a_job_of_the_library(cloud: CloudServer) -> None:
    found = cloud.python("""
        spider = project.spiders.get("good")
        job = spider.jobs.run(job_args={"count": "2", "x": "ä"}, job_settings={"LOG_LEVEL": "DEBUG"}, priority=3,
                              add_tag=["one", "two"], meta={"note": {"a": 1}})
        import time
        while job.metadata.get("state") != "finished":
            time.sleep(0.2)
        job.update_tags(add=["three"], remove=["one"])
        job.metadata.set("mine", [1, 2])
        job.metadata.update({"other": "x", "state": "running"})
        job.metadata.delete("note")
        meta = dict(job.metadata.iter())
        print(json.dumps({
            "key": job.key, "meta": meta,
            "items": list(job.items.iter(meta=["_key"])),
            "stats": job.items.stats(),
            "levels": sorted({entry["level"] for entry in job.logs.iter()}),
            "requests": list(job.requests.iter()), "samples": list(job.samples.iter()),
        }))
    """)
    key, meta = found["key"], found["meta"]
    assert key.startswith("12345/")
    assert meta["spider_args"] == {"count": "2", "x": "ä"}
    assert meta["job_settings"] == {"LOG_LEVEL": "DEBUG"}
    assert meta["priority"] == 3
    assert meta["tags"] == ["three", "two"]
    assert (meta["mine"], meta["other"], meta["state"], meta["close_reason"]) == ([1, 2], "x", "finished", "finished")
    assert meta["scrapystats"]["item_scraped_count"] == 2
    assert "note" not in meta
    assert [item["_key"] for item in found["items"]] == [f"{key}/0", f"{key}/1"]
    assert found["stats"]["totals"]["input_values"] == 2
    assert found["levels"] == [10, 20, 30]
    assert found["samples"] == []


@pytest.mark.parametrize("msgpack", [True, False])
def test_items_by_number_and_condition(cloud: CloudServer, good: str, msgpack: bool) -> None:
    found = cloud.python(f"""
        items = client(use_msgpack={msgpack}).get_job("{good}").items
        numbers = lambda rows: [row["number"] for row in rows]
        print(json.dumps({{
            "all": numbers(items.list()),
            "first": numbers(items.iter(count=2)),
            "from": numbers(items.iter(start="{good}/3")),
            "after": numbers(items.iter(startafter="{good}/1", count=1)),
            "chunks": [numbers(chunk) for chunk in items.list_iter(chunksize=2)],
            "condition": numbers(items.iter(filter=[("number", ">=", [3])])),
            "text": numbers(items.iter(filter=json.dumps(["name", "contains", ["se"]]), count=1)),
            "one": items.get(2)["number"],
        }}))
    """)
    assert found == {
        "all": [0, 1, 2, 3, 4],
        "first": [0, 1],
        "from": [3, 4],
        "after": [2],
        "chunks": [[0, 1], [2, 3], [4]],
        "condition": [3, 4],
        "text": [0],
        "one": 2,
    }


@pytest.mark.parametrize("msgpack", [True, False])
def test_entries_of_the_log(cloud: CloudServer, good: str, msgpack: bool) -> None:
    found = cloud.python(f"""
        logs = client(use_msgpack={msgpack}).get_job("{good}").logs
        print(json.dumps({{"all": list(logs.iter(meta=["_key"])), "warnings": list(logs.iter(level="WARNING"))}}))
    """)
    [warning] = found["warnings"]
    assert warning["message"] == "[good] first line\nsecond line"
    assert warning["level"] == 30
    keys = [int(entry["_key"].rpartition("/")[2]) for entry in found["all"]]
    assert keys == sorted(set(keys))
    assert any("Dumping Scrapy stats" in entry["message"] for entry in found["all"])


def test_lists_counts_and_summaries(cloud: CloudServer, good: str) -> None:
    failed = cloud.run("failing")
    found = cloud.python(f"""
        failing = project.spiders.get("failing").jobs
        client().get_job("{failed}").update_tags(add=["bad"])
        rows = list(failing.iter())
        print(json.dumps({{
            "rows": rows, "count": failing.count(), "tagged": [row["key"] for row in project.jobs.iter(has_tag="bad")],
            "untagged": [row["key"] for row in project.jobs.iter(lacks_tag="bad")],
            "pending": project.jobs.count(state="pending"),
            "page": len(project.jobs.list(count=1, start=1)),
            "meta": project.jobs.list(spider="failing", meta=["close_reason", "spider_args"])[0],
            "summary": {{each["name"]: each["count"] for each in failing.summary()}},
            "finished": failing.summary("finished")["count"],
            "last": [row["key"] for row in project.jobs.iter_last()],
            "projects": client().projects.list(), "all": client().projects.summary(),
            "activity": [event["event"] for event in project.activity.iter(count=2)],
            "settings": dict(project.settings.iter()),
        }}))
    """)
    assert found["rows"][0]["key"] == failed
    assert found["rows"][0]["close_reason"] != "finished"
    assert found["count"] == 1
    assert found["tagged"] == [failed]
    assert failed not in found["untagged"]
    assert good in found["untagged"]
    assert found["pending"] == 0
    assert found["page"] == 1
    assert set(found["meta"]) == {"key", "ts", "close_reason", "spider_args"}
    assert found["summary"] == {"pending": 0, "running": 0, "finished": 1}
    assert found["finished"] == 1
    assert failed in found["last"]
    assert 12345 in found["projects"]
    assert found["all"][0]["project"] == 12345
    assert found["activity"][0] == "job:completed"
    assert found["settings"] == {}


def test_what_is_not_offered_says_so(cloud: CloudServer, good: str) -> None:
    found = cloud.python(f"""
        job = client().get_job("{good}")
        attempts = {{
            "collections": lambda: project.collections.get_store("a").set({{"_key": "k"}}),
            "frontiers": lambda: list(project.frontiers.iter()),
            "delete": job.delete,
            "finish": job.finish,
            "arguments": lambda: project.jobs.run("good", cmd_args="x"),
            "settings": lambda: project.settings.set("a", 1),
            "spider": lambda: project.spiders.get("none"),
            "key": lambda: list(client("wrong").get_job("{good}").items.iter()),
            "project": lambda: list(client().get_project(7).jobs.iter()),
        }}
        errors = {{}}
        for name, attempt in attempts.items():
            try:
                attempt()
                errors[name] = None
            except Exception as error:
                errors[name] = [type(error).__name__, str(error)]
        print(json.dumps(errors))
    """)
    assert {name: error and error[0] for name, error in found.items()} == {
        **dict.fromkeys(("collections", "frontiers", "delete", "finish", "arguments", "settings"), "BadRequest"),
        "spider": "NotFound",
        "key": "Unauthorized",
        "project": "NotFound",
    }
    assert "not offered" in found["collections"][1]


def test_tags_are_also_those_of_v1(cloud: CloudServer) -> None:
    new = {"project": "12345", "spider": "good", "tags": ["v1", "daily"]}
    created = cloud.server.client.post("/v1/jobs", json=new).json()
    assert created["tags"] == ["daily", "v1"]
    found = cloud.server.client.get("/v1/jobs", params={"tag": ["v1", "daily"]}).json()["jobs"]
    assert [job["id"] for job in found] == [created["id"]]
    assert cloud.server.client.get("/v1/jobs", params={"tag": ["v1", "none"]}).json()["jobs"] == []
    assert (
        len(cloud.python("print(json.dumps(project.jobs.list(has_tag='v1', state=['pending','running','finished'])))"))
        == 1
    )


def test_a_key_is_a_token_with_its_scope_and_project(cloud: CloudServer, good: str) -> None:
    other = cloud.server.client.post("/v1/tokens", json={"name": "a", "scope": "admin", "project": "other"}).json()
    reader = cloud.server.client.post("/v1/tokens", json={"name": "b", "scope": "read", "project": "12345"}).json()
    refused = cloud.python(
        """
        try:
            project.jobs.run("good")
        except BadRequest as error:
            print(json.dumps(str(error)))
        """,
        SH_APIKEY=reader["token"],
    )
    assert "this needs a token with the scope run" in refused
    rows = f"[client().projects.list(), len(client().get_job('{good}').items.list())]"
    assert cloud.python(f"print(json.dumps({rows}))", SH_APIKEY=reader["token"]) == [[12345], 5]
    assert cloud.python("print(json.dumps(client().projects.list()))", SH_APIKEY=other["token"]) == []
