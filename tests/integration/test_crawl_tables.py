"""Tables as outputs of `gossamer crawl`: several, killed and resumed, and named after the crawl has finished."""

import csv
import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.telemetry.logs import WORKER_STARTED
from gossamer.wiring.processes import usable_cpus
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, resolving

SPEC = WebSpec(hosts=1, pages=60)
SPIDER = """
from gossamer import Spider

class Titles(Spider):
    def parse(self, page):
        number = len(page.text)
        yield {"title": page.css("title::text").get(), "url": page.url, "length": number}
        if number % 2:
            yield {"title": "=odd", "url": page.url, "odd": [number]}
        for link in page.links:
            yield page.follow(link.url)
"""


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as started:
        yield started


def flags(web: FakeWeb, rate: str = "10000/1") -> list[str]:
    return [*web.seeds(), *resolving(web.resolve_overrides()), "--rate", rate, "--crawl-id", "tables"]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, strict=True))


def sqlite_rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_automatic_processes_write_one_file(web: FakeWeb, tmp_path: Path) -> None:
    """One for each CPU, because the rate is high."""
    done = gossamer("crawl", *flags(web), "--processes", "auto", "-v", "-o", "pages.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["url"] for row in csv_rows(tmp_path / "pages.csv")} == set(graph(web.site))
    assert done.stderr.count(f"{WORKER_STARTED} ") == usable_cpus()


def test_one_crawl_fills_several_tables_with_the_records_of_each(web: FakeWeb, tmp_path: Path) -> None:
    (tmp_path / "titles.py").write_text(SPIDER)
    outputs = "-o items.csv -o items.json -o all.sqlite --items --pages -o pages.jsonl --pages -o pages.csv --pages"
    done = gossamer(
        "crawl", *flags(web), "--spider", "titles.py", "--csv-guard", "--processes", "2", *outputs.split(), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    urls = set(graph(web.site))
    pages = {json.loads(line)["url"] for line in (tmp_path / "pages.jsonl").read_text().splitlines()}
    assert pages == urls == {row["url"] for row in csv_rows(tmp_path / "pages.csv")}
    items = json.loads((tmp_path / "items.json").read_text())
    assert {one["page_url"] for one in items} == {one["url"] for one in items} == urls
    rows = csv_rows(tmp_path / "items.csv")
    assert sorted(list(rows[0])[:4]) == sorted(["page_url", "title", "url", "length"])
    assert Counter(row["title"].removeprefix("'") for row in rows) == Counter(one["title"] for one in items)
    assert not any(row["title"].startswith("=") for row in rows)
    database = tmp_path / "all.sqlite"
    assert sqlite_rows(database, "SELECT count(*) FROM pages") == [(len(urls),)]
    assert sqlite_rows(database, "SELECT count(*), sum(length) FROM items") == [
        (len(items), sum(one.get("length", 0) for one in items))
    ]
    assert sqlite_rows(
        database, "SELECT count(DISTINCT request_id) FROM pages JOIN items ON request_id = _request_id"
    ) == [(len(urls),)]


@pytest.mark.parametrize("name", ["pages.csv", "pages.json", "pages.sqlite"])
def test_a_killed_crawl_that_is_resumed_has_every_page_once(web: FakeWeb, tmp_path: Path, name: str) -> None:
    """Killed with its workers and its frontier, twice. Only what was in flight may be there twice, except in SQLite."""
    arguments = command("crawl", *flags(web, "100/1"), "-o", name, "-o", "watch.jsonl", "--processes", "2")
    for lines in (5, 25):
        with subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            while (
                not (tmp_path / "watch.jsonl").exists() or (tmp_path / "watch.jsonl").read_bytes().count(b"\n") < lines
            ):
                assert process.poll() is None
            process.kill()
    done = gossamer(*arguments[3:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / name
    if name.endswith(".csv"):
        found = Counter(row["url"] for row in csv_rows(path))
    elif name.endswith(".json"):
        found = Counter(one["url"] for one in json.loads(path.read_text()))
    else:
        found = Counter(str(url) for (url,) in sqlite_rows(path, "SELECT url FROM pages"))
        assert set(found.values()) == {1}
    assert set(found) == set(graph(web.site))
    assert sum(found.values()) <= len(found) + 2 * 64 * 2  # two kills, two processes, at most 64 in flight in each


def test_another_output_of_a_finished_crawl_is_made_without_fetching(web: FakeWeb, tmp_path: Path) -> None:
    assert gossamer("crawl", *flags(web), "-o", "pages.jsonl", cwd=tmp_path).returncode == 0
    requests = len(web.log())
    again = gossamer("crawl", *flags(web), "-o", "pages.sqlite", "-o", "pages.csv", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Exported 60 pages from pages.jsonl to pages.sqlite." in again.stdout
    assert "60 pages without the body: a CSV file has none." in again.stdout
    assert len(csv_rows(tmp_path / "pages.csv")) == 60
    assert sqlite_rows(tmp_path / "pages.sqlite", "SELECT count(*), count(DISTINCT url) FROM pages") == [(60, 60)]
    assert len(web.log()) == requests
    once_more = gossamer("crawl", *flags(web), "-o", "pages.csv", cwd=tmp_path)
    assert once_more.returncode == 0
    assert "Exported" not in once_more.stdout
    piped = gossamer("crawl", *flags(web), "-o", "-", "-q", cwd=tmp_path)
    assert piped.stdout == (tmp_path / "pages.jsonl").read_text()


def test_pages_and_items_of_two_outputs_are_joined_in_a_later_one(web: FakeWeb, tmp_path: Path) -> None:
    fields = ["--field", "title=h1"]
    first = gossamer("crawl", *flags(web), *fields, "-o", "items.csv", "-o", "pages.jsonl", "--pages", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "pages are in pages.jsonl\n  items are in items.csv\n" in first.stdout
    later = gossamer("crawl", *flags(web), *fields, "-o", "all.sqlite", "--items", "--pages", cwd=tmp_path)
    assert "Exported 60 pages and 60 items from pages.jsonl and items.csv to all.sqlite." in later.stdout
    urls = set(graph(web.site))
    assert {url for (url,) in sqlite_rows(tmp_path / "all.sqlite", "SELECT url FROM pages")} == urls
    assert {url for (url,) in sqlite_rows(tmp_path / "all.sqlite", "SELECT page_url FROM items")} == urls
    assert "items are in items.csv" in later.stdout
    assert "pages are in pages.jsonl\n  pages and items are in all.sqlite\n  items are in items.csv\n" in later.stdout


def test_the_summary_tells_outputs_with_pages_and_items_from_those_with_pages(web: FakeWeb, tmp_path: Path) -> None:
    outputs = ["-o", "all.jsonl", "-o", "pages.jsonl", "--pages", "-o", "items.jsonl", "--items"]
    arguments = ["crawl", *flags(web), "--field", "title=h1", "--depth", "1", *outputs]
    places = "  pages are in pages.jsonl\n  pages and items are in all.jsonl\n  items are in items.jsonl\n"
    for _ in range(2):  # then it is finished already
        done = gossamer(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert places in done.stdout
    for name, kinds in (("all", {"page", "item"}), ("pages", {"page"}), ("items", {"item"})):
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert {json.loads(line)["type"] for line in lines} == kinds
    (other := tmp_path / "other").mkdir()
    without = gossamer("crawl", *flags(web), "--field", "x=h9", "--depth", "1", "-o", "none.jsonl", cwd=other)
    assert "  pages are in none.jsonl\n" in without.stdout


def test_an_output_that_cannot_be_made_says_why(web: FakeWeb, tmp_path: Path) -> None:
    assert gossamer("crawl", *flags(web), "-o", "pages.jsonl", cwd=tmp_path).returncode == 0
    items = gossamer("crawl", *flags(web), "-o", "items.csv", "--items", cwd=tmp_path)
    assert items.returncode == 1
    assert "items.csv is not made: pages.jsonl has no items" in items.stdout
    assert not (tmp_path / "items.csv").exists()
    (tmp_path / "other.jsonl").write_text('{"mine": 1}\n')
    other = gossamer("crawl", *flags(web), "-o", "other.jsonl", cwd=tmp_path)
    assert "other.jsonl is not made: the file exists" in other.stdout
    assert (tmp_path / "other.jsonl").read_text() == '{"mine": 1}\n'
    (tmp_path / "pages.jsonl").unlink()
    gone = gossamer("crawl", *flags(web), "-o", "pages.csv", cwd=tmp_path)
    assert gone.returncode == 1
    assert "pages.csv is not made: there is no file pages.jsonl" in gone.stdout


def test_bad_outputs_are_refused_before_anything_is_fetched(web: FakeWeb, tmp_path: Path) -> None:
    cases = {
        ("--items",): "--items belongs to the -o before it. Write, for example, -o items.csv --items.",
        ("-o", "a.csv", "--items", "--pages"): "the output a.csv cannot hold both pages and items; name two files",
        ("-o", "a.xlsx"): "the output a.xlsx has an unknown ending; known are",
    }
    for arguments, said in cases.items():
        done = gossamer("crawl", *flags(web), *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr
    assert not web.log()
    assert not list(tmp_path.iterdir())
