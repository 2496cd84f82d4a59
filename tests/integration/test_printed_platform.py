"""Commands of the how-tos about the platform's machines and clients run as they are printed. See
test_printed_commands.py."""

import json
import os
import re
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.package_index import package_index, with_uv
from tests.servers.pip_programs import program
from tests.servers.postgresql import postgresql
from tests.servers.printed import Shell, Typed
from tests.servers.printed_pages import check, commands_of, runs, text_of
from tests.servers.s3 import s3_server
from tests.servers.scrapyd import FETCHES_NOTHING, SERVES_NOTHING, egg, scrapyd, spider, until
from tests.servers.valkey import free_ports


def _project(folder: Path, spiders: str) -> None:
    """Write a project that fetches nothing."""
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").write_text("")
    (folder / "shop/settings.py").write_text(f"SPIDER_MODULES = ['shop.spiders']\n{FETCHES_NOTHING}")
    (folder / "shop/spiders.py").write_text(f"import scrapy\n{spiders}")


_MACHINES = "howto/operations.md"
_OF_SEVERAL_MANAGERS = ("export SCRAPYD_DATABASE_URL_FILE", "gossamer manager --host 0.0.0.0 --store s3:")


@runs(_MACHINES)
def test_the_page_about_several_machines(page: str, tmp_path: Path) -> None:
    """Managers and nodes are processes of this machine. The reader's `crawler-1` is its only node."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    token, store, folder = (tmp_path / name for name in ("node-token", "store", "server"))
    folder.mkdir()
    swaps = {
        "http://127.0.0.1:6800": url, "http://manager.example:6800": url, "0.0.0.0": "127.0.0.1",
        "gossamer manager": f"gossamer manager --port {port}", "/etc/gossamer": str(tmp_path),
        "gossamer node ": "gossamer node --name crawler-1 --project-users off ", "/srv/gossamer": str(store),
    }  # fmt: skip
    project = egg(spider("prices"))
    with scrapyd(folder) as before_the_move:
        assert before_the_move.deploy(project)["status"] == "ok"
    shell = Shell(folder, swaps, {"GOSSAMER_PLATFORM_URL": url})
    with ExitStack() as manager, ExitStack() as node:
        for typed in commands_of(page):
            if typed.command.startswith(_OF_SEVERAL_MANAGERS):
                continue
            if typed.command.startswith("gossamer manager"):
                manager.enter_context(shell.started(typed.command))
            elif typed.command.startswith("gossamer node "):
                node.close()
                node.enter_context(shell.started(typed.command, ready="crawler-1 runs up to"))
            else:
                if typed.command.startswith("gossamer projects set"):
                    form = {"project": "shop", "version": "1"}
                    deployed = httpx.post(f"{url}/addversion.json", data=form, files={"egg": project}, timeout=60)
                    assert deployed.json()["status"] == "ok", deployed.text
                if typed.command.startswith("gossamer nodes forget"):
                    node.close()
                if typed.command.startswith("mkdir"):
                    manager.close()
                    store.rename(tmp_path / "first")
                said = check(shell, typed)
                if typed.command.startswith("gossamer tokens make"):
                    token.write_text(said)
        assert httpx.get(f"{url}/listprojects.json").json()["projects"] == ["shop"]


@pytest.mark.long
@runs(_MACHINES)
def test_one_of_several_managers(page: str, tmp_path: Path) -> None:
    """Its database is a real PostgreSQL, and its store a real S3."""
    [port] = free_ports(1)
    swaps = {"0.0.0.0": "127.0.0.1", "/etc/gossamer": str(tmp_path), "s3://bucket": "s3://platform"}
    with s3_server() as s3, postgresql() as database:
        (tmp_path / "database-url").write_text(database.new_database())
        shell = Shell(tmp_path, swaps, s3.environment)
        export, manager = (each for each in commands_of(page) if each.command.startswith(_OF_SEVERAL_MANAGERS))
        check(shell, export)
        with shell.started(f"{manager.command} --port {port}"):
            assert httpx.get(f"http://127.0.0.1:{port}/v1/nodes").json() == []


@runs("howto/from-scrapy-cloud.md")
def test_the_page_about_scrapy_cloud(page: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (tmp_path / "server").mkdir()
    (tmp_path / "index").mkdir()
    folder.mkdir()
    packages = with_uv(package_index(tmp_path / "index"))
    python = program("cloud", "python")
    own = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), "PYTHONWARNINGS": "ignore",
        "SHUB_JOBQ": "http://127.0.0.1:1/", "XDG_CONFIG_HOME": str(folder),
        "HTTPS_PROXY": "http://127.0.0.1:1",  # shub asks for the latest release of its own
    }  # fmt: skip
    with scrapyd(tmp_path / "server", environment=packages) as server:
        shell = Shell(folder, {"localhost:6800": f"localhost:{server.port}"}, own)
        [settings] = re.findall(r"```yaml\n(.*?)```", text_of(page), re.DOTALL)
        [library] = re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)
        _project(folder, spider("quotes", "yield {'author': 'Mark Twain', 'tag': self.tag}"))
        (folder / "scrapinghub.yml").write_text(shell.here(settings))
        (folder / "requirements.txt").write_text("coloured==1.0\n")

        def ended() -> bool:
            return bool(server.client.get("/cloud/jobs/12345/1/1").json()["state"] == "finished")

        for typed in commands_of(page):
            if typed.command.startswith("shub items"):
                until(ended, what=server.said)
            said = check(shell, typed)
        assert json.loads(said)["tag"] == "humor"
        (folder / "library.py").write_text(shell.here(library))
        assert "Mark Twain" in check(shell, Typed("python library.py"))


_SPREAD = """
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import dnscache
from scrapy.spiders import CrawlSpider, Rule

dnscache["site0.test"] = "127.0.0.1"

class Details(scrapy.Spider):
    name = "details"

    def parse(self, response):
        yield {"url": response.url}

class Rows(scrapy.Spider):
    name = "rows"

    async def start(self):
        with open(self.file) as rows:
            for row in csv.DictReader(rows):
                yield row

class Shop(CrawlSpider):
    name = "shop"
    start_urls = ["SITE"]
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def parse_page(self, response):
        yield {"url": response.url}

    parse_start_url = parse_page
"""


@pytest.mark.parametrize("is_short", [True, pytest.param(False, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
@runs("howto/distribute.md")
def test_the_page_about_one_spider_in_many_jobs(page: str, tmp_path: Path, is_short: bool) -> None:
    """As printed, with 44 jobs. The short form has one part in place of 20, and two processes in place of four."""
    folder, server_folder = tmp_path / "project", tmp_path / "server"
    folder.mkdir()
    server_folder.mkdir()
    [port] = free_ports(1)
    swaps = {"--parts 20": "--parts 1", "--processes 4": "--processes 2"} if is_short else {}
    swaps["queue.internal:6379"] = f"localhost:{port}"
    with FakeWeb.start(WebSpec(hosts=1, pages=20, page_bytes=2000)) as web, scrapyd(server_folder) as server:
        pages = [web.url(0, number) for number in range(20)]
        (folder / "urls.csv").write_text("".join(f"{line}\n" for line in ("url", *pages)))
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n[deploy]\nproject = shop\n")
        spiders = "import csv\n" + _SPREAD.replace("SITE", pages[0])
        assert server.deploy(egg(spiders, usual=SERVES_NOTHING))["status"] == "ok"
        shell = Shell(folder, swaps, {"GOSSAMER_PLATFORM_URL": f"http://localhost:{server.port}"})

        def no_job_is_left() -> bool:
            left = server.jobs()
            return not (left["running"] or left["pending"])

        with shell.started(f"python -m gossamer.valkey --port {port}"):
            for typed in commands_of(page):
                check(shell, typed)
                until(no_job_is_left, what=server.said)
            for number in (1, 2, 3):
                done = shell.run(f"gossamer jobs items g{number}")
                assert sorted(json.loads(item)["url"] for item in done.stdout.splitlines()) == sorted(pages), done
