"""The page about the book's chapters runs as it is printed, on a site of 60 index pages instead of 1,667."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.servers.mariadb import mariadb
from tests.servers.opensearch import opensearch
from tests.servers.printed import Shell
from tests.servers.printed_pages import DOCS, check, commands_of, runs
from tests.servers.valkey import free_ports, wait_until

_PROJECT = DOCS.parent / "examples/properties"
_SERVERS = ("python -m gossamer.fakeweb", "python -m gossamer.valkey", "python -m pyftpdlib")


@runs("howto/learning-scrapy.md")
def test_the_chapters_of_the_book(page: str, tmp_path: Path) -> None:
    names = ("9312", "6800", "6801", "6379", "2121")
    ports = dict(zip(names, map(str, free_ports(len(names))), strict=True))
    nodes = [int(ports[name]) for name in ("6800", "6801")]
    first_conf, size = "printf '[scrapyd]\\nitems_dir", {"1667": "60", "=200": "=20"}
    with mariadb() as sql, opensearch() as search, ExitStack() as servers, ExitStack() as of_platform:
        swaps = {
            **size, first_conf: first_conf.replace("\\n", "\\nhttp_port = 6800\\n"), **ports,
            "localhost:9200": f"localhost:{search.port}", "@localhost/": f"@127.0.0.1:{sql.port}/",
            "mariadb -e": f"mariadb --no-defaults --socket {sql.socket} --user root -e",
        }  # fmt: skip
        shell = Shell(tmp_path, swaps, {"GOSSAMER_PLATFORM_URL": f"http://localhost:{nodes[0]}"})
        project = tmp_path / "examples/properties"
        shutil.copytree(_PROJECT, project)
        for path in (project / "scrapy.cfg", project / "todo.csv", project / "properties/site.py"):
            path.write_text(shell.here(path.read_text()))
        conf = ""
        for number, typed in enumerate(commands_of(page)):
            if typed.command.startswith(_SERVERS):
                servers.enter_context(shell.started(typed.command))
            elif typed.command.startswith("printf"):
                conf = typed.command
            elif typed.command == "gossamer scrapyd":
                of_platform.close()
                of_server = {"REDIS_PIPELINE_URL": f"redis://localhost:{ports['6379']}"} if "http_port" in conf else {}
                for node in nodes[: 2 if "http_port" in conf else 1]:  # "start two, each in an empty folder"
                    folder = tmp_path / f"server-{number}-{node}"
                    folder.mkdir()
                    server = Shell(folder, {**swaps, "6800": str(node)}, of_server)
                    server.run(conf)
                    of_platform.enter_context(server.started(typed.command, ready=f":{node}"))
            else:
                if typed.command.startswith("cat"):
                    wait_until(lambda: not any(map(_works, nodes)), "the jobs to end")
                printed = check(shell, typed)
    assert printed.split() == ["600", "1"]  # each property once


def _works(port: int) -> bool:
    status = httpx.get(f"http://localhost:{port}/daemonstatus.json").json()
    return bool(status["pending"] or status["running"])
