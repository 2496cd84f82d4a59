"""The commands of the tutorial about a scheduled job run as they stand, and print what the page shows."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers.scrapyd import scrapyd

PAGE = Path(__file__).parents[3] / "docs/tutorial/scheduled-job.md"
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SITE = "https://quotes.toscrape.com/"


@pytest.fixture
def site() -> Iterator[str]:
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


def _alike(line: str) -> str:
    """The line with every number as one sign, because times, ids and ports differ."""
    return re.sub(r"\d+", "#", " ".join(line.split()))


def test_the_server_of_the_page_keeps_items() -> None:
    [line] = [line for line in PAGE.read_text().splitlines() if line.endswith("> scrapyd.conf")]
    written = subprocess.run(["bash", "-c", line.partition(">")[0]], capture_output=True, text=True, check=True).stdout
    assert written == "[scrapyd]\nitems_dir = items\n"


def test_the_commands_print_what_the_page_shows(tmp_path: Path, site: str) -> None:
    blocks = _BLOCK.findall(PAGE.read_text())
    [spider] = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "server").mkdir()
    with scrapyd(tmp_path / "server") as server:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GOSSAMER_PLATFORM_URL": f"http://localhost:{server.port}",
            "COLUMNS": "80",
            "TZ": "UTC",
        }
        folder = tmp_path
        for block in (text for kind, text in blocks if kind == "console"):
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = step.partition("\n")
                done = subprocess.run(
                    ["bash", "-c", command.replace(_SITE, site)],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=90,
                )
                assert done.returncode == 0, (command, done.stdout, done.stderr)
                printed = {_alike(line) for line in (done.stdout + done.stderr).splitlines()}
                wanted = {_alike(line) for line in shown.splitlines() if line.strip() != "…"}
                assert wanted <= printed, (command, done.stdout, done.stderr)
                if command.startswith("cd "):
                    folder = folder / command.removeprefix("cd ")
                    (folder / "tutorial/spiders/quotes.py").write_text(spider.replace(_SITE, site))
    assert len((folder / "quotes.csv").read_text().splitlines()) == 31
    assert len((folder / "all.jsonl").read_text().splitlines()) == 90
