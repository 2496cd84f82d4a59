"""Commands of pages that also have programs run as they are printed. See test_printed_commands.py."""

import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers.printed import Done, Shell
from tests.servers.printed_pages import check, commands_of, runs, swaps_of, text_of
from tests.servers.program import require
from tests.servers.valkey import free_ports

_UNITS = Path(__file__).parents[2] / "deploy/systemd"
_QUOTES = "https://quotes.toscrape.com/"


def _programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)


@runs("tutorial/first-crawl.md")
def test_the_first_crawl(page: str, tmp_path: Path) -> None:
    """The reader stops the crawl of all three sites after some pages."""
    web, *commands = commands_of(page)
    [program] = _programs(page)
    shell = Shell(tmp_path, swaps_of([web]))
    pages, all_sites = tmp_path / "site0.test.jsonl", tmp_path / "all.jsonl"
    with shell.started(web.command) as log:
        assert shell.missing(web, Done([], 0, log.read_text(), "")) == []
        for typed in commands:
            if typed.is_interrupted:
                (tmp_path / "read.py").write_text(program)
                done = shell.run("python read.py")
                assert done.stdout.count("http://site0.test") == pages.read_text().count("\n"), done.stderr
                done = shell.run(
                    typed.command, until=lambda: all_sites.exists() and all_sites.read_text().count("\n") > 1
                )
                assert shell.missing(typed, done) == [], done.stdout + done.stderr
            else:
                check(shell, typed)


@pytest.fixture
def quotes() -> Iterator[str]:
    """A web in the place of the practice site."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = re.search(r"page/(\d+)", self.path)
            number = int(found[1]) if found else 1
            quote = '<div class="quote"><span class="text">words</span><small class="author">writer</small></div>'
            body = f'{quote * 10}<li class="next"><a href="/page/{number + 1}/">Next</a></li>'.encode()
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{web.server_port}/"
        web.shutdown()


@runs("tutorial/scheduled-job.md")
def test_a_scheduled_job(page: str, tmp_path: Path, quotes: str) -> None:
    """With a port for the server as the page names it, if another program uses its own."""
    [spider], [port] = _programs(page), free_ports(1)
    swaps = {_QUOTES: quotes, "localhost:6800": f"localhost:{port}"}
    commands = list(commands_of(page))
    starts = next(number for number, typed in enumerate(commands) if typed.command == "gossamer scrapyd")
    second = Shell(tmp_path, swaps)
    for typed in commands[:starts]:
        check(second, typed)
    with (tmp_path / "server/scrapyd.conf").open("a") as settings:
        settings.write(f"http_port = {port}\n")
    shell = Shell(tmp_path, swaps, {"GOSSAMER_PLATFORM_URL": f"http://localhost:{port}"})
    with Shell(tmp_path / "server", swaps).started(commands[starts].command, ready=f":{port}"):
        for typed in commands[starts + 1 :]:
            check(shell, typed)
            if typed.command == "cd tutorial":
                (tmp_path / "tutorial/tutorial/spiders/quotes.py").write_text(shell.here(spider))
    assert len((tmp_path / "tutorial/quotes.csv").read_text().splitlines()) == 31
    assert len((tmp_path / "tutorial/all.jsonl").read_text().splitlines()) == 90


@runs("howto/analyse.md")
def test_records_for_analysis(page: str, tmp_path: Path) -> None:
    """The crawl; test_analyse.py runs the programs that read its records."""
    web, crawl = commands_of(page)
    shell = Shell(tmp_path, swaps_of([web]))
    with shell.started(web.command):
        check(shell, crawl)
    assert (tmp_path / "estate.parquet").exists()


@runs("explanation/five-minutes.md")
def test_the_same_crawl_with_gossamer_and_scrapy(page: str, tmp_path: Path) -> None:
    web, ours, scrapys = commands_of(page)
    [spider] = [program for program in _programs(page) if "import scrapy\n" in program]
    shell, rows = Shell(tmp_path, swaps_of([web])), {}
    (tmp_path / "shop.py").write_text(shell.here(spider))
    with shell.started(web.command):
        for typed in (ours, scrapys):
            check(shell, typed)
            rows[typed] = len((tmp_path / "items.csv").read_text().splitlines())
    assert rows[ours] == rows[scrapys] == 301


@runs("howto/production.md")
def test_the_units_of_systemd(page: str, tmp_path: Path) -> None:
    """In folders of this test; systemd itself reads the units that the page copies."""
    require("systemd-analyze")
    units, etc = tmp_path / "units", tmp_path / "etc"
    units.mkdir()
    shell = Shell(
        tmp_path, {"/etc/systemd/system": str(units), "/etc/gossamer": str(etc), "deploy/systemd": str(_UNITS)}
    )
    for typed in commands_of(page):
        check(shell, typed)
    assert (etc / "environment").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in units.iterdir()} == {path.name for path in _UNITS.iterdir()}
    for path in units.iterdir():
        path.write_text(path.read_text().replace("/opt/gossamer/bin", str(Path(sys.executable).parent)))
    done = shell.run("systemd-analyze verify --man=no units/*")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
