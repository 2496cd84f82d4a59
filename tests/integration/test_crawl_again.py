"""The same command once more, through the real command: what failed is retried, and a corrected option takes effect."""

import json
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.errors import AlreadyFinished, NothingFetched
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.model.record import PageRecord
from tests.servers.crawling import command, records_of, resolving
from tests.servers.program import until
from tests.servers.valkey import standalone

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
                if 300 <= status < 400:
                    self.send_header("Location", body)
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


@contextmanager
def redirecting(site: Site, target: str) -> Iterator[None]:
    """The first page leads to another URL."""
    before = site.answers["/"]
    site.answers["/"] = (302, target)
    yield
    site.answers["/"] = before


def crawl(folder: Path, *arguments: str, code: int = 0) -> tuple[dict[str, object], str]:
    """The summary of `gossamer crawl`, and what it said."""
    done = subprocess.run(
        [*command("crawl", *arguments, *FLAGS, "--json")], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout) if done.stdout else {}, done.stderr


def last_records(path: Path) -> dict[str, PageRecord]:
    """The last record of each URL."""
    return {record.url: record for record in records_of(path) if isinstance(record, PageRecord)}


def test_a_server_that_was_down_is_asked_again(tmp_path: Path) -> None:
    with a_site() as site:
        url = site.url
    summary, _ = crawl(tmp_path, url, "-o", "out.jsonl", code=1)
    assert summary["failed"] == {"connect": 1}
    for _ in range(2):
        assert crawl(tmp_path, url, "-o", "out.jsonl", code=1)[0]["links_dropped"] == {}  # the URL itself is no link
    with a_site(site.port, a="<p>a", b="<p>b") as site:
        summary, said = crawl(tmp_path, url, "-o", "out.jsonl")
        assert "retrying 1 failed URL" in said
        assert summary["links_dropped"] == {}
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


def test_the_summary_says_how_what_failed_is_retried(tmp_path: Path) -> None:
    """Also of a page that was answered, and of one whose spider has to be corrected first."""
    (tmp_path / "shop.py").write_text(
        "from gossamer import Spider\n\n\nclass Shop(Spider):\n    def parse(self, page):\n        1 / 0\n"
    )
    with a_site(a="<p>a") as site:
        site.answers["/"] = (500, "")
        said = printed(tmp_path, site.url)
        assert "\n  The same command retries the 1 failed URL.\n" in said
        site.answers["/"] = (200, "".join(f"<a href='/{name}'>{name}</a>" for name in ("busy", "gone", "old")))
        site.answers["/busy"], site.answers["/gone"] = (500, ""), (404, "")
        site.answers["/old"] = (200, "<title>Page not found</title><h1>Page not found</h1>")
        said = printed(tmp_path, site.url)
        assert (
            "\n  The same command retries 1 of the 3 failed URLs; the others have got a final answer "
            "(http_404, refused_not_found).\n"
        ) in said
        said = printed(tmp_path, f"{site.url}/a", "--spider", "shop.py", "-o", "a.jsonl")
        assert "\n  Correct shop.py; then the same command retries the 1 failed URL.\n" in said
        assert "(The field exception of its record has the error.)" in said


def printed(folder: Path, *arguments: str) -> str:
    """The summary of `gossamer crawl` for a person."""
    return subprocess.run(
        command("crawl", *arguments, *FLAGS), cwd=folder, capture_output=True, text=True, timeout=60
    ).stdout


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


# --- outputs ----------------------------------------------------------------------------------------------------------


def bodies(path: Path) -> list[str]:
    return sorted(record.body for record in records_of(path) if isinstance(record, PageRecord))


def test_the_default_output_has_the_name_of_the_only_host(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        summary, _ = crawl(tmp_path, site.url)
        assert summary["outputs"] == ["127.0.0.1.jsonl"]
        assert len(records_of(tmp_path / "127.0.0.1.jsonl")) == 2
        summary, _ = crawl(tmp_path, site.url, f"{site.url}/a", "--crawl-id", "two")
        assert summary["outputs"] == ["pages.jsonl"]
        summary, _ = crawl(tmp_path, f"http://shop.example:{site.port}/a", "--resolve", "shop.example:127.0.0.1")
        assert summary["outputs"] == ["shop.example.jsonl"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.json", "out.csv", "out.sqlite", "out.parquet"])
def test_fresh_begins_with_an_empty_output(tmp_path: Path, name: str) -> None:
    with a_site(a="old") as site:
        flags = (f"{site.url}/a", "-o", name, "-o", "copy.jsonl")
        crawl(tmp_path, *flags)
        site.answers["/a"] = (200, "new")
        crawl(tmp_path, *flags, "--fresh")
        assert bodies(tmp_path / "copy.jsonl") == ["new"]
        subprocess.run([*command("export", name, "all.jsonl", "--pages")], cwd=tmp_path, check=True)
        assert len(records_of(tmp_path / "all.jsonl")) == 1
        site.answers["/a"] = (200, "newer")
        crawl(tmp_path, *flags, "--fresh", "--append")
        assert bodies(tmp_path / "copy.jsonl") == ["new", "newer"]


def test_the_records_of_another_crawl_are_refused_unless_appended_to(tmp_path: Path) -> None:
    with a_site(a="<p>a", b="<p>b") as site:
        first, _ = crawl(tmp_path, f"{site.url}/a", "-o", "out.jsonl")
        before = (tmp_path / "out.jsonl").read_bytes()
        for more in ((), ("--fresh",)):
            _, said = crawl(tmp_path, f"{site.url}/b", "-o", "out.jsonl", *more, code=2)
            assert f"out.jsonl holds the records of another crawl, {first['crawl_id']}." in said
            assert "--append" in said
        assert (tmp_path / "out.jsonl").read_bytes() == before
        assert site.requests == {"/a": 1}
        crawl(tmp_path, f"{site.url}/b", "-o", "out.jsonl", "--append")
        assert len(records_of(tmp_path / "out.jsonl")) == 2
        # It was let in: it may go on there, but not empty the file. The first one may not empty it, either.
        site.answers["/b"] = (503, "")
        for url in (f"{site.url}/a", f"{site.url}/b"):
            _, said = crawl(tmp_path, url, "-o", "out.jsonl", "--fresh", code=2)
            assert "holds the records of another crawl" in said
        assert len(records_of(tmp_path / "out.jsonl")) == 2


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ""])
def test_a_table_that_names_no_crawl_is_only_written_to_by_the_crawl_that_made_it(tmp_path: Path, text: str) -> None:
    table = tmp_path / "items.csv"
    table.write_text(text)
    with a_site(a="<h1>a</h1>") as site:
        flags = (f"{site.url}/a", "--field", "a=h1", "-o", "items.csv")
        if text:
            table.write_text("page_url,a\nhttp://elsewhere.example/,x\n")
            _, said = crawl(tmp_path, *flags, code=2)
            assert "it does not say which crawl wrote it" in said
            return
        crawl(tmp_path, *flags)
        crawl(tmp_path, *flags, "--fresh")
        assert table.read_text() == f"page_url,a\n{site.url}/a,a\n"


@pytest.mark.parametrize("name", ["items.csv", "items.jsonl"])
def test_fresh_replaces_what_a_crawl_of_the_same_urls_wrote(tmp_path: Path, name: str) -> None:
    with a_site(a="<h1>a</h1><h2>b</h2>", b="<h1>b</h1>") as site:
        first, _ = crawl(tmp_path, f"{site.url}/a", "--field", "a=h2", "-o", name)
        corrected = (f"{site.url}/a", "--field", "a=h1", "-o", name)
        _, said = crawl(tmp_path, *corrected, code=2)
        assert (
            f"{name} holds the records of another crawl, {first['crawl_id']}. Other options, such as --max-pages, "
            in said
        )
        assert "make another crawl, which begins anew. Replace it with --fresh, name another output" in said
        second, _ = crawl(tmp_path, *corrected, "--fresh")
        assert second["crawl_id"] != first["crawl_id"]
        text = (tmp_path / name).read_text()
        assert first["crawl_id"] not in text
        assert name != "items.csv" or text == f"page_url,a\n{site.url}/a,a\n"
        if name == "items.csv":  # with other columns, too
            more = (f"{site.url}/a", "--field", "a=h1", "--field", "b=h2", "-o", name)
            _, said = crawl(tmp_path, *more, code=2)
            assert "has other columns" in said
            assert "--fresh" in said
            crawl(tmp_path, *more, "--fresh")
            assert (tmp_path / name).read_text() == f"page_url,a,b\n{site.url}/a,a,b\n"
        # A crawl of other URLs may not replace it, and its refusal does not advise to.
        _, said = crawl(tmp_path, f"{site.url}/b", "--field", "a=h1", "-o", name, "--fresh", code=2)
        assert "holds the records of another crawl" in said
        assert "Replace it" not in said


def test_fresh_does_not_replace_a_foreign_table_that_a_crawl_added_to(tmp_path: Path) -> None:
    table = tmp_path / "items.csv"
    table.write_text("page_url,a\nhttp://elsewhere.example/,x\n")
    with a_site(a="<h1>a</h1><h2>b</h2>") as site:
        crawl(tmp_path, f"{site.url}/a", "--field", "a=h2", "-o", "items.csv", "--append")
        before = table.read_text()
        _, said = crawl(tmp_path, f"{site.url}/a", "--field", "a=h1", "-o", "items.csv", "--fresh", code=2)
        assert "holds the records of another crawl" in said
        assert table.read_text() == before


def test_a_finished_crawl_whose_output_is_gone_says_so(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        crawl(tmp_path, f"{site.url}/a", "-o", "out.jsonl")
        (tmp_path / "out.jsonl").unlink()
        args = [*command("crawl", f"{site.url}/a", "-o", "out.jsonl", *FLAGS)]
        done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1
        assert "  out.jsonl is gone; crawl again with --fresh.\n" in done.stdout
        assert subprocess.run([*args, "--fresh"], cwd=tmp_path, capture_output=True).returncode == 0
        assert len(records_of(tmp_path / "out.jsonl")) == 1


def test_a_corrected_option_that_makes_another_crawl_may_use_the_file_of_the_failed_one(tmp_path: Path) -> None:
    """--allow-domain is part of a crawl's name. The first try has left nothing but the reason why it failed."""
    with a_site(a="<p>a") as site:
        resolve = ("--resolve", "*.example:127.0.0.1")
        home = f"http://shop.example:{site.port}/"
        with redirecting(site, f"http://www.other.example:{site.port}/a"):
            first, _ = crawl(tmp_path, home, *resolve, code=1)
            assert first["dropped"] == {"offsite": 1}
            second, _ = crawl(tmp_path, home, *resolve, "--allow-domain", "other.example")
            assert second["crawl_id"] != first["crawl_id"]
            assert second["pages"] == 1
            summary, _ = crawl(tmp_path, home, *resolve, "--allow-domain", "other.example")
            assert summary["already_finished"] is True
        assert {record.crawlid for record in records_of(tmp_path / "shop.example.jsonl")} == {second["crawl_id"]}


def test_a_crawl_that_the_frontier_has_forgotten_adds_to_its_own_file_and_says_so(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        crawl(tmp_path, f"{site.url}/a", "-o", "out.jsonl")
        shutil.rmtree(tmp_path / ".gossamer")
        _, said = crawl(tmp_path, f"{site.url}/a", "-o", "out.jsonl")
        assert "out.jsonl has records of an earlier start of this crawl" in said
        assert len(records_of(tmp_path / "out.jsonl")) == 2
        shutil.rmtree(tmp_path / ".gossamer")
        crawl(tmp_path, f"{site.url}/a", "-o", "out.jsonl", "--fresh")
        assert len(records_of(tmp_path / "out.jsonl")) == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_finished_crawl_past_its_retention_is_crawled_again(tmp_path: Path, *, shared: bool) -> None:
    """The server of the private frontier is down between the two commands; that of a shared one has no worker."""
    (tmp_path / "gossamer.toml").write_text("retention = 2\n")
    with ExitStack() as stack:
        site = stack.enter_context(a_site(a="<p>a"))
        flags = [site.url, "-o", "out.jsonl"]
        if shared:
            flags += ["--frontier", stack.enter_context(standalone()).address]
        crawl(tmp_path, *flags)
        over = time.time() + 2
        until(lambda: time.time() > over, "the end of the retention")
        summary, said = crawl(tmp_path, *flags)
        assert (summary["already_finished"], summary["pages"], summary["pages_in_all"]) == (False, 2, 2)
        assert "out.jsonl has records of an earlier start of this crawl; the new ones are added." in said
        assert site.requests == {"/": 2, "/a": 2}
        assert len(records_of(tmp_path / "out.jsonl")) == 4


def test_what_failed_in_a_crawl_past_its_retention_is_no_longer_kept(tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text("retention = 2\n")
    with a_site(a="<p>a", b="<p>b") as site:
        site.answers["/b"] = (503, "")
        crawl(tmp_path, site.url, "-o", "out.jsonl")
        over = time.time() + 2
        until(lambda: time.time() > over, "the end of the retention")
        summary, _ = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert site.requests == {"/": 2, "/a": 2, "/b": 2}
        assert (summary["pages_in_all"], summary["failed"]) == (2, {"http_503": 1})


def test_the_report_counts_the_last_record_of_each_url(tmp_path: Path) -> None:
    """Also where no output has the pages: they are kept for it until nothing is left to retry."""
    with a_site(a="<p>a", b="<p>b") as site:
        site.answers["/b"] = (500, "")
        flags = (site.url, "-o", "all.csv", "--pages", "--report", "report.html")
        crawl(tmp_path, *flags)
        assert "500" in (tmp_path / "report.html").read_text()
        site.answers["/b"] = (200, "<p>b")
        summary, _ = crawl(tmp_path, *flags)
        assert (summary["pages"], summary["pages_in_all"]) == (1, 3)
        page = (tmp_path / "report.html").read_text()
        assert "500 Internal" not in page
        assert f"{site.url}/a" in page
        assert list((tmp_path / ".gossamer" / "report").iterdir()) == []


# --- other ways to start it -------------------------------------------------------------------------------------------


def test_a_program_retries_what_failed_in_its_crawl(tmp_path: Path) -> None:
    with a_site() as site:
        url = site.url
    options: Any = {"data_dir": tmp_path / "data", "allow_private": True, "ignore_robots": True, "retries": 0}
    with pytest.raises(NothingFetched):
        list(gossamer.crawl(url, **options))
    with a_site(site.port, a="<p>a") as site:
        assert [page.url for page in gossamer.crawl(url, rate=1000, **options)] == [f"{url}/", f"{url}/a"]
        with pytest.raises(AlreadyFinished):
            list(gossamer.crawl(url, rate=1000, **options))


def test_two_commands_on_a_shared_frontier_retry_each_url_once(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(60)]
    with standalone() as server, a_site(**dict.fromkeys(names, "<p>x")) as site:
        for name in names:
            site.answers[f"/{name}"] = (503, "")
        flags = (site.url, "--frontier", server.address)
        crawl(tmp_path, *flags)
        for name in names:
            site.answers[f"/{name}"] = (200, "<p>fine")
        folders = [tmp_path / "one", tmp_path / "two"]
        for folder in folders:
            folder.mkdir()
        line = [*command("crawl", *flags, *FLAGS), "--rate", "100/1"]
        running = [subprocess.Popen(line, cwd=folder, stderr=subprocess.DEVNULL) for folder in folders]
        assert [process.wait(60) for process in running] == [0, 0]
        summary, _ = crawl(tmp_path, *flags)
        assert (summary["already_finished"], summary["pages_in_all"], summary["failed"]) == (True, 61, {})
        written = [record.url for folder in folders for record in records_of(folder / "127.0.0.1.jsonl")]
        assert sorted(written) == sorted(f"{site.url}/{name}" for name in names)
        assert {site.requests[f"/{name}"] for name in names} == {2}


def test_a_failed_target_of_a_redirect_is_retried_with_its_redirects(tmp_path: Path) -> None:
    with a_site() as site:
        site.answers = {"/": (302, "/target"), "/target": (503, "")}
        crawl(tmp_path, site.url, "-o", "out.jsonl", code=1)
        site.answers["/target"] = (200, "<p>here")
        summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl")
        assert "retrying 1 failed URL" in said
        assert (summary["pages_in_all"], summary["failed"], summary["dropped"]) == (1, {}, {})
        record = last_records(tmp_path / "out.jsonl")[f"{site.url}/"]
        assert (record.response_url, [hop.status for hop in record.redirects]) == (f"{site.url}/target", [302])
        assert site.requests == {"/": 1, "/target": 2}


def test_a_named_crawl_goes_on_under_the_options_of_the_latest_command(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        home = f"http://shop.example:{site.port}/"
        flags = (home, "--crawl-id", "shop", "--data-dir", "kept", "--resolve", "*.example:127.0.0.1")
        site.answers["/"] = (503, "")
        crawl(tmp_path, *flags, code=1)
        site.answers["/"] = (200, f'<a href="http://www.other.example:{site.port}/a">a</a>')
        summary, said = crawl(tmp_path, *flags, "--allow-domain", "other.example", "--header", "X-A: b")
        assert "retrying 1 failed URL" in said
        assert (summary["pages"], summary["outputs"]) == (2, ["shop.example.jsonl"])
        headers = last_records(tmp_path / "shop.example.jsonl")[home].request_headers
        assert headers["X-A"] == ["b"]


async def test_a_fresh_start_that_was_killed_before_its_first_request_is_repeated(tmp_path: Path) -> None:
    with standalone() as server, a_site(a="<p>a") as site:
        flags = (f"{site.url}/a", "--frontier", server.address, "--crawl-id", "one", "-o", "out.jsonl")
        crawl(tmp_path, *flags)
        frontier = await ValkeyFrontier.connect(server.address)
        run = await frontier.latest_run(CrawlId("cli", "one"))
        assert run is not None
        await frontier.open_crawl(run.crawl, fresh=True)  # as far as the killed command came
        await frontier.close()
        summary, _ = crawl(tmp_path, *flags, "--fresh")
        assert (summary["state"], summary["pages"]) == ("finished", 1)
        assert len(records_of(tmp_path / "out.jsonl")) == 1
        assert site.requests == {"/a": 2}


def test_an_output_that_is_named_for_a_retry_gets_all_pages(tmp_path: Path) -> None:
    with a_site(a="<p>a", b="<p>b") as site:
        site.answers["/b"] = (500, "")
        crawl(tmp_path, site.url, "-o", "first.jsonl")
        site.answers["/b"] = (200, "<p>b")
        crawl(tmp_path, site.url, "-o", "second.csv", "--pages", "-o", "second.jsonl")
        pages = last_records(tmp_path / "second.jsonl")
        assert sorted(pages) == [f"{site.url}/", f"{site.url}/a", f"{site.url}/b"]
        assert all(page.success for page in pages.values())
        assert (tmp_path / "second.csv").read_text().count("http_500") == 1
        assert site.requests == {"/": 1, "/a": 1, "/b": 2}
