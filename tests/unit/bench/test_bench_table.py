"""The report as tables."""

import io

import pytest
from rich.console import Console

from bench.results import CrawlRow, Figure, Report, SiteResult
from bench.table import markdown, number, show

SCRAPY = CrawlRow(
    crawler="scrapy",
    title="Scrapy",
    pages=1000,
    crawls=1,
    wall_seconds=20.0,
    cpu_seconds=10.0,
    startup_cpu_seconds=1.0,
    peak_bytes=150_000_000,
)
GOSSAMER = CrawlRow(
    crawler="gossamer",
    title="Gossamer",
    pages=1000,
    crawls=3,
    wall_seconds=1.0,
    cpu_seconds=1.25,
    startup_cpu_seconds=0.5,
    store_cpu_seconds=0.25,
    peak_bytes=80_000_000,
    note="3 missing",
)
COLLY = CrawlRow(crawler="colly", title="colly (Go)", note="left out: there is no go", left_out=True)
REPORT = Report(
    "a machine",
    [SiteResult("A", "1,000 pages", "nginx", [SCRAPY, COLLY, GOSSAMER])],
    [Figure("a seen URL", 10.25, "bytes", "11")],
    [Figure("requests accepted", 12_345.0, "1/s", "10,000", "alone")],
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.956, "0.96"), (9.999, "10.00"), (10.25, "10.2"), (30_123.4, "30,123"), (5.0, "5"), (-0.5, "-0.50")],
)
def test_numbers_have_the_digits_that_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_markdown_has_every_row_and_its_ratios() -> None:
    lines = markdown(REPORT).splitlines()
    assert "**Site A: 1,000 pages, served by nginx**" in lines
    assert "| Scrapy | 1,000 | 50 | 100 | 10.00 | 1.00 | 0.00 | – | 150 |  |" in lines
    assert "| colly (Go) | – | – | – | – | – | – | – | – | left out: there is no go |" in lines
    assert "| Gossamer | 1,000 | 1,000 | 667 | 1.25 | 0.50 | 0.00 | 0.25 | 80 | 3 missing |" in lines
    assert "| Gossamer | – | – | – | – | 6.67 (9.00) | – | – |" in lines
    assert "| a seen URL | 10.2 | bytes | 11 |  |" in lines
    assert "| requests accepted | 12,345 | 1/s | 10,000 | alone |" in lines


def test_markdown_tables_are_whole() -> None:
    """Every line of a table has as many cells as its header, whatever a note says."""
    odd = CrawlRow(crawler="floor", title="floor", note="exit 1: a | b")
    text = markdown(Report("m", [SiteResult("A", "d", "nginx", [odd])], []))
    for table in text.split("\n\n"):
        rows = [line.replace("\\|", "") for line in table.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_a_terminal_gets_the_same_figures() -> None:
    screen = io.StringIO()
    show(REPORT, Console(file=screen, width=180))
    for text in ("Site A: 1,000 pages", "left out", "6.67 (9.00)", "a seen URL", "667"):
        assert text in screen.getvalue()


def test_nothing_measured_is_no_fault() -> None:
    assert markdown(Report("a machine", [], [])) == "a machine\n"


def test_a_column_of_notes_without_notes_is_left_out_on_a_terminal() -> None:
    screen = io.StringIO()
    figures = [Figure("a seen URL", 10.25, "bytes", "11")]
    show(Report("a machine", [SiteResult("A", "d", "nginx", [SCRAPY])], figures), Console(file=screen, width=180))
    headers = [line for line in screen.getvalue().splitlines() if line.startswith("┃")]
    assert len(headers) == 3
    assert all(line.split("┃")[-2].strip() for line in headers)
