"""The same command once more, through the real command: what failed is retried, and a corrected option takes effect."""

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.record import PageRecord
from tests.servers.crawling import command, records_of, resolving

FLAGS = (
    "--rate",
    "10000/1",
    "--domain-concurrency",
    "16",
    "--timeout",
    "2",
    "--retries",
    "0",
    "--ignore-robots",
    "--allow-private",
)


class Site:
    """A site whose answers a test may change; a path without one is 404."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.requests: Counter[str] = Counter()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.requests[self.path] += 1
                status, body = site.answers.get(self.path, (404, "nothing here"))
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def a_site(port: int = 0, **answers: str) -> Iterator[Site]:
    """A site with a page at / that links to each of the others."""
    site = Site(port)
    site.answers = {f"/{path}": (200, body) for path, body in answers.items()}
    site.answers["/"] = (200, "".join(f'<a href="/{path}">{path}</a>' for path in answers))
    thread = threading.Thread(target=site.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.server.shutdown()
        site.server.server_close()
        thread.join()


def crawl(folder: Path, *arguments: str, code: int = 0) -> tuple[dict[str, object], str]:
    """The summary of `gossamer crawl`, and what it said."""
    done = subprocess.run(
        [*command("crawl", *arguments, *FLAGS, "--json")], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout) if done.stdout else {}, done.stderr


def until(condition: Callable[[], object], what: str) -> None:
    """Poll until it holds; a minute at most."""
    last = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < last, f"in vain: {what}"
        time.sleep(0.005)


def last_records(path: Path) -> dict[str, PageRecord]:
    """The last record of each URL."""
    return {record.url: record for record in records_of(path) if isinstance(record, PageRecord)}


def test_a_server_that_was_down_is_asked_again(tmp_path: Path) -> None:
    with a_site() as site:
        url = site.url
    summary, _ = crawl(tmp_path, url, "-o", "out.jsonl", code=1)
    assert summary["failed"] == {"connect": 1}
    with a_site(site.port, a="<p>a", b="<p>b") as site:
        summary, said = crawl(tmp_path, url, "-o", "out.jsonl")
        assert "retrying 1 failed URL" in said
        assert (summary["state"], summary["pages"], summary["pages_in_all"], summary["failed"]) == (
            "finished",
            3,
            3,
            {},
        )
        assert site.requests == {"/": 1, "/a": 1, "/b": 1}
        assert all(record.success for record in last_records(tmp_path / "out.jsonl").values())
        summary, said = crawl(tmp_path, url, "-o", "out.jsonl")
        assert summary["already_finished"] is True
        assert "retrying" not in said
        assert sum(site.requests.values()) == 3


def test_only_what_failed_is_fetched_again_and_an_answer_such_as_404_counts_as_fetched(tmp_path: Path) -> None:
    with a_site(good="<p>good", broken="<p>fine by now") as site:
        site.answers["/"] = (200, '<a href="/good">1</a><a href="/broken">2</a><a href="/gone">3</a>')
        site.answers["/broken"] = (500, "")
        summary, _ = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert (summary["pages"], summary["failed"]) == (2, {"http_500": 1, "http_404": 1})
        site.answers["/broken"] = (200, '<a href="/new">later</a>')
        site.answers["/new"] = (200, "<p>new")
        summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert "retrying 1 failed URL" in said
        assert (summary["pages"], summary["pages_in_all"], summary["failed"]) == (2, 4, {"http_404": 1})
        assert site.requests == {"/": 1, "/good": 1, "/gone": 1, "/broken": 2, "/new": 1}


def test_what_fails_once_more_is_retried_once_more(tmp_path: Path) -> None:
    with a_site(bad="") as site:
        site.answers["/bad"] = (503, "")
        for times in (1, 2, 3):
            summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl")
            assert (summary["pages_in_all"], summary["failed"], site.requests["/bad"]) == (1, {"http_503": 1}, times)
            assert ("retrying 1 failed URL" in said) is (times > 1)


def test_a_corrected_option_takes_effect_for_a_certificate(tmp_path: Path) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=5), tls=True) as web:
        flags = [*web.seeds(), *resolving(web.resolve_overrides()), "-o", "out.jsonl"]
        summary, _ = crawl(tmp_path, *flags, code=1)
        assert summary["failed"] == {"tls": 1}
        summary, said = crawl(tmp_path, *flags, "--insecure")
        assert "retrying 1 failed URL" in said
        assert (summary["pages"], summary["failed"], summary["crawl_id"]) == (5, {}, summary["crawl_id"])


def test_a_corrected_address_takes_effect(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        url = f"http://shop.example:{site.port}/"
        summary, _ = crawl(tmp_path, url, "--resolve", "shop.example:127.0.0.2", "-o", "out.jsonl", code=1)
        assert summary["failed"] == {"connect": 1}
        summary, said = crawl(tmp_path, url, "--resolve", "shop.example:127.0.0.1", "-o", "out.jsonl")
        assert "retrying 1 failed URL" in said
        assert (summary["pages"], summary["failed"]) == (2, {})


def test_a_corrected_spider_reads_the_pages_on_which_it_failed(tmp_path: Path) -> None:
    spider = tmp_path / "shop.py"
    text = "from gossamer import Spider\n\n\nclass Shop(Spider):\n    def parse(self, page):\n        "
    spider.write_text(text + "yield {'title': page.css('h1::text').get().stripp()}\n        yield page.follow('/b')\n")
    with a_site(a="<h1>a</h1>", b="<h1>b</h1>") as site:
        arguments = (f"{site.url}/a", "--spider", "shop.py", "-o", "out.jsonl")
        summary, _ = crawl(tmp_path, *arguments, code=1)
        assert summary["failed"] == {"spider_error": 1}
        spider.write_text(
            text + "yield {'title': page.css('h1::text').get().strip()}\n        yield page.follow('/b')\n"
        )
        summary, said = crawl(tmp_path, *arguments)
        assert "retrying 1 failed URL" in said
        assert (summary["pages"], summary["items"], summary["failed"]) == (2, 2, {})
        assert site.requests == {"/a": 2, "/b": 1}


def test_a_killed_retry_loses_nothing_and_fetches_nothing_twice_but_what_was_in_flight(tmp_path: Path) -> None:
    """SIGKILL while the failed pages are fetched again; then the same command ends the crawl."""
    names = [f"p{number}" for number in range(60)]
    with a_site(**dict.fromkeys(names, "<p>x")) as site:
        for name in names:
            site.answers[f"/{name}"] = (503, "")
        summary, _ = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert summary["failed"] == {"http_503": 60}
        for name in names:
            site.answers[f"/{name}"] = (200, "<p>fine")
        slow = [*command("crawl", site.url, "-o", "out.jsonl", *FLAGS), "--rate", "40/1", "--domain-concurrency", "2"]
        process = subprocess.Popen(slow, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: sum(site.requests.values()) > 61 + 15, "some retries")
        process.kill()
        process.wait()
        summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert "Resuming" in said
        assert (summary["state"], summary["pages_in_all"], summary["failed"]) == ("finished", 61, {})
        records = last_records(tmp_path / "out.jsonl")
        assert len(records) == 61
        assert all(record.success for record in records.values())
        extra = {path: count for path, count in site.requests.items() if count > (1 if path == "/" else 2)}
        assert len(extra) <= 2 + 64, extra  # in flight, or fetched and not committed yet
        assert all(count == 3 for count in extra.values())


def test_a_resumed_crawl_retries_what_failed_before(tmp_path: Path) -> None:
    with a_site(**{f"p{number}": "<p>x" for number in range(40)}) as site:
        for path in list(site.answers)[:5]:
            site.answers[path] = (502, "")
        slow = [*command("crawl", site.url, "-o", "out.jsonl", *FLAGS), "--rate", "20/1", "--domain-concurrency", "1"]
        process = subprocess.Popen(slow, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: sum(site.requests.values()) > 15, "some pages")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        for path in site.answers:
            site.answers[path] = (200, site.answers[path][1] or "<p>fine")
        summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert "Resuming" in said
        assert "retrying 5 failed URLs" in said
        assert (summary["pages_in_all"], summary["failed"]) == (41, {})
        assert max(site.requests.values()) == 2
