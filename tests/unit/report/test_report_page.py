"""The report of records that were written by hand: hostile ones, damaged files, and the figures of odd crawls."""

import base64
import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

from gossamer.errors import BadInput
from gossamer.extract.links import MAX_TEXT_LENGTH
from gossamer.report.charts import Bar, columns
from gossamer.report.page import Report, check_target, make_report, share_text

NASTY = "</style></title>\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u0000{{7*7}}=HYPERLINK(1)"


def record(url: str, title: str = "", **fields: Any) -> dict[str, Any]:
    body = f"<!DOCTYPE html><title>{title}</title>{fields.pop('more', '')}"
    return {
        "type": "page", "appid": "a", "crawlid": "c", "spiderid": "link", "request_id": url, "attempt": 0, "depth": 0,
        "url": url, "response_url": url, "status_code": 200, "status_msg": "OK", "response_headers": {},
        "request_headers": {}, "body": body, "body_encoding": "text", "encoding": "utf-8",
        "content_type": "text/html", "links": [], "attrs": None, "timestamp": "2026-01-02T03:04:05.000000+00:00",
        "success": True, "reason": "", "exception": "", "redirects": [],
        "timings": {"total": 0.1}, "ip": "", "truncated": False, **fields,
    }  # fmt: skip


def failed(url: str, reason: str, **fields: Any) -> dict[str, Any]:
    return record(url, **{"success": False, "reason": reason, "status_code": 0, "body": "", "timings": {}, **fields})


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def report(tmp_path: Path, *records: dict[str, Any], **options: Any) -> Report:
    return make_report([write(tmp_path / "pages.jsonl", *records)], **options)


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    made = report(
        tmp_path,
        record("http://a.test/", NASTY.replace("<", "&lt;"), more=f'<a href="/gone">{NASTY}</a>', crawlid=NASTY),
        record("http://a.test/2", NASTY.replace("<", "&lt;"), content_type=NASTY),
        failed("http://a.test/gone", NASTY, exception=NASTY),
        failed("javascript:alert(3)", "dns", response_url="javascript:alert(4)"),
        record("http://a.test/3", redirects=[{"url": "data:text/html,<script>5</script>", "status": 301}],
               response_url="data:text/html,<script>6</script>"),
        record(f"http://{NASTY}.test/", timestamp=NASTY),
        csv_folder=tmp_path / "csv", csv_link="csv",
    )  # fmt: skip
    tree = LexborHTMLParser(made.page)
    assert not tree.css("script, link, img, iframe, object, embed, form, base, [style]")
    for element in tree.css("*"):
        assert not [name for name in element.attributes if name.startswith("on")]
    for link in tree.css("[href]"):
        assert re.match(r"https?://|#\w+$|csv/[\w-]+\.csv$", link.attributes["href"] or "")
    assert "49" not in tree.css_first("title").text()
    assert "\u202e" not in made.page
    style = tree.css_first("style").text()
    policy = tree.css_first("meta[http-equiv=Content-Security-Policy]").attributes["content"] or ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    for sign in "=+-@":
        page = record("http://a.test/1", f"{sign}1+1"), record("http://a.test/2", f"{sign}1+1")
        report(tmp_path, *page, csv_folder=tmp_path / "csv")
        assert f"\n'{sign}1+1,2," in (tmp_path / "csv" / "duplicate-titles.csv").read_text()


def test_a_table_without_rows_leaves_no_file_of_an_earlier_report(tmp_path: Path) -> None:
    report(tmp_path, failed("http://a.test/", "dns"), csv_folder=tmp_path / "csv")
    assert (tmp_path / "csv" / "failed-pages.csv").exists()
    report(tmp_path, record("http://a.test/"), csv_folder=tmp_path / "csv")
    assert not (tmp_path / "csv" / "failed-pages.csv").exists()


def test_the_share_of_responses_within_a_time_is_a_csv_file_too(tmp_path: Path) -> None:
    pages = [record(f"http://a.test/{n}", timings={"total": (n + 1) / 100}) for n in range(20)]
    made = report(tmp_path, *pages, csv_folder=tmp_path / "csv", csv_link="csv")
    lines = (tmp_path / "csv" / "response-percentiles.csv").read_text().splitlines()
    assert lines == ["percent,seconds", "50,0.110000", "90,0.190000", "95,0.200000", "99,0.200000", "100,0.200000"]
    assert 'href="csv/response-percentiles.csv"' in made.page


def test_numbers_and_times_beyond_all_limits_do_no_harm(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"depth": 2**63, "status_code": -(2**63), "timings": {"total": 1e300}}
    made = report(
        tmp_path,
        record("http://a.test/", **odd),
        record("http://a.test/2", timestamp="9999-12-31T23:59:59-12:00"),
        record("http://a.test/3", timestamp="0001-01-01T00:00:00+00:00"),
    )
    assert made.figures.pages == 3


def test_the_latest_record_of_a_url_counts(tmp_path: Path) -> None:
    early, late = "2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"
    made = report(
        tmp_path,
        record("http://a.test/later-fine", timestamp=late),
        failed("http://a.test/later-fine", "dns", timestamp=early),
        record("http://a.test/later-broken", timestamp=early),
        failed("http://a.test/later-broken", "dns", timestamp=late),
    )
    assert (made.figures.pages, made.figures.failed) == (1, 1)
    assert made.notes == ["2 older records are left out, because a later record has the same URL."]


@pytest.mark.parametrize("records", [0, 1])
def test_a_crawl_of_no_page_and_of_one(tmp_path: Path, records: int) -> None:
    made = report(tmp_path, *[record("http://a.test/")] * records)
    assert made.figures.pages == records
    assert ("Nothing failed" if records else "hold no pages yet") in made.page


def test_a_crawl_of_which_everything_failed(tmp_path: Path) -> None:
    made = report(tmp_path, failed("https://a.test/", "tls", exception="the certificate has expired"))
    assert "1 page failed" in made.page
    assert "The secure connection could not be established" in made.page
    assert "--insecure" in made.page
    assert "the certificate has expired" in made.page


def test_refusals_by_sites_are_counted_at_the_top_and_missing_pages_are_none(tmp_path: Path) -> None:
    reasons = ["refused_captcha", "refused_captcha", "refused_consent", "refused_not_found", "http_404"]
    made = report(tmp_path, *(failed(f"https://a.test/{n}", reason) for n, reason in enumerate(reasons)))
    assert "<dt>Refused by sites</dt><dd>3<small>captcha 2, consent 1</small>" in made.page
    assert "The page says that it was not found" in made.page
    assert "Refused by sites" not in report(tmp_path, failed("https://a.test/", "refused_empty")).page


def test_a_file_that_is_still_written_and_one_with_a_damaged_line(tmp_path: Path) -> None:
    path = write(tmp_path / "pages.jsonl", record("http://a.test/1"), record("http://a.test/2"))
    text = path.read_text()
    path.write_text(text + text[:100])
    torn = make_report([path])
    assert torn.figures.pages == 2
    assert "ends in the middle of a record" in torn.notes[0]
    path.write_text("not JSON\n" + text)
    damaged = make_report([path])
    assert damaged.figures.pages == 2
    assert "1 line could not be read (line 1:" in damaged.notes[0]
    packed = tmp_path / "pages.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode()) + gzip.compress(text.encode())[:-20])
    assert make_report([packed]).figures.pages == 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.txt", "hello\nworld\n", "items and no pages"),
        ("items.jsonl", json.dumps({"type": "item", "url": "http://a.test/", "item": {}}) + "\n", "items and no pages"),
        ("other.jsonl", '{"title": "x"}\n', "no records of pages"),
    ],
)
def test_a_file_without_pages_is_named_with_what_it_has(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=words):
        make_report([tmp_path / name])


def test_a_report_never_replaces_what_is_no_report(tmp_path: Path) -> None:
    records = write(tmp_path / "pages.html", record("http://a.test/"))
    with pytest.raises(BadInput, match="one of the files with the records"):
        check_target(records, [records])
    with pytest.raises(BadInput, match="no report of Gossamer"):
        check_target(records, [])
    (tmp_path / "report.html").write_text(report(tmp_path, record("http://a.test/")).page)
    check_target(tmp_path / "report.html", [records])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is a device or a pipe"):
        check_target(tmp_path / "pipe", [])


@pytest.mark.parametrize("most", [0, 1, 3, 7, 52, 999, 123_456, 7_654_321])
def test_an_axis_ends_at_or_above_the_highest_column(most: int) -> None:
    for column in columns([Bar("a", most)]).columns:
        for _, y, height in column.parts:
            assert y >= 9.9
            assert y + height == pytest.approx(160, abs=0.1)


def test_charts_are_described_and_their_texts_escaped(tmp_path: Path) -> None:
    page = report(tmp_path, record("http://a.test/"), failed("http://a.test/gone", "http_404", status_code=404)).page
    assert 'role="img" aria-label="Pages by depth: 1 columns from 0 to 0; the highest is 2 at 0."' in page
    assert "<title>0: 1 pages, 1 failed</title>" in page


def test_links_of_every_spelling_are_found(tmp_path: Path) -> None:
    spellings = ["/d/gone", "gone", "./gone#top", "http://a.test/d/gone", "//a.test/d/gone", "../d/gone", " gone "]
    pages = [record(f"http://a.test/d/{n}", more=f'<a href="{href}">x</a>') for n, href in enumerate(spellings)]
    by_base = record("http://a.test/other", more='<base href="http://a.test/d/"><a href="gone">x</a>')
    listed = record("http://a.test/listed", links=[{"url": "http://a.test/d/gone", "text": "y" * MAX_TEXT_LENGTH}])
    made = report(tmp_path, *pages, by_base, listed, failed("http://a.test/d/gone", "http_404", status_code=404))
    assert made.figures.broken[0].total == len(spellings) + 2


@pytest.mark.parametrize(
    ("part", "shown"),
    [(0, "0 %"), (1, "< 0.1 %"), (25, "0.2 %"), (5000, "50 %"), (9983, "99.8 %"), (9999, "> 99.9 %"), (10000, "100 %")],
)
def test_only_all_is_100_percent_and_only_none_is_0(part: int, shown: str) -> None:
    assert share_text(part, 10_000) == shown
