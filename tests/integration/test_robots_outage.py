"""The frontier is away for a moment while a robots.txt is fetched: it is fetched once, and its site goes on at once."""

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.servers.crawling import FAST_FLAGS, command, records_of
from tests.servers.valkey import standalone, wait_until

SITES = ("a.test", "b.test")


class Web(ThreadingHTTPServer):
    """Sites whose robots.txt waits until the test lets it go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer_now = threading.Event()
        self.asked: Counter[str] = Counter()
        """Requests by host and path, counted before they are answered."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Web

    def do_GET(self) -> None:
        self.server.asked[f"{self.headers['Host'].partition(':')[0]}{self.path}"] += 1
        if self.path == "/robots.txt":
            self.server.answer_now.wait()
        body = b"" if self.path == "/robots.txt" else b"<title>x</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.answer_now.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_outage_while_robots_txt_is_fetched_costs_no_second_fetch(processes: str, web: Web, tmp_path: Path) -> None:
    """Its answer comes while the server is down. A worker that did not know its own claim again would wait for its end,
    half a minute, and then fetch the file again."""
    port = web.server_address[1]
    with standalone(tcp=True) as server:
        flags = ("--resolve", "*:127.0.0.1", *FAST_FLAGS, "--timeout", "30", "-v", "--frontier", server.address)
        said = tmp_path / "said"
        with said.open("w") as error:
            process = subprocess.Popen(
                command("crawl", *(f"http://{site}:{port}/" for site in SITES), *flags, "--processes", processes),
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                stderr=error,
            )
        try:
            wait_until(lambda: all(web.asked[f"{site}/robots.txt"] for site in SITES), "both requests")
            server.kill()
            web.answer_now.set()
            # Only a call that has failed for some time is told, and the workers' own calls begin after that of robots.
            wait_until(lambda: "trouble_began frontier" in said.read_text(), "the workers to notice")
            server.start()
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0, said.read_text()
    assert {record.url for record in records_of(tmp_path / "pages.jsonl")} == {
        f"http://{site}:{port}/" for site in SITES
    }
    assert web.asked == {f"{site}{path}": 1 for site in SITES for path in ("/robots.txt", "/")}
