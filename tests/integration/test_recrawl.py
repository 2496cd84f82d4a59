"""A crawl that is kept up to date, through the real command: conditional requests, changes, kills."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

import gossamer
from gossamer.crawling.visits import Visits
from gossamer.errors import BadInput
from gossamer.fresh.database import index_versions
from gossamer.fresh.index import MOST_FEEDS, PageIndex
from gossamer.fresh.rounds import Pace
from gossamer.model.record import PageRecord
from tests.servers.crawling import command, records_of
from tests.servers.faked_clock import FakedClock
from tests.servers.postgresql import postgresql
from tests.servers.program import missing, until
from tests.servers.valkey import standalone

FLAGS = (
    "--rate",
    "10000/1",
    "--domain-concurrency",
    "8",
    "--ignore-robots",
    "--allow-private",
    "-q",
    "-o",
    "out.jsonl",
)

EVERY_TWO_SECONDS = ("--recrawl-min", "2s", "--recrawl-max", "2s")


class Served:
    """A folder that is served with validators, and a journal of the answers."""

    def __init__(self, folder: Path) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.delay = 0.0
        self.without_validators: set[str] = set()
        self.never_modified: set[str] = set()
        """Paths that are always answered with 304, whatever was asked."""
        served = self

        class Handler(SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if served.delay:
                    time.sleep(served.delay)
                if self.path in served.never_modified:
                    self.send_response(304)
                    return self.end_headers()
                return super().do_GET()

            def send_response(self, code: int, message: str | None = None) -> None:
                served.answers[self.path, int(code)] += 1
                super().send_response(code, message)

            def send_header(self, keyword: str, value: str) -> None:
                if keyword != "Last-Modified" or self.path not in served.without_validators:
                    super().send_header(keyword, value)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.folder = folder
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that are killed

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def statuses(self) -> Counter[int]:
        """Number of answers by status; they are forgotten."""
        found: Counter[int] = Counter()
        for (_, status), count in self.answers.items():
            found[status] += count
        self.answers.clear()
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "site") as served:
        yield served


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    folder.mkdir(exist_ok=True)
    served = Served(folder)
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.server.shutdown()
        served.server.server_close()
        thread.join()


_written = 1_700_000_000


def write(site: Served, name: str, text: str = "", links: tuple[str, ...] = ()) -> None:
    """Write a page. Each has a time of its own: validators have only whole seconds."""
    global _written
    _written += 10
    path = site.folder / name
    anchors = "".join(f'<a href="/{link}">{link}</a>' for link in links)
    path.write_text(f"<html><head><title>{name}</title></head><body><main><p>{text or name}</p>{anchors}</main></body>")
    os.utime(path, (_written, _written))


def write_text(site: Served, name: str, text: str) -> None:
    """Write any file, with a time of its own."""
    write(site, name)
    path = site.folder / name
    path.write_text(text)
    os.utime(path, (_written, _written))


def recrawl(folder: Path, site: Served, *arguments: str, code: int = 0, obeys: bool = False) -> None:
    """Visit all pages, due or not."""
    robots = () if obeys else ("--ignore-robots",)
    done = subprocess.run(
        command("crawl", f"{site.url}/", "--recrawl-once", "--recrawl-all", *robots, *FLAGS, *arguments),
        cwd=folder, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"


def changes(folder: Path, site: Served, since: int = 0) -> list[dict[str, Any]]:
    done = subprocess.run(
        command("crawls", "changes", "--json", "--since", str(since)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [change | {"url": change["url"].removeprefix(f"{site.url}/")} for change in found]


def told(found: list[dict[str, Any]]) -> dict[str, str]:
    """The change of each URL, of which there may be only one."""
    assert len({change["url"] for change in found}) == len(found), found
    return {change["url"]: change["change"] for change in found}


def test_the_second_round_asks_only_for_what_has_changed(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html", "b.html", "c.html"))
    for name in ("a.html", "b.html", "c.html"):
        write(site, name, links=("",))
    recrawl(tmp_path, site)
    assert site.statuses() == {200: 4}
    first = changes(tmp_path, site)
    assert told(first) == dict.fromkeys(("", "a.html", "b.html", "c.html"), "new")

    write(site, "b.html", "other", links=("d.html",))
    write(site, "d.html")
    (site.folder / "c.html").unlink()
    recrawl(tmp_path, site)
    assert site.statuses() == {304: 2, 200: 2, 404: 2}  # a missing page is asked for twice before it counts as gone
    second = changes(tmp_path, site, first[-1]["cursor"])
    assert [one["since"] for one in second if one["url"] == "b.html"] == [
        int(one["at"]) for one in first if one["url"] == "b.html"
    ]
    assert 0 <= time.time() - second[0]["at"] < 600
    assert told(second) == {"b.html": "changed", "c.html": "gone", "d.html": "new"}
    assert next(one["what"] for one in second if one["url"] == "b.html") == ["bytes", "text", "links"]

    write(site, "c.html", "again")
    recrawl(tmp_path, site)
    assert told(changes(tmp_path, site, second[-1]["cursor"])) == {"c.html": "back"}
    records = [one for one in records_of(tmp_path / "out.jsonl") if isinstance(one, PageRecord)]
    small = [record for record in records if record.status_code == 304]
    assert len(small) == 2 + 4
    assert all(record.success and not record.body for record in small)
    assert len({record.request_id for record in records}) == len(records)


def test_an_archive_refers_to_the_response_that_a_page_confirms(tmp_path: Path, site: Served) -> None:
    write(site, "index.html")
    for _ in range(2):
        recrawl(tmp_path, site, "-o", "pages.warc.gz")
    with (tmp_path / "pages.warc.gz").open("rb") as file:
        found = [(one.rec_type, one.rec_headers) for one in ArchiveIterator(file)]
    [response] = [headers for kind, headers in found if kind == "response"]
    [revisit] = [headers for kind, headers in found if kind == "revisit"]
    assert revisit["WARC-Refers-To-Target-URI"] == response["WARC-Target-URI"]
    assert revisit["WARC-Refers-To-Date"][:19] == response["WARC-Date"][:19]


def test_a_page_that_is_not_modified_without_having_been_fetched_has_failed(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")
    site.never_modified.add("/a.html")
    recrawl(tmp_path, site)
    [failed] = [one for one in records_of(tmp_path / "out.jsonl") if one.url.endswith("/a.html")]
    assert isinstance(failed, PageRecord)
    assert (failed.success, failed.reason, failed.status_code) == (False, "http_304", 304)
    assert list(told(changes(tmp_path, site)).values()) == ["new"]
    site.never_modified.clear()
    recrawl(tmp_path, site)
    assert list(told(changes(tmp_path, site)).values()) == ["new", "new"]


def test_equal_bytes_without_validators_are_no_change(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")
    site.without_validators = {"/", "/a.html"}
    recrawl(tmp_path, site)
    recrawl(tmp_path, site)
    assert site.statuses() == {200: 4}
    assert set(told(changes(tmp_path, site)).values()) == {"new"}


def test_another_template_is_a_change_of_bytes_only(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", "text")
    recrawl(tmp_path, site)
    write(site, "index.html", "text")
    path = site.folder / "index.html"
    path.write_text(path.read_text().replace("<body>", "<body><header>A new menu</header>"))
    recrawl(tmp_path, site)
    assert [change["what"] for change in changes(tmp_path, site)] == [[], ["bytes"]]


def test_selectors_say_which_text_counts(tmp_path: Path, site: Served) -> None:
    def write_page(text: str, teaser: str, price: str) -> None:
        write_text(
            site, "index.html", f"<main><p>{text}</p><p class=teaser>{teaser}</p></main><b class=price>{price}</b>"
        )

    rule = ("--recrawl-rule", "/ level=text keep=main drop=.teaser")
    write_page("one", "a", "1")
    recrawl(tmp_path, site, *rule)
    write_page("one", "b", "2")
    recrawl(tmp_path, site, *rule)
    write_page("two", "b", "2")
    recrawl(tmp_path, site, *rule)
    assert [change["what"] for change in changes(tmp_path, site)] == [[], ["bytes", "text"]]


def test_versions_are_kept_and_compared(tmp_path: Path, site: Served) -> None:
    for text in ("One sentence. A second.", "One sentence. Another second.", "All new."):
        write(site, "index.html", text)
        recrawl(tmp_path, site, "--versions", "2")

    def lines(*arguments: str) -> list[str]:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=110
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    found = [json.loads(line) for line in lines("crawls", "changes", "--json", "--diff")]
    assert [change["diff"].splitlines()[2:] for change in found] == [
        [],
        [],  # the first version is not kept any more
        ["@@ -1,2 +1 @@", "-One sentence.", "-Another second.", "+All new."],
    ]
    assert any("+All new." in line for line in lines("crawls", "changes", "--diff"))
    kept = [json.loads(line) for line in lines("crawls", "history", f"{site.url}/", "--json")]
    assert [version["hash"] for version in kept] == [found[2]["new_hash"], found[1]["new_hash"]]
    assert "Another second." in "".join(lines("crawls", "history", f"{site.url}/", "--show", kept[1]["hash"]))


def test_a_difference_of_versions_that_are_not_kept_is_said_to_be_missing(tmp_path: Path, site: Served) -> None:
    for text in ("One sentence.", "Another one."):
        write(site, "index.html", text)
        recrawl(tmp_path, site)
    done = subprocess.run(
        command("crawls", "changes", "--diff"), cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert "A crawl with --versions N keeps the last N." in done.stderr


def test_a_cursor_that_does_not_exist_is_refused(tmp_path: Path, site: Served) -> None:
    write(site, "index.html")
    recrawl(tmp_path, site)
    done = subprocess.run(
        command("crawls", "changes", "--since", "99"), cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 2
    assert "the cursor 99 is not one of this crawl: its last one is 1" in done.stderr


def test_a_folder_without_such_a_crawl_says_how_to_start_one(tmp_path: Path) -> None:
    for name in ("changes", "fresh"):
        done = subprocess.run(command("crawls", name), cwd=tmp_path, capture_output=True, text=True, timeout=110)
        assert done.returncode == 2
        assert "--recrawl-once" in done.stderr


def test_a_lost_frontier_loses_neither_pages_nor_their_links(tmp_path: Path, site: Served) -> None:
    """The first round is killed in the middle, and the frontier's data with it. Pages that are in the index by then
    must be read again for their links, although their servers would answer that they are as they were."""
    names = [f"p{number}.html" for number in range(40)]
    write(site, "index.html", links=("p0.html",))
    for name, following in zip(names, [*names[1:], "p0.html"], strict=True):
        write(site, name, links=(following,))
    site.delay = 0.05
    killed_after(tmp_path, site, lambda: len(site.answers) >= 12)
    shutil.rmtree(tmp_path / ".gossamer" / "valkey", ignore_errors=True)
    site.delay = 0.0
    for path in (tmp_path / ".gossamer").iterdir():  # all but the page index
        if path.name not in ("fresh", "crawls"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    recrawl(tmp_path, site)
    assert told(changes(tmp_path, site)) == dict.fromkeys(["", *names], "new")


def killed_after(folder: Path, site: Served, is_time: Any) -> bool:
    """Start a round, and kill it when it is time. Returns False if it has ended before."""
    process = subprocess.Popen(
        command("crawl", f"{site.url}/", "--recrawl-once", "--recrawl-all", "--ignore-robots", *FLAGS),
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while process.poll() is None:
            if is_time():
                process.send_signal(signal.SIGKILL)
                process.wait()
                return True
            time.sleep(0.005)
        assert process.returncode == 0, process.stderr.read() if process.stderr else ""
        return False
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def test_visits_that_have_not_begun_when_the_window_closes_wait_for_the_next_one(tmp_path: Path, site: Served) -> None:
    if not FakedClock.library:
        missing("libfaketime is not installed; run tests/servers/install")
    names = [f"p{number}.html" for number in range(30)]
    write(site, "index.html", links=tuple(names))
    for name in names:
        write(site, name)
    window = ("--recrawl-window", "* 3 * * *", "--recrawl-min", "1h", "--recrawl-max", "1h", "--budget", "31/1d")

    def visits_at(day: int, seconds: float, *more: str) -> int:
        """Begin so many seconds before four o'clock on a day to come, and end after a round that had visits. Returns
        their number."""
        midnight = (time.time() // 86_400 + day) * 86_400
        server.clock.set(midnight + 4 * 3600 - seconds - time.time())
        log = tmp_path / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command("crawl", f"{site.url}/", "--recrawl", "--frontier", server.address, *FLAGS, *window, *more),
                cwd=tmp_path, env={**os.environ, **server.clock.environment}, stdout=output, stderr=output, text=True,
            )  # fmt: skip
        try:
            wait_for(process, lambda: site.answers and not is_open())
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 130, log.read_text()
        finally:
            process.kill()
            process.wait()
        return site.statuses().total()

    def is_open() -> bool:
        [path] = (tmp_path / ".gossamer" / "fresh").glob("*.sqlite")
        with closing(sqlite3.connect(path, timeout=60)) as database:
            return bool(database.execute("SELECT 1 FROM rounds WHERE ended IS NULL").fetchall())

    with standalone(faked_clock=True) as server:
        assert server.clock is not None
        assert visits_at(1, -3600) == 31, "pages that are new are fetched when they are found"
        first = visits_at(2, 15, "--rate", "1/1", "--domain-concurrency", "1")
        assert 0 < first < 28
        assert visits_at(3, 600) == 31 - first, "visits that were left out do not count in the budget"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment_lose_neither_a_page_nor_a_change(seed: int, tmp_path: Path, site: Served) -> None:
    chance = random.Random(seed)
    names = [f"p{number}.html" for number in range(60)]
    write(site, "index.html", links=tuple(names[:10]))
    for number, name in enumerate(names):
        write(site, name, links=tuple(names[(7 * number + step) % 60] for step in range(5)))
    site.delay = 0.02

    def finish_with_kills() -> None:
        for _ in range(2):  # a page on which three workers die is given up
            at = sum(site.answers.values()) + chance.randrange(1, 40)
            if not killed_after(tmp_path, site, lambda at=at: sum(site.answers.values()) >= at):
                return
        recrawl(tmp_path, site)

    finish_with_kills()
    first = changes(tmp_path, site)
    assert told(first) == dict.fromkeys(["", *names], "new")

    expected = {}
    for name in chance.sample(names, 20):
        if chance.random() < 0.3:
            (site.folder / name).unlink()
            expected[name] = "gone"
        else:
            write(site, name, f"{name} has changed")
            expected[name] = "changed"
    finish_with_kills()
    assert told(changes(tmp_path, site, first[-1]["cursor"])) == expected
    recrawl(tmp_path, site)
    assert len(changes(tmp_path, site)) == len(first) + len(expected)


def test_a_crawl_without_end_visits_pages_again_until_it_is_interrupted_and_goes_on(
    tmp_path: Path, site: Served
) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command("crawl", f"{site.url}/", "--recrawl", *EVERY_TWO_SECONDS, *(one for one in FLAGS if one != "-q")),
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def interrupt(process: subprocess.Popen[str]) -> str:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 130, output
        assert "was interrupted; nothing is lost." in output
        assert "Resume with: " in output
        return output

    def state() -> tuple[str, bool]:
        listed = json.loads(run("crawls", "list", "--json").stdout)["crawls"]
        assert len(listed) == 1
        return listed[0]["state"], "Resume with: " in run("crawls", "show", listed[0]["crawl_id"]).stdout

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=100)

    first = start()
    wait_for(first, lambda: site.answers["/a.html", 304] >= 2)
    assert state() == ("running", False)
    write(site, "a.html", "other")
    wait_for(first, lambda: site.answers["/a.html", 200] == 2)
    assert "status codes: 200 3, 304 " in interrupt(first)  # of all rounds
    assert state() == ("interrupted", True)
    assert "interrupted" in run("why", f"{site.url}/a.html").stdout
    write(site, "a.html", "third")
    second = start()
    wait_for(second, lambda: site.answers["/a.html", 200] == 3)
    interrupt(second)
    assert site.answers["/", 200] == 1
    assert [change["change"] for change in changes(tmp_path, site)] == ["new", "new", "changed", "changed"]


def test_a_crawl_without_end_goes_on_when_the_database_of_its_index_is_back(tmp_path: Path, site: Served) -> None:
    write(site, "index.html")
    log = tmp_path / "log"
    with postgresql() as server, log.open("w") as output:
        address = server.new_database().replace("+psycopg", "")
        process = subprocess.Popen(
            command("crawl", f"{site.url}/", "--recrawl", "--index", address, *EVERY_TWO_SECONDS,
                    *(flag for flag in FLAGS if flag != "-q")),
            cwd=tmp_path, stdout=output, stderr=output, text=True,
        )  # fmt: skip
        try:
            wait_for(process, lambda: site.answers["/", 304] >= 1)
            [name] = index_versions(address)
            with closing(PageIndex.open(address, name)) as index:
                wait_for(process, lambda: index.open_round() is None)
            server.kill()  # while the command waits until the page is due
            wait_for(process, lambda: "Waiting until it can be used again; nothing is lost." in log.read_text())
            write(site, "index.html", "other")
            server.start()
            wait_for(process, lambda: site.answers["/", 200] == 2)
            server.kill()
            process.send_signal(signal.SIGINT)
            assert process.wait(100) == 130, log.read_text()
        finally:
            process.kill()
            process.wait()


def test_a_command_with_another_frontier_is_refused_while_one_works_with_the_index(
    tmp_path: Path, site: Served
) -> None:
    """It would take the open round for one that its frontier has lost, and visit all pages again."""
    names = [f"p{number}.html" for number in range(10)]
    write(site, "index.html", links=tuple(names))
    for name in names:
        write(site, name)
    index = ("--index", str(tmp_path / "index.sqlite"), "--data-dir")
    first = subprocess.Popen(
        command("crawl", f"{site.url}/", "--recrawl", *FLAGS, *index, str(tmp_path / "first place")),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    wait_for(first, lambda: len(site.answers) == 11)
    other = subprocess.run(
        command("crawl", f"{site.url}/", "--recrawl-once", *FLAGS, *index, str(tmp_path / "other")),
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert other.returncode == 2
    assert f"{tmp_path / 'first place'} keeps the crawl up to date by this index" in other.stderr
    first.send_signal(signal.SIGINT)
    output, _ = first.communicate(timeout=100)
    assert first.returncode == 130, output
    assert site.statuses() == {200: 11}
    recrawl(tmp_path, site, *index, str(tmp_path / "other"))
    assert site.statuses() == {304: 11}, "the index of a command that has ended is free"


def test_a_round_of_which_nothing_is_left_is_over_also_when_its_run_is_forgotten(
    tmp_path: Path, site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was killed between the end of the run in the frontier and that of the round in the index."""
    write(site, "index.html")
    recrawl(tmp_path, site)
    [path] = (tmp_path / ".gossamer" / "fresh").glob("*.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE rounds SET ended = NULL")
    site.answers.clear()
    monkeypatch.setenv("GOSSAMER_RETENTION", "0.01")
    recrawl(tmp_path, site)
    assert site.statuses() == {304: 1}


def wait_for(process: subprocess.Popen[str], is_reached: Any) -> None:
    """Wait until a running command has reached something."""
    until = time.monotonic() + 100
    while not is_reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_budget_limits_the_visits_of_a_round(tmp_path: Path, site: Served) -> None:
    names = tuple(f"p{number}.html" for number in range(9))
    write(site, "index.html", links=names)
    for name in names:
        write(site, name)
    recrawl(tmp_path, site, "--budget", "6/1h")
    assert site.statuses() == {200: 10}
    recrawl(tmp_path, site, "--budget", "6/1h")
    assert site.statuses() == {304: 6}
    recrawl(tmp_path, site, "--budget", "8/1h")
    assert site.statuses() == {304: 2}


def test_visits_that_confirm_that_a_page_is_missing_count_in_the_budget(tmp_path: Path, site: Served) -> None:
    names = tuple(f"p{number}.html" for number in range(5))
    write(site, "index.html", links=names)
    for name in names:
        write(site, name)
    recrawl(tmp_path, site, "--budget", "8/1h")
    first = changes(tmp_path, site)
    site.answers.clear()
    for name in names:
        (site.folder / name).unlink()
    recrawl(tmp_path, site, "--budget", "8/1h")
    assert site.statuses() == {304: 1, 404: 7}
    assert list(told(changes(tmp_path, site, first[-1]["cursor"])).values()) == ["gone"] * 2


def test_a_round_visits_only_what_is_due_and_says_how_many(tmp_path: Path, site: Served) -> None:
    def said(*options: str) -> str:
        arguments = [one for one in FLAGS if one != "-q"]
        done = subprocess.run(
            command("crawl", f"{site.url}/", "--recrawl-once", "--ignore-robots", *arguments, *options),
            cwd=tmp_path, capture_output=True, text=True, timeout=110,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    write(site, "index.html", links=("a.html",))
    write(site, "a.html")
    assert "due" not in said()
    visited = time.time()
    assert site.statuses() == {200: 2}
    summary = said()
    assert "has nothing to fetch now." in summary
    assert "0 of 2 pages were due. The next one is due in " in summary
    assert "--recrawl-all visits all." in summary
    assert site.statuses() == {}
    assert "pages" not in summary.replace("0 of 2 pages", "")  # nothing of the round before
    until(lambda: time.time() > visited + 1.5, "the time at which each page is due by the rule")
    assert "2 of 2 pages were due. The budget allowed 1 visit." in said(
        "--recrawl-rule", "/ every=1s", "--recrawl-min", "1s", "--budget", "1/1h"
    )
    assert site.statuses() == {304: 1}
    assert "The budget allowed 0 visits of 2 pages." in said("--recrawl-all", "--budget", "1/1h")
    (site.folder / "a.html").unlink()
    assert "1 missing page was visited once more, before it counts as gone." in said("--recrawl-all")
    plain = [one for one in FLAGS if one != "-q"]
    done = subprocess.run(
        command("crawl", f"{site.url}/", *plain), cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert "To fetch what has changed since, repeat the command with --recrawl-once." in done.stdout


def test_a_given_url_that_never_gave_a_page_is_tried_in_each_round(tmp_path: Path, site: Served) -> None:
    flags = [one for one in FLAGS if one != "--ignore-robots"]
    recrawl_once = command("crawl", f"{site.url}/a.html", "--recrawl-once", *flags)
    write_text(site, "robots.txt", "User-agent: *\nDisallow: /")
    write(site, "a.html")
    refused = subprocess.run(recrawl_once, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert refused.returncode == 1, refused.stderr
    done = subprocess.run([*recrawl_once, "--ignore-robots"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert site.answers["/a.html", 200] == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--index", "postgresql://u@127.0.0.1:1/x"), "The database of the page index could not be read or written"),
        (("--budget", "many"), "--budget: cannot read 'many'. Write VISITS/TIME"),
        (("--recrawl-min", "2d", "--recrawl-max", "1d"), "--recrawl-min: 2d is longer than --recrawl-max, 1d."),
        (("--recrawl",), "--recrawl: it goes on for ever. Omit it or --recrawl-once."),
        (("--fresh",), "--fresh: a crawl that is kept up to date does not begin anew."),
        (("--recrawl-max", "soon"), "--recrawl-max: cannot read 'soon'"),
        (("--recrawl-rule", "/x"), "--recrawl-rule: cannot read '/x'. Write REGEX every=1h"),
        (("--recrawl-rule", "/x every=1h every=2h"), "--recrawl-rule: every is in '/x every=1h every=2h' twice."),
        (("--recrawl-rule", "/x level=none"), "--recrawl-rule: 'none' is no level. Write bytes, text, items or links."),
        (("--recrawl-rule", "/x window=* 25 * * *"), "--recrawl-rule: hour '25' is not made of 0 to 23."),
        (("--recrawl-window", "* 1-5 * * *"), "--recrawl-window: with --recrawl-once, the visits begin when the"),
        (("--recrawl-zone", "Mars/Olympus"), "--recrawl-zone: 'Mars/Olympus' is unknown; write a name such as"),
        (("--recrawl-rule", "/x keep=a[["), "--recrawl-rule: "),
        (("--recrawl-rule", "( every=1h"), "--recrawl-rule: "),
        (("--index", "mysql://me@localhost/x"), "--index: cannot keep an index in mysql://me@localhost/x"),
        (("--index", "redis://localhost/"), "--index: cannot keep an index in redis://localhost/"),
    ],
)
def test_bad_options_say_what_to_write(options: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = subprocess.run(
        command("crawl", "http://127.0.0.1:1/", "--recrawl-once", "--ignore-robots", *FLAGS, *options),
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_crawl_that_was_kept_up_to_date_does_not_begin_anew_by_a_plain_command(tmp_path: Path, site: Served) -> None:
    write(site, "index.html")
    again = command("crawl", f"{site.url}/", *FLAGS)
    kept = subprocess.run([*again, "--recrawl-once"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert kept.returncode == 0, kept.stderr
    written = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    refused = subprocess.run([*again, "--fresh"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert (refused.returncode, "does not begin anew" in refused.stderr) == (2, True), refused.stderr
    assert written
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == written


def test_a_program_gets_the_changes(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")
    options: dict[str, Any] = {
        "data_dir": tmp_path / "data",
        "rate": 1000,
        "allow_private": True,
        "ignore_robots": True,
    }

    def found() -> list[tuple[str, str]]:
        crawl = gossamer.crawl(f"{site.url}/", recrawl_once=True, recrawl_all=True, **options)
        return [(change.url.removeprefix(f"{site.url}/"), str(change.change)) for change in crawl.changes()]

    assert sorted(found()) == [("", "new"), ("a.html", "new")]
    assert found() == []
    write(site, "a.html", "other")
    assert found() == [("a.html", "changed")]
    options |= {"recrawl_min": "1s", "recrawl_max": "1s"}
    write(site, "a.html", "third")
    for change in gossamer.crawl(f"{site.url}/", recrawl=True, **options):
        assert str(change.change) == "changed"
        break  # the crawl has no end
    with pytest.raises(BadInput, match="Write data_dir='some/folder'"):
        gossamer.crawl(f"{site.url}/", recrawl=True)


def test_commands_tell_how_fresh_pages_are_and_when_they_are_visited(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")
    recrawl(tmp_path, site)
    recrawl(tmp_path, site)

    def output_of(*arguments: str) -> str:
        done = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(output_of("crawls", "fresh", "--json"))
    assert shown["rounds"] == 2
    [domain] = shown["domains"]
    assert (domain["domain"], domain["pages"], domain["gone"]) == ("127.0.0.1", 2, 0)
    assert 0 < domain["freshness"] <= domain["freshness_at_twice_the_budget"] <= 1
    assert "2 pages, 0 gone" in output_of("crawls", "fresh")
    visits = json.loads(output_of("why", f"{site.url}/a.html", "--json"))["visits"]
    assert visits["state"] == "live"
    assert visits["due"] > visits["fetched"]
    assert visits["interval"] > 0
    assert "  visits   live, fetched" in output_of("why", f"{site.url}/a.html")
    recrawl(tmp_path, site, "--budget", "3/1h")  # of which two are spent
    why = [output_of("why", f"{site.url}/{name}") for name in ("", "a.html")]
    assert sum("  found    yes: the page index has it" in one for one in why) == 1
    assert sum("  found    yes\n" in one for one in why) == 1
    name = json.loads(output_of("crawls", "list", "--json"))["crawls"][0]["crawl_id"]
    output_of("crawls", "delete", name, "--yes")
    assert not list((tmp_path / ".gossamer" / "fresh").iterdir())


def test_another_depth_or_scope_adds_and_forgets_pages_and_tells_how_many(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html", "x.html"))
    write(site, "a.html", links=("b.html",))
    write(site, "b.html")
    write(site, "x.html")

    def found(*options: str) -> tuple[list[str], str]:
        before = changes(tmp_path, site) if (tmp_path / ".gossamer").exists() else []
        done = subprocess.run(
            command("crawl", f"{site.url}/", "--recrawl-once", "--crawl-id", "mine", *FLAGS, *options),
            cwd=tmp_path, capture_output=True, text=True, timeout=110,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return sorted(one["url"] for one in changes(tmp_path, site)[len(before) :]), done.stderr

    assert found("--depth", "1")[0] == ["", "a.html", "x.html"]
    new, said = found("--deny", "/x")
    assert new == ["b.html"]
    assert "1 page out of it is forgotten; 2 pages will be fetched without conditions" in said
    assert found("--deny", "/x") == ([], "")


@pytest.mark.timeout(30)
def test_a_round_that_another_command_has_done_meanwhile_ends(
    tmp_path: Path, site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(site, "index.html")
    options: dict[str, Any] = {"data_dir": tmp_path / "data", "allow_private": True, "ignore_robots": True}
    assert len(list(gossamer.crawl(f"{site.url}/", recrawl_once=True, **options).changes())) == 1

    async def has_visits(visits: Visits, *, is_known: bool) -> bool:
        return True  # there were some; the other command visits them now

    monkeypatch.setattr(Visits, "has_visits", has_visits)
    monkeypatch.setattr(Visits, "_pages", lambda *_, **__: [])
    assert list(gossamer.crawl(f"{site.url}/", recrawl_once=True, **options).changes()) == []


def test_other_fields_are_taken_from_pages_that_are_as_they_were(tmp_path: Path, site: Served) -> None:
    write(site, "index.html", links=("a.html",))
    write(site, "a.html")

    def items(*options: str) -> tuple[int, str]:
        done = subprocess.run(
            command("crawl", f"{site.url}/", "--recrawl-once", "--crawl-id", "mine", *FLAGS, "-o", "x.jsonl", *options),
            cwd=tmp_path, capture_output=True, text=True, timeout=110,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return (tmp_path / "x.jsonl").read_text().count('"type":"item"'), done.stderr

    assert items()[0] == 0
    found, said = items("--field", "words=body")
    assert found == 2
    assert "takes something else from its pages than before. 2 pages will be fetched without conditions" in said
    assert items("--field", "words=body") == (2, "")


def test_sitemaps_and_feeds_are_visited_as_pages_and_are_no_changes(tmp_path: Path, site: Served) -> None:
    def list_pages(*names: str) -> None:
        entries = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in names)
        write_text(site, "pages.xml", f"<urlset>{entries}</urlset>")

    items = f"<item><link>{site.url}/news.html</link></item>"
    write_text(site, "feed.xml", f'<rss version="2.0"><channel>{items}</channel></rss>')
    write_text(site, "sitemap.xml", f"<sitemapindex><sitemap><loc>{site.url}/pages.xml</loc></sitemap></sitemapindex>")
    write_text(site, "robots.txt", f"Sitemap: {site.url}/sitemap.xml")
    list_pages("a.html")
    for name in ("index.html", "a.html", "b.html", "news.html"):
        write(site, name)
    recrawl(tmp_path, site, "--sitemaps", f"{site.url}/feed.xml", obeys=True)
    first = changes(tmp_path, site)
    assert told(first) == dict.fromkeys(("", "a.html", "news.html"), "new")
    site.answers.clear()
    list_pages("a.html", "b.html")
    recrawl(tmp_path, site, "--sitemaps", f"{site.url}/feed.xml", obeys=True)
    assert told(changes(tmp_path, site, first[-1]["cursor"])) == {"b.html": "new"}
    assert site.answers["/sitemap.xml", 304] == site.answers["/feed.xml", 304] == site.answers["/pages.xml", 200] == 1
    assert site.answers["/sitemap.xml", 200] == site.answers["/feed.xml", 200] == 0


def test_parts_of_a_sitemap_index_are_read_when_their_dates_move(tmp_path: Path, site: Served) -> None:
    def list_parts(**dates: str) -> None:
        entries = "".join(
            f"<sitemap><loc>{site.url}/{name}.xml</loc><lastmod>{date}</lastmod></sitemap>"
            for name, date in dates.items()
        )
        write_text(site, "sitemap.xml", f"<sitemapindex>{entries}</sitemapindex>")

    def list_pages(part: str, *names: str) -> None:
        entries = "".join(f"<url><loc>{site.url}/{name}</loc></url>" for name in names)
        write_text(site, f"{part}.xml", f"<urlset>{entries}</urlset>")

    def round_of() -> tuple[dict[str, int], dict[str, str]]:
        """Return the answers to requests for sitemaps by name, and the changes."""
        before = changes(tmp_path, site)
        site.answers.clear()
        recrawl(tmp_path, site, "--sitemaps", obeys=True)
        asked = {path: sum(n for (one, _), n in site.answers.items() if one == f"/{path}.xml")
                 for path in ("sitemap", "one", "two")}  # fmt: skip
        return asked, told(changes(tmp_path, site)[len(before) :])

    write_text(site, "robots.txt", f"Sitemap: {site.url}/sitemap.xml")
    list_parts(one="2024-01-01", two="2024-02-02")
    list_pages("one", "a.html")
    list_pages("two", "b.html")
    for name in ("index.html", "a.html", "b.html", "c.html"):
        write(site, name)
    recrawl(tmp_path, site, "--sitemaps", obeys=True)
    assert round_of() == ({"sitemap": 1, "one": 0, "two": 0}, {})
    list_pages("two", "b.html", "c.html")
    list_parts(one="2024-01-01", two=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 60)))
    assert round_of() == ({"sitemap": 1, "one": 0, "two": 1}, {"c.html": "new"})


def test_a_single_round_visits_a_page_whose_change_its_sitemap_announces(tmp_path: Path, site: Served) -> None:
    def dated(**dates: str) -> str:
        entries = (
            f"<url><loc>{site.url}/{name}.html</loc><lastmod>{day}</lastmod></url>" for name, day in dates.items()
        )
        return f"<urlset>{''.join(entries)}</urlset>"

    def said() -> str:
        rules = ("--recrawl-rule", "xml every=1s", "--recrawl-min", "1s", "--sitemaps")
        done = subprocess.run(
            command("crawl", f"{site.url}/", "--recrawl-once", *(one for one in FLAGS if one not in dropped), *rules),
            cwd=tmp_path, capture_output=True, text=True, timeout=110,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    dropped = "--ignore-robots", "-q"
    write(site, "index.html")
    for name in ("a.html", "b.html"):
        write(site, name)
    write_text(site, "robots.txt", f"Sitemap: {site.url}/map.xml")
    write_text(site, "map.xml", dated(a="2026-01-01", b="2026-01-02"))
    assert "4 pages" in said()
    write(site, "a.html", "other")
    write_text(site, "map.xml", dated(a=f"{datetime.now(UTC) + timedelta(minutes=5):%FT%TZ}", b="2026-01-02"))
    until = time.monotonic() + 60
    site.answers.clear()
    while site.answers["/map.xml", 200] == 0:  # not due within its first second
        assert time.monotonic() < until
        summary = said()
    assert (site.answers["/a.html", 200], site.answers["/b.html", 200] + site.answers["/b.html", 304]) == (1, 0)
    assert "  2 pages, " in summary
    assert "1 change: 1 changed." in summary


def test_feeds_that_pages_name_are_sources_of_new_pages(tmp_path: Path, site: Served) -> None:
    def feed(*names: str) -> None:
        items = "".join(f"<item><link>{site.url}/{name}</link></item>" for name in names)
        write_text(site, "feed.rss", f'<rss version="2.0"><channel>{items}</channel></rss>')

    def page_with(*hrefs: str) -> None:
        links = "".join(f'<link rel="home alternate" type="application/rss+xml; charset=utf-8" href="{one}">'
                        for one in hrefs)  # fmt: skip
        write_text(site, "index.html", f"<html><head>{links}</head><body><main>Home</main></body></html>")

    many = [f"/feed{number}.rss" for number in range(MOST_FEEDS + 5)]
    page_with("feed.rss", "https://other.test/feed", *many)
    feed("a.html")
    write(site, "a.html")
    write(site, "b.html")
    recrawl(tmp_path, site)
    first = changes(tmp_path, site)
    assert told(first) == dict.fromkeys(("", "a.html"), "new")
    assert sum(count for (path, _), count in site.answers.items() if path.startswith("/feed")) <= 2 * MOST_FEEDS
    site.answers.clear()
    feed("a.html", "b.html")
    recrawl(tmp_path, site)
    assert told(changes(tmp_path, site, first[-1]["cursor"])) == {"b.html": "new"}
    assert site.answers["/feed.rss", 200] == 1
    (tmp_path / "without").mkdir()
    site.answers.clear()
    recrawl(tmp_path / "without", site, "--ignore-feeds")
    assert site.statuses() == {200: 1}


def test_pages_that_are_overdue_are_not_visited_all_at_once() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace.allowed(0.5) == Pace.MOST_VISITS
    now[0] = 20.0
    assert pace.allowed(0.5) == Pace.FEW_VISITS + 20
    now[0] = 1e9
    assert pace.allowed(0.5) == Pace.MOST_VISITS


@pytest.mark.parametrize(("option", "value"), [("--budget", "5/1d"), ("--index", "a"), ("--recrawl-min", "2h")])
def test_options_of_a_crawl_that_is_not_kept_up_to_date_are_refused(option: str, value: str, tmp_path: Path) -> None:
    done = subprocess.run(
        command("crawl", "http://127.0.0.1:1/", *FLAGS, option, value),
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{option}: the crawl is not kept up to date. Add --recrawl or --recrawl-once." in done.stderr


def test_several_worker_processes_share_the_index(tmp_path: Path, site: Served) -> None:
    names = tuple(f"p{number}.html" for number in range(40))
    write(site, "index.html", links=names)
    for name in names:
        write(site, name, links=("", *names[:5]))
    recrawl(tmp_path, site, "--processes", "2")
    assert site.statuses() == {200: 41}
    write(site, "p7.html", "other")
    recrawl(tmp_path, site, "--processes", "2")
    assert site.statuses() == {304: 40, 200: 1}
    assert [change["url"] for change in changes(tmp_path, site) if change["change"] == "changed"] == ["p7.html"]
