"""`gossamer report`, through the real command, on the records of real crawls."""

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec, html, plain, redirect
from gossamer.report.page import make_report
from tests.servers.crawling import FAST_FLAGS, gossamer, resolving


def page(title: str, *links: str, more: str = "") -> str:
    anchors = "".join(f'<a href="{href}">to {href}</a>' for href in links)
    return f"<!DOCTYPE html><html><head><title>{title}</title></head><body>{anchors}{more}</body></html>"


def sitemap(*urls: str) -> str:
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    mounts = {
        ("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /private\n"),
        ("a.test", "/"): html(
            page("Home", "/one", "/two", "/gone", "/target", "/moved", "/private", "javascript:alert(3)")
        ),
        ("a.test", "/one"): html(page("Same", "/gone", "/gone", "/copy", "/odd")),
        ("a.test", "/two"): html(page("Same", "/gone", "/broken", "/original", more="<p>two</p>")),
        ("a.test", "/copy"): html(page("Copied", "/one")),
        ("a.test", "/original"): html(page("Copied", "/one")),
        ("a.test", "/odd"): html(page("&lt;script&gt;alert(1)&lt;/script&gt;\u202e&quot;'&gt;&lt;img src=x&gt;")),
        ("a.test", "/moved"): redirect("/target", status=301),
        ("a.test", "/target"): html(page("Target")),
        ("a.test", "/gone"): html("nothing here", status=404),
        ("a.test", "/broken"): html("broken", status=500),
        ("a.test", "/alone"): html(page("Alone")),
    }
    with FakeWeb.start(WebSpec(hosts=1, pages=5), mounts=mounts) as running:
        site = f"http://a.test:{running.port}"
        listed = plain(sitemap(f"{site}/one", f"{site}/alone", f"{site}/target", f"{site}/gone"))
        running.mount("a.test", "/sitemap.xml", listed)
        yield running


@pytest.fixture(scope="module")
def crawled(web: FakeWeb, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the outputs of one crawl in every format that has pages."""
    folder = tmp_path_factory.mktemp("crawled")
    site = f"http://a.test:{web.port}"
    outputs = [
        f"pages{ending}"
        for ending in (".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet", ".json", ".sqlite", ".csv")
    ]
    result = gossamer(
        "crawl", f"{site}/", f"{site}/sitemap.xml", *resolving(web.resolve_overrides()), *FAST_FLAGS, "--retries", "0",
        "--concurrency", "1",  # so that /target is known from the sitemap when /moved redirects to it
        *[word for name in outputs for word in ("-o", name)],
        cwd=folder,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet", ".json", ".sqlite"]
)
def test_every_format_gives_the_same_report(web: FakeWeb, crawled: Path, tmp_path: Path, ending: str) -> None:
    result = gossamer("report", str(crawled / f"pages{ending}"), "--csv", "csv", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["pages"], told["failed"], told["skipped"], told["broken_urls"]) == (9, 2, 2, 2)
    assert told["notes"] == []
    site, folder = f"http://a.test:{web.port}", tmp_path / "csv"
    assert {row["url"]: row["reason"] for row in table(folder, "failed-pages")} == {
        f"{site}/gone": "http_404",
        f"{site}/broken": "http_500",
    }
    broken = [
        (row["broken_url"], row["linking_pages"], row["page"], row["text"]) for row in table(folder, "broken-links")
    ]
    assert sorted(broken) == [
        (f"{site}/broken", "1", f"{site}/two", "to /broken"),
        (f"{site}/gone", "3", f"{site}/", "to /gone"),
        (f"{site}/gone", "3", f"{site}/one", "to /gone"),
        (f"{site}/gone", "3", f"{site}/two", "to /gone"),
    ]
    assert [(row["url"], row["leads_to"], row["statuses"]) for row in table(folder, "redirects")] == [
        (f"{site}/moved", f"{site}/target", "301")
    ]
    titles = {row["title"]: row["pages"] for row in table(folder, "duplicate-titles")}
    assert titles == {"Same": "2", "Copied": "2"}
    assert {row["url"] for row in table(folder, "duplicate-contents")} == {f"{site}/copy", f"{site}/original"}
    # Something links to /moved, which leads to /target: only /alone is reached by the sitemap alone.
    assert [row["url"] for row in table(folder, "unlinked-pages")] == [f"{site}/alone"]


def test_a_table_without_bodies_says_what_is_unknown(web: FakeWeb, crawled: Path, tmp_path: Path) -> None:
    result = gossamer("report", str(crawled / "pages.csv"), "--csv", "csv", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["pages"], told["failed"], told["skipped"], told["broken_urls"]) == (9, 2, 2, 0)
    text = (tmp_path / "report.html").read_text()
    assert "neither links nor bodies" in text
    assert "No page links to a URL that failed" not in text
    assert [row["leads_to"] for row in table(tmp_path / "csv", "redirects")] == [f"http://a.test:{web.port}/target"]


def test_a_table_that_is_still_written_lacks_only_its_last_row(crawled: Path, tmp_path: Path) -> None:
    table, rows = tmp_path / "pages.csv", (crawled / "pages.csv").read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(rows)[:-100])
    result = gossamer("report", "pages.csv", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["pages"] + told["failed"] + told["skipped"] == 9 + 2 + 2 - 1
    assert "pages.csv ends in the middle of a record" in told["notes"][0]
    table.write_bytes(b"".join([*rows[:3], rows[3].partition(b",")[0] + b"\r\n", *rows[4:]]))
    result = gossamer("report", "pages.csv", "-f", cwd=tmp_path)
    assert result.returncode == 2
    assert "pages.csv, row 3: " in result.stderr


def test_the_page_begins_with_what_failed_and_loads_nothing(crawled: Path, tmp_path: Path) -> None:
    result = gossamer("report", str(crawled / "pages.jsonl"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "2 failed: report.html" in result.stdout
    text = (tmp_path / "report.html").read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "2 pages failed", "Pages over time", "Status codes", "Depth", "Response times", "Sizes", "Domains", "Redirects",
        "Broken links", "Duplicate titles", "Duplicate contents", "Pages of the sitemap that nothing links to",
    ]  # fmt: skip
    assert "404 Not Found" in text
    assert not re.search(r"<script|<link|<img|<iframe|\bstyle=|\bon\w+=|\bsrc=|url\(|@import", text)
    again = gossamer("report", str(crawled / "pages.jsonl"), cwd=tmp_path)
    assert again.returncode == 2
    assert "report.html exists. Name another file, or replace it with -f." in again.stderr
    assert gossamer("report", str(crawled / "pages.jsonl"), "-f", cwd=tmp_path).returncode == 0


def test_tables_that_exist_are_replaced_only_with_force(crawled: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "sizes.csv").write_text("mine")
    command = ["report", str(crawled / "pages.jsonl"), "--csv", "tables"]
    refused = gossamer(*command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--csv: tables/sizes.csv exists. Name another folder, or replace its tables with -f." in refused.stderr
    assert (tmp_path / "tables" / "sizes.csv").read_text() == "mine"
    assert not (tmp_path / "report.html").exists()
    replaced = gossamer(*command, "-f", cwd=tmp_path)
    assert replaced.returncode == 0
    written = len(list((tmp_path / "tables").iterdir()))
    assert replaced.stdout.endswith(f": report.html\n{written} tables as CSV: tables\n")
    assert table(tmp_path / "tables", "sizes")
    to_standard_output = gossamer("report", str(crawled / "pages.jsonl"), "-o", "-", cwd=tmp_path)
    assert "a report is not written to standard output" in to_standard_output.stderr
    assert not (tmp_path / "-").exists()


def crawl(web: FakeWeb, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    site = f"http://a.test:{web.port}/"
    return gossamer(
        "crawl", site, *resolving(web.resolve_overrides()), *FAST_FLAGS, "--retries", "0", *arguments, cwd=folder
    )


def test_a_crawl_ends_with_its_report(web: FakeWeb, tmp_path: Path) -> None:
    result = crawl(web, tmp_path, "--report", "out/report.html")
    assert result.returncode == 0, result.stderr
    assert "the report is out/report.html" in result.stdout
    assert "2 pages failed" in (tmp_path / "out" / "report.html").read_text()
    # A finished crawl gets another one from the same records, and those of what is retried.
    again = crawl(web, tmp_path, "--report", "again.html")
    assert "retrying 1 failed URL" in again.stderr
    assert "the report is again.html" in again.stdout
    assert "2 pages failed" in (tmp_path / "again.html").read_text()


@pytest.mark.parametrize("outputs", [("-o", "-"), ("-o", "pages.csv"), ("-o", "items.jsonl", "--items")])
def test_a_crawl_without_a_file_of_whole_pages_keeps_them_for_its_report(
    web: FakeWeb, tmp_path: Path, outputs: tuple[str, ...]
) -> None:
    result = crawl(web, tmp_path, *outputs, "--report", "report.html")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "report.html").read_text()
    assert "2 pages failed" in text
    assert "to /gone" in text  # the text of a broken link, which only bodies tell
    assert list((tmp_path / ".gossamer" / "report").iterdir())  # the same command retries a page, and adds it
    assert "jsonl.zst" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report.txt", "does not end with .html"),
        ("notes.html", "is no report of Gossamer"),
        ("folder.html", "a folder"),
        ("/proc/r.html", "cannot be written"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_fetched(
    web: FakeWeb, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "notes.html").write_text("<p>my notes")
    (tmp_path / "folder.html").mkdir()
    requests_before = len(web.log())
    result = crawl(web, tmp_path, "--report", name)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(web.log()) == requests_before
    assert (tmp_path / "notes.html").read_text() == "<p>my notes"


def test_a_report_that_fails_after_the_crawl_makes_the_exit_code_1(web: FakeWeb, tmp_path: Path) -> None:
    """Its folder becomes a file: an output of the crawl."""
    result = crawl(web, tmp_path, "-o", "x.jsonl", "--report", "x.jsonl/report.html")
    assert "x.jsonl/report.html: File exists" in result.stdout
    assert "pages are in x.jsonl" in result.stdout
    assert result.returncode == 1


def test_the_report_of_one_crawl_in_a_file_of_several(crawled: Path, tmp_path: Path) -> None:
    lines = (crawled / "pages.jsonl").read_text().splitlines()
    own = json.loads(lines[0])
    other = {**own, "crawlid": "other", "url": "http://b.test/", "response_url": "http://b.test/"}
    both = tmp_path / "both.jsonl"
    both.write_text("\n".join([*lines, json.dumps(other), ""]))
    assert make_report([both]).figures.hosts == 2
    figures = make_report([both], crawl_id=own["crawlid"]).figures
    assert (figures.hosts, figures.pages) == (1, 9)
